"""`streamsvm online`: train on a stream of rows, visiting each row once."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, EventTable, stop_on_signals, warn
from streamsvm_cli.conversion import print_counts
from streamsvm_cli.options import EVERY, FORCE, RUN, Option, command
from streamsvm_cli.wording import count, fraction

from streamsvm import errors
from streamsvm.base.text import format_size
from streamsvm.errors import InputError, Remedy, wrong_setting
from streamsvm.settings import checks
from streamsvm.settings.field import declared
from streamsvm.settings.online import TRANSFORM, OnlineSettings, StoreSettings
from streamsvm.settings.reading import ReadingSettings

_READING = {name: declared(ReadingSettings)[name] for name in ("labels_as", "on_error")}
_MIN_ROWS = 100


_OPTIONS = {
    "like": Option(
        checks.PATH, None,
        "Store, run or model that defines classes, index base and number of features, or the feature hash.",
    ),
    "classes": Option(
        checks.TEXT._replace(metavar="FILE|LIST"), None,
        "All classes: a file with one class per line, or a list separated by commas.",
    ),
    "index_base": Option(
        checks.whole(0, 1), None,
        "Index of the first feature in the input. The default 0 works for any file, at the cost of one "
        "unused row of weights. Hashed features keep the numbers in the text.", group="Features",
    ),
    "checkpoint_every": EVERY,
    "force": FORCE,
}  # fmt: skip


@command({"out": RUN}, declared(OnlineSettings), declared(StoreSettings), _READING, _OPTIONS)
def online(
    console: Console,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="LIBSVM text, plain or .gz .bz2 .xz .zst, - for standard input; or stores, AnnData or a "
            "matrix.",
        ),
    ],
    *,
    like: Path | None,
    classes: str | None,
    index_base: int | None,
    **settings: Any,
) -> None:
    """Train on a stream of rows, visiting each row once.

    Example: streamsvm online train.libsvm --out run --classes ham,spam

    Rows are processed in input order. The label of a row is predicted before the model learns from it. Text
    may contain new classes and features in any row. If the input is sorted by label, shuffle it first.
    """
    import streamsvm
    from streamsvm.store.addresses import copy_address
    from streamsvm.store.kinds import is_read_in_place

    text_options = {name: settings.pop(name) for name in _READING}
    are_stores = all(
        is_read_in_place(copy_address(path, settings["cache"], console.progress)) for path in inputs
    )
    for name, value in {"like": like, "index_base": index_base, **text_options}.items() if are_stores else ():
        if value != (_OPTIONS | _READING)[name].default:
            raise wrong_setting(name, "does not apply to stores, which are read as they are")
    if like is not None and classes is not None:
        raise wrong_setting("like", "and classes both define the classes; use only one of them")
    data: Any = inputs
    known = None if classes is None else parse_classes(classes)
    if are_stores:
        settings["classes"] = known
    else:
        from streamsvm_converters import TextSource

        reading = {"classes": known, "index_base": index_base or 0, "labels_as": "numbers"}
        if like is not None:
            reading |= text_like(like, index_base, settings)
        reading |= {name: value for name, value in text_options.items() if value is not None}
        reading |= {name: settings.pop(name) for name in ("unseen_label", "memory")}
        data = TextSource(inputs, **reading, dtype=settings["dtype"])
    with stop_on_signals() as stop:
        result = streamsvm.online(
            data, **settings, report=OnlineReporter(console), progress=console.progress, stop=stop
        )
    finish(console, result)


def text_like(like: str | Path, index_base: int | None, settings: dict[str, Any]) -> dict[str, Any]:
    """Return `TextSource` arguments that match `like`; add its feature hash, if any, to `settings`."""
    from streamsvm.inputs.schema import read_schema

    schema = read_schema(like)
    result: dict[str, Any] = {"classes": list(schema.classes), "labels_as": schema.labels_as or "numbers"}
    if not schema.takes_any_feature:
        result["n_features"], result["index_base"] = schema.n_features, schema.resolve_index_base(index_base)
        return result
    hashed = next(f"hash={each.record()['bits']}" for each in schema.transforms if each.takes_any_feature)
    if settings["transform"] is None:
        settings["transform"] = f"{hashed},{TRANSFORM}"
    elif hashed not in settings["transform"].split(","):
        remedy = Remedy("use {}, or leave out the transform", errors.Option("transform", hashed))
        raise InputError(f"{like} hashes features with {hashed}, unlike the transform", remedy=remedy)
    return result


def parse_classes(text: str) -> list[str]:
    """Return class labels in class order, from a file (separated by whitespace) or a comma-separated list."""
    from streamsvm.base.label_values import class_order

    labels = [label.strip() for label in text.split(",")]
    if os.path.exists(text):  # also a pipe
        try:
            labels = re.findall(r"[^ \t\r\n]+", Path(text).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{text} cannot be read as a list of classes: {error}") from None
    if len(labels) < 2 or "" in labels:
        raise wrong_setting("classes", f"must be a file or a list of at least two classes, not {text}")
    return [labels[c] for c in class_order(labels)]


class OnlineReporter(EventTable):
    """Print a line each time the number of rows of an online run has doubled."""

    COLUMNS = (
        ("rows", 13, "rows", ",d"),
        ("progressive accuracy", 20, "progressive_accuracy", ".4f"),
        ("recent", 6, "recent_accuracy", ".4f"),
        ("classes", 9, "classes", ",d"),
        ("features", 11, "features", ",d"),
        ("rows/s", 9, "rows_per_second", ",.0f"),
    )

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "rows" and event["rows"] >= _MIN_ROWS:
            self.line(event)
        elif event["event"] == "saved":
            self.console.say(f"model: {event['model']}, the average of the iterates")


def finish(console: Console, result: Any) -> None:
    for warning in result.warnings:
        warn(warning)
    print_counts(console, result.input)
    if result.empty_rows:
        console.say(
            f"  {count(result.empty_rows, 'row')} with norm 0 or an unseen label took no part in training"
        )
    console.say(
        f"{result.status}: {count(result.rows, 'row')} in {result.seconds:.2f} s, "
        f"progressive accuracy {fraction(result.progressive_accuracy)}, "
        f"peak memory {format_size(result.peak_memory_bytes)}"
    )
    console.result(dataclasses.asdict(result))
