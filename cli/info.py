"""`streamsvm info`: what a store, a run or a model contains, and whether it is intact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.options import Json, Label, Quiet


def info(
    path: Annotated[Path, typer.Argument(help="A store, a run or a model.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read everything and check it.")] = False,
    label: Label = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Describe a store, a run or a model.

    With --verify, every byte that it relies on is read and checked.
    """
    console = Console(quiet=quiet, json=json)
    from streamsvm.info import inspect

    record = inspect(path, verify=verify, label=label, progress=console.progress)
    for key, value in record.items():
        if value in (None, [], {}):
            continue
        console.say(f"{key.replace('_', ' '):>20}  {_text(value)}")
    console.result(record)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        shown = ", ".join(map(_text, value[:8]))
        return f"{shown}, ... ({len(value):,} in all)" if len(value) > 8 else shown
    if isinstance(value, dict):
        return ", ".join(f"{key}={_text(each)}" for key, each in value.items() if each is not None)
    return f"{value:,}" if isinstance(value, int) else str(value)
