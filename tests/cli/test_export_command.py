"""`export` and `import` from the command line: files, messages, and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, streamsvm
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


def test_what_is_wrong_is_one_line(tmp_path: Path, model: Path) -> None:
    for code, words, problem in (
        (2, ("model", "--out", "m"), "--format is missing: m has none of the suffixes"),
        (2, ("model", "--out", "m.txt", "--dtype", "float16"), "--dtype is for the format streamsvm"),
        (1, ("model", "--out", "model", "--format", "streamsvm"), "already; --force replaces it"),
    ):
        assert problem in fails(code, "export", *words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == [model]
