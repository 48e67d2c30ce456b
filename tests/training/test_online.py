"""The online pass: a replay in NumPy, classes and features that appear, and the order of labels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from cases import few
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from helpers import plain_online as online
from online_replay import OnlineReplay
from row_stream import D, K, N, RowStream, late_problem
from run_files import model_bytes
from small_problem import DEFAULTS, FORMULATIONS, ONLINE, PARAMETERS, of_loss

from streamsvm import load_model
from streamsvm.base import format
from streamsvm.errors import InputError, ModelError, PlanError

QUICK = [(*each, "float64") for each in DEFAULTS if each[0] in ("ww", "cs", "ovr2")]


@pytest.fixture(scope="module")
def problem() -> tuple[sp.csr_array, list[str]]:
    return late_problem()


@pytest.mark.parametrize(
    ("loss", "margin", "solver", "dtype"),
    [
        *few([(*each, "float64") for each in FORMULATIONS if each[0] in ONLINE], *QUICK),
        *few([(*each, "float32") for each in DEFAULTS if each[0] in ONLINE], "ww"),
    ],
)
def test_an_online_pass_equals_a_replay_in_numpy(
    tmp_path: Path, problem, loss: str, margin: float, solver: str, dtype: str
) -> None:
    X, labels = problem
    expected = OnlineReplay(X, labels, 0.3, loss, margin, **PARAMETERS[loss])
    result = online(
        RowStream(X, labels, (7, 50, 51, 120)), out=tmp_path / "run",
        C=0.3, margin=margin, solver=solver, dtype=dtype, **of_loss(loss),
    )  # fmt: skip
    model = load_model(tmp_path / "run")
    assert list(model.classes_) == sorted(expected.names)
    columns = np.argsort(expected.names)
    tolerance = {"float64": 1e-9, "float32": 2e-4}[dtype]
    np.testing.assert_allclose(model.coef_.T, expected.average[:, columns], atol=tolerance)
    assert (result.rows, result.classes, result.features) == (N, K, D)
    assert result.empty_rows == 1
    if dtype == "float64":  # rounding may turn a prediction
        assert result.progressive_accuracy == expected.correct.mean()


@pytest.mark.parametrize("n_features", [None, D])
def test_a_constant_feature_is_the_last_one_of_the_model(tmp_path: Path, problem, n_features) -> None:
    X, labels = problem
    stream = RowStream(X, labels, (7, 50, 51, 120), n_features=n_features)
    result = online(stream, out=tmp_path / "run", transform="bias=0.5", dtype="float64")
    norms = sp.linalg.norm(X, axis=1) ** 2
    assert pytest.approx(1 / norms[norms > 0].mean()) == result.C  # as without it
    constant = sp.hstack([X, np.full((N, 1), 0.5)], "csr")
    online(stream, out=tmp_path / "run", transform="bias=0.5", C=0.3, dtype="float64", force=True)
    model = load_model(tmp_path / "run")
    expected = OnlineReplay(constant, labels, 0.3)
    weights = expected.average[:, np.argsort(expected.names)]
    np.testing.assert_allclose(model.coef_.T, weights[:-1], atol=1e-9)
    np.testing.assert_allclose(model.intercept_, 0.5 * weights[-1], atol=1e-9)
    assert (model.n_features_in_, result.features) == (D, D + 1)
    assert model.predict(X).tolist() == model.classes_[(constant @ weights).argmax(axis=1)].tolist()


def test_automatic_C_follows_the_first_rows_and_is_then_fixed(tmp_path: Path, problem, monkeypatch) -> None:
    monkeypatch.setattr("streamsvm.training.auto_c._STREAM_ROWS", 60)
    X, labels = problem
    X = sp.csr_array(sp.diags_array(np.linspace(1, 9, N)) @ X)  # whose norms grow on the way
    result = online(RowStream(X, labels, (50, 70)), out=tmp_path / "run", dtype="float64")
    expected = OnlineReplay(X, labels, first=60)
    model = load_model(tmp_path / "run")
    np.testing.assert_allclose(model.coef_.T, expected.average[:, np.argsort(expected.names)], atol=1e-9)
    norms = X[:60].multiply(X[:60]).sum(axis=1)
    assert result.C == model.record["C"] == pytest.approx(1 / norms[norms > 0].mean())
    assert model.record["C_auto"]


def test_each_line_of_the_report_describes_the_rows_before_it(tmp_path: Path, problem) -> None:
    X, labels = problem
    expected = OnlineReplay(X, labels)
    seen: list[dict] = []
    online(RowStream(X, labels, (3, 90)), out=tmp_path / "run", dtype="float64", report=seen.append)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines == [event for event in seen if event["event"] == "rows"]
    assert [line["rows"] for line in lines] == [1, 2, 4, 8, 16, 32, 64, 128, N]
    before = 0
    for line in lines:
        n = line["rows"]
        assert line["progressive_accuracy"] == expected.correct[:n].mean()
        assert line["recent_accuracy"] == pytest.approx(expected.correct[before:n].mean())
        assert line["classes"] == len(set(labels[:n]))
        assert line["features"] == max(X[:n].indices, default=-1) + 1
        before = n


@pytest.mark.parametrize("cuts", [(), (1,), range(1, N), (64, 65), (30, 60, 90, 149)])
def test_the_model_does_not_depend_on_the_cut_into_batches(tmp_path: Path, problem, cuts) -> None:
    X, labels = problem
    whole = online(RowStream(X, labels, (77,)), out=tmp_path / "a")
    cut = online(RowStream(X, labels, cuts), out=tmp_path / "b")
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "b")
    assert cut.progressive_accuracy == whole.progressive_accuracy


def test_given_classes_are_known_at_once_and_other_labels_count_as_wrong(tmp_path: Path, problem) -> None:
    X, labels = problem
    classes = ["c4", "c3", "c2", "c1", "c0", "never"]
    online(RowStream(X, labels, classes=classes), out=tmp_path / "run", dtype="float64")
    model = load_model(tmp_path / "run")
    assert list(model.classes_) == classes
    np.testing.assert_allclose(model.coef_.T, OnlineReplay(X, labels, classes=classes).average, atol=1e-9)
    known = np.flatnonzero(np.array(labels) != "c2")
    part = RowStream(X, labels, classes=["c0", "c1", "c3", "c4"])
    result = online(part, out=tmp_path / "part", dtype="float64", C=1)
    expected = OnlineReplay(X[known], [labels[i] for i in known], C=1, classes=["c0", "c1", "c3", "c4"])
    np.testing.assert_allclose(load_model(tmp_path / "part").coef_.T, expected.average, atol=1e-9)
    assert result.progressive_accuracy == expected.correct.sum() / N


def test_weights_too_large_for_a_file_are_refused_unless_features_are_hashed(tmp_path: Path) -> None:
    X = sp.csr_array((np.ones(4, np.float32), [0, 1, 2**40, 3], [0, 1, 2, 3, 4]), shape=(4, 2**41))
    with pytest.raises(PlanError, match=r"row 3 has the feature 1,099,511,627,776.*transform='hash="):
        online(RowStream(X, "abab"), out=tmp_path / "run")
    online(RowStream(X, "abab"), out=tmp_path / "run", transform="hash=6")
    assert load_model(tmp_path / "run").coef_.T.shape == (64, 2)


def test_features_that_are_far_apart_take_little_disk_before_the_model_is_written(tmp_path: Path) -> None:
    X = sp.csr_array(([1.0, 2.0, 3.0], ([0, 1, 2], [1, 3_000_000, 5])), shape=(3, 3_000_001))
    stream = RowStream(X, ["a", "b", "c"])
    result = online(stream, out=tmp_path / "run", checkpoint_every="1")
    assert result.features == 3_000_001
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != format.COEF]
    assert sum(path.stat().st_blocks * 512 for path in kept) < 2**20
    near = sp.csr_array(X.todense()[:, [1, 5, 3_000_000]])
    online(RowStream(near, ["a", "b", "c"]), out=tmp_path / "near")
    coef = load_model(tmp_path / "run").weights()
    np.testing.assert_array_equal(coef[[1, 5, 3_000_000]], load_model(tmp_path / "near").weights())
    assert np.count_nonzero(coef) == np.count_nonzero(coef[[1, 5, 3_000_000]]) > 0


def test_a_model_that_does_not_fit_the_disk_is_refused_before_training(tmp_path: Path, monkeypatch) -> None:
    X = sp.csr_array(([1.0, 2.0], ([0, 1], [1, 999_999])), shape=(2, 10**6))
    usage = shutil.disk_usage(tmp_path)._replace(free=8 * 10**6 - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(PlanError, match="row 2 has the feature 999,999: the weights for 1,000,000 features"):
        online(RowStream(X, ["a", "b"]), out=tmp_path / "run")
    store = make_store(tmp_path / "s.zarr", X, np.arange(2), dtype="float32")
    with pytest.raises(PlanError, match=r"take 7\.6 MiB, .* left; free some space"):
        fit(store, out=tmp_path / "fit")


def test_streams_without_rows_or_with_one_class_leave_no_model(tmp_path: Path, problem) -> None:
    X, labels = problem
    with pytest.raises(InputError, match=r"^the input has no rows to learn from$"):
        online(RowStream(X[:0], []), out=tmp_path / "run")
    with pytest.raises(PlanError, match="two or more"):
        online(RowStream(X, labels, classes=["c0"]), out=tmp_path / "run")
    online(RowStream(X, labels), out=tmp_path / "run")  # without force
    with pytest.raises(InputError, match="all 10 rows have the label c1"):
        online(RowStream(X[:10], ["c1"] * 10), out=tmp_path / "one")
    with pytest.raises(ModelError, match="no finished model"):
        load_model(tmp_path / "one")


def test_rows_sorted_by_label_are_reported_during_the_pass(tmp_path: Path) -> None:
    X, codes = make_problem(1500, 8, 5, seed=4)
    for is_sorted, rows in (0, np.arange(1500)), (1, np.argsort(codes, kind="stable")):
        stream = RowStream(X[rows], [f"c{code}" for code in codes[rows]], (400, 1100))
        events: list[dict[str, Any]] = []
        result = online(stream, out=tmp_path / "run", report=events.append, force=True)
        lines = {event["rows"]: event["progressive_accuracy"] for event in events if event["event"] == "rows"}
        warnings = [event["warning"] for event in events[:-2] if event["event"] == "warning"]
        assert warnings == result.warnings  # and not only at the end
        assert ["shuffle" in text for text in warnings] == [True] * is_sorted
        assert [lines[n] is None for n in (512, 1024, 1500)] == [bool(is_sorted)] * 3
        assert is_sorted or None not in lines.values()
    assert (result.progressive_accuracy, result.recent_accuracy) == (None, None)
