"""Weights in the memory of the workers of a cluster.

The main process has only futures of the weights, which workers send to one another. It sends old duals with
each task, receives new duals, and fetches the weights for commits, evaluation and the model.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base.threads import WorkersLost
from streamsvm.cluster import worker
from streamsvm.cluster.tasks import (
    Job,
    TaskResult,
    WeightShard,
    in_slices,
    norm2_of,
    scaled,
    without_average,
    zeros,
)
from streamsvm.data.blocks import Blocks
from streamsvm.data.rows import Rows
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.weights import Weights
from streamsvm.model.coefficients import Coefficients
from streamsvm.run.weights import WeightStorage
from streamsvm.training.parallel.executor import Executor

# Initial counts of a pass, by their names in the pass record.
_ZERO_COUNTS: dict[str, float] = {
    "worker_tasks": 0, "worker_seconds": 0.0, "worker_peak_memory_bytes": 0, "moved_bytes": 0,
    "waited_for_workers_seconds": 0.0, "worker_bytes_read": 0, "gathered_bytes": 0,
}  # fmt: skip


class ShardedWeights(WeightStorage):
    """Weights in the memory of the workers; reading the property `weights` fetches them if they changed.

    `storage` receives the fetched weights. `blocks` is the training data, which the workers can also read.
    """

    def __init__(self, storage: WeightStorage, cluster: Executor, blocks: Blocks, job_data: Job) -> None:
        self._storage, self.cluster, self.blocks, self._job_data = storage, cluster, blocks, job_data
        self._shards: list[Any] | None = None  # futures of `WeightShard`
        self._is_fetched = True
        self.work: dict[str, float] = dict(_ZERO_COUNTS)
        groups = job_data.spec.groups
        ranges = [[0, 0, job_data.spec.columns]] if groups is None else groups.ranges.tolist()
        self._columns = [slice(begin, end) for begin, _, end in ranges]

    @property
    def n_features(self) -> int:
        return self._storage.n_features

    @property
    def weights(self) -> Weights:  # type: ignore[override]
        self._fetch()
        return self._storage.weights

    def _fetch(self) -> None:
        if self._is_fetched or self._shards is None:
            return
        for columns, future in zip(self._columns, self._shards, strict=False):
            (shard,) = self.cluster.results([future])
            self._store_shard(shard, columns)
            self.work["gathered_bytes"] += shard.nbytes
        self._is_fetched = True

    @functools.cached_property
    def job(self) -> Any:
        """Future of the data that all tasks need."""
        [future] = self.cluster.start([self.cluster.task("settings", worker.identity, self._job_data)])
        return future

    def find_slots(self) -> None:
        """Update the list of workers; raise `WorkersLost` if there are none."""
        self._slots = self.cluster.slots
        if not self._slots:
            raise WorkersLost("the cluster has no workers left")
        self.work["workers"] = len(set(self._slots))

    def choose_workers(self, count: int) -> list[str]:
        """Return a worker for each of `count` tasks, in proportion to the threads of the workers."""
        return [self._slots[number * len(self._slots) // count] for number in range(count)]

    def put(self, values: Sequence[Any], addresses: Sequence[str]) -> list[Any]:
        futures: dict[int, Any] = {}
        for worker_ in sorted(set(addresses)):
            positions = [n for n, address in enumerate(addresses) if address == worker_]
            futures |= zip(positions, self.cluster.put([values[n] for n in positions], worker_), strict=True)
        return [futures[n] for n in range(len(values))]

    def find_shards(self, *, averaging: bool) -> list[Any]:
        """Return the futures of the weights; if there are none yet, send the weights of this process."""
        if self._shards is None:
            self.find_slots()
            shards: list[Any] = []
            weights = self._storage.weights
            for columns, at in zip(self._columns, self.choose_workers(len(self._columns)), strict=True):
                current = weights.current[:, columns]
                if current.any():
                    average = weights.average_delta[:, columns] if averaging else current[:0]
                    shard = WeightShard(np.ascontiguousarray(current), np.ascontiguousarray(average))
                    shards += self.cluster.put([shard], at)
                else:
                    zero = self.cluster.task("weights", zeros, *current.shape, current.dtype)
                    shards += self.cluster.start([zero])
            self._shards = shards
        return self._shards

    def replace_shards(self, shards: list[Any]) -> None:
        self._shards, self._is_fetched = shards, False

    def _store_shard(self, shard: WeightShard, columns: slice) -> None:
        weights, bits = self._storage.weights, np.dtype(f"u{shard.current.itemsize}")
        arrays = [(weights.current[:, columns], shard.current)]
        if len(shard.average_delta):
            arrays.append((weights.average_delta[:, columns], shard.average_delta))
        differs = np.zeros(len(shard.current), np.bool_)
        for part in in_slices(len(differs)):
            for stored, fetched in arrays:
                differs[part] |= (stored[part].view(bits) != fetched[part].view(bits)).any(axis=1)
        features = np.flatnonzero(differs)  # unchanged rows may be holes in a file
        self._storage.check_room(_only(features))
        for stored, fetched in arrays:
            for part in in_slices(len(features)):
                stored[features[part]] = fetched[features[part]]

    def scale(self, factor: float) -> None:
        if factor != 1:
            self._change("scale", self.find_shards(averaging=False), scaled, factor)

    def begin_average(self) -> None:
        self._storage.begin_average()
        if self._shards is not None:
            self._change("average", self._shards, without_average)

    def _change(
        self, name: str, shards: list[Any], function: Callable[..., WeightShard], *arguments: Any
    ) -> None:
        tasks = [self.cluster.task(name, function, shard, *arguments) for shard in shards]
        self.replace_shards(self.cluster.start(tasks))

    def squares(self, norm2: Callable[..., None], problem: Problem, average_scale: float) -> list[float]:
        if self._is_fetched or self._shards is None:
            return self._storage.squares(norm2, problem, average_scale)
        sizes = [min(int(end), problem.n_classes) - int(first) for first, end, _ in problem.ranges]
        tasks = [
            self.cluster.task("norm", norm2_of, self.job, shard, average_scale, n_classes)
            for shard, n_classes in zip(self._shards, sizes, strict=False)
        ]
        return self.cluster.results(self.cluster.start(tasks))

    def state(self) -> Iterator[np.ndarray]:
        self._fetch()
        return self._storage.state()

    def restore(self, path: Path) -> None:
        self._storage.restore(path)

    def coefficients(self, average_scale: float | None, columns: np.ndarray) -> Coefficients:
        self._fetch()
        return self._storage.coefficients(average_scale, columns)

    def end_pass(self) -> None:
        self.work.update(_ZERO_COUNTS)

    def results(self, futures: list[Any]) -> list[Any]:
        begin = time.perf_counter()
        results = self.cluster.results(futures)
        self.work["waited_for_workers_seconds"] += time.perf_counter() - begin
        return results

    def count(self, results: Sequence[TaskResult]) -> None:
        """Add the costs of tasks to the counts of the pass."""
        work = self.work
        for result in results:
            work["worker_tasks"] += 1
            work["worker_seconds"] += result.seconds
            work["moved_bytes"] += result.moved
            work["worker_bytes_read"] += result.read
            work["worker_peak_memory_bytes"] = max(work["worker_peak_memory_bytes"], result.peak)


def _only(features: np.ndarray) -> Rows:
    none = np.zeros(0)
    return Rows(none, features, np.zeros(1, np.int64), np.zeros(0, np.int32), none, none)
