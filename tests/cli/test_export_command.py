"""`export` and `import` from the command line: files, messages, and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import streamsvm
from helpers import make_problem
from helpers import plain_fit as fit


@pytest.fixture
def model(tmp_path: Path) -> Path:
    X, codes = make_problem(80, 12, 3)
    fit(X, np.array(["1", "2", "3"])[codes]).save(tmp_path / "model")
    return tmp_path / "model"


def test_export(tmp_path: Path, model: Path) -> None:
    text = tmp_path / "m.txt"
    code, out, err = streamsvm("export", model, "--out", text, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "path": str(text), "format": "liblinear", "bytes": text.stat().st_size, "numbers": None,
    }  # fmt: skip
    code, out, _ = streamsvm("info", model)
    assert code == 0
    assert "strongest features  1: " in out


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["export", "model", "--out", "m"], 2, "--format is missing: m has none of the suffixes"),
        (["export", "model", "--out", "m.txt", "--top", "3"], 2, "--top is for the format csv"),
        (
            ["export", "model", "--out", "m.txt", "--dtype", "float16"],
            2,
            "--dtype is for the format streamsvm",
        ),
        (["export", "model", "--out", "model", "--format", "streamsvm"], 1, "already; --force replaces it"),
        (
            ["export", "model", "--out", "nowhere/m.npz"],
            1,
            "nowhere does not exist; create it first",
        ),
        (["export", "no", "--out", "m.npz"], 1, "nothing is there"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    words: list[str],
    code: int,
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    ended, out, err = streamsvm(*words)
    assert (ended, out) == (code, "")
    assert problem in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
