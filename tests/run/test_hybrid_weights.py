"""Sparse weights of rare features: the same model as with a matrix, the same bytes after a kill."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import IN_FILES, fit_with, make_problem, make_store, plan_with, resume_with
from small_problem import of_loss

from streamsvm import fit, load_model
from streamsvm.data.blocks import Blocks
from streamsvm.data.memory_plan import MemoryPolicy
from streamsvm.errors import Interrupted, PlanError, RunError
from streamsvm.losses import ROW_LOSSES as LOSSES
from streamsvm.run import hybrid_weights
from streamsvm.run.append_log import AppendLog, LogEnd
from streamsvm.run.hybrid_weights import HybridWeights
from streamsvm.run.weight_log import append_weights, restore
from streamsvm.store import open_store

N, D, K = 240, 60, 40
COUNTED = 4  # blocks of 70 rows, which are read before the first pass to count features
# Features of fewer than two rows in five are rare, which is about half of the features.
SPARSE = dataclasses.replace(IN_FILES, many_classes=K, classes_per_row=K / (0.4 * N))
IN_MEMORY = (None, None, None)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.zarr", *make_problem(N, D, K))


@pytest.mark.parametrize(
    ("loss", "average", "inner_passes"),
    [(loss.name, True, 2 if loss.has_inner_passes else 0) for loss in LOSSES.values()]
    + [("ww", False, 2), ("llw", False, 0), ("ww", True, 0)],
)
def test_sparse_weights_give_the_model_of_the_matrix(
    tmp_path: Path, store: Path, loss: str, average: bool, inner_passes: int
) -> None:
    options: dict[str, Any] = {
        "passes": 3, "dtype": "float64", "average": average, "inner_passes": inner_passes,
        "block_rows": 70, "C": 0.5, **of_loss(loss),
    }  # fmt: skip
    if LOSSES[loss].linear_duals:
        options["first_C"] = 0.2
    expected = fit(store, out=tmp_path / "matrix", **options)
    sizes: dict[str, int] = {}  # while they are there

    def measure(*_: object) -> None:
        sizes.update({path.name: path.stat().st_size for path in (tmp_path / "sparse").glob("weights*.bin")})

    found = fit_with(SPARSE, store, out=tmp_path / "sparse", progress=measure, **options)
    assert D * K * 2 < sizes["weights.bin"] < D * K * 6
    assert sizes["weights-sparse.bin"] > 0
    np.testing.assert_allclose(
        load_model(tmp_path / "sparse").coef_, load_model(tmp_path / "matrix").coef_, rtol=0, atol=1e-11
    )
    for name in ("primal", "dual", "accuracy", "progressive_accuracy"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9), name
    if average:
        assert found.average == pytest.approx(expected.average, rel=1e-9)


def model_bytes(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "model").iterdir()}


@pytest.mark.parametrize(
    ("loss", "stop_at"), [("ww", 1), ("ww", 3), ("ww", 6), ("ww", 8), ("llw", 6), ("logistic", 6)]
)
def test_resumes_to_the_same_bytes(tmp_path: Path, store: Path, loss: str, stop_at: int) -> None:
    """From a log of weights whose sparse rows grew, moved, and were written in part."""
    options: dict[str, Any] = {"passes": 3, "block_rows": 70, "checkpoint_every": "1", **of_loss(loss)}
    if loss == "ww":
        options |= {"C": 0.5, "first_C": 0.2}
    fit_with(SPARSE, store, out=tmp_path / "whole", **options)
    left = iter([False] * (COUNTED + stop_at))
    with pytest.raises(Interrupted):
        fit_with(SPARSE, store, out=tmp_path / "run", **options, stop=lambda: next(left, True))
    shutil.rmtree(tmp_path / "run/model", ignore_errors=True)
    for name in ("weights.bin", "weights-sparse.bin", "weights-avg.bin", "weights-dirty.bin"):
        (tmp_path / "run" / name).write_bytes(b"noise")
    resume_with(SPARSE, tmp_path / "run", checkpoint_every="1")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


@pytest.mark.parametrize(("fewer", "expected"), [(1, True), (0, False)])
def test_weights_are_sparse_where_a_matrix_outgrows_the_budget(
    store: Path, monkeypatch: pytest.MonkeyPatch, fewer: int, expected: bool
) -> None:
    """The budget that just holds the weights and the rows beside them, and one byte less."""
    monkeypatch.setattr("streamsvm.run.weight_log._PART_ROWS", 1)  # else commits take more than the matrix
    settings: dict[str, Any] = {"average": False}
    enough, many = MemoryPolicy(many_classes=K), MemoryPolicy(many_classes=K + 1)
    least = least_budget(store, enough, settings)
    described = plan_with(enough, store, memory=least - fewer, **settings)
    assert described["sparse_rare"] is expected
    assert described["weights_in_memory"] is (fewer == 0)
    assert not plan_with(many, store, memory=least - fewer, **settings)["sparse_rare"]


def least_budget(store: Path, policy: MemoryPolicy, settings: dict[str, Any]) -> int:
    """The least budget with which the weights are in memory, by bisection."""
    low, high = 2**14, 2**24
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            fits = plan_with(policy, store, memory=middle, **settings)["weights_in_memory"]
        except PlanError:
            fits = False
        low, high = (low, middle) if fits else (middle, high)
    return high


@pytest.mark.parametrize("what", ["whole", "missing", "empty", "cut", "flipped", "of another store"])
def test_features_are_counted_once_or_if_the_count_is_lost(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    fit_with(SPARSE, store, out=tmp_path / "whole", block_rows=70)
    left = iter([False] * (COUNTED + 2))
    with pytest.raises(Interrupted):
        fit_with(SPARSE, store, out=tmp_path / "run", block_rows=70, stop=lambda: next(left, True))
    found = tmp_path / "run/rare-features.bin"
    content = found.read_bytes()
    if what == "missing":
        found.unlink()
    elif what == "of another store":
        other = make_store(tmp_path / "b.zarr", *make_problem(N, D, K, seed=1))
        fit_with(SPARSE, other, out=tmp_path / "other", passes=1, block_rows=70)
        shutil.copy(tmp_path / "other/rare-features.bin", found)
        assert len(found.read_bytes()) == len(content)
    elif what != "whole":
        flipped = bytes([*content[:-2], content[-2] ^ 4, content[-1]])
        found.write_bytes({"empty": b"", "cut": content[:-1], "flipped": flipped}[what])
    counted, count = [], hybrid_weights.count_features
    monkeypatch.setattr(hybrid_weights, "count_features", lambda *given: (counted.append(1), count(*given)))
    resume_with(SPARSE, tmp_path / "run")
    assert len(counted) == (0 if what == "whole" else COUNTED)
    assert found.read_bytes() == content
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_a_run_stopped_while_features_are_counted_begins_anew(tmp_path: Path, store: Path) -> None:
    fit_with(SPARSE, store, out=tmp_path / "whole", block_rows=70)
    left = iter([False] * (COUNTED - 2))
    with pytest.raises(Interrupted, match="before pass 1"):
        fit_with(SPARSE, store, out=tmp_path / "run", block_rows=70, stop=lambda: next(left, True))
    assert not (tmp_path / "run/rare-features.bin").exists()
    resume_with(SPARSE, tmp_path / "run")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_the_plan_counts_what_finds_sparse_rows(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.run.weight_log._PART_ROWS", 1)  # else commits take more than the matrix
    with pytest.raises(PlanError) as refused:
        fit_with(SPARSE, store, out=tmp_path / "run", memory=100)
    memory = refused.value.needed_memory
    assert memory is not None
    described = plan_with(SPARSE, store, memory=memory)
    assert described["sparse_rare"]
    assert HybridWeights.size(D) == described["sparse_rare_bytes"] < described["planned_bytes"] <= memory
    fit_with(SPARSE, store, out=tmp_path / "run", memory=memory)
    assert load_model(tmp_path / "run").coef_.any()


def test_a_flipped_byte_of_sparse_rows_is_noticed(tmp_path: Path, store: Path) -> None:
    left = iter([False] * (COUNTED + 2))
    with pytest.raises(Interrupted):
        fit_with(SPARSE, store, out=tmp_path / "run", block_rows=70, stop=lambda: next(left, True))
    (log,) = (tmp_path / "run").glob("changes-*.bin")
    content = bytearray(log.read_bytes())
    content[-3] ^= 0x10  # the last part holds sparse rows
    assert content.rfind(b"SSVMRARE") > content.rfind(b"SSVMWGTS")
    log.write_bytes(content)
    with pytest.raises(RunError, match=r"changes-1\.bin is damaged: wrong checksum"):
        resume_with(SPARSE, tmp_path / "run")


def test_rows_are_divided_without_loss(tmp_path: Path, store: Path) -> None:
    with open_store(store) as opened:
        rows = Blocks(opened, np.array([0, N]), np.dtype(np.float64)).read(0)
    frequency = np.bincount(rows.indices, minlength=D)
    rare = frequency < np.median(frequency)
    storage = HybridWeights(
        rare, K, K, rows.data.dtype, 1.0, IN_MEMORY, tmp_path / "sparse", average=True
    )  # fmt: skip
    assert len(storage.weights.current) == np.count_nonzero(~rare)
    assert storage.n_features == D
    split = storage.prepare(rows)
    part = storage.bind(split)
    sparse_rows = storage.sparse_rows
    assert split.longest == np.diff(sparse_rows.indptr).max()
    assert len(sparse_rows.entries) >= 2 * split.longest * K
    numbers, frequent = np.flatnonzero(rare), np.flatnonzero(~rare)
    for i in range(N):
        at = slice(rows.indptr[i], rows.indptr[i + 1])
        expected = dict(zip(rows.indices[at].tolist(), rows.data[at].tolist(), strict=True))
        a, b = (slice(indptr[i], indptr[i + 1]) for indptr in (part.indptr, sparse_rows.indptr))
        found = dict(zip(frequent[part.indices[a]].tolist(), part.data[a].tolist(), strict=True))
        rare_found = zip(numbers[sparse_rows.indices[b]].tolist(), sparse_rows.data[b].tolist(), strict=True)
        assert found | dict(rare_found) == expected
    storage.release()
    assert len(storage.sparse_rows.indices) == len(storage.sparse_rows.data) == 0


@pytest.mark.parametrize(
    ("classes", "message"),
    [([2, 0], None), ([2, 2], "belong"), ([2, K], "belong"), ([2, -1], "belong"), ([2, 0.5], "belong")],
)
def test_a_forged_sparse_row_is_refused(tmp_path: Path, classes: list[float], message: str | None) -> None:
    """With a class twice, or one that does not exist, rows would outgrow the room that kernels count on."""

    def new_weights() -> HybridWeights:
        rare, dtype = np.array([True, False]), np.dtype(np.float32)
        return HybridWeights(rare, 48, K, dtype, 1.0, IN_MEMORY, tmp_path / "sparse", average=False)

    storage = new_weights()
    storage.reserve(4)
    sparse_rows = storage.sparse_rows
    sparse_rows.extents[0], sparse_rows.used[0], sparse_rows.dirty[0] = (0, 2, 2), 2, 1
    sparse_rows.entries[:2] = [(c, 0.5) for c in classes]
    with AppendLog(tmp_path / "log", LogEnd()) as log:
        append_weights(log, storage.weights, sparse_rows)
    storage = new_weights()
    with pytest.raises(RunError, match=message) if message else contextlib.nullcontext():
        restore(log.path, log.end.length, storage)
        assert storage.sparse_rows.entries[:2, 0].tolist() == classes
