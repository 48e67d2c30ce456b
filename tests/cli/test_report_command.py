"""`report`: the file it writes, data of other kinds, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import streamsvm
from helpers import make_problem, make_store
from report_pages import Page

from streamsvm import fit

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

X, CODES = make_problem(120, 5, 3, noise=1.5)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    store = make_store(tmp_path / "s.h5", X, CODES)
    fit(store, out=tmp_path / "run", passes=2)
    return tmp_path / "run"


def test_it_writes_a_page_into_the_run_or_elsewhere(run: Path, tmp_path: Path) -> None:
    assert streamsvm("report", run) == (0, f"wrote {run / 'report.html'}\n", "")
    code, out, _ = streamsvm("report", run, "--out", tmp_path / "page.html", "--json")
    assert (code, json.loads(out)) == (0, {"out": str(tmp_path / "page.html")})
    assert streamsvm("report", run, "-q")[0] == 0
    again = ("report", run, "--out", tmp_path / "page.html", "-q")
    assert (
        streamsvm(*again)[2] == f"streamsvm: {tmp_path / 'page.html'} is there already; --force replaces it\n"
    )
    assert streamsvm(*again, "--force") == (0, "", "")
    for path in (run / "report.html", tmp_path / "page.html"):
        Page(path).check()


def test_refusals_are_one_line(run: Path, tmp_path: Path) -> None:
    for words in (
        (tmp_path / "none",),
        (run, "--data", tmp_path / "none"),
        (run, "--out", tmp_path / "no" / "x.html"),
    ):
        code, out, err = streamsvm("report", *words)
        assert (code, out, err.count("\n")) == (1, "", 1), words
        assert err.startswith("streamsvm: ")
