"""Learners that have the workers of a cluster do the work, with the same bytes as those that use threads."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from operator import getitem
from typing import Any

import numpy as np

from streamsvm.cluster.pair_task import centre_group, sum_group, visit_pair
from streamsvm.cluster.row_task import add_delta, score_part, sum_deltas, visit_part
from streamsvm.cluster.tasks import Round
from streamsvm.cluster.weights import OnCluster
from streamsvm.data.rows import Rows
from streamsvm.kernels.duals import OldDuals
from streamsvm.kernels.tally import CLOCK
from streamsvm.run.files import NewLog
from streamsvm.training.parallel.class_learner import BlockDuals, ClassSplitLearner, DualLists, divide_duals
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

    def _visit_rounds(
        self, block: TrainingBlock, rows: Rows, duals: BlockDuals, rounds: range
    ) -> Iterator[tuple[int, np.ndarray]]:
        self._find_slots()
        cluster, shards = self._cluster, list(self._find_shards())
        clock, n_pairs = self.tally[CLOCK], len(self._rounds[0])
        pairs = [pair for number in rounds for pair in self._rounds[number]]
        places = self._places(n_pairs) * len(rounds)
        old = self._put([_lists_of_pair(duals, *pair, pair in self._rounds[0]) for pair in pairs], places)
        visits = zip(pairs, places, old, strict=True)
        new: list[Any] = []
        results: list[Any] = []
        before: list[Any] = []
        for number in rounds:
            round_, is_last = self._round(block, number), number + 1 == len(self._rounds)
            for (g, h), at, lists in itertools.islice(visits, n_pairs):
                found = cluster.task(
                    "pair", visit_pair, self._job, round_, (g, h), shards[g], shards[h], lists, before,
                    is_last, at=at,
                )  # fmt: skip
                shards[g], shards[h] = (cluster.task("take", getitem, found, n, at=at) for n in range(2))
                new.append(cluster.task("duals", getitem, found, 2, at=at))
                results.append(cluster.task("result", getitem, found, 3, at=at))
            if self.averaging:
                before = results[-n_pairs:]
            if self.loss.centred:
                self._centre_groups(round_, shards)
        started = cluster.start([*shards, *new, *results])
        self._replace_shards(started[: len(shards)])
        found = self._results(started[len(shards) :])
        done = zip(found[: len(pairs)], found[len(pairs) :], strict=True)
        for number in rounds:
            tallies = []
            for lists, result in itertools.islice(done, n_pairs):
                duals.lists |= lists
                self._count([result])
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


def _lists_of_pair(duals: BlockDuals, g: int, h: int, with_own: bool) -> DualLists:
    """Return the lists of two groups for each other's classes and, if asked for, for their own."""
    keys = [(g, h), (h, g), *([(g, g), (h, h)] if with_own else [])]
    return {key: duals.lists[key] for key in keys}


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

    def _begin_block(self, rows: Rows, old: OldDuals) -> Any:
        """Send the old duals of each part to the worker that is to visit its rows."""
        self._find_slots()
        splits, one_group = self.spec.settings.splits, np.zeros(self.spec.dual_format().n_ids, np.int64)
        bounds, at = rows.n_rows * np.arange(splits + 1) // splits, self._places(splits)
        stored = old._replace(scale=1.0)
        parts = [
            divide_duals(stored, np.arange(*each), one_group, 1)[0]
            for each in itertools.pairwise(bounds.tolist())
        ]
        return at, self._put([(part, old.scale) for part in parts], at)

    def _visit_round(self, block: TrainingBlock, number: int, parts: Any, keep: NewLog | None) -> None:
        splits, cluster, (at, old) = self.spec.settings.splits, self._cluster, parts
        copies, round_ = self._copies(at), self._round(block, number)
        deltas, results = [], []
        for split, worker in enumerate(at):
            found = cluster.task(
                "part", visit_part, self._job, round_, split, copies[worker], old[split], at=worker
            )
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
        self._count(done)
        self._count_parts(block, [(result.tally, result.duals) for result in done], keep)

    def score_elsewhere(self, n_blocks: int, average_scale: float | None) -> Iterator[list[np.ndarray]]:
        """Score each block of the training data, in parts."""
        self._find_shards()
        cluster, places = self._cluster, self._places(SCORED_PARTS)
        copies = self._copies(places)
        awaited: collections.deque[list[Any]] = collections.deque()
        for number in range(n_blocks + _BLOCKS_AHEAD):
            if number < n_blocks:
                given = self._job, number
                tasks = [
                    cluster.task("score", score_part, *given, part, copies[at], average_scale, at=at)
                    for part, at in enumerate(places)
                ]
                awaited.append(cluster.start(tasks))
            if number >= _BLOCKS_AHEAD:
                found = cluster.results(awaited.popleft())
                self._count(found)
                yield [result.tally for result in found]
