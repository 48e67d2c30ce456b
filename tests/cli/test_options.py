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
BY_METAVAR: dict[str | None, tuple[str, Any]] = {  # of options: a word, and what it stands for
    "NUMBER": ("7", 7), "NUMBER|auto": ("7", 7), "EPS": ("0.5", 0.5), "SIZE": ("3M", 3 * 2**20),
    "TEXT": ("x", "x"), "A,B": ("a,b", ("a", "b")), "N-M": ("1-3", (1, 3)), "FILE|LIST": ("b,a", ["a", "b"]),
    "PATH": PATH, "HTML": PATH, "PATH|balanced": PATH, "PATH|-": PATH, "TIME|BLOCKS": ("5m", "5m"),
    "ADDRESS": ("x", "x"),
}  # fmt: skip
VALUES: dict[str, tuple[str, Any]] = {  # of options with few values, and others
    "analyzer": ("char", "char"), "average": ("--no", False), "codec": ("small", "small"),
    "decimal": (",", ","), "delimiter": (";", ";"), "dtype": ("float32", "float32"), "format": ("csv", "csv"),
    "gap": ("pass", "pass"), "index_base": ("1", 1), "join": ("outer", "outer"),
    "keep_data": ("--no", False), "labels_as": ("text", "text"), "loss": ("cs", "cs"),
    "missing": ("mean", "mean"), "on_error": ("skip", "skip"), "shuffle": ("--no", False),
    "smooth": ("0.5", 0.5), "solver": ("newton", "newton"), "split": ("rows", "rows"),
    "store": ("some/path", [Path("some/path")]), "threshold": ("-0.5", -0.5),
    "unseen_label": ("keep", "keep"),
}  # fmt: skip
OF_COMMANDS: dict[str, dict[str, tuple[str, Any]]] = {  # where it is something else
    "tune": {"C": ("2^-1:2", ["2^-1:2"]), "loss": ("ww,cs", ["ww,cs"]), "margin": ("0.5", [0.5]),
             "transform": ("l2", ["l2"])},
    "evaluate": {"top_k": ("7", (1, 7))},
    "convert": {"out": ("a.zarr", Path("a.zarr"))},
    "online": {"sample_weight": ("none", "none")},
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
        by_kind = FLAG if each.is_flag else BY_METAVAR.get(each.metavar)
        word, value = (VALUES | OF_COMMANDS.get(command, {})).get(name, by_kind)
        option = f"--{name.rstrip('_').replace('_', '-')}"
        words = [option.replace("--", "--no-")] if word == "--no" else [option, *word.split()]
        if name != "out" and any(other.name == "out" and other.required for other in parameters):
            words += ["--out", "a.zarr"]
        calls.clear()
        of_text = name in ("index_base", "labels_as", "on_error")
        data = ["text" if of_text else "x.npy"] if command == "online" else ARGUMENTS.get(command, ["data"])
        assert "called" in fails(1, command, *data, *words), (command, name)
        assert calls[name] == value, (command, name)
