"""What results, models and stores show: one short line, and a small table with nothing unescaped."""

from __future__ import annotations

import html
import re
import warnings
from typing import Any

import numpy as np
import pytest
from helpers import make_problem
from streamsvm_converters import convert

import streamsvm

ODD = '<b>&"B"\tcell</b>'
LONGEST = 500  # characters of a line


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One of everything that a notebook may end a cell with."""
    folder = tmp_path_factory.mktemp("<i>folder")
    X, y = make_problem(40, 6, 3)
    names = np.array([ODD.replace("\t", ""), "b" * 300, "c"])
    (folder / "text").write_text("a 1:1 2:1\nb 2:1\na 1:2\nb 2:3 3:1\n")
    report = convert(folder / "text", folder / "a.zarr")
    run = streamsvm.fit(folder / "a.zarr", out=folder / "run", passes=3, gap="pass", valid=folder / "a.zarr")
    model = streamsvm.fit(X, names[np.unique(y, return_inverse=True)[1]], passes=1)
    loaded = streamsvm.load_model(folder / "run")
    store = streamsvm.open_store(folder / "a.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # four rows are all predicted correctly
        calibration = streamsvm.calibrate(loaded, store)
    return {
        "ConvertReport": report,
        "FitResult": run,
        "Model": model,
        "TuneResult": streamsvm.tune(X, y, C=[0.1, 1.0], passes_each=1, passes=1),
        "ContainerStore": store,
        "Evaluation": streamsvm.evaluate(loaded, store),
        "Predictions": streamsvm.predict(loaded, store),
        "Calibration": calibration,
    }


def test_the_repr_is_one_short_line_that_names_the_class(shown: dict[str, Any]) -> None:
    for kind, value in shown.items():
        line = repr(value)
        assert line.startswith(f"{kind}(")
        assert len(line) < LONGEST
        assert line.isprintable()


def test_the_html_is_a_table_with_everything_escaped(shown: dict[str, Any]) -> None:
    for kind, value in shown.items():
        text = value._repr_html_()
        assert set(re.findall(r"</?(\w+)", text)) <= {"table", "tr", "td", "th", "caption", "b"}
        assert kind in text
    text = shown["Model"]._repr_html_()
    assert html.escape('<b>&"B"cell</b>') in text
    assert "b" * 100 not in text  # shortened


def test_the_figures_are_those_of_the_result(shown: dict[str, Any]) -> None:
    evaluation, run = shown["Evaluation"], shown["FitResult"]
    assert f"accuracy={evaluation.accuracy:.4g}" in repr(evaluation)
    assert f"relative_gap={run.relative_gap:.4g}" in repr(run)
    shown_gaps = run._repr_html_()
    assert all(f"{report['average_relative_gap']:.4g}" in shown_gaps for report in run.history)
    assert run.averaged
    assert "n_rows=4" in repr(shown["ContainerStore"])
