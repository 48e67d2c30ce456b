"""`streamsvm online`: train on rows as they are read, each once."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, EventTable, print_text_counts, stop_on_signals
from streamsvm_cli.options import EVERY, FORCE, RUN, VERBOSE, Option, command
from streamsvm_cli.wording import count, fraction, wrong_usage

from streamsvm.base.text import format_size
from streamsvm.settings.field import declared
from streamsvm.settings.online import OnlineSettings, StoreSettings
from streamsvm.settings.reading import ReadingSettings

_SETTINGS = declared(OnlineSettings)
_READING = {name: declared(ReadingSettings)[name] for name in ("labels_as", "on_error")}
_OF_STORE = declared(StoreSettings)
_LEAST_ROWS = 100  # that say something


_OPTIONS = {
    "like": Option(
        os.PathLike, None,
        "Store, run or model to take the classes from, and hash, or width and index base.",
    ),
    "classes": Option(
        str, None, "All classes: a file with one a line, or a list with commas.", metavar="FILE|LIST",
    ),
    "index_base": Option(
        str, None,
        "Index of the first feature in the input. 0, the default, works for any file, at the cost of one "
        "unused row of weights.",
        choices=("0", "1"),
    ),
    "checkpoint_every": EVERY,
    "force": FORCE,
}  # fmt: skip


@command(
    {"out": RUN},
    {**_SETTINGS, **_OF_STORE, **_READING, "seed": dataclasses.replace(_SETTINGS["seed"], default=None)},
    _OPTIONS,
    VERBOSE,
)
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
    index_base: str | None,
    **settings: Any,
) -> None:
    """Train on rows as they are read, each once.

    Example: streamsvm online train.libsvm --out run --classes ham,spam

    Each row is predicted, then learned from, once and in the order of the input. Classes and features of text
    may appear on the way. Shuffle input that is sorted by label first.
    """
    import streamsvm
    from streamsvm.store.addresses import copy_address
    from streamsvm.store.kinds import is_read_in_place

    cache = settings.get("cache")
    of_stores = all(is_read_in_place(copy_address(path, cache, console.progress)) for path in inputs)
    of_any = {name: settings.pop(name) for name in ("unseen_label", "memory")}
    of_store = {name: settings.pop(name) for name in _OF_STORE if name in settings}
    of_text = {name: settings.pop(name) for name in _READING}
    given = {"like": like, "index_base": index_base, **of_text} if of_stores else of_store
    defaults = {name: each.default for name, each in (_OF_STORE | _READING).items()}
    for name, value in given.items():
        if value != defaults.get(name):
            kind = "stores, which are read as they are" if of_stores else "LIBSVM text"
            raise wrong_usage(f"--{name.replace('_', '-')} does not apply to {kind}")
    reading, hashing = text_layout(
        like,
        classes=None if classes is None else parse_classes(classes),
        index_base=None if index_base is None else int(index_base),
        hash_bits=settings["hash_bits"],
        seed=settings["seed"],
        labels_as=of_text["labels_as"],
    )
    if of_stores:
        data: Any = inputs
        settings |= {**of_store, **of_any, "classes": reading["classes"]}
    else:
        from streamsvm_converters import TextSource

        if reading["classes"] is None and of_any["unseen_label"] == "keep":
            raise wrong_usage("--unseen-label keep needs known classes; give --classes or --like too")
        data = TextSource(inputs, **reading, **of_any, dtype=settings["dtype"], on_error=of_text["on_error"])
    with stop_on_signals() as stop:
        result = streamsvm.online(
            data, **settings | hashing, report=OnlineReporter(console), progress=console.progress, stop=stop
        )
    finish(console, result)


def text_layout(
    like: str | Path | None = None,
    *,
    classes: Sequence[str] | None = None,
    index_base: int | None = None,
    hash_bits: int | None = None,
    seed: int | None = None,
    labels_as: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Combine the options with the schema of `like`: a store, run or model.

    Returns the parameters of `TextSource`, and the settings of the hash: ``hash_bits`` and ``seed``.
    """
    from streamsvm.errors import InputError, Option, Remedy, SettingsError
    from streamsvm.inputs.schema import read_schema

    if like is not None and classes is not None:
        raise SettingsError("like and classes both define the classes; give one of them", setting="like")
    n_features, base = None, index_base or 0
    if like is not None:
        schema = read_schema(like)
        classes, labels_as = schema.classes, labels_as or schema.labels_as
        hashing = next((each.record() for each in schema.transforms if each.name == "hash"), None)
        if hashing is not None:
            theirs = {"hash_bits": hashing["bits"], "seed": hashing["seed"]}
            for name, given in (("hash_bits", hash_bits), ("seed", seed)):
                if given not in (None, theirs[name]):
                    remedy = Remedy("give {}, or leave it out", Option(name, theirs[name]))
                    raise InputError(f"{like} has another feature hash", remedy=remedy)
            hash_bits, seed = theirs.values()
        elif hash_bits is None:
            n_features, base = schema.n_features, schema.resolve_index_base(index_base)
    if hash_bits is None and seed is not None:
        raise SettingsError(
            "seed is for the feature hash", setting="seed", remedy=Remedy("give {} too", Option("hash_bits"))
        )
    if hash_bits is not None and index_base == 1:
        raise SettingsError(
            "index_base 1 has no effect on hashed features, which keep the numbers in the text; leave it out",
            setting="index_base",
        )
    base = 0 if hash_bits is not None else base
    reading = {"classes": classes, "n_features": n_features, "index_base": base}
    reading["labels_as"] = labels_as or "numbers"
    return reading, {"hash_bits": hash_bits, "seed": seed or 0}


def parse_classes(text: str) -> list[str]:
    """Return the labels in a file, separated by white space, or in a list with commas, in class order."""
    from streamsvm.base.label_texts import class_order
    from streamsvm.errors import InputError

    if os.path.exists(text):  # a pipe too
        try:
            with open(text, encoding="utf-8-sig") as file:
                labels = re.split("[ \t\r\n]+", file.read().strip(" \t\r\n"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{text} is not a list of classes: {error}") from None
    else:
        labels = [label.strip() for label in text.split(",")]
    if len(labels) < 2:
        raise wrong_usage(f"--classes {text} is neither a file nor a list of two classes or more")
    if len(set(labels)) < len(labels) or "" in labels:
        raise wrong_usage(f"--classes {text} has an empty label, or the same label twice")
    return [labels[c] for c in class_order(labels)]


class OnlineReporter(EventTable):
    """Reporter of an online run, with a line whenever the number of rows has doubled."""

    COLUMNS = (  # heading, width, key, format
        ("rows", 13, "rows", ",d"),
        ("progressive accuracy", 20, "progressive_accuracy", ".4f"),
        ("recent", 6, "recent_accuracy", ".4f"),
        ("classes", 9, "classes", ",d"),
        ("features", 11, "features", ",d"),
        ("rows/s", 9, "rows_per_second", ",.0f"),
    )

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "plan" and not event["resumable"]:
            self.console.say("standard input or a pipe cannot be read again: this run cannot be resumed")
        elif event["event"] == "rows" and (event["rows"] >= _LEAST_ROWS or self.console.verbose):
            self.line(event)
        elif event["event"] == "saved":
            self.console.say(f"model: {event['model']}, the average of the iterates")


def finish(console: Console, result: Any) -> None:
    """Print the result of an online run."""
    for warning in result.warnings:
        console.warn(warning)
    print_text_counts(console, result.input)
    if result.empty_rows:
        console.say(
            f"  {count(result.empty_rows, 'row')} of norm 0 or with an unseen label took no part in training"
        )
    console.say(
        f"{result.status}: {count(result.rows, 'row')} in {result.seconds:.2f} s, "
        f"progressive accuracy {fraction(result.progressive_accuracy)}, "
        f"peak memory {format_size(result.peak_memory_bytes)}"
    )
    console.detail(f"{count(result.checkpoints, 'checkpoint')} in {result.checkpoint_seconds:.2f} s")
    console.result(dataclasses.asdict(result))
