"""`streamsvm tune` as users run it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import succeeds
from helpers import make_store
from sklearn.datasets import load_digits

from streamsvm import tune
from streamsvm.errors import Interrupted

LOSSES = ("--loss", "ww", "--loss", "cs", "--dtype", "float64")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tune")
    X, y = load_digits(return_X_y=True)
    make_store(path / "s.h5", sp.csr_array(X[:500] / 16), y[:500].astype(np.int32))
    return path


def test_a_table_printed_once_and_a_run(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ("tune", "s.h5", "--out", out, "--C", "2^-5:2^-2", "--folds", 3, *LOSSES)
    shown = succeeds(*command, cwd=folder)
    assert "6 training runs" in shown
    head, *rows = (line.split() for line in table_of(shown))
    assert head == ["C", "accuracy", "+-", "seconds", "settings"]
    assert [float(row[0]) for row in rows] == 2 * [0.03125, 0.0625, 0.125, 0.25]
    assert [row[-2:] for row in rows] == 4 * [["loss", "ww"]] + 4 * [["loss", "cs"]]
    found = json.loads(succeeds(*command, "--json", cwd=folder))  # which finds all of it done
    accuracies = [row["valid_accuracy"] for row in found["tried"]]
    assert [f"{accuracy:.4f}" for accuracy in accuracies] == [row[1] for row in rows]
    assert [f"{row['valid_accuracy_std']:.4f}" for row in found["tried"]] == [row[2] for row in rows]
    best = rows[int(np.argmax(accuracies))]
    assert f"chosen as the best of 8 candidates: C {best[0]}, loss {best[-1]}\n" in shown
    assert f"\naccuracy {best[1]} was measured after " in shown
    assert shown.count(f" {best[1]} ") == 1 + [row[1] for row in rows].count(best[1])
    assert float(best[0]) == found["C"]
    assert json.loads(succeeds("evaluate", out, "s.h5", "--json", cwd=folder))["accuracy"] > 0.9


@pytest.mark.parametrize("last", ["search", "pass", "tried"])
def test_the_model_is_measured_on_the_validation_rows(folder: Path, tmp_path: Path, last: str) -> None:
    """And `info` says that the search has chosen C; each C has one line, wherever the search was stopped."""
    data, out, events = folder / "s.h5", tmp_path / "run", set()
    reports = {"report": lambda event: events.add(event["event"]), "stop": lambda: last in events}
    with pytest.raises(Interrupted):
        tune(data, out=out, C="0.05,0.1,0.2", valid=data, passes=1, passes_each=1, **reports)
    command = ("tune", data, "--out", out, "--C", "0.05,0.1,0.2", "--valid", data, "--passes-each", 1)
    shown = succeeds(*command, "--passes", 1, notes=True)
    assert sorted(line.split()[0] for line in table_of(shown)[1:]) == ["0.05", "0.1", "0.2"]
    evaluated = json.loads(succeeds("evaluate", out, "s.h5", "--json", cwd=folder))
    assert f"s.h5: accuracy {evaluated['accuracy']:.4f}\n" in shown
    assert ", chosen by tune\n" in succeeds("info", out)


def table_of(shown: str) -> list[str]:
    """The lines from the heading on that have its number of columns."""
    lines = shown.splitlines()
    at = next(at for at, line in enumerate(lines) if "accuracy" in line)
    return [line for line in lines[at:] if line == lines[at] or re.match(r" +[0-9.e-]+ +0\.[0-9]{4}\b", line)]
