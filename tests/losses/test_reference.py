"""The plain NumPy versions of the losses satisfy the Fenchel-Young inequality, which needs no solver."""

from __future__ import annotations

import numpy as np
import pytest
import reference

CASES = [(name, margin) for name, loss in reference.LOSSES.items() for margin in loss.optima]


def random_row(rng: np.random.Generator, loss: reference.Loss) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Scores, feasible duals, the class, and C."""
    k, C = int(rng.integers(2, 9)), 10 ** rng.uniform(-2, 1)
    y = int(rng.integers(k))
    scores = 10 ** rng.uniform(-1, 1) * rng.normal(size=k)
    if isinstance(loss, reference.LeeLinWahba):
        scores -= scores.mean()  # as the weights are constrained
    each, total = loss.bounds(C, k)
    b = rng.choice([0, 0.2, 0.9, 1], size=k) * min(each, 3.0)
    if not loss.own_dual:
        b[y] = 0
    if b.sum() > total:
        b *= total / b.sum()
    return scores, b, y, C


@pytest.mark.parametrize(("name", "margin"), CASES)
def test_duals_bound_the_loss_and_the_block_step_closes_the_gap(name: str, margin: float) -> None:
    """C loss(s) >= dual term - aᵀs for all feasible duals and all scores: what makes the gap a certificate.

    Where they are equal at the scores after a step, the step was exact.
    """
    rng = np.random.default_rng(0)
    for _ in range(300):
        loss = reference.LOSSES[name](
            margin, smooth=rng.choice([0.1, 0.5, 3.0]), top=int(rng.integers(1, 10))
        )
        scores, b, y, C = random_row(rng, loss)
        assert loss.is_feasible(b, y, C)
        bound = loss.dual_term(b, C) - loss.coefficients(b, y) @ scores
        assert C * loss.value(scores, y) >= bound - 1e-12 * (1 + abs(bound))

        q = 10 ** rng.uniform(-3, 1)
        new = loss.block(scores, b, y, q, C)
        assert loss.is_feasible(new, y, C)
        scores = scores + q * (loss.coefficients(new, y) - loss.coefficients(b, y))
        terms = [C * loss.value(scores, y), loss.dual_term(new, C), loss.coefficients(new, y) @ scores]
        assert terms[0] == pytest.approx(
            terms[1] - terms[2], rel=1e-11, abs=1e-12 * (C + np.abs(terms).sum())
        )
