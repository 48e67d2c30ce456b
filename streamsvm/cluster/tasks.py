"""Arguments and results of cluster tasks, and the reader of blocks on a worker.

Tasks do not modify their arguments. A worker reads blocks itself, and copies only the weights of the features
in its rows. Sums are the same as in threads, bit for bit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.cluster import worker
from streamsvm.data.memory_plan import forget_peak, peak_private_memory
from streamsvm.data.rows import Rows
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.duals import RowDuals
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.weights import Weights
from streamsvm.training.parallel.split_learner import Turn
from streamsvm.training.sources import ShuffledSource
from streamsvm.training.spec import Spec
from streamsvm.training.training import Training
from streamsvm.training.visitor import Visitor, VisitPlan

_SLICE_FEATURES = 2**12
_BLOCKS_IN_MEMORY = 2  # number of blocks that a worker keeps


class _BlockReader:
    """Reader of a run's blocks, which caches blocks and prefetches the next block of the pass."""

    def __init__(self, training: Training, pairs: ClassPairs | None) -> None:
        forget_peak()
        self.pairs = pairs and ClassPairs(*map(np.array, pairs))  # received arrays are read-only
        self._store = training.open()
        self._blocks = training.blocks(self._store)
        self._source = ShuffledSource(self._blocks, training.spec.settings)
        self._threads = Threads(1, "streamsvm-read", background=True)
        self._rows: dict[tuple[int, int], Future[Rows]] = {}
        self._order: tuple[int, list[int]] = (0, [])
        self._scored: tuple[int, Rows] | None = None
        self._bytes_reported = 0
        self._lock = threading.Lock()

    def rows(self, turn: Turn) -> Rows:
        with self._lock:
            if self._order[0] != turn.pass_number:
                self._order = turn.pass_number, self._source.order(turn.pass_number).tolist()
            at = self._order[1].index(turn.block)
            keys = [(turn.pass_number, block) for block in self._order[1][at : at + _BLOCKS_IN_MEMORY]]
            for key in keys:
                if key not in self._rows:
                    self._rows[key] = self._threads.submit(self._source.read, *key)
            self._rows = {key: self._rows[key] for key in keys}
            future = self._rows[keys[0]]
        return future.result()

    def to_score(self, number: int) -> Rows:
        """Read a block with its final costs, and keep it for tasks that score other parts of it."""
        with self._lock:
            if self._scored is None or self._scored[0] != number:
                self._scored = number, self._threads.submit(self._blocks.read, number).result()
            return self._scored[1]

    def newly_read(self) -> int:
        """Return the number of bytes read since the last call."""
        with self._lock:
            read = self._store.bytes_read - self._bytes_reported
            self._bytes_reported += read
            return read

    def close(self) -> None:
        self._threads.close()
        self._store.close()


class Job(NamedTuple):
    """Data that all tasks of a run need."""

    token: str
    training: Training
    plan: VisitPlan  # its specification includes an average if memory permits

    @property
    def spec(self) -> Spec:
        return self.plan.spec

    def reader(self) -> _BlockReader:
        """Return the reader of the run in this process; open it on the first call."""
        return worker.open_once(self.token, lambda: _BlockReader(self.training, self.plan.pairs))

    def weights_of(self, shard: WeightShard, *, averaged: bool) -> Weights:
        """Return a view of the weights for kernels that do not modify them."""
        average = shard.average_delta
        if averaged and not len(average):
            average = np.zeros_like(shard.current)
        return Weights(shard.current, average, self.spec.time_unit)

    def result(
        self, shards: Sequence[WeightShard], begin: float, tally: np.ndarray, duals: Sequence[RowDuals] = ()
    ) -> TaskResult:
        """Return the report of a task that received `shards` and began at `begin` on this thread's clock."""
        moved = sum(shard.nbytes for shard in shards if shard.worker != worker.own_address())
        seconds = time.thread_time() - begin
        read = self.reader().newly_read()
        return TaskResult(tally, seconds, moved, read, peak_private_memory(), list(duals))


class WeightShard(NamedTuple):
    """Weights in the memory of a worker: all columns, or the columns of one group."""

    current: np.ndarray  # (n_features, K)
    average_delta: np.ndarray  # the same shape; or (0, K)
    worker: str = ""
    duals: RowDuals | None = None  # within a block: duals of the group's rows for the group's classes

    @property
    def nbytes(self) -> int:
        return self.current.nbytes + self.average_delta.nbytes

    @classmethod
    def of(cls, weights: Weights, columns: slice) -> WeightShard:
        current, average = (np.ascontiguousarray(matrix[:, columns]) for matrix in weights[:2])
        return cls(current, average, worker.own_address())

    def copy(self, *, averaging: bool) -> WeightShard:
        """Copy the weights and, if `averaging` is True, the average delta, or zeros if there is none."""
        average = self.average_delta[:0]
        if averaging:
            average = self.average_delta.copy() if len(self.average_delta) else np.zeros_like(self.current)
        return WeightShard(self.current.copy(), average, worker.own_address(), self.duals)


class TaskResult(NamedTuple):
    """Report of a task to the main process: sums over its rows, and its costs."""

    tally: np.ndarray
    seconds: float  # processor time
    moved: int  # bytes of weights from other workers
    read: int  # decoded bytes read from the store since the last report of this process
    peak: int
    duals: list[RowDuals]  # new duals of a part of a block; row numbers are relative to the block


def zeros(n_features: int, columns: int, dtype: np.dtype) -> WeightShard:
    """Return weights of zeros, without an average."""
    return WeightShard(np.zeros((n_features, columns), dtype), np.zeros((0, columns), dtype))


def scaled(shard: WeightShard, factor: float) -> WeightShard:
    current = shard.current * shard.current.dtype.type(factor)
    return shard._replace(current=current, worker=worker.own_address())


def without_average(shard: WeightShard) -> WeightShard:
    return shard._replace(average_delta=shard.average_delta[:0])


def norm2_of(job: Job, shard: WeightShard, average_scale: float, n_classes: int) -> float:
    """Return ‖w‖² of the first `n_classes` columns, for averaged weights unless `average_scale` is 0."""
    weights = job.weights_of(shard, averaged=average_scale > 0)
    problem, sums = Problem(n_classes, job.spec.settings.margin), np.zeros(1)
    job.spec.loss.kernels.norm2(weights, average_scale, None, problem, sums)
    return float(sums[0])


def new_visitor(job: Job, columns: int, n_rows: int) -> Visitor:
    """Return a visitor for `columns` weight columns, whose dual buffer fills up as often as in a thread."""
    entries = job.plan.dual_entries and job.plan.dual_entries - job.spec.columns + columns
    plan = job.plan._replace(dual_entries=entries, n_rows=n_rows, pairs=job.reader().pairs)
    return Visitor(plan, columns)


def in_slices(n: int) -> Iterator[slice]:
    """Yield slices of `n` features, whose weights fit into memory even if a copy of all weights does not."""
    return (slice(begin, begin + _SLICE_FEATURES) for begin in range(0, n, _SLICE_FEATURES))
