"""The command line `streamsvm`, assembled of its commands."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer
from streamsvm_cli import (
    calibrate,
    convert,
    demo,
    evaluate,
    export,
    fit,
    info,
    online,
    predict,
    report,
    resume,
    tune,
)
from streamsvm_cli.console import WARNED, warn_once
from streamsvm_cli.help import MAX_WIDTH, Command, Group
from streamsvm_cli.options import with_console
from typer.main import get_command

from streamsvm.errors import StreamsvmWarning

app = typer.Typer(
    name="streamsvm",
    cls=Group,
    help="Linear multi-class SVMs on data larger than memory, exactly, in a few passes over the disk.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH},
)
for module in (
    convert, info, fit, tune, online, resume, predict, evaluate, calibrate, report, export, demo,
):  # fmt: skip
    name = module.__name__.rpartition(".")[2]
    app.command(name, cls=Command)(with_console(getattr(module, name)))


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
    """Return the names of the options of the command in `words`; None if there is no such command."""
    command = get_command(app).commands.get(words[0]) if words else None  # type: ignore[attr-defined]
    return None if command is None else {parameter.name for parameter in command.params}


def warn_on_one_line() -> None:
    """Print the library's warnings as one line each, without the place in the code, and none twice."""
    before = warnings.showwarning
    WARNED.clear()

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, StreamsvmWarning):
            warn_once(message)
        else:
            before(message, category, *place, **more)

    warnings.showwarning = show
