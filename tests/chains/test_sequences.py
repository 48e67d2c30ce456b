"""Training on groups of rows: stores and matrices, resuming, order, predictions, and what is refused."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import anndata
import chain_reference
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from cases import few
from helpers import IN_FILES, as_rows, fit_with, write_rows
from helpers import plain_fit as fit
from helpers import plain_online as online
from resuming import assert_resumes
from run_files import flip, model_bytes, stop_after

from streamsvm import evaluate, load_model, open_store, plan, predict, resume
from streamsvm.chains import sequences as chain_sequences
from streamsvm.chains.loss import new_chain
from streamsvm.chains.sequences import load_sequences
from streamsvm.chains.viterbi import piece_bounds
from streamsvm.data.groups import codes_of_groups, group_starts, in_group_order
from streamsvm.data.memory_plan import longest_group
from streamsvm.errors import InputError, Interrupted, ModelError, PlanError, RunError, SettingsError
from streamsvm.kernels.duals import RowDuals
from streamsvm.kernels.jit import kernel
from streamsvm.losses import LOSSES
from streamsvm.losses.base import MOST_SEQUENCES
from streamsvm.run.duals import DualFormat
from streamsvm.settings.fit import Settings
from streamsvm.training.fit_plan import plan_fit
from streamsvm.training.spec import Spec, specify

SOLVERS = LOSSES["chain"].solvers
N, D, K = 60, 9, 3
BLOCK = 16  # rows of a block at most, of which a group takes up to 4


def of_solver(solver: str, **more: Any) -> dict[str, Any]:
    temperature = {"temperature": 0.5} if solver in ("bcpl", "oeg") else {}
    # Kernels of sequences compile for ten seconds, so for one dtype unless a test is about another.
    return {"loss": "chain", "solver": solver, "C": 0.5, "dtype": "float64", **temperature, **more}


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows whose labels mostly follow each other in a circle, their labels and groups."""
    rng = np.random.default_rng(0)
    lengths = np.array([4, 1, 3, 2] * (N // 10))
    qid = np.repeat(rng.permutation(len(lengths)) * 7, lengths)
    within = np.arange(N) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    labels = (np.repeat(rng.integers(K, size=len(lengths)), lengths) + within) % K
    X = np.eye(K)[labels] @ rng.normal(size=(K, D)) + 1.5 * rng.normal(size=(N, D))
    X[rng.random((N, D)) < 0.3] = 0
    return np.round(X, 3).astype(np.float32), labels, qid


def write_store(path: Path, X: np.ndarray, labels: np.ndarray, qid: np.ndarray | None) -> Path:
    rows = as_rows(sp.csr_array(X), labels)
    rows = rows if qid is None else rows._replace(qid=qid)
    return write_rows(path, rows, X.shape[1], K)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, problem) -> Path:
    return write_store(tmp_path_factory.mktemp("stores") / "groups.zarr", *problem)


# -- groups ----------------------------------------------------------------------------------------


def test_groups_are_visited_in_any_order_and_their_rows_in_theirs(problem) -> None:
    qid = problem[2]
    starts = group_starts(qid)
    order = np.random.default_rng(1).permutation(len(starts) - 1)
    rows = in_group_order(qid, order)
    assert sorted(rows.tolist()) == list(range(N))
    expected = [list(range(starts[g], starts[g + 1])) for g in order]
    assert rows.tolist() == list(itertools.chain(*expected))


def test_groups_of_any_values_become_numbers_in_the_order_of_the_rows() -> None:
    given = np.array(["b", "b", "a", "c", "c"])
    assert codes_of_groups(given, 5, InputError).tolist() == [0, 0, 1, 2, 2]
    assert codes_of_groups([7, 7, 2, 9, 9], 5, InputError).tolist() == [0, 0, 1, 2, 2]
    assert codes_of_groups([], 0, InputError).tolist() == []


@pytest.mark.parametrize("step", [1, 3, 4, 7, 1000])
def test_pieces_have_whole_groups(problem, step: int) -> None:
    X, labels, qid = problem
    rows = as_rows(sp.csr_array(X), labels)._replace(qid=qid)
    bounds = list(piece_bounds(rows, step, by_group=True))
    assert [begin for begin, _ in bounds[1:]] == [end for _, end in bounds[:-1]]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == N
    starts = set(group_starts(qid).tolist())
    for begin, end in bounds:
        assert {begin, end} <= starts
        assert end - begin <= step or len(set(qid[begin:end].tolist())) == 1


def test_the_longest_group_is_found_across_pieces(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 2, 3, 7, 100):
        monkeypatch.setattr("streamsvm.data.memory_plan._SCAN_ROWS", size)
        with open_store(store) as opened:
            assert longest_group(opened) == 4


# -- training --------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", few(SOLVERS, "cached"))
@pytest.mark.parametrize("average", few([True, False], True))
def test_stores_matrices_and_files_train_the_same_model(
    tmp_path: Path, problem, store: Path, solver: str, average: bool
) -> None:
    X, labels, qid = problem
    options = of_solver(solver, passes=4, average=average, gap="pass")
    stored = fit(store, out=tmp_path / "one", **options)
    of_arrays = fit(X, labels, groups=qid, **options)
    model = load_model(tmp_path / "one")
    np.testing.assert_allclose(of_arrays.coef_, model.coef_, rtol=0, atol=1e-13)
    np.testing.assert_allclose(of_arrays.transitions_, model.transitions_, rtol=0, atol=1e-13)
    assert of_arrays.result.dual == pytest.approx(stored.dual, rel=1e-12)
    predicted = chain_reference.predict(X @ model.coef_.T, model.transitions_, qid)
    assert stored.train_accuracy == pytest.approx((predicted == labels).mean())
    if average:  # its primal, too, is that of the sequences
        expected = chain_reference.primal(model.coef_.T, model.transitions_, X, labels, qid, 0.5)
        assert stored.averaged
        assert stored.primal == pytest.approx(expected, rel=1e-9)
        assert stored.dual <= stored.last_iterate["primal"]

    in_blocks = {**options, "block_rows": BLOCK, "average": False}
    fit(store, out=tmp_path / "memory", **in_blocks)
    fit_with(IN_FILES, store, out=tmp_path / "files", **in_blocks)
    assert model_bytes(tmp_path / "files") == model_bytes(tmp_path / "memory")


@pytest.mark.parametrize(
    ("solver", "dtype"),
    few(((solver, dtype) for dtype in ("float64", "float32") for solver in SOLVERS), ("cached", "float64")),
)
def test_a_run_stopped_anywhere_and_resumed_gives_the_same_model(
    tmp_path: Path, store: Path, solver: str, dtype: str
) -> None:
    options = of_solver(solver, passes=3, dtype=dtype, block_rows=BLOCK, gap="pass", valid=store)
    assert_resumes(tmp_path, store, range(1, 27, 3), **options)


@pytest.mark.parametrize("solver", few(SOLVERS, "cached"))
def test_a_buffer_too_small_for_a_block_is_emptied_in_time(
    problem, monkeypatch: pytest.MonkeyPatch, solver: str
) -> None:
    X, labels, qid = problem
    options = of_solver(solver, passes=4)
    whole = fit(X, labels, groups=qid, **options)
    monkeypatch.setattr("streamsvm.training.fit_plan._MAX_BUFFERED_DUALS", 1)  # raised to the longest group
    np.testing.assert_array_equal(fit(X, labels, groups=qid, **options).coef_, whole.coef_)


def test_the_memory_plan_has_room_for_transitions_and_the_longest_group(store: Path) -> None:
    asked = {"transform": "none"}
    rows, chain = plan(store, loss="cs", **asked), plan(store, loss="chain", solver="bcfw", **asked)
    assert chain["weights_bytes"] == rows["weights_bytes"] * (D + K) // D
    with pytest.raises(PlanError) as refused:
        plan(store, loss="chain", memory=1000)
    assert plan(store, loss="chain", memory=refused.value.needed_memory)["blocks"] >= 1


def test_the_buffer_of_duals_is_no_larger_than_the_duals_that_rows_may_have(store: Path) -> None:
    for solver in SOLVERS:
        settings = Settings(**of_solver(solver), passes=2, keep_duals=True)
        with open_store(store) as opened:
            buffer = plan_fit(opened, specify(settings, opened))[0].dual_entries
        assert 4 <= buffer <= N * LOSSES["chain"].max_duals(K, solver)


def test_the_memory_plan_has_room_for_the_sequences_of_a_long_chain(monkeypatch) -> None:
    n, k, most = 200, 3, MOST_SEQUENCES
    rng = np.random.default_rng(0)
    labels = rng.integers(k, size=n)
    rows = as_rows(sp.csr_array(np.eye(n)), labels)
    ids, values = rng.integers(k, size=n * most).astype(np.uint8), np.full(n * most, 1 / n / most)
    old = RowDuals(np.arange(n), np.full(n, most), ids, values).in_block(n)
    chain = new_chain(n, k)
    chain.own[:] = labels
    new = DualFormat(np.dtype(float), np.dtype(np.uint8)).new_buffer(1, n)
    arguments = (rows, 0, n, 1.0, old, new, chain)
    for name in ("kept_sequences", "max_sequences"):  # Python cannot call what is inlined
        function = getattr(chain_sequences, name)
        monkeypatch.setattr(chain_sequences, name, kernel(function.py_func))
    load_sequences.py_func(*arguments)  # compiles what it calls
    tracemalloc.start()
    try:
        load_sequences.py_func(*arguments)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.4 < held / Spec(Settings(loss="chain", C=1.0), n, 0, np.zeros(k, np.int64)).chain_bytes(n) <= 1


def test_a_run_whose_passes_were_changed_resumes_again(tmp_path: Path, store: Path) -> None:
    options = {"block_rows": BLOCK, **of_solver("bcfw")}
    with pytest.raises(Interrupted):
        fit(store, out=tmp_path / "run", stop=stop_after(8), checkpoint_every="1", **options | {"passes": 9})
    for passes in (4, 12):
        with pytest.raises(Interrupted):
            resume(tmp_path / "run", passes=passes, stop=stop_after(1))
        resume(tmp_path / "run")
    fit(store, out=tmp_path / "whole", **options | {"passes": 12, "keep_duals": True})
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_a_damaged_file_of_duals_is_found(tmp_path: Path, store: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(store, out=run, stop=stop_after(6), block_rows=BLOCK, checkpoint_every="1", **of_solver("cached"))
    duals = max(run.glob("duals-*.bin"))
    content = bytearray(duals.read_bytes())
    for at in range(20, len(content), 40):
        content[at] ^= 255
    duals.write_bytes(content)
    with pytest.raises(RunError):
        resume(run)


def test_weights_of_rows_are_averaged_over_a_group(problem) -> None:
    X, labels, qid = problem
    options = of_solver("cached", passes=200, tol=1e-5, average=False)
    weights = np.random.default_rng(2).uniform(0.5, 2, size=N)
    means = np.bincount(qid, weights)[qid] / np.bincount(qid)[qid]
    found, same = (
        fit(X, labels, groups=qid, sample_weight=each, **options).result for each in (weights, means)
    )
    assert found.dual == pytest.approx(same.dual, rel=1e-9)
    left_out = np.where(qid == qid[0], 0.0, 1.0)
    kept = qid != qid[0]
    without = fit(X[kept], labels[kept], groups=qid[kept], **options).result
    found = fit(X, labels, groups=qid, sample_weight=left_out, **options).result
    assert found.dual == pytest.approx(without.dual, rel=1e-4)


def test_groups_may_be_the_name_of_a_column_of_obs(problem) -> None:
    X, labels, qid = problem
    data = anndata.AnnData(X, obs=pd.DataFrame({"word": qid.astype(str)}, index=np.arange(N).astype(str)))
    options = of_solver("cached")
    model = fit(X, labels, groups=qid, **options)
    for ask in (
        lambda groups, X: fit(X, labels, groups=groups, **options).coef_.tolist(),
        lambda groups, X: model.predict(X, groups=groups).tolist(),
        lambda groups, X: predict(model, X, groups=groups).labels.tolist(),
        lambda groups, X: evaluate(model, X, labels, groups=groups).sequence_accuracy,
    ):
        assert ask("word", data) == ask(qid, X)
        with pytest.raises(InputError, match=r"X: obs has no column 'words'; it has 'word'"):
            ask("words", data)
        with pytest.raises(InputError, match="X: obs has no column 'word'; it has none"):
            ask("word", np.asarray(data.X))


# -- models ----------------------------------------------------------------------------------------


def test_a_model_of_sequences_is_saved_and_predicts_whole_groups(tmp_path: Path, problem, store) -> None:
    X, labels, qid = problem
    fit(store, out=tmp_path / "run", **of_solver("cached", passes=3))
    model = load_model(tmp_path / "run")
    expected = chain_reference.predict(X @ model.coef_.T, model.transitions_, qid)
    assert (expected != (X @ model.coef_.T).argmax(1)).any()  # transitions matter
    model.save(tmp_path / "copy")
    for each in (model, load_model(tmp_path / "copy")):
        assert each.predict(X, groups=qid).tolist() == expected.astype(str).tolist()
        for memory in (2**28, 26_000):
            found = predict(each, store, memory=memory).labels
            assert found[:, 0].tolist() == expected.astype(str).tolist()
    assert predict(model, X, groups=qid).labels[:, 0].tolist() == expected.astype(str).tolist()
    predict(model, store, out=tmp_path / "labels.txt")
    assert (tmp_path / "labels.txt").read_text().split() == expected.astype(str).tolist()

    right = expected == labels
    whole = np.mean([right[qid == group].all() for group in set(qid.tolist())])
    for found in (evaluate(model, store), evaluate(model, X, labels, groups=qid)):
        assert found.accuracy == pytest.approx(right.mean())
        assert found.sequence_accuracy == pytest.approx(whole)
        assert found.top_k == {1: found.accuracy}
    assert evaluate(fit(X, labels), X, labels).sequence_accuracy is None


def test_a_model_whose_transitions_are_damaged_is_refused(tmp_path: Path, problem) -> None:
    X, labels, qid = problem
    fit(X, labels, groups=qid, **of_solver("cached")).save(tmp_path / "model")
    path = tmp_path / "model" / "transitions.npy"
    flip(path)
    with pytest.raises(ModelError, match=r"transitions\.npy is damaged"):
        load_model(tmp_path / "model")
    path.unlink()
    with pytest.raises(ModelError, match=r"transitions\.npy"):
        load_model(tmp_path / "model")


# -- refusals --------------------------------------------------------------------------------------


def test_what_does_not_apply_is_refused(tmp_path: Path, problem, store: Path) -> None:
    X, labels, qid = problem
    run, no_groups = tmp_path / "run", write_store(tmp_path / "rows.zarr", X, labels, None)
    model = fit(X, labels, groups=qid, **of_solver("cached"))
    tree = {"0": "a", "1": "a", "2": "b", "a": "r", "b": "r"}

    def chain(**settings: Any) -> Any:
        return fit(X, labels, groups=qid, loss="chain", **settings)

    def codes(*groups: Any) -> Any:
        return codes_of_groups(np.array(groups, object), 4, InputError)

    needed, one = "groups of rows that form sequences", "which rows form a sequence"
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: fit(X, labels, loss="chain"), SettingsError, needed),
        (lambda: fit(no_groups, out=run, loss="chain"), SettingsError, needed),
        (lambda: plan(no_groups, loss="chain"), SettingsError, needed),
        (lambda: fit(store, out=run, loss="chain", valid=no_groups), SettingsError, needed),
        (lambda: fit(store, out=run, loss="chain", groups=qid), SettingsError, "groups"),
        (lambda: chain(margin=0.5), SettingsError, "margin"),
        (lambda: chain(inner_passes=2), SettingsError, "inner_passes"),
        (lambda: chain(solver="newton"), SettingsError, "solver"),
        (lambda: chain(temperature=0.1), SettingsError, "temperature"),
        (lambda: chain(tree=tree), SettingsError, "margins"),
        (lambda: online(None, out=run, loss="chain"), SettingsError, "chain"),
        (lambda: model.predict(X), ModelError, one),
        (lambda: predict(model, X), ModelError, one),
        (lambda: predict(model, no_groups), ModelError, one),
        (lambda: evaluate(model, X, labels), ModelError, one),
        (lambda: evaluate(model, no_groups), ModelError, one),
        (lambda: predict(model, X, groups=qid, top_k=2), SettingsError, "top_k"),
        (lambda: predict(model, X, groups=qid, threshold=0), SettingsError, "threshold"),
        (lambda: evaluate(model, X, labels, groups=qid, top_k=3), SettingsError, "top_k"),
        (lambda: model.predict_proba(X), ModelError, "no probabilities"),
        (lambda: fit(X, labels).predict(X, groups=qid), ModelError, "groups"),
        (lambda: codes(1, 1, 2, 1), InputError, r"group 1 occurs twice, at groups\[0\] and groups\[3\]"),
        (lambda: codes(1, 1), InputError, "groups has the shape"),
        (lambda: codes("a", 1, None, "a"), InputError, "cannot be compared|occurs twice"),
        (lambda: codes(1.0, np.nan, np.nan, 2.0), InputError, r"groups\[1\] is missing"),
    ]
    for call, error, words in cases:
        with pytest.raises(error, match=words):
            call()
    assert not run.exists()
