"""Test, then train: a replay in NumPy, growth, hashing, and resuming to the same bits."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from helpers import as_rows, make_problem, make_store

from streamsvm import fit, format, load_model, open_store
from streamsvm.errors import InputError, Interrupted, ModelError, PlanError, RunError, SettingsError
from streamsvm.kernels.random import permutation
from streamsvm.kernels.weights import Weights
from streamsvm.run.growing_weights import HORIZON, GrowingWeights
from streamsvm.run.weight_log import restore
from streamsvm.training.online import online, resume
from streamsvm.transforms.hashing import hash_rows

N, D, K = 150, 13, 5
LOSSES = [
    ("ww", 1.0, "newton"),
    ("ww", 0.5, "newton"),
    ("ww", 1.0, "sorted"),
    ("cs", 1.0, "newton"),
    ("cs", 1.0, "sorted"),
]


class Listed:
    """A stream over rows in memory: ``labels[i]`` is the label of row i, in batches that end at `cuts`."""

    def __init__(self, X, labels, cuts=(), *, classes=None, n_features=None, resumable=True, ended=None):
        self.X, self.labels = sp.csr_array(X), list(labels)
        self.cuts = [0, *cuts, self.X.shape[0]]
        self.classes, self.n_features, self.resumable = classes, n_features, resumable
        self.index_base = 0
        self.drawn: list[int] = []  # the first row of each batch
        self.ended = ended

    def batches(self, place, classes):
        known = list(classes)
        begin = place["row"] if place else 0
        for a, b in itertools.pairwise(self.cuts):
            if a < begin:
                continue
            self.drawn.append(a)
            before = len(known)
            if self.classes is None:
                known += dict.fromkeys(label for label in self.labels[a:b] if label not in known)
            codes = [known.index(label) if label in known else -1 for label in self.labels[a:b]]
            part = self.X[a:b]
            rows = as_rows(part, np.array(codes))._replace(indices=part.indices.astype(np.int64))
            yield rows, known[before:], {"row": b}
        if self.ended:
            self.ended()

    def record(self) -> dict[str, Any]:
        return {"resumable": self.resumable}

    def sources(self, place):
        return [{"name": "rows", "size": place["row"], "sha256": ""}]

    def summary(self, place):
        return {"rows": place["row"]}

    @staticmethod
    def in_order(classes):
        return np.argsort(classes)

    @staticmethod
    def warnings(classes):
        return []


class Replay:
    """The same in NumPy, in float64: each row predicted, then learned from; the average as defined."""

    def __init__(self, X, labels, C=None, loss="ww", margin=1.0, classes=(), first=1000):
        X = X.toarray().astype(np.float64) if sp.issparse(X) else X
        known = list(classes)
        names = known + list(dict.fromkeys(label for label in labels if label not in known))
        W = np.zeros((X.shape[1], len(names)))
        iterates, right, norms = [], [], []
        for x, label in zip(X, labels, strict=True):
            norms += [x @ x] if len(right) < first and x.any() else []
            new = label not in known
            if new:
                known.append(label)
            y, k = known.index(label), len(known)
            right.append(not new and int(np.argmax((x @ W)[:k])) == y)
            if not x.any():
                continue
            iterates.append(W)
            if k > 1:
                W = W.copy()
                now = 1 / np.mean(norms) if C is None else C  # by default, of the first rows up to this one
                W[:, :k], _ = reference.one_visit(W[:, :k], np.zeros(k), x, y, now, loss, margin)
        T = len(iterates)
        weight = [(2 * s + 1) / T**2 for s in range(T)]
        # The last iterate has no weight yet; the average is of the iterates before each row.
        self.average = sum(w * W for w, W in zip(weight, iterates, strict=True))
        self.names, self.right, self.last = known, np.array(right), W


def stop_after(n: int):
    """True from the `n`-th question on."""
    count = itertools.count(1)
    return lambda: next(count) >= n


def model_bytes(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "model").iterdir()}


@pytest.fixture(scope="module")
def problem() -> tuple[Any, list[str]]:
    """Rows in which classes and features appear late, and one is empty."""
    X, codes = make_problem(N, D, K, noise=1.5, empty=1)
    order = np.argsort(codes > 2, kind="stable")  # two classes only come in the second half
    X, codes = X[order].tolil(), codes[order]
    X[:40, 9:] = 0
    return sp.csr_array(X.tocsr()), [f"c{code}" for code in codes]


# -- against NumPy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("loss", "margin", "solver"), LOSSES)
def test_a_replay_in_numpy(tmp_path, problem, loss, margin, solver, dtype) -> None:
    X, labels = problem
    expected = Replay(X, labels, 0.3, loss, margin)
    result = online(
        Listed(X, labels, (7, 50, 51, 120)), tmp_path / "run",
        C=0.3, loss=loss, margin=margin, solver=solver, dtype=dtype,
    )  # fmt: skip
    model = load_model(tmp_path / "run")
    assert list(model.classes_) == sorted(expected.names)
    columns = np.argsort(expected.names)
    tolerance = {"float64": 1e-9, "float32": 2e-4}[dtype]
    np.testing.assert_allclose(model.coef_, expected.average[:, columns], atol=tolerance)
    assert (result.rows, result.classes, result.features) == (N, K, D)
    assert result.empty_rows == 1
    if dtype == "float64":  # rounding may turn a prediction
        assert result.progressive_accuracy == expected.right.mean()


def test_c_is_of_the_first_rows_then_fixed(tmp_path, problem, monkeypatch) -> None:
    monkeypatch.setattr("streamsvm.training.online._C_ROWS", 60)
    X, labels = problem
    X = sp.csr_array(sp.diags_array(np.linspace(1, 9, N)) @ X)  # whose norms grow on the way
    result = online(Listed(X, labels, (50, 70)), tmp_path / "run", dtype="float64")
    expected = Replay(X, labels, first=60)
    model = load_model(tmp_path / "run")
    np.testing.assert_allclose(model.coef_, expected.average[:, np.argsort(expected.names)], atol=1e-9)
    norms = X[:60].multiply(X[:60]).sum(axis=1)
    assert result.C == model.record["C"] == pytest.approx(1 / norms[norms > 0].mean())
    assert model.record["C_auto"]


def test_lines_of_the_report_say_what_was_known_then(tmp_path, problem) -> None:
    X, labels = problem
    expected = Replay(X, labels)
    seen: list[dict] = []
    online(Listed(X, labels, (3, 90)), tmp_path / "run", dtype="float64", report=seen.append)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines == [event for event in seen if event["event"] == "rows"]
    assert [line["rows"] for line in lines] == [1, 2, 4, 8, 16, 32, 64, 128, N]
    before = 0
    for line in lines:
        n = line["rows"]
        assert line["progressive_accuracy"] == expected.right[:n].mean()
        assert line["recent_accuracy"] == pytest.approx(expected.right[before:n].mean())
        assert line["classes"] == len(set(labels[:n]))
        assert line["features"] == max(X[:n].indices, default=-1) + 1
        before = n


@pytest.mark.parametrize("cuts", [(), (1,), range(1, N), (64, 65), (30, 60, 90, 149)])
def test_the_cut_into_batches_is_of_no_consequence(tmp_path, problem, cuts) -> None:
    X, labels = problem
    whole = online(Listed(X, labels, (77,)), tmp_path / "a")
    cut = online(Listed(X, labels, cuts), tmp_path / "b")
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "b")
    assert cut.progressive_accuracy == whole.progressive_accuracy


def weights_of(run: Path, shape, dtype) -> list[np.ndarray]:
    """Weights and lag, from the log of changes."""
    now, lag = np.zeros((2, *shape), dtype)
    (log,) = run.glob("changes-*.bin")
    restore(log, log.stat().st_size, Weights.create(now, lag, 1.0))
    return [now, lag]


@pytest.mark.parametrize(("n", "loss"), [(256, "ww"), (256, "cs"), (201, "ww")])
def test_the_same_as_a_fit_of_one_pass_in_the_same_order(tmp_path, n, loss) -> None:
    X, labels = make_problem(n, 20, 4, noise=1.5)
    store = make_store(tmp_path / "a.h5", X, labels)
    fitted = fit(store, out=tmp_path / "fit", passes=1, inner_passes=0, C=0.1, loss=loss)
    order = permutation(n, 0, 1, 0, 0)  # of the one block there is
    stream = Listed(X[order], labels[order].astype(str), (50,), classes=list("0123"), n_features=20)
    learned = online(stream, tmp_path / "online", C=0.1, loss=loss)
    assert learned.progressive_accuracy == fitted.progressive_accuracy
    ours, theirs = (weights_of(tmp_path / name, (20, 16), np.float32)[0] for name in ("fit", "online"))
    np.testing.assert_array_equal(ours, theirs)  # the averages are of different parts of the pass


def test_given_classes_are_known_from_the_first_row_and_others_are_wrong(tmp_path, problem) -> None:
    X, labels = problem
    classes = ["c4", "c3", "c2", "c1", "c0", "never"]
    online(Listed(X, labels, classes=classes), tmp_path / "run", dtype="float64")
    model = load_model(tmp_path / "run")
    assert list(model.classes_) == classes
    np.testing.assert_allclose(model.coef_, Replay(X, labels, classes=classes).average, atol=1e-9)
    known = np.flatnonzero(np.array(labels) != "c2")
    part = Listed(X, labels, classes=["c0", "c1", "c3", "c4"])
    result = online(part, tmp_path / "part", dtype="float64", C=1)
    expected = Replay(X[known], [labels[i] for i in known], C=1, classes=["c0", "c1", "c3", "c4"])
    np.testing.assert_allclose(load_model(tmp_path / "part").coef_, expected.average, atol=1e-9)
    assert result.progressive_accuracy == expected.right.sum() / N


def test_the_average_has_room_for_any_stream() -> None:
    """Visit t moves the lag by float32((t / HORIZON)²) Δw, and the average by its inverse at the end."""
    for t in (1, 2**20, 2**45):
        for factor in ((t / HORIZON) ** 2, (HORIZON / t) ** 2):
            narrow = np.float32(factor)
            assert np.finfo(np.float32).tiny * 2**24 < narrow < np.finfo(np.float32).max / 2**24
            assert float(narrow) == factor  # a power of two


# -- growth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_keep_their_values_and_take_no_disk_as_they_grow(tmp_path, dtype) -> None:
    dtype = np.dtype(dtype)
    paths = tmp_path / "now", tmp_path / "lag", tmp_path / "marks"
    growing = GrowingWeights(paths, (0, 0), dtype)
    expected = np.zeros((3_000_000, 100), dtype)  # virtual: only what is set is real
    rng = np.random.default_rng(0)
    layouts = set()
    for n_features, n_classes in [(1, 1), (10, 3), (1000, 16), (1000, 17), (70_000, 40), (3_000_000, 90)]:
        growing.grow(n_features, n_classes)
        now, lag = growing.weights[:2]
        assert now.shape == lag.shape
        assert now.shape[0] >= n_features == growing.n_features
        assert now.shape[1] >= n_classes
        assert now.ctypes.data % 64 == lag.ctypes.data % 64 == 0
        layouts.add(now.shape[1])
        rows = rng.integers(n_features, size=20)
        columns = rng.integers(n_classes, size=20)
        now[rows, columns] = lag[rows, columns] = expected[rows, columns] = rng.normal(size=20)
        growing.weights.dirty[rows, 0] = 2**64 - 1
    touched = np.flatnonzero(expected[:, :90].any(axis=1))
    for array in growing.weights[:2]:
        np.testing.assert_array_equal(array[touched, :90], expected[touched, :90])
        at_random = np.setdiff1d(rng.integers(len(expected), size=1000), touched)
        assert not array[at_random].any()
    for path in paths[:2]:
        assert path.stat().st_size >= 3_000_000 * 90 * dtype.itemsize
        assert path.stat().st_blocks * 512 < 4 * 2**20  # a page each, and a few more
    assert len(layouts) <= 1 + np.log2(max(layouts) / min(layouts))  # each time twice as wide


def test_many_classes_and_features_that_come_one_after_another(tmp_path) -> None:
    X = sp.csr_array(sp.diags_array(np.ones(60)))
    labels = [f"{i:02}" for i in range(60)]
    X, labels = sp.csr_array(sp.vstack([X, X])), labels * 2
    online(Listed(X, labels, range(1, 120)), tmp_path / "run", dtype="float64")
    model = load_model(tmp_path / "run")
    assert list(model.classes_) == sorted(set(labels))
    np.testing.assert_allclose(model.coef_, Replay(X, labels).average, atol=1e-12)


def test_weights_too_large_for_a_file(tmp_path) -> None:
    X = sp.csr_array((np.ones(4, np.float32), [0, 1, 2**40, 3], [0, 1, 2, 3, 4]), shape=(4, 2**41))
    with pytest.raises(PlanError, match=r"row 3 has the feature 1,099,511,627,776.*--hash-bits"):
        online(Listed(X, "abab"), tmp_path / "run")
    online(Listed(X, "abab"), tmp_path / "run", hash_bits=6)
    assert load_model(tmp_path / "run").coef_.shape == (64, 2)


# -- hashing ---------------------------------------------------------------------------------------


def test_features_far_apart_take_little_disk_until_there_is_a_model(tmp_path) -> None:
    X = sp.csr_array(([1.0, 2.0, 3.0], ([0, 1, 2], [1, 3_000_000, 5])), shape=(3, 3_000_001))
    stream = Listed(X, ["a", "b", "c"])
    result = online(stream, tmp_path / "run", checkpoint_every="1")
    assert result.features == 3_000_001
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != format.COEF]
    assert sum(path.stat().st_blocks * 512 for path in kept) < 2**20
    near = sp.csr_array(X.todense()[:, [1, 5, 3_000_000]])
    online(Listed(near, ["a", "b", "c"]), tmp_path / "near")
    coef = load_model(tmp_path / "run").coef_
    np.testing.assert_array_equal(coef[[1, 5, 3_000_000]], load_model(tmp_path / "near").coef_)
    assert np.count_nonzero(coef) == np.count_nonzero(coef[[1, 5, 3_000_000]]) > 0


def test_a_model_that_the_disk_cannot_take_is_refused_before_it_is_learned(tmp_path, monkeypatch) -> None:
    X = sp.csr_array(([1.0, 2.0], ([0, 1], [1, 999_999])), shape=(2, 10**6))
    usage = shutil.disk_usage(tmp_path)._replace(free=8 * 10**6 - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(PlanError, match="row 2 has the feature 999,999: a model of 1,000,000 features and 2"):
        online(Listed(X, ["a", "b"]), tmp_path / "run")
    store = make_store(tmp_path / "s.zarr", X, np.arange(2), dtype="float32")
    with pytest.raises(PlanError, match=r"takes 8\.0 MB, .* of disk left; free some"):
        fit(store, out=tmp_path / "fit")


def test_numbers_beyond_all_bounds_end_with_a_word(tmp_path, problem) -> None:
    X, labels = problem
    with np.errstate(all="ignore"), pytest.raises(RunError, match="no longer finite; scale"):
        online(Listed(X * np.float32(1e-20), labels), tmp_path / "run", C=1e300)
    assert "NaN" not in (tmp_path / "run/metrics.jsonl").read_text()


def splitmix(state: int) -> int:
    """The finaliser of SplitMix64, as Steele, Lea & Flood (2014) print it."""
    mask = 2**64 - 1
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def hashed_densely(X: sp.csr_array, bits: int, seed: int, base: int = 0) -> np.ndarray:
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    key = splitmix((seed + golden) & mask)
    dense = np.zeros((X.shape[0], 2**bits))
    coo = X.tocoo()
    for row, feature, value in zip(coo.row, coo.col, coo.data, strict=True):
        h = splitmix((key + (int(feature) + base) * golden) & mask)
        dense[row, h >> (64 - bits)] += value * (1 - 2 * (h & 1))
    return dense


@pytest.mark.parametrize(("bits", "seed"), [(1, 0), (4, 7), (10, 2**63 - 1), (31, 3)])
def test_hashed_rows(bits, seed) -> None:
    X, labels = make_problem(30, 40, 3, empty=1)
    rows = hash_rows(as_rows(X, labels), bits, seed)
    if bits < 20:
        dense = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(30, 2**bits)).toarray()
        np.testing.assert_allclose(dense, hashed_densely(X, bits, seed), atol=1e-12)
    norms = [np.sum(rows.data[a:b] ** 2) for a, b in itertools.pairwise(rows.indptr)]
    np.testing.assert_allclose(rows.norm2, norms, atol=1e-12)
    for a, b in itertools.pairwise(rows.indptr):
        assert (np.diff(rows.indices[a:b]) > 0).all()
    assert rows.indices.dtype == (np.int32 if bits < 31 else np.int64)
    assert rows.indices.max() < 2**bits


def test_a_hashed_model_hashes_what_it_is_asked(tmp_path, problem) -> None:
    X, labels = problem
    online(Listed(X, labels, (20, 80)), tmp_path / "run", hash_bits=4, seed=5, dtype="float64")
    model = load_model(tmp_path / "run")
    dense = hashed_densely(X, 4, 5)
    expected = Replay(dense, labels).average[:, np.argsort(Replay(dense, labels).names)]
    np.testing.assert_allclose(model.coef_, expected, atol=1e-9)
    assert model.record["hash"] == {"bits": 4, "seed": 5}
    # A store counts its features from 1 in the text: column j is the feature j + 1.
    classes = list(model.classes_)
    store = make_store(tmp_path / "a.h5", X, np.array([classes.index(label) for label in labels]))
    with open_store(store) as opened:
        (rows,) = model.batches(opened, labelled=False)
        ((_, scores),) = model.scores(rows)
    np.testing.assert_allclose(scores, hashed_densely(X, 4, 5, base=1) @ expected, atol=1e-9)


def test_programs_that_know_no_hash_refuse_a_hashed_model(tmp_path, problem) -> None:
    """They read version 1; version 3 says more than that of the features."""
    online(Listed(*problem), tmp_path / "hashed", hash_bits=4)
    assert load_model(tmp_path / "hashed").record["version"] == 3


def test_numbers_that_are_not_those_of_the_text_are_not_hashed(tmp_path, problem) -> None:
    stream = Listed(*problem)
    stream.index_base = 1
    with pytest.raises(SettingsError, match="index_base=1 changes them"):
        online(stream, tmp_path / "run", hash_bits=4)
    assert not (tmp_path / "run").exists()


def test_a_store_that_counts_from_one_serves_a_model_that_counts_from_zero(tmp_path, problem) -> None:
    X, labels = problem
    shifted = sp.csr_array(sp.hstack([sp.csr_array((N, 1), dtype=X.dtype), X]))  # as the text has them
    online(Listed(shifted, labels), tmp_path / "run", dtype="float64")
    model = load_model(tmp_path / "run")
    classes = list(model.classes_)
    store = make_store(tmp_path / "a.h5", X, np.array([classes.index(label) for label in labels]))
    with open_store(store) as opened:
        (rows,) = model.batches(opened, labelled=False)
        ((_, scores),) = model.scores(rows)
    np.testing.assert_allclose(scores, shifted @ model.coef_, atol=1e-12)


# -- resuming --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"loss": "cs", "dtype": "float64"}, {"hash_bits": 3, "seed": 1}])
@pytest.mark.parametrize("batches", range(1, 8))
def test_resuming_ends_in_the_same_bytes(tmp_path, problem, options, batches) -> None:
    X, labels = problem
    X = sp.csr_array(sp.vstack([X, sp.diags_array(np.ones(D), shape=(D, D))]))
    labels = [*labels, *(f"d{i}" for i in range(D))]  # 18 classes: more than a line of either dtype
    cuts = (2, 30, 60, 100, 151, 155)
    whole = online(Listed(X, labels, cuts), tmp_path / "whole", **options)
    stream = Listed(X, labels, cuts)
    with pytest.raises(Interrupted, match="resume"):
        online(stream, tmp_path / "run", stop=stop_after(batches), **options)
    again = Listed(X, labels, cuts)
    result = resume(tmp_path / "run", lambda record: again)
    assert again.drawn == ([0, *cuts][batches:])
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")
    same = ("rows", "classes", "features", "progressive_accuracy", "recent_accuracy", "empty_rows")
    assert [getattr(result, name) for name in same] == [getattr(whole, name) for name in same]


def test_a_finished_run_goes_on_with_rows_added_since(tmp_path, problem) -> None:
    X, labels = problem
    online(Listed(X, labels, (100,)), tmp_path / "whole")
    online(Listed(X[:100], labels[:100]), tmp_path / "run")
    commits = sorted((tmp_path / "run/checkpoint").iterdir())
    resume(tmp_path / "run", lambda record: Listed(X[:100], labels[:100]))
    assert sorted((tmp_path / "run/checkpoint").iterdir()) == commits  # nothing was new
    resume(tmp_path / "run", lambda record: Listed(X, labels, (100,)))
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_a_damaged_commit_gives_way_to_the_one_before(tmp_path, problem) -> None:
    X, labels = problem
    cuts = (2, 30, 60)
    online(Listed(X, labels, cuts), tmp_path / "whole")
    with pytest.raises(Interrupted):
        online(Listed(X, labels, cuts), tmp_path / "run", stop=stop_after(3), checkpoint_every="1")
    newest = max((tmp_path / "run").glob("changes-*.bin"))
    with newest.open("r+b") as file:
        file.write(b"\x55")
    result = resume(tmp_path / "run", lambda record: Listed(X, labels, cuts))
    assert "damaged" in result.warnings[0]
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


@pytest.mark.parametrize(
    "lie",
    [
        {"weights_shape": [D, 0]}, {"weights_shape": [D, 17]}, {"weights_shape": [D]},
        {"classes": ["a"] * 17}, {"classes": ["c0", "c1"]},
        {"marked": 1}, {"place": None},
    ],
)  # fmt: skip
def test_a_sealed_commit_of_another_run_is_refused(tmp_path, problem, lie) -> None:
    X, labels = problem
    stream = Listed(X, labels, (60,), classes=sorted(set(labels)))
    with pytest.raises(Interrupted):
        online(stream, tmp_path / "run", stop=stop_after(1))
    path = tmp_path / "run/checkpoint/00000001/manifest.json"
    manifest = json.loads(path.read_text())
    manifest |= lie if "weights_shape" in lie else {"stream": manifest["stream"] | lie}
    path.write_text(json.dumps(format.sealed(manifest)))
    with pytest.raises(RunError, match=r"not one of this run|invalid contents"):
        resume(tmp_path / "run", lambda record: stream)


def test_a_sealed_commit_larger_than_a_file_is_refused(tmp_path, problem) -> None:
    with pytest.raises(Interrupted):
        online(Listed(*problem, (60,)), tmp_path / "run", stop=stop_after(1))
    path = tmp_path / "run/checkpoint/00000001/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["weights_shape"] = [10**9, 10**9 + 16 - 10**9 % 16]
    path.write_text(json.dumps(format.sealed(manifest)))
    with pytest.raises(PlanError, match="more than a file can"):
        resume(tmp_path / "run", lambda record: Listed(*problem, (60,)))


def test_a_stream_that_cannot_be_drawn_again_leaves_the_model_of_its_rows(tmp_path, problem) -> None:
    X, labels = problem
    online(Listed(X[:60], labels[:60]), tmp_path / "part")
    with pytest.raises(Interrupted, match="cannot be resumed"):
        online(Listed(X, labels, (30, 60), resumable=False), tmp_path / "run", stop=stop_after(2))
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "part")
    # What was read ahead of the rows learned from is none of the model's sources.
    assert load_model(tmp_path / "run").record["sources"][0]["size"] == 60
    again = Listed(X, labels, (30, 60), resumable=False)
    result = resume(tmp_path / "run", lambda record: again)
    assert (result.status, result.input) == ("stopped", {"rows": 60})
    assert "60 rows" in result.warnings[0]
    assert again.drawn == []
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "part")


def test_a_silent_stream_can_be_stopped(tmp_path, problem) -> None:
    """A pipe that stays open and says nothing: who waits for it asks whether to stop."""
    read, write = os.pipe()
    stream = Listed(*problem, resumable=False, ended=lambda: os.read(read, 1))
    try:
        with pytest.raises(Interrupted, match="150 rows"):
            online(stream, tmp_path / "run", stop=stop_after(3))
    finally:
        os.close(write)  # lets the thread end
    assert load_model(tmp_path / "run").record["rows"] == N


def test_whose_run_it_is(tmp_path, problem) -> None:
    X, labels = make_problem(30, 5, 3)
    fit(make_store(tmp_path / "a.h5", X, labels), out=tmp_path / "fit", passes=1)
    with pytest.raises(RunError, match="trained on a store"):
        resume(tmp_path / "fit", lambda record: Listed(*problem))
    online(Listed(*problem), tmp_path / "run")
    from streamsvm import resume as resume_fit

    with pytest.raises(RunError, match="learns from a stream"):
        resume_fit(tmp_path / "run")
    with pytest.raises(RunError, match="is a run already"):
        online(Listed(*problem), tmp_path / "run")


# -- what cannot be learned from -------------------------------------------------------------------


def test_nothing_to_learn_from_leaves_no_run(tmp_path, problem) -> None:
    X, labels = problem
    with pytest.raises(InputError, match="no rows"):
        online(Listed(X[:0], []), tmp_path / "run")
    with pytest.raises(PlanError, match="two or more"):
        online(Listed(X, labels, classes=["c0"]), tmp_path / "run")
    online(Listed(X, labels), tmp_path / "run")  # without force
    with pytest.raises(InputError, match="all 10 rows have the label c1"):
        online(Listed(X[:10], ["c1"] * 10), tmp_path / "one")
    with pytest.raises(ModelError, match="no finished model"):
        load_model(tmp_path / "one")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"C": 0.0}, "C must"),
        ({"loss": "l2"}, "loss"),
        ({"hash_bits": 32}, "from 1 to 31"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_that_cannot_work(tmp_path, problem, setting, message) -> None:
    with pytest.raises(SettingsError, match=message):
        online(Listed(*problem), tmp_path / "run", **setting)
    assert not (tmp_path / "run").exists()


def test_rows_without_features(tmp_path) -> None:
    result = online(Listed(sp.csr_array((4, 3), dtype=np.float32), "abab"), tmp_path / "run")
    assert (result.features, result.empty_rows) == (0, 4)
    assert result.progressive_accuracy == 0.25  # the first row of a class is wrong, then the first class wins
    assert load_model(tmp_path / "run").coef_.shape == (0, 2)


@pytest.mark.parametrize("resumable", [True, False])
def test_an_error_of_the_stream_passes_through_after_what_came_before_it(
    tmp_path, problem, resumable
) -> None:
    def fail() -> None:
        raise InputError("line 151 is no row")

    remains = "resume .* continues" if resumable else "model is their model"
    with pytest.raises(InputError, match=f"line 151 is no row; 150 rows before .*: .*{remains}"):
        online(Listed(*problem, (75,), ended=fail, resumable=resumable), tmp_path / "run")
    online(Listed(*problem, (75,)), tmp_path / "whole")
    if not resumable:
        assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")
    mended = Listed(*problem, (75,), resumable=resumable)
    assert resume(tmp_path / "run", lambda record: mended).rows == N
    assert mended.drawn == []
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_an_error_before_any_row_says_no_more(tmp_path, problem) -> None:
    def fail() -> None:
        raise InputError("line 1 is no row")

    empty = Listed(sp.csr_array((0, 3), dtype=np.float32), [], ended=fail)
    with pytest.raises(InputError, match=r"^line 1 is no row$"):
        online(empty, tmp_path / "run")
    one = Listed(sp.csr_array((2, 3), dtype=np.float32), "aa", ended=fail, resumable=False)
    with pytest.raises(InputError, match=r"^line 1 is no row$"):
        online(one, tmp_path / "run")
    assert not (tmp_path / "run/model").exists()


# -- order of the labels ---------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["sorted", "random"])
def test_rows_sorted_by_label_are_told_of_as_they_stream(tmp_path, order) -> None:
    X, codes = make_problem(1500, 8, 5, seed=4)
    labels = [f"c{code}" for code in codes]
    rows = np.argsort(codes, kind="stable") if order == "sorted" else np.arange(1500)
    stream = Listed(X[rows], [labels[row] for row in rows], (400, 1100))
    events: list[dict[str, Any]] = []
    result = online(stream, tmp_path / "run", report=events.append)
    lines = {event["rows"]: event["progressive_accuracy"] for event in events if event["event"] == "rows"}
    told = [event["warning"] for event in events if event["event"] == "warning"]
    if order == "random":
        assert (told, result.warnings) == ([], [])
        assert None not in lines.values()
        return
    assert told == result.warnings
    assert len(told) == 1
    assert "shuffle" in told[0]
    place = events.index({"event": "warning", "warning": told[0]})
    assert place < len(events) - 2  # not only at the end
    assert [lines[n] for n in (512, 1024, 1500)] == [None] * 3
    assert (result.progressive_accuracy, result.recent_accuracy) == (None, None)


def test_a_resumed_stream_knows_the_order_of_what_came_before(tmp_path) -> None:
    X, codes = make_problem(600, 8, 5, seed=4)
    rows = np.argsort(codes, kind="stable")
    labels = [f"c{code}" for code in codes[rows]]
    with pytest.raises(Interrupted):
        online(Listed(X[rows], labels, (500,)), tmp_path / "run", stop=lambda: True)
    resumed = resume(tmp_path / "run", lambda record: Listed(X[rows], labels, (500,)))
    whole = online(Listed(X[rows], labels), tmp_path / "whole")
    assert resumed.warnings == whole.warnings != []
    assert resumed.progressive_accuracy is None
