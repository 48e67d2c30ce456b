"""A log of changed weights: `check_changes`, then `restore` into weights between guards.

The first bytes choose the shape and which checksums are made right again; the rest is the log.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from fuzz.workplace import allowed, folder

from streamsvm.errors import RunError
from streamsvm.kernels.weights import Weights
from streamsvm.run.weight_log import ChangeLog, check_changes, restore

HEADER, DOUBLE, LAG, LONGER = 1, 2, 4, 8
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
    dtype, n_arrays = np.dtype("f8" if flags & DOUBLE else "f4"), 2 if flags & LAG else 1
    if flags & HEADER:
        log = with_checksums(log, n_arrays * dtype.itemsize)
    path = folder("changes") / "changes-1.bin"
    path.write_bytes(log)
    length = len(log) + (1 if flags & LONGER else 0)
    now, around = _guarded(*shape, dtype)
    lag, around_lag = _guarded(shape[0] * (n_arrays - 1), shape[1], dtype)
    marks, around_marks = _guarded(shape[0], 2, np.dtype(np.uint64))
    with allowed(RunError):
        check_changes(path, length, dtype, n_arrays)
        restore(path, length, Weights.create(now, lag, 1.0, marks))
    for whole in (around, around_lag, around_marks):
        assert not whole[:GUARD].any()
        assert not whole[len(whole) - GUARD :].any()


def _guarded(rows: int, columns: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    whole = np.zeros((rows + 2 * GUARD, columns), dtype)
    return whole[GUARD : GUARD + rows], whole


def with_checksums(log: bytes, value_size: int) -> bytes:
    """The log with the checksums that fit."""
    found = bytearray(log)
    for at, end in parts(log, value_size):
        struct.pack_into("<I", found, at + 24, zlib.crc32(found[at + 32 : max(end, at + 32)]))
        struct.pack_into("<I", found, at + 28, zlib.crc32(found[at : at + 28]))
    return bytes(found)


def parts(log: bytes, value_size: int) -> Iterator[tuple[int, int]]:
    """Where parts begin and end: each begins where the one before says that it ends."""
    at = 0
    while at + 32 <= len(log):
        n_features, n_values = struct.unpack_from("<qq", log, at + 8)
        end = at + 32 + 16 * n_features + value_size * n_values
        yield at, end
        if not at < end < 2**40:
            break
        at = end


@functools.cache
def seeds() -> list[bytes]:
    found = []
    path = folder("changes-seeds") / "changes-1.bin"
    for flags in (0, HEADER, HEADER | DOUBLE, HEADER | LAG, HEADER | DOUBLE | LAG):
        for choice, shape in enumerate(SHAPES[:3]):
            dtype = np.dtype("f8" if flags & DOUBLE else "f4")
            now = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
            lag = now if flags & LAG else np.zeros((0, shape[1]), dtype)
            weights = Weights.create(now, lag, 1.0)
            log = ChangeLog(path)
            for rows, groups in (([0, 2], 1), ([1], 1)):
                weights.dirty[rows, 0] = groups
                log.append(weights)
            found.append(bytes([flags, choice]) + path.read_bytes())
    return found
