"""The command line `streamsvm`, assembled of its commands, of which only the one that is called is built."""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from streamsvm_cli.console import WARNED, columns, warn_once
from streamsvm_cli.wording import did_you_mean, usage_text, wrapped
from typer.core import TyperGroup
from typer.main import get_command

from streamsvm.base.text import printable
from streamsvm.errors import StreamsvmWarning

MAX_WIDTH = 110  # columns of help; longer lines are hard to read
_UsageError: Any = typer.BadParameter.__base__  # of the click that Typer has, in its versions
_OTHER_NAMES = {"train": "fit", "search": "tune", "test": "evaluate", "score": "predict"}  # elsewhere
_PLAIN: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": None}
_SUMMARIES = {  # of the commands, each in the file of its name: the first line of its help
    "convert": "Turn text, tables, AnnData or arrays into a store.",
    "info": "Describe data, a run or a model, or compare runs.",
    "fit": "Train a linear multi-class SVM.",
    "tune": "Choose C, and other settings of several, and train with them.",
    "online": "Train on rows as they are read, each once.",
    "resume": "Continue an interrupted run, or extend a finished one.",
    "predict": "Predict labels: as lines, a table, or columns of AnnData.",
    "evaluate": "Measure a model on labelled data.",
    "calibrate": "Fit the probabilities of a model to hold-out data.",
    "report": "Write a report of a run: one HTML file to look at or send.",
    "export": "Write a model for another program, or a smaller one for this.",
    "demo": "Run all steps on real data, in under a minute.",
}


@functools.cache
def _built(name: str) -> Any:
    """Import a command, and let Typer make its options."""
    from streamsvm_cli.help import Command

    alone = typer.Typer(add_completion=False, **_PLAIN)
    alone.command(name, cls=Command)(getattr(importlib.import_module(f"streamsvm_cli.{name}"), name))
    return get_command(alone)


class _Commands(Mapping[str, Any]):
    """The commands by name, each built when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        _SUMMARIES[name]  # KeyError
        return _built(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_SUMMARIES)

    def __len__(self) -> int:
        return len(_SUMMARIES)


class Group(TyperGroup):
    """Group of the commands, which prints the help of one before Typer imports all that checks values."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            name = printable(args[0])
            near = _OTHER_NAMES.get(name)
            hint = f"; {near} does that" if near else did_you_mean(name, self.commands)
            ctx.fail(f"there is no command {name}{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            begin = "Error: "  # of Typer
            text = wrapped(begin + usage_text(error), columns(sys.stderr), whole=True)
            raise _UsageError(text.removeprefix(begin), error.ctx) from None  # type: ignore[attr-defined]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUMMARIES.items()))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = args[: args.index("--")] if "--" in args else args
        if any(word in ctx.help_option_names for word in words) and args[0] in self.commands:
            command = self.commands[args[0]]
            settings = command.context_settings
            command.names_others = "--help" not in words
            print(command.get_help(command.context_class(command, info_name=args[0], parent=ctx, **settings)))
            raise typer.Exit
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="streamsvm",
    cls=Group,
    help="Linear multi-class SVMs on data larger than memory, exactly, in a few passes over the disk.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH},
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
