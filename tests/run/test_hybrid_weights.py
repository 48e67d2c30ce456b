"""Rare features as lists: the same model as with a matrix, the same bits after a kill."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import in_files, make_problem, make_store, prefer
from streamsvm.kernels.steps import Weights

from streamsvm import fit, load_model, resume
from streamsvm.data.blocks import Blocks
from streamsvm.errors import Interrupted, PlanError, RunError
from streamsvm.run import hybrid_weights
from streamsvm.run.append_log import AppendLog, LogEnd
from streamsvm.run.hybrid_weights import RareFeatures
from streamsvm.run.weight_log import append_weights, restore
from streamsvm.store import open_store
from streamsvm.training import fit_plan, trainer

N, D, K = 240, 60, 40
COUNTED = 4  # blocks of 70 rows, which are read before the first pass to count features


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.zarr", *make_problem(N, D, K))


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists for features of fewer than two rows in five, which is about half of the features."""
    monkeypatch.setattr(fit_plan, "MANY_CLASSES", K)
    monkeypatch.setattr(fit_plan, "choices", prefer(in_files))
    monkeypatch.setattr(hybrid_weights, "CLASSES_PER_ROW", K / (0.4 * N))


@pytest.mark.parametrize("loss", ["ww", "cs"])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("inner_passes", [0, 2])
def test_lists_give_the_model_of_the_matrix(
    tmp_path: Path, store: Path, request: pytest.FixtureRequest, loss: str, average: bool, inner_passes: int
) -> None:
    options: dict[str, Any] = {
        "passes": 3, "dtype": "float64", "loss": loss, "average": average,
        "inner_passes": inner_passes, "block_rows": 70, "C": 0.5,
    }  # fmt: skip
    expected = fit(store, out=tmp_path / "matrix", **options)
    request.getfixturevalue("lists")
    sizes: dict[str, int] = {}  # while they are there

    def measure(*_: object) -> None:
        sizes.update({path.name: path.stat().st_size for path in (tmp_path / "lists").glob("weights*.bin")})

    found = fit(store, out=tmp_path / "lists", progress=measure, **options)
    assert D * K * 2 < sizes["weights.bin"] < D * K * 6
    assert sizes["weights-sparse.bin"] > 0
    np.testing.assert_allclose(
        load_model(tmp_path / "lists").coef_, load_model(tmp_path / "matrix").coef_, rtol=0, atol=1e-11
    )
    for name in ("primal", "dual", "accuracy", "progressive_accuracy"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9), name
    if average:
        assert found.average == pytest.approx(expected.average, rel=1e-9)


def model_bytes(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "model").iterdir()}


@pytest.mark.parametrize("stop_at", [1, 3, 6, 8])
def test_resumes_to_the_same_bytes(tmp_path: Path, store: Path, lists: None, stop_at: int) -> None:
    """From a log of changes whose lists grew, moved, and were written in part."""
    options: dict[str, Any] = {"passes": 3, "block_rows": 70, "checkpoint_every": "1"}
    fit(store, out=tmp_path / "whole", **options)
    left = iter([False] * (COUNTED + stop_at))
    with pytest.raises(Interrupted):
        fit(store, out=tmp_path / "run", **options, stop=lambda: next(left, True))
    shutil.rmtree(tmp_path / "run/model", ignore_errors=True)
    for name in ("weights.bin", "weights-sparse.bin", "weights-avg.bin", "weights-dirty.bin"):
        (tmp_path / "run" / name).write_bytes(b"noise")
    resume(tmp_path / "run", checkpoint_every="1")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


@pytest.mark.parametrize(("fewer", "expected"), [(1, True), (0, False)])
def test_there_are_lists_where_weights_outgrow_the_budget(
    store: Path, monkeypatch: pytest.MonkeyPatch, fewer: int, expected: bool
) -> None:
    """The budget that just holds the weights and the rows beside them, and one byte less."""
    monkeypatch.setattr(fit_plan, "MANY_CLASSES", K)
    monkeypatch.setattr("streamsvm.run.weight_log._PART_LISTS", 1)  # else commits outgrow the matrix
    asked: dict[str, Any] = {"average": False}
    least = min_budget(store, asked)
    described = trainer.plan(store, memory=least - fewer, **asked)
    assert described["lists"] is expected
    assert described["weights_in_memory"] is (fewer == 0)
    monkeypatch.setattr(fit_plan, "MANY_CLASSES", K + 1)
    assert not trainer.plan(store, memory=least - fewer, **asked)["lists"]


def min_budget(store: Path, asked: dict[str, Any]) -> int:
    """The least budget with which the weights are in memory, by bisection."""
    low, high = 2**14, 2**24
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            fits = trainer.plan(store, memory=middle, **asked)["weights_in_memory"]
        except PlanError:
            fits = False
        low, high = (low, middle) if fits else (middle, high)
    return high


@pytest.mark.parametrize("what", ["whole", "missing", "empty", "cut", "flipped", "of another store"])
def test_features_are_counted_once_or_if_the_count_is_lost(
    tmp_path: Path, store: Path, lists: None, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    fit(store, out=tmp_path / "whole", block_rows=70)
    left = iter([False] * (COUNTED + 2))
    with pytest.raises(Interrupted):
        fit(store, out=tmp_path / "run", block_rows=70, stop=lambda: next(left, True))
    found = tmp_path / "run/rare-features.bin"
    content = found.read_bytes()
    X, labels = make_problem(N, D, K, seed=1)
    if what == "missing":
        found.unlink()
    elif what == "of another store":
        fit(make_store(tmp_path / "b.zarr", X, labels), out=tmp_path / "other", passes=1, block_rows=70)
        shutil.copy(tmp_path / "other/rare-features.bin", found)
        assert len(found.read_bytes()) == len(content)
    elif what != "whole":
        flipped = bytes([*content[:-2], content[-2] ^ 4, content[-1]])
        found.write_bytes({"empty": b"", "cut": content[:-1], "flipped": flipped}[what])
    counted, count = [], hybrid_weights.count_features
    monkeypatch.setattr(hybrid_weights, "count_features", lambda *given: (counted.append(1), count(*given)))
    resume(tmp_path / "run")
    assert len(counted) == (0 if what == "whole" else COUNTED)
    assert found.read_bytes() == content
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_a_run_stopped_while_features_are_counted_begins_anew(
    tmp_path: Path, store: Path, lists: None
) -> None:
    fit(store, out=tmp_path / "whole", block_rows=70)
    left = iter([False] * (COUNTED - 2))
    with pytest.raises(Interrupted, match="before pass 1"):
        fit(store, out=tmp_path / "run", block_rows=70, stop=lambda: next(left, True))
    assert not (tmp_path / "run/rare-features.bin").exists()
    resume(tmp_path / "run")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_the_plan_counts_what_finds_lists(
    tmp_path: Path, store: Path, lists: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.run.weight_log._PART_LISTS", 1)  # else commits outgrow the matrix
    with pytest.raises(PlanError, match=r"at least [\d,]+ ") as refused:
        fit(store, out=tmp_path / "run", memory=100)
    memory = int(str(refused.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    described = trainer.plan(store, memory=memory)
    assert described["lists"]
    assert RareFeatures.size(D) == described["lists_bytes"] < described["planned_bytes"] <= memory
    fit(store, out=tmp_path / "run", memory=memory)
    assert load_model(tmp_path / "run").coef_.any()


def test_a_flipped_byte_of_the_lists_is_noticed(tmp_path: Path, store: Path, lists: None) -> None:
    left = iter([False] * (COUNTED + 2))
    with pytest.raises(Interrupted):
        fit(store, out=tmp_path / "run", block_rows=70, stop=lambda: next(left, True))
    (log,) = (tmp_path / "run").glob("changes-*.bin")
    content = bytearray(log.read_bytes())
    content[-3] ^= 0x10  # the last part holds lists
    assert content.rfind(b"SSVMRARE") > content.rfind(b"SSVMWGTS")
    log.write_bytes(content)
    with pytest.raises(RunError, match=r"changes-1\.bin is damaged: wrong checksum"):
        resume(tmp_path / "run")


def test_rows_are_divided_without_loss(tmp_path: Path, store: Path) -> None:
    with open_store(store) as opened:
        rows = Blocks(opened, np.array([0, N]), np.dtype(np.float64)).read(0)
    frequency = np.bincount(rows.indices, minlength=D)
    are_rare = frequency < np.median(frequency)
    features = RareFeatures(tmp_path / "rare", are_rare, K, rows.data.dtype, average=True)
    assert features.n_frequent == np.count_nonzero(~are_rare)
    now = np.zeros((features.n_frequent, 8))
    split = features.split(rows)
    part, weights = split.enter(Weights.create(now, now, 1.0))
    held = weights.rare
    assert split.longest == np.diff(held.indptr).max()
    assert len(held.entries) >= 2 * split.longest * K
    numbers, frequent = np.flatnonzero(are_rare), np.flatnonzero(~are_rare)
    for i in range(N):
        at = slice(rows.indptr[i], rows.indptr[i + 1])
        expected = dict(zip(rows.indices[at].tolist(), rows.data[at].tolist(), strict=True))
        a, b = slice(part.indptr[i], part.indptr[i + 1]), slice(held.indptr[i], held.indptr[i + 1])
        found = dict(zip(frequent[part.indices[a]].tolist(), part.data[a].tolist(), strict=True))
        found |= dict(zip(numbers[held.indices[b]].tolist(), held.data[b].tolist(), strict=True))
        assert found == expected


@pytest.mark.parametrize(
    ("classes", "message"),
    [([2, 0], None), ([2, 2], "belong"), ([2, K], "belong"), ([2, -1], "belong"), ([2, 0.5], "belong")],
)
def test_a_forged_list_is_refused(tmp_path: Path, classes: list[float], message: str | None) -> None:
    """With a class twice, or one that is none, lists would outgrow the room that kernels count on."""

    def fresh() -> tuple[RareFeatures, Weights]:
        options: dict[str, Any] = {"n_classes": K, "dtype": np.dtype(np.float32), "average": False}
        features = RareFeatures(tmp_path / "rare", np.array([True, False]), **options)
        now = np.zeros((1, 48), np.float32)
        return features, features.with_entries(Weights.create(now, now[:0], 1.0), 4)

    _, weights = fresh()
    weights.rare.lists[0], weights.rare.used[0], weights.rare.changed[0] = (0, 2, 2), 2, 1
    weights.rare.entries[:2] = [(c, 0.5) for c in classes]
    with AppendLog(tmp_path / "log", LogEnd()) as log:
        append_weights(log, weights)
    features, weights = fresh()
    with pytest.raises(RunError, match=message) if message else contextlib.nullcontext():
        weights = restore(log.path, log.end.length, weights, features)
        assert weights.rare.entries[:2, 0].tolist() == classes
