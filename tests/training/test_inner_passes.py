"""How many inner passes there are, and which rows they visit."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import as_rows, make_problem

from streamsvm.training.inner_passes import InnerPasses

N, D = 90, 40


def passes_made(n_classes: int, with_duals: float, *, was_read: bool, wanted: int | str = "auto") -> int:
    """Inner passes after full visits that left a fraction of the rows with one dual each."""
    X, labels = make_problem(N, D, 3, density=0.9)
    rows = as_rows(X, labels)
    weights = np.zeros((D, n_classes), np.float32)
    has_dual = np.arange(N) < with_duals * N
    orders = []
    InnerPasses(wanted, 0)(orders.append, rows, weights, np.arange(N), has_dual, (1, 0), was_read=was_read)
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.flatnonzero(has_dual))
    return len(orders)


def test_there_are_fewer_if_the_rows_stay_in_memory_or_have_duals() -> None:
    read, kept = (passes_made(16, 0.4, was_read=was_read) for was_read in (True, False))
    assert read > kept >= 1
    assert passes_made(16, 0.1, was_read=False) > kept > passes_made(16, 1.0, was_read=False) - 1


def test_there_are_more_if_rows_have_duals_of_few_of_the_classes() -> None:
    assert passes_made(1024, 1.0, was_read=False) > passes_made(16, 1.0, was_read=False)


@pytest.mark.parametrize("wanted", [0, 3])
def test_a_number_is_a_number(wanted: int) -> None:
    assert passes_made(16, 0.5, was_read=True, wanted=wanted) == wanted
