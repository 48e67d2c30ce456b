"""The checks of rows against plain Python, whatever the size of the pieces that are checked at a time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.data import checks
from streamsvm.data.checks import find_violation, row_norms, row_pieces

N_FEATURES = 9


@st.composite
def csr_rows(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows most of whose indices increase and whose values are finite; some break the rules."""
    rows = draw(st.lists(st.lists(st.integers(0, N_FEATURES - 1), max_size=5, unique=True), max_size=8))
    indices = np.array([index for row in rows for index in sorted(row)], np.int32)
    data = np.arange(len(indices), dtype=np.float32)
    for _ in range(draw(st.integers(0, 2)) if len(indices) else 0):
        at = draw(st.integers(0, len(indices) - 1))
        if draw(st.booleans()):
            indices[at] = draw(st.sampled_from([-1, 0, N_FEATURES, N_FEATURES - 1, -(2**31), 2**31 - 1]))
        else:
            data[at] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    return data, indices, np.cumsum([0, *map(len, rows)])


@given(csr_rows(), st.integers(1, 9))
def test_a_violation_is_found_if_and_only_if_there_is_one(rows, piece: int) -> None:
    data, indices, indptr = rows
    broken = {("data", at) for at in range(len(data)) if not np.isfinite(data[at])}
    for start, stop in pairwise(indptr.tolist()):
        row = indices[start:stop].tolist()
        broken |= {("indices", start + j) for j, index in enumerate(row) if not 0 <= index < N_FEATURES}
        broken |= {("indices", start + j) for j in range(1, len(row)) if row[j] <= row[j - 1]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "PIECE_ELEMENTS", piece)
        found = find_violation(data, indices, indptr, N_FEATURES)
    if found is None:
        assert not broken
    else:
        assert (found.array, found.element) in broken


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=5), max_size=9), st.integers(0, 9))
def test_norms_are_sums_of_squares_with_the_same_bits_for_any_batches(rows, cut: int) -> None:
    def norms(part) -> np.ndarray:
        values = np.array([value for row in part for value in row], np.float32)
        return row_norms(values, np.cumsum([0, *map(len, part)]))

    whole = norms(rows)
    np.testing.assert_allclose(whole, [sum(value * value for value in row) for row in rows], rtol=1e-13)
    assert whole.tobytes() == norms(rows[:cut]).tobytes() + norms(rows[cut:]).tobytes()


@given(st.lists(st.integers(1, 7), max_size=20), st.integers(1, 10))
def test_pieces_of_rows_cover_all_rows_and_exceed_the_target_by_one_row_at_most(sizes, target: int) -> None:
    ends = np.cumsum(sizes, dtype=np.int64)
    starts, total = ends - sizes, sum(sizes)
    pieces = row_pieces(starts, total, target)
    assert [row for start, stop in pieces for row in range(start, stop)] == list(range(len(sizes)))
    for start, stop in pieces:
        assert sum(sizes[start : stop - 1]) < target
    rows_without_elements = np.full(5, total)
    assert len(row_pieces(np.append(starts, rows_without_elements), total, target)) <= len(pieces) + 1
