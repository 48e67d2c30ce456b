"""Learners that have the workers of a cluster do the work, with the same bytes as those that use threads."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from operator import getitem
from typing import Any

import numpy as np

from streamsvm.cluster.pair_task import centre_group, norm2_of_group, sum_group, visit_pair
from streamsvm.cluster.row_task import add_delta, norm2_of, score_part, sum_deltas, visit_part
from streamsvm.cluster.tasks import Round, TaskResult
from streamsvm.cluster.weights import OnCluster
from streamsvm.data.rows import Rows
from streamsvm.kernels.duals import OldDuals
from streamsvm.kernels.tally import CLOCK, DUAL_SUM
from streamsvm.run.files import NewLog
from streamsvm.training.parallel.class_learner import ClassSplitLearner
from streamsvm.training.parallel.row_learner import RowSplitLearner
from streamsvm.training.parallel.split_learner import SCORED_PARTS
from streamsvm.training.sources import TrainingBlock

_BLOCKS_AHEAD = 2  # blocks that are scored before the result of one is awaited


class ClusterClassLearner(OnCluster, ClassSplitLearner):
    """`ClassSplitLearner` on a cluster: groups of columns move from worker to worker, and meet there.

    The rounds of a block are one graph of tasks: a pair begins when its groups have ended their last one.
    """

    def _columns(self) -> list[tuple[int, int]]:
        return [(int(begin), int(end)) for begin, _, end in self._groups.ranges]

    def _shares(self) -> list[tuple[Any, tuple[int, int], int, str]]:
        shards, columns = self._find_shards(), self._columns()
        features, places = (0, self.storage.n_features), self._places(len(shards))
        return [
            (each, features, begin, at) for each, (begin, _), at in zip(shards, columns, places, strict=True)
        ]

    def _norms(self, average_scale: float) -> list[Any]:
        return [
            self._cluster.task("norm", norm2_of_group, self._job, g, shard, average_scale)
            for g, shard in enumerate(self._find_shards())
        ]

    def _block_duals(self, rows: Rows, old: OldDuals) -> OldDuals:
        """Begin a block; the workers read its duals."""
        self._find_slots()
        self._done: list[TaskResult] = []
        return old

    def _end_block(self, block: TrainingBlock, rows: Rows, duals: Any, keep: NewLog | None) -> None:
        sums = {key: value for result in self._done for key, value in result.sums.items()}
        for key in sorted(sums):
            self.tally[DUAL_SUM] += sums[key]
        for result in self._done:
            self._count(result, keep)

    def _visit_rounds(
        self, block: TrainingBlock, rows: Rows, duals: Any, rounds: range
    ) -> Iterator[tuple[int, np.ndarray]]:
        cluster = self._cluster
        shards = list(self._find_shards())
        clock, results = self.tally[CLOCK], []
        before: list[Any] = []
        for number in rounds:
            round_, is_last = self._round(block, number, duals), number + 1 == len(self._rounds)
            pairs = self._rounds[number]
            for pair, at in zip(pairs, self._places(len(pairs)), strict=True):
                g, h = pair
                found = cluster.task(
                    "pair", visit_pair, self._job, round_, pair, shards[g], shards[h], before, is_last, at=at
                )
                shards[g], shards[h] = (cluster.task("take", getitem, found, n, at=at) for n in range(2))
                results.append(cluster.task("result", getitem, found, 2, at=at))
            if self.averaging:
                before = results[-len(pairs) :]
            if self.loss.centred:
                self._centre_groups(round_, shards)
        started = cluster.start([*shards, *results])
        self._replace_shards(started[: len(shards)])
        found = iter(self._results(started[len(shards) :]))
        for number in rounds:
            tallies = []
            for result in itertools.islice(found, len(self._rounds[number])):
                self._done.append(result)
                if not self.averaging:  # then no pair waits for the clocks of the round before
                    result.tally[CLOCK] += self.tally[CLOCK] - clock
                tallies.append(result.tally)
            yield number, np.array(tallies)

    def _centre_groups(self, round_: Round, shards: list[Any]) -> None:
        """Replace the groups by tasks that subtract the mean over all classes, which needs all groups."""
        cluster, at = self._cluster, self._places(len(shards))
        groups = list(zip(shards, at, strict=True))
        sums = [cluster.task("sum", sum_group, self._job, round_, group, at=there) for group, there in groups]
        for g, (group, there) in enumerate(groups):
            shards[g] = cluster.task("centre", centre_group, self._job, round_, g, group, sums, at=there)


class ClusterRowLearner(OnCluster, RowSplitLearner):
    """`RowSplitLearner` on a cluster: each worker holds a full copy of the weights.

    The workers add up the changes of the parts among themselves, and each adds the sum to its copy.
    """

    def _columns(self) -> list[tuple[int, int]]:
        return [(0, self.storage.weights.current.shape[1])]

    def _copies(self, places: list[str]) -> dict[str, Any]:
        """Return for each of some workers the future of the weights that it holds, or is to be sent."""
        shards, workers = self._find_shards(), sorted(set(places))
        if len(shards) != len(workers):
            shards = shards[:1] * len(workers)
        return dict(zip(workers, shards, strict=True))

    def _shares(self) -> list[tuple[Any, tuple[int, int], int, str]]:
        shards = self._find_shards()
        copies = sorted(set(self._places(self.spec.settings.splits)))
        bounds = (self.storage.n_features * np.arange(len(copies) + 1) // len(copies)).tolist()
        return [
            (shards[n % len(shards)], features, 0, at)
            for n, (features, at) in enumerate(zip(itertools.pairwise(bounds), copies, strict=True))
        ]

    def _norms(self, average_scale: float) -> list[Any]:
        shard = self._find_shards()[0]
        return [self._cluster.task("norm", norm2_of, self._job, shard, average_scale, self.problem)]

    def _begin_block(self, block: TrainingBlock, rows: Rows) -> None:
        self._find_slots()

    def _visit_round(
        self, block: TrainingBlock, number: int, old: OldDuals, begun: Any, keep: NewLog | None
    ) -> None:
        splits, cluster = self.spec.settings.splits, self._cluster
        copies, round_ = self._copies(at := self._places(splits)), self._round(block, number, old)
        deltas, results = [], []
        for split, worker in enumerate(at):
            found = cluster.task("part", visit_part, self._job, round_, split, copies[worker], at=worker)
            deltas.append(cluster.task("take", getitem, found, 0, at=worker))
            results.append(cluster.task("result", getitem, found, 1, at=worker))
        step = 1
        while step < splits:
            for i in range(0, splits - step, 2 * step):
                deltas[i] = cluster.task("sum", sum_deltas, deltas[i], deltas[i + step], at=at[i])
            step *= 2
        next_ = [
            cluster.task("add", add_delta, self._job, shard, deltas[0], round_, at=worker)
            for worker, shard in copies.items()
        ]
        started = cluster.start([*next_, *results])
        self._replace_shards(started[: len(next_)])
        done = self._results(started[len(next_) :])
        for result in done:
            self._count(result, keep)
        self._count_parts(block, [(result.tally, []) for result in done], None)

    def score_elsewhere(self, n_blocks: int, average_scale: float | None) -> Iterator[list[np.ndarray]]:
        """Score each block of the training data, in parts."""
        self._find_shards()
        cluster, places = self._cluster, self._places(SCORED_PARTS)
        copies = self._copies(places)
        awaited: collections.deque[list[Any]] = collections.deque()

        def next_block() -> list[np.ndarray]:
            found = cluster.results(awaited.popleft())
            for result in found:
                self._count(result)
            return [result.tally for result in found]

        for number in range(n_blocks):
            tasks = [
                cluster.task("score", score_part, self._job, number, part, copies[at], average_scale, at=at)
                for part, at in enumerate(places)
            ]
            awaited.append(cluster.start(tasks))
            if len(awaited) > _BLOCKS_AHEAD:
                yield next_block()
        while awaited:
            yield next_block()
