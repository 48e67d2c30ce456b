"""`info` on files of every kind says what the libraries that wrote them say."""

from __future__ import annotations

import bz2
import gzip
import json
import re
import warnings
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import fails, streamsvm, succeeds
from helpers import make_problem, make_store

from streamsvm import fit, load_model
from streamsvm.reporting.history import History, achieved

N, D = 40, 6
OF_CS: dict[str, Any] = {"loss": "cs", "dtype": "float64", "C": 0.5, "block_rows": 50, "average": False}


def described(path: Path) -> dict[str, Any]:
    """What it says, for machines; for people it is one screen."""
    code, out, err = streamsvm("info", path)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) < 40
    assert all(len(line) <= 80 or "/" in line for line in out.splitlines())  # but for a long path
    code, out, err = streamsvm("info", path, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def cells() -> anndata.AnnData:
    X = sp.random(N, D, 0.4, "csr", np.float32, np.random.default_rng(0))
    obs = pd.DataFrame(
        {
            "type": pd.Categorical(["a", "b", "c", None] * (N // 4)),
            "depth": np.arange(N) * 0.5,
            "count": pd.array([1, None] * (N // 2), dtype="Int64"),
            "is_cell": [True, False] * (N // 2),
            "barcode": [f"AC{i}" for i in range(N)],
        },
        index=[f"c{i}" for i in range(N)],
    )
    found = anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=[f"g{j}" for j in range(D)]))
    found.raw = anndata.AnnData(sp.csr_matrix(np.ones((N, D + 3), np.float32)), obs=obs)
    found.layers["counts"] = sp.csc_matrix(X.astype(np.int32))
    found.layers["dense"] = X.toarray().astype(np.float64)
    found.obsm["pca"] = np.zeros((N, 2))
    return found


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_anndata(tmp_path: Path, suffix: str) -> None:
    path, made = tmp_path / f"a.{suffix}", cells()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.write_h5ad(path) if suffix == "h5ad" else made.write_zarr(path)
    found = described(path)
    assert found["kind"] == "anndata"
    assert (found["n"], found["d"]) == made.shape
    X = found["X"]
    assert (X["encoding"], X["shape"], X["nnz"], X["dtype"]) == ("csr_matrix", [N, D], made.X.nnz, "float32")
    layers = {name: (each["encoding"], each["dtype"]) for name, each in found["layers"].items()}
    assert layers == {"counts": ("csc_matrix", "int32"), "dense": ("dense", "float64")}
    assert found["raw"]["shape"] == [N, D + 3]
    kinds = [entry["kind"] for entry in found["obs"].values()]
    assert list(found["obs"]) == list(made.obs.columns)
    assert kinds[:4] == ["categorical", "number", "integer", "boolean"]
    assert found["obs"]["type"]["categories"] == 3
    assert found["obsm"] == ["pca"]
    assert found["row_names"] == made.obs_names[:5].tolist()
    assert found["var_names"] == made.var_names[:5].tolist()
    code, out, err = streamsvm("info", path, "--verify", "--json")
    assert (code, json.loads(out)["verified"]) == (0, True), err
    code, out, err = streamsvm("info", path, "--label", "type", "--json")  # as the store that fit trains on
    assert json.loads(out)["classes"] == ["a", "b", "c"], err


TEXT = "a 3:1 7:0.5\nb 1:-2e-3 # a comment\n\n# more\nc\n"


def test_libsvm_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    (tmp_path / "text.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "text.bz2").write_bytes(bz2.compress(TEXT.encode()))
    for name in ("text", "text.gz", "text.bz2"):
        found = described(tmp_path / name)
        assert found["kind"] == "LIBSVM text"
        assert (found["lowest_index"], found["highest_index"], found["first_rows"]) == (1, 7, 3)
        assert found["first_labels"] == ["a", "b", "c"]
        assert found["index_base"] == "1, unless a later row has feature 0"
        assert (found["several_labels"], found["qid"], found["values_per_row"]) == (None, None, 1.0)
    (tmp_path / "text").write_text("1,5 qid:1 0:1\n5 qid:1 2:1\n 3:1\n")
    found = described(tmp_path / "text")
    assert (found["index_base"], found["several_labels"], found["labels_so_far"]) == (0, True, 2)
    (tmp_path / "text").write_text("1 1:1 2:1 3:1\n" * 100_000)  # more than is looked at
    assert 1000 < described(tmp_path / "text")["first_rows"] < 100_000


def test_arrays_of_numpy_and_scipy(tmp_path: Path) -> None:
    matrix = sp.random(N, D, 0.3, "csc", np.float64, np.random.default_rng(0))
    sp.save_npz(tmp_path / "s.npz", matrix)
    found = described(tmp_path / "s.npz")
    assert (found["encoding"], found["shape"], found["nnz"]) == ("scipy.sparse csc", [N, D], matrix.nnz)
    np.save(tmp_path / "a.npy", np.zeros((3, 4), np.int16))
    found = described(tmp_path / "a.npy")
    assert (found["kind"], found["shape"], found["dtype"]) == ("npy", [3, 4], "int16")
    np.savez(tmp_path / "z.npz", X=np.zeros((2, 2)), y=np.arange(2))
    assert described(tmp_path / "z.npz")["arrays"]["X"] == {"shape": [2, 2], "dtype": "float64"}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.jsonl", "a.csv.gz", "plain"])
def test_tables(tmp_path: Path, name: str) -> None:
    table = pd.DataFrame({"x": [1.5, -2.0], "label, quoted": ["p\tq", "r"], "n": [1, 2]})
    path = tmp_path / name
    if name == "a.parquet":
        table.to_parquet(path)
    elif name == "a.jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False, sep="\t" if name == "a.tsv" else ",")
    found = described(path)
    assert list(found["columns"]) == list(table.columns)
    kinds = [entry["kind"] for entry in found["columns"].values()]
    assert kinds == ["double", "string", "int64" if name == "a.parquet" else "double"]
    assert found.get("separator") == {"a.tsv": "tabs", "a.parquet": None, "a.jsonl": None}.get(name, "commas")


def test_other_files_are_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for content, message in (
        (b"", "it is empty"),
        (b"just words\n", "begins with 'just words'"),
        (b"\x00\x01\x02" * 100, "is of no kind that is read"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR,;,", "is of no kind that is read"),
        (b"\x93NUMPY\x01\x00\xff", "is damaged"),
        (b"PK\x03\x04 and more", "is damaged"),
        (b"PAR1 and more", "cannot be read as a Parquet table"),
        (gzip.compress(TEXT.encode(), mtime=0)[:30], "a.bin"),
        (b"\x89HDF\r\n\x1a\n", "a.bin"),
    ):
        path.write_bytes(content)
        said = fails(1, "info", path)
        assert message in said
        assert str(path) in said


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A folder with runs, and what `fit` returned for each."""
    folder = tmp_path_factory.mktemp("runs")
    X, labels = make_problem(400, 8, 4, noise=1.0)
    train = make_store(folder / "train.h5", X[:300], labels[:300])
    valid = make_store(folder / "valid.h5", X[300:], labels[300:])
    few = make_store(folder / "few.h5", X[300:350], labels[300:350])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {
            "ww": fit(train, out=folder / "ww", valid=valid, gap="pass"),
            "cs": fit(train, out=folder / "cs", valid=valid, **OF_CS),
            "part": fit(train, out=folder / "part", hold_out="1/4", gap="none", passes=1),
            "few": fit(train, out=folder / "few", valid=few),
        }
    rows = {"ww": (X[300:], labels[300:]), "cs": (X[300:], labels[300:])}
    return {"folder": folder, "made": made, "rows": rows}


@pytest.mark.parametrize("name", ["ww", "cs"])
def test_a_run_is_described_by_what_it_achieved(runs: dict[str, Any], name: str) -> None:
    made, folder = runs["made"][name], runs["folder"]
    X, labels = runs["rows"][name]
    right = (load_model(folder / name).predict(X).astype(int) == labels).mean()
    out = succeeds("info", name, cwd=folder)
    shown = dict(re.findall(r"^ *(\S.*?)  (.*)$", out, re.MULTILINE))
    assert shown["accuracy"] == f"{right:.4f} on valid.h5"
    assert shown["relative gap"] == f"{made.relative_gap:.1e}"
    assert shown["training accuracy"] == f"{made.train_accuracy:.4f}"
    assert shown["effort"].startswith(f"3 passes, {made.seconds:.2f} s of training, peak memory")
    assert shown["data"] == "300 rows, 8 features, 4 classes"
    assert shown["loss"].startswith(f"{name}, C {made.C:.4g}")
    expected = {"ww": "gap pass", "cs": "dtype float64, average False, block-rows 50"}[name]
    assert shown["other settings"].split(", ") == expected.split(", ")
    assert max(len(line) for line in out.splitlines() if "/" not in line) <= 80
    record = json.loads(succeeds("info", name, "--json", cwd=folder))["result"]
    assert record["valid_accuracy"] == made.valid_accuracy == pytest.approx(right)
    assert record["relative_gap"] == made.relative_gap


def test_several_runs_are_compared_in_a_table(runs: dict[str, Any]) -> None:
    folder, made = runs["folder"], runs["made"]
    out = succeeds("info", "ww", "cs", cwd=folder)
    assert max(map(len, out.splitlines())) <= 80
    head, *rows = (re.split(r"  +", line) for line in out.partition("\n\n")[0].splitlines())
    assert head == ["run", "measured on", "accuracy", "rel. gap", "C", "passes", "seconds"]
    best_first = sorted(("ww", "cs"), key=lambda name: -made[name].valid_accuracy)
    assert [row[0] for row in rows] == best_first
    for name, on, share, _, C, passes, _ in rows:
        assert (on, share) == ("valid.h5", f"{made[name].valid_accuracy:.4f}")
        assert (C, passes) == (f"{made[name].C:.4g}", "3")
    assert "  cs: loss cs, dtype float64, average False, gap end, block-rows 50\n" in out
    assert "  ww: loss ww, dtype float32, average auto, gap pass, block-rows default\n" in out
    found = json.loads(succeeds("info", "ww", "cs", "--json", cwd=folder))["runs"]
    assert [each["path"] for each in found] == ["ww", "cs"]


def test_accuracies_of_different_rows_are_said_not_to_compare(runs: dict[str, Any]) -> None:
    words = "The accuracies are of different rows"
    for other in ("part", "few"):
        out = succeeds("info", "ww", other, cwd=runs["folder"])
        assert words in out
        assert max(map(len, out.splitlines())) <= 80
    assert "~ is an estimate" in succeeds("info", "ww", "part", cwd=runs["folder"])
    assert words not in succeeds("info", "ww", "cs", cwd=runs["folder"])
    message = fails(2, "info", "ww", "train.h5", cwd=runs["folder"])
    assert "several paths are compared if all are runs, and train.h5 is none" in message


def test_of_another_model_than_was_measured_there_is_no_figure() -> None:
    def of(model: dict[str, Any], **last: float) -> dict[str, Any]:
        reports = [{"pass": 1, "relative_gap": 0.5, "seconds": 1.0}, {"pass": 2, "seconds": 2.0, **last}]
        return achieved(History("run", {}, [], reports, [], []), model)

    both = {"valid_accuracy": 0.9, "last_iterate_valid_accuracy": 0.8}
    assert of({"average": True, "passes": 2}, **both)["valid_accuracy"] == 0.9
    assert of({"average": False, "passes": 2}, **both)["valid_accuracy"] == 0.8
    assert of({"average": False, "passes": 2}, valid_accuracy=0.7)["valid_accuracy"] == 0.7
    assert of({"average": True, "passes": 2}, valid_accuracy=0.7)["valid_accuracy"] is None
    earlier = of({"average": False, "passes": 1}, **both)  # a second pass has begun to replace the model
    assert (earlier["passes"], earlier["relative_gap"], earlier["valid_accuracy"]) == (1, 0.5, None)
    assert of({}, relative_gap=0.25)["seconds"] == 3.0
