"""Runs whose errors weigh differently: from stores of both kinds, resumed, moved, damaged, and refused."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import few
from helpers import as_rows, make_problem, make_store, write_rows
from helpers import plain_fit as fit
from reference import path_lengths
from run_files import flip, model_bytes, stop_after
from small_problem import BLOCK, D, K, N

from streamsvm import load_model, plan, resume
from streamsvm.errors import InputError, Interrupted, PlanError, RunError, SettingsError
from streamsvm.run.directory import RunDir

COSTS = np.abs(np.subtract.outer(np.arange(K), np.arange(K))).astype(float)
TREE = {"0": "low", "1": "low", "2": "high", "3": "high", "4": "top", "low": "top", "high": "top"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """What errors weigh, by the setting that takes each file."""
    found = {"costs": "costs.npy", "tree": "tree.txt", "class_weight": "classes.txt"}
    np.save(tmp_path / "costs.npy", COSTS)
    (tmp_path / "tree.txt").write_text("".join(f"{child} {parent}\n" for child, parent in TREE.items()))
    (tmp_path / "classes.txt").write_text("0 2\n# others weigh 1\n\n3\t0.25\n")
    return {setting: tmp_path / name for setting, name in found.items()}


def weighted_store(path: Path) -> tuple[Path, np.ndarray]:
    """The small problem with weights of the rows, some of them 0; and the weights."""
    X, labels = make_problem(N, D, K)
    weights = np.arange(N) % 4 / 2
    return write_rows(path, as_rows(X, labels)._replace(cost=weights), D, K), weights


@pytest.mark.parametrize("case", few(["costs", "tree", "class_weight", "rows"], "class_weight", "rows"))
@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_a_run_resumes_to_the_same_bytes_without_the_files_it_was_begun_with(
    tmp_path: Path, files: dict[str, Path], case: str, suffix: str
) -> None:
    store, _ = weighted_store(tmp_path / f"s{suffix}")
    options: dict[str, Any] = {"passes": 2, "block_rows": BLOCK, "loss": "ww", "gap": "pass"}
    if case in files:
        options[case] = files[case]
    fit(store, out=tmp_path / "whole", **options)
    for n in (1, 7):
        with pytest.raises(Interrupted):
            fit(store, out=tmp_path / "run", stop=stop_after(n), checkpoint_every="1", force=True, **options)
        shutil.move(tmp_path / "run", tmp_path / f"moved {n}")
        for path in files.values():
            path.rename(path.with_suffix(".away"))
        resume(tmp_path / f"moved {n}")
        assert model_bytes(tmp_path / f"moved {n}") == model_bytes(tmp_path / "whole")
        for path in files.values():
            path.with_suffix(".away").rename(path)


def test_weights_of_a_store_count_unless_they_are_not_wanted(tmp_path: Path) -> None:
    X, labels = make_problem(N, D, K)
    store, weights = weighted_store(tmp_path / "s.h5")
    used = fit(store, out=tmp_path / "used", C=0.5, valid=store)
    assert used.unweighted_rows == (weights == 0).sum()
    correct = load_model(tmp_path / "used").predict(X) == labels.astype(str)
    assert used.train_accuracy == pytest.approx(correct[weights > 0].mean())
    assert used.valid_accuracy == pytest.approx(correct.mean())
    named = fit(store, out=tmp_path / "named", C=0.5, sample_weight="weight")
    assert model_bytes(tmp_path / "named")["coef.npy"] == model_bytes(tmp_path / "used")["coef.npy"]
    assert named.primal == used.primal
    unused = fit(store, out=tmp_path / "unused", C=0.5, sample_weight="none")
    plain = fit(make_store(tmp_path / "p.h5", X, labels), out=tmp_path / "plain", C=0.5)
    assert unused.unweighted_rows == 0
    assert unused.primal == plain.primal != used.primal


@pytest.mark.engine
def test_a_tree_is_its_table() -> None:
    X, labels = make_problem(N, D, K)
    table = path_lengths(TREE, [str(c) for c in range(K)])
    models = [fit(X, labels, dtype="float64", **given) for given in ({"tree": TREE}, {"costs": table})]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    np.testing.assert_array_equal(models[0].costs, table)


def test_the_plan_counts_tables_of_pairs(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", *make_problem(N, D, K))
    without = plan(store)["planned_bytes"]
    for given in ({"costs": COSTS}, {"tree": TREE}):
        assert plan(store, **given)["planned_bytes"] >= without + 2 * K * K * 4
    with pytest.raises(
        PlanError, match="all pairs of 5 classes take 200 B, but the memory budget is 100 B"
    ) as e:
        plan(store, costs=COSTS, memory=100)
    assert e.value.needed_memory == 200


def reweigh(path: Path, **weights: Any) -> None:
    """Change what the run says of its costs."""
    run = RunDir(path.parent)
    before = run.read_settings()
    run.write_settings({**before, "error_weights": before["error_weights"] | weights})


def cut(path: Path) -> None:
    """Leave a table of fewer classes, in a run that says so."""
    np.save(path, COSTS[1:, 1:].astype(np.float32))
    reweigh(path, costs_crc32=zlib.crc32(path.read_bytes()))


DAMAGE: list[tuple[Callable[[Path], Any], str]] = [
    (lambda path: flip(path, -3), r"class-costs\.npy is damaged: its checksum"),
    (Path.unlink, r"class-costs\.npy is missing"),
    (cut, r"the costs in .* are not valid: .*it is not an array"),
    (lambda path: reweigh(path, class_weights=[1.0]), "the costs in .* are not valid"),
]


@pytest.mark.engine
def test_costs_that_were_changed_or_do_not_fit_the_classes_do_not_resume(tmp_path: Path) -> None:
    """Compiled code takes them without looking at their shapes."""
    store = make_store(tmp_path / "s.zarr", *make_problem(N, D, K))
    for damage, words in DAMAGE:
        with pytest.raises(Interrupted):
            fit(
                store, out=tmp_path / "run", stop=lambda: True, block_rows=BLOCK, costs=COSTS,
                dtype="float64", force=True,
            )  # fmt: skip
        damage(tmp_path / "run/class-costs.npy")
        with pytest.raises(RunError, match=words):
            resume(tmp_path / "run")


def test_rows_of_weight_0_do_not_choose_c_or_balance(tmp_path: Path) -> None:
    X, labels = make_problem(N, D, K)
    store, weights = weighted_store(tmp_path / "s.zarr")
    used = weights > 0
    expected = fit(X[used], labels[used], class_weight="balanced").record
    in_memory = fit(X, labels, sample_weight=weights, class_weight="balanced")
    fit(store, out=tmp_path / "run", class_weight="balanced")
    for found in in_memory, load_model(tmp_path / "run"):
        assert found.record["C"] == pytest.approx(expected["C"], rel=1e-6)
        assert found.record["class_weights"] == expected["class_weights"]


CLASSES_REFUSED = [
    ("0 2\nnine 1\n", r"classes\.txt, line 2: the class 'nine' is not one of the 5 classes"),
    ("0 2\n0 1\n", r"classes\.txt, line 2: the class '0' appears twice"),
    (
        "0 -2\n",
        r"classes\.txt, line 1: the class '0' has the weight '-2', which is not a number >= 0",
    ),
    ("0 nan\n", r"line 1: the class '0' has the weight 'nan'"),
    ("0\n", r"line 1: the class '' is not one of the 5 classes"),
    ("0 two\n", r"line 1: the class '0' has the weight 'two', which is not"),
    ("# nothing\n", r"classes\.txt: no class that occurs in the data has a weight above 0"),
    ("".join(f"{c} 0\n" for c in range(K)), r"no class that occurs in the data has a weight above 0"),
]


SETTINGS_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"loss": "logistic", "costs": COSTS}, "loss must be one of .* with margins .*; it is 'logistic'"),
    ({"costs": COSTS, "tree": TREE}, "tree must be left out with costs"),
    ({"class_weight": {"0": "much"}}, "class_weight: the class '0' has the weight 'much'"),
    ({"sample_weight": np.ones(3)}, r"sample_weight has the shape \(3,\); pass one weight per row \(70\)"),
    ({"sample_weight": np.full(N, np.nan)}, "sample_weight, row 1: the weight nan is invalid; use numbers"),
    ({"sample_weight": np.full(N, -1)}, "sample_weight, row 1: the weight -1"),
    ({"sample_weight": np.zeros(N)}, "all rows have weight 0"),
    ({"sample_weight": np.eye(N)[3], "hold_out": "2/2"}, r"all rows outside the held-out part 2/2 have"),
    ({"sample_weight": "column"}, "X: obs has no column 'column'; it has none"),
    ({"groups": np.zeros(N)}, "groups does not apply to the loss ww"),
]


def test_weights_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    X, labels = make_problem(N, D, K)
    for given, message in SETTINGS_REFUSED:
        with pytest.raises((SettingsError, InputError), match=message):
            fit(X, labels, **given)
    for content, message in CLASSES_REFUSED:
        (tmp_path / "classes.txt").write_text(content)
        with pytest.raises(InputError, match=message):
            fit(X, labels, class_weight=tmp_path / "classes.txt")
