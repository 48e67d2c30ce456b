"""Time a training pass against scoring each row, which is the least that any pass must do.

No other benchmark calls kernels, whose signatures are private.
"""

from __future__ import annotations

import mmap
import statistics
import time
from typing import NamedTuple

import numpy as np

from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.data.rows import Rows
from streamsvm.kernels.duals import Duals, OldDuals
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.random import permutation
from streamsvm.kernels.score import score_row
from streamsvm.kernels.scratch import Scratch
from streamsvm.kernels.tally import N_TALLIES
from streamsvm.kernels.weights import Weights, padded_classes
from streamsvm.losses import get_loss
from streamsvm.training.learner import new_buffer

BUFFER = 2**24  # new duals that fit in one call
STEADY = 3  # the first pass to be timed: before it most rows change many classes


class KernelTimes(NamedTuple):
    """Medians over the steady passes, in seconds; `ratio` is the median of the passes' ratios."""

    full: float
    bare: float
    ratio: float


@kernel
def score_all(rows, weights, scores):
    for i in range(len(rows.labels)):
        score_row(scores, rows, i, weights, 0, len(scores))


def time_kernels(rows: Rows, n_features: int, n_classes: int, C: float, *, passes: int = 7) -> KernelTimes:
    """Passes over rows in memory, in float32 and random order, each followed by the bare score kernel.

    The bare kernel scores every row in storage order, with the same weights, into one buffer.
    """
    dtype, loss = np.dtype(np.float32), get_loss("ww")
    n, ids = rows.n_rows, dual_id_dtype(n_classes)
    K = padded_classes(n_classes, dtype)
    mapped = mmap.mmap(-1, n_features * K * dtype.itemsize)  # aligned to pages, as those of a run are
    current = np.frombuffer(mapped, dtype).reshape(n_features, K)
    weights = Weights.create(current, np.zeros((0, K), dtype), 1.0)  # without the average
    scratch, problem, rows = (
        Scratch.create(K, dtype),
        Problem(n_classes, 1.0),
        rows._replace(cost=np.full(rows.n_rows, C)),
    )
    buffer = new_buffer(max(n_classes, min(n * n_classes, BUFFER)), n, dtype, ids)
    old = _as_old(n, [], ids, dtype)
    full, bare = [], []
    for this_pass in range(1, passes + 1):
        order, tally = permutation(n, 0, this_pass, 0, 0), np.zeros(N_TALLIES)
        at, seconds, parts = 0, 0.0, []
        while at < n:  # more than one turn only if the buffer is full
            begin = time.perf_counter()
            at = loss.kernels.visit(
                rows, order, at, n, problem, weights, Duals(old, buffer), scratch, tally, None, None, None
            )
            seconds += time.perf_counter() - begin
            entries, visited = (int(used) for used in buffer.used)
            parts.append(
                [buffer.ids[:entries].copy(), buffer.values[:entries].copy(),
                 buffer.rows[:visited].copy(), buffer.counts[:visited].copy()]
            )  # fmt: skip
            buffer.used[:] = 0
        old = _as_old(n, parts, ids, dtype)
        full.append(seconds)
        begin = time.perf_counter()
        score_all(rows, current, scratch.scores)
        bare.append(time.perf_counter() - begin)
    full, bare = full[STEADY - 1 :], bare[STEADY - 1 :]
    ratios = [a / b for a, b in zip(full, bare, strict=True)]
    return KernelTimes(*map(statistics.median, (full, bare, ratios)))


def _as_old(n: int, parts: list[list[np.ndarray]], ids: np.dtype, dtype: np.dtype) -> OldDuals:
    """What the next pass reads, read-only like the mapped log of a run."""
    empty = [np.zeros(0, ids), np.zeros(0, dtype), np.zeros(0, np.int32), np.zeros(0, np.int32)]
    classes, values, visited, counted = (np.concatenate(arrays) for arrays in zip(empty, *parts, strict=True))
    at, counts = np.zeros(n, np.int64), np.zeros(n, np.int32)
    at[visited] = np.cumsum(counted, dtype=np.int64) - counted
    counts[visited] = counted
    return OldDuals.create(classes, values, at, at.copy(), counts)
