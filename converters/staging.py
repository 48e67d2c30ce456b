"""Staging of an output: written in a hidden folder beside its place, and renamed when complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from streamsvm.base.durable import PREVIOUS, reason, remove, staging_path, sync_dir, working_folder
from streamsvm.base.format import LOCK
from streamsvm.errors import Option, Remedy, StoreError


@contextlib.contextmanager
def os_errors_about(out: Path) -> Iterator[None]:
    """Turn an `OSError`, such as a full disk, into an error about `out`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {reason(error)}") from error


@contextlib.contextmanager
def staging_folder(out: Path, force: bool) -> Iterator[Path]:
    """Yield an empty folder in which to make `out`, locked by this process and deleted afterwards.

    The remains of a killed process are deleted first, and an older output that it had set aside but not
    replaced is put back.

    Parameters
    ----------
    out : Path
    force : bool
        Whether an existing store may be replaced.

    Raises
    ------
    StoreError
        If `out` exists and may not be replaced, if another process is making it, or if its parent folder
        does not exist.
    """
    if not out.parent.is_dir():
        raise StoreError(f"{out}: the folder {out.parent} does not exist; create it first")
    with working_folder(out, StoreError) as work:
        previous = work / PREVIOUS
        if os.path.lexists(previous) and not os.path.lexists(out):
            os.rename(previous, out)
        for left in work.iterdir():
            if left.name != LOCK:
                remove(left)
        if os.path.lexists(out) and not force:
            raise StoreError(
                f"{out} exists already",
                remedy=Remedy("choose another name, or replace it with {}", Option("force", True)),
            )
        if out.is_dir() and not (out / "zarr.json").exists():
            raise StoreError(
                f"{out} is a folder but not a Zarr store, and is not replaced; choose another name"
            )
        yield work


def publish(made: Path, out: Path) -> None:
    """Move the complete and durable `made` from the staging folder of `out` to its place."""
    previous = staging_path(out) / PREVIOUS
    if out.is_dir() and not out.is_symlink():  # a folder cannot be replaced in one step
        sync_dir(out.parent)  # the name of the staging folder, before the older output moves into it
        os.rename(out, previous)
        try:
            os.rename(made, out)
        except OSError:
            os.rename(previous, out)
            raise
    else:
        os.replace(made, out)
    sync_dir(out.parent)
