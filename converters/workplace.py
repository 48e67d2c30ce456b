"""The folder beside an output in which it is made, and the step by which it takes its place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from streamsvm.durable import locked, remove, sync_dir
from streamsvm.errors import StoreError
from streamsvm.format import LOCK
from streamsvm.text import check_local

_PREVIOUS = "previous"


def work_folder(out: Path) -> Path:
    """Where `out` is made: on the same file system, and hidden."""
    return out.with_name(f".{out.name}.partial")


@contextlib.contextmanager
def workplace(out: Path, force: bool) -> Iterator[Path]:
    """An empty folder in which to make `out`, this process's own; it is gone afterwards.

    What a killed process left there is cleaned up first, and an older output that it had set
    aside but not replaced is put back.

    Raises
    ------
    StoreError
        If `out` exists and may not be replaced, another process is making it, or the folder it
        should stand in is not there.
    """
    check_local(out, StoreError)
    if not out.parent.is_dir():
        raise StoreError(f"{out}: the folder {out.parent} does not exist; create it first")
    work = work_folder(out)
    if work.is_symlink():  # whatever it holds is deleted
        raise StoreError(f"{work} is a symbolic link, which is not followed here; remove it")
    work.mkdir(exist_ok=True)
    lock = work / LOCK
    lock.touch()
    inode = lock.stat().st_ino
    with locked(lock, StoreError, f"{out}"):
        # The process that held the lock deletes the folder as it ends: ours may be the deleted one.
        if not lock.exists() or lock.stat().st_ino != inode:
            raise StoreError(f"{out} was being written until this moment; run the command again")
        try:
            previous = work / _PREVIOUS
            if os.path.lexists(previous) and not os.path.lexists(out):
                os.rename(previous, out)
            for left in work.iterdir():
                if left != lock:
                    remove(left)
            _check_replaceable(out, force)
            yield work
        finally:
            # After an interrupt a container's own threads may still be writing: what they leave is no
            # store, and goes with the next conversion.
            with contextlib.suppress(OSError):
                remove(work)


def publish(made: Path, out: Path) -> None:
    """Move the complete and durable `made` from the work folder of `out` to its place."""
    previous = work_folder(out) / _PREVIOUS
    if out.is_dir() and not out.is_symlink():  # a folder cannot be replaced in one step
        sync_dir(out.parent)  # the work folder's own name, before the older output moves into it
        os.rename(out, previous)
        try:
            os.rename(made, out)
        except OSError:
            os.rename(previous, out)
            raise
    else:
        os.replace(made, out)
    sync_dir(out.parent)


def _check_replaceable(out: Path, force: bool) -> None:
    if not os.path.lexists(out):
        return
    if not force:
        raise StoreError(f"{out} exists already; choose another name, or replace it with --force")
    if out.is_dir() and not (out / "zarr.json").exists():
        raise StoreError(f"{out} is a folder and no Zarr store; --force does not replace it")
