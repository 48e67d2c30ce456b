"""`report`: the file it writes, data of other kinds, and what it refuses."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import make_problem, make_store
from report_pages import Page
from streamsvm_cli import main

from streamsvm import fit

pytest.importorskip("matplotlib")

X, CODES = make_problem(120, 5, 3, noise=1.5)


def command(*words: object) -> tuple[int, str, str]:
    """The command in this process: its exit code, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", ["streamsvm", "report", *map(str, words)])
        code: object = 0
        try:
            main.run()
        except SystemExit as ended:
            code = ended.code or 0
    return int(str(code)), out.getvalue(), err.getvalue()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    store = make_store(tmp_path / "s.h5", X, CODES)
    fit(store, out=tmp_path / "run", passes=2)
    return tmp_path / "run"


def test_it_writes_a_page_into_the_run_or_elsewhere(run: Path, tmp_path: Path) -> None:
    assert command(run) == (0, f"wrote {run / 'report.html'}\n", "")
    code, out, _ = command(run, "--out", tmp_path / "page.html", "--json")
    assert (code, json.loads(out)) == (0, {"out": str(tmp_path / "page.html")})
    for path in (run / "report.html", tmp_path / "page.html"):
        Page(path).check()


def test_held_out_data_may_be_text(run: Path, tmp_path: Path) -> None:
    lines = [
        f"{code} " + " ".join(f"{j + 1}:{row[j]:g}" for j in np.flatnonzero(row).tolist())
        for code, row in zip(CODES.tolist(), X.toarray(), strict=True)
    ]
    (tmp_path / "test.txt").write_text("\n".join(lines) + "\n")
    assert command(run, "--data", tmp_path / "test.txt", "-q") == (0, "", "")
    rows = {row["class"]: int(row["rows"]) for row in Page(run / "report.html").table("class", "rows")}
    assert rows == {str(c): n for c, n in enumerate(np.bincount(CODES))}


def test_refusals_are_one_line(run: Path, tmp_path: Path) -> None:
    for words in (
        (tmp_path / "none",),
        (run, "--data", tmp_path / "none"),
        (run, "--out", tmp_path / "no" / "x.html"),
    ):
        code, out, err = command(*words)
        assert (code, out, err.count("\n")) == (1, "", 1), words
        assert err.startswith("streamsvm: ")
