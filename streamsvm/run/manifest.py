"""Commit and recovery protocol, which lets a run survive a kill at any time.

A commit is the manifest ``commit.json``, which is written to a temporary file, synced, and renamed as the
last step. The manifest names its run, and the files of duals and weights with their lengths and checksums.
These files are synced first, and new files never have names that occur in the previous manifest. Files
without an entry are never read. Files that are no longer needed are deleted after the rename.
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
    """Additional state of a run over a stream; `label_groups` is the state of a `LabelGroups`."""

    place: dict[str, Any] | None = None  # position in the input; None at the beginning
    classes: list[str] = dataclasses.field(default_factory=list)
    norms: tuple[float, int] = (0.0, 0)  # sum and count of the first 1,000 squared norms, to choose C
    label_groups: list[list[float]] = dataclasses.field(default_factory=lambda: [[], [], []])
    n_features: int = 0


@dataclasses.dataclass(frozen=True)
class RunPosition:
    """Progress of a run, with all state that resuming depends on."""

    passes_done: int = 0
    blocks_done: int = 0  # blocks trained in the unfinished pass; a pass is finished when it is reported
    tally: tuple[float, ...] = (0.0,) * N_TALLIES  # sums over the current pass (see `kernels.tally`)
    history: tuple[dict[str, Any], ...] = ()
    duals: dict[int, tuple[DualFile, ...]] = dataclasses.field(default_factory=dict)
    weights: FileSum | None = None  # file of the weights; None before the first commit
    weights_number: int = 0  # number of that file, which increases with each commit
    weights_shape: tuple[int, int] = (0, 0)
    metrics_length: int = 0
    dual_scale: float = 1.0  # factor that the unfinished pass applied to weights and duals of the last pass
    start: float = 0.0  # initial dual of every row, divided by the cost of the row
    average_pass: int = 0  # last pass in which an average was started; 0 if there is none
    seconds: float = 0.0
    pass_seconds: float = 0.0
    reported: tuple[int, int] = (0, 0)  # numbers of rows and of correct predictions at a stream's last report
    stream: StreamPosition | None = None


def commit(run: RunDir, position: RunPosition, storage: WeightStorage) -> RunPosition:
    """Commit `position` and the weights, and return the position with the file of the weights.

    The caller must have synced the files of duals, and the metrics up to the length in `position`. If a
    commit fails, the previous commit stays valid. Raises `RunError` if a number in `position` is not finite,
    or if the manifest is too large, and `OSError` if a file cannot be written.
    """
    number = position.weights_number + 1
    while os.path.lexists(path := run.committed_weights(number)):
        number += 1
    written = write_summed(path, storage.state())
    durable.sync_tree(path)
    shape = storage.in_use.current.shape
    position = dataclasses.replace(position, weights=written, weights_number=number, weights_shape=shape)
    record = {"version": format.RUN_VERSION, "run": run.identity, **encode(position)}
    manifest = finite_json(run.path, record, seal=True).encode()
    if len(manifest) > durable.MAX_RECORD_BYTES:
        raise RunError(
            f"{run.path}: the classes and passes of a commit take {len(manifest):,} bytes, more than the "
            f"maximum of {durable.MAX_RECORD_BYTES:,} bytes",
            remedy=Remedy("use shorter labels, fewer classes, or a larger {}", Option("memory")),
        )
    durable.sync_dir(run.path)  # the manifest relies on these names
    durable.write_atomic(run.commit, manifest)
    with contextlib.suppress(OSError):
        prune(run, position)
    return position


def finite_json(path: Path | None, numbers: Any, *, seal: bool = False) -> str:
    """Encode as JSON, with a checksum if `seal` is True; raise `RunError` if a number is infinite or NaN."""
    try:
        return json.dumps(format.sealed(numbers) if seal else numbers, allow_nan=False)
    except ValueError:  # JSON has no infinity and no NaN
        remedy = "rescale the data to values of order 1, or lower C"
        if path is None:
            raise RunError("the objective is no longer finite", remedy=Remedy(remedy)) from None
        restart = Remedy(f"{remedy}, and start again with {{}}", Option("force", True))
        raise RunError(f"{path}: the objective is no longer finite", remedy=restart) from None


def prune(run: RunDir, *positions: RunPosition) -> None:
    """Delete all files of duals and weights that no position in `positions` needs."""
    needed = {path for position in positions for path, _ in _files_of(run, position)}
    for path in run.state():
        if path not in needed:
            durable.remove(path)


def _files_of(run: RunDir, position: RunPosition) -> Iterator[tuple[Path, FileSum]]:
    if position.weights is not None:
        yield run.committed_weights(position.weights_number), position.weights
    for pass_number, files in position.duals.items():
        yield from ((run.duals(pass_number, file.first, file.part), file.sum) for file in files)


def recover(run: RunDir) -> tuple[RunPosition | None, list[str]]:
    """Restore the run's files to the last commit, and return its position and warnings about lost data.

    The position is None if nothing was committed; the run then starts from the beginning. If metrics were
    lost, the file is truncated to complete lines. Raises `RunError` if the commit is damaged or unreadable.
    """
    if not run.has_commit:
        durable.remove(run.metrics)
        prune(run)
        # A model implies that there were commits.
        return None, [f"{run.path} has lost its commits; training restarts"] if run.model.exists() else []
    try:
        position = read_commit(run)
    except RunError as error:
        raise RunError(f"{error.message}; restore the file, or fit again") from None
    except OSError as error:
        message = f"{error.filename or run.commit} cannot be read: {durable.reason(error)}"
        raise RunError(message, remedy=Remedy("resolve this, then repeat the command")) from error
    length, warnings = position.metrics_length, []
    with durable.open_file(run.metrics, "a+b") as file:
        if (size := file.tell()) < length:
            warnings = [f"{run.metrics} is truncated: {size:,} of {length:,} bytes; the model is intact"]
            file.seek(0)
            length = file.read().rfind(b"\n") + 1
        file.truncate(length)
    prune(run, position)
    return dataclasses.replace(position, metrics_length=length), warnings


def read_commit(run: RunDir, *, verify: bool = True) -> RunPosition:
    """Return the committed position after checking the manifest and, if `verify`, the files that it names.

    Raises `RunError` if anything is damaged or missing, and `OSError` if an existing file cannot be read.
    """
    path = run.commit
    try:
        manifest = format.read_sealed(path, RunError)
        if manifest.get("version") != format.RUN_VERSION:
            raise RunError(f"{path} has format {manifest.get('version')}, not {format.RUN_VERSION}")
        if manifest.get("run") != run.identity:
            raise RunError(f"{run.settings} and {path} belong to different runs")
        position: RunPosition = decode(RunPosition, manifest)
        for file, written in _files_of(run, position) if verify else ():
            written.check(file)
    except SchemaError as error:
        raise RunError(f"{path} is damaged: {error}") from None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise RunError(f"{error.filename} is missing") from None
    return position
