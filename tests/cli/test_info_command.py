"""`info` on data of every kind, and on runs."""

from __future__ import annotations

import gzip
import json
import re
import warnings
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import succeeds
from helpers import make_problem, make_store
from helpers import plain_fit as fit

from streamsvm import load_model
from streamsvm.errors import PlanError
from streamsvm.info import inspect
from streamsvm.reporting.history import History, achieved

N, D = 40, 6
OF_CS: dict[str, Any] = {"loss": "cs", "dtype": "float64", "C": 0.5, "average": False}
TEXT = "a 3:1 7:0.5\nb 1:-2e-3 # a comment\n\n# more\nc\n"
X = sp.random(N, D, 0.4, "csr", np.float32, np.random.default_rng(0))
TABLE = pd.DataFrame({"x": [1.5, -2.0], "label, quoted": ["p\tq", "r"], "n": [1, 2]})


def cells(path: Path) -> anndata.AnnData:
    obs = pd.DataFrame(
        {"type": pd.Categorical(["a", "b", "c", None] * (N // 4)), "depth": np.arange(N) * 0.5},
        index=[f"c{i}" for i in range(N)],
    )
    made = anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=[f"g{j}" for j in range(D)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.write_h5ad(path) if path.suffix == ".h5ad" else made.write_zarr(path)
    return made


OF_X = {"n": N, "d": D, "nnz": X.nnz}
OF_TABLE = {"n": 2, "columns": list(TABLE)}
FILES: list[tuple[str, Any, dict[str, Any]]] = [  # a file, what writes it, and the facts about it
    ("a.h5ad", cells, {"kind": "AnnData", "columns": ["type", "depth"], **OF_X}),
    ("a.zarr", cells, {"kind": "AnnData", "columns": ["type", "depth"], **OF_X}),
    ("text", lambda path: path.write_text(TEXT), {"n": 3, "d": 7, "nnz": 3, "classes": ["a", "b", "c"]}),
    ("text.gz", lambda path: path.write_bytes(gzip.compress(TEXT.encode())), {"n": 3, "index_base": 1}),
    ("sets", lambda path: path.write_text("1,5 qid:1 0:1\n5 qid:1 2:1\n 3:1\n"), {"n": 3, "d": 4, "qids": 2}),
    ("s.npz", lambda path: sp.save_npz(path, X.tocsc()), OF_X),
    ("a.npy", lambda path: np.save(path, np.ones((3, 4))), {"n": 3, "d": 4, "dtype": "float64"}),
    ("a.csv", lambda path: TABLE.to_csv(path, index=False), {"kind": "CSV", **OF_TABLE}),
    ("a.tsv.gz", lambda path: TABLE.to_csv(path, index=False, sep="\t"), OF_TABLE),
    ("a.parquet", TABLE.to_parquet, {"kind": "a Parquet table", **OF_TABLE}),
    ("a.jsonl", lambda path: TABLE.to_json(path, orient="records", lines=True), OF_TABLE),
]


def test_files_are_described_by_the_facts_that_other_libraries_know(tmp_path: Path) -> None:
    for name, write, expected in FILES:
        write(tmp_path / name)
        lines = succeeds("info", name, cwd=tmp_path).splitlines()
        assert max(map(len, lines)) <= 80, name
        found = json.loads(succeeds("info", name, "--verify", "--json", cwd=tmp_path))
        assert {key: found[key] for key in expected} == expected, name
    for name, column, classes in (("a.h5ad", "type", ["a", "b", "c"]), ("a.csv", "x", ["-2.0", "1.5"])):
        found = json.loads(succeeds("info", name, "--label", column, "--json", cwd=tmp_path))
        assert (found["n_classes"], found["classes"]) == (len(classes), classes)


def test_csc_is_described_by_its_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But an archive is loaded, into half of the memory that is free."""
    anndata.AnnData(X.tocsc()).write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "r+") as file:
        for part in "data", "indices", "indptr":
            del file["X"][part]  # chunks that are not written take no space
            file["X"].create_dataset(part, (D + 1 if part == "indptr" else 2**40,), "i8", chunks=(D,))
        file["X/indptr"][::D] = [0, 2**40]
    assert inspect(tmp_path / "a.h5ad").items() >= {"n": N, "d": D, "nnz": 2**40, "verified": False}.items()
    sp.save_npz(tmp_path / "s.npz", X)
    monkeypatch.setattr("streamsvm.data.memory_plan.available_memory", lambda: 4 * X.nnz)
    with pytest.raises(PlanError, match=r"loading its .* bytes needs twice as much"):
        inspect(tmp_path / "s.npz")


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A folder with runs, and what `fit` returned for each."""
    folder = tmp_path_factory.mktemp("runs")
    X, labels = make_problem(400, 8, 4, noise=1.0)
    train = make_store(folder / "train.h5", X[:300], labels[:300])
    valid = make_store(folder / "valid.h5", X[300:], labels[300:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {
            "ww": fit(train, out=folder / "ww", valid=valid, gap="pass"),
            "cs": fit(train, out=folder / "cs", valid=valid, **OF_CS),
            "part": fit(train, out=folder / "part", hold_out="1/4", gap="none", passes=1),
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
    assert float(shown["relative gap"]) == pytest.approx(made.relative_gap, rel=0.06)
    assert shown["training accuracy"] == f"{made.train_accuracy:.4f}"
    assert shown["effort"].startswith(f"3 passes, {made.seconds:.2f} s of training, peak memory")
    assert shown["data"] == "300 rows, 8 features, 4 classes"
    assert shown["loss"].startswith(f"{name}, C {made.C:.4g}")
    expected = {"ww": "gap pass", "cs": "dtype float64, average False"}[name]
    assert {*shown["other settings"].split(", ")} == {*expected.split(", "), "transform none"}
    assert max(len(line) for line in out.splitlines() if "/" not in line) <= 80
    record = json.loads(succeeds("info", name, "--json", cwd=folder))["result"]
    assert record["valid_accuracy"] == made.valid_accuracy == pytest.approx(right)
    assert record["relative_gap"] == made.relative_gap


def test_several_runs_are_compared_in_a_table(runs: dict[str, Any]) -> None:
    folder, made = runs["folder"], runs["made"]
    out = succeeds("info", "ww", "cs", cwd=folder)
    head, *rows = (re.split(r"  +", line) for line in out.partition("\n\n")[0].splitlines())
    assert head == ["run", "accuracy", "rel. gap", "C", "passes", "seconds"]
    best_first = sorted(("ww", "cs"), key=lambda name: -made[name].valid_accuracy)
    assert [row[0] for row in rows] == best_first
    for name, share, _, C, passes, _ in rows:
        assert share == f"{made[name].valid_accuracy:.4f}"
        assert (C, passes) == (f"{made[name].C:.4g}", "3")
    assert "  cs: loss cs, dtype float64, average False, gap end\n" in out
    assert "  ww: loss ww, dtype float32, average True, gap pass\n" in out
    found = json.loads(succeeds("info", "ww", "cs", "--json", cwd=folder))["runs"]
    assert [each["path"] for each in found] == ["ww", "cs"]


def test_accuracies_of_different_rows_are_said_not_to_compare(runs: dict[str, Any]) -> None:
    out = succeeds("info", "ww", "part", cwd=runs["folder"])
    for words in ("The accuracies were measured on different or unknown rows", "~ marks an estimate"):
        assert words in out
        assert words not in succeeds("info", "ww", "cs", cwd=runs["folder"])


def test_of_another_model_than_was_measured_there_is_no_figure() -> None:
    def of(model: dict[str, Any], **last: float) -> dict[str, Any]:
        reports = [{"pass": 1, "relative_gap": 0.5, "seconds": 1.0}, {"pass": 2, "seconds": 2.0, **last}]
        return achieved(History("run", {}, [], reports, []), model)

    both = {"valid_accuracy": 0.9, "last_iterate_valid_accuracy": 0.8}
    assert of({"passes": 2}, **both)["valid_accuracy"] == 0.9
    earlier = of({"passes": 1}, **both)  # a second pass has begun to replace the model
    assert (earlier["passes"], earlier["relative_gap"], earlier["valid_accuracy"]) == (1, 0.5, None)
    assert of({}, relative_gap=0.25)["seconds"] == 3.0
