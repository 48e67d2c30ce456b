"""The commands as a user runs them: output for people and machines, exit codes, no tracebacks."""

from __future__ import annotations

import json
import lzma
import re
import shutil
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, piped, streamsvm, succeeds
from sklearn.datasets import load_svmlight_file
from streamsvm_cli.commands import app
from typer.main import get_command

from streamsvm import load_model, open_store

COMMANDS = get_command(app).commands
ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_is_documented(tmp_path: Path, command: str) -> None:
    first, _, details = COMMANDS[command].help.partition("\n\n")
    assert f"\n  {command:<9}  {first}\n" in succeeds("--help", cwd=tmp_path)
    assert first.endswith(".")
    assert details.endswith(".")
    assert first in succeeds(command, "--help", cwd=tmp_path)
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(
        re.search(rf"^\| `streamsvm {command}\b", path.read_text(), re.MULTILINE) for path in documents
    )


def test_every_command_can_be_quiet_and_can_write_json() -> None:
    options = {name: {each for option in of.params for each in option.opts} for name, of in COMMANDS.items()}
    assert [name for name, those in options.items() if not {"--quiet", "--json"} <= those] == []


def test_convert_for_machines(folder: Path, tmp_path: Path) -> None:
    out = succeeds("convert", folder / "digits.train", "--out", "a.h5", "--json", cwd=tmp_path)
    record = json.loads(out)
    expected = {"n": 1437, "d": 64, "n_classes": 10, "index_base": 1, "skipped": 0}
    assert {key: record[key] for key in expected} == expected
    assert record["nnz"] == (folder / "digits.train").read_text().count(":")
    assert record.keys() >= {"fingerprint", "seconds"}
    info = json.loads(succeeds("info", folder / "train.zarr", "--json", "--verify", cwd=tmp_path))
    assert info["fingerprint"] == record["fingerprint"]


def test_fit_for_machines_matches_the_metrics(folder: Path, tmp_path: Path) -> None:
    out = succeeds(
        "fit", folder / "train.zarr", "--out", "r", "--passes", 3, "--C", 0.01, "--gap", "pass",
        "--valid", folder / "test.h5", "--json", cwd=tmp_path,
    )  # fmt: skip
    record = json.loads(out)
    promised = {
        "primal", "dual", "gap", "relative_gap", "gap_decay", "passes", "rows_per_second", "seconds",
        "peak_memory_bytes", "progressive_accuracy", "model",
    }  # fmt: skip
    assert record.keys() >= promised
    lines = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["average_gap"] == record["gap"]
    assert lines[-1]["gap"] == record["last_iterate"]["gap"]


def test_quiet_prints_nothing(folder: Path, tmp_path: Path) -> None:
    done = streamsvm("fit", folder / "train.zarr", "--out", "r", "--passes", 1, "--quiet", cwd=tmp_path)
    assert done == (0, "", "")


def test_dry_run_prints_the_plan_and_makes_nothing(folder: Path, tmp_path: Path) -> None:
    out = succeeds("fit", folder / "train.zarr", "--dry-run", "--memory", "64M", cwd=tmp_path)
    assert "of 64 MiB" in out
    assert "1,437 rows" in out
    assert sorted(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["predict", "evaluate"])
@pytest.mark.parametrize("data", ["long", "test.h5"])
def test_a_memory_too_small_to_score_names_one_that_works(folder: Path, command: str, data: str) -> None:
    (folder / "long").write_text("1 " + " ".join(f"{i}:1" for i in range(1, 1000)) + "\n")
    message = fails(1, command, "run", data, "--memory", "64K", cwd=folder)
    enough = re.search(r"--memory (\w+)", message)[1]  # of the whole budget, not of the part for rows
    succeeds(command, "run", data, "--memory", enough, cwd=folder, notes=True)


def test_predict_reads_stdin_and_writes_a_file(folder: Path, tmp_path: Path) -> None:
    text = (folder / "digits.test").read_bytes()
    code, printed, _ = piped("predict", folder / "run", "-", cwd=tmp_path, text=text)
    assert code == 0
    succeeds("predict", folder / "run", folder / "digits.test", "--out", "p.txt", cwd=tmp_path)
    assert (tmp_path / "p.txt").read_text() == printed
    record = json.loads(
        succeeds("predict", folder / "run", folder / "digits.test", "-o", "q.txt", "--json", cwd=tmp_path)
    )
    assert record["n"] == printed.count("\n")


def test_resume_says_that_nothing_is_left(folder: Path, tmp_path: Path) -> None:
    fit = ("fit", folder / "train.zarr", "--C", 0.01, "--quiet")
    succeeds(*fit, "--out", "done", "--passes", 2, cwd=tmp_path)
    assert "2 of 2 passes made; to continue, give more --passes" in succeeds("resume", "done", cwd=tmp_path)
    succeeds(*fit, "--out", "tol", "--passes", 9, "--tol", 0.99, "--no-average", cwd=tmp_path)
    said = succeeds("resume", "tol", "--passes", 20, cwd=tmp_path)
    assert "of 20 passes made, and the relative gap is at most --tol 0.99; to continue, give a" in said
    record = json.loads(succeeds("resume", "tol", "--json", cwd=tmp_path))
    assert (record["status"], record["checkpoints"]) == ("converged", 0)
    more = succeeds("resume", "tol", "--tol", 0.1, cwd=tmp_path)
    assert "nothing left" not in more


def test_info_recognises_stores_runs_and_models(folder: Path) -> None:
    kinds = {"train.zarr": "store", "test.h5": "store", "run": "run", "run/model": "model"}
    for path, kind in kinds.items():
        assert json.loads(succeeds("info", path, "--json", "--verify", cwd=folder))["kind"] == kind


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("fit", "absent.zarr", "--out", "r"), "absent.zarr: nothing is there; check the path"),
        (("fit", "{}/train.zarr", "--out", "{}/run"), "resume"),
        (("fit", "{}/train.zarr", "--out", "r", "--memory", "1K"), "--memory"),
        (("fit", "{}/digits.train", "--dry-run"), "make a store with `streamsvm convert`"),
        (("fit", "{}/train.zarr", "--out", "{}/digits.train"), "is not a folder; choose another folder"),
        (("resume", "absent"), "nothing is there"),
        (("resume", "{}"), "not a run"),
        (("resume", "{}/run", "--passes", "1"), "cannot be shortened to 1"),
        (("predict", "absent", "{}/digits.test"), "nothing is there"),
        (("predict", "{0}/digits.test", "{0}/digits.test"), "give a run directory or a model folder"),
        (("predict", "{}/run", "absent.svm"), "absent.svm"),
        (
            ("predict", "{0}/run", "{0}/digits.test", "--out", "no/p.csv"),
            "no/p.csv: the folder no does not exist; create it first",
        ),
        (("export", "{}/run", "--out", "no/m.txt"), "the folder no does not exist; create it first"),
        (("evaluate", "{}/run", "absent.svm"), "No such file or directory; check the path"),
        (("online", "absent.svm", "--out", "r"), "No such file or directory; check the path"),
        (("info", "absent"), "absent: nothing is there; check the path"),
        (("convert", "absent.svm", "--out", "a.zarr"), "No such file or directory; check the path"),
        (("convert", "{}/digits.train", "--out", "a.txt"), ".zarr"),
        (("convert", "{}/digits.train", "--out", "{}/train.zarr"), "--force"),
    ],
)
def test_a_failure_is_one_line_that_says_what_to_do(
    folder: Path, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    message = fails(1, *(word.format(folder) for word in words), cwd=tmp_path)
    assert expected in message
    assert sorted(tmp_path.iterdir()) == []


def test_convert_takes_every_option(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "a.svm"
    text.write_text("1 1:0.5 3:0\n2 4:1 2:1\nx:1\n")
    out = succeeds(
        "convert", text, "--out", "a.h5", "--index-base", 0, "--n-features", 9, "--dtype", "float64",
        "--no-shuffle", "--seed", 3, "--memory", "64M", "--codec", "none", "--chunk-nnz", 8,
        "--on-error", "fix", "--json", cwd=tmp_path, notes=True,
    )  # fmt: skip
    record = json.loads(out)
    expected = {"n": 2, "d": 9, "nnz": 3, "index_base": 0, "skipped": 1, "repaired": 1, "explicit_zeros": 1}
    assert {key: record[key] for key in expected} == expected
    text.write_text("2 1:1 77:3\n3 1:1\n")
    like = ("--like", "a.h5", "--unseen-label", "keep", "--codec", "small", "--index-base", "0", "--json")
    record = json.loads(succeeds("convert", text, "--out", "b.zarr", *like, cwd=tmp_path, notes=True))
    assert (record["d"], record["unseen_features"], record["unseen_labels"]) == (9, 1, 1)
    assert "contradicts" in fails(
        1, "convert", text, "-o", "c.h5", "--like", "a.h5", "--index-base", 1, cwd=tmp_path
    )


def test_predictions_go_where_they_should(folder: Path, tmp_path: Path) -> None:
    predict = ("predict", folder / "run", folder / "digits.test")
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    assert fails(1, *predict, "--out", "link", cwd=tmp_path).endswith(
        "is there already; --force replaces it\n"
    )
    assert (tmp_path / "target").read_text() == "old"
    succeeds(*predict, "--out", "link", "--force", cwd=tmp_path)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text().count("\n") == 360
    succeeds(*predict, "--out", "/dev/null", cwd=tmp_path)
    assert Path("/dev/null").is_char_device()
    for out in ("absent/p.txt", "."):
        fails(1, *predict, "--out", out, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_predict_needs_no_labels_and_says_what_it_drops(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "plain"
    text.write_text("? 1:3 9999:2\n? 5:1\n")
    done = streamsvm("predict", folder / "run", text, cwd=tmp_path)
    assert done.code == 0
    assert done.out.count("\n") == 2
    assert "plain: left out values of features unknown to the model (1 in all)" in done.err
    succeeds("convert", text, "--out", "plain.h5", cwd=tmp_path, notes=True)
    (tmp_path / "plain").write_text("? 1:3\n? 5:1\n")
    succeeds("convert", text, "--out", "narrow.h5", cwd=tmp_path, notes=True)
    assert succeeds("predict", folder / "run", "narrow.h5", cwd=tmp_path).count("\n") == 2
    assert "--like" in fails(1, "predict", folder / "run", "plain.h5", cwd=tmp_path)
    assert "classes" in fails(1, "evaluate", folder / "run", "narrow.h5", cwd=tmp_path)


def test_a_store_that_was_moved_stops_a_resume_at_once(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "train.zarr", tmp_path / "s.zarr")
    succeeds("convert", folder / "digits.test", "--like", folder / "train.zarr", "-o", "v.h5", cwd=tmp_path)
    fit = ("fit", "s.zarr", "--out", "r", "--passes", 2, "--valid", "v.h5")
    succeeds(*fit, cwd=tmp_path)
    (tmp_path / "v.h5").rename(tmp_path / "w.h5")
    message = fails(1, "resume", "r", "--passes", 3, cwd=tmp_path)
    assert "v.h5: nothing is there; bring it back, or say where it is now with --valid" in message
    (tmp_path / "s.zarr").rename(tmp_path / "t.zarr")
    message = fails(1, "resume", "r", "--passes", 3, "--valid", "w.h5", cwd=tmp_path)
    assert "s.zarr: nothing is there; bring it back, or say where it is now with --store" in message
    moved = ("--store", "t.zarr", "--valid", "w.h5")
    record = json.loads(succeeds("resume", "r", "--passes", 3, *moved, "--json", cwd=tmp_path))
    assert record["passes"] == 3


def test_too_many_features_are_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "wide").write_text("a 4611686018427387902:1\nb 1:2\n")
    succeeds("convert", "wide", "--out", "wide.zarr", cwd=tmp_path)
    assert "features" in fails(1, "fit", "wide.zarr", "--out", "r", cwd=tmp_path)
    assert not (tmp_path / "r").exists()


@pytest.mark.more
def test_demo_kills_resumes_and_gets_the_same_bytes(tmp_path: Path) -> None:
    record = json.loads(succeeds("demo", "--json", cwd=tmp_path))
    assert record["identical"] is True
    assert record["killed_in"] >= 1
    assert record["accuracy"] > 0.85
    assert "other files" in fails(1, "demo", "--dir", "..", cwd=tmp_path)


def test_probabilities_arrive_from_training_to_predictions(folder: Path, tmp_path: Path) -> None:
    fit = ("fit", folder / "train.zarr", "--passes", 2, "--C", 0.01)
    out = succeeds(*fit, "--out", "r", "--calibrate", folder / "test.h5", cwd=tmp_path)
    assert re.search(r"^probabilities: temperature [\d.]+, .* on 360 hold-out rows$", out, re.MULTILINE)
    model, data = load_model(tmp_path / "r"), folder / "digits.test"
    lines = succeeds("predict", "r", data, "--proba", "--top-k", 10, cwd=tmp_path).splitlines()
    found = np.array([line.split("\t")[1::2] for line in lines], float)
    X, _ = load_svmlight_file(str(data), n_features=64)
    expected = np.sort(model.predict_proba(X))[:, ::-1]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    evaluated = json.loads(succeeds("evaluate", "r", data, "--json", cwd=tmp_path))
    assert f"log loss  {evaluated['log_loss']:.4f}" in succeeds("evaluate", "r", data, cwd=tmp_path)
    succeeds(*fit, "--out", "later", cwd=tmp_path)
    result = succeeds("resume", "later", "--calibrate", folder / "test.h5", "--json", cwd=tmp_path)
    assert json.loads(result)["calibration"]["temperature"] == model.temperature
    assert "`streamsvm calibrate`" in fails(1, "predict", folder / "run", data, "--proba", cwd=tmp_path)


def test_convert_keeps_weights_labels_and_groups(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("b,a qid:1 1:1\n qid:1 2:1\nc qid:2 3:1\n")
    (tmp_path / "weights").write_text("1\n0.5\n2\n")
    options = ("--weights", "weights", "--multilabel", "--groups", "--no-shuffle")
    succeeds("convert", "text", "--out", "a.h5", *options, cwd=tmp_path)
    with open_store(tmp_path / "a.h5") as store:
        rows = store.rows(0, 3)
        assert store.classes == ("a", "b", "c")
        assert rows.cost.tolist() == [1, 0.5, 2]
        assert rows.label_codes.tolist() == [0, 1, 2]
        assert rows.qid.tolist() == [1, 1, 2]
