"""Options that several commands share, and those generated from the settings of the library."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.wording import wrong_usage

from streamsvm.base.text import parse_size
from streamsvm.errors import SettingsError
from streamsvm.settings.field import Setting, declared
from streamsvm.settings.fit import Settings

_WITH_DETAILS = ("info", "fit", "tune", "online", "resume")
_MAX_CHOICES_WIDTH = 45  # characters of a list of choices beside an option

Command = TypeVar("Command", bound=Callable[..., None])


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except SettingsError as error:
        raise wrong_usage(str(error)) from None


Workers = Annotated[
    int | None,
    typer.Option(
        help="Number of threads, or of workers of a cluster; by default one per processor, in training at "
        "most one per split.",
        min=1,
    ),
]
ScoringThreads = Annotated[
    int | None, typer.Option(min=1, help="Number of threads; by default one per processor.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Work on a Dask cluster: address of the scheduler, its file, or local for processes here.",
        metavar="ADDRESS",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all there is to say.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Memory = Annotated[
    int, typer.Option("--memory", parser=_size, metavar="SIZE", help="Memory budget, such as 500M or 2G.")
]
Every = Annotated[
    str,
    typer.Option(
        "--checkpoint-every", metavar="TIME|BLOCKS", help="Commit every 0.5s, 60s, 5m, or 8 blocks (8)."
    ),
]
Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="LIBSVM text, plain or .gz .bz2 .xz .zst, - for standard input; or stores, AnnData or a matrix.",
    ),
]
UnseenLabel = Annotated[
    Literal["error", "keep"],
    typer.Option(help="With known classes: whether another label is an error, or kept and counted as wrong."),
]
Files = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="LIBSVM text, CSV, TSV or JSON lines, plain or .gz .bz2 .xz .zst; Parquet; AnnData; .npz; "
        ".npy; - for LIBSVM text on standard input.",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        help="Column with the labels: of a table, or of obs of AnnData that was not written by convert. By "
        "default the one that the model, or the data of --like, was made with."
    ),
]


Labels = Annotated[
    Path | None,
    typer.Option(
        help="Labels of a matrix (.npy, .npz, Zarr, lists): .npy, or text with one a line.",
        metavar="FILE",
    ),
]


def with_console(command: Callable[..., None]) -> Callable[..., None]:
    """Make the `console` of a command of the options --quiet and --json, which it then has, too.

    Commands of `_WITH_DETAILS` also have --verbose.
    """
    own = inspect.signature(command, eval_str=True)
    parameters = [each for name, each in own.parameters.items() if name != "console"]
    options = {"verbose": Verbose} if command.__name__ in _WITH_DETAILS else {}
    for name, annotation in {**options, "quiet": Quiet, "json": Json}.items():
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        )

    @functools.wraps(command)
    def call(*, quiet: bool, json: bool, verbose: bool = False, **given: Any) -> None:
        with Console(quiet=quiet, json=json, verbose=verbose) as console:
            command(console, **given)

    call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def with_settings(settings: Mapping[str, Setting]) -> Callable[[Command], Command]:
    """Give a command an option for each setting that it has no parameter for, in its ``**settings``."""

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        parameters = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        taken = {each.name for each in parameters}
        generated = [_parameter(name, each) for name, each in settings.items() if name not in taken]
        first = [each for each in parameters if each.kind is not each.KEYWORD_ONLY]
        last = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
        own_settings = [each for each in last if each.name in declared(Settings)]
        others = [each for each in last if each not in own_settings]
        ordered = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in (*first, *own_settings, *generated, *others)
        ]
        command.__signature__ = own.replace(parameters=ordered)  # type: ignore[attr-defined]
        return command

    return decorate


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    default, values = setting.default, setting.values
    option = name.replace("_", "-")
    names = [f"--{option}/--no-{option}"] if setting.kind is bool else [f"--{option}"]
    facts: dict[str, Any] = {"help": setting.help}
    if values is not None and setting.titles is not None:
        pairs = zip(values, setting.titles(), strict=True)
        named = (f"{choice}: {title.partition(' (')[0]}" for choice, title in pairs)  # without the source
        facts["help"] += f" {'; '.join(named)}."
    kind: Any = setting.kind
    if values is not None:
        kind = Literal[tuple(values)]  # type: ignore[misc]
        if setting.titles is not None:
            facts["metavar"] = "NAME"
        elif len("|".join(values)) > _MAX_CHOICES_WIDTH:
            facts |= {"metavar": "NAME", "help": f"{setting.help} One of: {', '.join(values)}."}
    elif setting.size:
        facts |= {"parser": _size, "metavar": "SIZE"}
        default = f"{default // 2**30}G"
    elif kind is tuple:
        facts |= {"parser": _names, "metavar": "A,B"}
        default = ",".join(default)
    elif kind is range:
        facts |= {"parser": _lengths, "metavar": "N-M"}
    elif setting.words and kind is bool:  # which a flag cannot say, but its absence
        [word], default = setting.words, None
        facts["callback"] = lambda given: word if given is None else given
    elif setting.words and kind is os.PathLike:
        kind, facts["metavar"] = str, "|".join([*setting.words, "FILE"])
    elif setting.words:
        facts |= {"parser": _number_or_word(setting), "metavar": "|".join(["NUMBER", *setting.words])}
    elif kind is int:
        facts |= {"min": setting.least, "max": setting.most if setting.most < 2**63 - 1 else None}
    elif kind is os.PathLike:
        kind = Path
    if default is None:
        kind = kind | None
    annotation = Annotated[kind, typer.Option(*names, **facts)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _lengths(text: str) -> tuple[int, int]:
    least, _, most = text.partition("-")
    try:
        return int(least), int(most or least)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not two lengths, such as 1-2") from None


def _number_or_word(setting: Setting) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if text in setting.words:
            return text
        try:
            return setting.kind(text)
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is neither a number nor {' nor '.join(setting.words)}"
            ) from None

    parse.__name__ = "number"
    return parse
