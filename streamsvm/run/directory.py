"""Manage a run directory: its file names, its ``run.json``, and the lock of the writing process."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from streamsvm.base import durable, format
from streamsvm.base.text import absolute, check_local
from streamsvm.errors import Call, Option, Remedy, RunError
from streamsvm.settings.field import changes_of
from streamsvm.settings.fit import Settings

# Entries of run.json that `resume` may change without invalidating earlier commits.
_CHANGEABLE = {
    "settings": {*changes_of(Settings), "gap"}, "store": {"path"}, "input": {"inputs"},  # gap depends on tol
}  # fmt: skip


class RunDir:
    """Paths of the files and folders of a run, which need not exist, and the state of its lock.

    `data` and `valid` are stores that were converted from other files for the run. `cache` is the default
    folder for local copies of remote data. The file `mark` in a run that was moved aside names the new run.
    `identity` is the digest that distinguishes runs; it is set when ``run.json`` is read or written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        check_local(path, RunError)
        self.path = Path(path)
        self.settings = self.path / format.RUN_JSON
        self.weights = self.path / format.WEIGHTS
        self.average_delta = self.path / format.AVERAGE_DELTA
        self.sparse_weights = self.path / format.SPARSE_WEIGHTS
        self.costs = self.path / format.RUN_COSTS
        self.commit = self.path / format.COMMIT
        self.metrics = self.path / format.METRICS
        self.model = self.path / format.MODEL
        self.base = self.path / format.BASE
        self.lock = self.path / format.LOCK
        self.report = self.path / format.REPORT
        # Files of `streamsvm.tune`: arguments, results, and the runs of its trials.
        self.tuning = self.path / format.TUNING_JSON
        self.tuned = self.path / format.TUNED
        self.trials = self.path / format.TRIALS
        self.data = self.path / format.RUN_DATA
        self.valid = self.path / "valid.zarr"
        self.cache = self.path / format.CACHE
        self.mark = self.path / format.REPLACED
        self.identity: str | None = None
        self.is_locked = False

    @classmethod
    def at(cls, path: str | os.PathLike[str] | RunDir) -> RunDir:
        """Return the run at a path; a `RunDir` is returned unchanged, because it may hold the lock."""
        return path if isinstance(path, RunDir) else cls(path)

    def duals(self, pass_number: int, first: int, part: int) -> Path:
        return self.path / f"{format.DUALS}-{pass_number}-{first}-{part}.bin"

    def committed_weights(self, number: int) -> Path:
        return self.path / f"{format.COMMITTED}-{number}.bin"

    @property
    def has_commit(self) -> bool:
        return os.path.lexists(self.commit)

    def state(self) -> list[Path]:
        return [path for path in self.path.iterdir() if format.is_state(path.name)]

    def owns(self, name: str) -> bool:
        """Return True if a run may contain a file or folder with this name."""
        files = (path.name for path in vars(self).values() if isinstance(path, Path))
        names = {*files, *format.TRANSFORM_ARRAYS, *format.TEMPORARY}
        is_temporary = any(durable.is_temporary(name, store) for store in self.stores())
        return name in names or is_temporary or format.is_state(name)

    def stores(self) -> list[Path]:
        return [self.data, self.valid]

    @property
    def replaced(self) -> Path:
        """Path at which an older run is kept until the new run has a model."""
        return Path(f"{absolute(self.path)}.old")

    @property
    def replaces(self) -> bool:
        try:
            return (self.replaced / self.mark.name).read_bytes() == self._content_of_mark
        except OSError:
            return False

    @property
    def _content_of_mark(self) -> bytes:
        return os.fsencode(os.path.basename(absolute(self.path)))

    def set_aside(self) -> None:
        """Move the locked run to `replaced`, unless it has no model and an older run is there already."""
        if self.replaces:
            if not self.model.exists():
                return
            self.remove_replaced()
        if self.path.is_symlink() or os.path.ismount(self.path):
            raise RunError(
                f"{self.path} is a link or a mount point, which cannot be moved",
                remedy=Remedy("choose another folder"),
            )
        durable.write_synced(self.mark, self._content_of_mark)
        durable.sync_dir(self.path)
        try:
            self.path.rename(self.replaced)
        except OSError as error:
            durable.remove(self.mark)
            problem = f"{self.path} cannot be moved to {self.replaced}: {durable.reason(error)}"
            raise RunError(problem, remedy=Remedy("empty that folder, or choose another folder")) from None
        durable.sync_dir(self.replaced.parent)

    def remove_replaced(self) -> None:
        """Move the older run into this run and delete it; `locked` finishes the deletion after a kill."""
        if self.replaces:
            self.replaced.rename(self.mark)
            durable.sync_dir(self.path)
            durable.sync_dir(self.replaced.parent)
            durable.remove(self.mark)

    def clear(self, kept: Collection[Path] = ()) -> None:
        """Delete everything except the lock and `kept`."""
        durable.remove(self.settings)  # first, so a half-deleted folder does not look like a run
        durable.sync_dir(self.path)
        for path in self.path.iterdir():
            if path not in (self.lock, *kept):
                durable.remove(path)
        durable.sync_dir(self.path)

    def stores_among(self, paths: Iterable[str | os.PathLike[str] | None]) -> list[Path]:
        inputs = {absolute(path) for path in paths if path is not None}
        return [store for store in self.stores() if absolute(store) in inputs]

    def find_stores(self, record: dict[str, Any]) -> None:
        """Update the paths of converted stores in a record, because the run may have been moved."""
        converted = record.get("files") or {}
        if self.data.stem in converted:
            record["store"]["path"] = [absolute(self.data)]
        # The setting is None if only a search used the hold-out store.
        if self.valid.stem in converted and record["settings"]["valid"] is not None:
            record["settings"]["valid"] = absolute(self.valid)

    def is_being_tuned(self) -> bool:
        """Return True if this run is a trial of `streamsvm.tune`, or an unfinished search."""
        search = self.path.parent.parent / format.TUNING_JSON
        is_trial = self.path.parent.name == format.TRIALS and search.exists()
        return is_trial or (not self.settings.exists() and (self.tuning.exists() or self.trials.exists()))

    def continues(self) -> Remedy:
        """Return the remedy for a stopped run: resume, tune with the same arguments, or fit again."""
        if self.is_being_tuned():
            return Remedy("continue with {} and the same arguments", Call("tune"))
        if not self.settings.exists():
            return Remedy("fit again")
        return Remedy("continue with {}", Call("resume", self.path))

    def clean_up(self) -> None:
        weights = (self.weights, self.average_delta, self.sparse_weights)
        for path in (*weights, self.trials):
            durable.remove(path)
        self.remove_replaced()

    def read_settings(self) -> dict[str, Any]:
        """Read ``run.json``; raise `RunError` if it is missing or damaged, or has another version."""
        try:
            record = format.read_sealed(self.settings, RunError, Remedy("fit again"))
        except FileNotFoundError:
            if self.is_being_tuned():
                problem = f"{self.path} has no model yet: its search for settings has not finished"
                raise RunError(problem, remedy=self.continues()) from None
            if not self.path.exists():
                raise RunError(f"{self.path} does not exist; check the path") from None
            if self.data.exists():
                problem = f"{self.path} is not a run yet: its data is converted, but training has not begun"
                force = [Option("force", True)] if self.replaces else []
                fit_call = Call("fit", self.data, (Option("out", self.path), *force))
                raise RunError(problem, remedy=Remedy("start training with {}", fit_call)) from None
            raise RunError(f"{self.path} is not a run: it has no {format.RUN_JSON}; check the path") from None
        except NotADirectoryError:
            raise RunError(f"{self.path} is not a run: it is not a folder; check the path") from None
        except OSError as error:
            raise RunError(f"{self.settings} cannot be read: {durable.reason(error)}") from None
        if record.get("version") != format.RUN_VERSION:
            raise RunError(
                f"{self.path} has run format {record.get('version')}, but this version of streamsvm reads "
                f"format {format.RUN_VERSION}; use the version that wrote the run, or fit again"
            )
        self.identity = identity(record)
        return record

    def read_tuning(self) -> dict[str, Any]:
        """Read the record of a search by `streamsvm.tune`; raise `RunError` if it is damaged."""
        return format.read_sealed(self.tuning, RunError, Remedy("start again with {}", Option("force", True)))

    def write_settings(self, record: dict[str, Any]) -> None:
        text = json.dumps(format.sealed(record), indent=2)
        durable.write_atomic(self.settings, text.encode() + b"\n")
        self.identity = identity(record)


def names_of_files(record: dict[str, Any]) -> dict[str, list[str]]:
    files = record.get("files") or {}
    return {store: [file["name"] if file else "-" for file in each["files"]] for store, each in files.items()}


def identity(record: dict[str, Any]) -> str:
    """Return the digest of all entries of ``run.json`` that never change during a run."""
    fixed = {name: value for name, value in record.items() if name != "valid_fingerprint"}
    for part, names in _CHANGEABLE.items():
        if isinstance(fixed.get(part), dict):
            fixed[part] = {name: value for name, value in fixed[part].items() if name not in names}
    return format.json_digest(fixed)


@contextlib.contextmanager
def locked(run: RunDir) -> Iterator[None]:
    """Hold the lock of a run, unless `run` holds it already; convert `OSError` to `RunError`."""
    if run.is_locked:
        yield
        return
    try:
        with durable.locked(run.lock, RunError, f"the run {run.path}"):
            run.is_locked = True
            durable.remove(run.mark)  # left by a run that was moved back, or by an older run
            yield
    except OSError as error:
        continuing = run.continues()
        remedy = Remedy(f"resolve this, then {continuing.words}", *continuing.parts)
        raise RunError(f"{error.filename or run.path}: {durable.reason(error)}", remedy=remedy) from error
    finally:
        run.is_locked = False


def check_place(run: RunDir) -> None:
    """Raise `RunError` if the run's folder cannot be created or written to; called before data is read."""
    folder = run.path if os.path.lexists(run.path) else run.path.parent
    if not folder.exists():
        raise RunError(f"{run.path}: the folder {folder} does not exist; create it first")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        reason = "not writable" if folder.is_dir() else "not a folder"
        raise RunError(f"cannot create {run.path}: {folder} is {reason}; choose another folder")


@contextlib.contextmanager
def replacing(
    run: RunDir, paths: Iterable[str | os.PathLike[str] | None], *, force: bool
) -> Iterator[RunDir]:
    """Add a note about the older run to errors; raise `RunError` if `force` would move one of `paths`."""
    if force and (run.model.exists() or run.has_commit):
        for path in (Path(absolute(path)) for path in paths if path is not None):
            if any(Path(absolute(each)) in (path, *path.parents) for each in (run.path, run.replaced)):
                raise RunError(f"{path} is part of the run that would be replaced; choose a new folder")
    try:
        yield run
    except BaseException as error:
        if run.replaces and not run.model.exists():
            error.add_note(f"the older run remains in {run.replaced} until the new run has a model")
        raise


@contextlib.contextmanager
def entered(run: RunDir, *, force: bool, by_tune: bool = False) -> Iterator[None]:
    """Create the folder of a new run, unless it exists, and hold its lock; delete nothing.

    If `force` is True, an existing run with a model or a commit is moved aside. Raises `RunError` if the
    folder cannot be created, contains files other than those of a run, or is in use by another process. If
    `force` is False, also raises `RunError` if there is a run already, if an older run was being replaced, or
    if the run is being tuned and `by_tune` is False.
    """
    check_place(run)
    _make_folder(run)
    names = [path.name for path in run.path.iterdir()]
    foreign = [name for name in names if not run.owns(name)]
    if foreign or (names and run.lock.name not in names):  # the lock is the first file of a run
        raise RunError(
            f"{run.path} contains other files ({(foreign or names)[0]}); choose a new folder for the run"
        )
    if force and not run.is_locked and (run.model.exists() or run.has_commit):
        with locked(run):
            run.set_aside()
        _make_folder(run)
    with locked(run):
        is_trained = run.settings.exists()
        if not force and (is_trained or (not by_tune and (run.tuning.exists() or run.trials.exists()))):
            call = Call("resume", run.path) if is_trained else Call("tune")
            remedy = Remedy("continue it with {}, or replace it with {}", call, Option("force", True))
            raise RunError(f"{run.path} is already a run", remedy=remedy)
        if not force and run.replaces and not (by_tune and run.is_being_tuned()):
            remedy = Remedy("replace it with {}, or move it", Option("force", True))
            raise RunError(f"{run.replaced} is a run that was being replaced", remedy=remedy)
        yield


def _make_folder(run: RunDir) -> None:
    try:
        durable.make_dir(run.path)
    except OSError as error:
        raise RunError(f"cannot create {run.path}: {durable.reason(error)}") from None


@contextlib.contextmanager
def claimed(
    run: RunDir, *, force: bool, by_tune: bool = False, kept: Collection[Path] = ()
) -> Iterator[None]:
    """Enter a run like `entered`, and delete its old files.

    Files in `kept`, the cache and, unless `force` is set, the files of `streamsvm.tune` are not deleted.
    """
    with entered(run, force=force, by_tune=by_tune):
        tuning = () if force else (run.tuning, run.tuned, run.trials)
        run.clear([run.cache, *tuning, *kept])
        yield
