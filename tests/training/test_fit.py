"""What a fit computes: a replay in NumPy, tolerances, averages, and degenerate data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from cases import few
from helpers import MemoryPolicy, fit_with, make_problem, make_store
from helpers import plain_fit as fit
from run_files import files_of_duals, metrics_of, model_bytes, stop_after
from small_problem import BLOCK, DEFAULTS, FORMULATIONS, PARAMETERS, D, K, N, of_loss

from streamsvm import load_model, open_store, resume
from streamsvm.errors import Interrupted, RunError, StoreError
from streamsvm.kernels.random import permutation
from streamsvm.losses import ROW_LOSSES as LOSSES


def visits(this_pass: int, seed: int = 0, block_rows: int = BLOCK) -> list[tuple[int, np.ndarray]]:
    """Blocks of rows in the order of a pass: the number, and the rows in the order of their visits."""
    begins = np.arange(0, N, block_rows)
    order = []
    for block in permutation(len(begins), seed, this_pass, -1, 0):
        n = min(block_rows, N - begins[block])
        order.append((int(block), begins[block] + permutation(n, seed, this_pass, block, 0)))
    return order


class Replay:
    """Weights, duals, and the average of the iterates: w_s, s visits after it began, weighs 2s + 1."""

    def __init__(self, X: np.ndarray, labels: np.ndarray, C: float, loss: str, margin: float) -> None:
        self.problem = X, labels, C, loss, margin
        self.plain = reference.LOSSES[loss](margin, **PARAMETERS[loss])
        self.W, self.B, self.terms = np.zeros((D, K)), np.zeros((N, K)), np.zeros(N)
        self.begin_average()

    def begin_average(self) -> None:
        self.sums = [np.zeros((D, K)), 0.0]
        self.clock = 0

    def let_c_be(self, C: float) -> None:
        """If C grows, multiply weights and duals by what is best for the dual objective, as far as it may."""
        X, labels, before, loss, margin = self.problem
        self.problem = X, labels, C, loss, margin
        if before < C and (norm2 := (self.W**2).sum()) > 0:
            scale = max(1, min(C / before, self.terms.sum() / norm2))
            self.W, self.B, self.terms = scale * self.W, scale * self.B, scale * self.terms

    def visit(self, i: int, among: np.ndarray | None = None) -> None:
        X, labels, C, loss, margin = self.problem
        weight = 2 * self.clock + 1
        self.sums = [self.sums[0] + weight * self.W, self.sums[1] + weight * self.terms.sum()]
        self.clock += 1
        self.W, self.B[i] = reference.one_visit(
            self.W, self.B[i], X[i], labels[i], C, loss, margin, among, **PARAMETERS[loss]
        )
        self.terms[i] = self.plain.dual_term(self.B[i], C)

    @property
    def average(self) -> tuple[np.ndarray, float]:
        """Of the weights, and of the dual terms: for concave ones no more than those of the average."""
        return self.sums[0] / self.clock**2, self.sums[1] / self.clock**2


def is_quick(formulation: tuple[str, float, str], block_rows: int) -> bool:
    return formulation in DEFAULTS and (block_rows == N or formulation[0] in ("ww", "cs", "ovr2"))


@pytest.mark.parametrize(
    ("loss", "margin", "solver", "average", "inner_passes", "factors", "block_rows"),
    [  # rows of a single block have dense duals, those of several have lists
        pytest.param(
            *each, True, 2 if LOSSES[each[0]].has_inner_passes else 0, factors, block_rows,
            marks=[] if is_quick(each, block_rows) else [pytest.mark.more],
        )
        for each in FORMULATIONS
        for factors in (((), (0.25, 0.5, 1.0)) if LOSSES[each[0]].linear_duals else ((),))
        for block_rows in (N, BLOCK)
    ]
    + [
        (*each, average, inner, (), BLOCK)
        for each in DEFAULTS[:1]
        for average, inner in ((False, 0), (False, 2), (True, 0))
    ],
)  # fmt: skip
def test_training_equals_a_replay_in_numpy(
    tmp_path: Path,
    store: Path,
    problem,
    loss: str,
    margin: float,
    solver: str,
    average: bool,
    inner_passes: int,
    factors: tuple[float, ...],
    block_rows: int,
) -> None:
    """Test-then-train row by row, while C may grow: weights and their average, estimates and accuracies."""
    X, labels = problem[0].toarray().astype(float), problem[1]
    passes = 3
    options = {**of_loss(loss), "margin": margin, "solver": solver, "C": 0.3, "dtype": "float64", "seed": 5}
    options |= {"inner_passes": inner_passes, "average": average, "valid": store, "gap": "pass"}
    options |= {"C_factors": factors, "passes": passes, "block_rows": block_rows}
    result = fit_with(MemoryPolicy(), store, out=tmp_path / "run", **options)

    all_C = [0.3 * factor for factor in factors or (1.0,) * passes]
    replay = Replay(X, labels, all_C[0], loss, margin)
    plain, parameters = replay.plain, PARAMETERS[loss]
    for this_pass in range(1, passes + 1):
        loss_sum, correct, curve = 0.0, np.zeros(2), {}
        n = 0
        replay.let_c_be(C := all_C[this_pass - 1])
        for block, rows in visits(this_pass, 5, block_rows):
            for i in rows:
                if n == N // 2:
                    replay.begin_average()
                if X[i].any():
                    scores = X[i] @ replay.W
                    loss_sum += plain.value(scores, labels[i])
                    ties = scores >= scores.max() - 1e-12  # which rounding decides
                    correct += [ties.sum() == 1 and ties[labels[i]], ties[labels[i]]]
                    replay.visit(i)
                n += 1
                curve[n] = correct / n
            is_dense = block_rows == N
            active = [i for i in rows if replay.B[i].any()]
            among = is_dense | (replay.B > 1e-14)  # not what rounding left of a dual
            for inner in range(1, inner_passes + 1):
                for t in permutation(len(active), 5, this_pass, block, inner):
                    replay.visit(active[t], among[active[t]])
        W, B = replay.W, replay.B
        record = result.history[this_pass - 1]
        assert record["primal_estimate"] == pytest.approx(0.5 * (W**2).sum() + C * loss_sum, rel=1e-9)
        dual = reference.dual(B, X, labels, C, loss, margin, **parameters)
        assert record["dual"] == pytest.approx(dual, rel=1e-9)
        primal = reference.primal(W, X, labels, C, loss, margin, **parameters)
        assert record["primal"] == pytest.approx(primal, rel=1e-9)
        accuracy = pytest.approx(((X @ W).argmax(axis=1) == labels).mean())  # of the last iterate
        assert record["last_iterate_train_accuracy" if average else "train_accuracy"] == accuracy
        assert record["last_iterate_valid_accuracy" if average else "valid_accuracy"] == accuracy
        assert ("average_gap" in record) == average
        if average:
            W, terms = replay.average
            primal = reference.primal(W, X, labels, C, loss, margin, **parameters)
            dual = terms - 0.5 * (W**2).sum()
            assert record["average_primal"] == pytest.approx(primal, rel=1e-9)
            assert record["average_dual"] == pytest.approx(dual, rel=1e-9)
            assert record["average_gap"] == pytest.approx(primal - dual, rel=1e-8)
            assert record["average_relative_gap"] == pytest.approx((primal - dual) / primal, rel=1e-8)
            accuracy = ((X @ W).argmax(axis=1) == labels).mean()
            assert record["train_accuracy"] == record["valid_accuracy"] == pytest.approx(accuracy)
            assert record["primal"] != pytest.approx(primal, rel=1e-6)
        if this_pass == 1:
            assert result.progressive_accuracy == record["progressive_accuracy"]
            assert curve[N][0] - 1e-12 <= record["progressive_accuracy"] <= curve[N][1] + 1e-12
            assert curve[N][1] - curve[N][0] < 0.1
            reports = [line for line in metrics_of(tmp_path / "run") if line["event"] == "rows"]
            assert [line["rows"] for line in reports] == [1, 2, 4, 8, 16, 32, 64]
            for line in reports:
                least, most = curve[line["rows"]]
                assert least - 1e-12 <= line["progressive_accuracy"] <= most + 1e-12
                assert line["pass"] == 1
    np.testing.assert_allclose(load_model(tmp_path / "run").coef_.T, W, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", few(LOSSES, "ww", "cs", "logistic"))
def test_a_small_buffer_of_duals_gives_the_same_model(tmp_path: Path, store: Path, loss: str) -> None:
    """With room for the duals of one row, each file has the duals of one row."""
    options = {"passes": 3, **of_loss(loss), "block_rows": BLOCK, "inner_passes": 0, "dtype": "float64"}
    fit(store, out=tmp_path / "large", **options)
    fit_with(MemoryPolicy(dual_share=0.0), store, out=tmp_path / "tiny", **options)
    plans = [json.loads((tmp_path / run / "run.json").read_text())["plan"] for run in ("large", "tiny")]
    assert [each["dual_entries"] for each in plans] == [N * K, K]
    assert model_bytes(tmp_path / "large") == model_bytes(tmp_path / "tiny")
    counts = [len(files_of_duals(tmp_path / run, 3)) for run in ("large", "tiny")]
    assert counts[1] > counts[0] == -(-N // BLOCK)


def test_tol_stops_at_the_first_pass_that_reaches_it(tmp_path: Path, store: Path) -> None:
    options = {"dtype": "float64", "C": 0.01, "average": False}
    free = fit(store, out=tmp_path / "free", passes=20, gap="pass", **options)
    gaps = [record["relative_gap"] for record in free.history]
    best = gaps.index(min(gaps[:8]))
    assert best > 3
    below = np.nextafter(gaps[best], 0)  # a tolerance that this gap just misses
    later = next(i for i, gap in enumerate(gaps) if gap <= below) + 1
    assert fit(store, out=tmp_path / "below", passes=20, tol=below, **options).passes == later > best + 1
    expected = best + 1
    result = fit(store, out=tmp_path / "tol", passes=20, tol=gaps[best], **options)
    assert (result.status, result.passes) == ("converged", expected)
    assert result.relative_gap == gaps[best]
    assert (free.status, free.passes) == ("done", 20)
    for more in ({}, {"passes": 21}):  # nothing is left to do
        again = resume(tmp_path / "tol", **more)
        assert (again.status, again.passes, again.checkpoints) == ("converged", expected, 0)
        assert again.relative_gap == result.relative_gap
    again = resume(tmp_path / "tol", tol=below)
    assert (again.status, again.passes) == ("converged", later)
    assert model_bytes(tmp_path / "tol") == model_bytes(tmp_path / "below")


def test_the_model_is_the_iterate_or_the_average_that_meets_the_tolerance(
    tmp_path: Path, store: Path
) -> None:
    """The average is measured only in passes that it alone may end, and is the model if it does."""
    kinds = set()
    with open_store(store) as opened:
        rows = opened.rows(0, N)
    X = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(N, D)).toarray().astype(float)
    for tol in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
        result = fit(store, out=tmp_path / "run", passes=100, dtype="float64", C=1.0, tol=tol, force=True)
        assert result.status == "converged"
        primal = reference.primal(load_model(tmp_path / "run").coef_.T, X, rows.labels, 1.0, "ww", 1.0)
        assert result.primal == pytest.approx(primal, rel=1e-9)
        assert result.relative_gap <= tol
        assert load_model(tmp_path / "run").record["average"] is result.averaged
        kinds.add(result.averaged)
        averages = sum("average_gap" in record for record in result.history)
        assert averages <= max(1, result.passes // 4)
    assert kinds == {True, False}


def test_an_average_that_did_not_begin_in_its_pass_is_not_measured(tmp_path: Path, store: Path) -> None:
    """A tolerance that is given in the second half of a pass finds the average of an earlier pass."""
    run = tmp_path / "run"
    fit(store, out=run, passes=1, keep_duals=True, block_rows=BLOCK, dtype="float64", C=0.1)
    with pytest.raises(Interrupted):
        resume(run, passes=3, stop=stop_after(4))
    result = resume(run, tol=1e-9)
    assert ["average_gap" in record for record in result.history] == [True, False, True]


def test_an_objective_that_is_not_finite_is_an_error(tmp_path: Path) -> None:
    X, labels = make_problem(20, 5, 3)
    store = make_store(tmp_path / "s.h5", X * np.float32(1e-20), labels, dtype="float32")
    with np.errstate(all="ignore"), pytest.raises(RunError, match="no longer finite; rescale"):
        fit(store, out=tmp_path / "run", C=1e300)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()  # it would have no meaningful line


@pytest.mark.parametrize("n_classes", [0, 1])
def test_stores_with_fewer_than_two_classes_or_no_rows_are_refused(tmp_path: Path, n_classes: int) -> None:
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
