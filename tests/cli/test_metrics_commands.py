"""`evaluate` and `predict` on rows with several labels, and `evaluate` with costs and trees."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, streamsvm, succeeds
from helpers import as_rows, make_problem, make_store, write_rows
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    label_ranking_loss,
    precision_recall_fscore_support,
)

from streamsvm import fit, load_model
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
@pytest.mark.parametrize("data", ["train.zarr", "test.h5"])
def test_evaluate_measures_sets_of_labels(folder: Path, data: str) -> None:
    own, scores = own_labels(), scores_of(folder / "run")
    found = json.loads(succeeds("evaluate", "run", data, "--json", cwd=folder))
    assert found["n"] == N
    assert found["micro_f1"] == pytest.approx(f1_score(own, scores > 0, average="micro"))
    assert found["macro_f1"] == pytest.approx(f1_score(own, scores > 0, average="macro"))
    assert found["subset_accuracy"] == pytest.approx(accuracy_score(own, scores > 0))
    assert found["ranking_loss"] == pytest.approx(label_ranking_loss(own, scores))
    best = np.argsort(-scores, axis=1)
    for k in (1, 3, 5):
        assert found["precision"][str(k)] == pytest.approx(np.take_along_axis(own, best[:, :k], 1).mean())
    options = ("--threshold", -0.5, "--top-k", 2)
    lines, table, *_ = succeeds("evaluate", "run", data, *options, cwd=folder).split("\n\n")
    shown = dict(line.rsplit(maxsplit=1) for line in lines.splitlines())
    assert {name.strip() for name in shown} == {
        "rows", "precision@1", "precision@2", "ranking loss", "macro F1", "micro F1", "subset acc.",
    }  # fmt: skip
    assert shown["    micro F1"] == f"{f1_score(own, scores > -0.5, average='micro'):.4f}"
    precision, recall, f1, rows = precision_recall_fscore_support(own, scores > -0.5)
    cells = [line.split() for line in table.splitlines()[1:]]
    assert [row[0] for row in cells] == [f"c{c}" for c in np.argsort(f1, kind="stable")]
    for name, *values in cells:
        c = int(name[1:])
        assert values == [*(f"{each[c]:.4f}" for each in (precision, recall, f1)), str(rows[c])]


@pytest.mark.engine
def test_evaluate_names_the_worst_classes_and_confusions(folder: Path, tmp_path: Path) -> None:
    data = (folder / "plain", folder / "one.zarr")
    predicted = scores_of(folder / "plain").argmax(axis=1)
    matrix = confusion_matrix(LABELS, predicted)
    precision, recall, f1, rows = precision_recall_fscore_support(LABELS, predicted)
    out = succeeds("evaluate", *data, "--confusion", tmp_path / "confusion.csv")
    *lines, last = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert last.endswith(str(tmp_path / "confusion.csv"))
    _, classes, confused, _ = out.split("\n\n")
    for line, c in zip(classes.splitlines()[1:], np.lexsort((-rows, f1)), strict=True):
        values = [f"{each[c]:.4f}" for each in (precision, recall, f1)]
        assert line.split() == [str(c), *values, str(rows[c])]
    errors = matrix - np.diag(matrix.diagonal())
    most = [int(line.split()[2]) for line in confused.splitlines()[1:]]
    assert most == sorted(errors[errors > 0], reverse=True)[:5]
    for line in confused.splitlines()[1:]:
        true, wrong, count, share = line.split()
        assert int(count) == matrix[int(true), int(wrong)]
        assert share == f"{int(count) / rows[int(true)]:.1%}"
    head, *lines = (tmp_path / "confusion.csv").read_text().splitlines()
    assert head == "true,predicted,rows"
    table = np.zeros_like(matrix)
    for true, wrong, count in (map(int, line.split(",")) for line in lines):
        table[true, wrong] += count
    np.testing.assert_array_equal(table, matrix)
    found = json.loads(succeeds("evaluate", *data, "--json"))
    assert [row["recall"] for row in found["classes"]] == pytest.approx(recall)
    assert [row["rows"] for row in found["confused"]] == most


@pytest.mark.engine
def test_a_table_of_confusions_is_refused_where_it_cannot_be(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "is.csv").write_text("mine")
    data = (folder / "plain", folder / "one.zarr")
    assert "--force replaces it" in fails(1, "evaluate", *data, "--confusion", tmp_path / "is.csv")
    assert (tmp_path / "is.csv").read_text() == "mine"
    succeeds("evaluate", *data, "--confusion", tmp_path / "is.csv", "--force")
    assert (tmp_path / "is.csv").read_text().startswith("true,")
    several = ("evaluate", folder / "run", folder / "test.h5", "--confusion", tmp_path / "no.csv")
    assert "--confusion is for rows with one label each" in fails(2, *several)
    assert not (tmp_path / "no.csv").exists()


@pytest.mark.engine
def test_a_loss_that_only_ranks_has_no_sets_without_an_option(folder: Path) -> None:
    done = streamsvm("evaluate", "ww", "test.h5", cwd=folder)
    assert done.code == 0
    assert "F1" not in done.out
    assert "to have them, give --threshold or --n-labels" in done.err
    out = succeeds("evaluate", "ww", "test.h5", "--n-labels", 2, "--json", cwd=folder)
    predicted = np.argsort(np.argsort(-scores_of(folder / "ww"), axis=1), axis=1) < 2
    assert json.loads(out)["micro_f1"] == pytest.approx(f1_score(own_labels(), predicted, average="micro"))


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


@pytest.mark.engine
def test_evaluate_measures_costs_and_distances(folder: Path, tmp_path: Path) -> None:
    predicted = scores_of(folder / "plain").argmax(axis=1)
    costs = np.abs(np.subtract.outer(np.arange(K), np.arange(K))) ** 2
    np.savetxt(tmp_path / "costs.csv", costs, delimiter=",")
    (tmp_path / "tree").write_text("".join(f"{c}  {c - 1}\n" for c in range(1, K)))
    data = (folder / "plain", folder / "one.zarr")
    assert "mean" not in succeeds("evaluate", *data, cwd=tmp_path)
    options = ("--costs", "costs.csv", "--tree", "tree")
    found = json.loads(succeeds("evaluate", *data, *options, "--json", cwd=tmp_path))
    assert found["mean_cost"] == pytest.approx(costs[LABELS, predicted].mean())
    assert found["mean_distance"] == pytest.approx(np.abs(LABELS - predicted).mean())
    out = succeeds("evaluate", *data, *options, cwd=tmp_path)
    assert f"   mean cost  {found['mean_cost']:.4f}\n" in out
    assert f"  mean dist.  {found['mean_distance']:.4f}\n" in out
    (tmp_path / "tree").write_text("0 r\n1 r\n2 r\n3 r\n")
    message = fails(1, "evaluate", *data, "--tree", "tree", cwd=tmp_path)
    assert message == "streamsvm: tree: the class '4' is not in the tree; add a line with it and its parent\n"
    message = fails(2, "evaluate", folder / "run", folder / "test.h5", "--costs", "costs.csv", cwd=tmp_path)
    assert message == "streamsvm: --costs does not apply: the rows have several labels each\n"


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["costs", "tree"])
def test_a_model_is_measured_by_the_costs_of_its_training(folder: Path, tmp_path: Path, kind: str) -> None:
    distances = np.abs(np.subtract.outer(np.arange(K), np.arange(K)))
    np.save(tmp_path / "costs.npy", distances)
    (tmp_path / "tree").write_text("".join(f"{c}  {c - 1}\n" for c in range(1, K)))
    name, key = {"costs": ("costs.npy", "mean_cost"), "tree": ("tree", "mean_distance")}[kind]
    fit(folder / "one.zarr", out=tmp_path / "run", passes=1, dtype="float64", **{kind: tmp_path / name})
    (tmp_path / name).unlink()
    predicted = scores_of(tmp_path / "run").argmax(axis=1)
    found = json.loads(succeeds("evaluate", "run", folder / "one.zarr", "--json", cwd=tmp_path))
    assert found[key] == pytest.approx(distances[LABELS, predicted].mean())
    assert sorted(name for name in ("mean_cost", "mean_distance") if found[name] is not None) == [key]


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
