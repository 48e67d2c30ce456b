"""Each option of each command reaches the parameter of the library that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamsvm_converters
from command_line import fails
from streamsvm_cli.commands import _SUMMARIES, built

import streamsvm
from streamsvm import info
from streamsvm.errors import RunError
from streamsvm.run.directory import RunDir

PATH = ("some/path", Path("some/path"))
FLAG = ("", True)
VALUES: dict[str, tuple[str, Any]] = {  # of options: a word, and what it stands for
    "C": ("0.5", 0.5), "analyzer": ("char", "char"), "average": ("--no", False),
    "bits": ("9", 9), "block_rows": ("7", 7), "cache": PATH,
    "categorical": ("a,b", ("a", "b")), "checkpoint_every": ("5m", "5m"), "chunk_nnz": ("7", 7),
    "class_weight": ("balanced", "balanced"), "classes": ("b,a", ["a", "b"]), "cluster": ("local", "local"),
    "codec": ("small", "small"), "costs": PATH, "data": PATH,
    "drop": ("a,b", ("a", "b")), "dtype": ("float32", "float32"), "folds": ("7", 7),
    "force": FLAG, "format": ("csv", "csv"), "gap": ("pass", "pass"), "groups": FLAG, "hash_bits": ("9", 9),
    "hold_out": ("1/7", "1/7"), "index_base": ("1", 1), "inner_passes": ("7", 7),
    "join": ("outer", "outer"), "keep_data": ("--no", False), "keep_duals": FLAG,
    "label": ("y", "y"), "labels": PATH, "labels_as": ("text", "text"), "layer": ("x", "x"), "like": PATH,
    "loss": ("cs", "cs"), "margin": ("0.5", 0.5), "memory": ("3M", 3 * 2**20), "missing": ("mean", "mean"),
    "multilabel": FLAG, "n_features": ("7", 7), "n_labels": ("7", 7), "ngrams": ("1-3", (1, 3)),
    "obsm": ("x", "x"), "on_error": ("skip", "skip"), "out": PATH, "passes": ("7", 7),
    "passes_each": ("7", 7),
    "proba": FLAG, "prune": ("0.5", 0.5), "raw": FLAG, "resume_or_start": FLAG,
    "sample_weight": ("w", "w"), "scores": FLAG, "seed": ("7", 7), "shuffle": ("--no", False),
    "slice_rows": ("7", 7), "smooth": ("0.5", 0.5), "solver": ("newton", "newton"),
    "split": ("rows", "rows"), "splits": ("7", 7),
    "store": ("some/path", [Path("some/path")]), "temperature": ("0.5", 0.5),
    "text": ("a,b", ("a", "b")), "threads": ("7", 7), "threshold": ("-0.5", -0.5),
    "tol": ("0.5", 0.5), "top": ("7", 7), "top_k": ("7", 7), "transform": ("l2", "l2"), "tree": PATH,
    "unseen_label": ("keep", "keep"), "valid": PATH, "valid_labels": PATH, "verify": FLAG,
    "weights": PATH, "workers": ("7", 7),
}  # fmt: skip
OF_COMMANDS: dict[str, dict[str, tuple[str, Any]]] = {  # where it is something else
    "tune": {"C": ("2^-1:2", ["2^-1:2"]), "loss": ("ww,cs", ["ww,cs"]), "margin": ("0.5", [0.5]),
             "transform": ("l2", ["l2"])},
    "evaluate": {"top_k": ("7", (1, 7))},
    "convert": {"out": ("a.zarr", Path("a.zarr"))},
    "online": {"sample_weight": ("none", "none")},
    "fit": {"class_weight": PATH},
    "export": {"format": ("liblinear", "liblinear"), "dtype": ("float16", "float16")},
}  # fmt: skip
ELSEWHERE = {"quiet", "json", "dry_run", "confusion", "dir"}  # what they do is tested in other files
ARGUMENTS = {"predict": ["run", "data"], "evaluate": ["run", "data"], "calibrate": ["run", "data"]}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of the function of the library that a command calls, which fails at once."""
    found: dict[str, Any] = {}

    def call(*args: Any, **given: Any) -> Any:
        found.update(given, out=args[-1] if "out" not in given else given["out"])
        raise RunError("called")

    for name in ["export_model", *(name for name in _SUMMARIES if hasattr(streamsvm, name))]:
        monkeypatch.setattr(streamsvm, name, call)
    monkeypatch.setattr(streamsvm_converters, "convert", call)
    monkeypatch.setattr(streamsvm_converters, "TextSource", lambda *args, **given: found.update(given))
    monkeypatch.setattr(info, "inspect", call)
    monkeypatch.setattr(RunDir, "read_settings", lambda run: {})
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.eye(2))
    (tmp_path / "text").write_text("a 1:1\n")
    return found


@pytest.mark.parametrize("command", sorted(_SUMMARIES.keys() - {"demo"}))
def test_options_reach_the_library(command: str, calls: dict[str, Any]) -> None:
    parameters = [each for each in built(command).params if each.param_type_name == "option"]
    for each in parameters:
        name = each.name
        if name in ELSEWHERE or (command, name) in (("evaluate", "force"), ("online", "like")):
            continue
        word, value = (VALUES | OF_COMMANDS.get(command, {}))[name]
        option = f"--{name.replace('_', '-')}"
        words = [option.replace("--", "--no-")] if word == "--no" else [option, *word.split()]
        if name != "out" and any(other.name == "out" and other.required for other in parameters):
            words += ["--out", "a.zarr"]
        calls.clear()
        of_text = name in ("index_base", "labels_as", "on_error")
        data = ["text" if of_text else "x.npy"] if command == "online" else ARGUMENTS.get(command, ["data"])
        assert "called" in fails(1, command, *data, *words), (command, name)
        assert calls[name] == value, (command, name)
