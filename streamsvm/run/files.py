"""Storage for a training's duals, commits, metrics and model: a run directory, or memory."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import durable, format
from streamsvm.kernels.duals import OldDuals, RowDuals, joined, to_lists
from streamsvm.model.coefficients import Coefficients
from streamsvm.model.model import Model
from streamsvm.model.serialization import save_model, saved_record, write_record
from streamsvm.run.append_log import LogEnd
from streamsvm.run.checkpoint import RunPosition, commit, finite_json, prune, recover
from streamsvm.run.directory import RunDir
from streamsvm.run.dual_log import DualFormat, DualLog, DualWriter
from streamsvm.run.weight_log import restore
from streamsvm.run.weights import WeightStorage
from streamsvm.settings.fit import Interval
from streamsvm.transforms import Transform, records_of


class MemoryRun:
    """Storage of a training of arrays: everything is in memory. `RunFiles` has a run directory instead.

    Parameters
    ----------
    duals : DualFormat
        How the duals are stored.
    every : Interval, optional
        Interval between commits.
    held_bytes : int
        Memory for the duals of two passes over a single block, and for one of them as arrays; those of a run
        directory then are written by commits alone.

    Attributes
    ----------
    run : RunDir or None
    checkpoints, checkpoint_seconds, checkpoint_bytes : int, float, int
        Commits made, the time that they took, and the bytes of weights that they wrote.
    warnings : list of str
        Repairs that were made when the run was recovered.
    model : Model or None
        What `save_model` kept in memory.
    """

    run: RunDir | None = None
    model: Model | None = None
    checkpoints = 0
    checkpoint_seconds = 0.0
    checkpoint_bytes = 0

    def __init__(self, duals: DualFormat, every: Interval | None = None, *, held_bytes: int = 0) -> None:
        self.held_bytes = held_bytes
        self.every = every or Interval(10**9)
        self.warnings: list[str] = []
        self._format = duals
        self._held: dict[int, MemoryDuals] = {}  # by pass

    @property
    def path(self) -> Path | None:
        """Path of the run directory, if there is one."""
        return None if self.run is None else self.run.path

    def old_duals(self, position: RunPosition, pass_number: int) -> OldLog:
        """Return the duals of a pass as they are at `position`, and drop those of earlier passes."""
        self._held = {p: duals for p, duals in self._held.items() if p >= pass_number}
        return self._held.setdefault(pass_number, MemoryDuals(self._format))

    def new_duals(self, position: RunPosition, pass_number: int) -> NewLog:
        """Return where the duals of a pass go: behind what `position` has in their log, or to memory."""
        return self._held.setdefault(pass_number, MemoryDuals(self._format))

    def commit(self, position: RunPosition, storage: WeightStorage, new: NewLog | None = None) -> RunPosition:
        """Commit `position`; `new` is the log of duals that is being written."""
        return position

    def prune(self, position: RunPosition) -> None:
        """Delete the logs that neither a commit nor `position` needs, if there may be others."""

    def check_finite(self, numbers: Any) -> None:
        """Raise `RunError` unless all numbers are finite."""
        finite_json(self.path, numbers)

    def append_metrics(self, position: RunPosition, record: dict[str, Any]) -> RunPosition:
        """Keep a line of the metrics for the next commit, and return the position that includes it."""
        self.check_finite(record)
        return position

    def write_metrics(self, position: RunPosition) -> None:
        """Append the lines that are kept to the metrics, if that is possible."""

    def save_model(
        self,
        coefficients: Coefficients,
        record: dict[str, Any],
        names: Any,
        *,
        transforms: Sequence[Transform] = (),
        costs: np.ndarray | None = None,
    ) -> str:
        """Save the model, and return its folder: "" in memory.

        The parameters are those of `streamsvm.model.serialization.save_model`.
        """
        coef, record = coefficients.stored(), {**record, "transforms": records_of(transforms)}
        self.model = Model(coef, record, names, transforms, costs, coefficients.transitions)
        return ""


class RunFiles(MemoryRun):
    """Files of a run directory that is locked by this process.

    Parameters
    ----------
    run : RunDir
    duals, every, held_bytes
        As for `MemoryRun`.
    """

    run: RunDir

    def __init__(self, run: RunDir, duals: DualFormat, every: Interval, *, held_bytes: int = 0) -> None:
        super().__init__(duals, every, held_bytes=held_bytes)
        self.run = run
        self._lines: list[bytes] = []  # of the metrics, which the next commit appends

    def recover(self) -> RunPosition | None:
        """Cut the files back to the last commit, and return its position; None before the first commit."""
        position, self.warnings = recover(self.run)
        if position is None:
            if self.run.model.exists():  # of a run that ended, so it had commits
                self.warnings.append(f"the commits of {self.run.path} are gone; it began anew")
            durable.remove(self.run.metrics)
        return position

    def restore(self, position: RunPosition, storage: WeightStorage) -> None:
        """Write the committed weights into `storage`, whose weights must be zero."""
        if position.weights.length:
            restore(self.run.weight_log(position.weights_number), position.weights.length, storage)

    def old_duals(self, position: RunPosition, pass_number: int) -> OldLog:
        self._held = {p: duals for p, duals in self._held.items() if p >= pass_number}
        if pass_number in self._held and not self._held[pass_number].end.length:
            return self._held[pass_number]
        end = position.duals.get(pass_number, LogEnd())
        return DualLog(self.run.duals(pass_number), end.length, self._format)

    def new_duals(self, position: RunPosition, pass_number: int) -> NewLog:
        end = position.duals.get(pass_number, LogEnd())
        if end.length or not self.held_bytes:
            return DualWriter(self.run.duals(pass_number), end)
        held = MemoryDuals(self._format, self.run.duals(pass_number), self.held_bytes // 3)
        return self._held.setdefault(pass_number, held)

    def commit(self, position: RunPosition, storage: WeightStorage, new: NewLog | None = None) -> RunPosition:
        begin = time.perf_counter()
        if new is not None:
            new.flush()
        ends = {p: duals.write() for p, duals in self._held.items() if p in position.duals}
        position = dataclasses.replace(position, duals=position.duals | ends)
        for pass_number in position.duals:
            durable.sync_tree(self.run.duals(pass_number))
        self._write_metrics(position.metrics_length)
        position, written = commit(self.run, position, storage)
        self.checkpoint_bytes += written
        self.checkpoints += 1
        self.checkpoint_seconds += max(time.perf_counter() - begin, 0.0)
        self.every.restart()
        return position

    def prune(self, position: RunPosition) -> None:
        if any(end.length for end in position.duals.values()):
            prune(self.run, position.duals)

    def append_metrics(self, position: RunPosition, record: dict[str, Any]) -> RunPosition:
        line = finite_json(self.path, record).encode() + b"\n"
        self._lines.append(line)
        return dataclasses.replace(position, metrics_length=position.metrics_length + len(line))

    def write_metrics(self, position: RunPosition) -> None:
        with contextlib.suppress(OSError):
            self._write_metrics(position.metrics_length)

    def _write_metrics(self, length: int) -> None:
        """Append the lines that are kept to the metrics, which have `length` bytes then, and sync them."""
        lines = b"".join(self._lines)
        if lines:
            with durable.open_file(self.run.metrics, "ab") as file:
                file.truncate(min(file.tell(), length - len(lines)))  # a write may have failed half way
                file.write(lines)
            self._lines.clear()
        if self.run.metrics.exists():
            durable.sync_tree(self.run.metrics)

    def save_model(
        self,
        coefficients: Coefficients,
        record: dict[str, Any],
        names: Any,
        saved: Callable[[str], None] = lambda model: None,
        **parts: Any,
    ) -> str:
        """Write the model, and delete what nobody needs then: all commits but the last, and other files.

        `saved` is called with the model's folder before files are deleted, which can take minutes.
        """
        keep = self._keep_temperature
        save_model(self.run.model, coefficients, record, names=names, complete=keep, **parts)
        saved(str(self.run.model))
        self.run.clean_up()
        prune(self.run, (), kept=1)
        return str(self.run.model)

    def _keep_temperature(self, folder: Path) -> None:
        """Keep the temperature of the model that `folder` replaces; warn instead if coefficients differ."""
        old, new = saved_record(self.run.model), saved_record(folder)
        if format.TEMPERATURE not in old:
            return
        if old.get(format.SUMS) == new[format.SUMS]:
            write_record(folder, {**new, format.TEMPERATURE: old[format.TEMPERATURE]})
        else:
            self.warnings.append(
                "the model was calibrated before it was trained further; to have probabilities, calibrate it "
                "again"
            )


class MemoryDuals:
    """Duals of a pass in memory, instead of a `DualWriter` and a `DualLog`.

    Those of a run directory are of a single block. They move to the log at `path` when they take more than
    `limit` bytes, and when a commit calls `write`.
    """

    def __init__(self, duals: DualFormat, path: Path | None = None, limit: float = math.inf) -> None:
        self.end = LogEnd()
        self._format = duals
        self._parts: dict[int, list[RowDuals]] = {}
        self._matrices: dict[int, np.ndarray] = {}
        self._path = path
        self._left = limit

    def append_duals(self, block: int, duals: RowDuals) -> None:
        kept = duals.copy()
        self._parts.setdefault(block, []).append(kept)
        self._left -= sum(array.nbytes for array in kept)
        if self._left < 0:
            self.write()

    def append_matrix(self, block: int, duals: np.ndarray) -> None:
        self._matrices[block] = duals

    def matrix(self, block: int) -> np.ndarray | None:
        """Return what `append_matrix` kept of a block; None if that is nothing."""
        return self._matrices.get(block)

    def segment(self, block: int, n_rows: int) -> OldDuals:
        none = RowDuals.of_buffer(self._format.new_buffer(0, 0))
        return joined(self._parts.get(block, [none])).in_block(n_rows)

    def write(self) -> LogEnd:
        """Move them to their log, and return its end."""
        if self._parts or self._matrices:
            assert self._path is not None
            with DualWriter(self._path, self.end) as log:
                for block, parts in self._parts.items():
                    for part in parts:
                        log.append_duals(block, part)
                for block, matrix in self._matrices.items():
                    for part in to_lists(matrix, self._format.ids_dtype):
                        log.append_duals(block, part)
            self.end = log.end
            self._parts.clear()
            self._matrices.clear()
        return self.end

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


Files = MemoryRun  # of either kind
OldLog = DualLog | MemoryDuals  # of the duals that the last pass left
NewLog = DualWriter | MemoryDuals  # of those of the pass in progress
