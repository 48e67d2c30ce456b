"""Statistics of features: conversions gather them, readers check them, and training then reads less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import FEATURES
from helpers import plain_fit as fit
from sklearn.datasets import dump_svmlight_file
from store_problems import Problem, make_problem
from streamsvm_converters import convert
from test_store_roundtrip import read_with_anndata

from streamsvm import load_model
from streamsvm.store import open_store
from streamsvm.transforms import fitting

D = 40


@pytest.fixture
def problem() -> Problem:
    """With a feature that is 0 throughout, and one that is stored as 0."""
    problem = make_problem(d=D)
    problem.matrix.data[problem.matrix.indices == 7] = 0
    problem.matrix.eliminate_zeros()
    problem.matrix.data[problem.matrix.indices == 3] = 0
    return problem


@pytest.mark.parametrize("is_dense", [False, True])
@pytest.mark.parametrize("cuts", [None, [1, 50]])
def test_they_are_those_of_numpy(problem: Problem, tmp_path: Path, cuts, is_dense: bool) -> None:
    problem.dense = is_dense
    path = tmp_path / "a.zarr"
    plain = problem.write(tmp_path / "plain.zarr")
    assert problem.write(path, cuts, statistics=True) == plain  # the fingerprint is that of the rows
    dense = problem.matrix.toarray().astype(np.float64)
    with open_store(path) as store:
        found = store.statistics()
        store.verify()
    np.testing.assert_array_equal(found.count, (dense != 0).sum(axis=0))
    np.testing.assert_allclose(found.mean, dense.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, dense.var(axis=0), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(found.moments[2], np.abs(dense).max(axis=0))
    var = read_with_anndata(path).var
    assert var.columns.tolist() == ["nonzeros", "nonzero_mean", "nonzero_deviations", "largest"]
    np.testing.assert_array_equal(var["nonzeros"], (dense != 0).sum(axis=0))


@pytest.mark.parametrize(("memory", "gathered"), [(16 * 32 * D, True), (16 * 32 * D - 1, False)])
def test_a_conversion_gathers_them_if_they_fit(
    problem: Problem, tmp_path: Path, memory: int, gathered: bool
) -> None:
    text = tmp_path / "a.svm"
    dump_svmlight_file(problem.matrix, problem.labels, str(text), zero_based=False)
    convert(text, tmp_path / "a.h5", n_features=D, memory=memory, chunk_nnz=16)
    with open_store(tmp_path / "a.h5") as store:
        assert (store.statistics() is not None) == gathered


def test_training_with_them_is_that_with_a_reading_to_the_bit(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "a.svm"
    dump_svmlight_file(problem.matrix, problem.labels, str(text), zero_based=False)
    for name, memory in (("with", 2**30), ("without", 16 * 32 * D - 1)):
        convert(text, tmp_path / f"{name}.h5", n_features=D, memory=memory, chunk_nnz=16)
    transform = f"scale=std,select={FEATURES},idf"
    fit(tmp_path / "without.h5", out=tmp_path / "without", passes=2, transform=transform)
    monkeypatch.setattr(fitting, "_gather", lambda *_: pytest.fail("the rows were read"))
    fit(tmp_path / "with.h5", out=tmp_path / "with", passes=2, transform=transform)
    models = [load_model(tmp_path / name) for name in ("with", "without")]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
