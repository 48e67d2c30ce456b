"""The scripts in `examples/`, and the README's commands on the same data, run as a user runs them."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anndata
import joblib
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import warm_process
from helpers import make_problem, make_store, text_lines
from run_files import model_bytes

import streamsvm

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def run(command: list[str], folder: Path) -> tuple[str, str]:
    """What a command prints, and what it says on standard error."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def run_example(name: str, folder: Path) -> tuple[str, str]:
    return run([sys.executable, "-W", "error", str(ROOT / "examples" / name)], folder)


def in_readme(language: str, containing: str = "", section: str = "") -> str:
    """Return the one code block of the README, or of a section, in a language that contains some text."""
    (text,) = re.findall(rf"\n## {section}(.*?)\n## ", f"{README}\n## ", re.DOTALL) if section else (README,)
    (found,) = (
        each for each in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) if containing in each
    )
    return found


def in_shell(commands: str, folder: Path) -> None:
    run(["bash", "-ec", "set -o pipefail\n" + commands], folder)


def load_example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def number(pattern: str, text: str) -> float:
    (found,) = re.findall(pattern, text)
    return float(found.replace(",", ""))


@pytest.mark.more
def test_atlas(tmp_path: Path) -> None:
    out, messages = run_example("atlas.py", tmp_path)
    right = number(r"right: ([\d.]+) of all cells", out)
    assert right > 0.93
    assert right == pytest.approx(number(r"\n +accuracy +([\d.]+)\n", out), abs=5e-4)
    assert number(r"cells, ([\d.]+) of the half", out) > right
    assert number(r"(\d+) blocks; memory", out) > 2  # or the order of the file would not matter
    assert "not shuffled" not in messages
    atlas, query = (anndata.read_h5ad(tmp_path / f"{name}.h5ad") for name in ("atlas", "query"))
    missing = len(set(atlas.var_names) - set(query.var_names))
    assert set(re.findall(r"(\d+) are missing", messages)) == {str(missing)}
    in_shell(in_readme("sh", section="Single-cell data"), tmp_path)
    predicted = pq.read_table(tmp_path / "types.parquet")
    assert predicted["row"].to_pylist() == query.obs_names.tolist()
    assert (predicted["label"].to_numpy() == query.obs["cell_type"].astype(str)).mean() > 0.93


@pytest.mark.more
def test_texts(tmp_path: Path) -> None:
    out, _ = run_example("texts.py", tmp_path)
    assert number(r"right: ([\d.]+) of", out) > 0.95
    assert 0.9 < number(r"progressive accuracy ([\d.]+)", out) < 1
    predicted = pq.read_table(tmp_path / "predictions.parquet")
    assert predicted["row"].to_pylist() == list(range(1, 1001))
    assert predicted.column_names == ["row", "label", "score", "margin"]
    (tmp_path / "texts.zarr").rename(tmp_path / "earlier.zarr")
    in_shell(in_readme("sh", section="Text"), tmp_path)
    again = pq.read_table(tmp_path / "topics.parquet")["label"].to_numpy()
    assert (again == predicted["label"].to_numpy()).mean() > 0.95  # of three passes instead of one


@pytest.mark.more
def test_the_example_of_tables(tmp_path: Path) -> None:
    X, labels = make_problem(300, 3, 3)
    people = pd.DataFrame(X.toarray(), columns=["age", "height", "income"])
    people["town"] = ["Ulm", "Bonn", "Kiel"] * 100
    people.assign(group=[f"group{label}" for label in labels]).to_csv(tmp_path / "people.csv", index=False)
    people.to_parquet(tmp_path / "new.parquet")
    in_shell(in_readme("sh", section="Tables"), tmp_path)
    predicted = pd.read_csv(tmp_path / "groups.csv")["label"].tolist()
    assert joblib.load(tmp_path / "people.joblib").predict(people).tolist() == predicted


@pytest.mark.more
def test_the_example_of_embeddings(tmp_path: Path) -> None:
    X, labels = make_problem(400, 20, 4, density=1)
    np.save(tmp_path / "vectors.npy", X.toarray().astype(np.float32))
    np.save(tmp_path / "labels.npy", labels)
    in_shell(in_readme("sh", section="Embeddings"), tmp_path)
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert len(lines) == 401


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder with LIBSVM text in the files `train`, `test` and `more.gz`."""
    X, labels = make_problem(90, 12, 4, noise=1.5)
    lines = text_lines(X, [f"class{label}" for label in labels])
    (tmp_path / "train").write_text("".join(lines[:70]))
    (tmp_path / "test").write_text("".join(lines[70:]))
    (tmp_path / "more.gz").write_bytes(gzip.compress("".join(lines).encode()))
    return tmp_path


def test_the_command_line_example(text: Path) -> None:
    in_shell(in_readme("sh", "streamsvm convert train"), text)
    predicted = (text / "labels.txt").read_text().splitlines()
    assert len(predicted) == 20
    assert all(len(line.split("\t")) == 6 for line in predicted)  # three labels, each with its score
    assert (text / "stream-run/model/model.json").exists()


def test_the_example_of_workers(text: Path) -> None:
    pytest.importorskip("distributed")
    in_shell("streamsvm convert train --out train.zarr\n" + in_readme("sh", "--cluster local"), text)
    assert model_bytes(text / "threads") == model_bytes(text / "processes")


def test_the_python_example(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(text)
    names: dict[str, Any] = {"X": make_problem(30, 12, 4)[0]}
    exec(in_readme("python", "import fit"), names)
    assert names["result"].passes == 3
    assert len(names["labels"]) == 30
    assert set(names["model"].classes_) <= {f"class{c}" for c in range(4)}


@pytest.mark.parametrize("block_rows", [None, 17])
def test_walrus(tmp_path: Path, block_rows: int | None) -> None:
    X, labels = make_problem(70, 11, 5, noise=1.5, empty=1)
    (tmp_path / "train.libsvm").write_text("".join(text_lines(X, labels)))
    streamsvm.convert([tmp_path / "train.libsvm"], tmp_path / "train.zarr")
    walrus, lines = load_example("walrus"), []
    W, average, *objectives = walrus.train(
        tmp_path / "train.zarr", C=0.3, passes=4, block_rows=block_rows, report=lines.append
    )
    assert np.abs(W - average).max() > 1e-3
    for averaged, expected in (False, W), (True, average):
        result = streamsvm.fit(
            tmp_path / "train.zarr", out=tmp_path / "run", C=0.3, passes=4, block_rows=block_rows,
            inner_passes=0, dtype="float64", average=averaged, transform="none", force=True,
        )  # fmt: skip
        np.testing.assert_allclose(streamsvm.load_model(tmp_path / "run").coef_.T, expected, atol=1e-9)
    for measured, (primal, dual) in zip((result.last_iterate, vars(result)), objectives, strict=True):
        assert [measured["primal"], measured["dual"]] == pytest.approx([primal, dual], rel=1e-9)
        assert measured["gap"] == pytest.approx(primal - dual, rel=1e-7)
    estimates = [number(r"primal about (\S+)", line) for line in lines]
    history = [record["primal_estimate"] for record in result.history]
    assert estimates == pytest.approx(history, rel=1e-6)


def test_the_command_line_of_walrus(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a.zarr", *make_problem(30, 6, 3))
    program = (ROOT / "examples/walrus.py").read_text()
    out = warm_process.run(store, "--passes", 200, code=program, cwd=tmp_path).out
    assert number(r"last iterate: .* relative gap (\S+)", out) < 1e-6


def test_dask_predict(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    stores = [make_store(tmp_path / f"{seed}.zarr", *make_problem(60, 12, 4, seed=seed)) for seed in (0, 1)]
    streamsvm.fit(stores[0], out=tmp_path / "run", passes=1, C=0.1, progress=False)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0"
    ) as cluster:
        words = ["run", "tables", *(store.name for store in stores), "--scheduler", cluster.scheduler_address]
        program = (ROOT / "examples/dask_predict.py").read_text()
        out = warm_process.run(*words, code=program, cwd=tmp_path).out
    assert out.count("60 rows") == 2
    for store in stores:
        streamsvm.predict(tmp_path / "run", store, tmp_path / "here.csv", force=True)
        assert (tmp_path / f"tables/{store.stem}.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


def test_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fastapi = pytest.importorskip("fastapi")
    X, codes = make_problem(60, 12, 4)
    model = streamsvm.fit(X, np.array(list("abcd"))[codes], transform="none")
    model.save(tmp_path / "model")
    monkeypatch.setenv("STREAMSVM_MODEL", str(tmp_path / "model"))
    service = load_example("service")
    assert {route.path for route in service.app.routes} >= {"/predict", "/model"}
    for i in range(5):
        part = slice(*X.indptr[i : i + 2])
        row = {"indices": X.indices[part].tolist()[::-1], "values": X.data[part].tolist()[::-1], "top_k": 2}
        answer = asyncio.run(service.predict(service.Row(**row)))
        scores = model.decision_function(X[[i]])[0]
        assert answer["labels"] == model.classes_[np.argsort(-scores)[:2]].tolist()
        np.testing.assert_allclose(answer["scores"], np.sort(scores)[::-1][:2], rtol=1e-5)
    for indices, values in ([12], [1]), ([1, 1], [1, 2]), ([1], []), ([2**70], [1]), ([1], [1e300]):
        with pytest.raises(fastapi.HTTPException, match="422"):
            asyncio.run(service.predict(service.Row(indices=indices, values=values)))
    assert asyncio.run(service.predict(service.Row(indices=[], values=[])))["labels"] == ["a"]
    assert asyncio.run(service.describe()) == {"classes": list("abcd"), "n_features": 12}
