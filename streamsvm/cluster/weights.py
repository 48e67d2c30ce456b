"""Weights in the memory of the workers of a cluster.

Weights are futures, which the workers pass on among themselves. The workers write weights and duals to the
run directory when the command commits. The command fetches the weights to measure, and for the model.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamsvm.base import format
from streamsvm.base.threads import WorkersLost
from streamsvm.cluster import worker
from streamsvm.cluster.logs import read_weights, write_weights
from streamsvm.cluster.tasks import (
    Job,
    Round,
    TaskResult,
    WeightShard,
    in_slices,
    scaled,
    without_average,
    zeros,
)
from streamsvm.data.rows import Rows
from streamsvm.kernels.dual_lists import joined
from streamsvm.kernels.duals import OldDuals, RowDuals
from streamsvm.kernels.tally import CLOCK
from streamsvm.kernels.update import mark_rows_dirty
from streamsvm.model.coefficients import Coefficients
from streamsvm.run.append_log import LogEnd
from streamsvm.run.checkpoint import RunPosition
from streamsvm.run.dual_log import DualFiles, DualLog
from streamsvm.run.files import NewLog, OldLog, RunFiles
from streamsvm.training.learner import Learner
from streamsvm.training.parallel.executor import Executor
from streamsvm.training.parallel.split_learner import Turn
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.training import Training

# Tasks after which weights are committed, if that was not done before: the scheduler keeps all that their
# futures depend on, to run it again.
_MAX_GRAPH_TASKS = 100_000

# Counts of a pass before its first task, by their names in the record of the pass.
_ZERO_COUNTS = {
    "worker_tasks": 0, "worker_seconds": 0.0, "worker_peak_memory_bytes": 0, "moved_bytes": 0,
    "waited_for_workers_seconds": 0.0, "worker_bytes_read": 0, "gathered_bytes": 0,
}  # fmt: skip


class OnCluster(Learner):
    """Base of the learners of a cluster, whose workers have the weights in their memory.

    Weights may be in three places: with the workers (`_shards`), in the storage (`_is_here`), and in the logs
    of a commit (`_committed`). After a visit the new weights are with the workers alone.
    """

    _cluster: Executor
    _shards: list[Any] | None = None  # futures of `WeightShard`
    _is_here = True
    _committed: dict[str, LogEnd] | None = None
    _old_duals: DualFiles
    entries: int  # room for new duals

    def use(self, cluster: Executor, training: Training, folder: Path) -> Self:
        """Let the workers of a cluster do the work."""
        self._cluster, self._counted = cluster, dict(_ZERO_COUNTS)
        self._job_facts = Job(
            cluster.token, uuid.uuid4().hex, folder, training, self.spec, self.entries, self.pairs
        )  # fmt: skip
        return self

    @functools.cached_property
    def _job(self) -> Any:
        """Return the future of the facts that all tasks need."""
        [held] = self._cluster.start([self._cluster.task("settings", worker.hold, self._job_facts)])
        return held

    # -- weights with the workers, in the storage, and in the run directory ---------------------------

    def _columns(self) -> list[tuple[int, int]]:
        """List the first and last column of each shard."""
        raise NotImplementedError

    def _shares(self) -> list[tuple[Any, tuple[int, int], int, str]]:
        """List the parts of the weights to write: future, features, first column, and who writes it."""
        raise NotImplementedError

    def _find_slots(self) -> None:
        """Find out which workers are there."""
        self._slots = self._cluster.slots
        if not self._slots:
            raise WorkersLost("no worker is left")

    def _places(self, count: int) -> list[str]:
        """Choose the workers of so many pieces of work, neighbours on the same one, by their threads."""
        return [self._slots[at * len(self._slots) // count] for at in range(count)]

    def _find_shards(self) -> list[Any]:
        """Return the futures of the weights; if there are none yet, of those of the last commit."""
        if self._shards is None:
            self._find_slots()
            self._first_task = self._cluster.count
            tasks = self._send() if self._committed is None else self._read(self._committed)
            self._shards = self._cluster.start(tasks)
        return self._shards

    def _send(self) -> list[Any]:
        """Make tasks of the weights in the storage: they are zero, or a commit of threads."""
        weights, tasks = self.storage.weights, []
        for begin, end in self._columns():
            current = weights.current[:, begin:end]
            if not current.any():
                tasks.append(self._cluster.task("weights", zeros, len(current), end - begin, current.dtype))
                continue
            average = weights.average_delta[:, begin:end] if self.averaging else current[:0]
            shard = WeightShard(np.ascontiguousarray(current), np.ascontiguousarray(average))
            tasks.append(self._cluster.task("weights", worker.hold, shard))
        return tasks

    def _read(self, committed: dict[str, LogEnd]) -> list[Any]:
        """Make tasks that read the weights from the logs of a commit."""
        logs = [(name, end.length) for name, end in committed.items()]
        columns = self._columns()
        return [
            self._cluster.task("weights", read_weights, self._job, logs, begin, end - begin, at=at)
            for (begin, end), at in zip(columns, self._places(len(columns)), strict=True)
        ]

    def _replace_shards(self, shards: list[Any]) -> None:
        """Take the futures of new weights."""
        self._shards, self._is_here, self._committed = shards, False, None

    def _gather(self) -> None:
        """Bring the weights into the storage."""
        if self._is_here:
            return
        for (begin, end), future in zip(self._columns(), self._find_shards(), strict=False):
            (shard,) = self._cluster.results([future])
            self._put_in(shard, slice(begin, end))
            self._counted["gathered_bytes"] += shard.nbytes
        self._is_here = True

    def _put_in(self, shard: WeightShard, columns: slice) -> None:
        """Write some columns into the storage."""
        weights, bits = self.storage.weights, np.dtype(f"u{shard.current.itemsize}")
        arrays = [(weights.current[:, columns], shard.current)]
        if len(shard.average_delta):
            arrays.append((weights.average_delta[:, columns], shard.average_delta))
        features = np.arange(len(shard.current))
        if len(weights.dirty):  # the rest is zero, and holes of a file perhaps
            is_there = weights.dirty.any(axis=1)
            for _, found in arrays:
                is_there |= found.view(bits).any(axis=1)
            features = np.flatnonzero(is_there)
            mark_rows_dirty(features, weights)
            self.storage.check_room(_only(features))
        for stored, found in arrays:
            for some in in_slices(len(features)):
                stored[features[some]] = found[features[some]]

    def restore(self, files: RunFiles, position: RunPosition) -> None:
        logs = position.worker_logs_of(format.WEIGHT_LOG, position.weights_number)
        if logs:  # the workers read what they need
            self._committed, self._is_here = logs, False
        else:
            super().restore(files, position)

    def write_weights(self, number: int) -> dict[str, LogEnd]:
        """Let the workers write the weights, so that later tasks no longer depend on earlier ones."""
        tasks = [
            self._cluster.task("write", write_weights, self._job, number, shard, features, column, at=at)
            for shard, features, column, at in self._shares()
        ]
        self._committed, self._shards = dict(self._cluster.results(self._cluster.start(tasks))), None
        return self._committed

    def scale(self, factor: float) -> None:
        if factor != 1:
            self._change("scale", scaled, factor)

    def _change(self, name: str, function: Callable[..., WeightShard], *arguments: Any) -> None:
        """Replace the weights by what a function makes of each shard."""
        tasks = [self._cluster.task(name, function, shard, *arguments) for shard in self._find_shards()]
        self._replace_shards(self._cluster.start(tasks))

    # -- duals in the run directory ----------------------------------------------------------------

    def read_duals(self, log: OldLog, block: int, rows: Rows) -> OldDuals:
        assert isinstance(log, DualLog)
        self._old_duals = log.files
        none = RowDuals.none(log.files.format.ids_dtype, log.files.format.values_dtype)
        return joined([none], 0, 0)  # the workers read them

    @property
    def needs_commit(self) -> bool:
        return self._shards is not None and self._cluster.count - self._first_task > _MAX_GRAPH_TASKS

    @property
    def needs_old_duals(self) -> bool:
        return self._shards is not None

    # -- counts ------------------------------------------------------------------------------------

    def _results(self, futures: list[Any]) -> list[Any]:
        """Wait for the results of visits."""
        begin = time.perf_counter()
        found = self._cluster.results(futures)
        self._counted["waited_for_workers_seconds"] += time.perf_counter() - begin
        return found

    def _count(self, result: TaskResult, keep: NewLog | None = None) -> None:
        """Add up the costs of a task, and count the duals that it wrote."""
        counted = self._counted
        counted["worker_tasks"] += 1
        counted["worker_seconds"] += result.seconds
        counted["moved_bytes"] += result.moved
        counted["worker_bytes_read"] += result.read
        counted["worker_peak_memory_bytes"] = max(counted["worker_peak_memory_bytes"], result.peak)
        if keep is not None and result.log is not None:
            keep.add_worker_log(*result.log)

    def work_of_pass(self) -> dict[str, float]:
        counted, self._counted = self._counted, dict(_ZERO_COUNTS)
        return {"workers": len(set(self._cluster.slots)), **counted}

    # -- norms and scores --------------------------------------------------------------------------

    def begin_average(self) -> None:
        super().begin_average()
        if self._shards is not None or not self._is_here:
            self._change("average", without_average)

    def _norms(self, average_scale: float) -> list[Any]:
        """Make tasks that compute ‖w‖² of parts of the weights, or of their average."""
        raise NotImplementedError

    def norm2(self, average_scale: float = 0.0) -> float:
        if self._is_here:
            return super().norm2(average_scale)
        found: list[float] = self._cluster.results(self._cluster.start(self._norms(average_scale)))
        return sum(found)

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        if rows.n_rows:
            self._gather()
        super().score(rows, average_scale, tallies)

    def coefficients(self, columns: np.ndarray, *, average: bool) -> Coefficients:
        self._gather()
        return super().coefficients(columns, average=average)

    def _round(self, block: TrainingBlock, step: int, old: OldDuals) -> Round:
        """Describe the next round to its tasks."""
        return Round(Turn.of(block, step), self.averaging, self.tally[CLOCK], self._old_duals, old.scale)


def _only(features: np.ndarray) -> Rows:
    """Make a stand-in for rows, of which only the features are known."""
    none = np.zeros(0)
    return Rows(none, features, np.zeros(1, np.int64), np.zeros(0, np.int32), none, none)
