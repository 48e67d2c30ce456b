"""Tiles of dense rows, which are visited one after another from scores that one matrix product gives.

For B rows with scores S = X W and inner products G = X Xᵀ, the scores of row t after the steps δ of the rows
before it are ``S[t] + Σ_{s<t} G[t, s] δ[s]``; after all of them the weights are ``W + Xᵀ δ``. In exact
arithmetic these are the iterates of one row at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.simd import LANES, cast, lanes, load, load_like, multiply_add, store, zeros


class Tile(NamedTuple):
    """Up to B rows; all arrays but `moved`, `n_moved`, `at` and `clock` have the dtype of the weights."""

    scores: np.ndarray  # (B, K): by the weights before any of the rows is visited
    average_scores: np.ndarray  # (B, K): by ``average_delta``; only where rows are scored without visits
    gram: np.ndarray  # (B, B): inner products of the rows
    steps: np.ndarray  # (B, K): what each row is multiplied by to update the weights
    moved: np.ndarray  # (B, K / LANES + 1) int64: first columns of the vectors in which a step is not 0
    n_moved: np.ndarray  # (B,) int64: their number; 0 before the row is visited
    at: np.ndarray  # (1,) int64: the row that is being visited
    clock: np.ndarray  # (1,) float64: the visit at which the average takes all steps of the tile to be made


@inlined
def begin_tile_row(scores, tile, t):
    """Write the scores of row `t` of the tile after the steps of the rows before it."""
    load_tile_scores(scores, tile.scores, t)
    like = cast(zeros(), scores)
    for s in range(t):
        factor = tile.gram[t, s]
        for r in range(tile.n_moved[s]):
            c = tile.moved[s, r]
            stepped = multiply_add(factor, load_like(tile.steps, (s, c), like), load_like(scores, c, like))
            store(scores, c, stepped)
    tile.at[0] = t


@inlined
def load_tile_scores(scores, source, t):
    """Copy row `t` of `source`, shape (B, K), to `scores`."""
    for c in range(0, len(scores), lanes(scores)):
        store(scores, c, load(source, (t, c)))


@inlined
def keep_step(tile, delta, vectors, n_vectors):
    """Keep the step of the row that is being visited, and set `delta` to zero."""
    t, like = tile.at[0], cast(zeros(), delta)
    for q in range(n_vectors):
        c = vectors[q]
        tile.moved[t, q] = c
        store(tile.steps, (t, c), load_like(delta, c, like))
        store(delta, c, like)
    tile.n_moved[t] = n_vectors


@kernel
def mark_moved(moved, n_moved, seen):
    """Set ``seen`` of each vector of columns in which a step of a tile is not 0."""
    for t in range(len(n_moved)):
        for r in range(n_moved[t]):
            seen[moved[t, r] // LANES] = True


@kernel
def clear_steps(steps, moved, n_moved):
    """Set the steps of a tile to zero."""
    for t in range(len(n_moved)):
        for r in range(n_moved[t]):
            for c in range(moved[t, r], moved[t, r] + LANES):
                steps[t, c] = 0


@kernel
def add_columns(target, columns, change):
    """Add `change`, shape (n, n_columns), to some columns of `target`."""
    for f in range(len(change)):
        for j in range(len(columns)):
            target[f, columns[j]] += change[f, j]
