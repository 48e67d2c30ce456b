"""Learner, which holds the weights during training, updates them and scores rows.

A learner opens no files, reads no clock and reports nothing. The trainer (`streamsvm.training.trainer`)
provides blocks, keeps the duals, commits and reports. Subclasses of `Visits` define how to learn from a
block: row by row (`streamsvm.training.plain_visits`) or in splits (`streamsvm.training.parallel`). A visit
solves the dual problem of one row exactly and updates the weights.
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

ReadDuals = OldDuals | DualMatrix  # duals of a block after the previous pass


class Visits(abc.ABC):
    """Base class of the ways to learn from the rows of a block and to score rows."""

    learner: Learner  # holds the weights and sums that visits change
    kernels: Kernels
    progressive = True  # each row is scored for all classes before it is learned from

    def set_columns(self, spec: Spec) -> None:  # noqa: B027
        """Allocate scratch arrays for the weight columns of `spec`."""

    @abc.abstractmethod
    def compile(self, rows: Rows, old: OldDuals) -> None:
        """Compile or load the kernels by visiting the empty `rows`."""

    def read_duals(self, duals: PassDuals, first: int, rows: Rows) -> ReadDuals:
        """Read the duals of the previous pass for a block that starts at row `first`, to pass to `learn`."""
        return duals.segment(first, rows.n_rows)

    @abc.abstractmethod
    def learn(
        self, block: TrainingBlock, old: ReadDuals, keep: PassDuals | None, next_pause: Callable[[int], int]
    ) -> Iterator[int]:
        """Visit all rows of a block, with pauses in which the caller may report or begin the average.

        Parameters
        ----------
        old : OldDuals or DualMatrix
            Duals of the rows after the previous pass, as returned by `read_duals`.
        keep : PassDuals, optional
            Storage for the duals of this pass. New duals are appended when the buffer is full and at the end.
        next_pause : callable
            Maps the number of visited rows to the larger number at which to pause next.

        Yields
        ------
        int
            Position in the block at each pause.
        """

    @abc.abstractmethod
    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        """Score rows with fixed weights, and add their losses and correct predictions to `tallies`.

        `tallies` is a float64 array of shape (1 or 2, N_TALLIES). A second row receives the sums for the
        averaged weights, whose scale is `average_scale`.
        """

    def score_blocks(self, blocks: Blocks, average_scale: float | None, tallies: np.ndarray) -> Iterator[int]:
        """Apply `score` to the blocks in order. After each, yield the number of rows scored so far."""
        pieces = blocks.each(blocks.starts, range(len(blocks)))
        with Prefetcher(pieces, is_single=len(blocks) == 1) as all_rows:
            for number, rows in enumerate(all_rows):
                self.score(rows, average_scale, tallies)
                yield int(blocks.starts[number + 1])


class Learner:
    """Weights and state of a training run. `spec` covers the known classes; `learn` adds new classes."""

    origin: Origin | None = None  # weights at which training started; None if they were zero

    def __init__(self, spec: Spec, storage: WeightStorage, visits: Visits) -> None:
        self.spec, self.loss, self.storage, self.visits = spec, spec.loss, storage, visits
        visits.learner = weakref.proxy(self)  # a cycle would keep the weights alive after training
        self.read_duals, self.learn, self.score = visits.read_duals, visits.learn, visits.score
        self.tally = own_lines(N_TALLIES)
        self.averaging = False  # True while visits update the average, too
        self.set_classes(spec.n_classes)

    def set_classes(self, n_classes: int) -> None:
        """Set the number of classes, and make room for their weights and scores."""
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
        """Number of rows visited in the current pass."""
        return int(self.tally[VISITED])

    @property
    def average_scale(self) -> float:
        """Scale of the average, which is ``current - average_scale * average_delta``."""
        return (self.spec.time_unit / max(float(self.tally[CLOCK]), 1.0)) ** AVERAGE_POWER

    def begin_average(self) -> None:
        """Start averaging the iterates, beginning with the current weights."""
        self.tally[CLOCK] = self.tally[DUAL_DELTA] = 0.0
        self.storage.begin_average()
        self.averaging = True

    def end_pass(self) -> None:
        """Reset the sums of the pass, but not the clock of the average."""
        self.tally[:CLOCK] = 0.0
        self.storage.end_pass()

    def compile(self, rows: Rows, old: OldDuals) -> None:
        """Compile or load the kernels by visiting and scoring the empty `rows`."""
        permutation(0, 0, 0, 0, 0)
        self.visits.compile(rows, old)
        self.score(rows, None, np.zeros((1, N_TALLIES)))

    def centre(self, features: np.ndarray) -> None:
        """If the loss requires it, shift the weights of `features` to mean 0 over the classes."""
        if not (self.loss.extra_columns or self.loss.centred):
            return
        weights = self.moved_weights()
        for matrix in (weights.current, weights.average_delta):
            if len(matrix) and self.loss.centred:
                centre(features, matrix, self.problem.ranges)
            elif len(matrix):
                centre_with_shared(features, matrix, self.n_classes)

    def coefficients(self, columns: np.ndarray, *, average: bool) -> Coefficients:
        """Return the coefficients of the last iterate or the average for the classes `columns`."""
        if self.spec.groups is not None:
            columns = self.spec.groups.columns[columns]
        scale = self.average_scale if average else None
        shared = self.n_classes if self.loss.extra_columns else None
        coefficients = self.storage.coefficients(scale, columns)._replace(shared_column=shared)
        return coefficients.without_last(self.loss.extra_rows(self.n_classes))

    def norms(self, *, average: bool = False) -> tuple[float, float]:
        """Return ‖w - W₀‖² and ⟨w - W₀, W₀⟩ for the last iterate or average w, where W₀ is the origin."""
        if self.origin is not None:
            return self.origin.distance(self.coefficients(np.arange(self.n_classes), average=average))
        scale = self.average_scale if average else 0.0
        return add_up(self.storage.squares(self.visits.kernels.norm2, self.problem, scale)), 0.0

    def moved_weights(self) -> Weights:
        """Return the weights that visits update, including the average once it has started."""
        weights = self.storage.weights
        if self.averaging:
            return weights
        return weights._replace(average_delta=weights.average_delta[:0], time_unit=np.inf)

    @property
    def target(self) -> Target:
        """Problem to solve, and arrays that visits change."""
        return Target(self.problem, self.moved_weights(), self.tally, self.storage.sparse_rows)


def features_of(rows: Rows, n_features: int) -> np.ndarray:
    """Return the distinct features of the rows in ascending order."""
    if rows.indices is None:
        return np.arange(n_features if rows.n_rows else 0)
    seen = np.zeros(n_features, np.bool_)
    mark(rows.indices, seen)
    return np.flatnonzero(seen)


def problem_of(spec: Spec) -> Problem:
    """Return the parameters for the kernels of the loss. With splits by classes, columns replace classes."""
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
