"""A pipe, socket or device in the place of a file is one line; as LIBSVM text, pipes are read."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, piped, streamsvm
from helpers import save_weights
from warm_process import Process

TEXT = b"a 1:1\nb 2:1\n" * 5


@pytest.fixture
def folder(tmp_path: Path, soon: None) -> Path:
    """A model and a matrix."""
    record = {"classes": ["a", "b"], "dtype": "float32", "n_features": 2}
    record |= {"index_base": 1, "loss": "ww", "transforms": []}
    save_weights(tmp_path / "m", np.eye(2, dtype=np.float32), record)
    np.save(tmp_path / "x.npy", np.eye(2))
    (tmp_path / "text").write_bytes(TEXT)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["p.zarr", "p.h5", "p.h5ad", "p.csv", "p.jsonl", "p.npy", "p.npz", "p.parquet"]
)
def test_a_pipe_in_the_place_of_a_store_or_table_is_refused(folder: Path, name: str) -> None:
    os.mkfifo(folder / name)
    for words in (
        ("info", name),
        ("predict", "m", name),
        ("evaluate", "m", name),
        ("fit", name, "--out", "r"),
        ("convert", name, "--out", "s.zarr"),
        ("convert", "x.npy", "--labels", name, "--out", "s.zarr"),
        ("predict", name, "text"),
        ("resume", name),
        *([("report", name)] if importlib.util.find_spec("matplotlib") else []),
        ("export", name, "--out", "e.txt"),
    ):
        assert name in fails(1, *words, cwd=folder), words
    assert sorted(path.name for path in folder.iterdir()) == sorted(["m", "x.npy", "text", name])


def test_sockets_and_devices_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    for device in ("socket", "/dev/zero"):
        for words in (
            ("convert", device, "--out", "s.zarr"),
            ("convert", "x.npy", "--labels", device, "--out", "s.zarr"),
            ("predict", "m", device),
            ("evaluate", "m", device),
            ("info", device),
            ("online", device, "--out", "r", "--classes", "a,b"),
        ):
            code, _, err = streamsvm(*words)
            assert code == 1, words
            assert device in err.splitlines()[-1], words
            assert "Traceback" not in err, words
    assert "the input has no usable rows" in fails(1, "convert", "/dev/null", "--out", "s.zarr")
    assert not Path("s.zarr").exists()


def test_pipes_are_read_as_text(folder: Path) -> None:
    for place in ("-", "/dev/stdin"):
        code, _, err = piped("convert", place, "--out", f"{len(place)}.zarr", "-q", cwd=folder, text=TEXT)
        assert (code, err) == (0, "")
        assert streamsvm("info", f"{len(place)}.zarr", cwd=folder).out.split()[4:6] == ["rows", "10"]
    code, out, _ = piped("predict", "m", "/dev/stdin", cwd=folder, text=TEXT)
    assert (code, out.split()) == (0, ["a", "b"] * 5)
    os.mkfifo(folder / "pipe")
    child = os.fork()
    if child == 0:
        (folder / "pipe").write_bytes(TEXT)
        os._exit(0)
    assert streamsvm("predict", "m", "pipe", cwd=folder).out.split() == ["a", "b"] * 5
    os.waitpid(child, 0)


@pytest.mark.parametrize("command", ["fit", "online"])
def test_a_reader_that_has_gone_ends_a_run_without_a_word_and_it_resumes(folder: Path, command: str) -> None:
    streamsvm("convert", "text", "--out", "text.zarr", cwd=folder)
    read, write = os.pipe()
    os.close(read)
    assert piped(command, "text.zarr", "--out", "r", cwd=folder, stdout=write) == (1, "", "")
    os.close(write)
    assert streamsvm("resume", "r", cwd=folder)[0] == 0
    assert (folder / "r/model").exists()


def test_a_table_in_a_pipe_must_be_in_a_file(folder: Path) -> None:
    words = ("convert", "-", "--format", "csv", "--label", "y", "--out", "t.zarr")
    code, _, err = piped(*words, cwd=folder, text=b"x,y\n1,a\n2,b\n")
    assert code == 1
    assert "standard input is LIBSVM text, not CSV; write the input to a file first" in err


@pytest.mark.parametrize("command", ["fit", "online"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_reading_of_a_silent_pipe(folder: Path, command: str, number: int) -> None:
    source, sink = os.pipe()
    with open(folder / "err", "w+b") as err:
        files = source, err.fileno(), err.fileno()
        with Process(command, "-", "--out", "r", files=files, cwd=folder) as process:
            os.close(source)
            os.write(sink, TEXT * 2000)  # more than a pipe holds: the command has begun to read
            os.kill(process.pid, number)
            assert process.wait() == 130
            os.close(sink)
    assert "stopped" in (folder / "err").read_text()
