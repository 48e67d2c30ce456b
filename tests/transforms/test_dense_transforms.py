"""Each transform on dense rows against the same on CSR rows of the same matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import FEATURES, as_rows

from streamsvm.data.hold_out import HeldOutPart
from streamsvm.data.rows import Rows, joined_rows, sparse_rows, with_matrix
from streamsvm.errors import InputError, ScaleWarning
from streamsvm.store.arrays import ArrayStore
from streamsvm.transforms import TRANSFORMS, features_after, parse_transforms
from streamsvm.transforms.defaults import watch_scales
from streamsvm.transforms.fitting import fit_transforms, raw_rows
from streamsvm.transforms.store import transformed

N, D = 203, 37
CHAINS = [
    "l2", "normalize", "log1p", "binarize", "clip=0.75", "idf", "df=-0.25", "scale=std", "scale=maxabs",
    "center", f"normalize,select={FEATURES},center,scale=std,bias",
    f"select={FEATURES}", "bias", "bias=0.3", "hash=4", "hash=5,scale=std,bias",
    f"counts,normalize,log1p,select={FEATURES},scale=std,l2,bias", "fourier=70:gamma=0.01", "l2,fourier=9",
]  # fmt: skip


@pytest.fixture(params=[np.float32, np.float64])
def both(request: pytest.FixtureRequest) -> tuple[Rows, Rows]:
    """Counts as CSR and as dense rows."""
    rng = np.random.default_rng(5)
    X = rng.poisson(rng.gamma(2, 2.0, size=D), size=(N, D)).astype(request.param)
    X[:, 7], X[:, 8], X[3] = 0, 3, 0
    rows = as_rows(sp.csr_array(X), np.zeros(N, np.int32), str(X.dtype))
    return rows, with_matrix(rows._replace(indices=None), X)


def test_all_transforms_are_compared() -> None:
    assert {each.name for text in CHAINS for each in parse_transforms(text)} == set(TRANSFORMS)


@pytest.mark.parametrize("text", CHAINS)
def test_transforms_of_dense_rows(
    text: str, both: tuple[Rows, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.data.statistics.PIECE_ELEMENTS", 400)
    stores = []
    for rows in both:
        before = [None if array is None else array.copy() for array in rows]
        data = raw_rows(rows, D, None)._replace(numbers=np.arange(D))
        part = HeldOutPart(1, np.arange(N) % 3)
        [fitted] = fit_transforms(parse_transforms(text), data, [part])
        store = transformed(ArrayStore(rows, {"classes": ["a"]}, D), fitted.transforms)
        assert store.n_features == features_after(fitted.transforms, D)
        stores.append(store)
        found = store.rows(0, N)
        for array, old in zip(rows, before, strict=True):
            np.testing.assert_array_equal(array, old)  # what is given is not modified
    sparse, dense = stores
    assert dense.dense_rows == (not text.startswith("hash"))
    assert sparse.dense_rows == ("fourier" in text)
    for start, stop in [(0, N), (3, 4), (5, 5), (90, 140)]:
        found, expected = dense.rows(start, stop), sparse_rows(sparse.rows(start, stop), np.dtype(np.int32))
        assert found.dense == dense.dense_rows
        assert found.data.dtype == expected.data.dtype
        assert (np.diff(dense.indptr(start, stop)) >= np.diff(found.indptr)).all()
        np.testing.assert_allclose(found.norm2, expected.norm2, rtol=1e-6)
        found = sparse_rows(found, expected.indices.dtype)
        shape = (stop - start, dense.n_features)
        one, other = (sp.csr_array((r.data, r.indices, r.indptr), shape) for r in (found, expected))
        rounding = 1e-6 if one.dtype == np.float32 else 1e-14
        np.testing.assert_allclose(one.toarray(), other.toarray(), rtol=rounding)
        assert one.has_canonical_format


def test_the_row_of_a_dense_value_that_a_transform_refuses_is_named(both: tuple[Rows, Rows]) -> None:
    for text, value, problem in ("log1p", -1, "-1"), ("normalize", -2, "-2"), ("counts", 0.5, "0"):
        both[1].matrix[41, 30] = value
        store = transformed(ArrayStore(both[1], {"classes": ["a"]}, D), parse_transforms(text))
        with pytest.raises(InputError, match=f"row 42 has the value {problem}"):
            store.rows(40, 60)


def test_features_of_dense_rows_that_differ_in_scale_are_named(both: tuple[Rows, Rows]) -> None:
    both[1].matrix[:, 4] *= 1e6
    for times in 1, 1000:  # more rows than are looked at
        rows = joined_rows([both[1]] * times)
        with pytest.warns(ScaleWarning, match="feature 4 "):
            list(watch_scales([], raw_rows(rows, D, None)))
