"""Training split by rows, which visits the parts of a block separately and adds their updates.

This is CoCoA+ (Ma et al. 2015). A block has S parts, one per split, which all start with the same weights.
Each part solves its own problem, in which a change Δw of the weights counts as S Δw. Adding all changes then
raises the dual objective by at least the sum of the gains in the S problems. In a round, half of the rows of
each part are visited, followed by inner passes over these rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from streamsvm.data.rows import Rows, row_span
from streamsvm.kernels.centre import centre_with_shared
from streamsvm.kernels.duals import OldDuals, RowDuals
from streamsvm.kernels.scratch import own_lines
from streamsvm.kernels.sum_rows import add_rows, copy_rows, unite
from streamsvm.kernels.tally import CLOCK, N_TALLIES
from streamsvm.kernels.weights import Weights
from streamsvm.run.duals import PassDuals
from streamsvm.training.inner_passes import Place
from streamsvm.training.learner import ReadDuals, features_of, problem_of
from streamsvm.training.parallel.split_learner import SplitVisits, Turn, new_weights
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import Target, Visitor

ROUNDS = 2  # rounds per block; the average can begin between them
_MAX_SUMS = 8
_VALUES_PER_SUM = 1 << 18  # each of the parallel sums adds about this many values

TallyAndDuals = tuple[np.ndarray, list[RowDuals]]  # `RowDuals.rows` are row numbers in the block


class _Part(NamedTuple):
    begin: int
    rows: Rows
    features: np.ndarray  # (m,) int64: features of the rows, ascending
    old: OldDuals
    weights: Weights  # private copy, valid only for `features`


def rows_after(rounds: int, n_rows: Any) -> Any:
    """Return how many of the `n_rows` rows of a part have been visited after `rounds` rounds.

    The number is rounded up, so that the average can begin halfway through a pass over a single block.
    """
    return -(-n_rows * rounds // ROUNDS)


def visit_part(
    visitor: Visitor,
    spec: Spec,
    turn: Turn,
    split: int,
    first: int,
    rows: Rows,
    old: OldDuals,
    weights: Weights,
) -> TallyAndDuals:
    """Visit the rows of one round in the part of a block for `split`; the part starts at row `first`."""
    settings = spec.settings
    splits, piece = settings.splits, turn.block * settings.splits + split
    order = turn.permute(rows.n_rows, settings.seed, turn.pass_number, piece, 0)
    begin, end = (rows_after(n, rows.n_rows) for n in (turn.number, turn.number + 1))
    problem = problem_of(spec)._replace(sigma=float(splits))
    tally = own_lines(N_TALLIES)
    tally[CLOCK] = turn.clock
    new = visitor.visit(
        rows._replace(norm2=rows.norm2 * splits), order[begin:end], old, Target(problem, weights, tally),
        Place(turn.pass_number, piece * ROUNDS + turn.number, turn.read_work),
    )  # fmt: skip
    return tally, [part._replace(rows=part.rows + np.int32(first)) for part in new]


def sum_as_tree(features: list[np.ndarray], moved: list[np.ndarray]) -> np.ndarray:
    """Add the rows ``features[i]`` of each ``moved[i]`` to ``moved[0]``; return the features of the sum.

    The other arrays are overwritten. A binary tree makes the sums independent of the number of workers.
    """
    features, step = list(features), 1
    while step < len(moved):
        for i in range(0, len(moved) - step, 2 * step):
            union, is_new = unite(features[i], features[i + step])
            moved[i][is_new] = 0
            add_rows(features[i + step], moved[i + step], 1.0, moved[i])
            features[i] = union
        step *= 2
    return features[0]


class RowRounds(SplitVisits):
    """Visits split by rows: the parts of each block, one per split, are visited at the same time."""

    @functools.cached_property
    def _split_weights(self) -> list[Weights]:
        spec = self.learner.spec
        new = functools.partial(new_weights, spec, *spec.shape, averaging=spec.settings.average)
        return [new() for _ in range(spec.settings.splits)]

    def learn(
        self, block: TrainingBlock, old: ReadDuals, keep: PassDuals | None, next_pause: Callable[[int], int]
    ) -> Iterator[int]:
        learner = self.learner
        assert isinstance(old, OldDuals)
        rows, splits = block.rows, learner.spec.settings.splits
        lengths = np.diff(rows.n_rows * np.arange(splits + 1) // splits)
        parts = self._begin_block(rows, old)
        for number in range(ROUNDS):
            pause = next_pause(learner.visited)
            for tally, duals in self._visit_round(Turn.of(learner, block, number), parts):
                clock = max(learner.tally[CLOCK], tally[CLOCK])
                learner.tally += tally
                learner.tally[CLOCK] = clock
                if keep is not None:
                    for part in duals:
                        keep.append_duals(block.first, part)
            if learner.visited >= pause:
                yield int(rows_after(number + 1, lengths).sum())

    def _begin_block(self, rows: Rows, old: OldDuals) -> Any:
        work = functools.partial(self._part, rows, old, self._split_weights)
        return self._workers.map(work, range(self.learner.spec.settings.splits))

    def _visit_round(self, turn: Turn, parts: Any) -> list[TallyAndDuals]:
        work = functools.partial(self._visit_part, turn, parts)
        results = self._workers.map(work, range(len(parts)))
        self._add_up(parts)
        return results

    def _part(self, rows: Rows, old: OldDuals, weights: list[Weights], split: int) -> _Part:
        begin, end = (rows.n_rows * s // len(weights) for s in (split, split + 1))
        rows = row_span(rows, begin, end)
        features = features_of(rows, self.learner.storage.n_features)
        return _Part(begin, rows, features, old.span(begin, end), weights[split])

    def _visit_part(self, turn: Turn, parts: list[_Part], split: int) -> TallyAndDuals:
        """Visit the rows of a part with a private copy of the weights, and replace it by its change."""
        begin, rows, features, old, private = parts[split]
        current = self.learner.storage.weights.current
        copy_rows(features, current, private.current)
        if turn.averaging:
            private.average_delta[features] = 0
        else:
            private = private._replace(average_delta=private.average_delta[:0], time_unit=np.inf)
        result = visit_part(self._visitor, self.learner.spec, turn, split, begin, rows, old, private)
        add_rows(features, current, -1.0, private.current)
        return result

    def _add_up(self, parts: list[_Part]) -> None:
        learner = self.learner
        weights = learner.moved_weights()
        n_sums = min(
            1 + sum(len(part.features) for part in parts) * weights.current.shape[1] // _VALUES_PER_SUM,
            _MAX_SUMS,
        )
        bounds = learner.storage.n_features * np.arange(n_sums + 1) // n_sums
        sums = [(weights.current, [part.weights.current for part in parts])]
        if len(weights.average_delta):
            sums.append((weights.average_delta, [part.weights.average_delta for part in parts]))

        def add(number: int) -> None:
            features = []
            for part in parts:
                begin, end = np.searchsorted(part.features, bounds[number : number + 2])
                features.append(part.features[begin:end])
            for target, moved in sums:
                all_features = sum_as_tree(features, moved)
                add_rows(all_features, moved[0], 1.0 / len(parts), target)
                if learner.loss.extra_columns:
                    centre_with_shared(all_features, target, learner.n_classes)

        self._workers.map(add, range(n_sums))
