"""The command line as tests run it, most of them in this process: its exit code, and what it prints."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import warnings
from pathlib import Path

import pytest
from streamsvm_cli import main
from warm_process import Ended, run

from streamsvm.base import progress

SHORT = re.compile("the tolerance .* was not reached|value tried; ")
COMPILING = f"streamsvm: {progress.COMPILING}\n"


def streamsvm(*words: object, cwd: Path | None = None) -> Ended:
    """Run the command `words` in the folder `cwd`.

    That kernels were compiled is left out: it depends on the tests before.
    """
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        contextlib.chdir(Path.cwd() if cwd is None else cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")  # printed, as outside of tests, and not raised
        patch.setattr(sys, "argv", ["streamsvm", *map(str, words)])
        try:
            main.run()
        except SystemExit as ended:
            code = ended.code or 0
    return Ended(int(str(code)), out.getvalue(), err.getvalue().replace(COMPILING, ""))


def succeeds(*words: object, cwd: Path | None = None, notes: bool = False) -> str:
    """What a command prints that does not fail. Only with `notes` may it write to standard error.

    That a training was short is no fault of a test.
    """
    code, out, err = streamsvm(*words, cwd=cwd)
    assert code == 0, err
    assert notes or not [line for line in err.splitlines() if not SHORT.search(line)], err
    return out


def fails(code: int, *words: object, cwd: Path | None = None) -> str:
    """The message of a command that ends with `code`: one line, unless it shows the usage."""
    ended = streamsvm(*words, cwd=cwd)
    assert ended.code == code, ended
    assert "Traceback" not in ended.err
    if not ended.err.startswith("Usage: "):
        assert ended.err.count("\n") == 1, ended.err
        assert ended.err.startswith("streamsvm: ")
    return ended.err


def piped(*words: object, cwd: Path, text: bytes = b"", stdout: int | None = None) -> Ended:
    """A command in a process of its own, which reads `text` from a pipe."""
    code, out, err = run(*words, cwd=cwd, input=text, stdout=stdout)
    return Ended(code, out, err.replace(COMPILING, ""))
