"""How many inner passes there are, and which rows they visit."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import as_rows, make_problem

from streamsvm.training.inner_passes import READ_AHEAD, READ_BEFORE, InnerPasses, Place

N, D = 90, 40


def passes_made(n_classes: int, with_duals: float, *, read_work: int, wanted: int | str = "auto") -> int:
    """Inner passes after full visits that left a fraction of the rows with one dual each."""
    X, labels = make_problem(N, D, 3, density=0.9)
    rows = as_rows(X, labels)
    weights = np.zeros((D, n_classes), np.float32)
    has_dual = np.arange(N) < with_duals * N
    orders = list(
        InnerPasses(wanted, 0).orders(rows, weights, np.arange(N), has_dual, Place(1, 0, read_work))
    )
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.flatnonzero(has_dual))
    return len(orders)


def test_there_are_fewer_if_the_rows_stay_in_memory_or_have_duals() -> None:
    read, kept = (passes_made(16, 0.4, read_work=read_work) for read_work in (READ_BEFORE, 0))
    assert read > kept >= 1
    assert passes_made(16, 0.1, read_work=0) > kept > passes_made(16, 1.0, read_work=0) - 1


def test_there_are_fewer_if_rows_are_read_while_others_are_trained_on() -> None:
    before, ahead = (passes_made(16, 0.4, read_work=work) for work in (READ_BEFORE, READ_AHEAD))
    assert before > ahead >= 1


def test_there_are_more_if_rows_have_duals_of_few_of_the_classes() -> None:
    assert passes_made(1024, 1.0, read_work=0) > passes_made(16, 1.0, read_work=0)


@pytest.mark.parametrize("wanted", [0, 3])
def test_a_number_is_a_number(wanted: int) -> None:
    assert passes_made(16, 0.5, read_work=READ_BEFORE, wanted=wanted) == wanted
