"""Storage for a training's duals, commits, metrics and model: a run directory, or memory."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import durable, format
from streamsvm.model.coefficients import Coefficients
from streamsvm.model.model import Model
from streamsvm.model.serialization import save_model, saved_record, write_record
from streamsvm.run.directory import RunDir
from streamsvm.run.duals import DualFormat, PassDuals
from streamsvm.run.manifest import RunPosition, commit, finite_json, prune, recover
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
        self._duals: dict[int, PassDuals] = {}  # by pass

    @property
    def path(self) -> Path | None:
        """Path of the run directory, if there is one."""
        return None if self.run is None else self.run.path

    def old_duals(self, position: RunPosition, pass_number: int) -> PassDuals:
        """Return the duals of a pass as they are at `position`, and drop those of earlier passes."""
        self._duals = {p: duals for p, duals in self._duals.items() if p >= pass_number}
        return self.new_duals(position, pass_number)

    def new_duals(self, position: RunPosition, pass_number: int) -> PassDuals:
        """Return where the duals of a pass go, with those that it has at `position`."""
        if pass_number not in self._duals:
            self._duals[pass_number] = self._duals_at(position, pass_number)
        return self._duals[pass_number]

    def _duals_at(self, position: RunPosition, pass_number: int) -> PassDuals:
        return PassDuals(self._format)

    def commit(self, position: RunPosition, storage: WeightStorage) -> RunPosition:
        """Commit `position`, with the weights and duals."""
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
        self._committed = RunPosition()
        self._lines: list[bytes] = []  # of the metrics, which the next commit appends

    def recover(self) -> RunPosition | None:
        """Cut the files back to the last commit, and return its position; None before the first commit."""
        position, self.warnings = recover(self.run)
        self._committed = position or RunPosition()
        if position is None:
            if self.run.model.exists():  # of a run that ended, so it had commits
                self.warnings.append(f"the commits of {self.run.path} are gone; it began anew")
            durable.remove(self.run.metrics)
        return position

    def restore(self, position: RunPosition, storage: WeightStorage) -> None:
        """Write the committed weights into `storage`, whose weights must be zero."""
        if position.weights is not None:
            storage.restore(self.run.committed_weights(position.weights_number))

    def _duals_at(self, position: RunPosition, pass_number: int) -> PassDuals:
        files = position.duals.get(pass_number, ())
        return PassDuals(self._format, self.run, pass_number, files, self.held_bytes // 3)

    def commit(self, position: RunPosition, storage: WeightStorage) -> RunPosition:
        begin = time.perf_counter()
        files = {p: duals.commit() for p, duals in self._duals.items() if p in position.duals}
        position = dataclasses.replace(position, duals=position.duals | files)
        self._write_metrics(position.metrics_length)
        position = self._committed = commit(self.run, position, storage)
        assert position.weights is not None
        self.checkpoint_bytes += position.weights.length
        self.checkpoints += 1
        seconds = max(time.perf_counter() - begin, 0.0)
        self.checkpoint_seconds += seconds
        self.every.restart(seconds)
        return position

    def prune(self, position: RunPosition) -> None:
        if any(position.duals.values()):
            prune(self.run, position, self._committed)

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
        """Write the model, and delete what nobody needs then: files of duals, weights and others.

        `saved` is called with the model's folder before files are deleted, which can take minutes.
        """
        keep = self._keep_temperature
        save_model(self.run.model, coefficients, record, names=names, complete=keep, **parts)
        saved(str(self.run.model))
        self.run.clean_up()
        prune(self.run, self._committed)
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
