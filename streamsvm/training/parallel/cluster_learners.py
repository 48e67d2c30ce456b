"""Learners whose work is done by the workers of a cluster: the same bytes as those that use threads.

The weights are futures, which the workers hold and pass on among themselves. They come to this process when
it measures; and when it commits, unless the workers reach the run directory. Then these write weights and
duals there themselves.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.cluster import Cluster
from streamsvm.coefficients import Coefficients
from streamsvm.data.rows import Rows
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.dual_lists import joined, span_of
from streamsvm.kernels.duals import NewDuals, OldDuals, RowDuals
from streamsvm.kernels.tally import CLOCK, DUAL_SUM
from streamsvm.kernels.update import mark_rows_dirty
from streamsvm.run.append_log import LogEnd
from streamsvm.settings import Settings
from streamsvm.training.learner import Learner
from streamsvm.training.parallel.class_groups import ClassGroups
from streamsvm.training.parallel.class_learner import BlockDuals, ClassSplitLearner
from streamsvm.training.parallel.cluster_logs import write_weights
from streamsvm.training.parallel.cluster_pairs import centre_group, keys_of, sum_group, visit_pair
from streamsvm.training.parallel.cluster_parts import add_moved, norm2_of, score_parts, sum_moved, visit_part
from streamsvm.training.parallel.cluster_tasks import Held, Job, Logs, Place, Told, Work, hold, take, zeros
from streamsvm.training.parallel.row_learner import ROUNDS, RowSplitLearner, rows_after
from streamsvm.training.parallel.split_learner import SCORED_PARTS
from streamsvm.training.sources import Block
from streamsvm.training.training_data import TrainingData

_BLOCKS_AHEAD = 2  # that are scored before the result of one is awaited


@dataclasses.dataclass
class _Counted:
    """What the workers did in a pass."""

    tasks: int = 0
    busy: float = 0.0
    waited: float = 0.0
    moved: int = 0
    gathered: int = 0
    peak: int = 0


class _OnCluster(Learner):
    """What both learners have in common: weights that are held by the workers."""

    _cluster: Cluster
    _held: list[Any] | None = None  # futures of `Held`; none before the first visits
    _is_here = True  # whether the storage has the weights, too
    _begins_average = False
    _counted = _Counted()
    _logs: Logs | None = None

    def _on(self, cluster: Cluster, job: Job, folder: Path | None) -> None:
        self._cluster, self._job_facts, self._counted = cluster, job, _Counted()
        self._job: Any = None
        self._folder, self._attempt = folder, uuid.uuid4().hex

    # -- the weights, there and here ---------------------------------------------------------------

    def _columns(self) -> list[tuple[int, int]]:
        """The columns of the weights that belong together, as they are held."""
        raise NotImplementedError

    def _places(self, count: int) -> list[str]:
        """The workers of so many pieces of work, neighbours on the same one."""
        workers = self._workers_there
        return [workers[at * len(workers) // count] for at in range(count)]

    def _send(self) -> list[Any]:
        """Futures of the weights, from those in the storage."""
        if self._job is None:
            (self._job,) = self._cluster.start([self._cluster.task("job", hold, self._job_facts)])
        weights, tasks = self.storage.weights, []
        self._is_here, self._workers_there = True, self._cluster.workers
        for begin, end in self._columns():
            current = weights.current[:, begin:end]
            if not current.any():
                tasks.append(self._cluster.task("weights", zeros, len(current), end - begin, current.dtype))
                continue
            average = weights.average_delta[:, begin:end] if self.averaging else current[:0]
            held = Held(np.ascontiguousarray(current), np.ascontiguousarray(average))
            tasks.append(self._cluster.task("weights", hold, held))
        return self._cluster.start(tasks)

    def _gather(self) -> None:
        """Bring the weights into the storage."""
        if self._held is None or self._is_here:
            return
        weights = self.storage.weights
        rows: Any = slice(None)
        if len(weights.dirty):
            rows = np.flatnonzero(weights.dirty[:, 0])
            self.storage.check_room(_only(rows))
        for (begin, end), future in zip(self._columns(), self._held, strict=False):
            (held,) = self._results([future])
            weights.current[rows, begin:end] = held.current[rows]
            if self.averaging and len(held.average_delta):
                weights.average_delta[rows, begin:end] = held.average_delta[rows]
            self._counted.gathered += held.nbytes
        self._is_here = True

    def scale(self, factor: float) -> None:
        if factor != 1:
            self._gather()
            self._held = None
            super().scale(factor)

    def write_weights(self, number: int) -> dict[str, LogEnd] | None:
        if self._folder is None or self._held is None:
            self._gather()
            return None
        tasks = [
            self._cluster.task(
                "write", write_weights, self._job, self._folder, number, held, features, column, at=at
            )
            for held, features, column, at in self._shares()
        ]  # fmt: skip
        return dict(self._results(self._cluster.start(tasks)))

    def _shares(self) -> list[tuple[Any, tuple[int, int], int, str]]:
        """What to write of the weights, and where: futures, their features, the first column, and workers."""
        raise NotImplementedError

    # -- duals in the run directory ----------------------------------------------------------------

    def read_duals(self, log: Any, block: int, n_rows: int) -> OldDuals:
        if self._folder is None:
            return super().read_duals(log, block, n_rows)
        self._old_files = log.files
        none = RowDuals.none(log.files.ids_dtype, log.files.values_dtype)
        return joined([none], 0, 0)  # the workers read them

    def _begin_block(self, old: OldDuals, keep: NewDuals | None) -> None:
        """Find out who is there, and where the duals are."""
        self._workers_there = self._cluster.workers
        if self._folder is not None:
            folder = None if keep is None else self._folder
            self._logs = Logs(self._old_files, old.scale, folder, self._attempt)

    def _keep_written(self, told: Told, keep: NewDuals | None) -> None:
        if told.written is not None and keep is not None:
            keep.add_worker_log(*told.written)

    def _results(self, futures: list[Any]) -> list[Any]:
        begin = time.perf_counter()
        found = self._cluster.results(futures)
        self._counted.waited += time.perf_counter() - begin
        return found

    def _count(self, work: Work) -> None:
        counted = self._counted
        counted.tasks += 1
        counted.busy += work.seconds
        counted.moved += work.moved
        counted.peak = max(counted.peak, work.peak)

    def work_of_pass(self) -> dict[str, float]:
        counted, self._counted = self._counted, _Counted()
        return {
            "workers": len(self._cluster.workers),
            "worker_tasks": counted.tasks,
            "worker_seconds": counted.busy,
            "worker_peak_memory_bytes": counted.peak,
            "waited_for_workers_seconds": counted.waited,
            "moved_bytes": counted.moved,
            "gathered_bytes": counted.gathered,
        }

    # -- what needs the weights here ---------------------------------------------------------------

    def begin_average(self) -> None:
        super().begin_average()
        self._begins_average = True

    def norm2(self, average_scale: float = 0.0) -> float:
        self._gather()
        return super().norm2(average_scale)

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        self._gather()
        super().score(rows, average_scale, tallies)

    def coefficients(self, columns: np.ndarray, *, average: bool) -> Coefficients:
        self._gather()
        return super().coefficients(columns, average=average)

    def _place(self, block: Block, step: int) -> Place:
        """Of the next visits."""
        begins, self._begins_average = self._begins_average, False
        return Place(
            block.pass_number, block.number, step, block.was_read, self.averaging, begins, self.tally[CLOCK],
            block.permute, self._logs,
        )  # fmt: skip


class ClusterClassLearner(_OnCluster, ClassSplitLearner):
    """`ClassSplitLearner` on a cluster: groups of columns move from worker to worker, and meet there.

    All matchdays of a block are one graph of tasks: a pair begins when its groups have ended their last one.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Any,
        n_classes: int,
        groups: ClassGroups,
        cluster: Cluster,
        data: TrainingData,
        dual_entries: int,
        block_rows: int,
        folder: Path | None,
    ) -> None:
        super().__init__(settings, storage, n_classes, groups, cluster.threads, dual_entries, block_rows)
        self._on(cluster, Job(
            cluster.token, data, settings, storage.n_features, n_classes, groups.n_columns,
            max(dual_entries, groups.n_columns), np.min_scalar_type(groups.n_columns - 1),
            storage.weights.time_unit, groups,
        ), folder)  # fmt: skip

    def _columns(self) -> list[tuple[int, int]]:
        return [(int(begin), int(end)) for begin, _, end in self._groups.ranges]

    def _shares(self) -> list[tuple[Any, tuple[int, int], int, str]]:
        assert self._held is not None
        features, places = (0, self.storage.n_features), self._places(len(self._held))
        columns = self._columns()
        return [
            (held, features, begin, at)
            for held, (begin, _), at in zip(self._held, columns, places, strict=True)
        ]

    def _block_duals(self, rows: Rows, old: OldDuals) -> Any:
        self._told: list[Told] = []
        return super()._block_duals(rows, old) if self._folder is None else None

    def _end_block(self, block: Block, rows: Rows, duals: BlockDuals, keep: NewDuals | None) -> None:
        sums = {key: value for told in self._told for key, value in told.sums.items()}
        for key in sorted(sums):
            self.tally[DUAL_SUM] += sums[key]
        for told in self._told:
            self._keep_written(told, keep)
        if keep is not None and self._folder is None:
            for part in duals.parts():
                keep.append_duals(block.number, part.as_buffer())

    def learn(
        self,
        block: Block,
        rows: Rows,
        old: OldDuals,
        keep: NewDuals | None,
        next_pause: Callable[[int], int],
    ) -> Iterator[int]:
        self._begin_block(old, keep)
        yield from super().learn(block, rows, old, keep, next_pause)

    def _visit_days(
        self, block: Block, rows: Rows, duals: BlockDuals | None, days: range
    ) -> Iterator[tuple[int, np.ndarray]]:
        cluster = self._cluster
        held = self._send() if self._held is None else list(self._held)
        clock, told = self.tally[CLOCK], []
        works: list[Any] = []
        for day in days:
            place, is_last = self._place(block, day), day + 1 == len(self._days)
            before, works = works, []
            pairs = self._days[day]
            for pair, at in zip(pairs, self._places(len(pairs)), strict=True):
                g, h = pair
                lists = None
                if duals is not None:
                    lists = {(a, b): duals.lists[a][b] for a, b in keys_of(pair, diagonal=day == 0)}
                found = cluster.task(
                    "pair",
                    visit_pair,
                    self._job,
                    place,
                    pair,
                    held[g],
                    held[h],
                    lists,
                    before,
                    is_last,
                    at=at,
                )
                held[g], held[h] = (cluster.task("take", take, found, n, at=at) for n in range(2))
                told.append(cluster.task("duals", take, found, 2, at=at))
                if self.averaging:
                    works.append(cluster.task("clock", take, found, 3, at=at))
            if self.loss.centred:
                self._centre_groups(place, held)
        started = cluster.start([*held, *told])
        self._held, self._is_here = started[: len(held)], False
        found = iter(self._results(started[len(held) :]))
        lists_here: Any = duals and duals.lists
        for day in days:
            tallies = []
            for _ in self._days[day]:
                one = next(found)
                self._told.append(one)
                work = one.work
                for (g, h), part in one.duals.items():
                    lists_here[g][h] = part
                if not self.averaging:  # then no pair waits for the clocks of the day before
                    work.tally[CLOCK] += self.tally[CLOCK] - clock
                tallies.append(work.tally)
                self._count(work)
            yield day, np.array(tallies)

    def _centre_groups(self, place: Place, held: list[Any]) -> None:
        """Replace the groups by those without the mean over all classes, which each of them waits for."""
        cluster, at = self._cluster, self._places(len(held))
        groups = list(zip(held, at, strict=True))
        sums = [cluster.task("sum", sum_group, self._job, place, group, at=there) for group, there in groups]
        for g, (group, there) in enumerate(groups):
            held[g] = cluster.task("centre", centre_group, self._job, place, g, group, sums, at=there)


class ClusterRowLearner(_OnCluster, RowSplitLearner):
    """`RowSplitLearner` on a cluster: each worker has all weights, to which it adds what all have found.

    What the parts have found is summed up among the workers.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Any,
        n_classes: int,
        pairs: ClassPairs | None,
        cluster: Cluster,
        data: TrainingData,
        dual_entries: int,
        block_rows: int,
        ids_dtype: np.dtype,
        bytes_of_bits: int,
        folder: Path | None,
    ) -> None:
        super().__init__(
            settings,
            storage,
            n_classes,
            pairs,
            cluster.threads,
            dual_entries,
            block_rows,
            ids_dtype,
            bytes_of_bits,
        )
        entries = max(dual_entries, n_classes) if dual_entries else 0
        columns = storage.weights.current.shape[1]
        self._on(cluster, Job(
            cluster.token, data, settings, storage.n_features, n_classes, columns, entries, ids_dtype,
            storage.weights.time_unit, None, bytes_of_bits, pairs,
        ), folder)  # fmt: skip

    def _columns(self) -> list[tuple[int, int]]:
        return [(0, self.storage.weights.current.shape[1])]

    def _shares(self) -> list[tuple[Any, tuple[int, int], int, str]]:
        assert self._held is not None
        copies = sorted(set(self._places(self._settings.splits)))
        bounds = (self.storage.n_features * np.arange(len(copies) + 1) // len(copies)).tolist()
        return [
            (self._held[n % len(self._held)], features, 0, at)
            for n, (features, at) in enumerate(zip(itertools.pairwise(bounds), copies, strict=True))
        ]

    def norm2(self, average_scale: float = 0.0) -> float:
        if self._held is None or self._is_here:
            return super().norm2(average_scale)
        task = self._cluster.task("norm2", norm2_of, self._job, self._held[0], average_scale, self.problem)
        found: list[float] = self._results(self._cluster.start([task]))
        return found[0]

    def learn(
        self,
        block: Block,
        rows: Rows,
        old: OldDuals,
        keep: NewDuals | None,
        next_pause: Callable[[int], int],
    ) -> Iterator[int]:
        splits, cluster = self._settings.splits, self._cluster
        bounds = rows.n_rows * np.arange(splits + 1) // splits
        lengths, n_bytes = np.diff(bounds), self._job_facts.bytes_of_bits
        self._begin_block(old, keep)
        of_parts: list[OldDuals | None] = [None] * splits
        if self._folder is None:
            of_parts = [span_of(old, *ends, n_bytes) for ends in itertools.pairwise(bounds.tolist())]
        if len(self.storage.weights.dirty):
            mark_rows_dirty(rows.indices, self.storage.weights)
        for number in range(ROUNDS):
            pause = next_pause(self.visited)
            if self._held is None:
                self._held = self._send()
            held, place = self._held, self._place(block, number)
            at = self._places(splits)
            copies = sorted(set(at))  # of the weights, one on each worker
            if len(held) != len(copies):
                held = held[:1] * len(copies)
            moved, told = [], []
            for split in range(splits):
                found = cluster.task(
                    "part", visit_part, self._job, place, split, held[copies.index(at[split])],
                    of_parts[split], at=at[split],
                )  # fmt: skip
                moved.append(cluster.task("take", take, found, 0, at=at[split]))
                told.append(cluster.task("duals", take, found, 1, at=at[split]))
            step = 1
            while step < splits:
                for i in range(0, splits - step, 2 * step):
                    moved[i] = cluster.task("sum", sum_moved, moved[i], moved[i + step], at=at[i])
                step *= 2
            next_ = [
                cluster.task("add", add_moved, self._job, each, moved[0], place, at=worker)
                for each, worker in zip(held, copies, strict=True)
            ]
            started = cluster.start([*next_, *told])
            self._held, self._is_here = started[: len(next_)], False
            self._take_in(block, self._results(started[len(next_) :]), keep)
            if self.visited >= pause:
                yield int(rows_after(number + 1, lengths).sum())

    def score_elsewhere(self, n_blocks: int, average_scale: float | None) -> Iterator[list[np.ndarray]]:
        """Each worker scores some parts of each block."""
        if self._held is None:
            self._held = self._send()
        held = self._held
        cluster, places = self._cluster, self._places(SCORED_PARTS)
        copies = sorted(set(places))
        if len(held) != len(copies):
            held = held[:1] * len(copies)
        awaited: collections.deque[list[Any]] = collections.deque()

        def next_block() -> list[np.ndarray]:
            tallies = []
            for found, work in self._results(awaited.popleft()):
                self._count(work)
                tallies += found
            return tallies

        for number in range(n_blocks):
            tasks = [
                cluster.task(
                    "score", score_parts, self._job, number, list(parts), held[copies.index(at)],
                    average_scale, at=at,
                )
                for at, parts in itertools.groupby(range(SCORED_PARTS), lambda part: places[part])
            ]  # fmt: skip
            awaited.append(cluster.start(tasks))
            if len(awaited) > _BLOCKS_AHEAD:
                yield next_block()
        while awaited:
            yield next_block()

    def _take_in(self, block: Block, found: list[Told], keep: NewDuals | None) -> None:
        for told in found:
            self._count(told.work)
            self._keep_written(told, keep)
        duals = [(told.work.tally, told.duals or []) for told in found]
        self._count_parts(block, duals, keep)


def _only(features: np.ndarray) -> Rows:
    """Rows that say no more than which features they have."""
    none = np.zeros(0)
    return Rows(none, features, np.zeros(1, np.int64), np.zeros(0, np.int32), none, none)
