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


_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's mallopt


def give_memory_back() -> None:
    """Have arrays of a megabyte and more leave this process when they are freed.

    By default glibc keeps up to 32 MB of each in heaps, which come apart: a fit with --memory 100M took
    209 MB and more, and 140 like this.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 2**20)


def warn_on_one_line() -> None:
    """Print the library's warnings as one line each, without the place in the code."""
    before = warnings.showwarning

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, StreamsvmWarning):
            complain(message)
        else:
            before(message, category, *place, **more)

    warnings.showwarning = show
