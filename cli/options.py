"""Declare the options of the commands like library settings, and make commands from functions."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from streamsvm_cli.console import Console, complain, fail

from streamsvm.base.progress import told_of_compiling
from streamsvm.errors import Interrupted, StreamsvmError
from streamsvm.settings import checks
from streamsvm.settings.field import Setting


@dataclasses.dataclass(frozen=True)
class Option(Setting):
    """Command-line option that is not a library setting, or that needs its own help text.

    The default ``...`` marks a required option. A bool option with the default False has no --no form.
    """

    group: str = "Run"
    letter: str = ""


THREADS = Option(checks.whole(1), None, "Number of threads; by default one per processor.", group="Computing")
EVERY = Option(
    checks.TEXT._replace(metavar="TIME|BLOCKS"), None,
    "Time between commits, such as 0.5s, 60s or 5m, or a number of blocks such as 8. The default is 20 "
    "times the duration of the last commit, and at least 10s.",
)  # fmt: skip
TRAINING = {
    "workers": Option(
        checks.whole(1), None,
        "Number of threads, or of cluster workers; by default one per processor. Training uses at most one "
        "per split.", group="Several cores",
    ),
    "cluster": Option(
        checks.TEXT._replace(metavar="ADDRESS"), None,
        "Train on a Dask cluster: address or file of its scheduler, or local for processes on this "
        "machine.", group="Several cores",
    ),
    "checkpoint_every": EVERY,
}  # fmt: skip
FORCE = Option(checks.FLAG, False, "Replace existing output.")
MEMORY = Option(checks.SIZE, 2**28, "Memory budget, such as 500M or 2G.", group="Computing")
RUN = Option(checks.PATH, ..., "Run directory to create.", letter="o")
_COMMON = {
    "quiet": Option(checks.FLAG, False, "Print only errors.", group="Options", letter="q"),
    "json": Option(checks.FLAG, False, "Print only one JSON object, at the end.", group="Options"),
}

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Run directory or model folder.")]
Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="Labelled rows: a store, or a file that convert reads.")
]


def command(*options: Mapping[str, Setting]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function into a command with `options`, and with a `console` that obeys --quiet and --json.

    If several options have the same name, the first one applies. Positional parameters become arguments.
    """
    declared: dict[str, Setting] = {}
    for group in (*options, _COMMON):
        declared = {**declared, **group, **declared}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *parameters = inspect.signature(function, eval_str=True).parameters.values()
        arguments = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]

        @functools.wraps(function)
        def call(*, quiet: bool, json: bool, **values: Any) -> None:
            console = Console(quiet=quiet, json=json)
            try:
                with console, told_of_compiling(complain if console.people else lambda line: None):
                    function(console, **values)
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
    check, default, option = setting.check, setting.default, name.rstrip("_").replace("_", "-")
    cli_option = setting if isinstance(setting, Option) else None
    has_no = check is checks.FLAG and not (cli_option and default is False)
    names = [f"--{option}/--no-{option}" if has_no else f"--{option}"]
    names += [f"-{cli_option.letter}"] if cli_option and cli_option.letter else []
    kind: Any = Literal[check.choices] if check.choices else check.option
    parser = None if check.choices or isinstance(kind, type) else kind
    kind = kind if parser is None else str
    if check is checks.SIZE:
        default = f"{default >> 30}G" if default >= 2**30 else f"{default >> 20}M"
    elif isinstance(default, tuple):
        default = ",".join(default)
    if check.repeated:
        kind, default = list[kind], None if default is None else [default]
    if default is None:
        kind = kind | None
    facts = typer.Option(
        *names, help=setting.help, parser=parser, rich_help_panel=setting.group or None,
        metavar=check.metavar or None,
    )  # fmt: skip
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, facts],
        default=inspect.Parameter.empty if default is ... else default,
    )  # fmt: skip
