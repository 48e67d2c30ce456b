"""Visits by the workers of a cluster, with the same bytes as visits by threads."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from operator import getitem
from typing import Any

import numpy as np

from streamsvm.cluster.pair_task import centre_group, sum_group, visit_pair
from streamsvm.cluster.row_task import add_delta, score_part, sum_deltas, visit_part
from streamsvm.cluster.weights import ShardedWeights
from streamsvm.data.blocks import Blocks
from streamsvm.data.rows import Rows
from streamsvm.kernels.duals import OldDuals
from streamsvm.kernels.tally import CLOCK
from streamsvm.training.parallel.class_learner import BlockDuals, ClassRounds, DualLists, Rounds, divide_duals
from streamsvm.training.parallel.row_learner import RowRounds, TallyAndDuals
from streamsvm.training.parallel.split_learner import SCORED_PARTS, Turn
from streamsvm.training.sources import TrainingBlock

_BLOCKS_AHEAD = 2  # blocks scored before the first result is awaited


class ClusterClassRounds(ClassRounds):
    """`ClassRounds` on a cluster, where the groups of columns of a pair move to one worker.

    All rounds of a block are one graph of tasks, so a pair can begin once its groups are free.
    """

    weights: ShardedWeights  # of the learner

    def _visit_rounds(
        self, block: TrainingBlock, rows: Rows, duals: BlockDuals, rounds: Rounds
    ) -> Iterator[tuple[int, np.ndarray]]:
        learner = self.learner
        weights = self.weights
        weights.find_slots()
        cluster, shards = weights.cluster, list(weights.find_shards(averaging=learner.averaging))
        clock, n_pairs = learner.tally[CLOCK], len(rounds[0][1])
        pairs = [pair for _, of_round in rounds for pair in of_round]
        places = weights.places(n_pairs) * len(rounds)
        old = weights.put(
            [_lists_of_pair(duals, *pair, number == 0) for number, of_round in rounds for pair in of_round],
            places,
        )
        visits = zip(pairs, places, old, strict=True)
        new: list[Any] = []
        results: list[Any] = []
        before: list[Any] = []
        for number, _ in rounds:
            turn = Turn.of(learner, block, number)
            is_last = number + 2 == len(shards)
            for (g, h), at, lists in itertools.islice(visits, n_pairs):
                found = cluster.task(
                    "pair", visit_pair, weights.job, turn, (g, h), shards[g], shards[h], lists, before,
                    is_last, at=at,
                )  # fmt: skip
                shards[g], shards[h] = (cluster.task("take", getitem, found, n, at=at) for n in range(2))
                new.append(cluster.task("duals", getitem, found, 2, at=at))
                results.append(cluster.task("result", getitem, found, 3, at=at))
            if learner.averaging:
                before = results[-n_pairs:]
            if learner.loss.centred:
                _centre_groups(weights, turn, shards)
        started = cluster.start([*shards, *new, *results])
        weights.replace_shards(started[: len(shards)])
        found = weights.results(started[len(shards) :])
        done = zip(found[: len(pairs)], found[len(pairs) :], strict=True)
        for number, _ in rounds:
            tallies = []
            for lists, result in itertools.islice(done, n_pairs):
                duals.lists |= lists
                weights.count([result])
                if not learner.averaging:  # then no pair waited for the clocks of the last round
                    result.tally[CLOCK] += learner.tally[CLOCK] - clock
                tallies.append(result.tally)
            yield number, np.array(tallies)


def _centre_groups(weights: ShardedWeights, turn: Turn, shards: list[Any]) -> None:
    """Replace the groups by tasks that subtract the mean over all classes, which needs all groups."""
    cluster, at = weights.cluster, weights.places(len(shards))
    groups = list(zip(shards, at, strict=True))
    sums = [cluster.task("sum", sum_group, weights.job, turn, group, at=there) for group, there in groups]
    for g, (group, there) in enumerate(groups):
        shards[g] = cluster.task("centre", centre_group, weights.job, turn, g, group, sums, at=there)


def _lists_of_pair(duals: BlockDuals, g: int, h: int, with_own: bool) -> DualLists:
    keys = [(g, h), (h, g), *([(g, g), (h, h)] if with_own else [])]
    return {key: duals.lists[key] for key in keys}


class ClusterRowRounds(RowRounds):
    """`RowRounds` on a cluster. Workers sum up their changes, and each adds the sum to its weights."""

    weights: ShardedWeights  # of the learner

    def _copies(self, places: list[str]) -> dict[str, Any]:
        """Return the future of the weights for each worker."""
        shards = self.weights.find_shards(averaging=self.learner.averaging)
        workers = sorted(set(places))
        if len(shards) != len(workers):
            shards = shards[:1] * len(workers)
        return dict(zip(workers, shards, strict=True))

    def _begin_block(self, rows: Rows, old: OldDuals) -> Any:
        """Send the old duals of each part to the worker that visits its rows."""
        weights, spec = self.weights, self.learner.spec
        weights.find_slots()
        splits, one_group = spec.settings.splits, np.zeros(spec.dual_format().n_ids, np.int64)
        bounds, at = rows.n_rows * np.arange(splits + 1) // splits, weights.places(splits)
        stored = old._replace(scale=1.0)
        parts = [
            divide_duals(stored.span(begin, end), np.arange(end - begin, dtype=np.int32), one_group, 1)[0]
            for begin, end in itertools.pairwise(bounds.tolist())
        ]
        return at, weights.put([(part, old.scale) for part in parts], at)

    def _visit_round(self, turn: Turn, parts: Any) -> list[TallyAndDuals]:
        weights, (at, old) = self.weights, parts
        cluster, copies = weights.cluster, self._copies(at)
        deltas, results = [], []
        for split, worker in enumerate(at):
            found = cluster.task(
                "part", visit_part, weights.job, turn, split, copies[worker], old[split], at=worker
            )
            deltas.append(cluster.task("take", getitem, found, 0, at=worker))
            results.append(cluster.task("result", getitem, found, 1, at=worker))
        step = 1
        while step < len(at):
            for i in range(0, len(at) - step, 2 * step):
                deltas[i] = cluster.task("sum", sum_deltas, deltas[i], deltas[i + step], at=at[i])
            step *= 2
        next_ = [
            cluster.task("add", add_delta, weights.job, shard, deltas[0], turn, at=worker)
            for worker, shard in copies.items()
        ]
        started = cluster.start([*next_, *results])
        weights.replace_shards(started[: len(next_)])
        done = weights.results(started[len(next_) :])
        weights.count(done)
        return [(result.tally, result.duals) for result in done]

    def score_blocks(self, blocks: Blocks, average_scale: float | None, tallies: np.ndarray) -> Iterator[int]:
        """Score parts of each block of the training data; score other blocks in this process."""
        if blocks is not self.weights.blocks:
            yield from super().score_blocks(blocks, average_scale, tallies)
            return
        weights = self.weights
        weights.find_shards(averaging=self.learner.averaging)
        cluster, places = weights.cluster, weights.places(SCORED_PARTS)
        copies = self._copies(places)
        awaited: collections.deque[list[Any]] = collections.deque()
        for number in range(len(blocks) + _BLOCKS_AHEAD):
            if number < len(blocks):
                given = weights.job, number
                tasks = [
                    cluster.task("score", score_part, *given, part, copies[at], average_scale, at=at)
                    for part, at in enumerate(places)
                ]
                awaited.append(cluster.start(tasks))
            if number >= _BLOCKS_AHEAD:
                found = cluster.results(awaited.popleft())
                weights.count(found)
                for result in found:
                    tallies += result.tally
                yield int(blocks.starts[number - _BLOCKS_AHEAD + 1])
