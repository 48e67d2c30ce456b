"""A log of weights: `check`, then `restore` into weights between guards.

The first bytes choose the shape and which checksums are made right again; the rest is the log.
"""

from __future__ import annotations

import functools

import numpy as np
from fuzz import logs
from fuzz.workplace import allowed, folder

from streamsvm.errors import RunError
from streamsvm.kernels.weights import Weights
from streamsvm.run.append_log import AppendLog, LogEnd, check
from streamsvm.run.weight_log import MAGICS, append_weights, restore

HEADER, DOUBLE, AVERAGE, LONGER = 1, 2, 4, 8
SHAPES = ((3, 16), (5, 16), (9, 48), (4, 2048))
GUARD = 100  # rows before and after the weights, which must stay as they are
MAX_BYTES = 2000
TOKENS = (
    *(b"SSVMWGTS", bytes(8), b"\x01" + bytes(7), b"\xff" * 8, b"\xff" * 7 + b"\x7f", bytes(7) + b"\x80"),
    *(b"\x02" + bytes(7), bytes(7) + b"\x40", b"\x07" + bytes(7)),
)


def run(data: bytes) -> None:
    if len(data) < 2:
        return
    flags, shape, log = data[0], SHAPES[data[1] % len(SHAPES)], data[2:]
    dtype, n_arrays = np.dtype("f8" if flags & DOUBLE else "f4"), 2 if flags & AVERAGE else 1
    if flags & HEADER:
        log = logs.with_checksums(log)
    path = folder("changes") / "changes-1.bin"
    path.write_bytes(log)
    length = len(log) + (1 if flags & LONGER else 0)
    current, around = _guarded(*shape, dtype)
    delta, around_delta = _guarded(shape[0] * (n_arrays - 1), shape[1], dtype)
    dirty, around_dirty = _guarded(shape[0], 2, np.dtype(np.uint64))
    with allowed(RunError):
        check(path, length, MAGICS)
        restore(path, length, Held(Weights.create(current, delta, 1.0, dirty)))
    for whole in (around, around_delta, around_dirty):
        assert not whole[:GUARD].any()
        assert not whole[len(whole) - GUARD :].any()


class Held:
    """A storage that only holds weights."""

    sparse_rows = None

    def __init__(self, weights: Weights) -> None:
        self.weights = self.in_use = weights


def _guarded(rows: int, columns: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    whole = np.zeros((rows + 2 * GUARD, columns), dtype)
    return whole[GUARD : GUARD + rows], whole


@functools.cache
def seeds() -> list[bytes]:
    found = []
    path = folder("changes-seeds") / "changes-1.bin"
    for flags in (0, HEADER, HEADER | DOUBLE, HEADER | AVERAGE, HEADER | DOUBLE | AVERAGE):
        for choice, shape in enumerate(SHAPES[:3]):
            dtype = np.dtype("f8" if flags & DOUBLE else "f4")
            now = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
            lag = now if flags & AVERAGE else np.zeros((0, shape[1]), dtype)
            weights = Weights.create(now, lag, 1.0)
            log = AppendLog(path, LogEnd())
            for rows, groups in (([0, 2], 1), ([1], 1)):
                weights.dirty[rows, 0] = groups
                append_weights(log, weights, None)
            log.close()
            found.append(bytes([flags, choice]) + path.read_bytes())
    return found
