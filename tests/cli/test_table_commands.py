"""Tables and text columns on the command line: from a file to predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import HashingVectorizer
from streamsvm_cli.commands import app
from typer.testing import CliRunner

from streamsvm import load_model
from streamsvm.errors import StreamsvmWarning

N = 300


def run(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in words], standalone_mode=True)
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b"], N)
    return pd.DataFrame(
        {
            "x": (rng.normal(size=N) + 2 * (y == "a")).round(3),
            "colour": np.where(rng.random(N) < 0.7, np.where(y == "a", "red", "blue"), "grey"),
            "body": [" ".join(rng.choice(["up", "top"] if c == "a" else ["down", "top"], 5)) for c in y],
            "y": y,
        }
    )


def test_a_table_is_read_for_predictions_as_it_was_for_training(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    said = run("convert", tmp_path / "t.csv", "--out", tmp_path / "a.zarr", "--label", "y", "--drop", "body")
    assert "column 'colour' as 3 categories: 'blue', 'grey', 'red'" in said.output
    run("fit", tmp_path / "a.zarr", "--out", tmp_path / "run", "--passes", "2", "--quiet")
    new = frame.assign(colour=["red", "violet"] * (N // 2))[
        ["colour", "x"]
    ]  # in another order, without labels
    new.to_parquet(tmp_path / "new.parquet")
    with pytest.warns(StreamsvmWarning, match=r"categories unknown to the model have no feature .150 in all"):
        done = run("predict", tmp_path / "run", tmp_path / "new.parquet")
    X = np.column_stack([new["x"], *(new["colour"] == value for value in ("blue", "grey", "red"))])
    model = load_model(tmp_path / "run")
    wanted = model.predict(pd.DataFrame(X, columns=["x", "colour=blue", "colour=grey", "colour=red"]))
    assert done.stdout.split() == wanted.tolist()
    record = json.loads(
        run("evaluate", tmp_path / "run", tmp_path / "t.csv", "--label", "y", "--json").stdout
    )
    features = pd.get_dummies(frame[["x", "colour"]], prefix_sep="=").astype(float)
    assert record["accuracy"] == np.mean(model.predict(features) == frame["y"])


def test_the_encoding_survives_a_resumed_run_and_a_saved_model(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    run(
        "fit", tmp_path / "t.csv", "--out", tmp_path / "run", "--label", "y", "--text", "body", "--ngrams",
        "1-3", "--bits", "8", "--passes", "2", "--keep-duals", "--quiet",
    )  # fmt: skip
    run("resume", tmp_path / "run", "--passes", "3", "--quiet")
    load_model(tmp_path / "run").save(tmp_path / "saved")
    frame[["body"]].to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    X = HashingVectorizer(n_features=256, ngram_range=(1, 3)).transform(frame["body"])
    wanted = load_model(tmp_path / "run").predict(X).tolist()
    assert np.mean(np.array(wanted) == frame["y"]) > 0.9
    for model in ("run", "saved"):
        assert run("predict", tmp_path / model, tmp_path / "new.jsonl").stdout.split() == wanted
