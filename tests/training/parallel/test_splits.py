"""A training that is split: exact, and the same bytes whoever does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from cases import few
from helpers import dense_duals, make_problem, make_store
from helpers import plain_fit as fit
from resuming import assert_resumes
from run_files import kept_duals, metrics_of, model_bytes, without_times
from small_problem import of_loss
from streamsvm_converters import convert

from streamsvm import load_model, plan
from streamsvm.errors import PlanError, SettingsError
from streamsvm.losses import ROW_LOSSES
from streamsvm.run.duals import DualFormat
from streamsvm.training.parallel.class_groups import group_classes

N, D, K, C, BLOCK = 131, 14, 9, 0.4, 50
QUICK = ("ww", "ovr2", "cs")
OTHER_SETTINGS = [{"tol": 1e-9}, {"inner_passes": 0}, {"class_weight": "balanced"}]  # C grows with the first
BY_CLASS = [loss.name for loss in ROW_LOSSES.values() if loss.class_splits]
SPLITS = [("classes", loss) for loss in BY_CLASS] + [("rows", loss) for loss in ROW_LOSSES]


@pytest.fixture(scope="module")
def problem():
    X, labels = make_problem(N, D, K, noise=1.5, empty=2)
    labels[:2] = 1, 2  # all their scores are 0, and the first class wins
    return X, labels


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, problem) -> Path:
    return make_store(tmp_path_factory.mktemp("splits") / "a.zarr", *problem)


def duals_of(run: Path, labels: np.ndarray, split: str, splits: int, loss: str = "ww") -> np.ndarray:
    """The duals that three passes left, dense."""
    columns = np.arange(K)
    if split == "classes":
        columns = group_classes(np.bincount(labels), 2 * splits, np.dtype(float)).columns
    n_ids = int(columns.max()) + 1
    duals = DualFormat(np.dtype(float), np.dtype(np.uint8), n_ids, ROW_LOSSES[loss].max_duals(K))
    return dense_duals(kept_duals(run, 3, duals).segment(0, N), n_ids)[:, columns]


@pytest.mark.parametrize(
    ("split", "loss", "own"),
    [
        *few(((*each, {}) for each in SPLITS), *((*each, {}) for each in SPLITS if each[1] in QUICK)),
        *((split, "ww", own) for split in ("classes", "rows") for own in OTHER_SETTINGS),
    ],
)
def test_reports_equal_numpy(
    tmp_path: Path, problem, store: Path, split: str, loss: str, own: dict[str, Any]
) -> None:
    """The weights are those of the duals, which are feasible; and the gap is that of both."""
    X, labels = problem[0].toarray().astype(float), problem[1]
    run, splits = tmp_path / "run", 4 if own else 2
    settings: dict[str, Any] = {**of_loss(loss), "C": C, "dtype": "float64", "block_rows": BLOCK, **own}
    result = fit(store, out=run, average=False, split=split, splits=splits, **settings)
    W, B = load_model(run).coef_.T, duals_of(run, labels, split, splits, loss)
    cost = C * (N / (K * np.bincount(labels)))[labels] if "class_weight" in own else C
    parameters = {name: settings[name] for name in ("smooth", "top") if name in settings}
    np.testing.assert_allclose(W, reference.weights(B, X, labels, loss=loss), rtol=1e-9, atol=1e-10)
    assert reference.are_feasible(B, labels, cost, loss, **parameters)
    primal = reference.primal(W, X, labels, cost, loss, **parameters)
    dual = reference.dual(B, X, labels, cost, loss, **parameters)
    assert result.primal == pytest.approx(primal, rel=1e-10)
    assert result.dual == pytest.approx(dual, rel=1e-9)
    assert result.train_accuracy == pytest.approx(((X @ W).argmax(axis=1) == labels).mean())
    assert result.empty_rows == 2


def test_more_splits_than_duals_keep_them(problem) -> None:
    """Each part then has room for few duals, but never for none."""
    X, labels = problem[0][:60], (problem[1][:60] > 4).astype(int)
    result = fit(X, labels, C=0.02, dtype="float64", tol=0.1, passes=4000, splits=100).result
    optimum = fit(X, labels, C=0.02, dtype="float64", tol=1e-8, passes=4000).result
    assert result.status == "converged"
    assert optimum.dual <= result.primal <= optimum.primal / (1 - 0.1)


@pytest.mark.parametrize(
    ("split", "loss"), few(SPLITS, ("classes", "ww"), ("classes", "ovr2"), ("rows", "cs"))
)
def test_every_split_reaches_the_optimum(problem, split: str, loss: str) -> None:
    """Whose value an unsplit training brackets; the certificates are checked above."""
    settings: dict[str, Any] = {"loss": loss, "C": 0.02, "dtype": "float64", "average": False, "passes": 2000}
    optimum = fit(*problem, **settings, tol=1e-8).result
    for splits in (2, 4):
        result = fit(*problem, **settings, tol=1e-4, split=split, splits=splits).result
        assert result.status == "converged", splits
        assert result.dual <= optimum.primal
        assert optimum.dual <= result.primal <= optimum.primal / (1 - 1e-4)


@pytest.mark.parametrize("split", ["classes", "rows"])
@pytest.mark.parametrize("dtype", few(["float32", "float64"], "float64"))
def test_the_model_has_the_same_bytes_whoever_works(
    tmp_path: Path, store: Path, split: str, dtype: str
) -> None:
    for splits in (2, 4):
        models, lines = [], []
        for workers in (1, 2, 3):
            run = tmp_path / f"{splits}-{workers}"
            fit(
                store, out=run, split=split, splits=splits, workers=workers, block_rows=BLOCK, dtype=dtype,
                gap="pass", valid=store,
            )  # fmt: skip
            models.append(model_bytes(run))
            lines.append(without_times(metrics_of(run)))
        assert models[0] == models[1] == models[2]
        assert lines[0] == lines[1] == lines[2]
    assert models[0] != model_bytes(tmp_path / "2-1")  # for the number of splits is a setting


@pytest.mark.parametrize(("split", "splits"), [("classes", 2), ("classes", 4), ("rows", 2), ("rows", 3)])
@pytest.mark.parametrize("n", few([128, 129, 131], 131))
def test_the_average_of_the_last_half_is_the_model(problem, split: str, splits: int, n: int) -> None:
    """Also of one block, whose parts have odd numbers of rows."""
    X, labels = problem[0][:n], problem[1][:n]
    settings: dict[str, Any] = {"passes": 2, "C": C, "dtype": "float64"}
    averaged, last = (
        fit(X, labels, split=split, splits=splits, gap="pass", average=average, **settings)
        for average in (True, False)
    )
    assert averaged.result.averaged
    assert not np.allclose(averaged.coef_, last.coef_, rtol=1e-3)
    primal = reference.primal(averaged.coef_.T, X.toarray().astype(float), labels, C, "ww")
    assert averaged.result.primal == pytest.approx(primal, rel=1e-10)
    optimum = fit(X, labels, C=C, dtype="float64", passes=300).result
    assert last.result.dual * 0.5 < averaged.result.dual <= optimum.primal


@pytest.mark.parametrize("split", ["classes", "rows"])
def test_a_run_stopped_and_resumed_by_other_workers_gives_the_same_model(
    tmp_path: Path, store: Path, split: str
) -> None:
    settings = {"split": split, "splits": 2, "block_rows": BLOCK, "gap": "pass", "dtype": "float64"}
    assert_resumes(tmp_path, store, (1, 2, 4, 7, 11), workers=2, passes=3, **settings)


@pytest.mark.engine
def test_costs_and_several_labels_are_split_by_rows(tmp_path: Path, problem) -> None:
    X, labels = problem
    rng = np.random.default_rng(0)
    costs = rng.uniform(0.5, 2.0, (K, K))
    np.fill_diagonal(costs, 0.0)
    settings: dict[str, Any] = {"costs": costs, "C": 0.02, "dtype": "float64", "tol": 1e-5, "passes": 3000}
    plain = fit(X, labels, **settings).result
    split = fit(X, labels, splits=2, **settings).result
    assert split.settings["split"] == "rows"
    assert split.primal == pytest.approx(plain.primal, rel=3e-5)
    sets = [[int(y), int((y + 1) % K)] for y in labels]
    settings = {"C": 0.02, "dtype": "float64", "tol": 1e-5, "passes": 3000}
    plain, split = fit(X, sets, **settings).result, fit(X, sets, splits=3, **settings).result
    assert split.settings["split"] == "rows"
    assert split.primal == pytest.approx(plain.primal, rel=3e-5)


def test_auto_splits_classes_if_that_is_less_work(tmp_path: Path, store: Path) -> None:
    """Of 200 classes each of 2 workers visits 3 times half of the rows over half of the classes."""
    many = make_store(tmp_path / "a.h5", *make_problem(4000, D, 200))
    found = plan(many, splits=2)
    assert (found["split"], found["splits"]) == ("classes", 2)
    assert found["split_reason"].startswith("with 200 classes in 4 groups, each worker does 0.")
    found = plan(store, splits=2)  # 4 groups have 4 vectors of columns, where all classes have one
    assert (found["split"], found["split_reason"][-28:]) == ("rows", "does 3.00 of one core's work")
    assert plan(store, splits=2, split="classes")["split_reason"] == "as requested"
    assert plan(store, splits=8)["split_reason"] == "9 classes are too few for 16 groups, two for each split"
    assert "cs cannot" in plan(store, splits=2, loss="cs")["split_reason"]
    assert plan(store)["split_reason"] is None


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"split": "classes", "splits": 5}, "9 classes are too few for 10 groups"),
    ({"split": "classes", "splits": 2, "loss": "cs"}, "split must be rows with the loss cs"),
    ({"split": "classes", "splits": 2, "solver": "sorted"}, "a solver other than the default"),
    ({"split": "classes", "splits": 2, "loss": "ovr", "class_weight": "balanced"}, "class weights in one-vs"),
    ({"splits": 0}, "splits must be a whole number in"),
    ({"split": "columns"}, "split must be one of auto, classes, rows"),
    ({"splits": 2, "loss": "chain"}, "splits must be 1 with the loss chain"),
    ({"splits": 2, "workers": 0}, "workers must be a whole number"),
    ({"split": "classes", "splits": 2, "valid": "b.zarr"}, "valid must have one label per row"),
]


def test_what_cannot_be_split_is_refused(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.txt").write_text("1,2 1:0.5\n3 2:1\n")
    convert("b.txt", "b.zarr", multilabel=True)
    for settings, message in REFUSED:
        with pytest.raises(SettingsError, match=message):
            fit(store, out="run", **settings)
    assert not Path("run").exists()


def test_the_plan_counts_the_weights_of_each_split(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a.zarr", *make_problem(20, 2000, K))
    one, four = plan(store), plan(store, split="rows", splits=4)
    assert 4 <= (four["planned_bytes"] - one["planned_bytes"]) / one["weights_bytes"] < 4.5
    little = 4 * one["weights_bytes"]
    assert plan(store, memory=little)["planned_bytes"] <= little
    with pytest.raises(PlanError, match="bytes for weights") as caught:
        plan(store, split="rows", splits=4, memory=little)
    enough = caught.value.needed_memory
    assert plan(store, split="rows", splits=4, memory=enough)["planned_bytes"] <= enough
    assert plan(store, split="rows", splits=4, memory=little, cluster="any")["planned_bytes"] <= little
