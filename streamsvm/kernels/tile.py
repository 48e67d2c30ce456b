"""Tiles of dense rows, which are visited one after another but scored by a single matrix product.

For B rows X with scores S = X W and inner products G = X Xᵀ, the scores of row t after the steps δ of the
earlier rows are ``S[t] + Σ_{s<t} G[t, s] δ[s]``. After all steps, the weights are ``W + Xᵀ δ``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.simd import LANES, cast, lanes, load, load_like, multiply_add, store, zeros


class Tile(NamedTuple):
    """Tile of up to B rows. The arrays have the dtype of the weights unless stated otherwise."""

    scores: np.ndarray  # (B, K): scores before the first visit of the tile
    average_scores: np.ndarray  # (B, K): scores with ``average_delta``, for scoring outside visits
    gram: np.ndarray  # (B, B): inner products of the rows
    steps: np.ndarray  # (B, K): multiples of each row to add to the weights
    moved: np.ndarray  # (B, K / LANES + 1) int64: first columns of the vectors with a non-zero step
    n_moved: np.ndarray  # (B,) int64: number of vectors in ``moved``; 0 before the row is visited
    at: np.ndarray  # (1,) int64: index of the row being visited
    clock: np.ndarray  # (1,) float64: time of all steps of the tile in the running average


@inlined
def begin_tile_row(scores, tile, t):
    """Write the scores of row `t` of the tile, after the steps of the earlier rows."""
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
    for c in range(0, len(scores), lanes(scores)):
        store(scores, c, load(source, (t, c)))


@inlined
def keep_step(tile, delta, vectors, n_vectors):
    """Store the step of the row being visited in the tile, and set `delta` to zero."""
    t, like = tile.at[0], cast(zeros(), delta)
    for q in range(n_vectors):
        c = vectors[q]
        tile.moved[t, q] = c
        store(tile.steps, (t, c), load_like(delta, c, like))
        store(delta, c, like)
    tile.n_moved[t] = n_vectors


@kernel
def mark_moved(moved, n_moved, seen):
    """Mark in `seen` the vectors of columns in which a row of the tile has a non-zero step."""
    for t in range(len(n_moved)):
        for r in range(n_moved[t]):
            seen[moved[t, r] // LANES] = True


@kernel
def clear_steps(steps, moved, n_moved):
    for t in range(len(n_moved)):
        for r in range(n_moved[t]):
            for c in range(moved[t, r], moved[t, r] + LANES):
                steps[t, c] = 0


@kernel
def add_columns(target, columns, change):
    """Add `change`, shape (n, n_columns), to ``target[:n, columns]``."""
    for f in range(len(change)):
        for j in range(len(columns)):
            target[f, columns[j]] += change[f, j]
