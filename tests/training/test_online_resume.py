"""Online passes that were stopped, resumed or ended by an error."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from cases import few
from helpers import make_problem
from helpers import plain_online as online
from row_stream import D, N, RowStream, late_problem
from run_files import model_bytes, stop_after
from small_problem import ONLINE, of_loss

from streamsvm import load_model, resume
from streamsvm.errors import InputError, Interrupted, RunError, SettingsError


@pytest.fixture(scope="module")
def problem() -> tuple[sp.csr_array, list[str]]:
    return late_problem()


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        *(("ww", {}), ("ww", {"transform": "bias"}), ("ww", {"transform": "hash=3,bias"})),
        *few([(loss, {"dtype": "float64"}) for loss in ONLINE], "ww", "cs", "ovr2"),
    ],
)
def test_a_resumed_pass_ends_in_the_same_bytes(tmp_path: Path, problem, loss: str, options) -> None:
    X, labels = problem
    options = {**of_loss(loss), **options}
    X = sp.csr_array(sp.vstack([X, sp.diags_array(np.ones(D), shape=(D, D))]))
    labels = [*labels, *(f"d{i}" for i in range(D))]  # 18 classes: more than a vector of either dtype
    cuts = (2, 30, 60, 100, 151, 155)
    whole = online(RowStream(X, labels, cuts), out=tmp_path / "whole", **options)
    for batches in range(1, 8):
        run = tmp_path / f"run-{batches}"
        with pytest.raises(Interrupted, match="resume"):
            online(RowStream(X, labels, cuts), out=run, stop=stop_after(batches), **options)
        again = RowStream(X, labels, cuts)
        result = resume(run, open_stream=lambda record, again=again: again)
        assert again.read == ([0, *cuts][batches:])
        assert model_bytes(run) == model_bytes(tmp_path / "whole")
        same = ("rows", "classes", "features", "progressive_accuracy", "recent_accuracy", "empty_rows")
        assert [getattr(result, name) for name in same] == [getattr(whole, name) for name in same]


def test_a_finished_run_learns_from_rows_that_were_added_since(tmp_path: Path, problem) -> None:
    X, labels = problem
    online(RowStream(X, labels, (100,)), out=tmp_path / "whole")
    online(RowStream(X[:100], labels[:100]), out=tmp_path / "run")
    commits = (tmp_path / "run/commit.json").read_bytes()
    resume(tmp_path / "run", open_stream=lambda record: RowStream(X[:100], labels[:100]))
    assert (tmp_path / "run/commit.json").read_bytes() == commits  # nothing was new
    resume(tmp_path / "run", open_stream=lambda record: RowStream(X, labels, (100,)))
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_a_stream_of_other_classes_is_refused(tmp_path: Path, problem) -> None:
    X, labels = problem
    classes = sorted(set(labels))
    with pytest.raises(Interrupted):
        online(RowStream(X, labels, (60,), classes=classes), out=tmp_path / "run", stop=stop_after(1))
    other = RowStream(X, labels, (60,), classes=classes[::-1])
    with pytest.raises(RunError, match="features or classes of the stream differ"):
        resume(tmp_path / "run", open_stream=lambda record: other)


def test_a_stream_that_cannot_be_read_again_leaves_the_model_of_its_rows(tmp_path: Path, problem) -> None:
    X, labels = problem
    online(RowStream(X[:60], labels[:60]), out=tmp_path / "part")
    with pytest.raises(Interrupted, match="cannot be resumed"):
        online(RowStream(X, labels, (30, 60), resumable=False), out=tmp_path / "run", stop=stop_after(2))
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "part")
    # Rows that were read ahead and not learned from are not in the model's sources.
    assert load_model(tmp_path / "run").record["sources"][0]["size"] == 60
    again = RowStream(X, labels, (30, 60), resumable=False)
    result = resume(tmp_path / "run", open_stream=lambda record: again)
    assert (result.status, result.input) == ("stopped", {"rows": 60})
    assert "60 rows" in result.warnings[0]
    assert again.read == []
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "part")


def test_a_stream_that_waits_for_data_can_be_stopped(tmp_path: Path, problem) -> None:
    """`stop` is called while a pipe stays open without data."""
    read, write = os.pipe()
    stream = RowStream(*problem, resumable=False, at_end=lambda: os.read(read, 1))
    try:
        with pytest.raises(Interrupted, match="150 rows"):
            online(stream, out=tmp_path / "run", stop=stop_after(3))
    finally:
        os.close(write)  # lets the thread end
    assert load_model(tmp_path / "run").record["rows"] == N


def test_an_error_of_a_stream_that_is_read_once_leaves_the_model_of_the_rows_before_it(
    tmp_path: Path, problem
) -> None:
    def fail() -> None:
        raise InputError("line 151 is no row")

    with pytest.raises(
        InputError, match=r"line 151 is no row \(after learning from 150 rows\); .*model was trained on them"
    ):
        online(RowStream(*problem, (75,), at_end=fail, resumable=False), out=tmp_path / "run")
    online(RowStream(*problem, (75,)), out=tmp_path / "whole")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")
    mended = RowStream(*problem, (75,), resumable=False)
    assert resume(tmp_path / "run", open_stream=lambda record: mended).rows == N
    assert mended.read == []
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_an_error_before_the_first_row_is_raised_unchanged(tmp_path: Path, problem) -> None:
    def fail() -> None:
        raise InputError("line 1 is no row")

    for labels in "", "aa":  # none, and rows of one class
        X = sp.csr_array((len(labels), 3), dtype=np.float32)
        with pytest.raises(InputError, match=r"^line 1 is no row$"):
            online(RowStream(X, labels, at_end=fail, resumable=not labels), out=tmp_path / "run")
    assert not (tmp_path / "run/model").exists()


def test_a_resumed_pass_knows_the_order_of_the_rows_before(tmp_path: Path) -> None:
    X, codes = make_problem(600, 8, 5, seed=4)
    rows = np.argsort(codes, kind="stable")
    labels = [f"c{code}" for code in codes[rows]]
    with pytest.raises(Interrupted):
        online(RowStream(X[rows], labels, (500,)), out=tmp_path / "run", stop=lambda: True)
    resumed = resume(tmp_path / "run", open_stream=lambda record: RowStream(X[rows], labels, (500,)))
    whole = online(RowStream(X[rows], labels), out=tmp_path / "whole")
    assert resumed.warnings == whole.warnings != []
    assert resumed.progressive_accuracy is None


def test_what_does_not_apply_to_a_stream_is_refused(tmp_path: Path, problem) -> None:
    stream = RowStream(*problem)
    online(stream, out=tmp_path / "run")
    with pytest.raises(SettingsError, match="open_stream is missing"):
        resume(tmp_path / "run")
    for name, value in {"passes": 2, "tol": 0.1, "store": "a.h5", "valid": "a.h5"}.items():
        why = "does not learn from a store" if name == "store" else "to the online run"
        with pytest.raises(SettingsError, match=f"{name} does not apply.* {why}"):
            resume(tmp_path / "run", open_stream=lambda record: stream, **{name: value})
