"""What is said of trainings that ended far from the optimum, and of searches that ended at an end of C."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import streamsvm, succeeds
from helpers import make_problem, make_store
from sklearn.datasets import load_digits, load_wine

from streamsvm import evaluate, fit, resume, tune
from streamsvm.errors import ConvergenceWarning, StreamsvmWarning
from streamsvm.info import inspect

X, LABELS = load_digits(return_X_y=True)
X, LABELS = X[:700] / 16, LABELS[:700]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("digits") / "digits.zarr", sp.csr_array(X), LABELS)


def test_a_tolerance_that_was_not_reached_is_said_with_the_command_that_reaches_it(
    store: Path, tmp_path: Path
) -> None:
    words = ("fit", store.name, "--out", tmp_path / "run", "--tol", 0.01, "--passes", 2, "--C", 0.05)
    code, _, err = streamsvm(*words, "--json", cwd=store.parent)
    assert code == 0
    assert err.count("\n") == 1
    problem, command = err.strip().rsplit("; ", 1)
    gap = float(problem.rpartition(" ")[2])
    assert problem == f"streamsvm: the tolerance 0.01 was not reached: the relative gap is {gap:.3g}"
    words = shlex.split(command.strip("`"))
    assert words[:3] == ["streamsvm", "resume", str(tmp_path / "run")]
    code, shown, err = streamsvm(*words[1:], "--json", cwd=store.parent)
    assert (code, err) == (0, "")
    assert json.loads(shown)["status"] == "converged"

    with pytest.warns(ConvergenceWarning, match=r"fit again with about passes=\d+") as found:
        model = fit(X, LABELS, C=0.05, tol=0.01, passes=2)
    assert [each.filename for each in found] == [__file__]
    assert model.result.warnings == [str(found[0].message)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = fit(X, LABELS, C=0.05, tol=0.01, **found[0].message.remedy.options)
    assert again.result.status == "converged"


def test_a_large_gap_that_passes_still_lower_is_a_hint_with_the_command_that_goes_on(tmp_path: Path) -> None:
    """By `fit`, `resume`, `tune` and in Python, where no warning is issued; whether C was chosen or given."""
    data, target = load_wine(return_X_y=True)
    rows = np.c_[data / data.std(axis=0), np.ones(len(data))]  # means that dominate the norms
    path = make_store(tmp_path / "wine.zarr", sp.csr_array(rows), target)
    fit_it = ("fit", path, "--passes", 2)
    tune_it = ("tune", path, "--C", "1,2", "--hold-out", "1/3")
    for name, words in {"tune": tune_it, "given": (*fit_it, "--C", 2), "fit": fit_it}.items():
        out = succeeds(*words, "--out", tmp_path / name, notes=True)
        gap = inspect(tmp_path / name)["result"]["relative_gap"]
        hint = rf"optimum: the relative gap is {gap:.3g}; `streamsvm resume (.*) --passes (.*)`(.*)"
        run, passes, other = re.search(hint, out).groups()
        assert (run, other) == (str(tmp_path / name), ", or use a smaller --C" * (name == "given"))
    assert f"`streamsvm resume {run} --passes" in succeeds("resume", run, "--passes", 3)
    assert "far from the optimum" not in succeeds("resume", run, "--passes", 4)  # which lowered it by less
    assert resume(run, passes=int(passes)).relative_gap < gap
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        several, one = (fit(rows, target, transform="none", passes=n).result for n in (3, 1))
        silent = fit(rows, target, transform="none", gap="none").result, fit(X, LABELS).result, one
    assert re.search(r"is 0\.\d+; fit again with about passes=\d+$", several.hint)
    assert [each.hint for each in silent] == [None] * 3


def test_the_accuracies_are_those_of_the_model(store: Path, tmp_path: Path) -> None:
    """Of the one that is saved, by the scores of NumPy: the average, the last iterate, and after `resume`."""
    other = make_store(tmp_path / "t.zarr", *make_problem(300, 64, 10, noise=2.0))
    for name, options in (("average", {}), ("last", {"average": False}), ("tol", {"tol": 0.5, "passes": 9})):
        run = tmp_path / name
        result = fit(store, out=run, valid=other, C=0.5, **options)
        assert result.train_accuracy == pytest.approx(evaluate(run, store).accuracy)
        assert result.valid_accuracy == pytest.approx(evaluate(run, other).accuracy)
        last = result.history[-1]
        assert ("last_iterate_valid_accuracy" in last) == result.averaged
        assert last["valid_accuracy"] == result.valid_accuracy
        assert not {"accuracy", "average_accuracy"} & last.keys()
    result = resume(tmp_path / "average", passes=4)
    assert result.valid_accuracy == pytest.approx(evaluate(tmp_path / "average", other).accuracy)
    assert fit(store, out=tmp_path / "none", gap="none").train_accuracy is None


def test_a_best_c_at_an_end_is_said_with_values_to_go_on_with(store: Path, tmp_path: Path) -> None:
    small = ("tune", store, "--out", tmp_path / "small", "--C", "1e-4,1e-3,1e-2", "--hold-out", "1/3")
    code, shown, err = streamsvm(*small)
    assert code == 0
    further = f"`streamsvm tune {store} --C 0.01,0.1,1,10 --hold-out 1/3 --out {tmp_path / 'small-2'}`"
    assert f"the best C, 0.01, is the largest value tried; continue the search with {further}" in err
    best, trained = shown.index("was measured after 6 passes, including"), "model took 3 passes"
    assert best < shown.index(trained)
    found = json.loads(streamsvm(*small, "--json").out)
    accuracies = [row["valid_accuracy"] for row in found["tried"]]
    assert (found["valid_accuracy"], found["valid_passes"]) == (max(accuracies), 6)
    assert np.argmax(accuracies) == 2

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        options = {"loss": "ovr2", "dtype": "float64", "passes": 1, "hold_out": "1/3", "transform": "none"}
        inside = tune(X, LABELS, C=[1e-5, 3, 100], **options)
    assert [each for each in said if issubclass(each.category, StreamsvmWarning)] == []
    assert (inside.C, inside.valid_passes) == (3, 2)  # the duals of ovr2 begin anew with each C


@pytest.mark.parametrize(("scale", "C"), [(1e25, None), (1.0, 1e-50)])
def test_a_model_of_zeros_is_said_to_be_one(scale: float, C: float | None) -> None:
    """Where the steps are below the smallest number of float32; and C is not said to be too large."""
    X, y = load_digits(return_X_y=True)
    with pytest.warns(StreamsvmWarning) as found:
        model = fit(scale * X, y, **({} if C is None else {"C": C}))
    assert not model.coef_.any()
    said = {str(each.message) for each in found if issubclass(each.category, ConvergenceWarning)}
    assert len(said) == 1
    assert "all weights of the model are 0" in said.pop()
