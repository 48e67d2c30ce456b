"""A batch of CSR rows with labels: what flows from stores and text into the kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    """Consecutive rows of a CSR matrix, as contiguous arrays that compiled code takes directly.

    Attributes
    ----------
    data : ndarray of float32 or float64, shape (nnz,)
    indices : ndarray of int32 or int64, shape (nnz,)
        Feature of each value, 0-based, strictly increasing within a row.
    indptr : ndarray of int64, shape (n_rows + 1,)
        Row ``i`` is ``data[indptr[i]:indptr[i + 1]]``; ``indptr[0]`` is 0.
    labels : ndarray of int32, shape (n_rows,)
        Class codes; -1 marks a label that training did not know.
    norm2 : ndarray of float64, shape (n_rows,)
        Squared Euclidean norm of each row, from the values as stored.
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    labels: np.ndarray
    norm2: np.ndarray

    @property
    def n_rows(self) -> int:
        return len(self.labels)
