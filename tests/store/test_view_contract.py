"""What `View` promises, over all views and their compositions, with weights, groups and sets of labels."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from store_problems import Problem, make_full_problem

from streamsvm.data.checks import row_norms
from streamsvm.data.groups import group_hashes
from streamsvm.data.names import FeatureMatch
from streamsvm.data.rows import joined_rows, sparse_rows, with_matrix
from streamsvm.store import Store, open_store
from streamsvm.store.anndata import AnnDataStore
from streamsvm.store.arrays import ArrayStore
from streamsvm.store.container import StoredArray
from streamsvm.store.joined import JoinedStore
from streamsvm.store.ranges import Ranges, lengths, numbers_in, ranges_of, split_ranges
from streamsvm.store.reader import ContainerStore
from streamsvm.store.sliced import sliced
from streamsvm.store.store import COLUMNS
from streamsvm.store.views import ViewedStore, matched, recoded, with_labels
from streamsvm.transforms import parse_transforms
from streamsvm.transforms.fourier import Fourier
from streamsvm.transforms.store import transformed

N, D = 90, 40
MOVED = np.where(np.arange(D) % 3 == 0, -1, D - np.arange(D))  # columns 1..40 of 41; every third is left out
FEWER_CLASSES = ("ähnlich", "other", "10")
NEW_CLASSES = ("zz top", "other", "10", "2", "ähnlich")


def match(store: Store) -> Store:
    return matched(store, FeatureMatch(MOVED), [f"g{j}" for j in range(D + 1)])


def moved(X: np.ndarray) -> np.ndarray:
    found = np.zeros((len(X), D + 1))
    found[:, MOVED[MOVED >= 0]] = X[:, MOVED >= 0]
    return found


def to_unit(X: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms == 0, 1, norms)


def unit(store: Store) -> Store:
    return transformed(store, parse_transforms("l2"))


FOURIER = Fourier(70, 0.1, seed=3, width=D)


def curved(X: np.ndarray) -> np.ndarray:
    B, b = FOURIER.directions()
    return np.sqrt(2 / 70) * np.cos(X @ B.astype(np.float64) + b)


def recode(store: Store) -> Store:
    return recoded(store, NEW_CLASSES, "str")


def as_ranges(pairs: list[tuple[int, int]]) -> Ranges:
    return np.array(pairs, np.int64).reshape(-1, 2)


class Case(NamedTuple):
    make: Callable[[Store], Store]
    values: Callable[[np.ndarray], np.ndarray] = lambda X: X
    same_fingerprint: bool = False
    copies: int = 1
    dense: bool | None = None  # None: as the store


CASES = {
    "plain": Case(lambda store: store, same_fingerprint=True),
    "labelled": Case(with_labels),
    "sliced": Case(lambda store: sliced(store, 7, seed=3), same_fingerprint=True),
    "matched": Case(match, moved, same_fingerprint=True),
    "recoded": Case(recode, same_fingerprint=True),
    "recoded to fewer": Case(lambda store: recoded(store, FEWER_CLASSES, "str"), same_fingerprint=True),
    "transformed": Case(unit, to_unit),
    "made dense": Case(lambda store: transformed(store, [FOURIER]), curved, dense=True),
    "made dense and sparse again": Case(
        lambda store: transformed(store, [FOURIER], dense=False), curved, dense=False
    ),
    "joined": Case(lambda store: JoinedStore([recode(store), recode(store)]), copies=2),
    "all": Case(
        lambda store: sliced(unit(JoinedStore([recode(match(with_labels(store)))] * 3)), 4, seed=1),
        lambda X: to_unit(moved(X)),
        copies=3,
    ),
}
RANGES = [[(0, 0)], [], [(0, 1)], [(40, 60)], [(51, 70), (2, 3), (3, 31), (5, 5), (70, 72)]]


@pytest.fixture(params=["one label", "sets of labels"])
def problem(request: pytest.FixtureRequest) -> Problem:
    problem = make_full_problem(N)
    if request.param == "one label":
        problem.indicator = None
        problem.labels[::11] = -1
    return problem


@pytest.fixture(params=["store", "AnnData", "memory", "dense store", "dense AnnData", "dense memory"])
def store(request: pytest.FixtureRequest, problem: Problem, tmp_path: Path) -> Iterator[Store]:
    kind = request.param.removeprefix("dense ")
    if dense := kind != request.param:
        rng = np.random.default_rng(4)
        values = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.8) * (rng.random((N, 1)) < 0.95)
        problem.matrix = sp.csr_matrix(values.astype("f4"))
    if kind == "memory":  # its rows have no names: their weights tell them apart
        problem.weights = np.random.default_rng(2).permutation(N).astype(float)
        rows = problem.rows(0, N)
        if dense:
            rows = with_matrix(rows._replace(indices=None), problem.matrix.toarray())
        rows = rows._replace(norm2=row_norms(rows.data, rows.indptr))
        yield ArrayStore(rows, {"classes": problem.classes}, D)
        return
    path, options = tmp_path / "a.h5ad", {}
    if kind == "store":
        problem.dense = dense
        problem.write(path)
    else:
        options = {"label": "label", "sample_weight": "weight", "hold_out_by": "donor"}
        problem.groups = None
        labels = pd.Categorical.from_codes(problem.labels, problem.classes)
        obs = pd.DataFrame({"label": labels, "weight": problem.weights}, index=problem.names.astype(str))
        obs["donor"] = problem.hold_out_by
        problem.hold_out_by = group_hashes(problem.hold_out_by.tolist())
        adata = anndata.AnnData(problem.matrix.toarray() if dense else problem.matrix, obs=obs)
        if problem.indicator is not None:
            del adata.obs["label"]
            sets = problem.indicator.toarray()
            adata.obsm["label"] = pd.DataFrame(sets, index=obs.index, columns=list(problem.classes))
        adata.write_h5ad(path)
    with open_store(path, **options) as opened:
        yield opened


class Expected(NamedTuple):
    """What a view of the problem has, by plain arrays."""

    places: np.ndarray  # of each row in the problem
    values: np.ndarray
    numbers: np.ndarray


def expected(case: Case, view: Store, problem: Problem, labelled: bool) -> Expected:
    kept = np.flatnonzero(problem.labels >= 0) if labelled else np.arange(N)
    named = "names" in view.facts.stored
    place_of = dict(zip((problem.names if named else problem.weights).tolist(), range(N), strict=True))
    names = (view.names if named else view.weights)(0, view.n_rows)
    places = np.array([place_of[int(name)] for name in names.tolist()])
    np.testing.assert_array_equal(np.sort(places), np.sort(np.tile(kept, case.copies)))
    numbers = np.searchsorted(kept, places)
    if case.copies > 1:  # each copy is numbered through, so that a number tells its row
        numbers = view.numbers(0, view.n_rows)
        np.testing.assert_array_equal(np.sort(numbers), np.arange(case.copies * len(kept)))
        np.testing.assert_array_equal(kept[numbers % len(kept)], places)
    return Expected(places, case.values(problem.matrix.toarray())[places], numbers)


@pytest.mark.parametrize("name", CASES)
def test_rows_columns_sizes_and_facts_of_a_view_agree(
    name: str, problem: Problem, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    view = case.make(store)
    several = problem.indicator is not None
    truth = expected(
        case, view, problem, labelled=not several and (name in ("labelled", "all") or not store.native)
    )
    assert (view.n_rows, view.n_features) == truth.values.shape
    assert (view.multilabel, view.weighted, view.grouped) == (several, True, problem.groups is not None)
    read, arrays = [], []
    for kind, method in (
        (ContainerStore, "_read_matrix"), (AnnDataStore, "_read_matrix"), (ArrayStore, "read"),
    ):  # fmt: skip
        own = getattr(kind, method)
        counted = lambda self, ranges, own=own: read.append(lengths(ranges).sum()) or own(self, ranges)  # noqa: E731
        monkeypatch.setattr(kind, method, counted)
    read_ranges = StoredArray.read_ranges
    monkeypatch.setattr(
        StoredArray, "read_ranges", lambda self, ranges: arrays.append(self.name) or read_ranges(self, ranges)
    )
    for ranges in map(as_ranges, [*RANGES, [(0, view.n_rows)]]):
        read.clear()
        rows = view.read(ranges)
        wanted = numbers_in(ranges)
        assert sum(read) == len(wanted) == rows.n_rows
        places = truth.places[wanted]
        assert rows.dense == view.dense_rows == (store.dense_rows if case.dense is None else case.dense)
        found = sparse_rows(rows, view.index_dtype)
        csr = sp.csr_array((found.data, found.indices, found.indptr), shape=(rows.n_rows, view.n_features))
        assert csr.has_canonical_format
        rounding = 1e-6 if case.values is curved else 0  # of cosines, which are up to 1
        np.testing.assert_allclose(csr.toarray(), truth.values[wanted], rtol=1e-6, atol=rounding)
        norm2 = (truth.values[wanted] ** 2).sum(axis=1)
        np.testing.assert_allclose(rows.norm2, norm2, rtol=1e-6, atol=rounding)
        np.testing.assert_array_equal(rows.cost, problem.weights[places])
        np.testing.assert_array_equal(rows.qid, [] if problem.groups is None else problem.groups[places])
        np.testing.assert_array_equal(rows.hold_out_by, problem.hold_out_by[places])
        np.testing.assert_array_equal(rows.numbers, truth.numbers[wanted])
        text = np.array([*view.classes, None], object)
        texts = np.array([*(each if each in view.classes else None for each in problem.classes), None])
        if several:
            own = [set(text[codes]) for codes in np.split(rows.label_codes, rows.label_indptr[1:-1])]
            sets = [{texts[code] for code in problem.indicator[row].indices} - {None} for row in places]
            assert own[: len(sets)] == sets
        else:
            assert text[rows.labels].tolist() == texts[problem.labels[places]].tolist()

        arrays.clear()
        sizes = view.sizes(ranges)
        for subset in [set(COLUMNS), {"labels"}, {"label_codes"}, {"cost", "numbers"}, set()]:
            columns = view.columns(ranges, subset)
            has = subset & view.facts.stored
            assert columns.keys() == has | ({"label_indptr"} if "label_codes" in has else set())
            for column, found in columns.items():
                if column == "names":
                    assert found.astype(int).tolist() == problem.names[places].tolist()
                else:
                    np.testing.assert_array_equal(found, getattr(rows, column))
                    assert found.dtype == getattr(rows, column).dtype
        assert not {"X", "X/data", "X/indices", "X/values"} & set(arrays)
        assert rows.indptr[-1] == len(rows.data)
        assert (sizes.nnz >= np.diff(rows.indptr)).all()
        assert len(sizes.nnz) == len(wanted)
        assert len(sizes.labels) == len(wanted) * several
        assert (sizes.labels >= np.diff(rows.label_indptr)).all()

        parts = [view.read(as_ranges([each])) for each in ranges.tolist()] or [view.rows(0, 0)]
        for one, other in zip(joined_rows(parts), rows, strict=True):
            np.testing.assert_array_equal(one, other)
            assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
    codes = rows.label_codes if several else rows.labels[rows.labels >= 0]
    assert view.class_counts.tolist() == np.bincount(codes, minlength=view.n_classes).tolist()
    assert view.nnz >= len(rows.data)
    values = "X/data" if not store.dense_rows else "X" if store.native else "X/values"
    assert set(view.arrays) >= ({values, "obs/weight"} if view.members else set())
    assert view.feature_names() is None or len(view.feature_names()) == view.n_features
    assert name == "plain" or view.statistics() is None


@pytest.mark.parametrize("name", CASES)
def test_a_view_is_a_value_with_the_fingerprint_of_its_content(name: str, store: Store) -> None:
    case = CASES[name]
    view = case.make(store)
    assert (view.fingerprint == store.fingerprint) == (case.same_fingerprint or view is store)
    assert view.fingerprint == case.make(store).fingerprint
    assert pickle.loads(pickle.dumps(view.facts)) == view.facts
    with pytest.raises(AttributeError, match="has no setter"):
        view.classes = ("other",)
    if isinstance(view, ViewedStore):
        again = ViewedStore(view.inner, pickle.loads(pickle.dumps(view.view)))
        assert (again.fingerprint, again.facts) == (view.fingerprint, view.facts)
        for one, other in zip(again.rows(3, 50), view.rows(3, 50), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("borders", [7, [0, 3, 3, 40, 90]])
def test_ranges_are_divided_at_borders_and_put_together_again(borders: int | list[int]) -> None:
    edges = np.array(borders) if isinstance(borders, list) else borders
    ends = borders if isinstance(borders, list) else list(range(0, 98, borders))
    for ranges in map(as_ranges, [*RANGES, [(0, N)]]):
        numbers = [number for start, stop in ranges.tolist() for number in range(start, stop)]
        assert numbers_in(ranges).tolist() == numbers
        assert numbers_in(ranges_of(np.array(numbers, np.int64))).tolist() == numbers
        parts, divided = split_ranges(ranges, edges)
        assert numbers_in(divided).tolist() == numbers
        for part, (start, stop) in zip(parts.tolist(), divided.tolist(), strict=True):
            assert ends[part] <= start < stop <= ends[part + 1]
