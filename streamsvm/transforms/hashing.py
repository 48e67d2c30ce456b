"""Hashing trick, which maps any number of features to a fixed number of columns (Weinberger et al. 2009).

Feature f is mapped to column ``h >> (64 - bits)`` with the sign ``1 - 2 (h & 1)``, where h is the 64-bit
hash ``mix(key + f γ)`` with ``key = mix(seed + γ)`` (see `streamsvm.kernels.random.mix`). f is the feature
number in the text, whether numbers start at 0 or 1. Values of features that share a column are added. Because
of the random signs, the errors in inner products cancel on average.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import numpy as np

from streamsvm.base.format import index_dtype
from streamsvm.data.rows import Rows, sparse_rows
from streamsvm.errors import wrong_setting
from streamsvm.kernels.jit import allocating
from streamsvm.kernels.random import GAMMA, mix
from streamsvm.transforms.base import FittingData, Transform

MAX_HASH_BITS = 31  # a column and a position in a row then fit in one int64 sort key


@dataclasses.dataclass(frozen=True)
class Hashing(Transform):
    """Hash features to ``2**bits`` columns; raise `ValueError` if a parameter is invalid."""

    name: ClassVar = "hash"
    takes_any_feature: ClassVar = True
    dense: ClassVar = False
    makes_features: ClassVar = True

    bits: int
    seed: int = 0  # from 0 to 2**63 - 1

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= MAX_HASH_BITS:
            raise ValueError(f"bits must be from 1 to {MAX_HASH_BITS}, not {self.bits!r}")
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be in [0, 2**63), not {self.seed!r}")

    def __call__(self, rows: Rows) -> Rows:
        """Hash the features, which are numbered as in LIBSVM text; values that cancel are stored as 0."""
        rows = sparse_rows(rows, np.dtype(np.int64))
        data, indices, indptr = _hash(rows.data, rows.features, rows.indptr, self.bits, self.seed)
        indices = indices.astype(index_dtype(2**self.bits))
        return rows._replace(data=data, indices=indices, indptr=indptr)

    def n_features(self, n_features: int | None) -> int | None:
        return 2**self.bits

    @classmethod
    def from_text(cls, value: str | None) -> Self:
        if value is None or not (
            value.isascii() and value.isdecimal() and 1 <= int(value[:4]) <= MAX_HASH_BITS
        ):
            raise ValueError(f"hash=bits with a number from 1 to {MAX_HASH_BITS}, such as hash=18")
        return cls(int(value))

    def fitted(self, data: FittingData) -> Self:
        if data.names is not None or data.index_base is None:
            problem = "hash needs the feature numbers of LIBSVM text, but this data has none"
            raise wrong_setting("transform", f"{problem}; leave it out, or choose features with select=FILE")
        return self


@allocating
def _hash(data, indices, indptr, bits, seed):
    n_rows = len(indptr) - 1
    new_data, new_indices = np.empty_like(data), np.empty(len(data), np.int64)
    new_indptr = np.zeros(n_rows + 1, np.int64)
    longest = np.diff(indptr).max() if n_rows else 0
    keys, signs = np.empty(longest, np.int64), np.empty(longest)
    key = mix(np.uint64(seed) + GAMMA)
    shift = np.uint64(64 - bits)
    filled = 0
    for i in range(n_rows):
        begin, n = indptr[i], indptr[i + 1] - indptr[i]
        for p in range(n):
            h = mix(key + np.uint64(indices[begin + p]) * GAMMA)
            signs[p] = -1.0 if h & np.uint64(1) else 1.0
            keys[p] = (np.int64(h >> shift) << 32) | p
        keys[:n].sort()
        p = 0
        while p < n:
            column, value = keys[p] >> 32, 0.0
            while p < n and keys[p] >> 32 == column:
                at = keys[p] & 0xFFFFFFFF
                value += signs[at] * data[begin + at]
                p += 1
            new_indices[filled] = column
            new_data[filled] = value
            filled += 1
        new_indptr[i + 1] = filled
    return new_data[:filled].copy(), new_indices[:filled].copy(), new_indptr
