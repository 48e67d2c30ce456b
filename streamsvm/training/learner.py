"""The learner: the weights of a training, and how they change and are measured.

It opens no files, looks at no clock and reports nothing. The trainer (`streamsvm.training.trainer`) brings
blocks, keeps the duals, commits and reports. `Visits` are how a learner learns a block: row after row
(`streamsvm.training.plain_visits`), or in splits (`streamsvm.training.parallel`).
"""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.base.prefetch import Prefetcher
from streamsvm.data.rows import Rows
from streamsvm.kernels.centre import centre, centre_with_shared
from streamsvm.kernels.duals import DualMatrix, OldDuals
from streamsvm.kernels.frame import Kernels, Problem
from streamsvm.kernels.random import permutation
from streamsvm.kernels.scratch import own_lines
from streamsvm.kernels.sum_rows import mark
from streamsvm.kernels.tally import CLOCK, DUAL_DELTA, N_TALLIES, VISITED
from streamsvm.kernels.weights import AVERAGE_POWER, Weights, add_up
from streamsvm.model.coefficients import Coefficients
from streamsvm.run.duals import PassDuals
from streamsvm.run.weights import WeightStorage
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import Target

if TYPE_CHECKING:
    from streamsvm.data.blocks import Blocks
    from streamsvm.training.origin import Origin

ReadDuals = OldDuals | DualMatrix  # of a block, as the last pass left them


class Visits(abc.ABC):
    """How a learner learns the rows of a block, and scores rows.

    Attributes
    ----------
    learner : Learner
        Whose weights and sums they change.
    kernels : Kernels
    progressive : bool
        True if each row is scored for all classes before it is learned from.
    """

    learner: Learner
    kernels: Kernels
    progressive = True

    def set_columns(self, spec: Spec) -> None:  # noqa: B027
        """Make scratch arrays for the columns of the weights."""

    @abc.abstractmethod
    def compile(self, rows: Rows, old: OldDuals) -> None:
        """Compile or load the kernels by visiting `rows`, of which there are none."""

    def read_duals(self, duals: PassDuals, first: int, rows: Rows) -> ReadDuals:
        """Read the duals that the last pass left of a block that begins with row `first`, for `learn`."""
        return duals.segment(first, rows.n_rows)

    @abc.abstractmethod
    def learn(
        self, block: TrainingBlock, old: ReadDuals, keep: PassDuals | None, next_pause: Callable[[int], int]
    ) -> Iterator[int]:
        """Visit the rows of a block in its order, each with one exact block step.

        Parameters
        ----------
        block : TrainingBlock
        old : OldDuals or DualMatrix
            The rows' duals as the last pass left them: what `read_duals` returned.
        keep : PassDuals, optional
            Duals of this pass, to which new duals are appended as the buffer fills.
        next_pause : callable
            Maps a number of visited rows to the larger number at which to pause next.

        Yields
        ------
        int
            The position in the block at each pause.
        """

    @abc.abstractmethod
    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        """Add loss and correct predictions of rows to `tallies`, with the weights fixed.

        Parameters
        ----------
        tallies : ndarray of float64, shape (1 or 2, N_TALLIES)
            Sums for the last iterate and, in a second row, for the average of this scale.
        """

    def score_blocks(self, blocks: Blocks, average_scale: float | None, tallies: np.ndarray) -> Iterator[int]:
        """Score blocks in their order as `score` does; yields the number of rows done after each of them."""
        each = blocks.each(blocks.starts, range(len(blocks)))
        with Prefetcher(each, is_single=len(blocks) == 1) as all_rows:
            for number, rows in enumerate(all_rows):
                self.score(rows, average_scale, tallies)
                yield int(blocks.starts[number + 1])


class Learner:
    """Weights and the state of their training.

    Parameters
    ----------
    spec : Spec
        With the classes known so far; `learn` adds those that appear in a block.
    storage : WeightStorage
    visits : Visits

    Attributes
    ----------
    problem : Problem
    tally : ndarray of float64, shape (N_TALLIES,)
        Sums over the rows of the pass in progress.
    averaging : bool
        True while visits update the average too.
    origin : Origin or None
        The weights that the training began at, if they were not 0.
    """

    origin: Origin | None = None

    def __init__(self, spec: Spec, storage: WeightStorage, visits: Visits) -> None:
        self.spec, self.loss, self.storage, self.visits = spec, spec.loss, storage, visits
        visits.learner = weakref.proxy(self)  # in a cycle the weights would outlive the training
        self.read_duals, self.learn, self.score = visits.read_duals, visits.learn, visits.score
        self.tally = own_lines(N_TALLIES)
        self.averaging = False
        self.set_classes(spec.n_classes)

    def set_classes(self, n_classes: int) -> None:
        """Make room for the weights and scores of so many classes, and score for these alone."""
        if n_classes != self.n_classes:
            self.spec = self.spec.grown(self.storage.n_features, n_classes)
        self.storage.grow(self.storage.n_features, n_classes + self.loss.extra_columns)
        self.problem = problem_of(self.spec)
        self.visits.set_columns(self.spec)

    @property
    def n_classes(self) -> int:
        """Number of classes known so far."""
        return self.spec.n_classes

    @property
    def visited(self) -> int:
        """Number of rows visited in the pass in progress."""
        return int(self.tally[VISITED])

    @property
    def average_scale(self) -> float:
        """Factor in the average ``current - average_scale * average_delta``."""
        return (self.spec.time_unit / max(float(self.tally[CLOCK]), 1.0)) ** AVERAGE_POWER

    def begin_average(self) -> None:
        """Start the average of the iterates at the current weights."""
        self.tally[CLOCK] = self.tally[DUAL_DELTA] = 0.0
        self.storage.begin_average()
        self.averaging = True

    def end_pass(self) -> None:
        """Reset the sums over a pass; the average's clock goes on."""
        self.tally[:CLOCK] = 0.0
        self.storage.end_pass()

    def compile(self, rows: Rows, old: OldDuals) -> None:
        """Compile or load the kernels by visiting and scoring `rows`, of which there are none."""
        permutation(0, 0, 0, 0, 0)
        self.visits.compile(rows, old)
        self.score(rows, None, np.zeros((1, N_TALLIES)))

    def centre(self, features: np.ndarray) -> None:
        """Shift the weights of some features to the mean 0 over the classes, if the loss wants it."""
        if not (self.loss.extra_columns or self.loss.centred):
            return
        weights = self.moved_weights()
        for matrix in (weights.current, weights.average_delta):
            if len(matrix) and self.loss.centred:
                centre(features, matrix, self.problem.ranges)
            elif len(matrix):
                centre_with_shared(features, matrix, self.n_classes)

    def coefficients(self, columns: np.ndarray, *, average: bool) -> Coefficients:
        """Return the coefficients of a model with these classes: of the last iterate, or of the average."""
        if self.spec.groups is not None:
            columns = self.spec.groups.columns[columns]
        scale = self.average_scale if average else None
        shared = self.n_classes if self.loss.extra_columns else None
        found = self.storage.coefficients(scale, columns)._replace(shared_column=shared)
        return found.without_last(self.loss.extra_rows(self.n_classes))

    def norms(self, *, average: bool = False) -> tuple[float, float]:
        """Return ‖w - W₀‖² and ⟨w - W₀, W₀⟩ of the last iterate, or of the average; W₀ is `origin`, or 0."""
        if self.origin is not None:
            return self.origin.distance(self.coefficients(np.arange(self.n_classes), average=average))
        scale = self.average_scale if average else 0.0
        return add_up(self.storage.squares(self.visits.kernels.norm2, self.problem, scale)), 0.0

    def moved_weights(self) -> Weights:
        """Return the weights that visits update: with their average while there is one, else alone."""
        weights = self.storage.weights
        if self.averaging:
            return weights
        return weights._replace(average_delta=weights.average_delta[:0], time_unit=np.inf)

    @property
    def target(self) -> Target:
        """What visits solve, and what they change."""
        return Target(self.problem, self.moved_weights(), self.tally, self.storage.sparse_rows)


def features_of(rows: Rows, n_features: int) -> np.ndarray:
    """Return the distinct features of the rows, ascending."""
    if rows.indices is None:
        return np.arange(n_features if rows.n_rows else 0)
    seen = np.zeros(n_features, np.bool_)
    mark(rows.indices, seen)
    return np.flatnonzero(seen)


def problem_of(spec: Spec) -> Problem:
    """Return the parameters that the kernels of the loss take; in groups, classes are columns."""
    settings, groups = spec.settings, spec.groups
    problem = Problem(
        spec.n_classes,
        settings.margin,
        smooth=settings.smooth or 0.0,
        top=settings.top or 1,
        temperature=settings.temperature or 1.0,
        solver=spec.loss.solvers.index(settings.solver),
    )
    return problem if groups is None else problem._replace(n_classes=groups.n_columns, ranges=groups.ranges)
