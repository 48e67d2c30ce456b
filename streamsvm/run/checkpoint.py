"""Commit, recover: the protocol by which a run survives being killed at any instant.

A commit is a folder ``checkpoint/<number>/`` with a manifest, written aside, synced, and renamed in
last. The logs of duals and of the weights that changed are synced before it and only ever grow, so
the manifest says all of them by their lengths and digests; it also says of which run it is. The last
two commits are kept, and every log that either of them needs.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import durable, format
from streamsvm.errors import RunError
from streamsvm.kernels.sparse_rows import SparseRows
from streamsvm.kernels.tally import N_TALLIES
from streamsvm.kernels.weights import Weights
from streamsvm.run.directory import RunDir
from streamsvm.run.dual_log import check_log
from streamsvm.run.weight_log import ChangeLog, check_changes, mark_known, size_of_changes, with_marks

_KEPT = 2
MOST_LOGS = 3.5  # times the weights, which the logs of two commits take at most (see `write_changes`)
_ASIDE = "aside"  # a commit being written, or deleted
_MOST_FILLED = 2**24  # bytes of lost metrics: more is no length that we committed
_LINE = 2**16  # bytes of a line of metrics, at most


@dataclasses.dataclass
class Position:
    """How far a run has come, and everything that the rest of it depends on.

    Attributes
    ----------
    passes_done : int
        Passes trained and reported.
    blocks_done : int
        Blocks trained in the pass after those; all of them: trained, not yet reported.
    tally : list of float
        Sums over the rows of the pass in progress (see `streamsvm.kernels.tally`).
    log_lengths : dict of int to int
        Bytes committed in the duals of each pass that is still needed.
    history : list of dict
        The report of each pass done.
    metrics_length : int
        Bytes committed in ``metrics.jsonl``.
    log_digests : dict of int to str
        What those bytes are (see `streamsvm.run.dual_log.chained`).
    changes_number, changes_length, changes_digest : int, int, str
        The log of changed weights, 0 before there is one; the bytes committed in it, and what they are.
    average_pass : int
        The pass whose average was begun last, and not yet another's; 0 before there is one.
    seconds : float
        Time spent training so far, and of it, `pass_seconds` in the pass in progress.
    stream : dict, optional
        Of a run over a stream, what it needs beside this; its blocks are the batches.
    """

    passes_done: int
    blocks_done: int
    tally: list[float]
    log_lengths: dict[int, int]
    history: list[dict[str, Any]]
    metrics_length: int = 0
    changes_number: int = 0
    changes_length: int = 0
    average_pass: int = 0
    changes_digest: str = ""
    log_digests: dict[int, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    pass_seconds: float = 0.0
    stream: dict[str, Any] | None = None


def commit(
    run: RunDir,
    position: Position,
    weights: Weights,
    sparse_rows: SparseRows | None = None,
    *,
    anew: bool = False,
) -> int:
    """Make `position` the state that a crash falls back to; return the bytes of weights written.

    The caller has synced the logs of duals and the metrics up to the lengths in `position`. Raises
    `RunError` if its sums are not finite, and leaves the commits as they are. With `anew` the weights
    are laid out anew since the last one.
    """
    check_finite(run, dataclasses.asdict(position))
    size = write_changes(run, position, weights, anew, sparse_rows)
    run.checkpoints.mkdir(exist_ok=True)
    number = max(run.commits(), default=0) + 1
    aside = run.checkpoints / _ASIDE
    durable.remove(aside)
    aside.mkdir()
    record = {
        "version": format.RUN_VERSION,
        "run": run.identity,
        "weights_shape": list(weights.current.shape),
        **dataclasses.asdict(position),
        "log_lengths": {str(p): length for p, length in position.log_lengths.items()},
        "log_digests": {str(p): position.log_digests.get(p, "") for p in position.log_lengths},
    }
    manifest = json.dumps(format.sealed(record)).encode()
    if len(manifest) > durable.MOST_RECORD:
        raise RunError(
            f"{run.path}: what a commit says of classes and passes takes {len(manifest):,} bytes, more than "
            f"the {durable.MOST_RECORD:,} that are read again; use shorter labels, or fewer classes"
        )
    with durable.open_file(aside / format.MANIFEST, "wb") as file:
        file.write(manifest)
        file.flush()
        os.fsync(file.fileno())
    durable.sync_dir(aside)
    durable.sync_dir(run.path)  # the logs' own names, on their first commit
    os.rename(aside, run.commit_path(number))
    durable.sync_dir(run.checkpoints)
    prune(run, position.log_lengths)
    return size


def check_finite(run: RunDir, numbers: Any) -> None:
    """Raise `RunError` unless all numbers, in lists and dicts, can be written as JSON."""
    try:
        json.dumps(numbers, allow_nan=False)
    except ValueError:  # JSON has neither infinity nor NaN
        raise RunError(
            f"{run.path}: the objective is no longer finite; scale the values of the data to about 1, or "
            "lower C, and begin anew with --force"
        ) from None


def write_changes(
    run: RunDir, position: Position, weights: Weights, anew: bool, sparse_rows: SparseRows | None = None
) -> int:
    """Append the weights that changed to their log, or begin one with all of them; move `position`.

    A new log when most changed costs at most twice as much, and does not depend on the one before.
    """
    if len(weights.dirty) < len(weights.current):
        weights, anew = with_marks(weights), True
    changed, known = size_of_changes(weights, sparse_rows)
    anew |= position.changes_number == 0 or position.changes_length > 2 * known
    if anew or 2 * changed > known:
        position.changes_number += 1
        position.changes_length, position.changes_digest = 0, ""
        mark_known(weights.dirty)
        if sparse_rows is not None:
            sparse_rows.dirty[:] = sparse_rows.extents[:, 1] > 0
    log = ChangeLog(run.changes(position.changes_number), position.changes_length, position.changes_digest)
    before = log.length
    position.changes_length = 2**62  # if this fails, the marks are gone: whoever goes on begins a new log
    log.append(weights, sparse_rows)
    position.changes_length, position.changes_digest = log.length, log.digest
    return log.length - before


def drop(run: RunDir, numbers: Iterable[int]) -> None:
    """Delete commits, durably: their logs are about to be deleted, or written over."""
    aside = run.checkpoints / _ASIDE
    for number in numbers:
        durable.remove(aside)
        os.rename(run.commit_path(number), aside)  # so that a crash leaves no half of a commit
        durable.sync_dir(run.checkpoints)
        durable.remove(aside)


def prune(run: RunDir, in_use: Iterable[int]) -> None:
    """Delete old commits, and the logs that no kept commit needs, but for the duals of passes `in_use`."""
    numbers = run.commits()
    durable.remove(run.checkpoints / _ASIDE)
    drop(run, numbers[_KEPT:])
    needed = {format.duals_name(p) for p in in_use}
    for number in numbers[:_KEPT]:
        try:
            manifest = durable.read_record(run.commit_path(number) / format.MANIFEST)
            needed.add(format.changes_name(manifest["changes_number"]))
            needed.update(format.duals_name(int(p)) for p in manifest["log_lengths"])
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return  # a damaged commit does not say what it needs: `recover` will speak of it
    for path in run.logs():
        if path.name not in needed:
            durable.remove(path)


def recover(
    run: RunDir,
    shape: tuple[int, int] | None,
    values_dtype: np.dtype,
    ids_dtype: np.dtype,
    average: bool,
) -> tuple[Position | None, list[str]]:
    """Find the newest undamaged commit, and cut the run's files to it.

    Parameters
    ----------
    shape : tuple of int, optional
        Of the weights; None where they grow: then the commit says it.

    Returns
    -------
    position : Position or None
        None if nothing was committed yet: the run starts from the beginning.
    warnings : list of str
        Why newer commits were passed over, one line each, and that metrics were lost. Those commits
        are deleted.

    Raises
    ------
    RunError
        If there are commits and none can serve, with the reason of each; or if the system refused to
        read one, which says nothing about it. Then nothing has changed.
    """
    numbers = run.commits()
    reasons: list[str] = []
    for number in numbers:
        folder = run.commit_path(number)
        try:
            position = read_commit(run, folder, shape, values_dtype, ids_dtype, average)
        except RunError as error:
            reasons.append(str(error))
            continue
        except OSError as error:
            told = f"{error.filename or folder} cannot be read: {durable.reason(error)}; then repeat"
            if number != numbers[-1]:
                told += f", or delete {folder} to go on from the commit before it"
            raise RunError(told) from error
        drop(run, (newer for newer in numbers if newer > number))
        warnings = [f"{reason}; the commit before it serves" for reason in reasons]
        warnings += cut_metrics(run, position)
        prune(run, position.log_lengths)  # what a crash kept the last commit from doing
        return position, warnings
    if numbers:
        raise RunError("; ".join(reasons) + "; no commit is left to resume from: fit again")
    return None, []


def cut_metrics(run: RunDir, position: Position) -> list[str]:
    """Cut the metrics to the length committed; fill up what is shorter by a line that says so, and warn.

    With its length the file still fits every commit, whenever the next crash comes.
    """
    size, length = metrics_size(run), position.metrics_length
    if size > length:
        with durable.open_file(run.metrics, "r+b") as file:
            file.truncate(length)
    if size >= length:
        return []
    with durable.open_file(run.metrics, "a+b") as file:
        begin = max(0, size - _MOST_FILLED - _LINE)  # what is no longer than that ends a line somewhere
        file.seek(begin)
        whole = begin + file.read(size - begin).rfind(b"\n") + 1
        file.truncate(whole)
        filled = min(length - whole, _MOST_FILLED)
        position.metrics_length = whole + file.write(b'{"event": "lost"}'.ljust(filled - 1) + b"\n")
    lost = f"{run.metrics} is cut short: {size:,} of {length:,} bytes"
    return [f"{lost}; a line in it says so, and the model lacks nothing"]


def metrics_size(run: RunDir) -> int:
    """Bytes of the metrics; 0 if there are none."""
    try:
        return durable.size(run.metrics)
    except FileNotFoundError:
        return 0


def read_commit(
    run: RunDir,
    folder: Path,
    shape: tuple[int, int] | None,
    values_dtype: np.dtype,
    ids_dtype: np.dtype,
    average: bool,
    *,
    verify: bool = True,
) -> Position:
    """The position recorded in a commit, after checking it and all files that it relies on.

    Without `verify` only the manifest is checked. Raises `RunError` for any damage; `OSError` if the
    system refuses to read a file that is there.
    """
    manifest_path = folder / format.MANIFEST
    try:
        with durable.named(manifest_path):
            manifest = durable.read_record(manifest_path)
        if not format.is_sealed(manifest):
            raise RunError(f"{manifest_path} is damaged: its checksum does not match")
        if manifest.get("version") != format.RUN_VERSION:
            raise RunError(f"{manifest_path} has format {manifest.get('version')}, not {format.RUN_VERSION}")
        if manifest["run"] != run.identity:
            raise RunError(f"{run.settings} is of another run than {manifest_path}; bring its own back")
        found = manifest["weights_shape"]
        if not (_is_shape(found) if shape is None else found == list(shape)):
            raise RunError(f"{manifest_path} belongs to a run of another shape")
        fields = {field.name for field in dataclasses.fields(Position)}
        position = Position(**{key: value for key, value in manifest.items() if key in fields})
        position.log_lengths = {int(p): length for p, length in manifest["log_lengths"].items()}
        position.log_digests = {int(p): digest for p, digest in manifest["log_digests"].items()}
        if not _is_sound(position):
            raise RunError(f"{manifest_path} makes no sense, though its checksum fits")
        if position.stream is not None and position.stream.get("shape") != found:
            raise RunError(f"{manifest_path} is not one of this run: it says two shapes of the weights")
        if not verify:
            return position
        changes = run.changes(position.changes_number)
        digest = check_changes(changes, position.changes_length, values_dtype, 1 + average)
        logs = [(changes, digest, position.changes_digest)]
        for pass_number, length in position.log_lengths.items():
            path = run.duals(pass_number)
            digest = check_log(path, length, values_dtype, ids_dtype)
            logs.append((path, digest, position.log_digests[pass_number]))
        for path, digest, committed in logs:
            if digest != committed:
                raise RunError(f"{path} is not the log that {manifest_path} stands on: it is of another run")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise RunError(f"{error.filename} is missing") from None
    except (ValueError, RecursionError):
        raise RunError(f"{manifest_path} is damaged: not JSON") from None
    except (KeyError, TypeError, AttributeError):  # sealed, but not by us
        raise RunError(f"{manifest_path} makes no sense, though its checksum fits") from None
    return position


def _is_shape(found: Any) -> bool:
    return isinstance(found, list) and len(found) == 2 and all(type(n) is int and n >= 0 for n in found)


def _is_sound(position: Position) -> bool:
    """Whether a position could be one that `commit` wrote; how it fits the run is the trainer's to check."""
    counts = [position.passes_done, position.blocks_done, position.metrics_length]
    counts += [position.changes_number, position.changes_length, position.average_pass]
    counts += position.log_lengths.values()
    seconds = [position.seconds, position.pass_seconds]
    digests = [position.changes_digest, *position.log_digests.values()]
    return (
        all(type(count) is int and 0 <= count < 2**63 for count in counts)
        and all(type(value) is float for value in [*position.tally, *seconds])
        and all(isinstance(digest, str) for digest in digests)
        and position.log_digests.keys() == position.log_lengths.keys()
        and len(position.tally) == N_TALLIES
        and len(position.history) == position.passes_done
        and all(isinstance(record, dict) for record in position.history)
        and isinstance(position.stream, dict | None)
    )
