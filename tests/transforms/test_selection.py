"""Selected features: by a file of names or numbers, or by their dispersion."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows

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


def select(value: object, X: sp.csr_array, names: list[str] | None) -> Select:
    raw = raw_rows(as_rows(X, np.zeros(N, np.int32)), D, names)
    (found,) = fit_transforms(parse_transforms(f"select={value}"), raw)[0].transforms
    assert isinstance(found, Select)
    return found


@pytest.mark.parametrize("n", [1, 7, 19, 20, 1000])
def test_the_features_of_the_largest_variance_over_mean_are_taken(n: int, X: sp.csr_array) -> None:
    dense = X.toarray()
    with np.errstate(invalid="ignore"):
        dispersion = np.nan_to_num(dense.var(axis=0, ddof=1) / dense.mean(axis=0), nan=-np.inf)
    expected = sorted(np.argsort(-dispersion)[:n].tolist())
    found = select(f"top:{n}", X, NAMES)
    assert found.array is not None
    assert found.array.tolist() == expected
    assert names_after([found], NAMES) == [NAMES[j] for j in expected]
    rows = found(as_rows(X, np.zeros(N, np.int32)))
    kept = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(N, len(expected))).toarray()
    np.testing.assert_array_equal(kept, dense[:, expected])


@pytest.mark.filterwarnings("ignore:`n_top_genes` > number of normalized dispersions")
def test_the_dispersion_is_that_of_scanpy(X: sp.csr_array) -> None:
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    adata = anndata.AnnData(sp.csr_matrix(np.log1p(X.toarray())))
    facts = scanpy.pp.highly_variable_genes(adata, flavor="cell_ranger", n_top_genes=5, inplace=False)
    best = facts["dispersions"].fillna(-np.inf).to_numpy().argsort()[::-1][:5]
    log = select("top:5", sp.csr_array(np.log1p(X.toarray())), NAMES).array
    assert log is not None
    assert set(log.tolist()) == set(best.tolist())


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
    ],
)
def test_a_file_that_selects_nothing_is_refused(
    text: str | None, names: list[str] | None, message: str, tmp_path: Path, X: sp.csr_array
) -> None:
    if text is not None:
        (tmp_path / "genes").write_text(text)
    with pytest.raises(SettingsError, match=re.escape(message)):
        select(tmp_path / "genes", X, names)
