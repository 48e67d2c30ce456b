"""Bars and log lines of the Python functions, for those who ask and for nobody else."""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
from helpers import make_problem, text_lines
from streamsvm_converters import TextSource, convert

import streamsvm
from streamsvm.base import progress
from streamsvm.errors import InputError, SettingsError
from streamsvm.kernels import jit


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, stores of it, and a run."""
    path = tmp_path_factory.mktemp("progress")
    X, labels = make_problem(60, 8, 3)
    (path / "text").write_text("".join(text_lines(X, [f"class{label}" for label in labels])))
    convert(path / "text", path / "a.zarr")
    streamsvm.fit(path / "a.zarr", out=path / "run", passes=2)
    return path


# Functions that take a while: of a folder with data, a folder to write to, and `progress`.
X, Y = make_problem(30, 8, 3)
CALLS: dict[str, Callable[..., Any]] = {
    "fit": lambda data, to, **how: streamsvm.fit(data / "a.zarr", out=to / "fit", passes=2, **how),
    "fit of a matrix": lambda data, to, **how: streamsvm.fit(X, Y, passes=2, **how),
    "tune": lambda data, to, **how: streamsvm.tune(X, Y, C=[0.1, 1.0], passes_each=1, passes=1, **how),
    "resume": lambda data, to, **how: streamsvm.resume(
        shutil.copytree(data / "run", to / "run"), passes=3, **how
    ),
    "online": lambda data, to, **how: streamsvm.online(TextSource([data / "text"]), out=to / "online", **how),
    "evaluate": lambda data, to, **how: streamsvm.evaluate(data / "run", data / "a.zarr", **how),
    "predict": lambda data, to, **how: streamsvm.predict(data / "run", data / "a.zarr", **how),
    "calibrate": lambda data, to, **how: streamsvm.calibrate(
        streamsvm.load_model(data / "run"), data / "a.zarr", **how
    ),
    "convert": lambda data, to, **how: convert(data / "text", to / "b.zarr", **how),
}
SAID = {  # in a log line
    "evaluate": "Evaluation(n=60, ", "predict": "predicted 60 rows", "convert": "ConvertReport(path=",
    "calibrate": "Calibration(temperature=", "online": "rows: ",
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_function_tells_its_progress_and_prints_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    told: list[tuple[str, int, int | None]] = []
    with caplog.at_level(logging.INFO, logger="streamsvm"):
        CALLS[name](folder, tmp_path, progress=lambda *step: told.append(step))
    assert SAID.get(name, "") in caplog.text
    assert told
    by_stage: dict[str, list[int]] = {}
    for stage, done, total in told:
        assert isinstance(stage, str)
        assert total is None or 0 < done <= total
        by_stage.setdefault(stage, []).append(done)
    assert all(amounts == sorted(amounts) for amounts in by_stage.values())
    if name in ("fit", "evaluate", "predict", "calibrate"):
        assert all(amounts[-1] == 60 for amounts in by_stage.values())
        assert {total for *_, total in told} == {60}
    if name == "convert":
        assert ("convert", *[(folder / "text").stat().st_size] * 2) in told
        assert ("write", 60, 60) in told  # rows
        stage, done, total = told[-1]
        assert (stage, done) == ("write", total)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.parametrize("name", ["fit", "tune", "online", "convert"])
def test_bars_are_on_standard_error_when_asked_for_and_are_removed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, name: str
) -> None:
    CALLS[name](folder, tmp_path, progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    stages = {
        "fit": ["pass 1 of 2:", "pass 2 of 2:", "gap 2:"], "tune": ["pass 2 of 2:"], "online": ["rows"],
        "convert": ["convert:"],
    }[name]  # fmt: skip
    assert all(stage in printed.err for stage in stages), printed.err
    *_, last = printed.err.rstrip("\r").split("\r")
    assert last.strip() == ""  # blanks over the last bar


def test_by_default_only_a_terminal_or_a_notebook_shows_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not progress._is_watched()
    monkeypatch.setattr(sys, "stderr", None)
    assert not progress._is_watched()
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert progress._is_watched()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for config, shows in (({"IPKernelApp": {}}, True), ({}, False)):
        shell = types.SimpleNamespace(config=config)
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda s=shell: s))
        assert progress._is_watched() is shows
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert not progress._is_watched()


@pytest.mark.parametrize(("delay", "printed"), [(0.0, True), (3600.0, False)])
def test_a_bar_that_nobody_asked_for_appears_only_for_long_stages(
    monkeypatch: pytest.MonkeyPatch, delay: float, printed: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_BAR_DELAY", delay)
    with progress.shown(None) as report:
        for done in range(1, 4):
            report("stage", done, 3)
    assert ("stage" in terminal.getvalue()) is printed


def test_a_bar_is_closed_by_an_error(capsys: pytest.CaptureFixture) -> None:
    bars = []

    def work() -> None:
        with progress.shown(True) as report:
            report("stage", 1, 3)
            bars.append(report._bar)  # type: ignore[attr-defined]
            raise InputError("wrong")

    with pytest.raises(InputError):
        work()
    (bar,) = bars
    assert bar.disable  # as tqdm marks closed bars
    assert capsys.readouterr().err.endswith("\r")


@pytest.mark.parametrize(
    ("asked", "printed"),
    [(True, "streamsvm: compiling kernels, which happens once per machine\n"), (False, "")],
)
def test_those_who_see_bars_are_told_once_of_compiling(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool, printed: str
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def negative(number: float) -> float:
        return -number

    negative.__module__ = "streamsvm.somewhere"
    with progress.shown(asked):
        numba.njit(negative)(1.0)  # a function of others
        assert capsys.readouterr().err == ""
        compiled = jit.kernel(negative)
        compiled(1.0)
        assert capsys.readouterr().err == printed
        compiled(1)  # another type
        assert capsys.readouterr().err == ""
    with progress.shown(asked):
        jit.kernel(negative)(1.0)  # compiled already
        compiled(1j)  # by a command that follows
    assert capsys.readouterr().err == ""
    os.utime(next(tmp_path.rglob("said-compiling")), (0, 0))  # which were hours ago
    with progress.shown(asked):
        compiled(True)
    assert capsys.readouterr().err == printed


def test_progress_is_a_bool_or_a_function(folder: Path) -> None:
    for wrong in ("yes", 3, []):
        with pytest.raises(SettingsError, match="progress must be True, False, None or a function, not"):
            streamsvm.evaluate(folder / "run", folder / "a.zarr", progress=wrong)


# -- log lines -------------------------------------------------------------------------------------


def test_each_pass_is_a_line_with_what_was_measured(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = folder / "a.zarr"
    with caplog.at_level(logging.INFO, logger="streamsvm"):
        result = streamsvm.fit(data, out=tmp_path / "run", passes=3, gap="pass", valid=data)
    lines = [record.getMessage() for record in caplog.records if record.name == "streamsvm"]
    passes = [line for line in lines if line.startswith("pass ")]
    assert len(passes) == result.passes == 3
    assert result.averaged
    for line, report in zip(passes, result.history, strict=True):
        assert f"pass {report['pass']}: relative gap {report['average_relative_gap']:.2e}" in line
        assert f"valid accuracy {report['valid_accuracy']:.4f}" in line
        assert "60 rows" in line
    assert not [line for line in lines if line.startswith("plan")]  # which is for debugging
