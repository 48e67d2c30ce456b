"""The loop: a replay in NumPy, order and reading, what it reports, and resuming to the same bits."""

from __future__ import annotations

import fcntl
import itertools
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from helpers import in_files, make_problem, make_store, prefer

from streamsvm import fit, format, load_model, open_store, resume
from streamsvm.errors import Interrupted, PlanError, RunError, SettingsError, StoreError
from streamsvm.info import inspect
from streamsvm.kernels.random import permutation
from streamsvm.run.append_log import scan
from streamsvm.run.directory import RunDir
from streamsvm.run.dual_log import MAGICS
from streamsvm.settings import Interval, Settings
from streamsvm.store.container import StoredArray
from streamsvm.store.reader import Store
from streamsvm.training.trainer import plan

N, D, K = 70, 11, 5
BLOCK = 16  # rows: five blocks, the last of six
LOSSES = [
    ("ww", 1.0, "newton"),
    ("ww", 0.5, "newton"),
    ("ww", 1.0, "sorted"),
    ("cs", 1.0, "newton"),
    ("cs", 1.0, "sorted"),
]


@pytest.fixture(scope="module")
def problem() -> tuple[Any, np.ndarray]:
    X, labels = make_problem(N, D, K, noise=1.5, empty=1)
    labels[~X.toarray().any(axis=1)] = 1  # all their scores are 0, and the first class wins
    return X, labels


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, problem) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.h5", *problem)


def model_bytes(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "model").iterdir()}


def lines_of(run: Path) -> list[dict[str, Any]]:
    return lines_of_bytes((run / "metrics.jsonl").read_bytes())


def lines_of_bytes(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what differs between equal trainings."""
    varies = {"seconds", "rows_per_second", "waited_seconds", "waited_fraction", "bytes_read"}
    varies.add("peak_memory_bytes")
    return [{key: value for key, value in line.items() if key not in varies} for line in lines]


def stop_after(n: int):
    """A `stop` that is true from the n-th time on that it is asked."""
    asked = itertools.count(1)
    return lambda: next(asked) >= n


def visits(this_pass: int, seed: int = 0) -> list[tuple[int, np.ndarray]]:
    """Blocks of BLOCK rows in the order of a pass: the number, and the rows in the order of their visits."""
    begins = np.arange(0, N, BLOCK)
    order = []
    for block in permutation(len(begins), seed, this_pass, -1, 0):
        n = min(BLOCK, N - begins[block])
        order.append((int(block), begins[block] + permutation(n, seed, this_pass, block, 0)))
    return order


# -- what is computed ------------------------------------------------------------------------------


class Replay:
    """Weights, duals, and the average of the iterates: w_s, s visits after it began, weighs 2s + 1."""

    def __init__(self, X: np.ndarray, labels: np.ndarray, C: float, loss: str, margin: float) -> None:
        self.problem = X, labels, C, loss, margin
        self.W, self.B = np.zeros((D, K)), np.zeros((N, K))
        self.begin_average()

    def begin_average(self) -> None:
        self.sums = [np.zeros((D, K)), np.zeros((N, K))]
        self.clock = 0

    def visit(self, i: int, among: np.ndarray | None = None) -> None:
        X, labels, C, loss, margin = self.problem
        weight = 2 * self.clock + 1
        self.sums = [self.sums[0] + weight * self.W, self.sums[1] + weight * self.B]
        self.clock += 1
        self.W, self.B[i] = reference.one_visit(
            self.W, self.B[i], X[i], labels[i], C, loss, margin, among=among
        )

    @property
    def average(self) -> tuple[np.ndarray, np.ndarray]:
        return self.sums[0] / self.clock**2, self.sums[1] / self.clock**2


@pytest.mark.parametrize("inner_passes", [0, 2])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(("loss", "margin", "solver"), LOSSES)
def test_training_equals_a_replay_in_numpy(
    tmp_path: Path,
    store: Path,
    problem,
    loss: str,
    margin: float,
    solver: str,
    average: bool,
    inner_passes: int,
) -> None:
    """Test-then-train row by row: weights and their average, estimates and progressive accuracy."""
    X, labels = problem[0].toarray().astype(float), problem[1]
    C, passes = 0.3, 3
    asked = {"loss": loss, "margin": margin, "solver": solver, "C": C, "dtype": "float64", "seed": 5}
    asked |= {"inner_passes": inner_passes, "average": average, "valid": store, "gap": "pass"}
    result = fit(store, out=tmp_path / "run", passes=passes, block_rows=BLOCK, **asked)

    replay = Replay(X, labels, C, loss, margin)
    row_loss = reference.LOSSES[loss].value
    for this_pass in range(1, passes + 1):
        loss_sum, correct, curve = 0.0, 0, {}
        n = 0
        for block, rows in visits(this_pass, seed=5):
            for i in rows:
                if n == N // 2:
                    replay.begin_average()
                if X[i].any():
                    scores = X[i] @ replay.W
                    loss_sum += row_loss(scores, labels[i], margin)
                    correct += scores.argmax() == labels[i]
                    replay.visit(i)
                n += 1
                curve[n] = correct / n
            active = [i for i in rows if replay.B[i].any()]
            among = replay.B > 0
            for inner in range(1, inner_passes + 1):
                for t in permutation(len(active), 5, this_pass, block, inner):
                    replay.visit(active[t], among[active[t]])
        W, B = replay.W, replay.B
        record = result.history[this_pass - 1]
        assert record["primal_estimate"] == pytest.approx(0.5 * (W**2).sum() + C * loss_sum, rel=1e-9)
        assert record["dual"] == pytest.approx(reference.dual(B, X, labels, margin), rel=1e-9)
        assert record["primal"] == pytest.approx(reference.primal(W, X, labels, C, loss, margin), rel=1e-9)
        assert record["accuracy"] == record["valid_accuracy"]
        assert ("average_gap" in record) == average
        if average:
            W, B = replay.average
            primal = reference.primal(W, X, labels, C, loss, margin)
            dual = reference.dual(B, X, labels, margin)
            assert record["average_primal"] == pytest.approx(primal, rel=1e-9)
            assert record["average_dual"] == pytest.approx(dual, rel=1e-9)
            assert record["average_gap"] == pytest.approx(primal - dual, rel=1e-8)
            assert record["average_relative_gap"] == pytest.approx((primal - dual) / primal, rel=1e-8)
            accuracy = ((X @ W).argmax(axis=1) == labels).mean()
            assert record["average_accuracy"] == pytest.approx(accuracy)
            assert record["average_valid_accuracy"] == pytest.approx(accuracy)
            assert record["primal"] != pytest.approx(primal, rel=1e-6)
        if this_pass == 1:
            assert result.progressive_accuracy == record["progressive_accuracy"] == pytest.approx(curve[N])
            reports = [line for line in lines_of(tmp_path / "run") if line["event"] == "rows"]
            assert [line["rows"] for line in reports] == [1, 2, 4, 8, 16, 32, 64]
            for line in reports:
                assert line["progressive_accuracy"] == pytest.approx(curve[line["rows"]])
                assert line["pass"] == 1
    np.testing.assert_allclose(load_model(tmp_path / "run").coef_, W, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", ["ww", "cs"])
def test_few_entries_for_new_duals_change_nothing(
    tmp_path: Path, store: Path, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that holds one row's duals and no more: parts of one row each in the log."""
    asked = {"passes": 3, "loss": loss, "block_rows": BLOCK, "inner_passes": 0}
    fit(store, out=tmp_path / "large", **asked)
    monkeypatch.setattr("streamsvm.data.memory_plan._POOL_SHARE", 0.0)
    fit(store, out=tmp_path / "tiny", **asked)
    entries = [
        json.loads((tmp_path / run / "run.json").read_text())["plan"]["pool_entries"]
        for run in ("large", "tiny")
    ]
    assert entries == [N * K, K]
    assert model_bytes(tmp_path / "large") == model_bytes(tmp_path / "tiny")
    sizes = [(tmp_path / run / "duals-3.bin").stat().st_size for run in ("large", "tiny")]
    assert sizes[1] > sizes[0]  # more headers


def test_tol_stops_at_the_first_pass_that_reaches_it(tmp_path: Path, store: Path) -> None:
    asked = {"dtype": "float64", "C": 0.1, "average": False}
    free = fit(store, out=tmp_path / "free", passes=20, gap="pass", **asked)
    gaps = [record["relative_gap"] for record in free.history]
    best = gaps.index(min(gaps[:8]))
    assert best > 3
    below = np.nextafter(gaps[best], 0)  # a hair short of it is not reached yet
    later = next(i for i, gap in enumerate(gaps) if gap <= below) + 1
    assert fit(store, out=tmp_path / "below", passes=20, tol=below, **asked).passes == later > best + 1
    expected = best + 1
    result = fit(store, out=tmp_path / "tol", passes=20, tol=gaps[best], **asked)
    assert (result.status, result.passes) == ("converged", expected)
    assert result.relative_gap == gaps[best]
    assert (free.status, free.passes) == ("done", 20)
    for more in ({}, {"passes": 21}):  # nothing left to do
        again = resume(tmp_path / "tol", **more)
        assert (again.status, again.passes, again.checkpoints) == ("converged", expected, 0)
        assert again.relative_gap == result.relative_gap
    again = resume(tmp_path / "tol", tol=below)
    assert (again.status, again.passes) == ("converged", later)
    assert model_bytes(tmp_path / "tol") == model_bytes(tmp_path / "below")


def test_the_model_is_one_that_meets_the_tolerance(tmp_path: Path, store: Path) -> None:
    """The average is kept only where it may end the run, and is the model where it meets the tolerance."""
    kinds = set()
    with open_store(store) as opened:
        rows = opened.rows(0, N)
    X = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(N, D)).toarray().astype(float)
    for tol in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
        result = fit(store, out=tmp_path / "run", passes=100, dtype="float64", C=0.1, tol=tol, force=True)
        assert result.status == "converged"
        primal = reference.primal(load_model(tmp_path / "run").coef_, X, rows.labels, 0.1, "ww", 1.0)
        said = result.average if result.averaged else vars(result)
        assert said is not None
        assert said["primal"] == pytest.approx(primal, rel=1e-9)
        assert said["relative_gap"] <= tol
        assert load_model(tmp_path / "run").record["average"] is result.averaged
        kinds.add(result.averaged)
        assert sum("average_gap" in record for record in result.history) <= 4
    assert kinds == {True, False}


def test_an_average_that_did_not_begin_is_not_measured(tmp_path: Path, store: Path) -> None:
    """A tolerance that is given in the second half of a pass finds the lag of an earlier pass."""
    run = tmp_path / "run"
    fit(store, out=run, passes=1, keep_duals=True, block_rows=BLOCK, dtype="float64", C=0.1)
    with pytest.raises(Interrupted):
        resume(run, passes=3, stop=stop_after(4))
    result = resume(run, tol=1e-9)
    assert ["average_gap" in record for record in result.history] == [True, False, True]


def test_resume_takes_the_numbers_of_numpy(tmp_path: Path, store: Path) -> None:
    fit(store, out=tmp_path / "run", passes=2)
    assert resume(tmp_path / "run", passes=np.int64(3), tol=np.float32(1e-6)).passes == 3


def test_a_tolerance_can_be_given_to_a_run_that_measured_the_gap_at_its_end(
    tmp_path: Path, store: Path
) -> None:
    asked = {"dtype": "float64", "C": 0.1, "keep_duals": True}
    fit(store, out=tmp_path / "run", passes=2, **asked)
    later = resume(tmp_path / "run", passes=50, tol=1e-2)
    expected = fit(store, out=tmp_path / "tol", passes=50, tol=1e-2, **asked)
    assert (later.status, later.passes) == ("converged", expected.passes)
    assert model_bytes(tmp_path / "run")["coef.npy"] == model_bytes(tmp_path / "tol")["coef.npy"]


def test_valid_accuracy_equals_numpy(tmp_path: Path, store: Path, problem) -> None:
    X, labels = make_problem(50, D, K, seed=9, density=0.9)
    held_out = make_store(tmp_path / "valid.h5", X, labels)
    result = fit(store, out=tmp_path / "run", passes=2, dtype="float64", valid=held_out, average=False)
    W = load_model(tmp_path / "run").coef_
    assert result.valid_accuracy == pytest.approx(((X @ W).argmax(axis=1) == labels).mean())
    assert all("valid_accuracy" in record for record in result.history)


# -- order, and what is read -----------------------------------------------------------------------


class Reading:
    """What a fit reads: ranges of rows, and how often each chunk of each array."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.chunks: Counter[tuple[str, int]] = Counter()
        rows, read = Store.rows, StoredArray.read

        def counted_rows(store: Store, start: int, stop: int):
            self.ranges.append((start, stop))
            return rows(store, start, stop)

        def counted_read(array: StoredArray, start: int, stop: int):
            if stop > start:
                for chunk in range(start // array.chunk, (stop - 1) // array.chunk + 1):
                    self.chunks[array.name, chunk] += 1
            return read(array, start, stop)

        monkeypatch.setattr(Store, "rows", counted_rows)
        monkeypatch.setattr(StoredArray, "read", counted_read)


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_each_row_is_read_once_a_pass_and_chunks_hardly_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    X, labels = make_problem(400, 20, 4)
    store = make_store(tmp_path / f"a.{suffix}", X, labels, chunk_nnz=64)
    reading = Reading(monkeypatch)
    result = fit(store, out=tmp_path / "run", passes=3, block_rows=50, gap="none")
    assert result.history[-1]["rows"] == 400
    blocks = [(begin, begin + 50) for begin in range(0, 400, 50)]
    for this_pass in range(3):
        ranges = reading.ranges[8 * this_pass : 8 * (this_pass + 1)]
        assert sorted(ranges) == blocks
        assert ranges != blocks
    assert len(reading.ranges) == 24
    assert reading.ranges[:8] != reading.ranges[8:16]
    # Blocks are longer than chunks: only a chunk that two blocks share is read twice a pass.
    data = {chunk: times for (name, chunk), times in reading.chunks.items() if name == "X/data"}
    with open_store(store) as opened:
        edges = opened.indptr(0, 400)[50:400:50]
        shared = {int(edge) // 64 for edge in edges if edge % 64}
    assert sorted(data) == list(range(-(-X.nnz // 64)))
    for chunk, times in data.items():
        assert times == (6 if chunk in shared else 3)
    assert {c: t for (name, c), t in reading.chunks.items() if name == "X/indices"} == data


def test_the_duals_list_each_row_once(tmp_path: Path, store: Path, problem) -> None:
    """Every row but those without values, which have no duals; in the last pass."""
    fit(store, out=tmp_path / "run", passes=2, block_rows=BLOCK)
    path = tmp_path / "run/duals-2.bin"
    log = path.read_bytes()
    seen: Counter[int] = Counter()
    for part in scan(path, len(log), MAGICS):
        block, n_rows, _ = part.numbers
        rows = np.frombuffer(log, np.int32, n_rows, part.at)
        seen.update((block * BLOCK + rows).tolist())
    assert seen == Counter(np.flatnonzero(problem[0].toarray().any(axis=1)).tolist())


def test_the_same_seed_gives_the_same_model_from_zarr_and_hdf5(tmp_path: Path, problem) -> None:
    models = []
    for name, chunk in (("a.zarr", 64), ("b.h5", 64), ("c.zarr", 1000)):
        run = tmp_path / name.replace(".", "-")
        fit(make_store(tmp_path / name, *problem, chunk_nnz=chunk), out=run, seed=3, block_rows=BLOCK)
        models.append(model_bytes(run))
    assert models[0] == models[1] == models[2]
    fit(tmp_path / "a.zarr", out=tmp_path / "other", seed=4, block_rows=BLOCK)
    assert model_bytes(tmp_path / "other")["coef.npy"] != models[0]["coef.npy"]


def test_memory_decides_the_blocks_and_not_the_optimum(tmp_path: Path, store: Path) -> None:
    """Budgets of many sizes: every row once a pass, and one answer."""
    asked = {"passes": 300, "dtype": "float64", "tol": 1e-4, "C": 0.02}
    primals, counts = [], []
    for memory in (20_000, 40_000, 2**30):
        counts.append(plan(store, memory=memory, **asked)["blocks"])
        result = fit(store, out=tmp_path / f"run{memory}", memory=memory, **asked)
        assert result.status == "converged"
        primals.append(result.primal)
    assert counts[0] > counts[1] > counts[2] == 1
    assert max(primals) <= min(primals) * (1 + 1e-4)


def test_a_budget_too_small_names_one_that_works(tmp_path: Path, store: Path) -> None:
    with pytest.raises(PlanError, match=r"at least [\d,]+ ") as refused:
        fit(store, out=tmp_path / "run", memory=100, passes=2)
    assert not (tmp_path / "run").exists()
    memory = int(str(refused.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    fit(store, out=tmp_path / "run", memory=memory, passes=2)
    assert load_model(tmp_path / "run").coef_.any()


# -- reports ---------------------------------------------------------------------------------------


def test_metrics_hold_what_is_promised(tmp_path: Path, store: Path) -> None:
    events: list[dict[str, Any]] = []
    asked: dict[str, Any] = {"passes": 2, "block_rows": BLOCK, "gap": "pass"}
    result = fit(store, out=tmp_path / "run", **asked, valid=store, report=events.append)
    lines = lines_of(tmp_path / "run")
    assert [line for line in events if line["event"] in ("rows", "pass")] == lines
    assert [event["event"] for event in events if event["event"] not in ("rows", "pass", "compile")] == [
        "plan", "ready",
    ]  # fmt: skip
    passes = [line for line in lines if line["event"] == "pass"]
    assert passes == result.history
    promised = {
        *("pass", "rows", "dual", "primal", "gap", "relative_gap", "gap_decay", "accuracy", "valid_accuracy"),
        *("rows_per_second", "seconds", "bytes_read", "peak_memory_bytes"),
    }
    for number, record in enumerate(passes, start=1):
        assert record.keys() >= promised
        assert (record["pass"], record["rows"]) == (number, N)
        assert record["bytes_read"] > 0
        assert record["accuracy"] == record["valid_accuracy"]
    last = passes[-1]
    for name in ("primal", "dual", "gap", "relative_gap", "gap_decay", "accuracy", "valid_accuracy"):
        assert getattr(result, name) == last[name]
    assert result.progressive_accuracy == passes[0]["progressive_accuracy"]
    assert Path(result.model) == tmp_path / "run/model"
    assert result.peak_memory_bytes >= max(record["peak_memory_bytes"] for record in passes)


def test_a_plan_says_what_a_fit_does(tmp_path: Path, store: Path) -> None:
    described = plan(store, block_rows=BLOCK, passes=1)
    events: list[dict[str, Any]] = []
    fit(store, out=tmp_path / "run", block_rows=BLOCK, passes=1, report=events.append)
    assert events[0]["event"] == "plan"
    assert {key: events[0][key] for key in described} == described
    assert (described["rows"], described["features"], described["classes"]) == (N, D, K)
    assert described["blocks"] == 5
    assert described["weights_in_memory"]
    assert described["weights_bytes"] == 2 * D * 16 * 4  # with their average, in whole vectors
    assert described["planned_bytes"] > described["weights_bytes"]


def test_a_plan_warns_of_weights_without_room(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"passes": 1, "dtype": "float64", "average": True}
    monkeypatch.setattr("streamsvm.training.fit_plan.choices", prefer(in_files))
    described = plan(store, **options)
    needed = described["planned_bytes"] + described["weights_bytes"]

    def warning(available: int, **more: Any) -> str | None:
        monkeypatch.setattr("streamsvm.training.fit_plan.available_memory", lambda: available)
        return plan(store, **(options | more))["warning"]

    def is_slow(text: str | None) -> bool:
        return text is not None and "tens of times" in text

    assert not is_slow(warning(needed))
    text = warning(needed - 1)
    assert text is not None
    assert is_slow(text)
    assert all(word in text for word in ("float32", "--no-average", "--memory"))
    assert not is_slow(warning(needed - 1, dtype="float32"))  # what is advised is true
    assert not is_slow(warning(needed - 1, average=False))
    text = warning(1, dtype="float32", average=False)
    assert text is not None
    assert "float32" not in text
    assert "average" not in text
    events: list[dict[str, Any]] = []
    fit(store, out=tmp_path / "run", passes=1, report=events.append)
    assert "tens of times" in events[0]["warning"]
    monkeypatch.setattr("streamsvm.training.fit_plan.MANY_CLASSES", K)  # then the plan in files has lists
    assert warning(1) is None


@pytest.mark.parametrize("average", [False, True])
def test_weights_in_files_are_those_in_memory(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, average: bool
) -> None:
    options: dict[str, Any] = {"passes": 2, "block_rows": BLOCK, "average": average}
    fit(store, out=tmp_path / "memory", **options)
    monkeypatch.setattr("streamsvm.training.fit_plan.choices", prefer(in_files))
    assert not plan(store, **options)["weights_in_memory"]
    names: set[str] = set()

    def list_files(*_: object) -> None:
        names.update(path.name for path in (tmp_path / "files").glob("weights*.bin"))

    fit(store, out=tmp_path / "files", progress=list_files, **options)
    assert names == {"weights.bin", "weights-marks.bin"} | ({"weights-avg.bin"} if average else set())
    assert not list((tmp_path / "memory").glob("weights*.bin"))
    assert model_bytes(tmp_path / "files") == model_bytes(tmp_path / "memory")


class Killed(BaseException):
    """Stands for the death of the process."""


def test_a_finished_run_keeps_no_weights_and_is_extended_to_the_same_bytes(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was killed after the model was saved, before the weights were deleted."""
    monkeypatch.setattr("streamsvm.training.fit_plan.choices", prefer(in_files))
    options: dict[str, Any] = {"block_rows": BLOCK, "average": True}
    fit(store, out=tmp_path / "whole", passes=3, **options)
    assert not list((tmp_path / "whole").glob("weights*"))
    finished, killed = tmp_path / "finished", tmp_path / "killed"
    fit(store, out=finished, passes=2, **options)

    def die(run: RunDir) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "remove_weights", die)
        with pytest.raises(Killed):
            fit(store, out=killed, passes=2, **options)
    assert list(killed.glob("weights*"))
    assert model_bytes(killed) == model_bytes(finished)
    assert not list(finished.glob("weights*"))
    for run in (finished, killed):
        assert resume(run).passes == 2  # nothing to do: it ends as before
        assert not list(run.glob("weights*"))
        resume(run, passes=3)
        assert not list(run.glob("weights*"))
        assert model_bytes(run) == model_bytes(tmp_path / "whole")


# -- stopping and resuming -------------------------------------------------------------------------

RUNS = [
    ("ww", "float32", {}, "1h", 1),
    ("ww", "float64", {"margin": 0.5, "solver": "sorted"}, "2", 4),
    ("cs", "float32", {"gap": "end"}, "1", 3),
    ("cs", "float64", {"gap": "none"}, "3", 4),
]


@pytest.mark.parametrize(("loss", "dtype", "options", "every", "step"), RUNS)
def test_stopped_anywhere_and_resumed_is_the_same_model(
    tmp_path: Path, store: Path, loss: str, dtype: str, options: dict, every: str, step: int
) -> None:
    """After each block (or each few), of training and of scoring."""
    asked = {"passes": 3, "loss": loss, "dtype": dtype, "block_rows": BLOCK, "valid": store, **options}
    whole = fit(store, out=tmp_path / "whole", **asked)
    run = tmp_path / "run"
    for n in itertools.count(1, step):
        try:
            fit(store, out=run, stop=stop_after(n), checkpoint_every=every, force=True, **asked)
        except Interrupted as stopped:
            message = str(stopped)
        else:
            break
        assert f"resume {run}" in message
        assert not (run / "model").exists()
        result = resume(run)
        assert model_bytes(run) == model_bytes(tmp_path / "whole"), n
        assert without_times(lines_of(run)) == without_times(lines_of(tmp_path / "whole")), n
        assert without_times(result.history) == without_times(whole.history)
        assert result.warnings == []
    readings = {"pass": 6, "end": 4, "none": 3}[options.get("gap", "end")]
    assert n - 1 > 5 * readings  # every block of every pass and scoring, and of the valid store


def test_stopped_at_every_block_again_and_again(tmp_path: Path, store: Path) -> None:
    asked = {"passes": 3, "block_rows": BLOCK, "gap": "pass"}
    fit(store, out=tmp_path / "whole", **asked)
    stops = 0
    try:
        fit(store, out=tmp_path / "run", stop=stop_after(1), **asked)
    except Interrupted:
        for stops in itertools.count(1):
            # A scoring begins anew, so two blocks of it must be granted for it to end.
            try:
                resume(tmp_path / "run", stop=stop_after(1 if stops % 7 else 6))
                break
            except Interrupted:
                assert stops < 300
    assert stops > 15
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")
    assert without_times(lines_of(tmp_path / "run")) == without_times(lines_of(tmp_path / "whole"))


@pytest.mark.parametrize("loss", ["ww", "cs"])
def test_two_passes_extended_to_three_are_three(tmp_path: Path, store: Path, loss: str) -> None:
    fit(store, out=tmp_path / "three", passes=3, loss=loss, block_rows=BLOCK, gap="pass")
    fit(store, out=tmp_path / "run", passes=1, loss=loss, block_rows=BLOCK, keep_duals=True, gap="pass")
    first = model_bytes(tmp_path / "run")
    for passes in (2, 3):
        result = resume(tmp_path / "run", passes=passes)
        assert result.passes == passes
        assert model_bytes(tmp_path / "run") != first
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "three")
    assert without_times(lines_of(tmp_path / "run")) == without_times(lines_of(tmp_path / "three"))
    with pytest.raises(RunError, match="asked for 3 passes; it can be extended, not shortened"):
        resume(tmp_path / "run", passes=2)


def test_without_duals_a_run_resumes_but_cannot_be_extended(tmp_path: Path, store: Path) -> None:
    asked = {"passes": 1, "block_rows": BLOCK}
    fit(store, out=tmp_path / "whole", **asked)
    assert not list((tmp_path / "whole").glob("duals-*"))
    with pytest.raises(Interrupted):
        fit(store, out=tmp_path / "run", stop=stop_after(3), **asked)
    with pytest.raises(RunError, match="kept no duals"):
        resume(tmp_path / "run", passes=2)
    resume(tmp_path / "run")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_only_the_duals_that_commits_need_are_kept(tmp_path: Path, store: Path) -> None:
    fit(store, out=tmp_path / "run", passes=5, block_rows=BLOCK, checkpoint_every="1")
    assert sorted(path.name for path in (tmp_path / "run").glob("duals-*")) == ["duals-4.bin", "duals-5.bin"]
    assert len(list((tmp_path / "run/checkpoint").iterdir())) == 2


# -- what resuming refuses -------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path: Path, store: Path) -> Path:
    """A run stopped in its second pass, with two commits."""
    with pytest.raises(Interrupted):
        fit(
            store, out=tmp_path / "run", passes=3, block_rows=BLOCK, gap="none",
            checkpoint_every="1", stop=stop_after(8),
        )  # fmt: skip
    assert len(list((tmp_path / "run/checkpoint").iterdir())) == 2
    return tmp_path / "run"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, store: Path) -> dict[str, bytes]:
    run = tmp_path_factory.mktemp("whole") / "run"
    fit(store, out=run, passes=3, block_rows=BLOCK, gap="none")
    return model_bytes(run)


def commits(run: Path) -> list[Path]:
    """Newest first."""
    return sorted((run / "checkpoint").iterdir(), reverse=True)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["manifest.json", "changes"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "missing"])
def test_when_the_newest_commit_is_damaged_the_one_before_serves(
    stopped: Path, expected: dict[str, bytes], name: str, damage: str
) -> None:
    path = commits(stopped)[0] / name if name != "changes" else max(stopped.glob("changes-*.bin"))
    if damage == "flip":
        flip(path)
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if damage == "cut" else b"")
    result = resume(stopped)
    assert len(result.warnings) == 1
    assert str(path) in result.warnings[0]
    assert "the commit before it is used" in result.warnings[0]
    assert model_bytes(stopped) == expected


def test_when_all_commits_are_damaged_no_model_comes_out(stopped: Path) -> None:
    paths = list(stopped.glob("changes-*.bin"))
    for path in paths:
        flip(path)
    for _ in range(2):  # and trying changes nothing
        with pytest.raises(RunError, match="no commit is left to resume from: fit again") as caught:
            resume(stopped)
        assert all(str(path) in str(caught.value) for path in paths)
    assert not (stopped / "model").exists()


def test_damaged_duals_are_refused(stopped: Path) -> None:
    flip(stopped / "duals-1.bin")
    with pytest.raises(RunError, match=r"duals-1\.bin is damaged"):
        resume(stopped)


def test_what_no_commit_speaks_of_is_ignored(stopped: Path, expected: dict[str, bytes]) -> None:
    """The weights in use, half a commit, a torn tail of the log, metrics not committed."""
    (stopped / "weights.bin").write_bytes(b"noise")
    aside = stopped / "checkpoint/aside"
    shutil.copytree(commits(stopped)[0], aside)
    (aside / "manifest.json").unlink()
    for name in ("duals-2.bin", "metrics.jsonl"):
        with (stopped / name).open("ab") as file:
            file.write(b'{"half a line')
    assert resume(stopped).warnings == []
    assert model_bytes(stopped) == expected
    assert [line["event"] for line in lines_of(stopped)].count("pass") == 3


@pytest.mark.parametrize("left", [0.6, 0.0, None])
def test_lost_metrics_are_told_and_the_rest_follows(
    tmp_path: Path, stopped: Path, expected: dict[str, bytes], left: float | None
) -> None:
    path = stopped / "metrics.jsonl"
    content = path.read_bytes()
    if left is None:
        path.unlink()
    else:
        path.write_bytes(content[: int(left * len(content))])
    kept = lines_of_bytes(content[: content.rfind(b"\n", 0, int((left or 0) * len(content))) + 1])
    assert bool(kept) == bool(left)
    with pytest.raises(RunError, match=r"metrics\.jsonl is cut short"):
        inspect(stopped, verify=True)
    shutil.copytree(stopped, tmp_path / "copy")
    assert ["metrics.jsonl is cut short" in each for each in resume(tmp_path / "copy").warnings] == [True]

    def die(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # right behind a line that no commit knows
        resume(stopped, report=die)
    assert lines_of(stopped)[: len(kept) + 1] == [*kept, {"event": "lost"}]
    result = resume(stopped)
    assert model_bytes(stopped) == expected
    lines = lines_of(stopped)
    assert lines[: len(kept) + 1] == [*kept, {"event": "lost"}]
    assert [(line["event"], line["pass"]) for line in lines[len(kept) + 1 :]] == [("pass", 2), ("pass", 3)]
    assert result.warnings == []
    inspect(stopped, verify=True)


def reseal(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(format.sealed({**json.loads(path.read_bytes()), **changes})))


def test_other_format_versions_are_refused(stopped: Path, expected: dict[str, bytes]) -> None:
    newest = commits(stopped)[0]
    settings = (stopped / "run.json").read_bytes()
    reseal(stopped / "run.json", version=99)
    with pytest.raises(RunError, match="run format 99, this program writes and resumes 5"):
        resume(stopped)
    (stopped / "run.json").write_bytes(settings)
    reseal(newest / "manifest.json", version=99)
    assert "has format 99, not 5" in resume(stopped).warnings[0]
    assert model_bytes(stopped) == expected


def test_a_changed_store_is_refused_and_a_moved_one_is_not(
    tmp_path: Path, stopped: Path, store: Path, problem, expected: dict[str, bytes]
) -> None:
    X, labels = problem[0].copy(), problem[1]
    X.data[7] += 1
    changed = make_store(tmp_path / "changed.zarr", X, labels)
    with pytest.raises(RunError, match="has changed since"):
        resume(stopped, store=changed)
    with pytest.raises(StoreError, match=r"absent\.zarr"):
        resume(stopped, store=tmp_path / "absent.zarr")
    moved = shutil.copy(store, tmp_path / "moved.h5")
    resume(stopped, store=moved)
    assert model_bytes(stopped) == expected
    assert json.loads((stopped / "run.json").read_text())["store"]["path"] == str(moved)


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", "is not a run: it has no run.json"), ("file", "is not a run: a run is a folder")],
)
def test_paths_without_a_run_stay_clean(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / name, *([tmp_path / "folder"] if name == "nothing" else [])):
        with pytest.raises(RunError, match=message):
            resume(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"NaN", b"[" * 10**5, b"\xff\x00", b'{"version": 1}'])
def test_damaged_settings_are_refused(stopped: Path, content: bytes) -> None:
    (stopped / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=r"run\.json is damaged"):
        resume(stopped)


def test_any_flipped_byte_of_the_settings_is_found(stopped: Path) -> None:
    path = stopped / "run.json"
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
        content = bytearray(whole)
        content[at] ^= 0x04
        path.write_bytes(content)
        if chr(whole[at]).isspace() and chr(content[at]).isspace():
            continue
        with pytest.raises(RunError, match=r"run\.json is damaged"):
            resume(stopped)


# -- one owner, one run ----------------------------------------------------------------------------


def test_a_run_in_use_is_refused(tmp_path: Path, store: Path, stopped: Path) -> None:
    with (stopped / "lock").open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
        with pytest.raises(RunError, match="in use by another process"):
            resume(stopped)
        with pytest.raises(RunError, match="in use by another process"):
            fit(store, out=stopped, force=True)
        assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before
    resume(stopped)


def test_nothing_else_runs_in_a_run_while_it_trains(tmp_path: Path, store: Path) -> None:
    met = []

    def stop() -> bool:
        with pytest.raises(RunError, match="in use"):
            resume(tmp_path / "run")
        met.append(True)
        return False

    fit(store, out=tmp_path / "run", passes=1, stop=stop)
    assert met


def test_a_run_that_is_there_is_replaced_only_by_force(tmp_path: Path, store: Path) -> None:
    fit(store, out=tmp_path / "run", passes=1, seed=1)
    first = model_bytes(tmp_path / "run")
    with pytest.raises(RunError, match="is a run already"):
        fit(store, out=tmp_path / "run", passes=1, seed=2)
    assert model_bytes(tmp_path / "run") == first
    fit(store, out=tmp_path / "run", passes=1, seed=2, force=True)
    with pytest.raises(PlanError, match="at least"):  # a fit that cannot work replaces nothing
        fit(store, out=tmp_path / "run", memory=100, force=True)
    fit(store, out=tmp_path / "other", passes=1, seed=2)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "other") != first
    names = [sorted(path.name for path in (tmp_path / run).iterdir()) for run in ("run", "other")]
    assert names[0] == names[1]


def test_a_folder_of_other_things_is_no_place_for_a_run(tmp_path: Path, store: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("long")
    for force in (False, True):
        with pytest.raises(RunError, match=r"holds other files \(chapter\.tex\)"):
            fit(store, out=tmp_path / "thesis", force=force)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot create"):
        fit(store, out=tmp_path / "file/run")
    with pytest.raises(RunError, match=r"the folder .*absent/too does not exist; create it first"):
        fit(store, out=tmp_path / "absent/too/run")
    assert not (tmp_path / "absent").exists()


# -- what a fit refuses to be asked ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"loss": "hinge"}, "unknown loss 'hinge'; choose one of ww, cs"),
        ({"margin": 0.7}, r"margin must be for ww one of \(1.0, 0.5\), not 0.7"),
        ({"loss": "cs", "margin": 0.5}, "margin must be for cs"),
        ({"solver": "magic"}, r"solver must be .*'newton', 'sorted'.*, not 'magic'"),
        ({"loss": "cs", "solver": "magic"}, "solver must be for cs"),
        ({"inner_passes": -1}, "inner passes must be auto or a number, 0 or more, not -1"),
        ({"dtype": "float16"}, "dtype must be float32 or float64, not 'float16'"),
        ({"gap": "often"}, "gap must be pass, end or none"),
        ({"passes": 0}, "passes must be at least 1, not 0"),
        ({"C": 0.0}, "C must be auto, or positive and finite, not 0.0"),
        ({"C": -1.0}, "C must be auto, or positive"),
        ({"C": float("inf")}, "C must be auto, or positive and finite"),
        ({"C": float("nan")}, "C must be auto, or positive and finite"),
        ({"seed": -1}, "seed must be in"),
        ({"seed": 2**63}, "seed must be in"),
        ({"memory": 0}, "memory must be positive"),
        ({"tol": -1e-3}, "tol must be 0 or more"),
        ({"tol": float("nan")}, "tol must be 0 or more"),
        ({"tol": 0.1, "gap": "end"}, "tol needs the exact gap after each pass: gap must be pass, not end"),
        ({"block_rows": 0}, "block rows must be at least 1"),
        ({"passes": 2, "keep_duals": False}, "so they must be kept"),
        ({"passes": 2.0}, "passes must be at least 1, not 2.0"),
        ({"memory": 10**400}, "memory must be positive"),
        ({"C": 10**400}, "C must be auto, or positive and finite"),
        ({"C": "1"}, "C must be auto, or positive and finite"),
        ({"average": "yes"}, "average must be on or off"),
        ({"keep_duals": 1}, "keep duals must be on or off"),
        ({"label": 5}, "label must be the name of a column"),
    ],
)
def test_settings_that_cannot_work(tmp_path: Path, store: Path, asked: dict, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        fit(store, out=tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()


def test_numbers_beyond_all_bounds_end_with_a_word(tmp_path: Path) -> None:
    X, labels = make_problem(20, 5, 3)
    store = make_store(tmp_path / "s.h5", X * np.float32(1e-20), labels, dtype="float32")
    with np.errstate(all="ignore"), pytest.raises(RunError, match="no longer finite; scale"):
        fit(store, out=tmp_path / "run", C=1e300)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()  # no line of it would be true


def test_defaults_are_what_they_stand_for() -> None:
    assert (Settings().margin, Settings().solver, Settings().keep_duals) == (1.0, "newton", True)
    assert (Settings(loss="cs").solver, Settings(passes=1).keep_duals) == ("newton", False)
    assert all(Settings(passes=passes).average for passes in (1, 5, 6, 100))
    assert (Settings().gap, Settings(tol=0.1).gap, Settings().C) == ("end", "pass", "auto")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0s",
        "-1s",
        "5x",
        "s",
        "1e3s",
        "nan",
        "inf",
        "1 2",
        "8 rows",
        0,
        0.0,
        -3,
        True,
        float("nan"),
        float("inf"),
    ],
)
def test_intervals_that_mean_nothing(text: Any) -> None:
    with pytest.raises(SettingsError, match="cannot checkpoint every"):
        Interval(text)


@pytest.mark.parametrize(
    ("text", "seconds", "blocks"),
    [
        ("0.5s", 0.5, None),
        ("60s", 60, None),
        ("5m", 300, None),
        ("1h", 3600, None),
        ("250ms", 0.25, None),
        (2.5, 2.5, None),
        ("8", None, 8),
        ("8 blocks", None, 8),
        ("1 block", None, 1),
        (3, 3, None),
        (np.int64(3), 3, None),
        (np.float32(0.5), 0.5, None),
    ],
)
def test_intervals(text: Any, seconds: float | None, blocks: int | None) -> None:
    interval = Interval(text)
    assert (interval.seconds, interval.blocks) == (seconds, blocks)
    if blocks:
        assert [interval.due(1) for _ in range(blocks)] == [False] * (blocks - 1) + [True]


def test_commits_come_as_often_as_asked(tmp_path: Path, store: Path) -> None:
    counts = {
        every: fit(
            store, out=tmp_path / f"run{every}", passes=2, block_rows=BLOCK, checkpoint_every=every
        ).checkpoints
        for every in ("1", "2", "5", "1h")
    }
    # Of ten blocks, and one at the end.
    assert counts == {"1": 11, "2": 6, "5": 3, "1h": 1}


@pytest.mark.parametrize("n_classes", [0, 1])
def test_one_class_is_nothing_to_learn(tmp_path: Path, n_classes: int) -> None:
    X, labels = make_problem(5, 3, 1)
    labels[:] = n_classes - 1
    store = make_store(tmp_path / "a.zarr", X, labels, n_classes=n_classes)
    with pytest.raises(StoreError, match="training needs two or more"):
        fit(store, out=tmp_path / "run")
    with pytest.raises(StoreError, match="no rows to train on"):
        fit(make_store(tmp_path / "b.zarr", X[:0], labels[:0], n_classes=2), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_rows_without_any_value_give_a_model_of_zeros(tmp_path: Path) -> None:
    X, labels = make_problem(6, 4, 3, empty=6)
    result = fit(make_store(tmp_path / "a.h5", X, labels), out=tmp_path / "run", passes=2)
    assert not load_model(tmp_path / "run").coef_.any()
    assert (result.primal, result.dual, result.gap, result.relative_gap) == (0, 0, 0, 0)
    assert result.empty_rows == 6


def test_a_label_outside_the_classes_is_no_training_data(tmp_path: Path) -> None:
    X, labels = make_problem(30, 4, 3)
    labels[17] = -1
    store = make_store(tmp_path / "a.zarr", X, labels)
    with pytest.raises(StoreError, match="row 17 has a label outside the store's classes"):
        fit(store, out=tmp_path / "run")
