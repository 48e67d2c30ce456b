"""`streamsvm info`: describe and verify data, runs and models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.options import Option, command
from streamsvm_cli.runs import comparison, summary

from streamsvm.base.text import format_size
from streamsvm.errors import SettingsError
from streamsvm.settings import checks
from streamsvm.settings.scoring import TO_EVALUATE

_MAX_ITEMS = 8
_MAX_SOURCES = 12
_DETAILS = {  # facts that are shown only in JSON
    "C_auto", "answered", "checksum", "chunk_nnz", "crc32", "encoding", "fingerprint",
    "inner_passes", "label_dtype", "layout", "memory", "n_features_in", "solver", "store_fingerprint",
    "values_in", "version",
}  # fmt: skip
_FITTED = {"width", "column", "kept", "seed"}  # facts of a transform that users do not type
_NAMES = {
    "n": "rows",
    "d": "features",
    "n_features": "features",
    "nnz": "non-zeros",
    "n_classes": "number of classes",
}


@command(
    {"verify": Option(checks.FLAG, False, "Read and check all of the data."), "label": TO_EVALUATE["label"]}
)
def info(
    console: Console,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Run, model, store, or file of any kind that convert reads. Several runs are compared.",
        ),
    ],
    *,
    verify: bool,
    label: str | None,
) -> None:
    """Describe data, a run or a model, or compare runs.

    Text, tables, sparse or compressed .npz, and CSC with --label are always read completely. Other data is
    read completely only with --verify, which checks every byte that a store, a run or a model relies on.
    """
    from streamsvm.info import inspect
    from streamsvm.store.addresses import copy_address

    progress = console.progress
    copies = [copy_address(path, progress=progress) for path in paths]
    records = [inspect(path, verify=verify, label=label, progress=progress) for path in copies]
    if len(records) > 1:
        for path, each in zip(paths, records, strict=True):
            if each["kind"] != "run":
                raise SettingsError(f"only runs can be compared, but {path} is not a run; leave it out")
        for line in comparison([str(path) for path in paths], records):
            console.say(line)
        console.result(
            {"runs": [{"path": str(path), **each} for path, each in zip(paths, records, strict=True)]}
        )
        return
    [record] = records
    shown = summary(record) if record["kind"] == "run" else record
    names = _NAMES | ({"nnz": "values"} if record.get("dense") else {})
    lines = {
        names.get(key, key).replace("_", " "): _lines_of(key, value, record)
        for key, value in shown.items()
        if value not in (None, "", [], {}) and key not in _DETAILS
    }
    width = max(map(len, lines)) + 1
    for name, texts in lines.items():
        for number, text in enumerate(texts):
            console.say(f"{'' if number else name:>{width}}  {text}", width + 2)
    console.result(record)


def _lines_of(key: str, value: Any, record: dict[str, Any]) -> list[str]:
    if key == "sources":
        return [f"{each['name']}, {format_size(each['size'])}" for each in value[:_MAX_SOURCES]]
    if key == "transforms":
        shown = ([each[name] for name in each if name not in _FITTED] for each in value)
        texts = ([f"{each:g}" if isinstance(each, float) else str(each) for each in fact] for fact in shown)
        return [",".join(":gamma=".join(["=".join(fact[:2]), *fact[2:]]) for fact in texts)]
    if key == "strongest_features":
        return _strongest(value, record["n_classes"])
    return [_text(value)]


def _strongest(features: dict[str, Any], n_classes: int) -> list[str]:
    lines = [
        f"{label}: {', '.join(f'{name} ({weight:.3g})' for name, weight in pairs) or 'none above 0'}"
        for label, pairs in features.items()
    ]
    return [*lines, f"... ({n_classes:,} classes in all)"] if n_classes > len(lines) else lines


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        shown = ", ".join(map(_text, value[:_MAX_ITEMS]))
        return f"{shown}, ... ({len(value):,} in all)" if len(value) > _MAX_ITEMS else shown
    if isinstance(value, dict):
        return ", ".join(f"{key}={_text(each)}" for key, each in value.items() if each is not None)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
