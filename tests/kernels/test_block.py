"""The block step of each loss gives the exact duals, to 1e-12, whatever the sizes of C, ‖x‖² and the scores.

What is tested are functions of a loss and a problem that give its new duals (`solvers`). The exact duals are
tested in their turn: by the conditions of optimality, which fractions meet without any tolerance, and by a
general convex solver.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import reference
from block_problems import Block, exact_duals, fractions, random_block, slacks, state, visit
from small_problem import EXACT

from streamsvm.losses import ROW_LOSSES as LOSSES

Solver = Callable[[str, Block], np.ndarray]

EPS = np.finfo(float).eps
LISTS = ("ww", "cs", "ovr2")  # losses that default tests solve from lists of duals, too
QUICK, MORE, CHECKED = 80, 300, 25  # problems of each loss
# Numbers of classes at and around those of whole vectors, and how often they are tried.
SIZES = {1: 3, 2: 10, 3: 15, 4: 15, 7: 8, 8: 8, 9: 8, 15: 5, 16: 8, 17: 5, 33: 4, 63: 2, 64: 3, 65: 3, 130: 1}


def solvers(loss: str, *, several: bool = False) -> list[Any]:
    """The exact solvers of a loss; of those of the kernels the default alone takes several labels.

    Duals are dense; with the default solver, and for some losses by further cases, lists too.
    """
    default, *others = LOSSES[loss].solvers
    found = [
        pytest.param(
            functools.partial(visit, solver=solver),
            id=f"dense-{solver}",
            marks=[pytest.mark.engine] * (solver != default),
        )
        for solver in (default, *others * (not several))
        if solver in EXACT
    ]
    marks = [pytest.mark.more] * (loss not in LISTS)
    return [
        *found, pytest.param(functools.partial(visit, solver=default, lists=True), id="lists", marks=marks),
    ]  # fmt: skip


def variants() -> list[tuple[str, str, bool]]:
    """Each loss, with what its errors may weigh, and with several labels a row."""
    found = []
    for loss in LOSSES.values():
        errors = ["", *["margins"] * loss.pair_margins, *["class weights"] * loss.own_dual]
        found += [(loss.name, kind, False) for kind in errors]
        found += [
            (loss.name, kind, True) for kind in ("", "class weights") if loss.label_sets and kind in errors
        ]
    return found


def cases() -> list[Any]:
    """The variants with solvers and numbers of problems."""
    found = []
    for loss, errors, several in variants():
        # Kernels of pairs and of several labels are compiled for one loss, and for others by further cases.
        numbers = (QUICK, MORE) if loss == "ww" or not (errors or several) else (MORE,)
        special = [pytest.mark.engine] * bool(errors or several)
        for solve in solvers(loss, several=several):
            for n in numbers:
                name = "-".join(filter(None, (loss, errors, "labels" * several, solve.id)))
                marks = [*solve.marks, *special, *[pytest.mark.more] * (n == MORE)]
                found.append(
                    pytest.param(loss, errors, several, *solve.values, n, id=f"{name}-{n}", marks=marks)
                )
    return found


@functools.cache
def problems(loss: str, errors: str, several: bool, n: int) -> list[tuple[Block, Any]]:
    """Random problems and their exact duals."""
    rng, found = np.random.default_rng(n), []
    share = np.array(list(SIZES.values())) / sum(SIZES.values())
    for k in rng.choice(list(SIZES), p=share, size=n).tolist():
        least = 0 if LOSSES[loss].own_dual else 1
        n_own = int(rng.integers(least, k + 1)) if several else 1
        block = random_block(rng, loss, k, n_own=n_own, errors=errors)
        found.append((block, exact_duals(loss, block)))
    return found


def largest(loss: str, block: Block, exact: Any) -> float:
    """The largest of the old and the new duals; for probabilities C."""
    return block.C if loss == "logistic" else max(float(max(exact)), block.old.max())


def assert_exact(loss: str, solve: Solver, block: Block, exact: Any) -> None:
    b = solve(loss, block)
    wrong = np.abs(b - exact.astype(float)).max()
    assert wrong <= 1e-12 * largest(loss, block, exact), (block, exact.astype(float), b)


@pytest.mark.parametrize(("loss", "errors", "several", "solve", "n"), cases())
def test_the_duals_are_exact(loss: str, errors: str, several: bool, solve: Solver, n: int) -> None:
    n_tried = 0
    for block, exact in problems(loss, errors, several, n):
        if not may_be_missed(loss, block, exact):
            assert_exact(loss, solve, block, exact)
            n_tried += 1
    assert n_tried > n / 2


# -- where the kernels are not exact ---------------------------------------------------------------


def may_be_missed(loss: str, block: Block, exact: Any) -> bool:
    """Whether a problem is of one of the kinds of `MISSED`."""
    wrong, least = ~block.own, largest(loss, block, exact) / 1e13  # differences of duals that matter
    if loss == "logistic":
        return block.q * block.C > 1e16
    if loss != "top-m" or not wrong.any():
        return False
    old, slack = fractions(block.old), slacks(loss, block, fractions(block.scores))
    u = np.sort((slack / Fraction(block.q) + old + old.sum())[wrong])
    rounding, gaps = EPS * float(max(abs(u))), np.diff(u)
    is_stuck = (u > 0).sum() > block.top
    return rounding > 0.1 * least and bool(is_stuck or any((gaps > 0) & (gaps <= 4 * rounding)))


def of_first_class(C: float, q: float, scores: list[float], old: list[float], top: int = 1) -> Block:
    own = np.arange(len(scores)) == 0
    return Block(1.0, 0.5, top, q, C, own, np.array(scores, float), np.array(old, float))


_STUCK = (
    "where C‖x‖² is less than rounding of the slack, Newton's step from the lower end of the bracket changes "
    "nothing, and this end passes for the root: all classes with a positive slack get a dual, not the m best"
)
_SHIFTED = (
    "u is shifted to the class next to a first γ, which does not tell apart classes whose u differ by less "
    "than rounding of the largest u, but by more than C: to the wrong one of them, and only once"
)
_OVERFLOWS = (
    "where C‖x‖² is more than 1e16, log p is lost beside C‖x‖² p: its rounding errors are hundreds, and the "
    "exponential of one overflows, after which all duals are NaN"
)
_U = 9e-12
MISSED = {
    "stuck": ("top-m", _STUCK, of_first_class(1.0, 1e-20, [0, 0.5, 0.25, -0.25, -0.5], [0] * 5, 2)),
    "shifted": (
        "top-m",
        _SHIFTED,
        of_first_class(
            6 * _U,
            3e-10,
            [0, -1 + 2.0**-42, -1, -1 + 2.0**-18, 2.0**19, -(2.0**31), -(2.0**31)],
            [0, 0, 0, _U, _U, _U, _U],
            6,
        ),
    ),
    "overflows": ("logistic", _OVERFLOWS, of_first_class(1e11, 1e11, [0, 7e6, -6e6], [0, 0, 0])),
}


@pytest.mark.parametrize(
    ("loss", "solve", "block"),
    [
        pytest.param(
            loss,
            *solve.values,
            block,
            id=f"{loss}-{name}-{solve.id}",
            marks=[*solve.marks, pytest.mark.xfail(strict=True, reason=reason)],
        )
        for name, (loss, reason, block) in MISSED.items()
        for solve in solvers(loss)
    ],
)
def test_the_duals_are_exact_at_the_ends_of_the_range(loss: str, solve: Solver, block: Block) -> None:
    exact = exact_duals(loss, block)
    assert may_be_missed(loss, block, exact)
    assert_exact(loss, solve, block, exact)


# Of classes with one score, beside which the duals have no digits, that with the largest dual is the top.
EQUAL_SCORES = {
    "cs": of_first_class(1.0, 1e-20, [0, -1, -1], [0, 0.25, 0.75]),
    "cs2": of_first_class(1e12, 1e-12, [0, -1, -1], [0, 2.5e-6, 7.5e-6]),
}


@pytest.mark.parametrize(
    ("loss", "solve"),
    [pytest.param(name, *s.values, marks=s.marks) for name in EQUAL_SCORES for s in solvers(name)],
)
def test_the_largest_dual_is_the_top_of_equal_scores(loss: str, solve: Solver) -> None:
    assert_exact(loss, solve, EQUAL_SCORES[loss], exact_duals(loss, EQUAL_SCORES[loss]))


@pytest.mark.parametrize(
    ("loss", "solve"),
    [pytest.param(name, *s.values, marks=s.marks) for name in LOSSES for s in solvers(name)],
)
@pytest.mark.parametrize("k", [3, 9])
def test_a_number_that_is_none_stays_visible(k: int, loss: str, solve: Solver) -> None:
    """In the duals, wherever it enters the problem of a row."""
    own, has_own = np.arange(k) == 1, LOSSES[loss].own_dual
    block = Block(1.0, 0.3, 2, 1.5, 0.5, own, np.linspace(-1, 1, k), np.where(own > has_own, 0, 0.2 / k))
    assert np.isfinite(solve(loss, block)).all()
    for name, of_classes in {
        "scores": ~own | (not loss.startswith("llw")),  # to which the score of the own class is nothing
        "old": ~own | has_own,
    }.items():
        for c in np.flatnonzero(of_classes):
            damaged = np.where(np.arange(k) == c, np.nan, getattr(block, name))
            assert np.isnan(solve(loss, block._replace(**{name: damaged}))).any(), (name, c)


# -- the exact duals themselves --------------------------------------------------------------------


def coefficients(loss: str, block: Block, b: Any) -> Any:
    """What the duals of a row add to the weights of each class: the mean over the row's own classes."""
    if LOSSES[loss].own_dual:
        return np.where(block.own, 1, -1) * b
    made = reference.LOSSES[loss](1 if block.margin == 1 else Fraction(block.margin))
    each = [made.coefficients(b, y) for y in np.flatnonzero(block.own)]
    return sum(each) / len(each)


@pytest.mark.parametrize(("loss", "errors", "several"), variants())
def test_exact_duals_meet_the_conditions_of_optimality(loss: str, errors: str, several: bool) -> None:
    """Fractions without a tolerance; the gradient of the dual objective is by the definition of the loss."""
    for block, b in problems(loss, errors, several, CHECKED):
        step = coefficients(loss, block, b) - coefficients(loss, block, fractions(block.old))
        if loss == "logistic":
            after, p = block.scores + block.q * step.astype(np.longdouble), b / block.C
            p[block.own] = 1 - p.sum()
            known = p > np.where(block.own, 0.01, 1e-300)
            theta = after[known] - np.log(p[known])
            assert np.ptp(theta) <= 1e-16 * (1 + np.abs(after).max() + block.q * block.C)
        elif len(b) > block.own.sum() or LOSSES[loss].own_dual:
            of, after = state(loss, block), fractions(block.scores) + Fraction(block.q) * step
            gradient = slacks(loss, block, after) - of.c * b - of.e * b.sum()
            may_rise, may_fall = b < of.upper, b > 0
            assert all((b >= 0) & (b <= of.upper))
            assert sum(b) <= of.total
            if sum(b) == of.total:  # less the multiplier of this bound: what is left where b could still rise
                gradient = gradient - max(0, *gradient[may_rise], 0)
            assert all(gradient[may_rise] <= 0)
            assert all(gradient[may_fall] >= 0)


@pytest.mark.parametrize(("loss", "errors", "several"), variants())
def test_exact_duals_are_those_of_a_general_solver(loss: str, errors: str, several: bool) -> None:
    """By the primal problem: the scores after the step minimise the loss plus ‖change‖² / 2‖x‖²."""
    cp = pytest.importorskip("cvxpy")
    import general_solver

    rng = np.random.default_rng(3)
    for k in (3, 5):
        block = random_block(rng, loss, k, n_own=2 if several else 1, errors=errors)
        C, q = 10 ** rng.uniform(-1, 1, 2)
        block = block._replace(C=C, q=q, smooth=0.3, scores=rng.normal(size=k), old=np.zeros(k))
        after = cp.Variable((1, k))
        margins = np.where(block.own, 1, block.of_class(block.margins))
        weights = C * np.where(block.own & (not LOSSES[loss].own_dual), 1, block.of_class(block.costs))
        of_row = reference.LOSSES[loss](block.margin, block.smooth, block.top)
        value = general_solver.losses(
            of_row, after, block.own[None].astype(float), margins[None], weights[None]
        )
        same_sum = [cp.sum(after) == block.scores.sum()] if loss.startswith("llw") else []
        objective = value + cp.sum_squares(after - block.scores[None]) / (2 * q)
        cp.Problem(cp.Minimize(objective), same_sum).solve(solver=cp.CLARABEL)
        step = coefficients(loss, block, exact_duals(loss, block)).astype(float)
        np.testing.assert_allclose((after.value[0] - block.scores) / q, step, atol=1e-4 * C)
