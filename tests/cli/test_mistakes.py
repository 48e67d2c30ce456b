"""Whatever is wrong is one line that says what to do: exit code 2 for wrong options, 1 for all else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import fails, streamsvm
from helpers import make_problem, make_store

from streamsvm import fit

OPTIONS = [  # words, and what the last line of the message has
    ("fitt a", "No such command 'fitt'. Did you mean 'fit'?"),
    ("fit a --pases 3", "No such option: --pases (Possible options:"),
    ("fit a --passes many", "Invalid value for '--passes'"),
    ("fit a --passes 0", "--passes must be a whole number in [1, 2**63), not 0"),
    ("fit a --gap x", "'--gap': Value error, 'x' is not one of 'pass', 'end', 'none'"),
    ("fit a --out r --memory 3x", "'3x' is not a valid size; specify a number of bytes"),
    ("convert a -o b.zarr --ngrams 1-x", "--ngrams must be the minimum and maximum"),
    ("fit", "Missing argument 'DATA'"),
    ("fit a", "--out is missing; name the run directory to create with --out"),
    ("tune a", "Missing option '--out'"),
    ("fit a --out r --checkpoint-every 0", "set a time (0.5s, 60s, 5m) or a number of blocks"),
    ("online text --out r --classes text", "--classes must be a file or a list of at least two"),
    ("online text --out r --classes a,b --like run", "use only one of them"),
    ("online text --out r --labels y.npy", "--labels is only for a store"),
    ("online x.npy --out r --labels y.npy --on-error skip", "--on-error does not apply to stores"),
    ("predict run data --json", "--json needs --out"),
    ("predict run text --explain 2 --threshold 0", "applies only to one label per row; leave threshold out"),
    ("predict run text -o p.npy", ".csv, .tsv, .jsonl, .parquet for a table, or .txt for lines"),
    ("predict run text --out new.h5ad", ', or use adata.obs["predicted"] = model.predict(adata) in Python'),
    ("export run --out m", "or m must end in .joblib or .onnx or .txt or .model"),
    ("export run --out m.txt --dtype float16", "--dtype applies only to the format streamsvm"),
    ("info run s.h5", "only runs can be compared, but s.h5"),
]
FAILURES = [
    ("fit absent.zarr --out r", "absent.zarr does not exist; check the path"),
    ("fit s.h5 --out run", "resume"),
    ("fit s.h5 --out r --memory 1K", "--memory"),
    ("fit text --dry-run", "convert it with `streamsvm convert"),
    ("fit s.h5 --out text", "is not a folder; choose another folder"),
    ("resume absent", "absent does not exist; check the path"),
    ("resume .", "not a run"),
    ("predict absent text", "absent does not exist; check the path"),
    ("predict text text", "specify a run directory or a model folder"),
    ("predict run absent.svm", "absent.svm"),
    ("predict run text --out no/p.csv", "no/p.csv: the folder no does not exist; create it first"),
    ("evaluate run absent.svm", "No such file or directory; check the path"),
    ("export run --out run --format streamsvm", "already exists; replace it with --force"),
    ("online absent.svm --out r", "No such file or directory; check the path"),
    ("info bad.bin", "bad.bin"),
    ("info absent", "absent cannot be read: No such file or directory; check the path"),
    ("convert text --out a.txt", ".zarr"),
    ("convert text --out s.h5", "--force"),
    ("fit s.h5 --out s3://bucket/a", "streamsvm: s3://bucket/a is not a local path"),
    ("predict run nosuch://bucket/a.zarr", "streamsvm[remote]"),
    ("tune absent.h5 --out r", "absent.h5 does not exist"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("refusals")
    fit(make_store(path / "s.h5", *make_problem(60, 5, 3)), out=path / "run", passes=2)
    (path / "text").write_text("a")
    (path / "bad.bin").write_bytes(b"\x93NUMPY\x01\x00\xff")
    np.save(path / "x.npy", np.eye(2))
    np.save(path / "y.npy", np.arange(2))
    return path


def test_mistakes_and_failures_are_one_line_and_change_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    for code, cases in ((2, OPTIONS), (1, FAILURES)):
        for words, message in cases:
            assert message in fails(code, *words.split(), cwd=folder).splitlines()[-1], words
    assert sorted(folder.rglob("*")) == before


def test_a_memory_too_small_to_score_names_one_that_works(folder: Path) -> None:
    (folder / "long").write_text("0 " + " ".join(f"{i}:1" for i in range(1, 1000)) + "\n")
    message = fails(1, "predict", "run", "long", "--memory", "64K", cwd=folder)
    enough = message.partition("--memory ")[2].split()[0]  # of the whole budget, not of the part for rows
    assert streamsvm("predict", "run", "long", "--memory", enough, cwd=folder).code == 0
