"""Random Fourier features, which approximate a Gaussian kernel (Rahimi & Recht 2007).

A row x is mapped to the D features z(x) = sqrt(2 / D) cos(x B + b), where B and b are random. The product
z(x)·z(y) approximates exp(-gamma ‖x - y‖²) with an error of about 1 / sqrt(D). B consists of blocks of
orthogonal columns, whose norms are distributed like those of Gaussian columns. Orthogonality makes the error
smaller (Yu et al. 2016).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special

from streamsvm.base.threads import Threads, count_workers, one_thread_each
from streamsvm.data.rows import Rows, sparse_rows, with_matrix
from streamsvm.errors import Remedy, warn, wrong_setting
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.random import draws
from streamsvm.kernels.score import score_rows
from streamsvm.kernels.simd import item, lanes, load, multiply_add, store, zeros_like
from streamsvm.transforms.base import FittingData, Transform, checked_count, checked_number

MAX_WIDTH = 4096
_MAX_OUTPUTS = 2**20
_PART = 64  # columns of B that are multiplied at a time and stay in cache; a multiple of all vector lengths
_TILE_ROWS = 256
_MAX_THREADS = 16
_SYNTAX = "fourier=D[:gamma=x] with a number D from 1 to 1,048,576 and x above 0, such as fourier=2048"


@dataclasses.dataclass(frozen=True)
class Fourier(Transform):
    """Map rows to random features of a Gaussian kernel: dense rows with `outputs` values each, in float32.

    If `gamma` is None, training sets it to two over the median squared distance between random pairs of rows.
    """

    name: ClassVar = "fourier"
    by_feature: ClassVar = True
    dense: ClassVar = True
    makes_features: ClassVar = True

    outputs: int
    gamma: float | None = None  # factor in the kernel exp(-gamma ‖x - y‖²)
    seed: int = 0  # seed of B and b; fitting sets it to the seed of the training run
    width: int = 0

    def __post_init__(self) -> None:
        if type(self.outputs) is not int or not 1 <= self.outputs <= _MAX_OUTPUTS:
            raise ValueError(_SYNTAX)
        if self.gamma is not None:
            object.__setattr__(self, "gamma", checked_number(self.gamma, _SYNTAX, positive=True))
        checked_count(self.seed, "seed")
        if checked_count(self.width, "width") > MAX_WIDTH:
            raise ValueError(f"fourier takes at most {MAX_WIDTH} features")

    @classmethod
    def from_text(cls, value: str | None) -> Self:
        match = re.fullmatch(r"([0-9]{1,7})(:gamma=(.*))?", value or "")
        if match is None:
            raise ValueError(_SYNTAX)
        return cls(int(match[1]), None if match[3] is None else checked_number(match[3], _SYNTAX))

    def __call__(self, rows: Rows) -> Rows:
        matrix = np.empty((rows.n_rows, self.outputs), rows.data.dtype)
        with np.errstate(over="ignore"):  # `apply` refuses the row if it overflows
            float_rows = rows._replace(data=rows.data.astype(np.float32, copy=False))
        tiles = range(0, rows.n_rows, _TILE_ROWS)
        self._directions  # noqa: B018 - computed before the threads start
        with Threads(min(count_workers(None), max(len(tiles), 1), _MAX_THREADS)) as threads:
            threads.each(functools.partial(self._write_tile, float_rows, matrix), tiles)
        return with_matrix(rows._replace(indices=None), matrix)

    def _write_tile(self, rows: Rows, matrix: np.ndarray, begin: int) -> None:
        end = min(begin + _TILE_ROWS, rows.n_rows)
        tile, factor = np.empty((end - begin, _PART), np.float32), np.float32(np.sqrt(2 / self.outputs))
        for first, columns, offsets in zip(itertools.count(0, _PART), *self._directions):
            if rows.dense:
                _multiply(rows.data.reshape(rows.n_rows, self.width)[begin:end], columns, tile)
            else:
                score_rows(rows, begin, end, columns, tile)
            tile += offsets
            with np.errstate(invalid="ignore"):
                np.cos(tile, out=tile)
            part = matrix[begin:end, first : first + _PART]
            np.multiply(tile[:, : part.shape[1]], factor, out=part)

    @functools.cached_property
    def _directions(self) -> tuple[np.ndarray, np.ndarray]:
        """B and b in zero-padded parts, shapes (n_parts, width, _PART) and (n_parts, _PART)."""
        assert self.gamma is not None
        d, D = self.width, self.outputs
        n_parts, size = -(-D // _PART), min(d, D)
        columns, offsets = np.zeros((n_parts * _PART, d), np.float32), np.zeros(n_parts * _PART, np.float32)
        with one_thread_each:  # because the last bits of a QR decomposition depend on the number of threads
            for begin in range(0, D, size):
                u = self._uniform(D + begin * (d + 1), (d + 1) * size).reshape(d + 1, size)
                Q, _ = np.linalg.qr(special.ndtri(u[1:]))
                Q *= np.sqrt(4 * self.gamma * special.gammaincinv(d / 2, u[0]))
                columns[begin : min(begin + size, D)] = Q.T[: D - begin]
        offsets[:D] = 2 * np.pi * self._uniform(0, D)
        parts = columns.reshape(n_parts, _PART, d).transpose(0, 2, 1)
        return np.ascontiguousarray(parts), offsets.reshape(n_parts, _PART)

    def _uniform(self, first: int, n: int) -> np.ndarray:
        """Return the elements ``first:first + n`` of the uniform random sequence that the seed defines."""
        return ((draws(self.seed, np.arange(first, first + n)) >> np.uint64(12)) + 0.5) / 2**52

    def directions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return B and b, float32 of shapes (width, outputs) and (outputs,)."""
        parts, offsets = self._directions
        columns = parts.transpose(1, 0, 2).reshape(self.width, -1)
        return columns[:, : self.outputs], offsets.reshape(-1)[: self.outputs]

    @property
    def held_bytes(self) -> int:
        # B and, while it is computed, its transpose or the float64 arrays of a QR decomposition.
        size = 4 * self.width * (self.outputs + _PART)
        tiles = 4 * _TILE_ROWS * _PART * _MAX_THREADS
        return size + max(size, 5 * 8 * self.width * min(self.width, self.outputs)) + tiles

    def __getstate__(self) -> dict[str, Any]:
        return self.record()

    def fitted(self, data: FittingData) -> Self:
        if self.width and data.n_features != self.width:
            problem = f"in the model takes {self.width:,} features, but the data has"
            raise wrong_setting("transform", f"fourier {problem} {data.n_features:,}; train a new model")
        if not 0 < data.n_features <= MAX_WIDTH:
            problem = f"fourier takes 1 to {MAX_WIDTH:,} features, but the data has {data.n_features:,}"
            raise wrong_setting("transform", f"{problem}; leave it out, because wide data does not need it")
        if data.n_rows and self.outputs > data.n_rows:
            problem = f"fourier makes {self.outputs:,} features, more than the {data.n_rows:,} rows"
            warn(problem, remedy=Remedy("use fewer features"))
        seed = self.seed if self.width else data.seed
        return dataclasses.replace(self, seed=seed, width=data.n_features)

    @property
    def needs_rows(self) -> bool:  # type: ignore[override]
        return self.gamma is None

    def fitted_to_rows(self, rows: Rows, ranks: np.ndarray) -> Self:
        """Return a copy whose gamma is set from distances between rows of ranks i and i + n_rows // 2."""
        matrix, half = np.zeros((rows.n_rows, self.width)), rows.n_rows // 2
        rows = sparse_rows(rows, np.dtype(np.int64))
        matrix[np.repeat(ranks, np.diff(rows.indptr)), rows.features] = rows.data
        distance2 = np.square(matrix[:half] - matrix[half : 2 * half]).sum(axis=1)
        distance2 = distance2[distance2 > 0]
        if not len(distance2):
            problem = f"fourier cannot choose gamma, because in all {half:,} sampled pairs the rows are equal"
            raise wrong_setting("transform", f"{problem}; set it, as in fourier={self.outputs}:gamma=0.5")
        return dataclasses.replace(self, gamma=2 / float(np.median(distance2)))

    def n_features(self, n_features: int | None) -> int | None:
        if n_features not in (None, self.width):
            raise ValueError(f"fourier takes {self.width} features, not {n_features}")
        return self.outputs

    def nnz(self, nnz: Any, n_rows: int = 1) -> Any:
        return nnz * 0 + n_rows * self.outputs


@kernel
def _multiply(matrix, columns, products):
    """Write ``matrix @ columns`` to `products`, bit-identical to the results of `score_row`."""
    L, zero, n = lanes(columns), zeros_like(columns), len(matrix)
    for i0 in range(0, n, 4):
        i1, i2, i3 = min(i0 + 1, n - 1), min(i0 + 2, n - 1), min(i0 + 3, n - 1)  # repeats the last row
        for c in range(0, columns.shape[1], 2 * L):
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = zero
            for f in range(matrix.shape[1]):
                v, w = load(columns, (f, c)), load(columns, (f, c + L))
                x0, x1 = item(matrix, (i0, f)), item(matrix, (i1, f))
                x2, x3 = item(matrix, (i2, f)), item(matrix, (i3, f))
                s0, t0 = multiply_add(x0, v, s0), multiply_add(x0, w, t0)
                s1, t1 = multiply_add(x1, v, s1), multiply_add(x1, w, t1)
                s2, t2 = multiply_add(x2, v, s2), multiply_add(x2, w, t2)
                s3, t3 = multiply_add(x3, v, s3), multiply_add(x3, w, t3)
            for i, s, t in ((i0, s0, t0), (i1, s1, t1), (i2, s2, t2), (i3, s3, t3)):
                store(products, (i, c), s)
                store(products, (i, c + L), t)
