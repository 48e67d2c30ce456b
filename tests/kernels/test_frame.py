"""Losses of the weights and of their average, against plain NumPy; visits are compared by whole trainings."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from cases import few
from helpers import as_rows, make_problem
from small_problem import FORMULATIONS, PARAMETERS

from streamsvm.kernels.frame import Problem
from streamsvm.kernels.scratch import Scratch
from streamsvm.kernels.tally import CORRECT, LOSS_SUM, N_TALLIES, VISITED
from streamsvm.kernels.weights import Weights, padded_classes
from streamsvm.losses import ROW_LOSSES as LOSSES

F64 = np.dtype(float)
N, D, K = 40, 12, 5


@pytest.mark.parametrize(
    ("loss", "margin"), few(dict.fromkeys((loss, M) for loss, M, _ in FORMULATIONS), "ww", "cs", "ovr2")
)
def test_losses_of_the_weights_and_of_their_average_equal_plain_numpy(loss: str, margin: float) -> None:
    parameters, kernels = PARAMETERS[loss], LOSSES[loss].kernels
    X, labels = make_problem(N, D, K, seed=3)
    labels[4] = -1
    dense, known = X.toarray().astype(float), labels >= 0
    cost = np.random.default_rng(0).uniform(0.1, 0.5, N)
    columns = K + LOSSES[loss].extra_columns
    current, delta = np.zeros((2, D, padded_classes(columns, F64)))
    current[:, :columns], delta[:, :columns] = np.random.default_rng(5).normal(size=(2, D, columns))
    weights, scratch = Weights(current, delta, 7.0), Scratch.create(current.shape[1], F64)
    rows, tallies = as_rows(X, labels)._replace(cost=cost), np.zeros((2, N_TALLIES))
    problem = Problem(K, margin, **parameters)
    kernels.loss_rows(rows, problem, weights, 0.7, scratch, tallies, None, None, None)
    for tally, scale in zip(tallies, (0.0, 0.7), strict=True):
        of_columns = current - scale * delta
        W = of_columns[:, :K] + of_columns[:, K:columns].sum(axis=1, keepdims=True) / K
        assert tally[VISITED] == N
        assert tally[CORRECT] == ((dense @ W).argmax(axis=1) == labels).sum()
        expected = reference.primal(W, dense[known], labels[known], cost[known], loss, margin, **parameters)
        kernels.norm2(weights, scale, None, problem, norm2 := np.zeros(1))
        assert norm2[0] == pytest.approx((W**2).sum())
        assert 0.5 * norm2[0] + tally[LOSS_SUM] == pytest.approx(expected)
