"""The examples of the README, run as they stand there."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import make_problem, text_lines
from run_files import model_bytes

import streamsvm

README = Path(streamsvm.__file__).parents[1] / "README.md"


def example(language: str, containing: str) -> str:
    """The one code block of the README in a language that contains some text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return found


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder with LIBSVM text in the files `train`, `test` and `more.gz`."""
    X, labels = make_problem(90, 12, 4, noise=1.5)
    lines = text_lines(X, [f"class{label}" for label in labels])
    (tmp_path / "train").write_text("".join(lines[:70]))
    (tmp_path / "test").write_text("".join(lines[70:]))
    (tmp_path / "more.gz").write_bytes(gzip.compress("".join(lines).encode()))
    return tmp_path


def run(commands: str, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", "set -o pipefail\n" + commands],
        cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_line_example(text: Path) -> None:
    run(example("sh", "streamsvm convert train"), text)
    predicted = (text / "labels.txt").read_text().splitlines()
    assert len(predicted) == 20
    assert all(len(line.split("\t")) == 6 for line in predicted)  # three labels, each with its score
    assert (text / "stream-run/model/model.json").exists()


def test_the_example_of_workers(text: Path) -> None:
    pytest.importorskip("distributed")
    run("streamsvm convert train --out train.zarr\n" + example("sh", "--cluster local"), text)
    assert model_bytes(text / "threads") == model_bytes(text / "processes")


def test_the_python_example(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(text)
    X = make_problem(30, 12, 4)[0]
    names = {"X": X}
    exec(compile(example("python", "import fit"), str(README), "exec"), names)
    assert names["result"].passes == 3
    assert len(names["labels"]) == 30
    assert set(names["model"].classes_) <= {f"class{c}" for c in range(4)}
