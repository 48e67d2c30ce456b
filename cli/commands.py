"""Assembles the commands."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import warnings
from typing import Annotated, Any

import typer
from streamsvm_cli import convert, demo, evaluate, fit, info, online, predict, resume
from streamsvm_cli.console import complain
from typer.main import get_command

from streamsvm.errors import StreamsvmWarning

app = typer.Typer(
    name="streamsvm",
    help="Linear multi-class SVMs on data larger than memory, exactly, in a few passes over the disk.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (convert, info, fit, online, resume, predict, evaluate, demo):
    app.command()(getattr(module, module.__name__.rpartition(".")[2]))


def _version(wanted: bool) -> None:
    if wanted:
        from streamsvm import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def options_of(words: list[str]) -> set[str] | None:
    """Names of the options of the command in `words`; None if there is no such command."""
    command = get_command(app).commands.get(words[0]) if words else None  # type: ignore[attr-defined]
    return None if command is None else {parameter.name for parameter in command.params}


_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's mallopt


def give_memory_back(least: int = 2**20, kept: int | None = None) -> None:
    """Return the memory of arrays of `least` bytes and more to the system as soon as they are freed.

    By default, glibc keeps arrays of up to 32 MB in heaps, which fragment: a fit with --memory 100M took
    209 MB and more, and takes 140 MB with this setting. Of smaller arrays a heap keeps `kept` bytes, by
    default 128 KB: memory that is given back and taken again costs a page fault for every 4 KB.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, least)
            if kept is not None:
                ctypes.CDLL(None).mallopt(_TRIM_THRESHOLD, kept)


def warn_on_one_line() -> None:
    """Print the library's warnings as one line each, without the place in the code."""
    before = warnings.showwarning

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, StreamsvmWarning):
            complain(message)
        else:
            before(message, category, *place, **more)

    warnings.showwarning = show
