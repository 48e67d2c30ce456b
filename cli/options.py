"""Options of the commands, declared as settings of the library are, and what makes commands of functions."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from streamsvm_cli.console import Console, complain, fail

from streamsvm.base.compiling import told_of_compiling
from streamsvm.base.text import parse_size
from streamsvm.errors import Interrupted, StreamsvmError
from streamsvm.settings.field import Setting

_KIND_NAMES = {  # in the help
    int: "NUMBER", float: "NUMBER", str: "TEXT", os.PathLike: "PATH", tuple: "A,B", range: "N-M",
}  # fmt: skip
_MAX_CHOICES_WIDTH = 45  # characters of a list of choices beside an option


@dataclasses.dataclass(frozen=True)
class Option(Setting):
    """Option of a command that is no setting of the library, or has words of its own.

    The default ``...`` stands for an option that must be given. A bool whose default is False has no --no.

    Attributes
    ----------
    letter : str
        Its short name, such as o.
    metavar : str
        What stands for the value in the help, instead of its type.
    """

    group: str = "Run"
    letter: str = ""
    metavar: str = ""


THREADS = Option(int, None, "Number of threads; by default one per processor.", group="Computing", least=1)
EVERY = Option(str, "60s", "Commit every 0.5s, 60s, 5m, or 8 blocks (8).", metavar="TIME|BLOCKS")
TRAINING = {
    "workers": Option(
        int, None,
        "Number of threads, or of workers of a cluster; by default one per processor, in training at most "
        "one per split.",
        group="Several cores", least=1,
    ),
    "cluster": Option(
        str, None, "Work on a Dask cluster: address of the scheduler, its file, or local for processes here.",
        group="Several cores", metavar="ADDRESS",
    ),
    "checkpoint_every": EVERY,
}  # fmt: skip
FORCE = Option(bool, False, "Replace what is there.")
MEMORY = Option(int, 2**28, "Memory budget, such as 500M or 2G.", group="Computing", size=True)
RUN = Option(os.PathLike, ..., "Run directory to create.", letter="o")
_OF_ALL = {
    "quiet": Option(bool, False, "Print nothing but errors.", group="Options", letter="q"),
    "json": Option(bool, False, "Print one JSON object at the end, and nothing else.", group="Options"),
}

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Run directory or model folder.")]
Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="Labelled rows: a store, or a file that convert takes.")
]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _lengths(text: str) -> Any:
    least, _, most = text.partition("-")
    return (int(least), int(most or least)) if (least + (most or least)).isdecimal() else text


def _number(kind: type, text: str) -> Any:
    """Return a number, or a word as it is, which the settings check."""
    try:
        return kind(text)
    except ValueError:
        return text


def command(*options: Mapping[str, Setting]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options, and the `console` that --quiet and --json ask for.

    Of options with the same name the first counts. Parameters of the function that are no keywords are its
    arguments.
    """
    declared: dict[str, Setting] = {}
    for some in (*options, _OF_ALL):
        declared = {**declared, **some, **declared}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        arguments = [each for each in own if each.kind is each.POSITIONAL_OR_KEYWORD]

        @functools.wraps(function)
        def call(*, quiet: bool, json: bool, **given: Any) -> None:
            console = Console(quiet=quiet, json=json)
            try:
                with console, told_of_compiling(complain if console.people else lambda line: None):
                    function(console, **given)
            except StreamsvmError as error:
                fail(error, declared)
            except KeyboardInterrupt:
                fail(Interrupted("interrupted"))

        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in arguments]
            + [_parameter(name, each) for name, each in declared.items()]
        )
        return call

    return decorate


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    default, values = setting.default, setting.values
    own = setting if isinstance(setting, Option) else None
    option = name.replace("_", "-")
    has_no = setting.kind is bool and not (own and default is False)
    names = [f"--{option}/--no-{option}" if has_no else f"--{option}"]
    kind: Any = setting.kind
    facts: dict[str, Any] = {
        "help": setting.help, "metavar": _KIND_NAMES.get(kind), "rich_help_panel": setting.group or None,
    }  # fmt: skip
    if values is not None:
        kind, facts["metavar"] = Literal[tuple(values)], None  # type: ignore[misc]
        if setting.titles is not None:
            pairs = zip(values, setting.titles(), strict=True)
            named = (f"{choice}: {title.partition(' (')[0]}" for choice, title in pairs)  # without the source
            facts |= {"metavar": "NAME", "help": f"{setting.help} {'; '.join(named)}."}
        elif len("|".join(values)) > _MAX_CHOICES_WIDTH:
            facts |= {"metavar": "NAME", "help": f"{setting.help} One of: {', '.join(values)}."}
    elif setting.size:
        facts |= {"parser": parse_size, "metavar": "SIZE"}
        default = f"{default >> 30}G" if default >= 2**30 else f"{default >> 20}M"
    elif kind is tuple:
        facts["parser"], default = _names, ",".join(default)
    elif kind is range:
        facts["parser"] = _lengths
    elif setting.words and kind is os.PathLike:
        kind, facts["metavar"] = str, "|".join([*setting.words, "FILE"])
    elif setting.words:
        facts |= {"parser": functools.partial(_number, kind), "metavar": "|".join(["NUMBER", *setting.words])}
    elif kind is int:
        facts |= {"min": setting.least, "max": setting.most if setting.most < 2**63 - 1 else None}
    elif kind is os.PathLike:
        kind = Path
    if own:
        names += [f"-{own.letter}"] * bool(own.letter)
        facts |= {"metavar": own.metavar} if own.metavar else {}
    if setting.repeated:
        kind, default = list[kind], None if default is None else [default]
    if default is None:
        kind = kind | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, typer.Option(*names, **facts)],
        default=inspect.Parameter.empty if default is ... else default,
    )  # fmt: skip
