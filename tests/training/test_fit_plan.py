"""The memory plan of a fit: weights come before blocks, within the memory that the process may use."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store
from helpers import plain_fit as fit

from streamsvm import load_model, plan, resume
from streamsvm.data.memory_plan import INTERPRETER, SMALL_BLOCK
from streamsvm.errors import PlanError
from streamsvm.settings.fit import Settings
from streamsvm.store.store import RowSizes
from streamsvm.training.fit_plan import describe_fit, find_budget, plan_fit
from streamsvm.training.spec import specify
from streamsvm.training.training import Training

MB = 2**20
ARRAY = 200_000 * 128 * 4  # bytes of the weights of `wide`, in whole vectors


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a plan needs of a store with 400,000 rows of 200 non-zeros, 200,000 features and 120 classes."""
    n = 400_000
    monkeypatch.setattr("streamsvm.training.fit_plan.block_warning", lambda store, blocks: None)
    limit_to(monkeypatch, 2**34)
    return SimpleNamespace(
        path="rows", n_rows=n, n_features=200_000, n_classes=120, nnz=200 * n, chunk_nnz=2**18,
        class_counts=np.ones(120, np.int64),
        dtype=np.dtype("f4"), index_dtype=np.dtype("i4"), index_bytes=4, dense_rows=False,
        shuffled=True, native=True,
        sizes=lambda ranges: RowSizes(np.full(np.diff(ranges[0])[0], 200), np.zeros(0, np.int64)),
        weighted=False, grouped=False, multilabel=False, held_out_by=False, n_labels=0, unlabelled=0,
        units=None, held_bytes=0, extra_nnz_bytes=0,
    )  # fmt: skip


def described_fit(wide: Any, settings: Settings) -> dict[str, Any]:
    spec = specify(settings, wide)
    return describe_fit(wide, Training(spec, *plan_fit(wide, spec)))


def limit_to(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("streamsvm.training.fit_plan.memory_limit", lambda: size)


@pytest.mark.parametrize(
    ("memory", "in_memory"),
    [(2048, (True, True)), (300, (True, True)), (180, (True, False)), (90, (False, False))],
)
def test_weights_come_before_their_average_and_blocks_last(
    wide: Any, memory: int, in_memory: tuple[bool, bool]
) -> None:
    plan, starts = plan_fit(wide, specify(Settings(C=1, memory=memory * MB), wide))
    assert (plan.weights_in_memory, plan.average) == in_memory
    assert plan.total <= memory * MB
    assert plan.fixed >= sum(in_memory) * ARRAY
    assert plan.block_bytes >= SMALL_BLOCK
    assert (starts[0], starts[-1]) == (0, wide.n_rows)
    if not any(in_memory):  # the pages of the files want the memory
        assert plan.block_bytes <= memory * MB // 8


def test_the_budget_is_limited_by_what_the_process_may_use(
    wide: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(C=1, memory=300 * MB)
    limit_to(monkeypatch, 400 * 10**6)
    assert find_budget(settings) == 400 * 10**6 - INTERPRETER
    plan, _ = plan_fit(wide, specify(settings, wide))
    assert plan.weights_in_memory
    assert plan.average
    assert plan.total + INTERPRETER <= 400 * 10**6
    limit_to(monkeypatch, 2**40)
    assert find_budget(settings) == 300 * MB
    limit_to(monkeypatch, 40 * MB)
    with pytest.raises(PlanError, match=r"memory limit of this process is 40 MiB.* raise the memory limit"):
        plan_fit(wide, specify(Settings(C=1), wide))


@pytest.mark.parametrize("average", [True, False])
def test_the_advised_memory_holds_the_weights(wide: Any, average: bool) -> None:
    settings = Settings(C=1, memory=90 * MB, average=average)
    described = described_fit(wide, settings)
    assert described["mapped_bytes"] == described["weights_bytes"] == ARRAY
    advised = described["warning"].remedy.options["memory"]
    assert advised > 90 * MB
    plan, _ = plan_fit(wide, specify(Settings(C=1, memory=advised, average=average), wide))
    assert plan.weights_in_memory
    assert plan.average == average


@pytest.mark.parametrize("memory", [180, 90])
def test_an_average_without_memory_is_left_out_with_a_warning(wide: Any, memory: int) -> None:
    def described(memory: int, *, average: bool = True) -> dict[str, Any]:
        return described_fit(wide, Settings(C=1, memory=memory, average=average))

    left_out, never_wanted = described(memory * MB), described(memory * MB, average=False)
    warning = left_out.pop("average_warning")
    assert never_wanted.pop("average_warning") is None
    assert left_out.pop("average")  # the settings stay as given
    assert not never_wanted.pop("average")
    for each in (left_out, never_wanted):
        each.pop("warning")  # names the memory for what is wanted
    assert left_out == never_wanted
    enough = described(warning.remedy.options["memory"])
    assert enough["average_warning"] is enough["warning"] is None
    assert enough["weights_bytes"] == 2 * ARRAY
    assert described(warning.remedy.options["memory"] - 4 * MB)["average_warning"] == warning


def test_a_run_resumes_by_its_own_plan_under_another_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "a.zarr", *make_problem(300, 20, 4), chunk_nnz=64)
    limit_to(monkeypatch, INTERPRETER + 60_000)
    fit(store, out=tmp_path / "whole", passes=3)
    fit(store, out=tmp_path / "run", passes=2)
    limit_to(monkeypatch, 2**34)
    resume(tmp_path / "run", passes=3)
    resumed, whole = (load_model(tmp_path / name).coef_ for name in ("run", "whole"))
    np.testing.assert_array_equal(resumed, whole)


def test_a_plan_that_can_train_can_also_validate(tmp_path: Path) -> None:
    """For budgets around each change of plan: one that is too small is refused before the first pass."""
    other = make_store(tmp_path / "b.zarr", *make_problem(300, 60, 4, seed=1, density=0.2), chunk_nnz=64)
    store = make_store(tmp_path / "a.zarr", *make_problem(400, 60, 4, density=0.2), chunk_nnz=64)
    trained = 0
    for memory in range(12_000, 60_000, 8_000):
        events: list[dict[str, Any]] = []
        try:
            fit(
                store, out=tmp_path / "run", passes=1, memory=memory, valid=other, force=True, gap="none",
                report=events.append,
            )  # fmt: skip
            trained += 1
        except PlanError:
            assert not events
    assert trained > 2


@pytest.mark.parametrize(("memory", "copies"), [("2G", 2 * 2), (17_000, 3)])
def test_copies_of_the_weights_must_fit_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Any, memory: Any, copies: int
) -> None:
    """Two commits, with the average, or two commits and the weights in files."""
    store = make_store(tmp_path / "a.zarr", *problem)
    asked = {"memory": memory, "C": 1.0, "passes": 1, "transform": "none"}
    facts = plan(store, **asked)
    assert facts["weights_in_memory"] == (copies == 4)
    needed = copies * facts["features"] * 16 * 4  # whole vectors of classes
    free = [needed - 1, needed]
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free[0]))
    with pytest.raises(PlanError, match="with their copies"):
        fit(store, out=tmp_path / "run", **asked)
    free.reverse()
    fit(store, out=tmp_path / "run", **asked)
