"""Weights of a stream, which grow with new features and classes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from streamsvm.base import durable
from streamsvm.errors import Option, PlanError, Remedy
from streamsvm.kernels.simd import VECTOR_BYTES
from streamsvm.kernels.weights import Weights, padded_classes
from streamsvm.model.serialization import check_room
from streamsvm.run.weights import LARGEST_FILE, DenseWeights, map_array

# Time unit of the average (see `Weights`). The length of a stream need not be known: row t adds (t / unit)²
# times its weight change to the average delta. Up to t = 2**45, float32 can hold this factor and its inverse.
TIME_UNIT = 2.0**20

_COPIED_BYTES = 2**24


class GrowingWeights(DenseWeights):
    """Weights and their average delta (see `Weights`) in memory-mapped files that grow.

    The files are longer than needed, but sparse: features whose weights never changed take no disk space. A
    new class takes one of the padding columns, which are zero. If no padding column is left, the files are
    rewritten, usually with twice as many columns.

    `shape` contains the initial numbers of features and columns; 0 columns mean the minimum. `paths` are
    the files of the weights and of the average delta; existing files are replaced. Raises `PlanError` if the
    weights exceed the maximum size of a file, or if the disk has no room for the model.
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, paths: tuple[Path, Path]) -> None:
        self._paths = paths
        self._dtype = dtype
        self._n_features = shape[0]
        self._check(*shape, 0)
        for path in paths:
            durable.remove(path)
            path.touch()
        self._map((shape[0], shape[1] or VECTOR_BYTES // dtype.itemsize))

    @property
    def n_features(self) -> int:
        return self._n_features

    @property
    def in_use(self) -> Weights:
        n, weights = self._n_features, self.weights
        return weights._replace(current=weights.current[:n], average_delta=weights.average_delta[:n])

    def grow(self, n_features: int, n_classes: int) -> None:
        rows, columns = self.weights.current.shape
        n_features = max(self._n_features, n_features)
        needed = padded_classes(n_classes, self._dtype)
        self._check(n_features, max(columns, needed), n_classes)
        if needed > columns:
            max_columns = LARGEST_FILE // (max(n_features, 1) * self._dtype.itemsize)
            wider = padded_classes(max(needed, min(2 * columns, max_columns)), self._dtype)
            self._n_features = n_features
            self._add_columns(wider if columns > VECTOR_BYTES // self._dtype.itemsize else needed)
            rows, columns = self.weights.current.shape
        if n_features > rows:
            max_rows = LARGEST_FILE // (columns * self._dtype.itemsize)
            factor = 1 if self._is_reserved else 2  # room for new features takes no space until it is used
            self._map((max(n_features, min(factor * rows, max_rows)), columns))
        self._n_features = n_features

    def begin_average(self) -> None:
        """Do nothing, because the average of a stream starts at its first row, with an average delta of 0."""

    def _check(self, n_features: int, columns: int, n_classes: int) -> None:
        size = n_features * columns * self._dtype.itemsize
        if size > LARGEST_FILE:
            raise PlanError(
                f"the weights of {n_features:,} features and {n_classes:,} classes take {size:.1e} bytes, "
                "more than a file can hold",
                remedy=Remedy("hash the features with {}", Option("transform", "hash=24")),
            )
        size = n_features * n_classes * self._dtype.itemsize
        check_room(self._paths[0].parent, size, n_features, n_classes)

    def _map(self, shape: tuple[int, int]) -> None:
        current, delta = (map_array(path, shape, self._dtype, fresh=False) for path in self._paths)
        self.weights = Weights(current, delta, TIME_UNIT)
        self._is_reserved = 512 * os.stat(self._paths[0]).st_blocks >= current.nbytes

    def _add_columns(self, columns: int) -> None:
        shape = (self._n_features, columns)
        for path, old in zip(self._paths, self.weights[:2], strict=True):
            path.unlink()  # the old mapping stays valid
            new = map_array(path, shape, self._dtype)
            step = max(1, _COPIED_BYTES // (columns * self._dtype.itemsize))
            for at in range(0, min(len(old), len(new)), step):
                piece = old[at : min(at + step, len(new))]
                changed = np.flatnonzero(piece.any(axis=1))
                new[at + changed, : old.shape[1]] = piece[changed]
        self._map(shape)
