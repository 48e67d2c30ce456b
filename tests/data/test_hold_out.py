"""Rows that are held out: the parts divide each class, and a training does not see its part."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import fit_path, held_out, make_problem, make_store
from helpers import plain_fit as fit
from sklearn.datasets import dump_svmlight_file
from streamsvm_converters.convert import convert

from streamsvm.data.hold_out import held_out_part, is_trained_on
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, PlanError, SettingsError
from streamsvm.settings.fit import Settings
from streamsvm.store import Store, open_store
from streamsvm.store.arrays import ArrayStore
from streamsvm.store.ranges import Ranges
from streamsvm.store.store import Columns

N, D, K = 400, 20, 4


def rows_of(n: int, qid: np.ndarray | None = None) -> Rows:
    none = np.zeros(n, np.int32)
    rows = Rows(np.zeros(0), np.zeros(0, np.int32), np.zeros(n + 1, np.int64), none, np.zeros(n))
    return rows if qid is None else rows._replace(qid=qid)


def part_of(store: Store, part: int, parts: int) -> np.ndarray:
    """Return a mask, by their numbers, of the rows of a part."""
    found = held_out_part(f"{part}/{parts}", store, 2**20)
    assert found is not None
    return found.has(np.arange(store.n_rows))


@pytest.mark.parametrize("parts", [2, 5, 300])
def test_parts_divide_each_class(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.data.hold_out.PIECE_ROWS", 130)
    labels = np.repeat([0, 1, 2, 3], [1, 7, 92, 600]).astype(np.int32)
    store = ArrayStore(rows_of(700)._replace(labels=labels), {"classes": list("abcd")}, D)
    for part in range(1, parts + 1):
        found = part_of(store, part, parts)
        np.testing.assert_array_equal(found, held_out(labels, part, parts))
        share = np.bincount(labels[found], minlength=4) - np.bincount(labels) / parts
        assert (abs(share) < 1).all()


def test_a_part_has_the_same_rows_in_text_a_store_and_memory(tmp_path: Path) -> None:
    X, labels = make_problem(N, D, K)
    dump_svmlight_file(X, labels, str(tmp_path / "a.txt"))
    convert([tmp_path / "a.txt"], tmp_path / "a.zarr")
    assert fit(tmp_path / "a.txt", out=tmp_path / "run", hold_out="1/5").passes
    for path in (tmp_path / "a.zarr", tmp_path / "run/data.zarr", make_store(tmp_path / "b.h5", X, labels)):
        with open_store(path) as store:
            rows = np.sort(store.names(0, N)[part_of(store, 1, 5)])
            with pytest.raises(PlanError, match="holding out rows needs 4,000 bytes"):
                held_out_part("1/5", store, 3999)
        np.testing.assert_array_equal(rows, np.flatnonzero(held_out(labels, 1, 5)))


def test_groups_stay_whole() -> None:
    store = ArrayStore(rows_of(2100, np.repeat(np.arange(300), 7)), {"classes": ["a", "b"]}, D)
    found = part_of(store, 2, 3).reshape(300, 7)
    assert (found == found[:, :1]).all()
    assert 60 < found[:, 0].sum() < 140


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"cost"}),
        ({"sample_weight": "none"}, set()),
        ({"hold_out": "1/4"}, {"cost", "numbers"}),
        ({"sample_weight": "none", "hold_out": "1/4"}, {"numbers"}),
    ],
)
def test_only_the_columns_that_say_which_rows_are_trained_on_are_read(
    settings: dict[str, Any], expected: set[str]
) -> None:
    wanted: set[str] = set()

    class Counted(ArrayStore):
        def columns(self, ranges: Ranges, names: Set[str]) -> Columns:
            wanted.update(names)
            return super().columns(ranges, names)

    weights, qid = np.arange(N) % 3.0, np.arange(N) // 5
    store = Counted(rows_of(N, qid)._replace(cost=weights), {"classes": ["a", "b"]}, D)
    held = part_of(store, 1, 4)
    wanted.clear()
    found = is_trained_on(store, Settings(**settings), 3, N)
    assert wanted == expected
    used = weights > 0 if "cost" in expected else np.ones(N, bool)
    if "hold_out" in settings:
        used = used & ~held
    np.testing.assert_array_equal(found, used[3:])
    assert found.dtype == bool


def test_wrong_parts_are_refused() -> None:
    X, labels = make_problem(40, D, K)
    for text in ("0/10", "11/10", "1/1", "1", "a/b", "1/1001"):
        with pytest.raises(SettingsError, match="hold_out must be a part such as 1/10"):
            fit(X, labels, hold_out=text)
    with pytest.raises(SettingsError, match="hold_out must be left out with valid"):
        fit("a.h5", out="run", hold_out="1/10", valid="b.h5")
    with pytest.raises(InputError, match="the held-out part 41/1000 has no rows"):
        fit(X, labels, hold_out="41/1000")


# -- one training with several values of C ---------------------------------------------------------


def by_numpy(X: sp.csr_array, y: np.ndarray, C: float, W: np.ndarray) -> float:
    """The Weston-Watkins primal."""
    scores = X @ W
    slacks = np.maximum(0, 1 - (scores[np.arange(len(y)), y][:, None] - scores))
    slacks[np.arange(len(y)), y] = 0
    return float(0.5 * (W**2).sum() + C * slacks.sum())


def test_a_path_ends_at_the_optimum_of_its_last_c() -> None:
    X, labels = make_problem(N, D, K)
    facts: dict[str, Any] = {"C": 0.05, "dtype": "float64", "average": False, "gap": "pass"}
    factors = (0.25,) * 80 + (1.0,) * 80 + (4.0,) * 80
    path = fit_path(X, labels, C_factors=factors, passes=240, **facts)
    assert path.result.C == path.record["C"] == pytest.approx(0.2)
    assert [record["C"] for record in path.result.history[::80]] == pytest.approx([0.0125, 0.05, 0.2])
    cold = fit(X, labels, passes=200, **(facts | {"C": 0.2}))
    expected = by_numpy(X, labels, 0.2, cold.coef_.T)
    assert by_numpy(X, labels, 0.2, path.coef_.T) == pytest.approx(expected, rel=1e-5)
    assert path.result.primal == pytest.approx(expected, rel=1e-5)
    for record, C in ((path.result.history[79], 0.0125), (path.result.history[159], 0.05)):
        of_c = fit(X, labels, passes=200, **(facts | {"C": C}))
        assert record["dual"] == pytest.approx(by_numpy(X, labels, C, of_c.coef_.T), rel=1e-4)


def test_rows_of_weight_0_are_not_measured() -> None:
    X, labels = make_problem(N, D, K)
    weights = (np.arange(N) % 2).astype(float)
    wrong = np.where(weights == 0, (labels + 1) % K, labels).astype(labels.dtype)
    facts: dict[str, Any] = {"hold_out": "1/3", "passes": 3, "sample_weight": weights}
    found = [fit(X, y, **facts).result.valid_accuracy for y in (labels, wrong)]
    assert found[0] == found[1]
