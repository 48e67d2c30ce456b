"""Weights in the memory of the workers of a cluster.

Weights are futures, which the workers pass on among themselves. The command sends each task the old duals of
its rows, and gets the new ones back. It fetches the weights to commit, to measure and for the model; so the
workers need nothing of the run directory.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from streamsvm.base.threads import WorkersLost
from streamsvm.cluster import worker
from streamsvm.cluster.tasks import (
    Job,
    Round,
    TaskResult,
    WeightShard,
    in_slices,
    norm2_of,
    scaled,
    without_average,
    zeros,
)
from streamsvm.data.rows import Rows
from streamsvm.kernels.duals import OldDuals
from streamsvm.kernels.tally import CLOCK
from streamsvm.kernels.update import mark_rows_dirty
from streamsvm.kernels.weights import add_up
from streamsvm.model.coefficients import Coefficients
from streamsvm.training.learner import Learner
from streamsvm.training.parallel.executor import Executor
from streamsvm.training.parallel.split_learner import Turn
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.training import Training

# Counts of a pass before its first task, by their names in the record of the pass.
_ZERO_COUNTS = {
    "worker_tasks": 0, "worker_seconds": 0.0, "worker_peak_memory_bytes": 0, "moved_bytes": 0,
    "waited_for_workers_seconds": 0.0, "worker_bytes_read": 0, "gathered_bytes": 0,
}  # fmt: skip


class OnCluster(Learner):
    """Base of the learners of a cluster, whose workers have the weights in their memory.

    Weights may be in two places: with the workers (`_shards`), and in the storage (`_is_here`). After a visit
    the new weights are with the workers alone.
    """

    _cluster: Executor
    _shards: list[Any] | None = None  # futures of `WeightShard`
    _is_here = True
    entries: int  # room for new duals

    def use(self, cluster: Executor, training: Training) -> Self:
        """Let the workers of a cluster do the work."""
        self._cluster, self._counted = cluster, dict(_ZERO_COUNTS)
        self._job_facts = Job(cluster.token, training, self.spec, self.entries, self.pairs)
        return self

    def compile(self, rows: Rows, old: OldDuals) -> None:
        """Compile the kernels of visits here, so that workers on this machine load them."""
        self.compile_visits(rows, old)

    @functools.cached_property
    def _job(self) -> Any:
        """Return the future of the facts that all tasks need."""
        [held] = self._cluster.start([self._cluster.task("settings", worker.hold, self._job_facts)])
        return held

    # -- weights with the workers, and in the storage ------------------------------------------------

    def _columns(self) -> list[tuple[int, int]]:
        """List the first and last column of each shard."""
        raise NotImplementedError

    def _find_slots(self) -> None:
        """Find out which workers are there."""
        self._slots = self._cluster.slots
        if not self._slots:
            raise WorkersLost("no worker is left")

    def _places(self, count: int) -> list[str]:
        """Choose the workers of so many pieces of work, neighbours on the same one, by their threads."""
        return [self._slots[at * len(self._slots) // count] for at in range(count)]

    def _put(self, values: Sequence[Any], places: Sequence[str]) -> list[Any]:
        """Send each value to a worker, and return references to them."""
        found: dict[int, Any] = {}
        for worker_ in sorted(set(places)):
            at = [n for n, place in enumerate(places) if place == worker_]
            found |= zip(at, self._cluster.put([values[n] for n in at], worker_), strict=True)
        return [found[n] for n in range(len(values))]

    def _find_shards(self) -> list[Any]:
        """Return the futures of the weights; if there are none yet, of those in the storage."""
        if self._shards is None:
            self._find_slots()
            shards: list[Any] = []
            weights, columns = self.storage.weights, self._columns()
            for (begin, end), at in zip(columns, self._places(len(columns)), strict=True):
                current = weights.current[:, begin:end]
                if current.any():
                    average = weights.average_delta[:, begin:end] if self.averaging else current[:0]
                    shard = WeightShard(np.ascontiguousarray(current), np.ascontiguousarray(average))
                    shards += self._cluster.put([shard], at)
                else:
                    zero = self._cluster.task("weights", zeros, *current.shape, current.dtype)
                    shards += self._cluster.start([zero])
            self._shards = shards
        return self._shards

    def _replace_shards(self, shards: list[Any]) -> None:
        """Take the futures of new weights."""
        self._shards, self._is_here = shards, False

    def fetch_weights(self) -> None:
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

    def scale(self, factor: float) -> None:
        if factor != 1:
            self._change("scale", scaled, factor)

    def _change(self, name: str, function: Callable[..., WeightShard], *arguments: Any) -> None:
        """Replace the weights by what a function makes of each shard."""
        tasks = [self._cluster.task(name, function, shard, *arguments) for shard in self._find_shards()]
        self._replace_shards(self._cluster.start(tasks))

    # -- counts ------------------------------------------------------------------------------------

    def _results(self, futures: list[Any]) -> list[Any]:
        """Wait for the results of visits."""
        begin = time.perf_counter()
        found = self._cluster.results(futures)
        self._counted["waited_for_workers_seconds"] += time.perf_counter() - begin
        return found

    def _count(self, results: Sequence[TaskResult]) -> None:
        """Add up the costs of tasks."""
        counted = self._counted
        for result in results:
            counted["worker_tasks"] += 1
            counted["worker_seconds"] += result.seconds
            counted["moved_bytes"] += result.moved
            counted["worker_bytes_read"] += result.read
            counted["worker_peak_memory_bytes"] = max(counted["worker_peak_memory_bytes"], result.peak)

    def work_of_pass(self) -> dict[str, float]:
        counted, self._counted = self._counted, dict(_ZERO_COUNTS)
        return {"workers": len(set(self._cluster.slots)), **counted}

    # -- norms and scores --------------------------------------------------------------------------

    def begin_average(self) -> None:
        super().begin_average()
        if self._shards is not None:
            self._change("average", without_average)

    def norm2(self, average_scale: float = 0.0) -> float:
        if self._is_here:
            return super().norm2(average_scale)
        sizes = [min(int(end), self.problem.n_classes) - int(first) for first, end, _ in self.problem.ranges]
        tasks = [
            self._cluster.task("norm", norm2_of, self._job, shard, average_scale, n_classes)
            for shard, n_classes in zip(self._find_shards(), sizes, strict=False)
        ]
        return add_up(self._cluster.results(self._cluster.start(tasks)))

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        if rows.n_rows:
            self.fetch_weights()
        super().score(rows, average_scale, tallies)

    def coefficients(self, columns: np.ndarray, *, average: bool) -> Coefficients:
        self.fetch_weights()
        return super().coefficients(columns, average=average)

    def _round(self, block: TrainingBlock, step: int) -> Round:
        """Describe the next round to its tasks."""
        return Round(Turn.of(block, step), self.averaging, self.tally[CLOCK])


def _only(features: np.ndarray) -> Rows:
    """Make a stand-in for rows, of which only the features are known."""
    none = np.zeros(0)
    return Rows(none, features, np.zeros(1, np.int64), np.zeros(0, np.int32), none, none)
