"""Rows hashed by compiled code, and again in plain Python: the same columns and the same bits.

The first bytes choose the width, the seed and the dtype; the rest are rows of features and values.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.transforms.hashing import Hashing

GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1
HEAD, PAIR = struct.Struct("<BBQ"), struct.Struct("<BQd")  # of a pair: kind, feature, value
MAX_BYTES = 1500
TOKENS = (
    bytes(8),
    b"\xff" * 8,
    b"\x01" + bytes(7),
    bytes(6) + b"\xf0\x3f",
    b"\xff" * 7 + b"\x7f",
    bytes(7) + b"\x80",
)


def run(data: bytes) -> None:
    if len(data) < HEAD.size:
        return
    bits, wide, seed = HEAD.unpack_from(data)
    bits, seed, dtype = 1 + bits % 31, seed % 2**63, np.dtype("f8" if wide & 1 else "f4")
    rows = _rows(data[HEAD.size :], dtype)
    data, indices, indptr, norm2 = [], [], [0], []
    for row in rows:
        columns: dict[int, float] = {}
        for feature in sorted(row):
            h = _mix((_mix(seed + GOLDEN) + feature * GOLDEN) & MASK)
            column = h >> (64 - bits)
            columns[column] = columns.get(column, 0.0) + (-row[feature] if h & 1 else row[feature])
        values = [float(dtype.type(columns[column])) for column in sorted(columns)]
        indices += sorted(columns)
        data += values
        indptr.append(len(indices))
        total = 0.0
        for value in values:
            total += value * value
        norm2.append(total)
    flat = [pair for row in rows for pair in sorted(row.items())]
    given = Rows(
        np.array([value for _, value in flat], dtype),
        np.array([feature for feature, _ in flat], np.int64),
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        np.arange(len(rows), dtype=np.int32),
        np.zeros(len(rows)),
    )
    found = Hashing(bits, seed)(given)
    assert found.indices.dtype == (np.int32 if bits < 31 else np.int64)
    assert found.data.dtype == dtype
    np.testing.assert_array_equal(found.indptr, indptr)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_array_equal(found.data, np.array(data, dtype))
    np.testing.assert_allclose(found.norm2, norm2, rtol=1e-14)  # a product may be added unrounded
    np.testing.assert_array_equal(found.labels, given.labels)


def _rows(data: bytes, dtype: np.dtype) -> list[dict[int, float]]:
    """Rows of finite values; a pair of an even kind begins one, and one of two empty rows."""
    rows: list[dict[int, float]] = [{}]
    for kind, feature, value in PAIR.iter_unpack(data[: len(data) // PAIR.size * PAIR.size]):
        if kind % 2 == 0:
            rows += [{}] * (kind // 128) + [{}]
        largest = float(np.finfo(dtype).max) ** 0.5 / 2**8
        if math.isfinite(value) and abs(value) < largest:
            rows[-1][feature % (2**62 if kind % 3 else 40)] = float(dtype.type(value))
    return rows


def _mix(state: int) -> int:
    """The finaliser of SplitMix64, as Steele, Lea & Flood (2014) print it."""
    state = (state & MASK) ^ ((state & MASK) >> 30)
    state = (state * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def seeds() -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for bits, seed in ((1, 0), (4, 7), (10, 2**63 - 1), (31, 3)):
        pairs = b"".join(PAIR.pack(rng.integers(256), rng.integers(2**62), rng.normal()) for _ in range(20))
        found += [HEAD.pack(bits - 1, wide, seed) + pairs for wide in (0, 1)]
    return found
