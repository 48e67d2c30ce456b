"""`report`: the file it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import streamsvm
from helpers import make_problem, make_store

from streamsvm import fit

pytest.importorskip("matplotlib")


def test_it_writes_a_page_into_the_run_or_elsewhere(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.h5", *make_problem(120, 5, 3, noise=1.5))
    run, page = tmp_path / "run", tmp_path / "page.html"
    fit(store, out=run, passes=2)
    assert streamsvm("report", run) == (0, f"wrote {run / 'report.html'}\n", "")
    code, out, _ = streamsvm("report", run, "--out", page, "--data", store, "--json")
    assert (code, json.loads(out)) == (0, {"out": str(page)})
    again = ("report", run, "--out", page, "-q")
    assert streamsvm(*again) == (1, "", f"streamsvm: {page} already exists; replace it with --force\n")
    with_data = page.read_text().count("<table>")
    assert streamsvm(*again, "--force") == (0, "", "")
    assert page.read_text().count("<table>") == (run / "report.html").read_text().count("<table>") < with_data
