"""`evaluate` and `predict` on rows with several labels, and `evaluate` with costs and trees."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, streamsvm, succeeds
from helpers import as_rows, make_problem, make_store, write_rows
from sklearn.metrics import (
    confusion_matrix,
)

from streamsvm import evaluate, fit, load_model
from streamsvm.data.label_sets import with_label_sets

N, D, K = 150, 9, 5
X, LABELS = make_problem(N, D, K)


def own_labels() -> np.ndarray:
    """Which classes each row has: its own, and now and then others; no label in one row of 10."""
    rng = np.random.default_rng(0)
    own = (np.arange(K) == LABELS[:, None]) | (rng.random((N, K)) < 0.2)
    own[::10] = False
    return own


def write(path: Path, classes: list[int]) -> None:
    """A store of the rows in which the classes have the codes of this order."""
    own = own_labels()[:, classes]
    indptr = np.concatenate([[0], np.cumsum(own.sum(axis=1))])
    rows = with_label_sets(as_rows(X, LABELS), np.nonzero(own)[1], indptr)
    write_rows(path, rows, X.shape[1], [f"c{c}" for c in classes], n_labels=int(own.sum()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of rows with several labels and with one, and runs over them."""
    path = tmp_path_factory.mktemp("metrics")
    write(path / "train.zarr", [0, 1, 2, 3, 4])
    write(path / "test.h5", [3, 1, 4, 0, 2])
    fit(path / "train.zarr", out=path / "run", loss="ovr2", passes=2, dtype="float64")
    fit(path / "train.zarr", out=path / "ww", loss="ww", passes=1, dtype="float64")
    make_store(path / "one.zarr", X, LABELS)
    fit(path / "one.zarr", out=path / "plain", passes=1)
    return path


def scores_of(run: Path) -> np.ndarray:
    return X.astype(np.float64) @ load_model(run).coef_.T


@pytest.mark.engine
def test_predict_writes_the_labels_above_a_threshold(folder: Path) -> None:
    scores = scores_of(folder / "run")
    lines = succeeds("predict", "run", "test.h5", "--threshold", 0, cwd=folder).split("\n")[:-1]
    assert len(lines) == N
    assert "" in lines
    for line, row in zip(lines, scores, strict=True):
        assert line.split("\t") == ([f"c{c}" for c in np.argsort(-row) if row[c] > 0] or [""])
    assert "must be a finite number" in fails(
        2, "predict", "run", "test.h5", "--threshold", "nan", cwd=folder
    )


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """The rows with several labels as text; lines of rows without a label begin with a blank."""
    lines = []
    for i, own in enumerate(own_labels()):
        pairs = (f"{j + 1}:{X.data[p]}" for p in range(X.indptr[i], X.indptr[i + 1]) for j in [X.indices[p]])
        lines.append(" ".join([",".join(f"c{c}" for c in np.flatnonzero(own)), *pairs]))
    path = tmp_path / "test.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.engine
def test_text_with_several_labels_is_scored_as_a_store_is(folder: Path, text: Path) -> None:
    of_store = json.loads(succeeds("evaluate", "run", "train.zarr", "--json", cwd=folder))
    assert json.loads(succeeds("evaluate", "run", text, "--multilabel", "--json", cwd=folder)) == of_store
    assert json.loads(succeeds("evaluate", "run", text, "--json", cwd=folder)) == of_store
    of_store = succeeds("predict", "run", "train.zarr", "--threshold", 0, "--scores", cwd=folder)
    assert succeeds("predict", "run", text, "--threshold", 0, "--scores", cwd=folder) == of_store
    text.write_text(text.read_text().replace("c4", "new"))
    done = streamsvm("evaluate", "run", text, "--multilabel", cwd=folder)
    n_new = int(own_labels()[:, 4].sum())
    assert done.err == f"streamsvm: {text}: left out labels unknown to the model ({n_new} in all)\n"


@pytest.mark.engine
def test_several_labels_are_refused_where_one_is_meant(folder: Path, text: Path) -> None:
    text.write_text(text.read_text().split("\n", 1)[1].replace("\n ", "\n,"))  # the first row has no label
    line = next(i for i, line in enumerate(text.read_text().split("\n"), 1) if "," in line.split(" ")[0])
    refused = f"streamsvm: {text}, line {line}, column 1: "
    message = fails(1, "evaluate", "plain", text, cwd=folder)
    assert message.startswith(refused)
    assert message.endswith("is a label with a comma; --multilabel reads several labels a row\n")
    message = fails(1, "online", text, "--out", text.with_name("online"), cwd=folder)
    assert message.startswith(refused)
    advice = "; `streamsvm convert --multilabel` makes a store of rows with several labels\n"
    assert message.endswith(advice)
    message = fails(2, "evaluate", "run", "test.h5", "--multilabel", cwd=folder)
    assert message == "streamsvm: --multilabel says how a file is read, and this data is read as it is\n"


@pytest.mark.engine
def test_options_of_evaluate_arrive(folder: Path, tmp_path: Path) -> None:
    several = ("evaluate", folder / "run", folder / "test.h5")
    found = json.loads(succeeds(*several, "--threshold", -0.5, "--top-k", 2, "--json"))
    expected = evaluate(folder / "run", folder / "test.h5", threshold=-0.5, top_k=2)
    assert (found["micro_f1"], found["precision"]["2"]) == (expected.micro_f1, expected.precision[2])
    ranked = json.loads(succeeds("evaluate", folder / "ww", folder / "test.h5", "--n-labels", 2, "--json"))
    assert ranked["macro_f1"] == evaluate(folder / "ww", folder / "test.h5", n_labels=2).macro_f1
    assert "--confusion is for rows with one" in fails(2, *several, "--confusion", tmp_path / "no.csv")
    costs = np.abs(np.subtract.outer(np.arange(K), np.arange(K))) ** 2
    np.savetxt(tmp_path / "costs.csv", costs, delimiter=",")
    (tmp_path / "tree").write_text("".join(f"{c}  {c - 1}\n" for c in range(1, K)))
    options = ("--costs", "costs.csv", "--tree", "tree", "--confusion", "confusion.csv", "--json")
    found = json.loads(succeeds("evaluate", folder / "plain", folder / "one.zarr", *options, cwd=tmp_path))
    predicted = scores_of(folder / "plain").argmax(axis=1)
    assert found["mean_cost"] == pytest.approx(costs[LABELS, predicted].mean())
    assert found["mean_distance"] == pytest.approx(np.abs(LABELS - predicted).mean())
    pairs = np.loadtxt(tmp_path / "confusion.csv", int, delimiter=",", skiprows=1)
    table = np.zeros((K, K), int)
    table[pairs[:, 0], pairs[:, 1]] = pairs[:, 2]
    np.testing.assert_array_equal(table, confusion_matrix(LABELS, predicted))
