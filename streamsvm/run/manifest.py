"""Commits and recovery: the protocol by which a run survives being killed at any instant.

A commit is the manifest ``commit.json``, which is written aside, synced and renamed as the last step. It
names the files of duals and of weights with their lengths and checksums, and the run that it belongs to.
These files have names that the manifest before it does not use, and are synced first. A file that no manifest
names is never read. The files of the commit before are deleted after the manifest is renamed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamsvm.base import durable, format
from streamsvm.base.decode import SchemaError, decode, encode
from streamsvm.errors import Option, Remedy, RunError
from streamsvm.kernels.tally import N_TALLIES
from streamsvm.run.directory import RunDir
from streamsvm.run.duals import DualFile
from streamsvm.run.sums import FileSum, write_summed
from streamsvm.run.weights import WeightStorage


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
    weights : FileSum, optional
        The file of the weights; None before the first commit.
    weights_number : int
        Number of that file, which grows from commit to commit.
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
    weights: FileSum | None = None
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


def commit(run: RunDir, position: RunPosition, storage: WeightStorage) -> RunPosition:
    """Commit `position` and the weights: a run that crashes later resumes from them.

    The caller has synced the files of duals, and the metrics up to their length in `position`. If a commit
    fails, the commit before it is unharmed.

    Returns
    -------
    RunPosition
        With the file of the weights.

    Raises
    ------
    RunError
        If a number in `position` is not finite, or the manifest would be too large.
    OSError
        If a file cannot be written.
    """
    number = position.weights_number + 1
    while os.path.lexists(path := run.committed_weights(number)):  # of a commit that failed at its end
        number += 1
    written = write_summed(path, storage.state())
    durable.sync_tree(path)
    shape = storage.in_use.current.shape
    position = dataclasses.replace(position, weights=written, weights_number=number, weights_shape=shape)
    record = {"version": format.RUN_VERSION, "run": run.identity, **encode(position)}
    manifest = finite_json(run.path, record, seal=True).encode()
    if len(manifest) > durable.MAX_RECORD_BYTES:
        raise RunError(
            f"{run.path}: the record of classes and passes in a commit takes {len(manifest):,} bytes, more "
            f"than the {durable.MAX_RECORD_BYTES:,} that can be read again",
            remedy=Remedy("use shorter labels, fewer classes, or a larger {}", Option("memory")),
        )
    durable.sync_dir(run.path)  # the names that the manifest relies on
    durable.write_atomic(run.commit, manifest)
    with contextlib.suppress(OSError):  # the next commit deletes what is left
        prune(run, position)
    return position


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


def prune(run: RunDir, *positions: RunPosition) -> None:
    """Delete all files of duals and weights but those of `positions`."""
    needed = {path for position in positions for path, _ in _files_of(run, position)}
    for path in run.state():
        if path not in needed:
            durable.remove(path)


def _files_of(run: RunDir, position: RunPosition) -> Iterator[tuple[Path, FileSum]]:
    """Yield the files of duals and weights of a position."""
    if position.weights is not None:
        yield run.committed_weights(position.weights_number), position.weights
    for pass_number, files in position.duals.items():
        yield from ((run.duals(pass_number, file.first, file.part), file.sum) for file in files)


def recover(run: RunDir) -> tuple[RunPosition | None, list[str]]:
    """Return the committed position, and cut the run's files to it: metrics that are shorter to whole lines.

    Returns
    -------
    position : RunPosition or None
        None if nothing was committed yet: the run starts from the beginning.
    warnings : list of str
        That commits or metrics were lost.

    Raises
    ------
    RunError
        If the commit is damaged, or the operating system refused to read it, which does not prove damage.
    """
    if not run.has_commit:
        durable.remove(run.metrics)
        prune(run)
        # With a model there were commits.
        return None, [f"the commits of {run.path} are gone; it began anew"] if run.model.exists() else []
    try:
        position = read_commit(run)
    except RunError as error:
        raise RunError(f"{error.message}; fit again") from None
    except OSError as error:
        message = f"{error.filename or run.commit} cannot be read: {durable.reason(error)}; then repeat"
        raise RunError(message) from error
    length, warnings = position.metrics_length, []
    with durable.open_file(run.metrics, "a+b") as file:
        if (size := file.tell()) < length:
            warnings = [f"{run.metrics} is cut short: {size:,} of {length:,} bytes; the model lacks nothing"]
            file.seek(0)
            length = file.read().rfind(b"\n") + 1
        file.truncate(length)
    prune(run, position)  # files that a crash left
    return dataclasses.replace(position, metrics_length=length), warnings


def read_commit(run: RunDir, *, verify: bool = True) -> RunPosition:
    """Return the committed position, after checking the manifest and the files that it names.

    Without `verify` only the manifest is checked. Raises `RunError` for any damage; `OSError` if the
    operating system refuses to read a file that exists.
    """
    path = run.commit
    try:
        manifest = format.read_sealed(path, RunError)
        if manifest.get("version") != format.RUN_VERSION:
            raise RunError(f"{path} has format {manifest.get('version')}, not {format.RUN_VERSION}")
        if manifest.get("run") != run.identity:
            raise RunError(f"{run.settings} belongs to another run than {path}; bring its own back")
        position: RunPosition = decode(RunPosition, manifest)
        for file, written in _files_of(run, position) if verify else ():
            written.check(file)
    except SchemaError as error:
        raise RunError(f"{path} is damaged: {error}") from None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise RunError(f"{error.filename} is missing") from None
    return position
