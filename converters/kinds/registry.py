"""Registry of the file kinds that can be converted, with their readers."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamsvm_converters.kinds.options import ReadOptions

from streamsvm.base.text import check_local
from streamsvm.errors import InputError, Option, Remedy, SettingsError
from streamsvm.settings.reading import COLUMN_SETTINGS
from streamsvm.store.kinds import MATRICES, TABLES, TITLES, TO_FILE, kind_of

if TYPE_CHECKING:
    from streamsvm_converters.kinds.reader import Reader


class Kind(NamedTuple):
    """Kind of file: module and class of its `Reader`, and the options it accepts that some kinds do not."""

    reader: str
    options: frozenset[str]


_TABLE = Kind("table.TableReader", COLUMN_SETTINGS | {"label", "labels_as", "on_error"})
_MATRIX = Kind("stored.StoredReader", frozenset({"label", "labels", "labels_as"}))
KINDS = {
    "libsvm": Kind(
        "libsvm.LibsvmReader",
        frozenset({"index_base", "n_features", "multilabel", "groups", "labels_as", "on_error"}),
    ),
    "anndata": Kind("stored.StoredReader", frozenset({"label", "join", "layer", "raw", "obsm"})),
    **dict.fromkeys(sorted(MATRICES), _MATRIX),
    **dict.fromkeys(sorted(TABLES), _TABLE),
    **dict.fromkeys(("csv", "tsv"), _TABLE._replace(options=_TABLE.options | {"delimiter", "decimal"})),
}
_SPECIFIC = frozenset().union(*(kind.options for kind in KINDS.values()))


def _kind_to_read(path: str | Path, options: ReadOptions) -> str:
    """Return the kind of a file; lists are a table if column options are set or `like` has an encoding."""
    check_local(path, InputError)
    kind = kind_of(path, options.format)
    like_table = options.like is not None and options.like.encoding is not None
    return "parquet" if kind == "lists" and (like_table or options.changed(COLUMN_SETTINGS)) else kind


def open_reader(inputs: Sequence[str | Path], options: ReadOptions | None = None, **changes: Any) -> Reader:
    """Return a reader for files of the same kind.

    Parameters
    ----------
    inputs : sequence of path
    options : ReadOptions, optional
    **changes
        Attributes of `options` to replace.

    Returns
    -------
    Reader
        Iterable over pairs of `Rows` and row numbers. It can be used only once, and the rows may lack norms.
        Label options that are not set are taken from the earlier data ``options.like``.

    Raises
    ------
    InputError
        If the inputs are of several kinds or of an unknown kind, or if one cannot be read.
    SettingsError
        If an option does not apply to this kind of file.
    """
    options = replace(options or ReadOptions(), **changes)
    kinds = {str(path): _kind_to_read(path, options) for path in inputs}
    name = next(iter(kinds.values()), "libsvm")
    kind, title = KINDS[name], TITLES[name]
    for path, other in kinds.items():
        if other != name:
            what = f"{next(iter(kinds))} is {title}, but {path} is {TITLES[other]}"
            raise InputError(f"{what}; use files of one kind at a time")
        if name != "libsvm" and os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            raise InputError(f"{path} must be a regular file to be read as {title}", remedy=TO_FILE)
    for option in options.changed(sorted(_SPECIFIC - kind.options)):
        is_table = Remedy(f"if {inputs[0]} is a table, use {{}}", Option("format", "csv"))
        remedy = is_table if name == "libsvm" and option in KINDS["csv"].options else None
        if option == "labels" and "label" in kind.options:
            remedy = Remedy("name the column with {}", Option("label", os.path.basename(str(options.labels))))
        raise SettingsError(f"{option} does not apply to {title}", remedy=remedy, setting=option)
    if options.on_error == "fix" and name != "libsvm":
        raise SettingsError(f"on_error fix does not apply to {title}; use on_error skip", setting="on_error")
    like = options.like
    if like is not None and "label" in kind.options and options.label is None and options.labels is None:
        options = replace(options, label=like.label)
    labels_as = options.labels_as or ("numbers" if like is None else like.labels_as)
    options = replace(options, labels_as=labels_as, format=name)
    module, reader = kind.reader.split(".")
    reader_class = getattr(importlib.import_module(f"streamsvm_converters.kinds.{module}"), reader)
    return reader_class(inputs, options)  # type: ignore[no-any-return]
