"""Arguments and results of the tasks of a cluster, and the reader of data on a worker.

Tasks are pure functions, which leave their arguments as they are.

A worker reads the blocks itself. It visits rows with weights of the features that they have, so that it
copies no others, and computes the very sums that threads do.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.cluster import worker
from streamsvm.cluster.worker_duals import DualLogs
from streamsvm.data.memory_plan import forget_peak, peak_private_memory
from streamsvm.data.rows import Rows
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.weights import Weights
from streamsvm.run.append_log import LogEnd
from streamsvm.run.dual_log import DualFiles, DualLog
from streamsvm.run.weights import map_array
from streamsvm.training.learner import features_of
from streamsvm.training.parallel.class_learner import DualList
from streamsvm.training.parallel.visitor import Visitor
from streamsvm.training.sources import ShuffledSource
from streamsvm.training.spec import Spec
from streamsvm.training.training import Training

_T = TypeVar("_T")

_SLICE_FEATURES = 2**12  # that are copied at a time
_BLOCKS_IN_MEMORY = 2  # of a worker


# -- reading on a worker -----------------------------------------------------------------------------


class _BlockReader:
    """Reader of a run's blocks, which keeps the last ones and reads the next one of the pass ahead."""

    def __init__(self, training: Training) -> None:
        forget_peak()
        self._store = training.data.open()
        self._blocks = training.blocks(self._store)
        self._source = ShuffledSource(self._blocks, training.spec.settings)
        self._threads = Threads(1, "streamsvm-read", background=True)
        self._rows: collections.OrderedDict[tuple[int, int], Future[Rows]] = collections.OrderedDict()
        self._order: tuple[int, list[int]] = (0, [])
        self._scored: tuple[int, Rows] | None = None
        self._duals: DualLog | None = None
        self._of_block: tuple[DualLog | None, int, Any] = None, 0, None
        self._bytes_told = 0
        self.new_duals = DualLogs()
        self._lock = threading.Lock()

    def dual_log(self, files: DualFiles) -> DualLog:
        """Open the log of the duals of the last pass."""
        with self._lock:
            if self._duals is None or self._duals.files != files:
                self._duals = DualLog(files)
                self._duals.find_parts()
            return self._duals

    def once_per_block(self, log: DualLog, block: int, find: Callable[[], _T]) -> _T:
        """Call `find` for the duals of a block, once for all tasks of that block."""
        with self._lock:
            if self._of_block[:2] != (log, block):
                self._of_block = log, block, find()
            found: _T = self._of_block[2]
            return found

    def rows(self, pass_number: int, number: int) -> Rows:
        with self._lock:
            if self._order[0] != pass_number:
                self._order = pass_number, self._source.order(pass_number).tolist()
            at = self._order[1].index(number)
            wanted = [(pass_number, block) for block in self._order[1][at : at + _BLOCKS_IN_MEMORY]]
            for key in wanted:
                if key not in self._rows:
                    try:
                        self._rows[key] = self._threads.submit(self._source.read, *key)
                    except RuntimeError as error:  # no thread can be started
                        raise MemoryError(str(error)) from None
            for key in [key for key in self._rows if key not in wanted]:
                del self._rows[key]
            found = self._rows[wanted[0]]
        return found.result()

    def to_score(self, number: int) -> Rows:
        """Read one block with the final costs; keep it, since its other parts are requested next."""
        with self._lock:
            if self._scored is None or self._scored[0] != number:
                self._scored = number, self._blocks.read(number)
            return self._scored[1]

    def newly_read(self) -> int:
        """Return the bytes read since the last call."""
        with self._lock:
            read = self._store.bytes_read - self._bytes_told
            self._bytes_told += read
            return read

    def forget(self) -> None:
        """Drop the rows in memory: another run has begun."""
        with self._lock:
            self._rows.clear()
            self._scored, self._of_block = None, (None, 0, None)

    def close(self) -> None:
        self.new_duals.close()
        self._threads.close()
        self._store.close()


# -- arguments and results of tasks -----------------------------------------------------------------


class Job(NamedTuple):
    """Facts of a run that all of its tasks need."""

    token: str  # names the run
    attempt: str  # names the training in the command: one that goes on from a commit writes other logs
    folder: Path  # the run directory
    training: Training
    spec: Spec  # of the learner: with an average if there is memory for it
    entries: int  # room for new duals
    pairs: ClassPairs | None

    def reader(self) -> _BlockReader:
        """Return this process's reader of the run, opened when it is first needed."""
        return worker.open_once(self.token, lambda: _BlockReader(self.training))

    def rows(self, round_: Round) -> Rows:
        """Read the rows of a block."""
        return self.reader().rows(round_.pass_number, round_.block)

    def own_pairs(self) -> ClassPairs | None:
        """Return a copy of the margins and costs of pairs: what is received cannot be written to."""
        return self.pairs and ClassPairs(*map(np.array, self.pairs))

    def weights_of(self, shard: WeightShard, *, averaged: bool) -> Weights:
        """Return a view of the weights for kernels that do not change them."""
        average = shard.average_delta
        if averaged and not len(average):
            average = np.zeros_like(shard.current)
        return Weights.create(shard.current, average, self.spec.time_unit, np.zeros((0, 2), np.uint64))

    def result(
        self, shards: Sequence[WeightShard], begin: float, tally: np.ndarray, **more: Any
    ) -> TaskResult:
        """Report a task that was given `shards` and began at a time of this thread's clock."""
        moved = sum(shard.nbytes for shard in shards if shard.worker != worker.own_address())
        seconds = time.thread_time() - begin
        return TaskResult(tally, seconds, moved, self.reader().newly_read(), peak_private_memory(), **more)


class Round(NamedTuple):
    """One round of visits to a block: of the pairs of groups, or of one half of each part of its rows."""

    pass_number: int
    block: int  # its number
    number: int  # of the round in the block
    read_work: int
    averaging: bool
    begins_average: bool
    clock: float  # of the average, unless results of earlier tasks have a later one
    permute: Callable[[int, int, int, int, int], np.ndarray]  # orders rows
    old_duals: DualFiles  # of the last pass
    dual_scale: float  # by which the old values are to be multiplied


class WeightShard(NamedTuple):
    """Weights in the memory of a worker: all columns, or those of one group."""

    current: np.ndarray  # (n_features, K)
    average_delta: np.ndarray  # the same shape; or (0, K)
    worker: str = ""
    duals: DualList | None = None  # of the group's own rows for its own classes, within a block

    @property
    def nbytes(self) -> int:
        return self.current.nbytes + self.average_delta.nbytes

    def copy(self, *, averaging: bool, begins_average: bool) -> WeightShard:
        """Copy the weights and, while an average is formed, its delta, which is zero at first."""
        average = self.average_delta[:0]
        if averaging:
            kept = len(self.average_delta) and not begins_average
            average = self.average_delta.copy() if kept else np.zeros_like(self.current)
        return WeightShard(self.current.copy(), average, worker.own_address(), self.duals)


LogPosition = tuple[str, LogEnd]  # the name of a log, and how far it has come


class TaskResult(NamedTuple):
    """Report of a task to the command: sums over its rows, and the costs of the task."""

    tally: np.ndarray  # of its visits; or one for each part that it scored
    seconds: float  # of the processor
    moved: int  # bytes of weights that came from another worker
    read: int  # bytes of the store, decoded, since this process reported last
    peak: int  # memory of the worker
    log: LogPosition | None = None  # of the new duals, if there are any
    sums: dict[tuple[int, int], float] = {}  # noqa: RUF012  # of the dual objective, by groups of rows and classes


def zeros(n_features: int, columns: int, dtype: np.dtype) -> WeightShard:
    """Return the weights of a training that has not begun."""
    return WeightShard(np.zeros((n_features, columns), dtype), np.zeros((0, columns), dtype))


def scaled(shard: WeightShard, factor: float) -> WeightShard:
    """Return weights multiplied by a factor, before an average begins."""
    current = shard.current * shard.current.dtype.type(factor)
    return shard._replace(current=current, worker=worker.own_address())


def take(results: Sequence[Any], at: int) -> Any:
    """Select one item of a task's result, so that only it is transferred."""
    return results[at]


def new_visitor(job: Job, columns: int, n_rows: int) -> Visitor:
    """Make a visitor of weights with so many columns, which copies its new duals when threads would."""
    entries = job.entries and job.entries - job.spec.columns + columns
    return Visitor(job.spec, columns, entries, n_rows, job.own_pairs())


def local_weights(features: np.ndarray, shards: Sequence[WeightShard], round_: Round, job: Job) -> Weights:
    """Copy the weights of some features, those of all shards side by side."""
    dtype = shards[0].current.dtype
    shape = len(features), sum(each.current.shape[1] for each in shards)
    current = map_array(None, shape, dtype)
    for some in in_slices(len(features)):
        np.concatenate([each.current[features[some]] for each in shards], axis=1, out=current[some])
    average = map_array(None, shape if round_.averaging else (0, shape[1]), dtype)
    if round_.averaging and not round_.begins_average:
        for each, columns in zip(shards, np.split(average, bounds_of(shards)[1:-1], axis=1), strict=True):
            if len(each.average_delta):
                columns[:] = each.average_delta[features]
    none = np.zeros((0, 2), np.uint64)
    return Weights.create(current, average, job.spec.time_unit if round_.averaging else np.inf, none)


def in_slices(n: int) -> Iterator[slice]:
    """Cut `n` features into slices: indexing copies, and a copy of all weights may not fit into memory."""
    return (slice(begin, begin + _SLICE_FEATURES) for begin in range(0, n, _SLICE_FEATURES))


def bounds_of(shards: Sequence[WeightShard]) -> np.ndarray:
    """Return the first columns of shards that stand side by side, and the number of all columns."""
    return np.cumsum([0, *(each.current.shape[1] for each in shards)])


def renumbered(rows: Rows, n_features: int) -> tuple[np.ndarray, Rows]:
    """Return the features of rows, ascending, and the rows with these numbered from 0 on."""
    features = features_of(rows, n_features)
    numbers = np.zeros(n_features, rows.features.dtype)
    numbers[features] = np.arange(len(features))
    return features, rows._replace(indices=numbers[rows.features])
