"""Pictures: what is drawn is what the run measured, into the axes that are given or new ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from run_files import metrics_of
from sklearn.metrics import confusion_matrix, f1_score

pytest.importorskip("matplotlib")
import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot
from matplotlib.figure import Figure

import streamsvm
from streamsvm import evaluate, load_model, plot
from streamsvm.errors import ModelError, RunError, SettingsError, StreamsvmError

N, D, K = 200, 7, 4
X, CODES = make_problem(2 * N, D, K, noise=1.5)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    store = make_store(folder / "train.h5", X[:N], CODES[:N], n_classes=K)
    valid = make_store(folder / "valid.h5", X[N:], CODES[N:], n_classes=K)
    fit(store, out=folder / "run", passes=5, gap="pass", valid=valid, average=True)
    return folder / "run"


@pytest.fixture
def ax() -> Any:
    return Figure().add_subplot()


def curves(ax: Any) -> dict[str, tuple[list[float], list[float]]]:
    """The curves by their colours."""
    return {line.get_color(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines}


def test_convergence_draws_the_metrics(run: Path, ax) -> None:
    lines = [line for line in metrics_of(run) if line["event"] == "pass"]
    assert plot.convergence(run, ax) is ax
    found = curves(ax)
    for colour, name in (("#0067a5", "relative_gap"), ("#b84a00", "average_relative_gap")):
        assert found[colour] == ([1, 2, 3, 4, 5], [line[name] for line in lines])
    assert ax.get_yscale() == "log"
    shown = {text.get_text() for text in ax.get_legend().get_texts()}
    assert shown == {"last iterate", "average", "estimate"}
    by_second = plot.convergence(run, Figure().add_subplot(), of="objective", by="seconds")
    x, y = curves(by_second)["#0067a5"]
    np.testing.assert_allclose(x, np.cumsum([line["seconds"] for line in lines]))
    assert y == [line["primal"] for line in lines]
    assert "seconds" in by_second.get_xlabel()


def test_results_and_models_in_memory_draw_as_runs_do(run: Path, ax) -> None:
    result = fit(run.parent / "train.h5", out=run.parent / "again", passes=5, gap="pass", average=True)
    of_run = curves(plot.convergence(run, ax))
    assert curves(plot.convergence(result, Figure().add_subplot())) == of_run
    model = fit(X[:N], CODES[:N], passes=3)
    assert curves(plot.convergence(model, Figure().add_subplot()))


def test_accuracies(run: Path, ax) -> None:
    lines = metrics_of(run)
    found = curves(plot.accuracy(run, ax))
    passes = [line for line in lines if line["event"] == "pass"]
    assert found["#0067a5"][1] == [line["last_iterate_valid_accuracy"] for line in passes]
    assert found["#b84a00"][1] == [line["valid_accuracy"] for line in passes]
    rows = [line for line in lines if "progressive_accuracy" in line]
    found = curves(plot.progressive(run, Figure().add_subplot()))
    assert found["#0067a5"] == ([r["rows"] for r in rows], [r["progressive_accuracy"] for r in rows])


@pytest.mark.parametrize("k", [4, 30])
def test_a_confusion_matrix_has_the_counts_of_scikit_learn(k: int, ax) -> None:
    """Of more than 20 classes it has the 20 with the lowest F1, in their order."""
    X, codes = make_problem(2 * N, D, k, noise=1.5)
    model = fit(X[:N], codes[:N], passes=1)
    evaluation = evaluate(model, X[N:], y=codes[N:].astype(str))
    plot.confusion(evaluation, ax)
    predicted = model.predict(X[N:]).astype(int)
    expected = confusion_matrix(codes[N:], predicted, labels=np.arange(k))
    f1 = f1_score(codes[N:], predicted, labels=np.arange(k), average=None)
    occurs = np.flatnonzero(expected.sum(axis=1))
    drawn = np.arange(k)
    if k > 20:
        drawn = np.sort(occurs[np.lexsort((-expected[occurs].sum(axis=1), f1[occurs]))][:20])
    found = np.zeros((len(drawn), len(drawn)), int)
    for text in ax.texts:
        column, row = text.get_position()
        found[int(row), int(column)] = int(text.get_text())
    np.testing.assert_array_equal(found, expected[np.ix_(drawn, drawn)])
    names = [model.classes_[code] for code in drawn]
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        f"{name} ({at})" for at, name in enumerate(names, 1)
    ]
    assert [label.get_text() for label in ax.get_xticklabels()] == [f"{at + 1}" for at in range(len(drawn))]
    assert ax.yaxis_inverted()
    figure = plot.confusion(evaluation).figure
    assert figure.get_figwidth() * 96 <= 1280 - 2 * 36  # pixels of a browser, less the margins of the page
    pyplot.close(figure)


def test_new_axes_are_made_by_pyplot(run: Path) -> None:
    before = pyplot.get_fignums()
    ax = plot.accuracy(run)
    assert len(pyplot.get_fignums()) == len(before) + 1
    pyplot.close(ax.figure)
    assert streamsvm.plot is plot


def test_refusals(run: Path, tmp_path: Path, ax, monkeypatch) -> None:
    fit(run.parent / "train.h5", out=tmp_path / "run", passes=1, gap="none")
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: plot.convergence(run, ax, of="loss"), SettingsError, "of must be gap or objective"),
        (lambda: plot.confusion(load_model(run), ax), ModelError, "for rows that have one label"),
        (lambda: plot.answered(evaluate(run, run.parent / "valid.h5"), ax), ModelError, "probabilities"),
        (lambda: plot.accuracy(tmp_path, ax), RunError, "is not a run"),
        (lambda: plot.accuracy({}, ax), RunError, "not dict"),
        (lambda: plot.accuracy(tmp_path / "run", ax), RunError, "contains no accuracy"),
    ]
    for call, error, words in cases:
        with pytest.raises(error, match=words):
            call()
    (tmp_path / "run" / "metrics.jsonl").unlink()
    for draw in (plot.convergence, plot.accuracy, plot.progressive):
        with pytest.raises(RunError, match="no "):
            draw(tmp_path / "run", ax)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    for use in (streamsvm.report, plot.accuracy):
        with pytest.raises(StreamsvmError, match=r"matplotlib.*pip install 'streamsvm\[plot\]'"):
            use(run)
