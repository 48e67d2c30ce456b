"""Rows that are sorted by label are detected by a statistic, and shuffled rows never are."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from streamsvm import load_model, plan
from streamsvm.data.order import LabelGroups
from streamsvm.store import open_store


def cramers_v(labels: np.ndarray, size: int) -> float:
    """With Bergsma's correction, from the chi-squared of the table of groups and labels."""
    n = len(labels) // size * size
    table = np.zeros((n // size, labels.max() + 1))
    np.add.at(table, (np.arange(n) // size, labels[:n]), 1)
    table = table[:, table.any(axis=0)]
    r, k = table.shape
    phi2 = chi2_contingency(table, correction=False).statistic / n
    phi2 = max(0.0, phi2 - (r - 1) * (k - 1) / (n - 1))
    r, k = r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)
    return float(np.sqrt(phi2 / (min(r, k) - 1)))


def partly_sorted(labels: np.ndarray, part: float, rng: np.random.Generator) -> np.ndarray:
    """A part of the labels at their places in sorted order, the others anywhere."""
    places = np.argsort(np.argsort(labels, kind="stable")) / len(labels)
    return labels[np.argsort(np.where(rng.random(len(labels)) < part, places, rng.random(len(labels))))]


@pytest.mark.parametrize(
    ("n", "k", "size"), [(5000, 10, 32), (5000, 200, 32), (2000, 2, 32), (5000, 10, 999)]
)
def test_the_measure_is_cramers_v(n: int, k: int, size: int) -> None:
    rng = np.random.default_rng(n + k)
    for part in (0.3, 0.6, 1.0):
        labels = partly_sorted(rng.choice(k, n, p=rng.dirichlet(np.ones(k))), part, rng)
        groups = LabelGroups(size=size, fewest=2)
        groups.add(labels)
        assert groups.association == pytest.approx(cramers_v(labels, size), rel=1e-9)
        assert groups.alike


@given(
    st.lists(st.integers(-1, 5), max_size=200), st.lists(st.integers(0, 200), max_size=6), st.integers(1, 9)
)
def test_the_groups_do_not_depend_on_how_the_labels_are_cut_into_pieces(
    labels: list[int], cuts: list[int], size: int
) -> None:
    known = [label for label in labels if label >= 0]
    whole, pieces = LabelGroups(size=size), LabelGroups(size=size)
    whole.add(np.array(labels, np.int32))
    for piece in np.split(np.array(labels, np.int32), sorted(cuts)):
        pieces.add(piece)
        pieces = LabelGroups(pieces.state.tolist(), size)
    np.testing.assert_array_equal(whole.state, pieces.state)
    groups = [known[at : at + size] for at in range(0, len(known), size)]
    full = [group for group in groups if len(group) == size]
    for c in range(whole.state.shape[1]):
        last = groups[-1].count(c) if len(groups) > len(full) else 0
        squares, total = sum(g.count(c) ** 2 for g in full), sum(g.count(c) for g in full)
        assert whole.state[:, c].tolist() == [squares, total, last]


@pytest.mark.parametrize("k", [2, 20, 500])
def test_shuffled_labels_are_never_reported(k: int) -> None:
    rng = np.random.default_rng(k)
    for n, balance in itertools.product((5, 40, 300, 3000), (0.1, 1.0, 100.0)):
        for n_groups in {2, 3, 10, n // 32} & set(range(1, n)):
            for _ in range(20):
                groups = LabelGroups(size=n // n_groups, fewest=2)
                groups.add(rng.choice(k, n, p=rng.dirichlet(np.full(k, balance))))
                assert not groups.alike


def test_pairs_of_a_label_are_not_reported_but_long_runs_are() -> None:
    labels = np.random.default_rng(0).integers(20, size=4000)
    for length, alike in ((1, False), (2, False), (8, True), (100, True)):
        groups = LabelGroups()
        groups.add(np.repeat(labels, length))
        assert groups.alike == alike


# -- fit -------------------------------------------------------------------------------------------

N, K = 2400, 6


def stored(path: Path, order: str, *, shuffled: bool = False) -> Path:
    X, labels = make_problem(N, 10, K, seed=2)
    rng = np.random.default_rng(3)
    rows = {
        "sorted": np.argsort(labels, kind="stable"),
        "donors": np.argsort(labels // 3 + rng.normal(size=N) * 0.1),  # each has half of the classes
        "random": np.arange(N),
    }[order]
    return make_store(path, sp.csr_array(X[rows]), labels[rows], shuffled=shuffled)


@pytest.mark.parametrize("order", ["sorted", "donors"])
def test_a_fit_warns_before_it_trains_that_its_blocks_hold_different_labels(
    tmp_path: Path, order: str
) -> None:
    store = stored(tmp_path / "a.h5", order)
    events: list[dict[str, Any]] = []
    cut: dict[str, Any] = {"block_rows": 600, "slice_rows": 0}
    result = fit(store, out=tmp_path / "run", passes=1, **cut, report=events.append)
    (warning,) = result.warnings
    assert "the labels differ between its 4 blocks" in warning
    assert "convert" in warning
    assert "memory=" in warning
    assert events[0]["event"] == "plan"
    assert events[0]["order_warning"] == warning
    assert result.progressive_accuracy is None
    lines = [event["progressive_accuracy"] for event in events if event["event"] in ("rows", "pass")]
    assert len(lines) > 5
    assert set(lines) == {None}
    assert plan(store, **cut)["order_warning"] == warning


@pytest.mark.parametrize("order", ["sorted", "donors"])
def test_short_slices_from_anywhere_cure_the_order_of_labels(tmp_path: Path, order: str) -> None:
    """One pass over blocks of slices is nearly as good as one over shuffled rows; long slices are told of."""
    X, labels = make_problem(N, 10, K, seed=2)
    store, shuffled = stored(tmp_path / "a.h5", order), stored(tmp_path / "b.h5", "random", shuffled=True)
    options: dict[str, Any] = {"passes": 1, "block_rows": 600}
    accuracy = {}
    for name, data, more in (
        ("slices", store, {}), ("order", store, {"slice_rows": 0}), ("shuffled", shuffled, {})
    ):  # fmt: skip
        result = fit(data, out=tmp_path / name, **options, **more)
        model = load_model(tmp_path / name)
        accuracy[name] = np.mean(model.predict(X) == labels.astype(str))
        assert (result.progressive_accuracy is None) == (name == "order")
    assert abs(accuracy["slices"] - accuracy["shuffled"]) < 0.02
    assert accuracy["order"] < accuracy["shuffled"] - 0.05
    with_long = plan(store, block_rows=600, slice_rows=500)
    assert with_long["slice_rows"] == 500
    assert "the labels differ between" in with_long["order_warning"]


@pytest.mark.parametrize(
    ("order", "shuffled", "block_rows"),
    [("sorted", False, None), ("random", True, 600), ("random", False, 7)],
)
def test_a_fit_of_rows_in_random_order_or_in_one_block_does_not_warn(
    tmp_path: Path, order: str, shuffled: bool, block_rows: int | None
) -> None:
    store = stored(tmp_path / "a.h5", order, shuffled=shuffled)
    result = fit(store, out=tmp_path / "run", passes=1, block_rows=block_rows)
    assert result.warnings == []
    assert result.progressive_accuracy is not None


def test_the_warning_needs_no_more_than_the_labels(tmp_path: Path) -> None:
    with open_store(stored(tmp_path / "a.h5", "sorted")) as store:
        from streamsvm.data.order import block_warning

        assert block_warning(store, 4) is not None
        assert store.bytes_read == 4 * N
