"""Each transform against scikit-learn or scanpy on random data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import FEATURES, as_rows, gather
from sklearn import preprocessing
from sklearn.feature_extraction.text import TfidfTransformer

from streamsvm.data.rows import Rows, row_span
from streamsvm.errors import InputError, PlanError
from streamsvm.transforms import Transform, apply, features_after, parse_transforms
from streamsvm.transforms.feature_weights import Scale
from streamsvm.transforms.fitting import RawData, fit_transforms, raw_rows
from streamsvm.transforms.row_scaling import L2

N, D = 203, 37


@pytest.fixture(params=[np.float32, np.float64])
def counts(request: pytest.FixtureRequest) -> sp.csr_array:
    """Counts with an empty row, a feature that no row has, and one that is constant."""
    rng = np.random.default_rng(5)
    X = rng.poisson(rng.gamma(0.4, 2.0, size=D), size=(N, D)).astype(request.param)
    X[3] = 0
    X[:, 7] = 0
    X[:, 8] = 3
    X[3, 8] = 3
    X[3] = 0
    return sp.csr_array(X)


@pytest.fixture
def signed(counts: sp.csr_array) -> sp.csr_array:
    signs = np.random.default_rng(6).choice([-1.0, 0.37], size=counts.nnz)
    found = counts.copy()
    found.data = (found.data * signs).astype(found.dtype)
    return found


def rows_of(X: sp.csr_array) -> Rows:
    return as_rows(X, np.zeros(X.shape[0], np.int32), str(X.dtype))


def fitted(text: str, X: sp.csr_array) -> list[Transform]:
    data = raw_rows(rows_of(X), X.shape[1], None)._replace(numbers=np.arange(X.shape[1]))
    return fit_transforms(parse_transforms(text), data)[0].transforms


def transformed(text: str, X: sp.csr_array) -> np.ndarray:
    transforms, rows = fitted(text, X), rows_of(X)
    before = [array.copy() for array in rows]
    found = apply(transforms, rows)
    for array, old in zip(rows, before, strict=True):
        np.testing.assert_array_equal(array, old)  # what is given is not modified
    width = features_after(transforms, X.shape[1])
    dense = sp.csr_array((found.data, found.indices, found.indptr), shape=(X.shape[0], width)).toarray()
    np.testing.assert_allclose(found.norm2, (dense.astype(np.float64) ** 2).sum(axis=1), rtol=1e-6)
    assert found.data.dtype == X.dtype
    return dense


def idf(X: sp.csr_array) -> Any:
    return TfidfTransformer(norm=None).fit_transform(X.astype(np.float64)).toarray()


REFERENCES: dict[str, Callable[[sp.csr_array], Any]] = {
    "binarize": lambda X: preprocessing.Binarizer().fit_transform(X),
    "idf": idf,
    "idf,l2": lambda X: TfidfTransformer().fit_transform(X.astype(np.float64)),
    "scale=std": lambda X: preprocessing.StandardScaler(with_mean=False).fit_transform(X),
    "scale=maxabs": lambda X: preprocessing.MaxAbsScaler().fit_transform(X),
    "center,scale=std": lambda X: preprocessing.StandardScaler().fit_transform(X.toarray()),
    "center,scale=maxabs": lambda X: preprocessing.MaxAbsScaler().fit_transform(
        preprocessing.StandardScaler(with_std=False).fit_transform(X.toarray().astype(np.float64))
    ),
    "l2": lambda X: preprocessing.normalize(X),
    "clip=0.75": lambda X: np.clip(X.toarray(), -0.75, 0.75),
    "df=-0.25": lambda X: X.toarray() * (np.maximum((X.toarray() != 0).mean(axis=0), 1 / N) ** -0.25),
}


@pytest.mark.parametrize("text", REFERENCES)
def test_a_transform_equals_its_reference(text: str, signed: sp.csr_array) -> None:
    expected = REFERENCES[text](signed)
    expected = expected.toarray() if sp.issparse(expected) else expected
    np.testing.assert_allclose(transformed(text, signed), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Some cells have zero counts")
@pytest.mark.parametrize("target", [None, 1e4, 37.0])
def test_normalize_and_log1p_are_those_of_scanpy(target: float | None, counts: sp.csr_array) -> None:
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    adata = anndata.AnnData(sp.csr_matrix(counts))
    scanpy.pp.normalize_total(adata, target_sum=target or 1e4)
    step = "normalize" if target is None else f"normalize={target}"
    np.testing.assert_allclose(transformed(step, counts), adata.X.toarray(), rtol=1e-6)
    scanpy.pp.log1p(adata)
    np.testing.assert_allclose(transformed(f"{step},log1p", counts), adata.X.toarray(), rtol=1e-6)


def test_normalize_and_log1p_by_numpy(counts: sp.csr_array) -> None:
    dense = counts.toarray().astype(np.float64)
    sums = dense.sum(axis=1, keepdims=True)
    expected = np.log1p(dense * 50 / np.where(sums > 0, sums, 1))
    np.testing.assert_allclose(transformed("normalize=50,log1p", counts), expected, rtol=1e-6)


def test_statistics_are_those_of_the_rows_after_the_transforms_before(counts: sp.csr_array) -> None:
    """Features that are multiplied and selected in between, and a step after which nothing is known."""
    first = transformed("normalize=100,log1p", counts).astype(np.float64)
    weighted = first * idf(sp.csr_array((first != 0).astype(np.float64))).max(axis=0)
    seen = weighted.any(axis=0)
    expected = preprocessing.StandardScaler(with_mean=False).fit_transform(weighted)[:, seen]
    expected = preprocessing.MaxAbsScaler().fit_transform(preprocessing.normalize(expected))
    found = transformed("normalize=100,log1p,idf,scale=std,l2,scale=maxabs", counts)[:, seen]
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_the_pieces_of_the_data_do_not_change_a_bit(signed: sp.csr_array) -> None:
    rows = rows_of(signed)
    text = f"idf,center,scale=std,l2,select={FEATURES},center,scale=std,bias"
    found = []
    for step in (1, 17, N):
        reads = []

        def pieces(step: int = step, reads: list[int] = reads) -> Any:
            reads.append(step)
            return ((at, row_span(rows, at, min(at + step, N))) for at in range(0, N, step))

        raw = RawData(N, D, None, None, "rows", pieces, lambda _: rows, [(0, rows)], numbers=np.arange(D))
        found.append(fit_transforms(parse_transforms(text), raw)[0].transforms)
        assert len(reads) == 2  # idf, center and scale share one; l2 changes what the others need
    for transforms in found[1:]:
        for one, other in zip(found[0], transforms, strict=True):
            assert one == other
            np.testing.assert_array_equal(one.array, other.array)


def test_a_transform_that_needs_counts_alone_keeps_little(counts: sp.csr_array) -> None:
    with pytest.raises(PlanError, match="scale needs statistics of 37 features, which take") as caught:
        fit_transforms(parse_transforms("scale=std"), raw_rows(rows_of(counts), D, None), memory=32 * D - 1)
    assert caught.value.needed_memory == 32 * D
    fit_transforms(parse_transforms("idf"), raw_rows(rows_of(counts), D, None), memory=8 * D)


@pytest.mark.parametrize("step", ["normalize", "log1p"])
def test_a_value_below_0_is_an_error_that_names_the_row(step: str, counts: sp.csr_array) -> None:
    X = counts.copy()
    X.data[X.indptr[90] + 2] = -2
    with pytest.raises(
        InputError, match=f"where: row 1091 has the value -2, but {step} does not accept negative values"
    ):
        apply(fitted("l2", counts)[:0] + parse_transforms(step), rows_of(X), where="where", first=1000)


def test_values_that_overflow_are_an_error_that_names_the_row() -> None:
    X = sp.csr_array(np.array([[1.0, 0], [3e38, 3e38], [0, 1]], np.float32))
    with pytest.raises(InputError, match="X: row 2 is not finite after scale"):
        apply(fitted("scale=maxabs", sp.csr_array(X[[0, 2]] * np.float32(1e-30))), rows_of(X), where="X")


def test_a_bias_is_a_last_column(signed: sp.csr_array) -> None:
    expected = np.hstack([signed.toarray(), np.full((N, 1), 2.5)])
    np.testing.assert_array_equal(transformed("bias=2.5", signed), expected.astype(signed.dtype))


def test_scaling_by_the_deviation_is_exact_for_constants_and_large_means() -> None:
    """As StandardScaler, whose variance is stable too."""
    rng, n = np.random.default_rng(0), 100_000
    columns = [np.full(n, value) for value in (0.1, 1 / 3, 1.7)]
    columns += [1e6 + rng.normal(size=n), rng.normal(size=n)]
    columns.append(np.where(rng.random(n) < 0.3, 1e3 + rng.normal(size=n), 0.0))
    dense = np.column_stack(columns)
    found = gather([rows_of(sp.csr_array(dense))], *dense.shape)
    expected = preprocessing.StandardScaler(with_mean=False).fit(dense)
    np.testing.assert_allclose(found.variance, expected.var_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(Scale(kind="std").weights(found), 1 / expected.scale_, rtol=1e-6)


def test_rows_of_any_size_have_norm_1_after_l2() -> None:
    values = np.array([[3.0, 4.0], [3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0]])
    found = L2()(rows_of(sp.csr_array(values)))
    np.testing.assert_allclose(found.data, [0.6, 0.8] * 3, rtol=1e-12)
