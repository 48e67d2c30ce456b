"""Rows of blocks that are put together from several reads."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from helpers import as_rows
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.data.label_sets import with_label_sets
from streamsvm.data.row_buffer import RowBuffer
from streamsvm.data.rows import Rows, row_span

lengths = st.lists(st.integers(0, 3), min_size=1, max_size=6)  # non-zeros, or labels, of each row
pieces = st.lists(lengths, min_size=1, max_size=5)


def block_of(sizes: list[list[int]], seed: int, *, several: bool) -> Rows:
    """Random rows with so many non-zeros each; with as many labels, if they have several."""
    rng, flat = np.random.default_rng(seed), np.concatenate(sizes)
    indptr = np.concatenate([[0], np.cumsum(flat)])
    indices = np.concatenate([np.arange(0), *(np.sort(rng.permutation(9)[:n]) for n in flat)])
    X = sp.csr_array((rng.normal(size=indptr[-1]), indices, indptr), shape=(len(flat), 9))
    rows = as_rows(X, rng.integers(4, size=len(flat)))._replace(cost=rng.random(len(flat)))
    return with_label_sets(rows, rows.indices.astype(np.int32), rows.indptr) if several else rows


@given(st.lists(pieces, min_size=1, max_size=3), st.booleans(), st.integers(0, 9))
def test_blocks_are_their_pieces_whatever_was_there_before(
    blocks: list[list[list[int]]], several: bool, seed: int
) -> None:
    """Pieces without values, or labels, are among them, the first one of all too."""
    n_rows = max(sum(map(len, block)) for block in blocks)
    most = max(sum(map(sum, block)) for block in blocks)
    buffer = RowBuffer(n_rows, most, most if several else 0)
    for sizes in blocks:
        expected, before = block_of(sizes, seed, several=several), []
        buffer.begin(expected.n_rows)
        for piece in sizes:
            at = buffer.n_rows
            buffer.append(row_span(expected, at, at + len(piece)))
            before.append((at, buffer.span(at, at + len(piece))))
        for at, found in [*before, (0, buffer.span(0, buffer.n_rows))]:
            for name, array in row_span(expected, at, at + found.n_rows)._asdict().items():
                np.testing.assert_array_equal(getattr(found, name), array, err_msg=name)
