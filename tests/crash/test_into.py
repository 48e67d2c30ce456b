"""Columns are added to AnnData in place: the file is as it was, or has them, however the command ends."""

from __future__ import annotations

import dataclasses
import errno
import os
import pickle
import shutil
import signal
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from cases import few
from disk import DATA, NAMES, Disk, replayed
from tracer import Event, Plan

INTO = ("predict", "run", "a.h5ad", "--into", "a.h5ad", "--force", "--quiet")
CHANGES = ["create", "write", "grow", "truncate", "fsync", "rename", "unlink"]
MENDS = ("predict", "run", "a.h5ad", "--out", "lines", "--force", "--quiet")  # opens the file to read
EVERY = few([False, True], False)
SAID = "another process died while it added columns"


@dataclasses.dataclass
class Work:
    """A folder with a model and a file, which may have columns of another model already."""

    at: Path
    before: bytes
    after: bytes
    calls: list[str]
    events: list[Event]
    start: Path

    def reset(self) -> None:
        shutil.rmtree(self.at)
        shutil.copytree(self.start, self.at)

    def some(self, length: int, every: bool) -> list[int]:
        """All numbers below `length`, or some of them."""
        if every:
            return list(range(length))
        return sorted(np.random.default_rng(0).choice(length, 6, replace=False).tolist())

    @property
    def now(self) -> bytes:
        return (self.at / "a.h5ad").read_bytes()


@pytest.fixture(params=few(["new", "replaced"], "replaced"))
def work(request, traced, quick_path) -> Work:
    rng, n = np.random.default_rng(0), 3000
    obs = pd.DataFrame(
        {"type": pd.Categorical(rng.choice(list("ABC"), n))}, index=[f"c{i}" for i in range(n)]
    )
    X = sp.random(n, 40, 0.2, "csr", np.float32, rng)
    cells = anndata.AnnData(
        X + sp.csr_matrix(np.eye(3, 40, dtype=np.float32)[obs["type"].cat.codes]), obs=obs
    )
    start, at = quick_path / "start", quick_path / "at"
    start.mkdir()
    cells.write_h5ad(start / "a.h5ad")

    def succeeds(*words: object, cwd: Path = start, **more: object):
        ended = traced(*words, cwd=cwd, count=False, **more)
        assert (ended.code, ended.err) == (0, ""), ended
        return ended

    succeeds("fit", "a.h5ad", "--label", "type", "--out", "run", "--passes", 1, "--quiet")
    if request.param == "replaced":
        succeeds("fit", "a.h5ad", "--label", "type", "--out", "other", "--passes", 1, "--C", 1e-6, "--quiet")
        succeeds("predict", "other", "a.h5ad", "--into", "a.h5ad", "--quiet")
        shutil.rmtree(start / "other")
    shutil.copytree(start, at)
    record = quick_path / "events"
    ended = succeeds(*INTO, cwd=at, trace=Plan(CHANGES, path="a.h5ad*", record=str(record)))
    events = [Event(*fields) for fields in pickle.loads(record.read_bytes())]
    files = [(folder / "a.h5ad").read_bytes() for folder in (start, at)]
    assert files[0] != files[1]
    assert not list(at.glob("*.journal*"))
    return Work(at, *files, ended.seen, events, start)


@pytest.mark.parametrize("every", EVERY)
def test_killed(traced, work: Work, every: bool) -> None:
    """Before a call, or in some cases right after it, for the call may still be made."""
    seen = set()
    assert len(work.calls) > 10
    for number in work.some(len(work.calls), every):
        work.reset()
        plan = Plan(CHANGES, path="a.h5ad*", at=number, act=["kill", signal.SIGKILL])
        ended = traced(*INTO, cwd=work.at, count=False, trace=plan)
        assert ended.code == -signal.SIGKILL, (number, ended)
        has_journal = (work.at / "a.h5ad.journal").exists()
        if number % 2:  # reading mends it
            mended = traced(*MENDS, cwd=work.at, count=False)
            assert mended.code == 0, (number, mended)
            assert (SAID in mended.err) == has_journal, (number, mended.err)
            assert work.now in (work.before, work.after), (number, ended.what)
            seen.add(work.now == work.before)
        left = (work.at / "a.h5ad.journal").exists()
        again = traced(*INTO, cwd=work.at, count=False)  # and writing, too
        assert (again.code, SAID in again.err, again.err.count("\n")) == (0, left, left), (number, again)
        if has_journal:  # it was as before, and is now as after one command
            assert work.now == work.after, (number, ended.what)
        assert anndata.read_h5ad(work.at / "a.h5ad").obs["streamsvm_label"].notna().all()
        assert not (work.at / "a.h5ad.journal").exists()
    assert True in seen or not every


@pytest.mark.parametrize("every", EVERY)
def test_a_full_disk_leaves_the_file_as_it_was(traced, work: Work, every: bool) -> None:
    for number in work.some(len(work.calls), every):
        if work.calls[number].split()[0] == "unlink":  # it is done by then
            continue
        work.reset()
        plan = Plan(CHANGES, path="a.h5ad*", at=number, error=errno.ENOSPC)
        ended = traced(*INTO, cwd=work.at, count=False, trace=plan)
        assert ended.code == 1, (number, ended)
        assert ended.err.count("\n") == 1, (number, ended.err)
        assert os.strerror(errno.ENOSPC) in ended.err, (number, ended.err)
        assert work.now == work.before, (number, ended.what)


@pytest.mark.parametrize("every", EVERY)
def test_the_power_fails(traced, work: Work, every: bool) -> None:
    rng = np.random.default_rng(1)
    disk = Disk(work.start)
    chosen, seen = work.some(len(work.events), every), set()
    for number, event in enumerate(work.events):
        disk.do(event)
        if number not in chosen:
            continue
        for data, names in [("lost", "lost"), ("mixed", "mixed"), (rng.choice(DATA), rng.choice(NAMES))]:
            shutil.rmtree(work.at)
            disk.write_after_power_loss(work.at, data, names, rng)
            mended = traced(*MENDS, cwd=work.at, count=False)
            assert mended.code == 0, (number, data, names, mended)
            assert work.now in (work.before, work.after), (number, data, names, event[:2])
            seen.add(work.now == work.after)
    assert seen == {True, False} or not every
    disk = replayed(work.start, work.events)
    for _ in range(5):  # after it has ended
        shutil.rmtree(work.at)
        disk.write_after_power_loss(work.at, "mixed", "mixed", rng)
        assert traced(*MENDS, cwd=work.at, count=False).err == ""
        assert work.now == work.after
