"""Statistics of features, against NumPy; rows in several spans, however they are cut into pieces."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import gather

from streamsvm.data import statistics
from streamsvm.data.rows import Rows, row_span
from streamsvm.data.statistics import spans

N, D = 500, 7


@pytest.fixture(scope="module")
def dense() -> np.ndarray:
    rng = np.random.default_rng(0)
    found = np.where(rng.random((N, D)) < 0.4, 50 + rng.normal(size=(N, D)), 0.0)
    found[:300, 1] = 0  # only in later spans
    found[300:, 2] = 0  # only in the first ones
    found[:, 3] = 0
    return found


@pytest.fixture
def short_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_MIN_SPAN_ROWS", 64)


def as_rows(dense: np.ndarray) -> Rows:
    matrix = sp.csr_array(dense)
    n = len(dense)
    return Rows(
        matrix.data, matrix.indices.astype("i4"), matrix.indptr.astype("i8"), np.zeros(n, "i4"), np.zeros(n)
    )


@pytest.mark.parametrize("kind", ["counts", "moments"])
@pytest.mark.usefixtures("short_spans")
def test_spans_have_the_statistics_of_all_rows(dense: np.ndarray, kind: Literal["counts", "moments"]) -> None:
    rows = as_rows(dense)
    found = gather([rows], N, D, kind)
    assert found.n_rows == N
    np.testing.assert_array_equal(found.count, np.count_nonzero(dense, axis=0))
    if kind == "moments":
        np.testing.assert_allclose(found.mean, dense.mean(axis=0), rtol=1e-13)
        np.testing.assert_allclose(found.variance, dense.var(axis=0), rtol=1e-12)
        np.testing.assert_array_equal(found.moments[2], abs(dense).max(axis=0))
    for step in (1, 63, 65, 200):
        pieces = (row_span(rows, at, min(at + step, N)) for at in range(0, N, step))
        other = gather(pieces, N, D, kind)
        np.testing.assert_array_equal(other.count, found.count)
        if kind == "moments":
            np.testing.assert_array_equal(other.moments, found.moments)


@pytest.mark.parametrize("n_rows", [0, 1, 2**17, 2**17 + 1, 10**9])
def test_spans_are_few_and_cover_all_rows(n_rows: int) -> None:
    found = spans(n_rows)
    assert 1 <= len(found) <= 64
    assert found[0][0] == 0
    assert found[-1][1] == n_rows
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(found))
    assert len(found) == 1 or n_rows > 2**17
