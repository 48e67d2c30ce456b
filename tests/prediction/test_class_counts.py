"""Counts of confused classes in bounded memory against the exact counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from streamsvm.prediction.class_counts import PairCounts


@pytest.mark.parametrize("most", [8, 64, 10**6])
def test_counts_of_too_many_pairs_are_too_low_by_at_most_what_is_said(monkeypatch, most: int) -> None:
    monkeypatch.setattr("streamsvm.prediction.class_counts._BUFFERED_ERRORS", 50)
    monkeypatch.setattr("streamsvm.prediction.class_counts.MAX_PAIRS", most)
    codes = np.random.default_rng(0).zipf(1.5, size=5000).clip(max=10**6)
    counts, exact = PairCounts(), Counter(codes.tolist())
    for piece in np.array_split(codes, 70):
        counts.add(piece)
    found = dict(zip(*(each.tolist() for each in counts.most_frequent()), strict=True))
    assert len(found) <= most
    for code, count in exact.items():
        assert count - counts.too_low <= found.get(code, 0) <= count
    assert (counts.too_low == 0) == (len(exact) <= most)
    assert counts.too_low <= 2 * len(codes) / most
    assert next(iter(found)) == 1
