"""Visits of rows on the workers of a cluster, with the same results as visits in threads, bit for bit."""

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

_BLOCKS_AHEAD = 2


class ClusterClassRounds(ClassRounds):
    """`ClassRounds` on a cluster, where one worker receives the weight columns of both groups of a pair.

    All rounds of a block form one graph of tasks, so a pair can begin as soon as its groups are free.
    """

    weights: ShardedWeights

    def _visit_rounds(
        self, block: TrainingBlock, rows: Rows, duals: BlockDuals, rounds: Rounds
    ) -> Iterator[tuple[int, np.ndarray]]:
        learner = self.learner
        weights = self.weights
        weights.find_slots()
        cluster, shards = weights.cluster, list(weights.find_shards(averaging=learner.averaging))
        clock, n_pairs = learner.tally[CLOCK], len(rounds[0][1])
        pairs = [pair for _, round_pairs in rounds for pair in round_pairs]
        addresses = weights.choose_workers(n_pairs) * len(rounds)
        old = weights.put(
            [_lists_of_pair(duals, *pair, n == 0) for n, round_pairs in rounds for pair in round_pairs],
            addresses,
        )
        visits = zip(pairs, addresses, old, strict=True)
        new: list[Any] = []
        results: list[Any] = []
        previous: list[Any] = []
        for number, _ in rounds:
            turn = Turn.of(learner, block, number)
            is_last = number + 2 == len(shards)
            for (g, h), at, lists in itertools.islice(visits, n_pairs):
                visit = cluster.task(
                    "pair", visit_pair, weights.job, turn, (g, h), shards[g], shards[h], lists, previous,
                    is_last, at=at,
                )  # fmt: skip
                shards[g], shards[h] = (cluster.task("take", getitem, visit, n, at=at) for n in range(2))
                new.append(cluster.task("duals", getitem, visit, 2, at=at))
                results.append(cluster.task("result", getitem, visit, 3, at=at))
            if learner.averaging:
                previous = results[-n_pairs:]
            if learner.loss.centred:
                _centre_groups(weights, turn, shards)
        started = cluster.start([*shards, *new, *results])
        weights.replace_shards(started[: len(shards)])
        values = weights.results(started[len(shards) :])
        reports = zip(values[: len(pairs)], values[len(pairs) :], strict=True)
        for number, _ in rounds:
            tallies = []
            for lists, result in itertools.islice(reports, n_pairs):
                duals.lists |= lists
                weights.count([result])
                if not learner.averaging:  # the pairs did not wait for the clocks of the previous round
                    result.tally[CLOCK] += learner.tally[CLOCK] - clock
                tallies.append(result.tally)
            yield number, np.array(tallies)


def _centre_groups(weights: ShardedWeights, turn: Turn, shards: list[Any]) -> None:
    """Replace each entry of `shards` by a task that subtracts the mean over all classes from this group."""
    cluster, addresses = weights.cluster, weights.choose_workers(len(shards))
    groups = list(zip(shards, addresses, strict=True))
    sums = [cluster.task("sum", sum_group, weights.job, turn, group, at=address) for group, address in groups]
    for g, (group, address) in enumerate(groups):
        shards[g] = cluster.task("centre", centre_group, weights.job, turn, g, group, sums, at=address)


def _lists_of_pair(duals: BlockDuals, g: int, h: int, with_own: bool) -> DualLists:
    keys = [(g, h), (h, g), *([(g, g), (h, h)] if with_own else [])]
    return {key: duals.lists[key] for key in keys}


class ClusterRowRounds(RowRounds):
    """`RowRounds` on a cluster, where workers add up their changes and apply the sum to their weights."""

    weights: ShardedWeights

    def _copies(self, addresses: list[str]) -> dict[str, Any]:
        shards = self.weights.find_shards(averaging=self.learner.averaging)
        workers = sorted(set(addresses))
        if len(shards) != len(workers):
            shards = shards[:1] * len(workers)
        return dict(zip(workers, shards, strict=True))

    def _begin_block(self, rows: Rows, old: OldDuals) -> Any:
        weights, spec = self.weights, self.learner.spec
        weights.find_slots()
        splits, one_group = spec.settings.splits, np.zeros(spec.dual_format().n_ids, np.int64)
        bounds, addresses = rows.n_rows * np.arange(splits + 1) // splits, weights.choose_workers(splits)
        stored = old._replace(scale=1.0)
        parts = [
            divide_duals(stored.span(begin, end), np.arange(end - begin, dtype=np.int32), one_group, 1)[0]
            for begin, end in itertools.pairwise(bounds.tolist())
        ]
        return addresses, weights.put([(part, old.scale) for part in parts], addresses)

    def _visit_round(self, turn: Turn, parts: Any) -> list[TallyAndDuals]:
        weights, (at, old) = self.weights, parts
        cluster, copies = weights.cluster, self._copies(at)
        deltas, results = [], []
        for split, worker in enumerate(at):
            visit = cluster.task(
                "part", visit_part, weights.job, turn, split, copies[worker], old[split], at=worker
            )
            deltas.append(cluster.task("take", getitem, visit, 0, at=worker))
            results.append(cluster.task("result", getitem, visit, 1, at=worker))
        step = 1
        while step < len(at):
            for i in range(0, len(at) - step, 2 * step):
                deltas[i] = cluster.task("sum", sum_deltas, deltas[i], deltas[i + step], at=at[i])
            step *= 2
        additions = [
            cluster.task("add", add_delta, weights.job, shard, deltas[0], turn, at=worker)
            for worker, shard in copies.items()
        ]
        started = cluster.start([*additions, *results])
        weights.replace_shards(started[: len(additions)])
        reports = weights.results(started[len(additions) :])
        weights.count(reports)
        return [(result.tally, result.duals) for result in reports]

    def score_blocks(self, blocks: Blocks, average_scale: float | None, tallies: np.ndarray) -> Iterator[int]:
        """Score blocks of the training data on the workers, and other blocks in this process."""
        if blocks is not self.weights.blocks:
            yield from super().score_blocks(blocks, average_scale, tallies)
            return
        weights = self.weights
        weights.find_shards(averaging=self.learner.averaging)
        cluster, addresses = weights.cluster, weights.choose_workers(SCORED_PARTS)
        copies = self._copies(addresses)
        pending: collections.deque[list[Any]] = collections.deque()
        for number in range(len(blocks) + _BLOCKS_AHEAD):
            if number < len(blocks):
                arguments = weights.job, number
                tasks = [
                    cluster.task("score", score_part, *arguments, part, copies[at], average_scale, at=at)
                    for part, at in enumerate(addresses)
                ]
                pending.append(cluster.start(tasks))
            if number >= _BLOCKS_AHEAD:
                results = cluster.results(pending.popleft())
                weights.count(results)
                for result in results:
                    tallies += result.tally
                yield int(blocks.starts[number - _BLOCKS_AHEAD + 1])
