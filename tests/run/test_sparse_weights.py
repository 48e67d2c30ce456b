"""Sparse weights: the model of the matrix, the same bytes after a kill, and nothing of a forged file."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from cases import few
from helpers import MemoryPolicy, fit_with, make_problem, make_store, plan_with, resume_with
from run_files import model_bytes, stop_after
from small_problem import of_loss

from streamsvm import load_model
from streamsvm.data.rows import Rows
from streamsvm.errors import Interrupted, PlanError, RunError
from streamsvm.kernels.scratch import Scratch, mark_class
from streamsvm.kernels.sparse_rows import update_sparse_rows
from streamsvm.losses import ROW_LOSSES as LOSSES
from streamsvm.run.sparse_weights import SparseWeights
from streamsvm.run.sums import write_summed

pytestmark = pytest.mark.engine

N, D, K = 240, 60, 40
SPARSE = MemoryPolicy(many_classes=K, common_dual_classes=2**31, prefer=lambda plan: plan.sparse)
IN_FILES = dataclasses.replace(SPARSE, prefer=lambda plan: plan.sparse and plan.pool_bytes == 0)
COMMON = dataclasses.replace(SPARSE, common_dual_classes=K)
# Without a common dual: a number of inner passes is for the plain kernels.
PLAIN = {"ww": {"inner_passes": 1}, "ww2": {"inner_passes": 1}, "wws": {"inner_passes": 1}}


@numba.njit
def mark(c, scratch, n_vectors):
    return mark_class(c, scratch, n_vectors)


@numba.njit
def update(sparse_rows, rows, scratch, n_vectors, rate):
    update_sparse_rows(sparse_rows, rows, 0, scratch.delta, scratch.vectors, n_vectors, rate)


ALWAYS = [
    ("ww", True, 2), ("ww", False, 2), ("cs", True, 2), ("cs", True, 0), ("ovr", True, 2),
    ("logistic", True, 0),
]  # fmt: skip
# The other losses share all but a root or a clip with one of these; each compiles for half a minute. Weights
# with a column beyond the classes are never sparse.
LIKE_OTHERS = [
    loss.name
    for loss in LOSSES.values()
    if loss.extra_columns == 0 and loss.name not in [always for always, *_ in ALWAYS]
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.zarr", *make_problem(N, D, K))


@pytest.mark.parametrize(
    ("loss", "average", "inner_passes"),
    few(ALWAYS, ("ww", True, 2))
    + [pytest.param(loss, True, 2, marks=pytest.mark.more) for loss in LIKE_OTHERS],
)
def test_sparse_weights_give_the_model_of_the_matrix(
    tmp_path: Path, store: Path, loss: str, average: bool, inner_passes: int
) -> None:
    options: dict[str, Any] = {
        "passes": 3, "dtype": "float64", "average": average, "inner_passes": inner_passes,
        "block_rows": 70, "C": 0.5, **of_loss(loss),
    }  # fmt: skip
    if LOSSES[loss].linear_duals:
        options["C_factors"] = (0.4, 0.8, 1.0)
    expected = fit_with(MemoryPolicy(), store, out=tmp_path / "matrix", **options)
    sizes: dict[str, int] = {}  # while they are there

    def measure(*_: object) -> None:
        sizes.update({path.name: path.stat().st_size for path in (tmp_path / "sparse").glob("weights*.bin")})

    found = fit_with(IN_FILES, store, out=tmp_path / "sparse", progress=measure, **options)
    assert list(sizes) == ["weights-sparse.bin"]
    sparse, matrix = (load_model(tmp_path / name).coef_ for name in ("sparse", "matrix"))
    np.testing.assert_allclose(sparse, matrix, rtol=0, atol=2e-8)
    for name in ("primal", "dual", "train_accuracy", "progressive_accuracy"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-7), name
    if average:
        assert found.last_iterate == pytest.approx(expected.last_iterate, rel=1e-7)


@pytest.mark.parametrize(("policy", "in_file"), few([(SPARSE, False), (IN_FILES, True)], (IN_FILES, True)))
def test_rows_are_in_memory_while_they_fit(
    tmp_path: Path, store: Path, policy: MemoryPolicy, in_file: bool
) -> None:
    sizes: list[int] = []
    path = tmp_path / "run/weights-sparse.bin"
    options: dict[str, Any] = {"dtype": "float64", **PLAIN["ww"]}
    fit_with(
        policy, store, out=tmp_path / "run",
        progress=lambda *_: sizes.append(path.stat().st_size if path.exists() else 0), **options,
    )  # fmt: skip
    assert (max(sizes) > 0) is in_file
    fit_with(SPARSE if in_file else IN_FILES, store, out=tmp_path / "other", **options)
    coefs = [model_bytes(tmp_path / run)["coef.npy"] for run in ("run", "other")]
    assert coefs[0] == coefs[1]


@pytest.mark.parametrize(
    ("loss", "policy", "stop_at"),
    [
        *few(
            [("ww", COMMON, at) for at in (1, 3, 4, 5, 6, 8, 10)], *[("ww", COMMON, at) for at in (1, 5, 6)]
        ),
        *few([("ww", IN_FILES, 6), ("ww2", COMMON, 6), ("logistic", SPARSE, 6)], "ww"),
    ],
)
def test_resumes_to_the_same_bytes(
    tmp_path: Path, store: Path, loss: str, policy: MemoryPolicy, stop_at: int
) -> None:
    """From a commit of weights whose sparse rows grew, moved, lost entries, and were written in part."""
    options: dict[str, Any] = {
        "passes": 3, "dtype": "float64", "block_rows": 70, "checkpoint_every": "1", **of_loss(loss)
    }  # fmt: skip
    if loss == "ww":
        options |= {"C": 0.5, "tol": 1e-9}
    fit_with(policy, store, out=tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        fit_with(policy, store, out=tmp_path / "run", **options, stop=stop_after(stop_at + 1))
    shutil.rmtree(tmp_path / "run/model", ignore_errors=True)
    (tmp_path / "run/weights-sparse.bin").write_bytes(b"noise")
    resume_with(policy, tmp_path / "run", checkpoint_every="1")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


@pytest.mark.parametrize(("fewer", "expected"), [(1, True), (0, False)])
def test_weights_are_sparse_where_a_matrix_outgrows_the_budget(
    store: Path, fewer: int, expected: bool
) -> None:
    """The budget that just holds the weights and the rows beside them, and one byte less."""
    settings: dict[str, Any] = {"average": False}
    enough, many = MemoryPolicy(many_classes=K), MemoryPolicy(many_classes=K + 1)
    least = least_budget(store, enough, settings)
    described = plan_with(enough, store, memory=least - fewer, **settings)
    assert described["sparse"] is described["common_dual"] is expected
    assert described["weights_in_memory"] is (fewer == 0)
    assert not plan_with(many, store, memory=least - fewer, **settings)["sparse"]


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


def test_the_plan_counts_what_sparse_rows_take(tmp_path: Path, store: Path) -> None:
    with pytest.raises(PlanError) as refused:
        fit_with(IN_FILES, store, out=tmp_path / "run", memory=100, dtype="float64")
    memory = refused.value.needed_memory
    described = plan_with(IN_FILES, store, memory=memory, dtype="float64")
    assert described["sparse"]
    assert SparseWeights.size(D, K) < described["planned_bytes"] <= memory
    more = plan_with(SPARSE, store, memory=40 * memory, dtype="float64")
    assert 0 < more["sparse_bytes"] < more["planned_bytes"] <= 40 * memory
    fit_with(IN_FILES, store, out=tmp_path / "run", memory=memory, dtype="float64")
    assert load_model(tmp_path / "run").coef_.any()


def new_weights(*, average: bool = False) -> SparseWeights:
    return SparseWeights(5, 48, np.dtype(np.float32), 1.0, average=average)


def weights_of(storage: SparseWeights) -> np.ndarray:
    """What the rows hold, shape (2, features, classes): weights, and average deltas."""
    columns = np.arange(K)
    scales = (0.0, 1.0 if storage.sparse_rows.width > 2 else 0.0)
    whole = [np.concatenate([p.copy() for p in storage.coefficients(s, columns).pieces()]) for s in scales]
    return np.array([whole[0], whole[0] - whole[1]])


@pytest.mark.parametrize("average", few([False, True], True))
def test_rows_grow_move_fill_and_are_restored(tmp_path: Path, average: bool) -> None:
    """Random updates, in float32, of a few classes each: as of a matrix; and once more from their commit."""
    rng = np.random.default_rng(0)
    storage, expected = new_weights(average=average), np.zeros((2, 5, K), np.float32)
    scratch = Scratch.create(48, np.dtype(np.float32))
    for step in range(60):
        row = rng.choice(5, 3, replace=False) if step % 2 else np.array([0])
        x = rng.standard_normal(len(row)).astype(np.float32)
        indptr, nothing = np.array([0, len(row)]), np.zeros(1)
        cost = np.ones(1)
        rows = Rows(x, row, indptr, np.zeros(1, np.int32), nothing, cost)
        storage.make_room(rows, 0)
        classes = rng.choice(K, 2 + step % 3, replace=False)
        n_vectors = 0
        for c in classes:
            n_vectors = mark(c, scratch, n_vectors)
        scratch.delta[classes] = rng.standard_normal(len(classes)).astype(np.float32)
        rate = np.float32(0.5 if step > 30 else 0.0)
        added = np.outer(x, scratch.delta[:K])
        expected[0, row] += added
        expected[1, row] += rate * added
        update(storage.sparse_rows, rows, scratch, n_vectors, rate)
        scratch.delta[:] = 0
        scratch.lanes[:] = 0
    if not average:
        expected[1] = 0
    np.testing.assert_allclose(weights_of(storage), expected, rtol=0, atol=1e-5)
    sizes = storage.sparse_rows.extents[:, 1].tolist()
    assert sizes[0] == 48  # full
    write_summed(tmp_path / "f", storage.state())
    restored = new_weights(average=average)
    restored.restore(tmp_path / "f")
    assert restored.sparse_rows.extents[:, 1].tolist() == sizes
    np.testing.assert_array_equal(weights_of(restored), weights_of(storage))


def test_a_sparse_row_with_impossible_classes_is_refused(tmp_path: Path) -> None:
    """Such a row, with valid checksums, would outgrow the room that kernels count on."""
    for classes in ([2, 2], [2, 48], [2, -1], [2, 2.5], [2, np.nan]):
        entries = np.array([(c, 0.5) for c in classes], np.float32)
        write_summed(tmp_path / "f", (np.array([1, 2, 0]), np.array([3]), np.array([2]), entries))
        with pytest.raises(RunError, match=r"f is damaged: (its numbers are not valid|a row contains a)"):
            new_weights().restore(tmp_path / "f")
