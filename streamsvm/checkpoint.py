"""Commit, recover: the protocol by which a run survives being killed at any instant.

A commit is a folder ``checkpoint/<number>/`` with a copy of the weights and a manifest, written
aside, synced, and renamed in last. The logs of duals are synced before it and only ever grow, so
the manifest's lengths are all there is to say about them. The last two commits are kept, and every
log that either of them needs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import files, format
from streamsvm.errors import PlanError, RunError
from streamsvm.kernels import N_TALLIES, Weights
from streamsvm.settings import OnlineSettings, Settings
from streamsvm.state import check_log, copy_weights, file_crc
from streamsvm.stream import Plan

_KEPT = 2
_ASIDE = "aside"  # a commit being written, or deleted


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
        Sums over the rows of the pass in progress (see `streamsvm.kernels`).
    log_lengths : dict of int to int
        Bytes committed in the duals of each pass that is still needed.
    history : list of dict
        The report of each pass done.
    metrics_length : int
        Bytes committed in ``metrics.jsonl``.
    seconds : float
        Time spent training so far, and of it, `pass_seconds` in the pass in progress.
    stream : dict, optional
        Of a run over a stream, what `streamsvm.online` needs beside this; its blocks are the batches.
    """

    passes_done: int
    blocks_done: int
    tally: list[float]
    log_lengths: dict[int, int]
    history: list[dict[str, Any]]
    metrics_length: int = 0
    seconds: float = 0.0
    pass_seconds: float = 0.0
    stream: dict[str, Any] | None = None


class RunDir:
    """The one owner of the names in a run directory."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.settings = self.path / format.RUN_JSON
        self.weights = self.path / format.WEIGHTS
        self.lag = self.path / format.LAG
        self.checkpoints = self.path / format.CHECKPOINTS
        self.metrics = self.path / format.METRICS
        self.model = self.path / format.MODEL
        self.lock = self.path / format.LOCK

    def duals(self, pass_number: int) -> Path:
        return self.path / format.duals_name(pass_number)

    def read_settings(self) -> dict[str, Any]:
        """What was asked of this run, checked; `RunError` if there is none or it is damaged."""
        try:
            record = json.loads(self.settings.read_bytes())
        except FileNotFoundError:
            raise RunError(f"{self.path} is not a run: it has no {format.RUN_JSON}") from None
        except NotADirectoryError:
            raise RunError(f"{self.path} is not a run: a run is a folder") from None
        except (ValueError, RecursionError):
            raise RunError(f"{self.settings} is damaged: not JSON; fit again") from None
        except OSError as error:
            raise RunError(f"{self.settings} cannot be read: {error.strerror}") from None
        if not format.is_sealed(record):
            raise RunError(f"{self.settings} is damaged: its checksum does not match; fit again")
        if record.get("version") != format.RUN_VERSION:
            raise RunError(
                f"{self.path} has run format {record.get('version')}, this program writes and resumes "
                f"{format.RUN_VERSION}; use the version of streamsvm that made it, or fit again"
            )
        if not _makes_sense(record):
            raise RunError(f"{self.settings} makes no sense, though its checksum fits; fit again")
        return record

    def write_settings(self, record: dict[str, Any]) -> None:
        text = json.dumps(format.sealed(record), indent=2)
        files.write_atomic(self.settings, text.encode() + b"\n")

    def commits(self) -> list[int]:
        """Numbers of the commits that are there, newest first."""
        if not self.checkpoints.is_dir():
            return []
        return sorted((int(p.name) for p in self.checkpoints.iterdir() if p.name.isdecimal()), reverse=True)

    def commit_path(self, number: int) -> Path:
        return self.checkpoints / f"{number:08d}"


def _makes_sense(record: dict[str, Any]) -> bool:
    """Whether ``run.json`` could be one that we wrote, of a fit or of a stream."""
    try:
        if record.get("kind") == format.ONLINE:
            OnlineSettings(**record["settings"])
            return isinstance(record["input"], dict)
        Settings(**record["settings"])
        Plan(**record["plan"])
        store = record["store"]
        return (
            isinstance(store["path"], str)
            and isinstance(store["fingerprint"], str)
            and all(type(store[name]) is int and store[name] > 0 for name in ("n_features", "n_classes"))
        )
    except (KeyError, TypeError, ValueError, PlanError):
        return False


def commit(run: RunDir, position: Position, weights: Weights) -> None:
    """Make `position` the state that a crash falls back to.

    The caller has synced the logs of duals and the metrics up to the lengths in `position`.
    """
    run.checkpoints.mkdir(exist_ok=True)
    number = max(run.commits(), default=0) + 1
    aside = run.checkpoints / _ASIDE
    files.remove(aside)
    aside.mkdir()
    names = weights_names(len(weights.lag) > 0)
    crcs = {name: copy_weights(array, aside / name) for name, array in zip(names, weights[:2], strict=False)}
    manifest = format.sealed(
        {
            "version": format.RUN_VERSION,
            "weights_crc32": crcs,
            "weights_shape": list(weights.now.shape),
            **dataclasses.asdict(position),
            "log_lengths": {str(p): length for p, length in position.log_lengths.items()},
        }
    )
    with (aside / format.MANIFEST).open("wb") as file:
        file.write(json.dumps(manifest).encode())
        file.flush()
        os.fsync(file.fileno())
    files.sync_dir(aside)
    files.sync_dir(run.path)  # the log's own name, on its first commit
    os.rename(aside, run.commit_path(number))
    files.sync_dir(run.checkpoints)
    prune(run, position.log_lengths)


def weights_names(average: bool) -> tuple[str, ...]:
    """The files that hold the weights of a run."""
    return (format.WEIGHTS, format.LAG) if average else (format.WEIGHTS,)


def prune(run: RunDir, in_use: Iterable[int]) -> None:
    """Delete old commits, and the logs of duals that are not in use and that no kept commit needs."""
    numbers = run.commits()
    aside = run.checkpoints / _ASIDE
    files.remove(aside)
    for number in numbers[_KEPT:]:
        os.rename(run.commit_path(number), aside)  # so that a crash leaves no half of a commit
        files.remove(aside)
    needed = {format.duals_name(p) for p in in_use}
    for number in numbers[:_KEPT]:
        try:
            lengths = json.loads((run.commit_path(number) / format.MANIFEST).read_bytes())["log_lengths"]
        except (OSError, ValueError, KeyError, TypeError):
            return  # a damaged commit does not say what it needs: `recover` will speak of it
        needed.update(format.duals_name(int(p)) for p in lengths)
    for path in run.path.glob("duals-*.bin"):
        if path.name not in needed:
            files.remove(path)


def recover(
    run: RunDir,
    shape: tuple[int, int] | None,
    values_dtype: np.dtype,
    ids_dtype: np.dtype,
    names: Sequence[str],
) -> tuple[Position | None, list[str]]:
    """Restore the newest undamaged commit into the run's working files.

    Parameters
    ----------
    shape : tuple of int, optional
        Of the weights; None where they grow: then the commit says it.

    Returns
    -------
    position : Position or None
        None if nothing was committed yet: the run starts from the beginning.
    warnings : list of str
        Why newer commits were passed over, one line each. They are deleted.

    Raises
    ------
    RunError
        If there are commits and none can serve, with the reason of each.
    """
    numbers = run.commits()
    reasons: list[str] = []
    for number in numbers:
        folder = run.commit_path(number)
        try:
            position = read_commit(run, folder, shape, values_dtype, ids_dtype, names)
        except RunError as error:
            reasons.append(str(error))
            continue
        for name in names:
            shutil.copyfile(folder / name, run.path / name)
        for newer in (n for n in numbers if n > number):
            files.remove(run.commit_path(newer))
        if run.metrics.exists() and run.metrics.stat().st_size > position.metrics_length:
            os.truncate(run.metrics, position.metrics_length)
        prune(run, position.log_lengths)  # what a crash kept the last commit from doing
        served = [f"{reason}; the commit before it serves" for reason in reasons]
        return position, served
    if numbers:
        raise RunError("; ".join(reasons) + "; no commit is left to resume from: fit again")
    return None, []


def read_commit(
    run: RunDir,
    folder: Path,
    shape: tuple[int, int] | None,
    values_dtype: np.dtype,
    ids_dtype: np.dtype,
    names: Sequence[str],
    *,
    verify: bool = True,
) -> Position:
    """The position recorded in a commit, after checking it and all files that it relies on.

    Without `verify` only the manifest is checked. Raises `RunError` for any damage.
    """
    manifest_path = folder / format.MANIFEST
    try:
        manifest = json.loads(manifest_path.read_bytes())
        if not format.is_sealed(manifest):
            raise RunError(f"{manifest_path} is damaged: its checksum does not match")
        if manifest.get("version") != format.RUN_VERSION:
            raise RunError(f"{manifest_path} has format {manifest.get('version')}, not {format.RUN_VERSION}")
        found = manifest["weights_shape"]
        if not (_is_shape(found) if shape is None else found == list(shape)):
            raise RunError(f"{manifest_path} belongs to a run of another shape")
        fields = {field.name for field in dataclasses.fields(Position)}
        position = Position(**{key: value for key, value in manifest.items() if key in fields})
        position.log_lengths = {int(p): length for p, length in manifest["log_lengths"].items()}
        if not _is_sound(position):
            raise RunError(f"{manifest_path} makes no sense, though its checksum fits")
        if not verify:
            return position
        size = found[0] * found[1] * values_dtype.itemsize
        for name in names:
            path = folder / name
            if path.stat().st_size != size or file_crc(path) != manifest["weights_crc32"][name]:
                raise RunError(f"{path} is damaged: its checksum does not match")
        for pass_number, length in position.log_lengths.items():
            check_log(run.duals(pass_number), length, values_dtype, ids_dtype)
    except FileNotFoundError as error:
        raise RunError(f"{error.filename} is missing") from None
    except OSError as error:
        raise RunError(f"{folder} cannot be read: {error}") from None
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
    counts += position.log_lengths.values()
    seconds = [position.seconds, position.pass_seconds]
    return (
        all(type(count) is int and 0 <= count < 2**63 for count in counts)
        and all(type(value) is float for value in [*position.tally, *seconds])
        and len(position.tally) == N_TALLIES
        and len(position.history) == position.passes_done
        and all(isinstance(record, dict) for record in position.history)
        and isinstance(position.stream, dict | None)
    )
