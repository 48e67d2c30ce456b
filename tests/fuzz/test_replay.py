"""What fuzzing found, and what it began with, tried again: only errors of ours, soon, in little memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import few
from fuzz.test_bounds import run

HERE = Path(__file__).parent
TARGETS = sorted(path.stem for path in (HERE / "targets").glob("[a-z]*.py"))


def test_every_target_has_a_corpus() -> None:
    assert sorted(path.name for path in (HERE / "corpus").iterdir()) == TARGETS
    assert sum(path.stat().st_size for path in (HERE / "corpus").rglob("*")) < 10**6


@pytest.mark.parametrize("name", few(TARGETS, "text", "run", "zarr_store"))
def test_findings_stay_mended(name: str) -> None:
    """In a process of its own: a crash is to be reported, and memory to be counted from little."""
    run("-W", "error", HERE / "replay.py", name, *sorted((HERE / "corpus" / name).iterdir()))
