"""The commands one after another, as a user runs them: output for people and machines, and files."""

from __future__ import annotations

import json
import lzma
import re
import shutil
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import fails, piped, streamsvm, succeeds
from sklearn.datasets import load_svmlight_file

from streamsvm import load_model

PROMISED = {  # keys for machines
    "primal", "dual", "gap", "relative_gap", "gap_decay", "passes", "rows_per_second", "seconds",
    "peak_memory_bytes", "progressive_accuracy", "model",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits as text, stores of both kinds, and a run."""
    path = tmp_path_factory.mktemp("commands")
    for name in ("digits.train", "digits.test"):
        packed = resources.files("streamsvm_cli").joinpath("digits", name + ".xz").read_bytes()
        (path / name).write_bytes(lzma.decompress(packed))
    succeeds("convert", "digits.train", "--out", "train.zarr", cwd=path)
    succeeds("convert", "digits.test", "-o", "test.h5", "--like", "train.zarr", "--no-shuffle", cwd=path)
    succeeds("fit", "train.zarr", "--out", "run", "--passes", 2, "--C", 0.01, cwd=path)
    return path


def test_convert_for_machines(folder: Path, tmp_path: Path) -> None:
    record = json.loads(succeeds("convert", folder / "digits.train", "-o", "a.h5", "--json", cwd=tmp_path))
    expected = {"n": 1437, "d": 64, "n_classes": 10, "index_base": 1, "skipped": 0}
    assert {key: record[key] for key in expected} == expected
    assert record["nnz"] == (folder / "digits.train").read_text().count(":")
    info = json.loads(succeeds("info", folder / "train.zarr", "--json", "--verify", cwd=tmp_path))
    assert (info["kind"], info["fingerprint"]) == ("store", record["fingerprint"])


def test_fit_for_machines_matches_the_metrics(folder: Path, tmp_path: Path) -> None:
    options = ("--passes", 3, "--C", 0.01, "--gap", "pass", "--valid", folder / "test.h5", "--json")
    record = json.loads(succeeds("fit", folder / "train.zarr", "--out", "r", *options, cwd=tmp_path))
    assert record.keys() >= PROMISED
    lines = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["average_gap"] == record["gap"]
    assert lines[-1]["gap"] == record["last_iterate"]["gap"]


def test_quiet_prints_nothing_and_a_dry_run_makes_nothing(folder: Path, tmp_path: Path) -> None:
    out = succeeds("fit", folder / "train.zarr", "--dry-run", "--memory", "64M", cwd=tmp_path)
    assert "of 64 MiB" in out
    assert "1,437 rows" in out
    assert sorted(tmp_path.iterdir()) == []
    done = streamsvm("fit", folder / "train.zarr", "--out", "r", "--passes", 1, "--quiet", cwd=tmp_path)
    assert done == (0, "", "")


def test_predictions_go_where_they_should(folder: Path, tmp_path: Path) -> None:
    predict = ("predict", folder / "run", folder / "digits.test")
    text = (folder / "digits.test").read_bytes()
    code, printed, _ = piped("predict", folder / "run", "-", cwd=tmp_path, text=text)
    assert code == 0
    X, labels = load_svmlight_file(str(folder / "digits.test"), n_features=64)
    model = load_model(folder / "run")
    assert printed.split() == model.classes_[(X @ model.coef_.T).argmax(axis=1)].astype(str).tolist()
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    assert fails(1, *predict, "-o", "link", cwd=tmp_path).endswith("exists; replace it with --force\n")
    assert (tmp_path / "target").read_text() == "old"
    record = json.loads(succeeds(*predict, "--out", "link", "--force", "--json", cwd=tmp_path))
    assert record == {"n": len(labels), "out": "link"}
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == printed
    succeeds(*predict, "--out", "/dev/null", cwd=tmp_path)
    assert Path("/dev/null").is_char_device()


def test_evaluate_shows_measures_and_writes_all_pairs(folder: Path, tmp_path: Path) -> None:
    options = ("--confusion", tmp_path / "c.csv")
    record = json.loads(succeeds("evaluate", "run", "digits.test", *options, "--json", cwd=folder))
    table = pd.read_csv(tmp_path / "c.csv").to_numpy()  # true class, predicted class, rows
    assert record["accuracy"] == table[table[:, 0] == table[:, 1], 2].sum() / table[:, 2].sum()
    assert table[:, 2].sum() == 360
    shown = succeeds("evaluate", "run", "test.h5", *options, "--force", cwd=folder).splitlines()
    assert shown[1].split() == ["accuracy", f"{record['accuracy']:.4f}"]
    assert not any("top k 1" in line for line in shown)  # which is the accuracy
    assert shown[-1] == f"all pairs of true and predicted class: {options[1]}"


def test_export_for_machines(folder: Path, tmp_path: Path) -> None:
    record = json.loads(succeeds("export", folder / "run", "--out", "m.txt", "--json", cwd=tmp_path))
    assert (record["format"], record["bytes"]) == ("liblinear", (tmp_path / "m.txt").stat().st_size)
    assert "strongest features  0: " in succeeds("info", folder / "run/model")


def test_resume_adds_passes_and_says_that_nothing_is_left(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "train.zarr", tmp_path / "s.zarr")
    succeeds("fit", "s.zarr", "--out", "r", "--passes", 2, "--C", 0.01, cwd=tmp_path)
    assert "nothing left to train; continue the run with" in succeeds("resume", "r", cwd=tmp_path)
    (tmp_path / "s.zarr").rename(tmp_path / "t.zarr")
    message = fails(1, "resume", "r", "--passes", 3, cwd=tmp_path)
    assert "does not exist; restore it, or set its new location with --store" in message
    moved = ("--store", "t.zarr", "--json")
    assert json.loads(succeeds("resume", "r", "--passes", 3, *moved, cwd=tmp_path))["passes"] == 3
    succeeds("fit", "t.zarr", "--out", "r", "--passes", 1, "--no-keep-duals", "--force", cwd=tmp_path)
    assert "nothing left to train\n" in succeeds("resume", "r", cwd=tmp_path)  # no pass can follow


def test_probabilities_arrive_from_calibrate_to_predictions(folder: Path, tmp_path: Path) -> None:
    succeeds("fit", folder / "train.zarr", "--passes", 2, "--C", 0.01, "--out", "r", cwd=tmp_path)
    out = succeeds("calibrate", "r", folder / "test.h5", cwd=tmp_path)
    assert re.search(r"^probabilities: temperature [\d.]+, .* on 360 hold-out rows$", out, re.MULTILINE)
    lines = succeeds("predict", "r", folder / "test.h5", "--proba", "--top-k", 10, cwd=tmp_path).splitlines()
    sums = [sum(map(float, line.split("\t")[1::2])) for line in lines]
    np.testing.assert_allclose(sums, np.ones(360), atol=1e-4)


def test_a_table_is_read_for_predictions_as_it_was_for_training(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b"], 300)
    colour = np.where(rng.random(300) < 0.7, np.where(y == "a", "red", "blue"), "grey")
    frame = pd.DataFrame({"x": (rng.normal(size=300) + 2 * (y == "a")).round(3), "colour": colour, "y": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    said = succeeds("fit", "t.csv", "--out", "run", "--label", "y", cwd=tmp_path)
    assert "column 'colour' as 3 categories: 'blue', 'grey', 'red'" in said
    frame[["colour", "x"]].to_parquet(tmp_path / "new.parquet")  # in another order, without labels
    predicted = succeeds("predict", "run", "new.parquet", cwd=tmp_path).split()
    features = pd.get_dummies(frame[["x", "colour"]], prefix_sep="=").astype(float)
    assert predicted == load_model(tmp_path / "run").predict(features).tolist()
    record = json.loads(succeeds("evaluate", "run", "t.csv", "--label", "y", "--json", cwd=tmp_path))
    assert record["accuracy"] == np.mean(np.array(predicted) == y) > 0.8
    (tmp_path / "text").write_text("a 1:1 2:1\n")
    message = fails(1, "convert", "text", "--like", "run", "--out", "like.h5", cwd=tmp_path)
    assert "the features of run are columns of a table, but LIBSVM text numbers its features" in message


@pytest.mark.more
def test_demo_kills_resumes_and_gets_the_same_bytes(tmp_path: Path) -> None:
    record = json.loads(succeeds("demo", "--json", cwd=tmp_path))
    assert record["identical"] is True
    assert "other files" in fails(1, "demo", "--dir", "..", cwd=tmp_path)
