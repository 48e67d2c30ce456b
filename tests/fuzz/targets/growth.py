"""Weights that grow between visits and commits, beside weights that had the final size from the start.

Each four bytes are a step: room for features and classes, a row to learn from, or a commit.
"""

from __future__ import annotations

import numpy as np
from fuzz.workplace import folder

from streamsvm.base import durable
from streamsvm.data.rows import Rows
from streamsvm.kernels.duals import Duals
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.scratch import Scratch
from streamsvm.kernels.tally import N_TALLIES
from streamsvm.kernels.weights import Weights, padded_classes
from streamsvm.losses import get_loss
from streamsvm.run.checkpoint import RunPosition, commit
from streamsvm.run.directory import RunDir
from streamsvm.run.dual_log import DualFormat
from streamsvm.run.files import MemoryDuals
from streamsvm.run.growing_weights import TIME_UNIT, GrowingWeights
from streamsvm.run.weight_log import restore

FEATURES, CLASSES = 8, 1  # of each unit in a step
MAX_BYTES = 400
TOKENS = (b"\x00\xff\xff\xff", b"\x00\x10\x10\x00", b"\x00\x20\x11\x00", b"\x03\x00\x00\x00", bytes(4))
NO_IDS = np.dtype(np.uint8)


def run(data: bytes) -> None:
    if not data:
        return
    dtype = np.dtype("f8" if data[0] & 1 else "f4")
    steps = [tuple(data[at : at + 4]) for at in range(1, len(data) - 3, 4)]
    run_dir = RunDir(folder("growth"))
    for path in run_dir.path.iterdir():
        durable.remove(path)
    position = RunPosition()
    paths = run_dir.weights, run_dir.dirty, run_dir.average_delta
    growing = GrowingWeights((0, 0), dtype, paths)
    tally, n_classes, visits = np.zeros(N_TALLIES), 1, []
    growing.grow(1, 1)
    for kind, a, b, c in steps:
        if kind % 4 == 0:
            n_classes = max(n_classes, 1 + a * CLASSES % 100)
            growing.grow(1 + b * FEATURES, n_classes)
        elif kind % 4 == 3:
            position, _ = commit(run_dir, position, growing)
            _check_log(run_dir, position, growing.in_use)
        else:
            features = {(b * FEATURES + kind) % growing.n_features, c * FEATURES % growing.n_features}
            visits.append((sorted(features), a % n_classes, n_classes, (kind - 100) / 64))
            _visit(visits[-1], growing.weights, tally)
    current, delta = growing.in_use[:2]
    shape = growing.n_features, padded_classes(n_classes, dtype)
    at_once, tally_at_once = Weights.create(*np.zeros((2, *shape), dtype), TIME_UNIT), np.zeros(N_TALLIES)
    for visit in visits:
        _visit(visit, at_once, tally_at_once)
    for grown, whole in ((current, at_once.current), (delta, at_once.average_delta)):
        np.testing.assert_array_equal(grown[:, : shape[1]], whole)
        assert not grown[:, n_classes:].any()
    np.testing.assert_array_equal(tally, tally_at_once)


class Held:
    """A storage that only holds weights."""

    sparse_rows = None

    def __init__(self, weights: Weights) -> None:
        self.weights = self.in_use = weights


def _check_log(run_dir: RunDir, position: RunPosition, used: Weights) -> None:
    """What a commit wrote is all that there is."""
    current, delta = np.zeros((2, *used.current.shape), used.current.dtype)
    log = run_dir.weight_log(position.weights_number)
    restore(log, position.weights.length, Held(Weights.create(current, delta, TIME_UNIT)))
    np.testing.assert_array_equal(current, used.current)
    np.testing.assert_array_equal(delta, used.average_delta)


def _visit(visit: tuple[list[int], int, int, float], weights: Weights, tally: np.ndarray) -> None:
    features, label, n_classes, value = visit
    dtype = weights.current.dtype
    data = np.full(len(features), value, dtype)
    rows = Rows(
        data,
        np.array(features, np.int32),
        np.array([0, len(features)], np.int64),
        np.array([label], np.int32),
        np.array([float(np.sum(data.astype(float) ** 2))]),
        np.ones(1),
    )
    scratch = Scratch.create(padded_classes(n_classes, dtype), dtype)
    buffer = DualFormat(dtype, NO_IDS).new_buffer(0, 0)
    get_loss("ww").kernels.visit(
        rows, np.arange(1), 0, 1, Problem(n_classes, 1.0), weights,
        Duals(MemoryDuals(DualFormat(dtype, NO_IDS)).segment(0, 1), buffer), scratch, tally, None,
        None, None,
    )  # fmt: skip


def seeds() -> list[bytes]:
    grow, visit, commit = (lambda a, b: (0, a, b, 0)), (lambda k, a, b, c: (k, a, b, c)), (3, 0, 0, 0)
    step_lists = [
        [grow(3, 1), visit(1, 0, 0, 1), visit(2, 1, 1, 0), commit, grow(20, 9), visit(5, 19, 4, 8), commit],
        [s for n in range(1, 40, 3) for s in (grow(n, n), visit(2 * n + 1 | 1, n, n, n + 3))],
        [
            grow(16, 3),
            visit(9, 15, 1, 2),
            commit,
            visit(13, 3, 2, 1),
            commit,
            grow(99, 255),
            commit,
            grow(17, 2),
        ],
        [s for n in range(12) for s in (visit(2 + 4 * n, n, n, 1), grow(8 * n, 200 - n), commit)],
    ]
    return [
        bytes([dtype]) + bytes(x for step in steps for x in step) for steps in step_lists for dtype in (0, 1)
    ]
