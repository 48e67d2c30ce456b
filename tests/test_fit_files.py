"""Files that are no store: `fit` converts them into its run, with the model of `convert` and `fit`."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from run_files import model_bytes
from sklearn.datasets import dump_svmlight_file
from warm_process import Process

import streamsvm
from streamsvm.errors import InputError, Interrupted, RunError, SettingsError, StoreError, StreamsvmWarning
from streamsvm.info import inspect


@pytest.fixture
def text(tmp_path, monkeypatch) -> Path:
    """LIBSVM text of three classes in ``train`` and ``test``, in the working directory."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    X = rng.normal(size=(600, 8)) + np.eye(3, 8)[y]
    dump_svmlight_file(X[:500], y[:500], "train", zero_based=False)
    dump_svmlight_file(X[500:], y[500:], "test", zero_based=False)
    return tmp_path


@pytest.fixture
def table(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"{n},{rng.normal():.3f},{rng.choice(['red', 'blue'])},{'ab'[n % 2]}" for n in range(60)]
    Path("t.csv").write_text("\n".join(["id,size,colour,kind", *lines]))
    return tmp_path


def test_of_text_with_held_out_text(text) -> None:
    result = streamsvm.fit("train", out="run", valid="test")
    streamsvm.convert(["train"], "train.zarr")
    streamsvm.convert(["test"], "test.zarr", like="train.zarr")
    by_hand = streamsvm.fit("train.zarr", out="by-hand", valid="test.zarr")
    assert model_bytes(Path("run")) == model_bytes(Path("by-hand"))
    assert result.valid_accuracy == by_hand.valid_accuracy
    assert streamsvm.open_store("run/data.zarr").fingerprint == streamsvm.open_store("train.zarr").fingerprint
    assert streamsvm.fit("train.zarr", out="mixed", valid="test").valid_accuracy == result.valid_accuracy
    with pytest.raises(SettingsError, match="held-out text and tables require training data in one store"):
        streamsvm.fit(["train.zarr", "test.zarr"], out="two", valid="test")
    assert not Path("two").exists()


def test_of_a_table(table) -> None:
    streamsvm.fit("t.csv", out="run", label="kind", drop=["id"], seed=3)
    streamsvm.convert(["t.csv"], "t.zarr", label="kind", drop=["id"], seed=3)
    streamsvm.fit("t.zarr", out="by-hand", seed=3)
    assert model_bytes(Path("run")) == model_bytes(Path("by-hand"))


def test_of_texts_in_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefgh"), 5)) for _ in range(80)]
    labels = ["xy"["a" in text] for text in texts]
    Path("t.csv").write_text("\n".join(["body,topic", *map(",".join, zip(texts, labels, strict=True))]))
    model = streamsvm.fit(texts, labels, analyzer="char", bits=10, passes=2)
    streamsvm.fit("t.csv", out="run", text="body", label="topic", analyzer="char", bits=10, passes=2)
    of_table = streamsvm.load_model("run")
    assert model.record["encoding"]["text"] == {**of_table.record["encoding"]["text"], "columns": ["text"]}
    np.testing.assert_array_equal(model.predict(texts), of_table.predict(texts))
    assert (model.predict(texts) == labels).mean() > 0.9
    with pytest.raises(InputError, match=r"X\[1\]: 7 is not a string"):
        streamsvm.fit(["a", 7], ["x", "y"])
    with pytest.raises(SettingsError, match="drop does not apply"):
        streamsvm.fit(texts, labels, drop=["a"])


def test_of_standard_input(text) -> None:
    command = ("fit", "-", "--out", "run", "--quiet")
    with open("train") as file, Process(*command, files=(file.fileno(), 1, 2)) as process:
        assert process.wait() == 0
    streamsvm.fit("train", out="of-file")
    assert model_bytes(Path("run")) == model_bytes(Path("of-file"))


def test_a_moved_run_finds_its_data(text) -> None:
    streamsvm.fit("train", out="run", valid="test", passes=1, keep_duals=True)
    streamsvm.fit("train", out="longer", valid="test", passes=2)
    shutil.move("run", "moved")
    streamsvm.resume("moved", passes=2)
    assert model_bytes(Path("moved")) == model_bytes(Path("longer"))


def test_starts_or_goes_on_with_the_same_files_labels_and_weights_only(table) -> None:
    Path("w").write_text("1\n" * 60)
    options = {"out": "run", "drop": ["id"], "resume_or_start": True, "label": "kind", "weights": "w"}
    first, again = (streamsvm.fit("t.csv", **options, passes=1) for _ in range(2))
    assert (first.status, again.checkpoints) == ("done", 0)

    def other_files(**changes) -> None:
        with pytest.raises(RunError, match="with other files or reading settings"):
            streamsvm.fit("t.csv", **options | changes, passes=1)

    other_files(drop=["id", "size"])
    other_files(label="colour")
    Path("w").write_text("2\n" * 60)
    other_files()
    Path("w").write_text("1\n" * 60)
    Path("t.csv").write_text(Path("t.csv").read_text().replace("red", "green"))
    other_files()
    with pytest.raises(InputError, match=r"none\.csv cannot be read"):
        streamsvm.fit("none.csv", **options)
    with pytest.raises(SettingsError, match="keep_data must be on with resume_or_start"):
        streamsvm.fit("t.csv", keep_data=False, **options)


def test_sequences_have_groups_in_held_out_text_too(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"{n % 2 + 1} qid:{n // 5 + 1} {n % 2 + 1}:1 3:{rng.random():.3f}" for n in range(100)]
    Path("train").write_text("\n".join(lines))
    result = streamsvm.fit("train", out="run", valid="train", loss="chain", dtype="float64")
    assert result.valid_accuracy == 1.0
    assert streamsvm.open_store("run/valid.zarr").grouped


def test_labels_that_are_quantities_are_said(tmp_path, monkeypatch) -> None:
    """Half of the numbers have fewer than ten rows, by each kind of data; codes of classes have more."""
    monkeypatch.chdir(tmp_path)
    degrees = np.r_[np.repeat(np.arange(20), 12), np.arange(20, 40)] - 7
    X = pd.DataFrame({"wind": np.random.default_rng(0).random(260)}).assign(sun=1.0)
    frame = X.assign(degrees=degrees)
    dump_svmlight_file(X, degrees, "t")
    frame.to_csv("t.csv", index=False)
    frame.to_parquet("t.parquet")
    anndata.AnnData(X.to_numpy(), obs={"degrees": degrees}).write_h5ad("t.h5ad")
    said = pytest.warns(StreamsvmWarning, match="40 different numbers, and 20 of them have fewer than 10")
    for path in ("t", "t.csv", "t.parquet", "t.h5ad"):
        with said:
            streamsvm.fit(path, out=f"run {path}", passes=1, **{"label": "degrees"} if "." in path else {})
    for matrix in (X, X.to_numpy()):
        with said:
            streamsvm.fit(matrix, degrees, passes=1)
    with warnings.catch_warnings(action="error"):
        streamsvm.fit(matrix, [f"{t} C" for t in degrees], passes=1)
        streamsvm.fit(matrix[:252], degrees[:252], passes=1)  # 32 numbers, 12 of few rows
        streamsvm.fit(matrix, degrees + 7, passes=1)  # the codes 0 to 39


def test_data_that_a_run_has_not_kept_are_said_to_be_needed(text) -> None:
    streamsvm.fit("train", out="run", keep_data=False, keep_duals=True)
    assert not Path("run/data.zarr").exists()
    with pytest.raises(StoreError, match=r"data\.zarr does not exist; restore it, .* store="):
        streamsvm.resume("run", passes=5)
    streamsvm.convert("train", "train.zarr")
    streamsvm.resume("run", store="train.zarr", passes=5)


def test_a_run_is_verified_with_the_data_that_it_made(text) -> None:
    streamsvm.fit("train", out="run", valid="test")
    assert inspect("run", verify=True)["damage"] == []
    chunk = Path("run/valid.zarr/X/data/c/0")
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    assert inspect("run")["damage"] == []
    with pytest.raises(RunError, match=r"run/valid\.zarr: array X/data, chunk 0"):
        inspect("run", verify=True)


def test_held_out_rows_of_classes_that_the_training_lacks_are_said(text) -> None:
    Path("other").write_text(Path("test").read_text().replace("\n1 ", "\n8 "))
    rows = Path("other").read_text().count("\n8 ")
    with pytest.warns(StreamsvmWarning, match=f"valid.zarr: {rows} of 100 rows have labels that"):
        streamsvm.fit("train", out="run", valid="other")
    Path("other").write_text("cat 1:1\ndog 2:1\n")
    with pytest.raises(StoreError, match=r"shares no label with the training data, so accuracy cannot be"):
        streamsvm.fit("train", out="none", valid="other")


def test_bad_input_is_named_by_its_line_and_converted_data_are_kept(text) -> None:
    Path("bad").write_text("1 2:0.5\n2 x\n")
    with pytest.raises(InputError, match="bad, line 2"):
        streamsvm.fit("bad", out="run")
    assert not Path("run").exists()
    with pytest.raises(InputError, match="bad, line 2") as error:
        streamsvm.fit("train", out="other", valid="bad")
    assert "other/data.zarr is kept" in error.value.__notes__[0]


def test_converted_data_of_a_training_that_cannot_begin_are_kept(text) -> None:
    Path("costs.csv").write_text("class,0,1,7\n0,0,1,1\n1,1,0,1\n7,1,1,0\n")
    with pytest.raises(InputError, match="the class '7' is unknown") as error:
        streamsvm.fit("train", out="run", costs="costs.csv")
    assert "run/data.zarr is kept" in error.value.__notes__[0]
    for reads in (inspect, streamsvm.resume):
        with pytest.raises(RunError, match=r"not a run yet: .* `fit\('run/data.zarr', out=.*'run'.*\)`"):
            reads("run")
    streamsvm.fit("run/data.zarr", out="run")
    streamsvm.fit("train", out="by-hand")
    assert model_bytes(Path("run")) == model_bytes(Path("by-hand"))


def test_stopped_while_it_converts(text) -> None:
    with pytest.raises(Interrupted, match=r"conversion to data\.zarr was stopped; the same command"):
        streamsvm.fit("train", out="run", stop=lambda: True)
    assert not Path("run").exists()


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("train", {"valid": "none"}, "none cannot be read"),
    ("train", {"costs": "none"}, "none cannot be read"),
    ("train", {"tree": "none"}, "none cannot be read"),
    ("train", {"class_weight": "none"}, "none cannot be read"),
    ("train", {"transform": "l3"}, "no transform 'l3'"),
    ("train", {"transform": "bias,l2"}, "bias must be last"),
    ("train", {"transform": "select=none"}, "none cannot be read"),
    ("train", {"cluster": "local"}, "one split"),
    ("train.zarr", {"drop": ["a"]}, r"drop determines how files are converted, but train\.zarr is"),
    ("train", {"missing": "often"}, "missing must be one of"),
    ("train", {"layer": "a"}, "layer does not apply to LIBSVM text"),
    ("train", {"join": "outer"}, "join does not apply to LIBSVM text"),
    ("train", {"sample_weight": "w"}, "sample_weight does not apply to files"),
]


def test_what_is_wrong_without_the_data_is_found_before_they_are_read(text) -> None:
    streamsvm.convert(["train"], "train.zarr")
    Path("t.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    read = []
    progress = lambda stage, done, total: read.append(stage)  # noqa: E731
    for data, settings, words in WRONG:
        with pytest.raises((InputError, SettingsError, StoreError), match=words):
            streamsvm.fit(data, out="run", progress=progress, **settings)
    with pytest.raises(SettingsError, match="no transform 'l3'"):
        streamsvm.tune("train", out="run", progress=progress, transform=["l2", "l3"])
    for given in ({"drop": ["a"]}, {"index_base": 0}):
        with pytest.raises(SettingsError, match=f"{next(iter(given))} does not apply to a matrix"):
            streamsvm.fit(np.eye(3), [0, 1, 2], **given)
    assert read == []
    assert not Path("run").exists()
