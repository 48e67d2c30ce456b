"""The online pass: a replay in NumPy, classes and features that appear, and the order of labels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store
from online_replay import OnlineReplay
from row_stream import RowStream
from run_files import model_bytes
from small_problem import FORMULATIONS

from streamsvm import fit, format, load_model, online
from streamsvm.errors import InputError, Interrupted, ModelError, PlanError, RunError, SettingsError
from streamsvm.kernels.random import permutation
from streamsvm.run.weight_log import restore
from streamsvm.run.weights import DenseWeights

N, D, K = 150, 13, 5


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("loss", "margin", "solver"), LOSSES)
def test_a_replay_in_numpy(tmp_path, problem, loss, margin, solver, dtype) -> None:
    X, labels = problem
    expected = Replay(X, labels, 0.3, loss, margin)
    result = online(
        RowStream(X, labels, (7, 50, 51, 120)), out=tmp_path / "run",
        C=0.3, loss=loss, margin=margin, solver=solver, dtype=dtype,
    )  # fmt: skip
    model = load_model(tmp_path / "run")
    assert list(model.classes_) == sorted(expected.names)
    columns = np.argsort(expected.names)
    tolerance = {"float64": 1e-9, "float32": 2e-4}[dtype]
    np.testing.assert_allclose(model.coef_, expected.average[:, columns], atol=tolerance)
    assert (result.rows, result.classes, result.features) == (N, K, D)
    assert result.empty_rows == 1
    if dtype == "float64":  # rounding may turn a prediction
        assert result.progressive_accuracy == expected.right.mean()


def test_c_is_of_the_first_rows_then_fixed(tmp_path, problem, monkeypatch) -> None:
    monkeypatch.setattr("streamsvm.training.online._C_ROWS", 60)
    X, labels = problem
    X = sp.csr_array(sp.diags_array(np.linspace(1, 9, N)) @ X)  # whose norms grow on the way
    result = online(RowStream(X, labels, (50, 70)), out=tmp_path / "run", dtype="float64")
    expected = Replay(X, labels, first=60)
    model = load_model(tmp_path / "run")
    np.testing.assert_allclose(model.coef_, expected.average[:, np.argsort(expected.names)], atol=1e-9)
    norms = X[:60].multiply(X[:60]).sum(axis=1)
    assert result.C == model.record["C"] == pytest.approx(1 / norms[norms > 0].mean())
    assert model.record["C_auto"]


def test_lines_of_the_report_say_what_was_known_then(tmp_path, problem) -> None:
    X, labels = problem
    expected = Replay(X, labels)
    seen: list[dict] = []
    online(RowStream(X, labels, (3, 90)), out=tmp_path / "run", dtype="float64", report=seen.append)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines == [event for event in seen if event["event"] == "rows"]
    assert [line["rows"] for line in lines] == [1, 2, 4, 8, 16, 32, 64, 128, N]
    before = 0
    for line in lines:
        n = line["rows"]
        assert line["progressive_accuracy"] == expected.right[:n].mean()
        assert line["recent_accuracy"] == pytest.approx(expected.right[before:n].mean())
        assert line["classes"] == len(set(labels[:n]))
        assert line["features"] == max(X[:n].indices, default=-1) + 1
        before = n


@pytest.mark.parametrize("cuts", [(), (1,), range(1, N), (64, 65), (30, 60, 90, 149)])
def test_the_cut_into_batches_is_of_no_consequence(tmp_path, problem, cuts) -> None:
    X, labels = problem
    whole = online(RowStream(X, labels, (77,)), out=tmp_path / "a")
    cut = online(RowStream(X, labels, cuts), out=tmp_path / "b")
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "b")
    assert cut.progressive_accuracy == whole.progressive_accuracy


def weights_of(run: Path, shape, dtype) -> list[np.ndarray]:
    """Weights and lag, from the log of changes."""
    now, lag = np.zeros((2, *shape), dtype)
    (log,) = run.glob("changes-*.bin")
    restore(log, log.stat().st_size, Weights.create(now, lag, 1.0))
    return [now, lag]


@pytest.mark.parametrize(("n", "loss"), [(256, "ww"), (256, "cs"), (201, "ww")])
def test_the_same_as_a_fit_of_one_pass_in_the_same_order(tmp_path, n, loss) -> None:
    X, labels = make_problem(n, 20, 4, noise=1.5)
    store = make_store(tmp_path / "a.h5", X, labels)
    fitted = fit(store, out=tmp_path / "fit", passes=1, inner_passes=0, C=0.1, loss=loss)
    order = permutation(n, 0, 1, 0, 0)  # of the one block there is
    stream = RowStream(X[order], labels[order].astype(str), (50,), classes=list("0123"), n_features=20)
    learned = online(stream, out=tmp_path / "online", C=0.1, loss=loss)
    assert learned.progressive_accuracy == fitted.progressive_accuracy
    ours, theirs = (weights_of(tmp_path / name, (20, 16), np.float32)[0] for name in ("fit", "online"))
    np.testing.assert_array_equal(ours, theirs)  # the averages are of different parts of the pass


def test_given_classes_are_known_from_the_first_row_and_others_are_wrong(tmp_path, problem) -> None:
    X, labels = problem
    classes = ["c4", "c3", "c2", "c1", "c0", "never"]
    online(RowStream(X, labels, classes=classes), out=tmp_path / "run", dtype="float64")
    model = load_model(tmp_path / "run")
    assert list(model.classes_) == classes
    np.testing.assert_allclose(model.coef_, Replay(X, labels, classes=classes).average, atol=1e-9)
    known = np.flatnonzero(np.array(labels) != "c2")
    part = RowStream(X, labels, classes=["c0", "c1", "c3", "c4"])
    result = online(part, out=tmp_path / "part", dtype="float64", C=1)
    expected = Replay(X[known], [labels[i] for i in known], C=1, classes=["c0", "c1", "c3", "c4"])
    np.testing.assert_allclose(load_model(tmp_path / "part").coef_, expected.average, atol=1e-9)
    assert result.progressive_accuracy == expected.right.sum() / N


def test_many_classes_and_features_that_come_one_after_another(tmp_path) -> None:
    X = sp.csr_array(sp.diags_array(np.ones(60)))
    labels = [f"{i:02}" for i in range(60)]
    X, labels = sp.csr_array(sp.vstack([X, X])), labels * 2
    online(RowStream(X, labels, range(1, 120)), out=tmp_path / "run", dtype="float64")
    model = load_model(tmp_path / "run")
    assert list(model.classes_) == sorted(set(labels))
    np.testing.assert_allclose(model.coef_, Replay(X, labels).average, atol=1e-12)


def test_weights_too_large_for_a_file(tmp_path) -> None:
    X = sp.csr_array((np.ones(4, np.float32), [0, 1, 2**40, 3], [0, 1, 2, 3, 4]), shape=(4, 2**41))
    with pytest.raises(PlanError, match=r"row 3 has the feature 1,099,511,627,776.*--hash-bits"):
        online(RowStream(X, "abab"), out=tmp_path / "run")
    online(RowStream(X, "abab"), out=tmp_path / "run", hash_bits=6)
    assert load_model(tmp_path / "run").coef_.shape == (64, 2)


def test_features_far_apart_take_little_disk_until_there_is_a_model(tmp_path) -> None:
    X = sp.csr_array(([1.0, 2.0, 3.0], ([0, 1, 2], [1, 3_000_000, 5])), shape=(3, 3_000_001))
    stream = RowStream(X, ["a", "b", "c"])
    result = online(stream, out=tmp_path / "run", checkpoint_every="1")
    assert result.features == 3_000_001
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != format.COEF]
    assert sum(path.stat().st_blocks * 512 for path in kept) < 2**20
    near = sp.csr_array(X.todense()[:, [1, 5, 3_000_000]])
    online(RowStream(near, ["a", "b", "c"]), out=tmp_path / "near")
    coef = load_model(tmp_path / "run").coef_
    np.testing.assert_array_equal(coef[[1, 5, 3_000_000]], load_model(tmp_path / "near").coef_)
    assert np.count_nonzero(coef) == np.count_nonzero(coef[[1, 5, 3_000_000]]) > 0


def test_a_model_that_the_disk_cannot_take_is_refused_before_it_is_learned(tmp_path, monkeypatch) -> None:
    X = sp.csr_array(([1.0, 2.0], ([0, 1], [1, 999_999])), shape=(2, 10**6))
    usage = shutil.disk_usage(tmp_path)._replace(free=8 * 10**6 - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(PlanError, match="row 2 has the feature 999,999: a model of 1,000,000 features and 2"):
        online(RowStream(X, ["a", "b"]), out=tmp_path / "run")
    store = make_store(tmp_path / "s.zarr", X, np.arange(2), dtype="float32")
    with pytest.raises(PlanError, match=r"takes 8\.0 MB, .* of disk left; free some"):
        fit(store, out=tmp_path / "fit")


def test_numbers_beyond_all_bounds_end_with_a_word(tmp_path, problem) -> None:
    X, labels = problem
    with np.errstate(all="ignore"), pytest.raises(RunError, match="no longer finite; scale"):
        online(RowStream(X * np.float32(1e-20), labels), out=tmp_path / "run", C=1e300)
    assert "NaN" not in (tmp_path / "run/metrics.jsonl").read_text()


def test_nothing_to_learn_from_leaves_no_run(tmp_path, problem) -> None:
    X, labels = problem
    with pytest.raises(InputError, match="no rows"):
        online(RowStream(X[:0], []), out=tmp_path / "run")
    with pytest.raises(PlanError, match="two or more"):
        online(RowStream(X, labels, classes=["c0"]), out=tmp_path / "run")
    online(RowStream(X, labels), out=tmp_path / "run")  # without force
    with pytest.raises(InputError, match="all 10 rows have the label c1"):
        online(RowStream(X[:10], ["c1"] * 10), out=tmp_path / "one")
    with pytest.raises(ModelError, match="no finished model"):
        load_model(tmp_path / "one")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"C": 0.0}, "C must"),
        ({"loss": "l2"}, "loss"),
        ({"hash_bits": 32}, "from 1 to 31"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_that_cannot_work(tmp_path, problem, setting, message) -> None:
    with pytest.raises(SettingsError, match=message):
        online(RowStream(*problem), out=tmp_path / "run", **setting)
    assert not (tmp_path / "run").exists()


def test_rows_without_features(tmp_path) -> None:
    result = online(RowStream(sp.csr_array((4, 3), dtype=np.float32), "abab"), tmp_path / "run")
    assert (result.features, result.empty_rows) == (0, 4)
    assert result.progressive_accuracy == 0.25  # the first row of a class is wrong, then the first class wins
    assert load_model(tmp_path / "run").coef_.shape == (0, 2)


@pytest.mark.parametrize("order", ["sorted", "random"])
def test_rows_sorted_by_label_are_told_of_as_they_stream(tmp_path, order) -> None:
    X, codes = make_problem(1500, 8, 5, seed=4)
    labels = [f"c{code}" for code in codes]
    rows = np.argsort(codes, kind="stable") if order == "sorted" else np.arange(1500)
    stream = RowStream(X[rows], [labels[row] for row in rows], (400, 1100))
    events: list[dict[str, Any]] = []
    result = online(stream, out=tmp_path / "run", report=events.append)
    lines = {event["rows"]: event["progressive_accuracy"] for event in events if event["event"] == "rows"}
    told = [event["warning"] for event in events if event["event"] == "warning"]
    if order == "random":
        assert (told, result.warnings) == ([], [])
        assert None not in lines.values()
        return
    assert told == result.warnings
    assert len(told) == 1
    assert "shuffle" in told[0]
    place = events.index({"event": "warning", "warning": told[0]})
    assert place < len(events) - 2  # not only at the end
    assert [lines[n] for n in (512, 1024, 1500)] == [None] * 3
    assert (result.progressive_accuracy, result.recent_accuracy) == (None, None)
