"""Block steps of whole visits satisfy the conditions of optimality, over all sizes of rows, scores and C.

Row i has one value, in feature i: each row is a problem of its own, and one call makes a step for each. What
a step must satisfy is stated by the dual problem: nothing of how the kernels solve it is used.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import pytest
import reference
from scipy.special import log_softmax
from small_problem import EXACT

from streamsvm.data.rows import Rows
from streamsvm.kernels.dual_matrix import DualMatrix, matrix_columns
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.scratch import Scratch
from streamsvm.kernels.tally import DUAL_SUM, N_TALLIES
from streamsvm.kernels.weights import Weights, padded_classes
from streamsvm.losses import ROW_LOSSES as LOSSES

F64, EPS = np.dtype(float), np.finfo(float).eps
NUMBERS_OF_CLASSES = (2, 3, 4, 6, 9, 17, 33, 70)
KINDS = ("mixed", "ties", "all at C", "far below 0", "equal", "around C", "huge and tiny")
QUICK, ALL = 5_000, 100_000  # blocks of each loss, margin and solver

CASES = [
    pytest.param(loss.name, margin, solver, id=f"{loss.name}-{margin}-{solver}")
    for loss in LOSSES.values()
    for margin in loss.margins
    for solver in loss.solvers
]


class Blocks(NamedTuple):
    """Blocks of one number of classes: arrays over the blocks, or over blocks and classes."""

    scores: np.ndarray  # (n, k)
    b: np.ndarray  # (n, k)
    y: np.ndarray  # (n,)
    q: np.ndarray  # (n,): ‖x‖²
    C: np.ndarray  # (n,)


def random_blocks(rng: np.random.Generator, n: int, k: int, kind: str, loss: reference.Loss) -> Blocks:
    """Scores with slacks of one kind, in units of C‖x‖² or of a size of their own, and old duals."""
    q, C = 10 ** rng.uniform(-6, 6, (2, n))
    y = rng.integers(k, size=n)
    own = np.arange(k) == y[:, None]
    reach = (loss.margin**2 * q * C)[:, None]  # of a dual: what C changes a slack by
    scale = np.where(rng.random((n, 1)) < 0.5, reach, 10 ** rng.uniform(-6, 6, (n, 1)))
    slack = scale * rng.normal(size=(n, k))
    if kind == "ties":
        slack = scale * rng.integers(-2, 3, size=(n, k))
    elif kind == "all at C":
        slack = np.abs(slack) + (k + 1) * reach
    elif kind == "far below 0":
        slack -= 1e8 * scale
    elif kind == "equal":
        slack = scale * np.ones(k)
    elif kind == "around C":
        slack = reach * (rng.integers(0, 4, size=(n, k)) + rng.choice([0, 1e-12, 0.5], size=(n, k)))
    elif kind == "huge and tiny":
        slack *= 10.0 ** rng.integers(-12, 13, size=(n, k))
    if loss.own_dual:
        scores = np.where(own, 1 - slack, slack - 1)
    elif isinstance(loss, reference.LeeLinWahba):  # whose scores sum to zero
        scores = np.where(own, 0, slack - 1)
        scores[own] = -scores.sum(axis=1)
    else:
        base = np.where(rng.random((n, 1)) < 0.5, 0, scale * rng.normal(size=(n, 1)))
        scores = np.where(own, base, base - (1 - slack) / loss.margin)

    each, total = loss.bounds(C, k)
    size = np.minimum(each, C * 10 ** rng.uniform(-3, 3, n))[:, None]  # of duals that have no bound
    b = size * rng.choice([0, 0, 1e-8, 0.5, 1], size=(n, k)) * rng.choice([1, rng.random()], size=(n, k))
    b[rng.random(n) < 0.2] = 0
    if not loss.own_dual:
        b[own] = 0
    total = np.minimum(total, 1e300)
    b *= ((1 - 1e-15) * total / np.maximum(b.sum(axis=1), total))[:, None]
    return Blocks(scores, b, y, q, C)


def visit(
    blocks: Blocks, name: str, loss: reference.Loss, solver: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Visit all blocks; return the scores before and after, and the duals after, each of shape (n, k)."""
    n, k = blocks.scores.shape
    value = np.sqrt(blocks.q)
    current = np.zeros((n, padded_classes(k + LOSSES[name].extra_columns, F64)))
    current[:, :k] = blocks.scores / value[:, None]
    if LOSSES[name].extra_columns:  # 1/k of the column after the classes is added to each of these
        current[:, k] = current[:, 0] - current[:, 1]
        current[:, :k] -= current[:, [k]] / k
    before = scores_of(value, current, name, k)  # after rounding

    matrix = np.zeros((n, matrix_columns(k + LOSSES[name].extra_columns)))
    matrix[:, :k] = blocks.b
    rows = Rows(
        value, np.arange(n, dtype=np.int32), np.arange(n + 1), blocks.y.astype(np.int32), blocks.q, blocks.C
    )
    problem = Problem(k, loss.margin, loss.smooth, loss.top)
    tally = np.zeros(N_TALLIES)
    LOSSES[name].kernels_of(solver).visit_matrix(
        rows, np.arange(n), 0, n, problem, Weights.create(current, current[:0], 1.0),
        DualMatrix(matrix.reshape(-1), matrix.reshape(-1), matrix.shape[1], blocks.C),
        Scratch.create(current.shape[1], F64), tally, None, None, None,
    )  # fmt: skip
    b = matrix[:, :k]
    terms = loss.dual_term(b, blocks.C).sum()
    assert tally[DUAL_SUM] == pytest.approx(terms, rel=1e-9, abs=1e-12 * blocks.C.sum())
    return before, scores_of(value, current, name, k), b


def scores_of(value: np.ndarray, weights: np.ndarray, name: str, k: int) -> np.ndarray:
    scores = value[:, None] * weights[:, :k]
    if LOSSES[name].extra_columns:
        scores += value[:, None] * weights[:, [k]] / k
    return scores


@functools.cache
def matrices(name: str, margin: float, k: int) -> np.ndarray:
    """By class y, the matrix whose row j is what b_j = 1 adds to the coefficients, shape (k, k, k)."""
    loss = reference.LOSSES[name](margin)
    return np.array([[loss.coefficients(row, y) for row in np.eye(k)] for y in range(k)])


def times(vectors: np.ndarray, by_class: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The product of each vector with the matrix of its class, shape (n, k)."""
    found = np.empty_like(vectors)
    for c in range(len(by_class)):
        found[y == c] = vectors[y == c] @ by_class[c]
    return found


def assert_optimal(
    blocks: Blocks,
    loss: reference.Loss,
    A: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    b: np.ndarray,
) -> None:
    """The gradient of the dual objective is 0 where b is free, and points outwards at a bound."""
    y, q, C, k = blocks.y, blocks.q[:, None], blocks.C, b.shape[1]
    each, coupled = loss.curvature(C)
    bent = np.reshape(each, (-1, 1)) * b + (coupled * b.sum(axis=1))[:, None]
    gradient = 1 - bent - times(after, A.transpose(0, 2, 1), y)
    size = np.abs(A)
    upper, total = (np.broadcast_to(bound, len(C)) for bound in loss.bounds(C, k))
    # Digits are lost in the scores, and in what the duals add to them.
    of_scores = times(np.abs(before) + np.abs(after), size.transpose(0, 2, 1), y)
    old, new = (q * times(times(each, size, y), size.transpose(0, 2, 1), y) for each in (blocks.b, b))
    tolerance = 1e-10 * (new + bent) + 64 * EPS * (1 + of_scores + old)
    at_upper = b >= upper[:, None] * (1 - 1e-12)
    if not loss.own_dual:
        gradient[np.arange(len(y)), y] = 0
        at_upper[np.arange(len(y)), y] = True
    # The multiplier of the bound on the sum: what is left of the gradient where b could still rise.
    left = np.where(at_upper, 0, gradient).max(axis=1)
    multiplier = np.where(b.sum(axis=1) >= total * (1 - 1e-12), np.maximum(left, 0), 0)[:, None]
    gradient = gradient - multiplier
    if not loss.own_dual:
        gradient[np.arange(len(y)), y] = 0
    wrong = np.where(b <= 0, gradient, np.where(at_upper, -gradient, np.abs(gradient)))
    worst = np.argmax((wrong / tolerance).max(axis=1))
    assert (wrong <= tolerance).all(), (worst, wrong[worst], tolerance[worst])


def assert_probabilities(blocks: Blocks, before: np.ndarray, after: np.ndarray, b: np.ndarray) -> None:
    """The duals of the wrong classes are C times their softmax."""
    p = b / blocks.C[:, None]
    own = np.arange(len(p)), blocks.y
    p[own] = 1 - p.sum(axis=1)
    wanted = log_softmax(after, axis=1)
    size = np.abs(before).max(axis=1) + np.abs(after).max(axis=1) + blocks.q * blocks.C
    tolerance = (1e-10 + 64 * EPS * size)[:, None]
    assert (np.abs(p - np.exp(wanted)) <= tolerance).all()
    p[own] = 0  # of which only differences are known
    known = p > 1e-300
    log_p = np.log(np.where(known, p, 1))
    assert (np.abs(log_p - wanted) <= tolerance * (1 + np.abs(log_p)))[known].all()
    known[own] = True
    assert (wanted[~known] <= -690 + tolerance.repeat(p.shape[1], 1)[~known]).all()


@pytest.mark.parametrize("n_blocks", [QUICK, pytest.param(ALL, marks=pytest.mark.more)])
@pytest.mark.parametrize(("loss", "margin", "solver"), CASES)
def test_a_step_is_feasible_and_optimal_and_the_dual_does_not_fall(
    loss: str, margin: float, solver: str, n_blocks: int
) -> None:
    rng = np.random.default_rng(n_blocks)
    groups = [(k, kind) for k in NUMBERS_OF_CLASSES for kind in KINDS]
    for k, kind in groups:
        top, smooth = int(rng.integers(1, k + 2)), 10 ** rng.uniform(-3, 1)
        made = reference.LOSSES[loss](margin, smooth, top)
        A = matrices(loss, margin, k)
        blocks = random_blocks(rng, n_blocks // len(groups) + 1, k, kind, made)
        before, after, b = visit(blocks, loss, made, solver)

        upper, total = (np.broadcast_to(bound, len(b)) for bound in made.bounds(blocks.C, k))
        assert (b >= 0).all()
        assert (b <= upper[:, None] * (1 + 1e-12)).all()
        assert (b.sum(axis=1) <= total * (1 + 1e-12)).all()
        if not made.own_dual:
            assert not b[np.arange(len(b)), blocks.y].any()

        if solver not in ("oeg", "bisection"):  # of which a step may be too long, and the other end too early
            steps = times(b - blocks.b, A, blocks.y)
            size = np.abs(before) + np.abs(after)
            terms = made.dual_term(b, blocks.C), -made.dual_term(blocks.b, blocks.C)
            rounding = 1 + times(size, np.abs(A).transpose(0, 2, 1), blocks.y)
            if loss == "logistic":  # of the probabilities, which scores move by ‖x‖²C
                rounding += (blocks.q * blocks.C)[:, None]
            allowed = 1e-280 + 1e-12 * (sum(np.abs(terms)) + (np.abs(steps) * size).sum(axis=1))
            allowed += 64 * EPS * ((b + blocks.b) * rounding).sum(axis=1)
            assert (sum(terms) - 0.5 * (steps * (before + after)).sum(axis=1) >= -allowed).all()
        if solver in EXACT and loss == "logistic":
            assert_probabilities(blocks, before, after, b)
        elif solver in EXACT:
            assert_optimal(blocks, made, A, before, after, b)
