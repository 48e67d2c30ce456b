"""Transforms that scale rows: normalize to a given sum, and l2 to norm 1."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.jit import kernel
from streamsvm.transforms.base import Transform, checked_number, refuse_negative

_DEFAULT_TARGET = 1e4
_SMALLEST = 1e-280  # smaller squared norms have lost digits
_TARGET = "normalize=target with a number above 0, such as normalize=1e4"


@dataclasses.dataclass(frozen=True)
class Normalize(Transform):
    """Scale rows to the sum `target`, as in ``scanpy.pp.normalize_total``; zero rows are unchanged."""

    name: ClassVar = "normalize"
    setting: ClassVar = "target"

    target: float = _DEFAULT_TARGET  # above 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", checked_number(self.target, _TARGET, positive=True))

    def __call__(self, rows: Rows) -> Rows:
        data = np.empty_like(rows.data)
        if not _normalize(rows.data, rows.indptr, self.target, data):
            refuse_negative(rows, self.name)
        return rows._replace(data=data)


@dataclasses.dataclass(frozen=True)
class L2(Transform):
    """Scale rows to norm 1, as in ``sklearn.preprocessing.normalize``; zero rows are unchanged."""

    name: ClassVar = "l2"

    def __call__(self, rows: Rows) -> Rows:
        data = np.empty_like(rows.data)
        norm2 = squared_norms(rows)
        factors = 1 / np.sqrt(np.where(norm2 > 0, norm2, 1.0))
        np.multiply(rows.data, np.repeat(factors, np.diff(rows.indptr)), out=data, casting="same_kind")
        for row in np.flatnonzero(~((norm2 > _SMALLEST) & (norm2 < np.inf))).tolist():
            part = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
            values = rows.data[part].astype(np.float64)  # because squares overflow or lose digits
            values /= np.abs(values).max(initial=0.0) or 1.0
            data[part] = values / (np.sqrt(values @ values) or 1.0)
        return rows._replace(data=data)


def squared_norms(rows: Rows) -> np.ndarray:
    """Return the squared norm of each row as float64, with inf on overflow."""
    norm2 = np.empty(rows.n_rows)
    _squared_norms(rows.data, rows.indptr, norm2)
    return norm2


@kernel
def _squared_norms(data, indptr, norm2):
    for i in range(len(indptr) - 1):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[p]) * np.float64(data[p])
        norm2[i] = total


@kernel
def _normalize(data, indptr, target, new):
    """Write scaled rows to `new`; return False if a value is negative."""
    for i in range(len(indptr) - 1):
        total, smallest = 0.0, np.inf
        for p in range(indptr[i], indptr[i + 1]):
            x = np.float64(data[p])
            total += x
            smallest = min(smallest, x)
        if smallest < 0:
            return False
        factor = target / total if total > 0 else 1.0
        for p in range(indptr[i], indptr[i + 1]):
            new[p] = data[p] * factor
    return True
