"""Feature hashing against plain Python, and what its record says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import GAMMA, as_rows, make_problem, plain_mix

from streamsvm.transforms import transforms_from
from streamsvm.transforms.hashing import Hashing


@pytest.mark.parametrize(("bits", "seed"), [(1, 0), (4, 7), (10, 2**63 - 1), (16, 123456789)])
def test_features_are_added_with_their_signs_in_the_columns_of_the_formula(bits: int, seed: int) -> None:
    X, labels = make_problem(30, 40, 3, empty=1)
    rows = as_rows(X, labels)
    hashed = Hashing(bits, seed)(rows)
    key = plain_mix(seed + GAMMA)
    expected = np.zeros((30, 2**bits))
    for i in range(30):
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            h = plain_mix(key + int(rows.indices[p]) * GAMMA)
            expected[i, h >> (64 - bits)] += (1 - 2 * (h & 1)) * rows.data[p]
    found = np.zeros_like(expected)
    for i in range(30):
        span = slice(hashed.indptr[i], hashed.indptr[i + 1])
        assert (np.diff(hashed.indices[span]) > 0).all()
        found[i, hashed.indices[span]] = hashed.data[span]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(hashed.labels, labels)
    assert Hashing(bits, seed).n_features(None) == Hashing(bits, seed).n_features(40) == 2**bits


@pytest.mark.parametrize(("bits", "dtype"), [(30, np.int32), (31, np.int64)])
def test_columns_beyond_int32_are_numbered_in_int64(bits: int, dtype: type) -> None:
    hashed = Hashing(bits, 3)(as_rows(*make_problem(30, 40, 3)))
    assert hashed.indices.dtype == dtype
    assert 2 ** (bits - 2) < hashed.indices.max() < 2**bits


def test_records_of_no_transform_are_refused() -> None:
    assert transforms_from([{"name": "hash", "bits": 4, "seed": 9}]) == [Hashing(4, 9)]
    records: list[dict[str, Any]] = [
        {"name": "hash"}, {"name": "hash", "bits": 0}, {"name": "hash", "bits": 4, "seed": -1},
        {"name": "other"}, {"bits": 4}, {"name": "hash", "bits": 4.0}, {"name": "hash", "bits": 4, "more": 1},
    ]  # fmt: skip
    for record in records:
        with pytest.raises((ValueError, TypeError, KeyError)):
            transforms_from([record])
