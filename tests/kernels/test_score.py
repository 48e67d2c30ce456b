"""Scores and norms of compiled code, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import as_rows, make_problem

from streamsvm.kernels.frame import Problem
from streamsvm.kernels.score import score_rows
from streamsvm.kernels.weights import Weights, padded_classes, sum_of_squares


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_equal_the_matrix_product(dtype: str) -> None:
    for n_classes in (2, 3, 5, 8, 9, 17, 130):
        X, labels = make_problem(150, 40, n_classes)
        K = padded_classes(n_classes, np.dtype(dtype))
        assert n_classes <= K
        assert K * np.dtype(dtype).itemsize % 64 == 0
        W = np.random.default_rng(1).normal(size=(40, K)).astype(dtype)
        scores = np.empty((100, K), dtype)
        score_rows(as_rows(X, labels, dtype), 20, 120, W, scores)
        np.testing.assert_allclose(scores, (X.astype(dtype) @ W)[20:120], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [0.0, 0.7])
def test_the_sum_of_squares_is_that_of_the_weights(dtype: str, scale: float) -> None:
    W, delta = np.random.default_rng(1).normal(size=(2, 40, 48)).astype(dtype)
    weights = Weights(W, delta, 1.0)
    expected = ((W.astype(float) - scale * delta.astype(float)) ** 2).sum()
    problem = Problem(48, 1.0)
    ranges = np.array([[0, 16, 16], [16, 48, 48]])
    for each in (problem, problem._replace(ranges=ranges)):
        sum_of_squares(weights, scale, None, each, sums := np.zeros(len(each.ranges)))
        assert sums.sum() == pytest.approx(expected, rel=1e-12)
