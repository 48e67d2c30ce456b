"""The search for C and other settings: what it tries, what it chooses, and that it goes on."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import automatic_c, held_out, make_store
from helpers import plain_fit as fit
from run_files import model_bytes, stop_after
from sklearn.datasets import dump_svmlight_file, load_digits

from streamsvm import convert, load_model, resume, tune
from streamsvm.errors import InputError, Interrupted, RunError, SettingsError
from streamsvm.settings.search import SearchSettings
from streamsvm.training.passes import Fit
from streamsvm.tuning.tune import parse_grid

DIGITS, LABELS = load_digits(return_X_y=True)
X, Y = DIGITS[:600] / 16, LABELS[:600]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("tune") / "s.h5", sp.csr_array(X), Y.astype(np.int32))


def test_grids() -> None:
    grids: list[tuple[Any, list[float]]] = [
        ("2^-2:2^1", [0.25, 0.5, 1, 2]),
        ("10^-2:10^1", [0.01, 0.1, 1, 10]),
        ("0.5:3", [0.5, 1, 2]),
        ("3,1", [1, 3]),
        ([1, 0.5, 1], [0.5, 1]),
        (np.float32(2), [2]),
    ]
    for given, expected in grids:
        assert parse_grid(SearchSettings(C=given).C) == (1.0, pytest.approx(expected))
    for wrong in ["", "a", "2^0:2^-1", "-1", "0,1", "1:2:3", "inf", [], "nan", None, "1^0:1^2"]:
        with pytest.raises(SettingsError, match="C must be auto"):
            parse_grid(SearchSettings(C=wrong).C)


def test_accuracies_are_those_of_averaged_models_on_the_part(store: Path, tmp_path: Path) -> None:
    """Of the first C of the path, which begins as a training of its own does."""
    found = tune(store, out=tmp_path / "run", C="0.1,0.2", hold_out="2/5", memory="1G", transform="none")
    alone = fit(store, out=tmp_path / "alone", C=0.1, passes=2, hold_out="2/5", keep_duals=True)
    assert [row["C"] for row in found.tried] == [0.1, 0.2]
    assert found.tried[0]["valid_accuracy"] == alone.valid_accuracy
    held = held_out(Y, 2, 5)
    model = load_model(tmp_path / "alone")
    assert found.tried[0]["valid_accuracy"] == pytest.approx((model.predict(X).astype(int) == Y)[held].mean())
    best = max(found.tried, key=lambda row: row["valid_accuracy"])
    assert best["C"] == found.C
    again = fit(store, out=tmp_path / "again", C=found.C)
    np.testing.assert_array_equal(load_model(tmp_path / "run").coef_, load_model(tmp_path / "again").coef_)
    assert found.result.C == again.C
    lines = (tmp_path / "run/tune.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == found.tried
    assert not (tmp_path / "run/tune").exists()
    fit(store, out=tmp_path / "run", force=True)
    assert not (tmp_path / "run/tune.jsonl").exists()


def test_a_matrix_and_a_store_choose_alike(store: Path, tmp_path: Path) -> None:
    of_store = tune(store, out=tmp_path / "run", folds=5, transform="none")
    of_matrix = tune(X, Y, folds=5, transform="none")
    assert len(of_store.tried) == 10
    assert pytest.approx(of_store.C) == of_matrix.C
    accuracies = [[row["valid_accuracy"] for row in found.tried] for found in (of_store, of_matrix)]
    np.testing.assert_allclose(*accuracies, atol=0.01)  # the order of the blocks differs
    predicted = load_model(tmp_path / "run").predict(X)
    np.testing.assert_array_equal(of_matrix.model.predict(X).astype(str), predicted)
    tried = [row["C"] for row in of_matrix.tried]
    assert tried == pytest.approx([automatic_c(X) * 2.0**k for k in range(-4, 6)])


@pytest.mark.engine
def test_several_settings_are_compared() -> None:
    """A loss without a path is trained anew for each C."""
    found = tune(X, Y, C="0.1,1", loss=["ww", "logistic"], transform=[None, "l2"], folds=2, dtype="float64")
    assert [(row["settings"]["loss"], row["settings"]["transform"], row["C"]) for row in found.tried] == [
        (loss, transform, C) for loss in ("ww", "logistic") for transform in (None, "l2") for C in (0.1, 1.0)
    ]
    chosen = max(found.tried, key=lambda row: row["valid_accuracy"])
    assert (found.C, found.settings) == (chosen["C"], chosen["settings"])
    assert found.model.record["loss"] == chosen["settings"]["loss"]


def test_the_mean_and_the_deviation_of_the_folds_are_told(store: Path) -> None:
    found = tune(X, Y, folds=3, C=[0.1], passes_each=1, dtype="float64")
    facts: dict[str, Any] = {"C": 0.1, "passes": 1, "dtype": "float64", "transform": "bias"}
    folds = [fit(X, Y, hold_out=f"{part}/3", **facts).result.valid_accuracy for part in (1, 2, 3)]
    assert found.tried[0]["valid_accuracy"] == pytest.approx(np.mean(folds))
    assert found.tried[0]["valid_accuracy_std"] == pytest.approx(np.std(folds))


def test_it_goes_on_where_it_was_stopped(store: Path, tmp_path: Path) -> None:
    facts: dict[str, Any] = {"C": "0.1,1", "folds": 2, "block_rows": 100, "checkpoint_every": "1 blocks"}
    expected = tune(store, out=tmp_path / "whole", **facts)
    errors: list[str] = []
    while len(errors) < 100:
        try:  # questions: 6 of them are asked while a fold scores its 6 blocks
            found = tune(store, out=tmp_path / "run", stop=stop_after(15), **facts)
            break
        except Interrupted as error:
            errors.append(str(error))
        trials, is_chosen = tmp_path / "run/tune", (tmp_path / "run/run.json").exists()
        assert ("`resume(" if is_chosen else "continue with `tune(...)` and the same arguments") in errors[-1]
        if is_chosen and "in pass 3" in errors[-1]:
            assert not [*trials.glob("*/duals-*"), *trials.glob("*/model")]
            resume(tmp_path / "run")
            assert not trials.exists()
    assert 3 < len(errors) < 100

    def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "seconds": None} for row in rows]

    assert untimed(found.tried) == untimed(expected.tried)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")
    assert untimed(tune(store, out=tmp_path / "run", **facts).tried) == untimed(expected.tried)
    with pytest.raises(RunError, match=r"started with passes 3, not 4; to change it, use `resume\("):
        tune(store, out=tmp_path / "run", passes=4, **facts)
    with pytest.raises(RunError, match="started by tune with other settings"):
        tune(store, out=tmp_path / "run", **(facts | {"C": "0.1,2"}))
    assert len(tune(store, out=tmp_path / "run", force=True, **(facts | {"C": "0.5"})).tried) == 1
    for damage in ("{", '{"C": 1, "valid_accuracy": NaN, "seconds": 0, "passes": 1, "settings": {}}'):
        (tmp_path / "run/tune.jsonl").write_text(damage + "\n")
        with pytest.raises(RunError, match=r"tune\.jsonl is damaged"):
            tune(store, out=tmp_path / "run", **(facts | {"C": "0.5"}))
    (tmp_path / "run/tune.json").write_text("{")
    with pytest.raises(RunError, match=r"tune\.json is damaged"):
        tune(store, out=tmp_path / "run", **facts)


def test_what_does_not_apply_is_refused(store: Path, tmp_path: Path) -> None:
    matrix = {"data": X, "y": Y, "out": None}
    for options, words in [
        ({"out": None}, "out is missing"),
        ({"folds": 3, "hold_out": "1/3"}, "folds and hold_out cannot be combined"),
        ({"folds": 1}, "folds must be"),
        ({"tol": 0.1}, "tol does not apply to tune"),
        ({"y": np.zeros(3)}, "y is only for a matrix in memory"),
        ({"groups": np.zeros(3)}, "groups is only for a matrix in memory"),
        ({"sample_weight": np.zeros(3)}, "sample_weight is only for a matrix in memory"),
        ({"loss": ["ww", "none"]}, "unknown loss"),
        ({"passes": 0}, "passes must be"),
        ({"passes_each": 0}, "passes_each must be"),
        (matrix | {"join": "outer"}, "join does not apply to a matrix in memory; concatenate the"),
        (matrix | {"valid": "a.zarr"}, "valid does not apply to a matrix in memory; set hold_out"),
    ]:
        with pytest.raises(SettingsError, match=words):
            tune(**{"data": store, "out": tmp_path / "run", **options})
    with pytest.raises(TypeError, match="unexpected keyword argument 'penalty'"):
        tune(X, Y, penalty="l1")
    with pytest.raises(InputError, match="y is missing"):
        tune(X)
    assert not (tmp_path / "run").exists()


def test_weights_of_rows_and_numpy_integers() -> None:
    weights = np.where(Y == 3, 4.0, 1.0)
    found = tune(X, Y, C=[0.1], folds=np.int64(2), sample_weight=weights)
    expected = fit(X, Y, C=0.1, sample_weight=weights, transform="bias")
    np.testing.assert_array_equal(found.model.coef_, expected.coef_)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("file", ["tune.json", "tune.jsonl", "run.json"])
def test_killed_while_it_writes_a_file_it_goes_on(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """And until then `resume` says what to do, and `fit` leaves the folder alone."""
    replace = os.replace

    def killed(source: Path, target: Path) -> None:
        if Path(target).name == file:
            raise Killed
        replace(source, target)

    facts: dict[str, Any] = {"out": tmp_path / "run", "C": "0.1,1"}
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(Killed):
            tune(store, **facts)
    left = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert f"{file}.tmp" in {path.name for path in left}
    begun = [tmp_path / "run", *(tmp_path / "run/tune").iterdir()]
    for run in [run for run in begun if not (run / "run.json").exists()]:
        with pytest.raises(RunError, match=r"search .* not finished; continue with `tune\(\.\.\.\)`"):
            resume(run)
    with pytest.raises(RunError, match=r"is already a run; continue it with `tune\(\.\.\.\)`"):
        fit(store, out=tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == left
    assert len(tune(store, **facts).tried) == 2
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"model", "tune.json", "tune.jsonl"}
    assert not list((tmp_path / "run").glob("*.tmp"))


def test_on_a_full_disk_the_search_is_to_be_repeated(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`resume` of one training would not finish it."""
    real = Fit.run

    def full(self: Fit) -> Any:
        self.commit()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "duals-1-0-0.bin")

    monkeypatch.setattr(Fit, "run", full)
    facts: dict[str, Any] = {"out": tmp_path / "run", "C": "0.1,1"}
    with pytest.raises(RunError, match=r"No space left.*then continue with `tune\(\.\.\.\)` and"):
        tune(store, **facts)
    monkeypatch.setattr(Fit, "run", real)
    assert len(tune(store, **facts).tried) == 2


@pytest.fixture
def text(tmp_path: Path) -> dict[str, Path]:
    """Write training and held-out text."""
    files = {"data": tmp_path / "train.txt", "valid": tmp_path / "test.txt"}
    for number, path in enumerate(files.values()):
        rows = slice(number * 200, (number + 1) * 200)
        dump_svmlight_file(X[rows], Y[rows], str(path), zero_based=False)
    return files


def test_text_is_converted_into_the_run_once(
    text: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: dict[str, Any] = {"C": "0.1,1", "passes": 2}
    convert(text["data"], tmp_path / "train.zarr")
    convert(text["valid"], tmp_path / "test.zarr", like=tmp_path / "train.zarr", unseen_label="keep")
    stores = {"data": tmp_path / "train.zarr", "valid": tmp_path / "test.zarr"}
    expected = tune(**stores, out=tmp_path / "stores", **facts)
    events: list[str] = []
    with pytest.raises(Interrupted):
        tune(
            **text, out=tmp_path / "run", report=lambda event: events.append(event["event"]),
            stop=lambda: "search" in events, **facts,
        )  # fmt: skip
    assert events[:3] == ["convert", "convert", "search"]
    events.clear()
    found = tune(**text, out=tmp_path / "run", report=lambda event: events.append(event["event"]), **facts)
    assert events[0] == "search"
    accuracies = [[row["valid_accuracy"] for row in each.tried] for each in (found, expected)]
    assert accuracies[0] == accuracies[1]
    assert len({(tmp_path / run / "model/coef.npy").read_bytes() for run in ("run", "stores")}) == 1
    assert tune(**text, out=tmp_path / "run", **facts).C == found.C  # a finished one gives its result again
    assert resume(tmp_path / "run", passes=3).passes == 3
    text["data"].write_text(text["data"].read_text() + "1 1:1\n")
    with pytest.raises(RunError, match="started by tune with other settings or files"):
        tune(**text, out=tmp_path / "run", **facts)
    with pytest.raises(SettingsError, match="index_base does not apply to a matrix in memory"):
        tune(X, Y, index_base=1)


def test_groups_are_read_of_text_if_one_of_the_losses_needs_them(tmp_path: Path) -> None:
    lines = [f"{Y[i]} qid:{i // 4} 1:{X[i].sum():.3f} 2:1" for i in range(200)]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    # In the types for which other tests compile the kernels of sequences.
    facts: dict[str, Any] = {"C": "0.1", "passes": 1, "passes_each": 1, "dtype": "float64"}
    assert len(tune(tmp_path / "train.txt", out=tmp_path / "run", loss=["ww", "chain"], **facts).tried) == 2
