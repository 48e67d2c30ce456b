"""Commits and recovery: the protocol by which a run survives being killed at any instant.

A commit is a folder ``checkpoint/<number>/`` with a manifest: written aside, synced, and renamed as the
last step. Files of duals and the log of weights are synced before it, and the manifest names them with their
lengths and checksums; it also records which run it belongs to. The last two commits are kept, and every file
that either of them needs; when there is a model, the last one alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from streamsvm.base import durable, format
from streamsvm.base.decode import SchemaError, decode, encode
from streamsvm.errors import Option, Remedy, RunError
from streamsvm.kernels.tally import N_TALLIES
from streamsvm.run import append_log, weight_log
from streamsvm.run.append_log import AppendLog, LogEnd
from streamsvm.run.directory import RunDir
from streamsvm.run.duals import DualFile
from streamsvm.run.weights import WeightStorage

_KEPT_COMMITS = 2
# Upper bound of the size of two commits' logs, as a multiple of the weights' size (see `_write_weights`).
MAX_LOG_RATIO = 3.5
_ASIDE = "aside"  # folder of a commit that is being written or deleted

_NO_LOG = LogEnd()


@dataclasses.dataclass(frozen=True)
class StreamPosition:
    """Additional state of a run over a stream in a `RunPosition`; the blocks of such a run are batches.

    Attributes
    ----------
    place : dict or None
        Place at which the input continues, in the stream's own form; None at its beginning.
    classes : list of str
        Classes in the order of their codes.
    norms : tuple of float and int
        Sum and number of the squared norms of the first 1,000 rows, or fewer, from which C is chosen.
    label_groups : list of list of float
        State of `streamsvm.data.order.LabelGroups`.
    n_features : int
        One more than the largest feature so far.
    """

    place: dict[str, Any] | None = None
    classes: list[str] = dataclasses.field(default_factory=list)
    norms: tuple[float, int] = (0.0, 0)
    label_groups: list[list[float]] = dataclasses.field(default_factory=lambda: [[], [], []])
    n_features: int = 0


@dataclasses.dataclass(frozen=True)
class RunPosition:
    """Progress of a run, with all state that the rest of the run depends on.

    Attributes
    ----------
    passes_done : int
        Passes trained and reported.
    blocks_done : int
        Blocks trained in the next pass. If it is all of them, the pass is trained but not yet reported.
    tally : tuple of float
        Sums over the rows of the pass in progress (see `streamsvm.kernels.tally`).
    history : tuple of dict
        The report of each pass done.
    duals : dict of int to tuple of DualFile
        The files with the duals of each pass that is still needed.
    weights : LogEnd
        The committed part of the log of weights.
    weights_number : int
        Number of that log; 0 before there is one.
    weights_shape : tuple of int
        Features and columns of the weights.
    metrics_length : int
        Committed bytes of ``metrics.jsonl``.
    dual_scale : float
        Factor by which the next pass has multiplied the weights and the duals of the last pass.
    start : float
        Duals of the rows before their first visit, each divided by the cost of its row.
    average_pass : int
        The last pass for which an average was begun; 0 before there is one.
    seconds : float
        Time spent training, without the pass in progress.
    pass_seconds : float
        Time spent in the pass in progress.
    reported : tuple of int
        Rows, and correct predictions among them, at the last line of metrics of a run over a stream.
    stream : StreamPosition, optional
        For a run over a stream.
    """

    passes_done: int = 0
    blocks_done: int = 0
    tally: tuple[float, ...] = (0.0,) * N_TALLIES
    history: tuple[dict[str, Any], ...] = ()
    duals: dict[int, tuple[DualFile, ...]] = dataclasses.field(default_factory=dict)
    weights: LogEnd = _NO_LOG
    weights_number: int = 0
    weights_shape: tuple[int, int] = (0, 0)
    metrics_length: int = 0
    dual_scale: float = 1.0
    start: float = 0.0
    average_pass: int = 0
    seconds: float = 0.0
    pass_seconds: float = 0.0
    reported: tuple[int, int] = (0, 0)
    stream: StreamPosition | None = None


def commit(run: RunDir, position: RunPosition, storage: WeightStorage) -> tuple[RunPosition, int]:
    """Commit `position` and the weights: a run that crashes later resumes from them.

    The caller has synced the files of duals, and the metrics up to their length in `position`. If a commit
    fails, the commits before it are unharmed, and the next one begins a new log of weights.

    Parameters
    ----------
    run : RunDir
    position : RunPosition
        Position of the weights, with the log of weights that the last commit returned.
    storage : WeightStorage
        Weights, whose dirty bits mark the changes since the last commit; they are cleared.

    Returns
    -------
    position : RunPosition
        With the new end of the log of weights.
    size : int
        Bytes of weights that were written.

    Raises
    ------
    RunError
        If a number in `position` is not finite, or the manifest would be too large.
    OSError
        If a file cannot be written.
    """
    try:
        position, size = _write_weights(run, position, storage)
        _write_manifest(run, position)
        prune(run, position)
    except BaseException:
        weight_log.make_dirty(storage.in_use, storage.sparse_rows)
        raise
    return position, size


def finite_json(path: Path | None, numbers: Any, *, seal: bool = False) -> str:
    """Return nested lists and dicts as JSON, a dict with its checksum if `seal`.

    Raises `RunError` if a number in them is infinite or NaN.
    """
    try:
        return json.dumps(format.sealed(numbers) if seal else numbers, allow_nan=False)
    except ValueError:  # JSON has neither infinity nor NaN
        remedy = "scale the values of the data to about 1, or lower C"
        if path is None:
            raise RunError("the objective is no longer finite", remedy=Remedy(remedy)) from None
        anew = Remedy(f"{remedy}, and begin anew with {{}}", Option("force", True))
        raise RunError(f"{path}: the objective is no longer finite", remedy=anew) from None


def _write_weights(run: RunDir, position: RunPosition, storage: WeightStorage) -> tuple[RunPosition, int]:
    """Append the weights that changed to their log, or begin a new log with all of them.

    If most weights changed, a new log costs at most twice as much, and it does not depend on the old one.
    """
    weights, sparse_rows = storage.in_use, storage.sparse_rows
    number, before = position.weights_number, position.weights
    if len(weights.dirty) == len(weights.current):
        changed, known = weight_log.dirty_bytes(weights, sparse_rows)
    else:  # no bits, so all of them are taken to have changed
        weights, changed, known = weight_log.with_dirty(weights), 1, 0
    if (
        weights.current.shape[1] != position.weights_shape[1]  # what a log says of other columns
        or number == 0
        or before.length > 2 * known
        or 2 * changed > known
    ):
        number, before = run.last_weight_log() + 1, LogEnd()  # a commit that failed may have left a log
        weight_log.make_dirty(weights, sparse_rows)
    with AppendLog(run.weight_log(number), before) as log:
        weight_log.append_weights(log, weights, sparse_rows)
        log.sync()
    position = dataclasses.replace(
        position, weights=log.end, weights_number=number, weights_shape=weights.current.shape
    )
    return position, log.end.length - before.length


def _write_manifest(run: RunDir, position: RunPosition) -> None:
    """Write a commit aside, sync it, and rename it."""
    record = {"version": format.RUN_VERSION, "run": run.identity, **encode(position)}
    manifest = finite_json(run.path, record, seal=True).encode()
    if len(manifest) > durable.MAX_RECORD_BYTES:
        raise RunError(
            f"{run.path}: the record of classes and passes in a commit takes {len(manifest):,} bytes, more "
            f"than the {durable.MAX_RECORD_BYTES:,} that can be read again",
            remedy=Remedy("use shorter labels, or fewer classes"),
        )
    run.checkpoints.mkdir(exist_ok=True)
    number = max(run.commits(), default=0) + 1
    aside = run.checkpoints / _ASIDE
    durable.remove(aside)
    aside.mkdir()
    durable.write_synced(aside / format.MANIFEST, manifest)
    durable.sync_dir(aside)
    durable.sync_dir(run.path)  # the names of logs that were begun
    os.rename(aside, run.commit_path(number))
    durable.sync_dir(run.checkpoints)


def drop(run: RunDir, numbers: Iterable[int]) -> None:
    """Delete commits durably, before the logs that they need are deleted or overwritten."""
    aside = run.checkpoints / _ASIDE
    for number in numbers:
        durable.remove(aside)
        os.rename(run.commit_path(number), aside)  # a crash must not leave half a commit
        durable.sync_dir(run.checkpoints)
        durable.remove(aside)


def prune(run: RunDir, in_use: RunPosition | None, kept: int = _KEPT_COMMITS) -> None:
    """Delete old commits, and all files of duals and weights but those of kept commits and `in_use`."""
    numbers = run.commits()
    durable.remove(run.checkpoints / _ASIDE)
    drop(run, numbers[kept:])
    needed = set(_files_of(run, in_use)) if in_use else set()
    for number in numbers[:kept]:
        try:
            needed |= set(_files_of(run, read_commit(run, run.commit_path(number), verify=False)))
        except (RunError, OSError):
            return  # a damaged commit does not say what it needs; `recover` reports it
    for path in run.state():
        if path not in needed:
            durable.remove(path)


def _files_of(run: RunDir, position: RunPosition) -> Iterator[Path]:
    """Yield the files of duals and weights of a position."""
    yield run.weight_log(position.weights_number)
    for pass_number, files in position.duals.items():
        yield from (run.duals(pass_number, file.first, file.part) for file in files)


def recover(run: RunDir) -> tuple[RunPosition | None, list[str]]:
    """Find the newest undamaged commit, and cut the run's files to it.

    Returns
    -------
    position : RunPosition or None
        None if nothing was committed yet: the run starts from the beginning.
    warnings : list of str
        Why newer commits were passed over, one line each, and that metrics were lost. Those commits
        are deleted.

    Raises
    ------
    RunError
        If all commits are damaged, with the reason of each; or if the operating system refused to read
        one, which does not prove damage. Then nothing has changed.
    """
    numbers = run.commits()
    reasons: list[str] = []
    for number in numbers:
        folder = run.commit_path(number)
        try:
            position = read_commit(run, folder)
        except RunError as error:
            reasons.append(str(error))
            continue
        except OSError as error:
            message = f"{error.filename or folder} cannot be read: {durable.reason(error)}; then repeat"
            if number != numbers[-1]:
                message += f", or delete {folder} to go on from the commit before it"
            raise RunError(message) from error
        drop(run, (newer for newer in numbers if newer > number))
        position, lost = cut_metrics(run, position)
        prune(run, position)  # a crash may have kept the last commit from doing it
        return position, [f"{reason}; the commit before it is used" for reason in reasons] + lost
    if numbers:
        raise RunError("; ".join(reasons) + "; no commit is left to resume from: fit again")
    return None, []


def cut_metrics(run: RunDir, position: RunPosition) -> tuple[RunPosition, list[str]]:
    """Cut the metrics to the committed length, or to whole lines if they are shorter.

    Returns the position that fits them, and warnings.
    """
    length, warnings = position.metrics_length, []
    with durable.open_file(run.metrics, "a+b") as file:
        if (size := file.tell()) < length:
            warnings = [f"{run.metrics} is cut short: {size:,} of {length:,} bytes; the model lacks nothing"]
            file.seek(0)
            length = file.read().rfind(b"\n") + 1
        file.truncate(length)
    return dataclasses.replace(position, metrics_length=length), warnings


def read_commit(run: RunDir, folder: Path, *, verify: bool = True) -> RunPosition:
    """Return the position in a commit, after checking it and all logs that it needs.

    Without `verify` only the manifest is checked. Raises `RunError` for any damage; `OSError` if the
    operating system refuses to read a file that exists.
    """
    path = folder / format.MANIFEST
    try:
        manifest = format.read_sealed(path, RunError)
        if manifest.get("version") != format.RUN_VERSION:
            raise RunError(f"{path} has format {manifest.get('version')}, not {format.RUN_VERSION}")
        if manifest.get("run") != run.identity:
            raise RunError(f"{run.settings} belongs to another run than {path}; bring its own back")
        position: RunPosition = decode(RunPosition, manifest)
        if verify:
            log, end = run.weight_log(position.weights_number), position.weights
            if append_log.check(log, end.length) != end:
                raise RunError(f"{log} is not the log that {path} needs: it belongs to another run")
            for pass_number, files in position.duals.items():
                for file in files:
                    file.sum.check(run.duals(pass_number, file.first, file.part))
    except SchemaError as error:
        raise RunError(f"{path} is damaged: {error}") from None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise RunError(f"{error.filename} is missing") from None
    return position
