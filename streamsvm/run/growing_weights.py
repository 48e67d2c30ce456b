"""Weights of a stream: they grow by the features and classes that appear on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamsvm import durable
from streamsvm.errors import PlanError
from streamsvm.kernels.simd import LINE
from streamsvm.kernels.steps import Weights, padded_classes
from streamsvm.model import check_room
from streamsvm.run.weights import LARGEST_FILE, map_array

# The unit of time of the average (see `Weights`): the length of a stream is not known, and need not
# be. Visit t moves ``lag`` by (t / unit)⁴ Δw, whose factor float32 holds, and its inverse, to t = 2**45.
HORIZON = 2.0**20

_PIECE = 2**24  # bytes laid out anew at a time


class GrowingWeights:
    """The weights in use, what their average lags behind, and their marks, in memory-mapped files.

    The files are longer than what is in use, and sparse: a feature that was never moved takes no
    disk. A class that appears takes one of the padding's columns, which are zero. When none is left
    the files are laid out anew with at least twice the columns.

    Parameters
    ----------
    paths : tuple of Path
        Of the weights, the lag, and the marks; new files take their places.
    shape : tuple of int
        Features and columns to begin with; columns may be 0 for as few as can be. Raises `PlanError` if
        no file can hold them.
    dtype : dtype

    Attributes
    ----------
    weights : Weights
        All rows and columns mapped: at least those asked for.
    n_features : int
        Rows in use.
    laid_out : bool
        Whether columns were added since this was last set to False: what a log of changes says of
        them no longer fits.
    """

    def __init__(self, paths: tuple[Path, Path, Path], shape: tuple[int, int], dtype: np.dtype) -> None:
        self._paths = paths
        self._dtype = dtype
        self.n_features = shape[0]
        self.laid_out = False
        self._check(*shape, 0)
        for path in paths:
            durable.remove(path)
            path.touch()
        self._map((shape[0], shape[1] or LINE // dtype.itemsize))

    @property
    def used(self) -> Weights:
        """The rows in use: what a commit holds, and a model."""
        n, weights = self.n_features, self.weights
        return weights._replace(now=weights.now[:n], lag=weights.lag[:n], marks=weights.marks[:n])

    def grow(self, n_features: int, n_classes: int) -> None:
        """Make room for so many features and classes.

        Raises `PlanError` if no file can hold them, or the disk their model.
        """
        rows, columns = self.weights.now.shape
        n_features = max(self.n_features, n_features)
        needed = padded_classes(n_classes, self._dtype)
        self._check(n_features, max(columns, needed), n_classes)
        if needed > columns:
            most = LARGEST_FILE // (max(n_features, 1) * self._dtype.itemsize)
            wider = padded_classes(max(needed, min(2 * columns, most)), self._dtype)
            self.n_features = n_features
            self._lay_out(wider if columns > LINE // self._dtype.itemsize else needed)
            rows, columns = self.weights.now.shape
        if n_features > rows:
            most = LARGEST_FILE // (columns * self._dtype.itemsize)
            self._map((max(n_features, min(2 * rows, most)), columns))
        self.n_features = n_features

    def _check(self, n_features: int, columns: int, n_classes: int) -> None:
        size = n_features * columns * self._dtype.itemsize
        if size > LARGEST_FILE:
            raise PlanError(
                f"the weights of {n_features:,} features and {n_classes:,} classes take {size:.1e} bytes, "
                "more than a file can; hash the features with --hash-bits"
            )
        check_room(self._paths[0].parent, n_features, n_classes, self._dtype.itemsize)

    def _map(self, shape: tuple[int, int]) -> None:
        """Map the files, extended to `shape` by zeros that take no disk."""
        now, lag = (map_array(path, shape, self._dtype, fresh=False) for path in self._paths[:2])
        marks = map_array(self._paths[2], (shape[0], 2), np.dtype(np.uint64), fresh=False)
        self.weights = Weights.create(now, lag, HORIZON, marks)

    def _lay_out(self, columns: int) -> None:
        """Write the files anew with so many columns, without the rows that are zero."""
        shape = (self.n_features, columns)
        for path, old in zip(self._paths, self.weights[:2], strict=False):
            path.unlink()  # the map of what it held lives on
            new = map_array(path, shape, self._dtype)
            step = max(1, _PIECE // (columns * self._dtype.itemsize))
            for at in range(0, min(len(old), len(new)), step):
                piece = old[at : min(at + step, len(new))]
                moved = np.flatnonzero(piece.any(axis=1))
                new[at + moved, : old.shape[1]] = piece[moved]
        before = self.weights
        self._map(shape)
        groups = (1 << -(-before.now.shape[1] >> self.weights.shift)) - 1  # that can be other than zero
        changed = np.flatnonzero(self.weights.marks.any(axis=1))
        self.weights.marks[changed] = groups, 0
        self.laid_out = True
