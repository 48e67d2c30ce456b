"""`streamsvm online` as a user runs it: pipes, classes, hashing, predicting, bad input, resuming."""

from __future__ import annotations

import json
import lzma
import os
import re
import signal
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from command_line import piped, streamsvm, succeeds
from streamsvm_cli.online import text_like
from warm_process import Process

from streamsvm.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits as text and as a store, and a run over them."""
    path = tmp_path_factory.mktemp("online")
    packed = resources.files("streamsvm_cli").joinpath("digits", "digits.train.xz").read_bytes()
    (path / "train").write_bytes(lzma.decompress(packed))
    (path / "few").write_bytes(b"".join((path / "train").read_bytes().splitlines(keepends=True)[:30]))
    succeeds("convert", "train", "--out", "train.h5", cwd=path)
    succeeds("online", "train", "--out", "run", "--C", 0.01, cwd=path)
    return path


def coef(run: Path) -> bytes:
    return (run / "model/coef.npy").read_bytes()


def test_classes_from_a_list_or_a_file(folder: Path, tmp_path: Path) -> None:
    classes = [*map(str, range(11, -1, -1))]
    (tmp_path / "classes").write_text("\n".join(classes) + "\n")
    for given in ("classes", ", ".join(classes)):
        succeeds("online", folder / "few", "--classes", given, "--out", "run", "--force", cwd=tmp_path)
        assert json.loads((tmp_path / "run/model/model.json").read_text())["classes"] == classes[::-1]


@pytest.fixture(scope="module")
def likes(folder: Path) -> Path:
    """What `--like` may name beside the store, which counts from 1: models, of a hash too."""
    succeeds("online", "few", "--out", "from-0", cwd=folder)
    succeeds("online", "few", "--out", "hashed", "--hash-bits", 8, "--seed", 3, cwd=folder)
    return folder


def test_what_options_and_like_say_together(likes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(likes)
    for like, options, expected in [  # features, index base, bits and seed of the hash; or a message
        ("train.h5", {}, (64, 1, None, 0)),
        ("train.h5", {"index_base": 0}, "contradicts train.h5, whose indices start at 1; leave index_base="),
        ("train.h5", {"hash_bits": 8, "seed": 5}, (None, None, 8, 5)),
        ("from-0", {}, (65, 0, None, 0)),
        ("hashed", {}, (None, None, 8, 3)),
        ("hashed", {"hash_bits": 8, "seed": 3}, (None, None, 8, 3)),
        ("hashed", {"hash_bits": 9}, "hashed has another feature hash; give hash_bits=8, or leave it out"),
        ("hashed", {"seed": 5}, "hashed has another feature hash; give seed=3, or leave it out"),
    ]:
        settings: dict[str, Any] = {"hash_bits": None, "seed": 0} | options
        index_base = settings.pop("index_base", None)
        if isinstance(expected, str):
            with pytest.raises(InputError, match=re.escape(expected)):
                text_like(like, index_base, settings)
            continue
        reading = text_like(like, index_base, settings)
        assert (reading.get("n_features"), reading.get("index_base"), *settings.values()) == expected
        assert reading["classes"] == [*map(str, range(10))]


def test_hashed_features_keep_the_numbers_in_the_text(likes: Path) -> None:
    """With an index base, too."""
    options = ("--hash-bits", 8, "--seed", 3, "--index-base", 1)
    succeeds("online", "few", "--out", "based", *options, cwd=likes)
    assert coef(likes / "based") == coef(likes / "hashed")


def test_a_bad_row_in_a_pipe_leaves_the_model_of_those_before(folder: Path, tmp_path: Path) -> None:
    good = (folder / "train").read_bytes()
    text = good + b"1 oops\n" + good
    done = piped("online", "-", "--out", "run", "--C", 0.01, cwd=tmp_path, text=text)
    assert done.code == 1
    assert "line 1438, column 3" in done.err
    assert "1,437 rows before were learned from; run/model is their model" in done.err
    assert coef(tmp_path / "run") == coef(folder / "run")


def test_an_empty_pipe_is_said_to_be_empty_and_no_more(tmp_path: Path) -> None:
    done = piped("online", "-", "--out", "run", cwd=tmp_path, text=b"")
    assert (done.code, done.out) == (1, "")
    assert done.err == "streamsvm: the input has no rows to learn from\n"


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
