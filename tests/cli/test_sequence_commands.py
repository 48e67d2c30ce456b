"""Sequences on the command line: from text with groups to labels and metrics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import fails, succeeds

from streamsvm import load_model


def write_text(path: Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Groups of two and three rows, whose labels alternate; returns the labels and the groups."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 4, size=40)
    qid = np.repeat(np.arange(40), lengths)
    within = np.arange(len(qid)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    labels = (np.repeat(rng.integers(2, size=40), lengths) + within) % 2
    values = labels + rng.normal(size=len(qid))
    lines = [f"{'ab'[y]} qid:{g} 1:1 2:{v:.4f}\n" for y, g, v in zip(labels, qid, values, strict=True)]
    path.write_text("".join(lines))
    return labels, qid


def test_sequences_from_text_to_metrics(tmp_path: Path) -> None:
    write_text(tmp_path / "train.svm", 0)
    labels, qid = write_text(tmp_path / "test.svm", 1)
    store, test, model = tmp_path / "train.zarr", tmp_path / "test.zarr", tmp_path / "run"
    succeeds("convert", tmp_path / "train.svm", "--out", store, "--groups")
    succeeds("convert", tmp_path / "test.svm", "-o", test, "--groups", "--no-shuffle", "--like", store)
    options = ("--loss", "chain", "--dtype", "float64", "--passes", 20, "--valid", test)
    succeeds("fit", store, "--out", model, *options)
    assert load_model(model).transitions_.shape == (2, 2)
    predicted = np.array(["ab".index(line) for line in succeeds("predict", model, test).split()])
    alternates = (predicted[1:] != predicted[:-1])[qid[1:] == qid[:-1]]
    assert alternates.mean() > 0.9  # which the transitions have learned
    assert succeeds("predict", model, tmp_path / "test.svm").split() == ["ab"[code] for code in predicted]
    of_text = json.loads(succeeds("evaluate", model, tmp_path / "test.svm", "--json"))
    found = json.loads(succeeds("evaluate", model, test, "--json"))
    assert (of_text["accuracy"], of_text["sequence_accuracy"]) == (
        found["accuracy"],
        found["sequence_accuracy"],
    )
    assert found["accuracy"] == pytest.approx((predicted == labels).mean())
    whole = np.logical_and.reduceat(predicted == labels, np.flatnonzero(np.diff(qid, prepend=-1)))
    assert found["sequence_accuracy"] == pytest.approx(whole.mean())
    assert f"sequence accuracy  {whole.mean():.4f}" in succeeds("evaluate", model, test)


def test_text_without_groups_says_what_to_do(tmp_path: Path) -> None:
    write_text(tmp_path / "a.svm", 0)
    succeeds("convert", tmp_path / "a.svm", "--out", tmp_path / "a.zarr")
    chain = ("--out", tmp_path / "run", "--loss", "chain")
    assert "convert --groups" in fails(2, "fit", tmp_path / "a.zarr", *chain)
    assert "chain" in fails(2, "online", tmp_path / "a.svm", *chain)
