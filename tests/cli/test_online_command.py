"""`streamsvm online` as a user runs it: pipes, classes, hashing, predicting, bad input, resuming."""

from __future__ import annotations

import bz2
import hashlib
import json
import lzma
import os
import re
import signal
import tempfile
import threading
from importlib import resources
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import fails, piped, streamsvm, succeeds
from streamsvm_cli.online import text_layout
from warm_process import Process

from streamsvm.errors import InputError, SettingsError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits as text, compressed and as a store, and a run over them."""
    path = tmp_path_factory.mktemp("online")
    for name in ("train", "test"):
        packed = resources.files("streamsvm_cli").joinpath("digits", f"digits.{name}.xz").read_bytes()
        (path / name).write_bytes(lzma.decompress(packed))
    (path / "few").write_bytes(b"".join((path / "train").read_bytes().splitlines(keepends=True)[:30]))
    (path / "train.bz2").write_bytes(bz2.compress((path / "train").read_bytes()))
    succeeds("convert", "train", "--out", "train.h5", cwd=path)
    succeeds("convert", "test", "--out", "test.h5", "--like", "train.h5", "--no-shuffle", cwd=path)
    succeeds("online", "train", "--out", "run", "--C", 0.01, cwd=path)
    return path


def evaluated(model: object, data: object, cwd: Path) -> dict:
    return json.loads(succeeds("evaluate", model, data, "--json", cwd=cwd))


def coef(run: Path) -> bytes:
    return (run / "model/coef.npy").read_bytes()


def test_for_machines(folder: Path, tmp_path: Path) -> None:
    out = succeeds("online", folder / "train", "--out", "run", "--C", 0.01, "--json", cwd=tmp_path)
    record = json.loads(out)
    expected = {"status": "done", "rows": 1437, "classes": 10, "features": 65, "checkpoints": 1}
    assert {key: record[key] for key in expected} == expected
    names = "progressive_accuracy rows_per_second waited_fraction seconds peak_memory_bytes empty_rows model"
    assert record.keys() >= set(names.split())
    lines = list(map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines()))
    assert lines[-1]["progressive_accuracy"] == record["progressive_accuracy"] > 0.8
    assert coef(tmp_path / "run") == coef(folder / "run")
    assert record["input"]["nnz"] == (folder / "train").read_text().count(":")


def test_a_pipe_several_inputs_and_compressed_ones_give_equal_weights(folder: Path, tmp_path: Path) -> None:
    text = (folder / "train").read_bytes()
    said = piped("online", "-", "--out", "pipe", "--C", 0.01, cwd=tmp_path, text=text)
    assert said.code == 0
    assert "cannot be resumed" in said.out
    assert coef(tmp_path / "pipe") == coef(folder / "run")
    succeeds("online", folder / "train.bz2", "--out", "packed", "--C", 0.01, cwd=tmp_path)
    assert coef(tmp_path / "packed") == coef(folder / "run")
    lines = text.splitlines(keepends=True)
    (tmp_path / "first").write_bytes(b"".join(lines[:500]).rstrip(b"\n"))
    (tmp_path / "second").write_bytes(b"".join(lines[500:]))
    succeeds("online", "first", "second", "--out", "two", "--C", 0.01, "--memory", "1M", cwd=tmp_path)
    assert coef(tmp_path / "two") == coef(folder / "run")


def test_info_predict_and_evaluate(folder: Path, tmp_path: Path) -> None:
    said = json.loads(succeeds("info", "run", "--json", "--verify", cwd=folder))
    assert (said["kind"], said["commits"], said["model"]) == ("run", ["1437 rows done"], True)
    assert said["input"]["inputs"] == [str(folder / "train")]
    assert json.loads(succeeds("info", "run/model", "--json", cwd=folder))["rows"] == 1437
    by_text, by_store = evaluated("run", "test", folder), evaluated("run", "test.h5", folder)
    assert by_text == by_store
    assert by_text["accuracy"] > 0.85
    labels = succeeds("predict", "run", "test", cwd=folder).split()
    truth = [line.split()[0] for line in (folder / "test").read_text().splitlines()]
    assert np.mean([a == b for a, b in zip(labels, truth, strict=True)]) == by_text["accuracy"]


def test_classes_from_a_list_or_a_file(folder: Path, tmp_path: Path) -> None:
    classes = [*map(str, range(11, -1, -1))]
    (tmp_path / "classes").write_text("\n".join(classes) + "\n")
    for given in ("classes", ",".join(classes)):
        succeeds("online", folder / "few", "--classes", given, "--out", "run", "--force", cwd=tmp_path)
        assert json.loads((tmp_path / "run/model/model.json").read_text())["classes"] == classes[::-1]
    message = fails(1, "online", folder / "train", "--classes", "1,2", "--out", "no", cwd=tmp_path)
    assert "is not among the 2 known classes" in message
    record = json.loads(
        succeeds(
            *("online", folder / "train", "--classes", "1,2", "--unseen-label", "keep", "--out", "no"),
            "--json", cwd=tmp_path,
        )
    )  # fmt: skip
    labels = [line.split()[0] for line in (folder / "train").read_text().splitlines()]
    assert record["input"]["unseen_labels"] == record["empty_rows"] == sum(x not in "12" for x in labels)
    fails(2, "online", folder / "train", "--classes", "1,1", "--out", "x", cwd=tmp_path)
    message = fails(2, "online", folder / "train", "--unseen-label", "keep", "--out", "x", cwd=tmp_path)
    assert "give --classes or --like too" in " ".join(message.split())
    fails(2, "online", folder / "train", "--classes", "1", "--like", folder / "run", "-o", "x", cwd=tmp_path)


@pytest.fixture(scope="module")
def likes(folder: Path) -> Path:
    """What `--like` may name beside the store, which counts from 1: models, of a hash and AnnData too."""
    succeeds("online", "few", "--out", "from-0", cwd=folder)
    succeeds("online", "few", "--out", "hashed", "--hash-bits", 8, "--seed", 3, cwd=folder)
    digits = [*map(str, range(10))]
    labels = pd.DataFrame({"class": pd.Categorical(digits, categories=digits)}, index=digits)
    X = sp.csr_matrix(np.eye(10, 70, dtype=np.float32))
    anndata.AnnData(X, obs=labels).write_h5ad(folder / "foreign.h5ad")
    succeeds("fit", "foreign.h5ad", "--label", "class", "--out", "foreign", cwd=folder)
    return folder


def test_what_options_and_like_say_together(likes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(likes)
    hashed, seeded = {"hash_bits": 8}, {"hash_bits": 8, "seed": 5}
    for like, options, expected in [  # features, index base, bits and seed of the hash; or a message
        (None, {}, (None, 0, None, 0)),
        (None, {"index_base": 0}, (None, 0, None, 0)),
        (None, {"index_base": 1}, (None, 1, None, 0)),
        (None, hashed, (None, 0, 8, 0)),
        (None, seeded | {"index_base": 0}, (None, 0, 8, 5)),
        (None, hashed | {"index_base": 1}, "leave it out"),
        (None, {"seed": 5}, "give hash_bits=... too"),
        ("train.h5", {}, (64, 1, None, 0)),
        ("train.h5", {"index_base": 1}, (64, 1, None, 0)),
        ("train.h5", {"index_base": 0}, "contradicts train.h5, whose indices start at 1; leave index_base="),
        ("train.h5", {"seed": 0}, "give hash_bits=... too"),
        ("train.h5", {"classes": ["1"]}, "give one of them"),
        ("train.h5", hashed, (None, 0, 8, 0)),
        ("train.h5", seeded, (None, 0, 8, 5)),
        ("train.h5", hashed | {"index_base": 1}, "leave it out"),
        ("from-0", {}, (65, 0, None, 0)),
        ("from-0", {"index_base": 0}, (65, 0, None, 0)),
        ("from-0/model", {"index_base": 1}, "contradicts from-0/model, whose indices start at 0"),
        ("from-0", hashed, (None, 0, 8, 0)),
        ("hashed", {}, (None, 0, 8, 3)),
        ("hashed", {"hash_bits": 8, "seed": 3, "index_base": 0}, (None, 0, 8, 3)),
        ("hashed", {"hash_bits": 9}, "hashed has another feature hash; give hash_bits=8, or leave it out"),
        ("hashed", {"seed": 0}, "hashed has another feature hash; give seed=3, or leave it out"),
        ("hashed", {"index_base": 1}, "leave it out"),
        ("foreign", {}, "does not record an index base; give index_base=..., 0 or 1"),
        ("foreign", {"index_base": 1}, (70, 1, None, 0)),
        ("foreign", hashed, (None, 0, 8, 0)),
    ]:
        if isinstance(expected, str):
            with pytest.raises((InputError, SettingsError), match=re.escape(expected)):
                text_layout(like, **options)
            continue
        reading, hashing = text_layout(like, **options)
        assert (reading["n_features"], reading["index_base"], *hashing.values()) == expected
        assert list(reading["classes"] or ()) == [*map(str, range(10 if like else 0))]


@pytest.mark.parametrize("like", ["run", "from-0/model", "hashed", "train.h5"])
def test_text_converted_like_what_is_to_score_it_is_scored_as_the_text_is(
    likes: Path, tmp_path: Path, like: str
) -> None:
    model = likes / ("run" if like == "train.h5" else like)
    (tmp_path / "wider").write_bytes((likes / "test").read_bytes() + b"7 1:1 9999:3\n")
    for out, options in (("alone.h5", ()), ("like.h5", ("--like", likes / like))):
        succeeds("convert", "wider", "--out", out, "--no-shuffle", *options, cwd=tmp_path)
    scores = succeeds("predict", model, "wider", "--scores", cwd=tmp_path, notes=True)
    assert succeeds("predict", model, "like.h5", "--scores", cwd=tmp_path) == scores
    if like == "hashed":  # it takes any features
        assert succeeds("predict", model, "alone.h5", "--scores", cwd=tmp_path) == scores
    else:
        assert "`streamsvm convert --like`" in fails(1, "predict", model, "alone.h5", cwd=tmp_path)


def test_real_text_in_one_pass_is_learned_as_well_as_from_a_store(data_folder: Path, tmp_path: Path) -> None:
    train, test = (data_folder / f"letter.scale{part}.bz2" for part in ("", ".t"))
    succeeds("online", train, "--out", "online", cwd=tmp_path)
    succeeds("convert", train, "--out", "train.h5", cwd=tmp_path)
    succeeds("fit", "train.h5", "--out", "fit", "--passes", 1, "--gap", "none", cwd=tmp_path)
    ours, theirs = (evaluated(run, test, tmp_path)["accuracy"] for run in ("online", "fit"))
    assert abs(ours - theirs) < 0.02
    assert ours > 0.69


# -- bad input -------------------------------------------------------------------------------------


def test_a_bad_row_in_a_pipe_leaves_the_model_of_those_before(folder: Path, tmp_path: Path) -> None:
    good = (folder / "train").read_bytes()
    lines = good.splitlines(keepends=True)
    command = ("online", "-", "--out", "run", "--memory", "1M", "--C", 0.01)
    done = piped(*command, cwd=tmp_path, text=good + b"1 oops\n" + good)
    assert done.code == 1
    assert "line 1438, column 3" in done.err
    rows = json.loads((tmp_path / "run/model/model.json").read_text())["rows"]
    assert f"{rows:,} rows before were learned from; run/model is their model" in done.err
    assert 0 < rows <= 1437
    (tmp_path / "before").write_bytes(b"".join(lines[:rows]))
    succeeds("online", "before", "--out", "part", "--C", 0.01, cwd=tmp_path)
    assert coef(tmp_path / "run") == coef(tmp_path / "part")


# -- resuming --------------------------------------------------------------------------------------


def test_a_pipe_that_ended_keeps_its_model_and_what_it_says_of_its_input(
    folder: Path, tmp_path: Path
) -> None:
    text = (folder / "train").read_bytes()
    os.mkfifo(tmp_path / "fifo")
    writer = threading.Thread(target=(tmp_path / "fifo").write_bytes, args=(text,))
    writer.start()
    first = json.loads(succeeds("online", "fifo", "--out", "run", "--json", cwd=tmp_path))
    writer.join()
    (tmp_path / "fifo").unlink()
    model = (tmp_path / "run/model/model.json").read_bytes()
    (source,) = json.loads(model)["sources"]
    assert (source["size"], source["sha256"]) == (len(text), hashlib.sha256(text).hexdigest())
    again = json.loads(succeeds("resume", "run", "--json", cwd=tmp_path))
    assert (tmp_path / "run/model/model.json").read_bytes() == model
    assert (again["status"], again["input"]) == ("done", first["input"])
    assert first["input"]["bytes_read"] == len(text)


def test_a_pipe_that_is_stopped_leaves_a_model_and_is_not_resumed(folder: Path, tmp_path: Path) -> None:
    (source, text), (lines, out) = os.pipe(), os.pipe()
    command = ("online", "-", "--out", "run", "--memory", "1M")
    with (
        tempfile.TemporaryFile() as err,
        open(text, "wb") as sink,
        open(lines) as report,
        Process(*command, cwd=tmp_path, files=(source, out, err.fileno())) as process,
    ):
        os.close(source)
        os.close(out)
        sink.write((folder / "train").read_bytes())  # and more may come
        sink.flush()
        assert any(line.split()[:1] == ["1,024"] for line in report)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 130
        err.seek(0)
        assert b"cannot be resumed" in err.read()
    rows = json.loads((tmp_path / "run/model/model.json").read_text())["rows"]
    assert 1024 <= rows <= 1437
    before = coef(tmp_path / "run")
    again = streamsvm("resume", "run", "--json", cwd=tmp_path)
    assert again.code == 0
    assert "is not resumed" in again.err
    assert json.loads(again.out)["status"] == "stopped"
    assert coef(tmp_path / "run") == before


def test_a_matrix_on_the_command_line(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    np.save(tmp_path / "X.npy", rng.normal(size=(3, 8))[labels] + 0.5 * rng.normal(size=(200, 8)))
    np.save(tmp_path / "y.npy", labels)
    given = ("online", "X.npy", "--labels", "y.npy")
    record = json.loads(succeeds(*given, "--out", "run", "--json", cwd=tmp_path))
    assert (record["rows"], record["classes"], record["features"]) == (200, 3, 8)
    assert record["progressive_accuracy"] > 0.8
    (tmp_path / "X.npy").rename(tmp_path / "Z.npy")
    out = succeeds("resume", "run", "--store", "Z.npy", cwd=tmp_path)
    assert "nothing left to learn" in out
    out = succeeds("evaluate", "run", "Z.npy", "--labels", "y.npy", "--json", cwd=tmp_path)
    assert json.loads(out)["accuracy"] > 0.8
    for wrong in (("--on-error", "skip"), ("--like", "run"), ("--index-base", 0)):
        assert "does not apply to stores" in fails(2, *given, *wrong, "--out", "x", cwd=tmp_path)
    (tmp_path / "text").write_text("1 1:1\n2 2:1\n")
    for wrong in (("--labels", "y.npy"), ("--obsm", "emb"), ("--sample-weight", "none")):
        assert "does not apply to LIBSVM text" in fails(
            2, "online", "text", *wrong, "--out", "x", cwd=tmp_path
        )
