"""Training split by classes, which solves several pairs of class groups at the same time.

A visit solves the block problem of a row over the classes of two groups. Pairs that have no group in common
share no weights, so solving them in parallel gives the same result as solving them in sequence (Alber et al.
2017, with exact blocks). In a block of rows, each group is paired with every other group once. For a pair of
groups, the rows whose true class is in one of the two groups are visited.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.duals import OldDuals, RowDuals, by_group, by_row, joined
from streamsvm.kernels.scratch import own_lines
from streamsvm.kernels.tally import CLOCK, DUAL_DELTA, DUAL_SUM, EMPTY, N_TALLIES, UNWEIGHTED, VISITED
from streamsvm.kernels.weights import Weights
from streamsvm.run.duals import PassDuals
from streamsvm.training.inner_passes import Place
from streamsvm.training.learner import ReadDuals, features_of, problem_of
from streamsvm.training.parallel.class_groups import ClassGroups, in_columns, tournament_rounds
from streamsvm.training.parallel.split_learner import SplitVisits, Turn
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import Target, Visitor

_CENTRED_PARTS = 8

DualLists = dict[tuple[int, int], RowDuals]  # keys: group of the true classes, group of the duals' classes
Rounds = list[tuple[int, list[tuple[int, int]]]]  # round numbers in the block, and pairs of groups


class ClassRounds(SplitVisits):
    """Visits split by classes. There are two groups per split, and one pair per split is solved at a time.

    Labels and the ids of duals are weight columns here. Padding columns between groups belong to no class.
    """

    def learn(
        self, block: TrainingBlock, old: ReadDuals, keep: PassDuals | None, next_pause: Callable[[int], int]
    ) -> Iterator[int]:
        learner = self.learner
        groups, tally = learner.spec.groups, learner.tally
        assert groups is not None
        assert isinstance(old, OldDuals)
        rows, all_rounds = in_columns(block.rows, groups), tournament_rounds(len(groups.ranges))
        duals = BlockDuals(rows, old, groups)
        begin, done, n_rounds = learner.visited, 0, len(all_rounds)
        while done < n_rounds:
            pause, first = next_pause(learner.visited), done
            ends = (n for n in range(first + 1, n_rounds) if begin + rows.n_rows * n // n_rounds >= pause)
            done = next(ends, n_rounds)
            at = rows.n_rows * done // n_rounds
            rounds = list(enumerate(all_rounds))[first:done]
            for number, tallies in self._visit_rounds(block, rows, duals, rounds):
                tally[CLOCK] = tallies[:, CLOCK].max()
                tally[DUAL_DELTA] += tallies[:, DUAL_DELTA].sum()
                if number == 0:  # count each row once, although every round visits it
                    tally[[EMPTY, UNWEIGHTED]] += tallies[:, [EMPTY, UNWEIGHTED]].sum(axis=0)
            tally[VISITED] = begin + at
            if done == n_rounds:
                for each in duals.lists.values():
                    n, costs = len(each.rows), rows._replace(cost=rows.cost[each.rows])
                    compact = each._replace(rows=np.arange(n)).in_block(n)
                    tally[DUAL_SUM] += float(learner.loss.kernels.sum_duals(costs, compact, learner.problem))
                if keep is not None:
                    for part in duals.parts():
                        keep.append_duals(block.first, part)
            if learner.visited >= pause:
                yield at

    def _visit_rounds(
        self, block: TrainingBlock, rows: Rows, duals: BlockDuals, rounds: Rounds
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Visit the pairs of some rounds and update `duals`; yield the number and tallies of each round."""
        learner = self.learner
        weights = learner.moved_weights()

        def visit(turn: Turn, pair: tuple[int, int]) -> np.ndarray:
            new, tally = visit_pair(self._visitor, learner.spec, turn, rows, pair, duals.lists, weights)
            duals.lists |= new
            return tally

        features = features_of(rows, learner.storage.n_features) if learner.loss.centred else None
        for number, pairs in rounds:
            tallies = self._workers.map(functools.partial(visit, Turn.of(learner, block, number)), pairs)
            if features is not None:
                self._workers.map(learner.centre, np.array_split(features, _CENTRED_PARTS))
            yield number, np.array(tallies)


def visit_pair(
    visitor: Visitor,
    spec: Spec,
    turn: Turn,
    rows: Rows,
    pair: tuple[int, int],
    lists: DualLists,
    weights: Weights,
    shifts: Sequence[int] = (0, 0),
) -> tuple[DualLists, np.ndarray]:
    """Visit the rows of two groups over the classes of these groups; return the new duals and the tally.

    Labels of the rows are columns of `weights`. `shifts` contains, for each group, the offset to add to
    columns of the full weight matrix to get columns of `weights`.
    """
    assert spec.groups is not None
    ranges = spec.groups.ranges[list(pair)] + np.array(shifts)[:, None]
    members = [lists[g, g].rows for g in pair]
    both = np.sort(np.concatenate(members)).astype(np.int64)
    number = turn.block * (len(spec.groups.ranges) - 1) + turn.number
    order = both[turn.permute(len(both), spec.settings.seed, turn.pass_number, number, 0)]
    problem = problem_of(spec)._replace(n_classes=weights.current.shape[1], ranges=ranges)
    tally = own_lines(N_TALLIES)
    tally[CLOCK] = turn.clock
    old = joined([_group_duals(lists, g, pair, shifts) for g in pair]).in_block(rows.n_rows)
    place = Place(turn.pass_number, number, turn.read_work * (turn.number == 0))
    new = visitor.visit(rows, order, old, Target(problem, weights, tally), place)
    places = np.full(weights.current.shape[1], -1)  # position in `pair` of the group of each column
    for at, (begin, _, end) in enumerate(ranges):
        places[begin:end] = at
    new_duals = joined(new).in_block(rows.n_rows)
    divided = {
        (g, h): duals._replace(ids=_shifted(duals.ids, -shift))
        for g, group_rows in zip(pair, members, strict=True)
        for h, shift, duals in zip(pair, shifts, divide_duals(new_duals, group_rows, places, 2), strict=True)
    }
    return divided, tally


def _rows_by_group(rows: Rows, groups: ClassGroups) -> list[np.ndarray]:
    """Return the ascending row numbers of each group. Labels must be columns of the full weight matrix."""
    group_of_row = groups.groups[rows.labels]
    order = np.argsort(group_of_row, kind="stable").astype(np.int32)
    ends = np.searchsorted(group_of_row[order], np.arange(len(groups.ranges) + 1)).tolist()
    return [order[begin:end] for begin, end in itertools.pairwise(ends)]


class BlockDuals:
    """Duals of a block, divided by the group of the row's true class and the group of the dual's class."""

    def __init__(self, rows: Rows, old: OldDuals, groups: ClassGroups) -> None:
        n_groups, self.lists = len(groups.ranges), DualLists()
        for g, members in enumerate(_rows_by_group(rows, groups)):
            for h, each in enumerate(divide_duals(old, members, groups.groups, n_groups)):
                self.lists[g, h] = each
        self._groups = range(n_groups)

    def parts(self) -> Iterator[RowDuals]:
        """Yield all duals of the rows of each group."""
        for g in self._groups:
            if len(self.lists[g, g].rows):
                yield _group_duals(self.lists, g, self._groups, [0] * len(self._groups))


def _group_duals(lists: DualLists, g: int, groups: Sequence[int], shifts: Sequence[int]) -> RowDuals:
    """Return the duals of the rows of group `g` for the classes of `groups`."""
    rows, counts, ids, values = zip(*(lists[g, h] for h in groups), strict=True)
    shifted = np.concatenate([_shifted(*each) for each in zip(ids, shifts, strict=True)])
    return RowDuals(rows[0], *by_row(np.stack(counts), shifted, np.concatenate(values)))


def _shifted(ids: np.ndarray, shift: int) -> np.ndarray:
    return ids if shift == 0 else (ids.astype(np.int64) + shift).astype(ids.dtype)


def divide_duals(duals: OldDuals, members: np.ndarray, groups: np.ndarray, n_groups: int) -> list[RowDuals]:
    """Divide the duals of the rows `members` by the group of each dual's class."""
    counts, ids, values = by_group(duals, members, groups, n_groups)
    ends = np.cumsum(counts.sum(axis=1, dtype=np.int64))[:-1]
    parts = zip(counts, np.split(ids, ends), np.split(values, ends), strict=True)
    return [RowDuals(members, *part) for part in parts]
