"""Learners whose work is done by the workers of a cluster: the same bytes as those that use threads."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.cluster import Cluster
from streamsvm.data.rows import Rows
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.dual_lists import span_of
from streamsvm.kernels.duals import NewDuals, OldDuals
from streamsvm.kernels.tally import CLOCK, DUAL_SUM
from streamsvm.settings import Settings
from streamsvm.training.parallel.class_groups import ClassGroups
from streamsvm.training.parallel.class_learner import BlockDuals, ClassSplitLearner
from streamsvm.training.parallel.cluster_pairs import (
    centre_group,
    keys_of,
    norm2_of_group,
    sum_group,
    visit_pair,
)
from streamsvm.training.parallel.cluster_parts import add_moved, norm2_of, score_parts, sum_moved, visit_part
from streamsvm.training.parallel.cluster_tasks import Job, Place, Told, take
from streamsvm.training.parallel.on_cluster import OnCluster
from streamsvm.training.parallel.row_learner import ROUNDS, RowSplitLearner, rows_after
from streamsvm.training.parallel.split_learner import SCORED_PARTS
from streamsvm.training.sources import Block
from streamsvm.training.training_data import TrainingData

_BLOCKS_AHEAD = 2  # that are scored before the result of one is awaited


class ClusterClassLearner(OnCluster, ClassSplitLearner):
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
        held, columns = self._hold(), self._columns()
        features, places = (0, self.storage.n_features), self._places(len(held))
        return [
            (each, features, begin, at) for each, (begin, _), at in zip(held, columns, places, strict=True)
        ]

    def _norms(self, average_scale: float) -> list[Any]:
        return [
            self._cluster.task("norm", norm2_of_group, self._job, g, held, average_scale)
            for g, held in enumerate(self._hold())
        ]

    def _block_duals(self, rows: Rows, old: OldDuals) -> Any:
        self._told: list[Told] = []
        return None if self._workers_write else super()._block_duals(rows, old)

    def _end_block(self, block: Block, rows: Rows, duals: BlockDuals, keep: NewDuals | None) -> None:
        sums = {key: value for told in self._told for key, value in told.sums.items()}
        for key in sorted(sums):
            self.tally[DUAL_SUM] += sums[key]
        for told in self._told:
            self._keep_written(told, keep)
        if keep is not None and not self._workers_write:
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
        held = list(self._hold())
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
        self._moved(started[: len(held)])
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


class ClusterRowLearner(OnCluster, RowSplitLearner):
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
        held = self._hold()
        copies = sorted(set(self._places(self._settings.splits)))
        bounds = (self.storage.n_features * np.arange(len(copies) + 1) // len(copies)).tolist()
        return [
            (held[n % len(held)], features, 0, at)
            for n, (features, at) in enumerate(zip(itertools.pairwise(bounds), copies, strict=True))
        ]

    def _norms(self, average_scale: float) -> list[Any]:
        held = self._hold()[0]
        return [self._cluster.task("norm", norm2_of, self._job, held, average_scale, self.problem)]

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
        if not self._workers_write:
            of_parts = [span_of(old, *ends, n_bytes) for ends in itertools.pairwise(bounds.tolist())]
        for number in range(ROUNDS):
            pause = next_pause(self.visited)
            held, place = self._hold(), self._place(block, number)
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
            self._moved(started[: len(next_)])
            self._take_in(block, self._results(started[len(next_) :]), keep)
            if self.visited >= pause:
                yield int(rows_after(number + 1, lengths).sum())

    def score_elsewhere(self, n_blocks: int, average_scale: float | None) -> Iterator[list[np.ndarray]]:
        """Each thread of a worker scores some parts of each block."""
        held = self._hold()
        cluster, slots = self._cluster, self._slots_of(SCORED_PARTS)
        parts_of = [list(parts) for _, parts in itertools.groupby(range(SCORED_PARTS), slots.__getitem__)]
        places = [self._slots[slots[parts[0]]] for parts in parts_of]
        copies = sorted(set(places))
        if len(held) != len(copies):
            held = held[:1] * len(copies)
        awaited: collections.deque[list[Any]] = collections.deque()

        def next_block() -> list[np.ndarray]:
            tallies = []
            for found, work in self._cluster.results(awaited.popleft()):
                self._count(work)
                tallies += found
            return tallies

        for number in range(n_blocks):
            tasks = [
                cluster.task(
                    "score", score_parts, self._job, number, parts, held[copies.index(at)],
                    average_scale, at=at,
                )
                for at, parts in zip(places, parts_of, strict=True)
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
