"""Random numbers of compiled code: functions of their arguments alone, and as random as they say."""

from __future__ import annotations

import numpy as np
from helpers import GAMMA, plain_mix
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from streamsvm.kernels.jit import kernel
from streamsvm.kernels.random import draws, local_permutation, mix, permutation

small = st.integers(0, 2**63 - 1)


@given(st.integers(0, 300), small, st.integers(0, 100), st.integers(-1, 2**40), st.integers(0, 9))
def test_permutation_is_one_and_a_function_of_its_arguments(n, seed, stage, block, inner) -> None:
    order = permutation(n, seed, stage, block, inner)
    assert sorted(order.tolist()) == list(range(n))
    np.testing.assert_array_equal(order, permutation(n, seed, stage, block, inner))


def test_permutation_depends_on_every_argument_and_is_uniform() -> None:
    base = (7, 1, 2, 3)
    for position in range(4):
        other = tuple(a + (i == position) for i, a in enumerate(base))
        assert permutation(200, *base).tolist() != permutation(200, *other).tolist()
    places = np.array([permutation(6, seed, 1, 0, 0) for seed in range(6000)])
    for element in range(6):
        counts = np.bincount(np.argwhere(places == element)[:, 1], minlength=6)
        assert chisquare(counts).pvalue > 1e-6


def test_a_local_permutation_is_one_that_touches_few_places_at_a_time() -> None:
    n = 70_001
    order = local_permutation(n, 3, 1, 2, 0)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    np.testing.assert_array_equal(order, local_permutation(n, 3, 1, 2, 0))
    partners = []
    for this_pass in range(1, 3):
        order = local_permutation(n, 3, this_pass, 2, 0)
        windows = [order[begin : begin + 1024] // 32 for begin in range(0, n, 1024)]
        assert max(len(np.unique(slices)) for slices in windows) <= 33  # the last slice is a short one
        assert all((np.diff(slices) != 0).mean() > 0.9 for slices in windows[:-1])  # shuffled among them
        found = order // 32 == 0
        partners.append(set(order[np.argmax(found) // 1024 * 1024 :][:1024] // 32))
    assert len(partners[0] & partners[1]) < 8  # other slices in each pass
    assert abs(np.corrcoef(np.arange(n), order)[0, 1]) < 0.05


def test_few_rows_are_permuted_wholly() -> None:
    np.testing.assert_array_equal(local_permutation(65_535, 1, 2, 3, 4), permutation(65_535, 1, 2, 3, 4))


def test_mix_gives_the_published_outputs_of_splitmix64() -> None:
    """The first outputs for the seed 1234567, as printed beside Vigna's reference implementation."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    mixed = kernel(mix.py_func)  # the function itself is inlined into others
    assert [int(mixed(np.uint64((1234567 + i * GAMMA) % 2**64))) for i in range(1, 5)] == published


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**62), max_size=50, unique=True))
def test_draws_are_outputs_of_splitmix64_and_distinct(seed: int, numbers: list[int]) -> None:
    found = draws(np.uint64(seed), np.array(numbers, np.int64))
    assert found.dtype == np.uint64
    assert len(set(found.tolist())) == len(numbers)
    assert found.tolist() == [plain_mix(plain_mix(seed) + (n + 1) * GAMMA) for n in numbers]
