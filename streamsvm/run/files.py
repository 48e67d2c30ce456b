"""Store duals, commits, metrics and the model in a run directory or in memory."""

from __future__ import annotations

import dataclasses
import functools
import math
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


class RunFiles:
    """Storage of a training run: a directory locked by this process, or memory if `run` is None.

    `every` is the interval between commits to a run directory. `held_bytes` limits the memory for the duals
    of two passes and a joined copy of one pass. Duals that fit are written to files only by commits.
    `warnings` report lost data, and a calibration that was not kept. `model` is the model that `save_model`
    keeps if there is no directory.
    """

    model: Model | None = None
    checkpoints = 0
    checkpoint_seconds = 0.0
    checkpoint_bytes = 0  # total size of the weights that commits wrote

    def __init__(
        self, duals: DualFormat, run: RunDir | None = None, every: Interval | None = None, held_bytes: int = 0
    ) -> None:
        self.run = run
        self.path = None if run is None else run.path
        self.every = every or Interval(10**9)
        self._held_bytes = math.inf if run is None else held_bytes // 3
        self.warnings: list[str] = []
        self._format = duals
        self._duals: dict[int, PassDuals] = {}
        self._committed = RunPosition()
        self._lines: list[bytes] = []

    def recover(self) -> RunPosition | None:
        """Restore the files to the last commit, and return its position; None if nothing was committed."""
        if self.run is None:
            return None
        position, self.warnings = recover(self.run)
        self._committed = position or RunPosition()
        return position

    def restore(self, storage: WeightStorage) -> None:
        if self.run is not None and self._committed.weights is not None:
            storage.restore(self.run.committed_weights(self._committed.weights_number))

    def old_duals(self, position: RunPosition, pass_number: int) -> PassDuals:
        """Return the duals of a pass as of `position`, and drop the duals of earlier passes."""
        self._duals = {p: duals for p, duals in self._duals.items() if p >= pass_number}
        return self.new_duals(position, pass_number)

    def new_duals(self, position: RunPosition, pass_number: int) -> PassDuals:
        """Return the duals of a pass for appending; at first, they are those of the files in `position`."""
        if pass_number not in self._duals:
            files = position.duals.get(pass_number, ())
            self._duals[pass_number] = PassDuals(self._format, self.run, pass_number, files, self._held_bytes)
        return self._duals[pass_number]

    def commit(self, position: RunPosition, storage: WeightStorage) -> RunPosition:
        """Commit `position`, the weights and the duals, if there is a run directory."""
        if self.run is None:
            return position
        begin = time.perf_counter()
        files = {p: duals.commit() for p, duals in self._duals.items() if p in position.duals}
        position = dataclasses.replace(position, duals=position.duals | files)
        self.write_metrics(position.metrics_length)
        position = self._committed = commit(self.run, position, storage)
        assert position.weights is not None
        self.checkpoint_bytes += position.weights.length
        self.checkpoints += 1
        seconds = max(time.perf_counter() - begin, 0.0)
        self.checkpoint_seconds += seconds
        self.every.restart(seconds)
        return position

    def prune(self, position: RunPosition) -> None:
        """Delete files of duals and weights that neither the last commit nor `position` needs."""
        if self.run is not None and any(position.duals.values()):
            prune(self.run, position, self._committed)

    def check_finite(self, numbers: Any) -> None:
        finite_json(self.path, numbers)

    def append_metrics(self, position: RunPosition, record: dict[str, Any]) -> RunPosition:
        """Add a metrics line to the next commit, and return the position that includes it."""
        line = finite_json(self.path, record).encode() + b"\n"
        self._lines.append(line)
        return dataclasses.replace(position, metrics_length=position.metrics_length + len(line))

    def write_metrics(self, length: int) -> None:
        """Append the pending lines to the metrics file, which then has `length` bytes, and sync it."""
        if self.run is None:
            return
        if lines := b"".join(self._lines):
            with durable.open_file(self.run.metrics, "ab") as file:
                file.truncate(min(file.tell(), length - len(lines)))  # an earlier write may be incomplete
                file.write(lines)
            self._lines.clear()
        if self.run.metrics.exists():
            durable.sync_tree(self.run.metrics)

    def save_model(
        self,
        coefficients: Coefficients,
        record: dict[str, Any],
        names: Any,
        *,
        transforms: Sequence[Transform] | None = None,
        costs: np.ndarray | None = None,
        saved: Callable[[str], None] = lambda model: None,
    ) -> str:
        """Save the model, and delete duals, weights and other files that are no longer needed.

        See `streamsvm.model.serialization.save_model` for the parameters. `saved` is called with the folder
        before the deletion, which can take minutes. Returns the folder, or "" if there is no run directory.
        """
        if self.run is None:
            coef, transforms = coefficients.stored(), transforms or ()
            record = {**record, "transforms": records_of(transforms)}
            self.model = Model(coef, record, names, transforms, costs, coefficients.transitions)
            return ""
        folder, complete = self.run.model, functools.partial(self._keep_calibration, self.run.model)
        save_model(
            folder, coefficients, record, names=names, complete=complete, transforms=transforms, costs=costs
        )
        saved(str(folder))
        self.run.clean_up()
        prune(self.run, self._committed)
        return str(folder)

    def _keep_calibration(self, model: Path, folder: Path) -> None:
        """Copy the calibration of the old model to the new one if their coefficients are equal, or warn."""
        old, new = saved_record(model), saved_record(folder)
        if format.TEMPERATURE not in old:
            return
        if old.get(format.SUMS) == new[format.SUMS]:
            calibration = {name: old[name] for name in (format.TEMPERATURE, format.ANSWERED) if name in old}
            write_record(folder, new | calibration)
        else:
            self.warnings.append(
                "training continued after the calibration of the model, so the new model is not calibrated; "
                "calibrate it again"
            )
