"""Small labelled matrices, and ways to store them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from streamsvm.data.rows import Rows, sparse_rows, with_matrix
from streamsvm.store import Contents, StoreWriter, layout


@dataclass
class Problem:
    """A CSR matrix with labels, and how to write it as a store."""

    matrix: sp.csr_matrix
    labels: np.ndarray
    classes: tuple[str, ...]
    names: np.ndarray
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None
    hold_out_by: np.ndarray | None = None
    indicator: sp.csr_matrix | None = None  # of shape (n, k), if rows may have several labels
    dense: bool = False  # its store has the zeros, too

    def rows(self, start: int, stop: int) -> Rows:
        part = self.matrix[start:stop]
        norms = np.empty(0)  # not used: the writer computes them
        indices = part.indices.astype(self.matrix.indices.dtype)
        rows = Rows(part.data, indices, part.indptr.astype(np.int64), self.labels[start:stop], norms)
        if self.weights is not None:
            rows = rows._replace(cost=self.weights[start:stop])
        if self.groups is not None:
            rows = rows._replace(qid=self.groups[start:stop])
        if self.hold_out_by is not None:
            rows = rows._replace(hold_out_by=self.hold_out_by[start:stop])
        if self.indicator is not None:
            sets = self.indicator[start:stop]
            codes, indptr = sets.indices.astype(np.int32), sets.indptr.astype(np.int64)
            rows = rows._replace(label_codes=codes, label_indptr=indptr)
        return with_matrix(rows._replace(indices=None), part.toarray()) if self.dense else rows

    def write(self, path: Path, cuts: list[int] | None = None, **options) -> str:
        n, d = self.matrix.shape
        names, meta = options.get("feature_names"), options.pop("meta", None)
        threads = options.pop("threads", 1)
        given = {"cost": self.weights, "qid": self.groups, "hold_out_by": self.hold_out_by}
        given["label_codes"] = self.indicator
        options = {
            "n": n, "d": d, "nnz": n * d if self.dense else self.matrix.nnz, "n_classes": len(self.classes),
            "index_base": 1, "chunk_nnz": 100, "dense": self.dense,
            "columns": [layout.COLUMNS[name] for name in given if given[name] is not None],
            "n_labels": 0 if self.indicator is None else self.indicator.nnz,
        } | options | {
            "feature_names": names is not None,
            "dtype": np.dtype(options.get("dtype", self.matrix.dtype)).name,
        }  # fmt: skip
        contents = Contents(**options)
        with StoreWriter(
            path, contents, self.classes, feature_names=names, meta=meta, threads=threads
        ) as writer:
            edges = [0, *(cuts or []), n]
            for start, stop in pairwise(edges):
                writer.append(self.rows(start, stop), self.names[start:stop])
            return writer.finish()


def make_problem(n: int = 90, d: int = 40, density: float = 0.2, dtype: str = "f4", seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    matrix = sp.random(n, d, density, format="csr", random_state=rng, dtype=np.float64).astype(dtype)
    matrix.sort_indices()
    for row in {0, n // 2, n - 1} & set(range(n)):  # empty rows at the ends and in the middle
        matrix.data[matrix.indptr[row] : matrix.indptr[row + 1]] = 0
    matrix.eliminate_zeros()
    classes = ("10", "2", "ähnlich", "zz top")
    return Problem(matrix, rng.integers(0, 4, n).astype(np.int32), classes, rng.permutation(n))


def make_dense_problem(n: int = 90, d: int = 40, dtype: str = "f4") -> Problem:
    """A problem of a dense store, whose values are numbers in `dtype`; at most float16 is kept in float32."""
    problem = make_problem(n, d, 0.8, dtype="f8" if dtype == "f8" else "f4")
    problem.matrix.data[:] = problem.matrix.data.astype(dtype)
    problem.dense = True
    return problem


def make_full_problem(n: int = 90, seed: int = 0) -> Problem:
    """A problem with weights, several labels a row, groups, and hashes to hold out by."""
    problem, rng = make_problem(n, seed=seed), np.random.default_rng(seed + 1)
    problem.weights = np.where(rng.random(n) < 0.1, 0, rng.exponential(size=n))
    problem.groups = np.repeat(rng.permutation(n) * 2**55, 1 + np.arange(n) % 5)[:n]
    problem.hold_out_by = problem.groups // 3
    indicator = sp.csr_matrix(rng.random((n, len(problem.classes))) < 0.4, dtype=np.int8)
    problem.indicator = indicator
    for row in range(n):
        own = indicator[row].indices
        problem.labels[row] = own.min() if len(own) else -1
    return problem


def assert_rows_equal(rows: Rows, matrix: sp.csr_matrix, labels: np.ndarray) -> None:
    """Assert that `rows` are those of a matrix, which scipy sliced; dense rows have its zeros, too."""
    if rows.dense:
        assert rows.data.flags.c_contiguous
        full = matrix.toarray()
        np.testing.assert_array_equal(rows.data.reshape(full.shape), full)
        np.testing.assert_array_equal(rows.indptr, np.arange(len(full) + 1) * full.shape[1])
        rows = sparse_rows(rows, matrix.indices.dtype)
        matrix = sp.csr_matrix(full)
    np.testing.assert_array_equal(rows.data, matrix.data)
    np.testing.assert_array_equal(rows.indices, matrix.indices)
    np.testing.assert_array_equal(rows.indptr, matrix.indptr)
    np.testing.assert_array_equal(rows.labels, labels)
    squares = matrix.astype(np.float64).power(2).sum(axis=1)
    np.testing.assert_allclose(rows.norm2, np.asarray(squares).ravel(), rtol=1e-13)
