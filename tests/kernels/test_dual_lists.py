"""Duals by row and by group of classes, from the one to the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.kernels.duals import RowDuals, by_group, by_row

N_ROWS, N_IDS = 12, 20


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_duals_are_divided_by_the_groups_of_their_ids_and_put_together_again(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    B = rng.uniform(0.1, 1, (N_ROWS, N_IDS)).astype(np.float32) * (rng.random((N_ROWS, N_IDS)) < 0.3)
    groups = rng.integers(-1, m, N_IDS)  # of some ids none
    rows = rng.permutation(N_ROWS)[: rng.integers(0, N_ROWS + 1)]
    all_rows = rng.permutation(N_ROWS)  # one after the other, in any order
    at = [(r, c) for r in all_rows for c in rng.permutation(np.flatnonzero(B[r]))]
    ids = np.array([c for _, c in at], np.uint8)
    values = np.array([B[place] for place in at], np.float32)
    counts = np.count_nonzero(B[all_rows], axis=1).astype(np.int32)
    duals = RowDuals(all_rows.astype(np.int32), counts, ids, values).in_block(N_ROWS)
    divided = by_group(duals._replace(scale=2.0), rows, groups, m)
    found, begin = np.zeros((m, N_ROWS, N_IDS), np.float32), 0
    for g in range(m):
        for t, row in enumerate(rows):
            for _ in range(divided[0][g, t]):
                found[g, row, divided[1][begin]] = divided[2][begin]
                begin += 1
    assert begin == len(divided[1])
    for g in range(m):
        expected = np.zeros_like(B)
        expected[np.ix_(rows, groups == g)] = 2 * B[np.ix_(rows, groups == g)]
        assert np.array_equal(found[g], expected)
    row_counts, row_ids, row_values = by_row(*divided)
    whole, begin = np.zeros_like(B), 0
    for row, count in zip(rows, row_counts, strict=True):
        whole[row, row_ids[begin : begin + count]] = row_values[begin : begin + count]
        begin += count
    assert np.array_equal(whole, found.sum(axis=0))
