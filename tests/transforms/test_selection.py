"""Selected features: by a file of names or numbers, or by their dispersion."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows

from streamsvm import fit
from streamsvm.errors import SettingsError, StreamsvmWarning
from streamsvm.transforms import names_after, parse_transforms
from streamsvm.transforms.fitting import fit_transforms, raw_rows
from streamsvm.transforms.selection import Select

N, D = 150, 20
NAMES = [f"gene{j}" for j in range(D)]


@pytest.fixture
def X() -> sp.csr_array:
    rng = np.random.default_rng(2)
    dense = rng.poisson(rng.gamma(0.5, 2.0, size=(N, D))).astype(np.float64)
    dense[:, 4] = 0
    return sp.csr_array(dense)


def fitted(text: str, X: sp.csr_array, names: list[str] | None = None) -> Select:
    raw = raw_rows(as_rows(X, np.zeros(X.shape[0], np.int32)), X.shape[1], names)
    found = fit_transforms(parse_transforms(text), raw)[0].transforms[-1]
    assert isinstance(found, Select)
    return found


def select(value: object, X: sp.csr_array, names: list[str] | None) -> Select:
    return fitted(f"select={value}", X, names)


def counts(n_rows: int, n_features: int, in_no_row: int = 0) -> sp.csr_matrix:
    """Counts of three kinds of cells: means from 0.03 to 100, half of the features differ between kinds."""
    rng = np.random.default_rng(3)
    mean = np.exp(rng.uniform(-3.5, 4.6, n_features))
    mean[rng.choice(n_features, in_no_row, replace=False)] = 0
    fold = np.exp(rng.normal(size=(3, n_features)) * (rng.random(n_features) < 0.5))
    return sp.csr_matrix(rng.poisson((mean * fold)[rng.integers(3, size=n_rows)]), dtype=np.float32)


@pytest.mark.parametrize("in_no_row", [0, 30])
@pytest.mark.parametrize("n", [100, 400, 1600])
def test_the_features_are_those_of_scanpy(n: int, in_no_row: int) -> None:
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    X = counts(300, 2000, in_no_row)
    found = fitted(f"normalize,log1p,select=top:{n}", sp.csr_array(X)).array
    assert found is not None
    adata = anndata.AnnData(X)
    scanpy.pp.normalize_total(adata, target_sum=1e4)
    scanpy.pp.log1p(adata)
    facts = scanpy.pp.highly_variable_genes(adata, flavor="cell_ranger", n_top_genes=n, inplace=False)
    assert found.tolist() == np.flatnonzero(facts["highly_variable"]).tolist()


def test_features_of_similar_means_are_compared() -> None:
    sizes = np.random.default_rng(4).uniform(0.5, 2, (300, 1))  # or else means would be equal
    X = counts(300, 2000, 150).toarray() * sizes
    mean = np.maximum(X.mean(axis=0), 1e-12)
    dispersion = X.var(axis=0, ddof=1) / mean
    upper = np.quantile(mean, np.linspace(0.1, 1, 19))
    expected = np.full(2000, -np.inf)
    for lowest, highest in zip([-1, *upper[:-1]], upper, strict=True):
        inside = np.flatnonzero((mean > lowest) & (mean <= highest))
        middle = np.median(dispersion[inside])
        spread = np.median(np.abs(dispersion[inside] - middle))
        if spread > 0:  # not where most features are in no row
            expected[inside] = (dispersion[inside] - middle) / spread
    assert np.isinf(expected).sum() >= 200
    for n in (300, 1800):
        found = fitted(f"select=top:{n}", sp.csr_array(X))
        assert found.array is not None
        assert found.array.tolist() == sorted(np.argsort(-expected, kind="stable")[:n].tolist())


@pytest.mark.parametrize("n", [7, 19, 20, 1000])
def test_rows_have_the_selected_features(n: int, X: sp.csr_array) -> None:
    found = select(f"top:{n}", X, NAMES)
    assert found.array is not None
    assert len(found.array) == min(n, D)
    assert names_after([found], NAMES) == [NAMES[j] for j in found.array]
    rows = found(as_rows(X, np.zeros(N, np.int32)))
    kept = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(N, len(found.array))).toarray()
    np.testing.assert_array_equal(kept, X.toarray()[:, found.array])


def test_data_without_features_has_none_to_select() -> None:
    assert fitted("select=top:5", sp.csr_array((6, 0))).n_features(0) == 0


def test_a_selection_that_loses_most_values_warns() -> None:
    X = sp.csr_array(counts(300, 2000))
    with pytest.warns(StreamsvmWarning, match=r"select=top:20 keeps .* not 0, in 20 of 2,000") as caught:
        found = fit(X, np.arange(300) % 2, transform="normalize,log1p,select=top:20", passes=1).transforms[-1]
    assert isinstance(found, Select)
    share = X[:, found.array].nnz / X.nnz
    assert share < 0.05
    assert f"keeps {share:.2%} of" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_a_file_names_features_in_any_order(tmp_path: Path, X: sp.csr_array) -> None:
    (tmp_path / "genes").write_text("gene9\n\ngene2 \ngene9\n")
    found = select(tmp_path / "genes", X, NAMES)
    assert found.array is not None
    assert found.array.tolist() == [2, 9]
    assert str(tmp_path) not in str(found.record())  # the model must not depend on where the file is
    (tmp_path / "genes").write_text("gene9\nx\ny\n")
    with pytest.warns(StreamsvmWarning, match=r"lists 2 features that the data lacks \('x', 'y'\)"):
        select(tmp_path / "genes", X, NAMES)


def test_a_file_numbers_features_that_have_no_names(tmp_path: Path, X: sp.csr_array) -> None:
    (tmp_path / "numbers").write_text("3\n0\n")
    found = select(tmp_path / "numbers", X, None)
    assert found.array is not None
    assert found.array.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("gene1\n", None, "lists 'gene1', and the features of the data have no names; list numbers"),
        ("x\n", NAMES, "lists no feature of the data (the first is 'x')"),
        ("", NAMES, "lists no feature of the data"),
        (None, NAMES, "cannot be read: No such file"),
        ("a pipe", NAMES, "cannot be read: not a regular file"),
    ],
)
def test_a_file_that_selects_nothing_is_refused(
    text: str | None, names: list[str] | None, message: str, tmp_path: Path, X: sp.csr_array
) -> None:
    if text == "a pipe":  # which nobody writes to
        os.mkfifo(tmp_path / "genes")
    elif text is not None:
        (tmp_path / "genes").write_text(text)
    with pytest.raises(SettingsError, match=re.escape(message)):
        select(tmp_path / "genes", X, names)
