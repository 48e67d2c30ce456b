"""Random block problems of one row, their exact solution, and that of the kernels.

The numbers of a problem are floating-point numbers, and its exact solution is that for these very numbers.
The hinges are solved in fractions: where C‖x‖² is 1e-40, numbers of 64 or 80 bits do not have the digits.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import reference
from reference_blocks import by_breakpoints, logistic_block

from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.data.rows import Rows
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.duals import DualMatrix, Duals, RowDuals, new_matrix
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.row_steps import LabelSets
from streamsvm.kernels.scratch import Scratch
from streamsvm.kernels.tally import N_TALLIES
from streamsvm.kernels.weights import Weights, padded_classes
from streamsvm.losses import LOSSES
from streamsvm.run.duals import DualFormat

F64 = np.dtype(float)
SLACKS = ("mixed", "ties", "equal", "all at U", "far below 0", "around U", "huge and tiny", "equal scores")
OLD_DUALS = ("0", "U", "sum at its bound", "some")


class Block(NamedTuple):
    """A block problem: find the new duals of one row."""

    margin: float  # M
    smooth: float  # ε of the smoothed hinge
    top: int  # m of top-m
    q: float  # ‖x‖²
    C: float  # times the weight of the row
    own: np.ndarray  # (k,) bool: the row's classes
    scores: np.ndarray  # (k,): of the weights, which have the row's own part by its old duals
    old: np.ndarray  # (k,): the old duals
    margins: np.ndarray | None = None  # (k,): Δ of each wrong class; None if they are 1
    costs: np.ndarray | None = None  # (k,): class weights, 1 of wrong classes; None if all are 1

    def of_class(self, values: np.ndarray | None) -> np.ndarray:
        return np.ones(len(self.own)) if values is None else values


# -- the exact solution ----------------------------------------------------------------------------


def fractions(values: Any) -> Any:
    """The same numbers without rounding in what follows; infinity stays."""
    return np.vectorize(lambda x: x if x == np.inf else Fraction(x), otypes=[object])(values)


class Statement(NamedTuple):
    """The problem min ½Σ (h + c_j) b_j² + ½(hκ + e)(Σb)² - vᵀb over 0 <= b <= U, Σb <= Z, as fractions."""

    slack: Any  # (k,): 1 minus what the scores are ahead
    c: Any  # (k,): curvature of each dual's term
    e: Any  # of the term of their sum
    upper: Any  # (k,): U, 0 for a class without a dual
    total: Any  # Z


def slacks(loss: str, block: Block, scores: Any) -> Any:
    """How far the score of each class is from costing nothing, by the definition of the loss."""
    made, own = reference.LOSSES[loss], block.own
    margins = fractions(np.where(own, 1, block.of_class(block.margins)))
    if made.own_dual:
        return margins - np.where(own, 1, -1) * scores
    if issubclass(made, reference.LeeLinWahba):
        return margins + scores
    return margins - Fraction(block.margin) * (scores[own].sum() / int(own.sum()) - scores)


def state(loss: str, block: Block) -> Statement:
    """The terms and bounds of the duals; those of a class that costs nothing are 0."""
    made = reference.LOSSES[loss](block.margin, Fraction(block.smooth), block.top)
    k, C = len(block.own), Fraction(block.C)
    costs = [C * Fraction(cost) for cost in block.of_class(block.costs)]
    has_dual = ~block.own | made.own_dual
    upper = [
        made.bounds(cost, k)[0] if cost and has else 0 for cost, has in zip(costs, has_dual, strict=True)
    ]
    each = [made.curvature(cost)[0] if cost else 0 for cost in costs]
    return Statement(
        slacks(loss, block, fractions(block.scores)),
        fractions(each),
        Fraction(made.curvature(C)[1]),
        fractions(upper),
        made.bounds(C, k)[1],
    )


def exact_duals(loss: str, block: Block) -> Any:
    """The new duals, shape (k,): fractions, or for the logistic loss in extended precision."""
    made, k, n_own = reference.LOSSES[loss], len(block.own), int(block.own.sum())
    if loss == "logistic":
        old, y = block.old.astype(np.longdouble), int(np.argmax(block.own))
        without = block.scores + block.q * np.where(block.own, -old.sum(), old)
        return logistic_block(without, y, np.longdouble(block.q), np.longdouble(block.C), ~block.own)
    old, h = fractions(block.old), Fraction(block.margin) ** 2 * Fraction(block.q)
    if k == n_own and not made.own_dual:
        return 0 * old
    if made.own_dual:
        coupling = Fraction(0)
    elif issubclass(made, reference.LeeLinWahba):
        coupling = Fraction(-1, k)
    else:
        coupling = Fraction(1, n_own)
    of = state(loss, block)
    part, v, new = of.upper > 0, of.slack + h * (old + coupling * old.sum()), 0 * old
    new[part] = by_breakpoints(v[part], h + of.c[part], h * coupling + of.e, of.upper[part], of.total)
    return new


# -- the solution of the kernels -------------------------------------------------------------------


def visit(loss: str, block: Block, solver: str, *, lists: bool = False) -> np.ndarray:
    """The new duals after a visit of a row whose only value is 1, so that its scores are the weights.

    Duals are a matrix or `lists`. What the kernel takes for ‖x‖² is a number of its own.
    """
    known, k = LOSSES[loss], len(block.own)
    y = int(np.argmax(block.own)) if block.own.any() else -1
    current = np.zeros((1, padded_classes(k + known.extra_columns, F64)))
    current[0, :k] = block.scores
    if known.extra_columns:  # 1/k of the column after the classes is added to each of these
        current[0, :k] -= 0.5
        current[0, k] = 0.5 * k
    pairs, sets = None, None
    if block.margins is not None or block.costs is not None:
        pairs = pairs_of(block, y, current.shape[1])
    if block.own.sum() != 1:
        codes = np.flatnonzero(block.own).astype(np.int32)
        sets = LabelSets(codes, np.array([0, len(codes)]))
    zero = np.zeros(1, np.int64)
    rows = Rows(
        np.ones(1), np.zeros(1, np.int32), np.arange(2), np.array([y], np.int32), np.array([block.q]),
        np.array([block.C]),
    )  # fmt: skip
    kernels, problem = known.kernels_of(solver), Problem(k, block.margin, block.smooth, block.top)
    weights, scratch = Weights(current, current[:0], 1.0), Scratch.create(current.shape[1], F64)
    tally = np.zeros(N_TALLIES)
    if not lists:
        matrix = new_matrix(1, k + known.extra_columns, F64)
        matrix[0, :k] = block.old
        duals = DualMatrix(matrix, matrix)
        kernels.visit_matrix(rows, zero, 0, 1, problem, weights, duals, scratch, tally, None, pairs, sets)
        assert not matrix[0, k:].any()
        return matrix[0, :k]
    ids = np.flatnonzero(block.old)
    count = np.array([len(ids)], np.int32)
    old = RowDuals(zero, count, ids.astype(dual_id_dtype(k)), block.old[ids]).in_block(1)
    new = DualFormat(F64, dual_id_dtype(k)).new_buffer(k, 1)
    kernels.visit(rows, zero, 0, 1, problem, weights, Duals(old, new), scratch, tally, None, pairs, sets)
    b = np.zeros(k)
    b[new.ids[: new.used[0]]] = new.values[: new.used[0]]
    return b


def pairs_of(block: Block, y: int, columns: int) -> ClassPairs:
    k = len(block.own)
    margins, own_costs = np.zeros((0, columns), np.float32), np.zeros(0)
    if block.margins is not None:
        margins = np.ones((k, columns), np.float32)
        margins[y, :k] = block.margins
    if block.costs is not None:
        own_costs = np.ones(columns)
        own_costs[:k] = block.costs
    return ClassPairs(margins, own_costs)


# -- random problems -------------------------------------------------------------------------------


def random_block(rng: np.random.Generator, loss: str, k: int, *, n_own: int = 1, errors: str = "") -> Block:
    """A problem of one kind of slacks, with C from 1e-12 to 1e12 and ‖x‖² from 1e-30 to 1e12.

    The slacks are nearly free of rounding errors, so that these are not what is tested: the scores have few
    enough digits that their differences and sums with 1 are exact, or as exact as the largest of them.
    """
    made = reference.LOSSES[loss]
    margin = float(rng.choice(LOSSES[loss].margins))
    smooth, top = 10 ** rng.uniform(-3, 1), int(rng.integers(1, k + 2))
    C, q = 10 ** rng.uniform(-12, 12), 10 ** rng.uniform(-30, 12)
    own = np.zeros(k, bool)
    own[rng.permutation(k)[:n_own]] = True
    costs = margins = None
    if errors == "class weights":
        costs = np.where(own, rng.choice([0, 1, 0.3, 7], size=k), 1)
    if errors == "margins":
        margins = np.where(own, 1, rng.integers(0, 13, size=k) / 4)

    reach = margin**2 * q * C  # what a dual of C changes a slack by
    scale = float(rng.choice([reach, 1, 10 ** rng.uniform(-6, 6)]))
    if loss == "logistic":  # whose probabilities are as exact as scores are absolutely, unless ‖x‖²C is large
        scale = reach if scale == reach else min(scale, 100)
    slack = scale * rng.normal(size=k)
    kind = str(rng.choice(SLACKS))
    if kind == "ties":
        slack = scale * rng.integers(-2, 3, size=k)
    elif kind == "equal":
        slack = np.full(k, scale)
    elif kind == "all at U":
        slack = np.abs(slack) + (k + 1) * reach
    elif kind == "far below 0":
        slack -= 1e8 * scale
    elif kind == "around U":
        slack = reach * (rng.integers(0, 4, size=k) + rng.choice([0, 1e-12, 0.5], size=k))
    elif kind == "huge and tiny":
        slack *= 10.0 ** rng.integers(-12, 13, size=k)

    base = few_digits(float(rng.choice([0, 1, scale])) * rng.normal(), 1.0)
    size, delta = max(1.0, abs(base)), 1 if margins is None else margins
    if kind == "equal scores":  # up to what C may change: the slacks are near 1
        scores = base * (reach > 1e-12) + reach * rng.normal(size=k) * rng.integers(0, 2, size=k)
        if margins is not None or n_own > 1:
            scores = few_digits(scores, size)
    elif made.own_dual:
        scores = np.where(own, 1, -1) * (delta - few_digits(slack, 1.0))
    elif issubclass(made, reference.LeeLinWahba):
        scores = few_digits(slack, size) - delta
    else:
        scores = base + (few_digits(slack, size) - delta) / margin
    if not made.own_dual and (kind != "equal scores" or n_own > 1):
        scores[own] = base
        if n_own > 1:  # whose mean is `base`
            move = few_digits(rng.normal() * size, size)
            scores[np.flatnonzero(own)[:2]] += [move, -move]

    old = random_duals(rng, loss, C, own, top, costs, slack / (margin**2 * q))
    return Block(margin, smooth, top, q, C, own, scores, old, margins, costs)


def random_duals(
    rng: np.random.Generator,
    loss: str,
    C: float,
    own: np.ndarray,
    top: int,
    costs: np.ndarray | None,
    reach: np.ndarray,
) -> np.ndarray:
    """Feasible old duals: at a bound, of the size of `reach`, or none."""
    made, k, kind = reference.LOSSES[loss](top=top), len(own), rng.choice(OLD_DUALS)
    if kind == "0" or k == 1:
        return np.zeros(k)
    each, total = made.bounds(C * (1.0 if costs is None else costs), k)
    size = each
    if not np.isfinite(each).all():
        size = float(rng.choice([C, np.abs(reach).max()])) * 10 ** rng.uniform(-3, 3)
    old = size * np.ones(k)
    if kind != "U":
        old *= rng.choice([0, 0, 1e-8, 0.5, 1], size=k) * rng.choice([1, rng.random()], size=k)
    if costs is not None:
        old[costs == 0] = 0
    if not made.own_dual:
        old[own] = 0
    if old.sum() > total or (kind == "sum at its bound" and np.isfinite(total) and old.any()):
        old = np.minimum(old * (total / old.sum()), each)
    return old


def few_digits(values: Any, least: float) -> Any:
    """Rounded to 42 binary digits of themselves, or of `least` if that is larger."""
    unit = 2.0 ** (np.ceil(np.log2(np.maximum(np.abs(values), least))) - 42)
    return np.round(values / unit) * unit
