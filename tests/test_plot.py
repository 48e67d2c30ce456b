"""Pictures: what is drawn is what the run measured, into the axes that are given or new ones."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from report_problems import many_classes
from run_files import metrics_of

pytest.importorskip("matplotlib")
import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot
from matplotlib.figure import Figure

import streamsvm
from streamsvm import load_model, plot
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


def texts(ax: Any) -> list[str]:
    """What is written into the picture, and in its legend."""
    legend = ax.get_legend()
    return [text.get_text() for text in [*ax.texts, *(legend.get_texts() if legend else [])]]


def test_convergence_draws_the_metrics(run: Path, ax) -> None:
    lines = [line for line in metrics_of(run) if line["event"] == "pass"]
    assert plot.convergence(run, ax) is ax
    found = curves(ax)
    for colour, name in (("#0067a5", "relative_gap"), ("#b84a00", "average_relative_gap")):
        assert found[colour] == ([1, 2, 3, 4, 5], [line[name] for line in lines])
    assert ax.get_yscale() == "log"
    assert {"last iterate", "average", "estimate"} == set(texts(ax))
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
    assert plot.top_features(model, "1", Figure().add_subplot()).patches
    assert plot.confusion(model, X[N:], Figure().add_subplot(), y=CODES[N:]).patches


def test_accuracies(run: Path, ax) -> None:
    lines = metrics_of(run)
    found = curves(plot.accuracy(run, ax))
    passes = [line for line in lines if line["event"] == "pass"]
    assert found["#0067a5"][1] == [line["last_iterate_valid_accuracy"] for line in passes]
    assert found["#b84a00"][1] == [line["valid_accuracy"] for line in passes]
    rows = [line for line in lines if "progressive_accuracy" in line]
    found = curves(plot.progressive(run, Figure().add_subplot()))
    assert found["#0067a5"] == ([r["rows"] for r in rows], [r["progressive_accuracy"] for r in rows])


def test_times_of_passes(run: Path, ax) -> None:
    passes = [line for line in metrics_of(run) if line["event"] == "pass"]
    found = curves(plot.pass_times(run, ax))
    assert found["#0067a5"] == ([1, 2, 3, 4, 5], [line["seconds"] for line in passes])
    assert list(found.values())[-1][1] == [line["waited_seconds"] for line in passes]
    assert ax.get_ylim()[0] == 0


def test_confusion_draws_the_most_frequent_pairs(run: Path, ax) -> None:
    plot.confusion(run, ax=ax, n=3)
    predicted = load_model(run).predict(X[N:]).astype(int)
    table = np.zeros((K, K), int)
    np.add.at(table, (CODES[N:], predicted), 1)
    np.fill_diagonal(table, 0)
    assert [bar.get_width() for bar in ax.patches] == sorted(table.ravel().tolist(), reverse=True)[:3]
    for label, bar in zip(ax.get_yticklabels(), ax.patches, strict=True):
        true, wrong = map(int, label.get_text().split(" → "))
        assert table[true, wrong] == bar.get_width()


def test_class_accuracy(run: Path, ax) -> None:
    plot.class_accuracy(run, ax=ax)
    right = load_model(run).predict(X[N:]) == CODES[N:].astype(str)
    x, y = curves(ax)["#0067a5"]
    assert x == [int((CODES[N:] == c).sum()) for c in range(K)]
    np.testing.assert_allclose(y, [right[CODES[N:] == c].mean() for c in range(K)])


def test_very_many_classes_are_drawn_as_a_band(ax) -> None:
    rows, codes = many_classes(1500)
    model = fit(rows, codes, passes=1)
    plot.class_accuracy(model, rows, ax, y=codes)
    assert sum(len(line.get_xdata()) for line in ax.lines) < 20
    assert "median" in texts(ax)


def test_top_features_are_the_largest_coefficients(run: Path, ax) -> None:
    coef = load_model(run).coef_.T[:, 2]
    order = [j for j in np.argsort(-coef) if coef[j] > 0][:3]
    plot.top_features(run, "2", ax, n=3)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], coef[order], rtol=1e-6)
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"feature {j + 1}" for j in order]


def test_the_path_of_tune(tmp_path: Path, ax) -> None:
    lines = [{"C": 2.0**i, "settings": {}, "valid_accuracy": 0.8 - (i - 2) ** 2 / 50} for i in (3, 1, 2, 0)]
    (tmp_path / "tune.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plot.tune_path(tmp_path, ax)
    x, y = max(
        ((list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines), key=lambda xy: len(xy[0])
    )
    assert x == [1, 2, 4, 8]
    assert y == [line["valid_accuracy"] for line in sorted(lines, key=lambda line: line["C"])]
    assert any("C 4" in text and "80.00%" in text for text in texts(ax))


def test_new_axes_are_made_by_pyplot(run: Path) -> None:
    before = pyplot.get_fignums()
    ax = plot.accuracy(run)
    assert len(pyplot.get_fignums()) == len(before) + 1
    pyplot.close(ax.figure)
    assert streamsvm.plot is plot


def test_names_are_no_mathematics_and_need_no_glyphs(ax) -> None:
    names = np.array(["$x^", "肝臓 $\\frac$", "</text>&", "{}%s"])
    model = fit(X[:N], names[CODES[:N]], C=0.1)
    plot.confusion(model, X[N:], ax, y=names[CODES[N:]])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of the backend that draws pixels
        ax.figure.savefig(Path("/dev/null"), format="png")
    assert any("$x^" in label.get_text() for label in ax.get_yticklabels())


def test_refusals(run: Path, tmp_path: Path, ax, monkeypatch) -> None:
    fit(run.parent / "train.h5", out=tmp_path / "run", passes=1, gap="none")
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: plot.convergence(run, ax, of="loss"), SettingsError, "of must be gap or objective"),
        (lambda: plot.top_features(run, "9", ax), ModelError, "no class '9'"),
        (lambda: plot.tune_path(run, ax), RunError, "no accuracies of settings"),
        (lambda: plot.accuracy(tmp_path, ax), RunError, "is not a run"),
        (lambda: plot.accuracy({}, ax), RunError, "not a dict"),
        (lambda: plot.accuracy(tmp_path / "run", ax), RunError, "measured no accuracy"),
    ]
    for call, error, words in cases:
        with pytest.raises(error, match=words):
            call()
    (tmp_path / "run" / "metrics.jsonl").unlink()
    for draw in (plot.convergence, plot.accuracy, plot.pass_times, plot.progressive):
        with pytest.raises(RunError, match="no "):
            draw(tmp_path / "run", ax)
    for name, use in (("jinja2", streamsvm.report), ("matplotlib.axes", plot.accuracy)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(StreamsvmError, match=rf"(?i){name[:6]}.*pip install 'streamsvm\[plot\]'"):
            use(run)
