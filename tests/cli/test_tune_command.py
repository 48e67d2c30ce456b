"""`streamsvm tune` as users run it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import fails, succeeds
from helpers import make_store
from sklearn.datasets import load_digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tune")
    X, y = load_digits(return_X_y=True)
    make_store(path / "s.h5", sp.csr_array(X[:500] / 16), y[:500].astype(np.int32))
    return path


def test_a_table_a_picture_and_a_run(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ("tune", "s.h5", "--out", out, "--C", "2^-5:2^-2", "--folds", 2)
    shown = succeeds(*command, cwd=folder)
    assert shown.count("<- chosen") == 1
    assert "2 trainings" in shown
    bars = [line for line in shown.splitlines() if line.startswith("  C ")]
    assert [float(line.split()[1]) for line in bars] == [0.03125, 0.0625, 0.125, 0.25]
    found = json.loads(succeeds(*command, "--json", cwd=folder))  # which finds all of it done
    accuracies = [row["valid_accuracy"] for row in found["tried"]]
    assert [f"{accuracy:.4f}" for accuracy in accuracies] == [line.split()[2] for line in bars]
    chosen = next(line for line in bars if "<- chosen" in line)
    assert float(chosen.split()[1]) == found["C"] == found["tried"][int(np.argmax(accuracies))]["C"]
    lengths = [line.count("#") for line in bars]
    assert (lengths[int(np.argmax(accuracies))], lengths[int(np.argmin(accuracies))]) == (24, 0)
    evaluated = json.loads(succeeds("evaluate", out, "s.h5", "--json", cwd=folder))
    assert evaluated["accuracy"] > 0.9


def test_options_of_fit(folder: Path, tmp_path: Path) -> None:
    """Each arrives in the run that is trained with the best setting."""
    weights = tmp_path / "weights.txt"
    weights.write_text("3 4\n")
    options = ("--class-weight", weights, "--slice-rows", 0, "--solver", "sorted", "--block-rows", 90)
    out = tmp_path / "run"
    command = ("tune", "s.h5", "--out", out, "--C", "0.5,1", *options)
    run = ("--seed", 5, "--memory", "300M", "--json")
    found = json.loads(succeeds(*command, *run, cwd=folder, notes=True))  # the best C may be at an end
    settings = found["result"]["settings"]
    expected = {"slice_rows": 0, "solver": "sorted", "block_rows": 90, "seed": 5, "memory": 300 * 2**20}
    assert {name: settings[name] for name in expected} == expected
    assert settings["class_weight"] == str(weights)
    shown = succeeds("tune", "--help", cwd=folder)
    for option in ("--sample-weight", "--join", "--raw", "--costs", "--tree", "--inner-passes"):
        assert option in shown
    for option in ("--C-path", "--first-C", "--gap", "--tol", "--calibrate"):
        assert option not in shown
        assert "No such option" in fails(2, *command, option, 1, cwd=folder)


def test_mistakes_are_one_line(folder: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run")
    for code, words, message in [
        (2, ("--C", "x"), "--C must be auto, numbers above 0"),
        (2, ("--C", "1", "--loss", "none"), "unknown loss"),
        (2, ("--hold-out", "3/2"), "--hold-out must be a part such as 1/10"),
        (2, ("--folds", 3, "--hold-out", "1/3"), "exclude one another"),
        (2, ("--solver", "clip"), "--solver must be"),
        (1, ("--sample-weight", "mass"), "mass"),
        (1, ("--class-weight", "no.txt"), "no.txt"),
        (1, ("--valid", "no.zarr"), "no.zarr"),
    ]:
        assert message in fails(code, "tune", "s.h5", *out, *words, cwd=folder)
    succeeds("tune", "s.h5", *out, "--C", 1, cwd=folder)  # none of them began
    assert "nothing is there" in fails(1, "tune", "no.h5", "--out", tmp_path / "other", cwd=folder)
