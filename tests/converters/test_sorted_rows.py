"""The external sort gives the rows that SciPy gives, whatever the memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from streamsvm_converters import sorted_rows as module
from streamsvm_converters.sorted_rows import MatrixEntries, sorted_rows


@pytest.mark.parametrize("limit", [2**10, 2**14, 2**30])
@pytest.mark.parametrize("counted", [False, True])
def test_rows_are_those_of_scipy(limit: int, counted: bool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MIN_RANGE_VALUES", 16)
    rng = np.random.default_rng(0)
    n, d, nnz = 211, 57, 5000
    row = np.minimum(rng.geometric(0.02, nnz) - 1, n - 2)  # the last row has no value, the first ones many
    column, value = rng.integers(d, size=nnz), rng.normal(size=nnz)
    cuts = range(0, nnz, 700)

    def pieces():
        return (MatrixEntries(row[a : a + 700], column[a : a + 700], value[a : a + 700]) for a in cuts)

    def rows():
        return (row[a : a + 700] for a in cuts)

    most = 0
    parts = []
    for part in sorted_rows(pieces, (n, d), "f8", tmp_path, limit, row_pieces=rows if counted else None):
        most = max(most, len(part.data))
        assert part.start == sum(len(each.indptr) - 1 for each in parts)
        parts.append(part)
        assert (
            np.diff(part.indices)[np.isin(np.arange(1, len(part.indices)), part.indptr, invert=True)] > 0
        ).all()
    wanted = sp.coo_array((value, (row, column)), (n, d)).tocsr()
    found = sp.vstack([sp.csr_array((p.data, p.indices, p.indptr), (len(p.indptr) - 1, d)) for p in parts])
    np.testing.assert_allclose(found.toarray(), wanted.toarray(), rtol=1e-12)
    assert found.nnz == wanted.nnz
    assert list(tmp_path.iterdir()) == []
    if limit == 2**10:  # 16 values at a time, or one row
        assert most <= max(16, int(np.bincount(row).max()))
        assert len(parts) > 20


def test_a_matrix_without_values_has_its_rows(tmp_path: Path) -> None:
    (part,) = sorted_rows(lambda: iter(()), (5, 3), "f4", tmp_path, 2**20)
    assert part.indptr.tolist() == [0] * 6
    assert list(sorted_rows(lambda: iter(()), (0, 3), "f4", tmp_path, 2**20)) == []
