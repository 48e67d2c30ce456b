"""Define the program `streamsvm`, which imports and builds only the command that is called."""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Annotated, Any

import typer
from streamsvm_cli.console import WARNED, warn
from typer.core import TyperGroup
from typer.main import get_command

from streamsvm.errors import StreamsvmWarning

_PLAIN: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": None}
_SUMMARIES = {  # first docstring line of each command, so that help need not import all commands
    "convert": "Convert text, tables, AnnData or arrays to a store.",
    "info": "Describe data, a run or a model, or compare runs.",
    "fit": "Train a linear multi-class SVM.",
    "tune": "Choose C and other settings, and train with the best.",
    "online": "Train on a stream of rows, visiting each row once.",
    "resume": "Continue an interrupted run, or extend a finished one.",
    "predict": "Predict labels, and write them as lines or a table.",
    "evaluate": "Measure a model on labelled data.",
    "calibrate": "Fit the probabilities of a model to hold-out data.",
    "report": "Write a report of a run as one HTML file.",
    "export": "Write a model for another program, or a smaller copy.",
    "demo": "Run all steps on real data, in under a minute.",
}


@functools.cache
def built(name: str) -> Any:
    """Import a command, build it with Typer, and return it."""
    from streamsvm_cli.help import Command

    alone = typer.Typer(add_completion=False, **_PLAIN)
    alone.command(name, cls=Command)(getattr(importlib.import_module(f"streamsvm_cli.{name}"), name))
    return get_command(alone)


class Group(TyperGroup):
    """Group of commands, which are imported only when they are called."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands = dict.fromkeys(_SUMMARIES)  # type: ignore[assignment]  # names only

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return built(cmd_name) if cmd_name in _SUMMARIES else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        command = self.get_command(ctx, args[0]) if args else None
        if command and not {"-h", "--help"}.isdisjoint(args):
            command.short = "--help" not in args
            print(command.get_help(command.context_class(command, info_name=args[0], parent=ctx)))
            raise typer.Exit
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUMMARIES.items()))


app = typer.Typer(
    name="streamsvm",
    cls=Group,
    help="Linear multi-class SVMs on data larger than memory, exactly, in a few passes over the disk.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_PLAIN,
)


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


def warn_on_one_line() -> None:
    """Print each warning of the library only once, on one line, without its location in the code."""
    before = warnings.showwarning
    WARNED.clear()

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, StreamsvmWarning):
            warn(message)
        else:
            before(message, category, *place, **more)

    warnings.showwarning = show
