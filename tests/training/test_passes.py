"""What surrounds the kernels of a pass over a single block: no file is opened, and no thread started."""

from __future__ import annotations

import collections
import itertools
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers import plain_fit as fit
from run_files import metrics_of, stop_after, without_times

from streamsvm import resume
from streamsvm.errors import Interrupted
from streamsvm.training.opened import OpenTraining
from streamsvm.training.spec import Spec

_COUNTED = {"open", "os.remove", "os.rename", "os.listdir", "os.scandir", "mmap.__new__", "thread"}
_MEMORY = "/proc/self/status"  # read at most ten times a second
_counters: list[collections.Counter[str]] = []  # of what happens now


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if _counters and event in _COUNTED and _MEMORY not in arguments:
        _counters[-1][event] += 1


sys.addaudithook(_count)


def test_passes_in_memory_open_start_and_delete_nothing(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        _count("thread", ())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    fit(store, out=tmp_path / "before", passes=2, tol=1e-12)  # imports and compiles
    found = []
    for passes in (10, 40):
        _counters.append(collections.Counter())
        try:
            result = fit(store, out=tmp_path / f"{passes}", passes=passes, tol=1e-12, checkpoint_every="1h")
        finally:
            found.append(_counters.pop())
        assert (result.passes, result.checkpoints) == (passes, 1)
    assert found[0] == found[1]
    assert found[0]["open"] > 0
    assert found[0]["thread"] == 0


@pytest.mark.parametrize(
    ("dense", "held", "every"),
    [(True, 10**6, "1h"), (True, 10**6, "1"), (False, 10**6, "1h"), (False, 10**6, "1"), (False, 1, "1h")],
)
def test_a_run_has_the_same_bytes_wherever_its_duals_are_between_commits(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, dense: bool, held: int, every: str
) -> None:
    """In memory, or in memory until they are too many, instead of in a file: stopped at each block or not."""
    options: dict[str, Any] = {"passes": 3, "gap": "pass"}
    if not dense:
        monkeypatch.setattr(Spec, "dual_matrix_bytes", 0)
    monkeypatch.setattr(OpenTraining, "held_bytes", 10**6 * dense)
    fit(store, out=tmp_path / "whole", **options)
    monkeypatch.setattr(OpenTraining, "held_bytes", held)
    run = tmp_path / "run"
    for n in itertools.count(1):
        try:
            fit(store, out=run, stop=stop_after(n), checkpoint_every=every, force=True, **options)
        except Interrupted:
            resume(run)
            stopped = True
        else:
            stopped = False
        for name in ("model/coef.npy", "model/model.json", "duals-3-0-0.bin"):
            assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), (n, name)
        assert without_times(metrics_of(run)) == without_times(metrics_of(tmp_path / "whole")), n
        if not stopped:
            break
    assert n == 7  # three visits of the block, and three scorings
