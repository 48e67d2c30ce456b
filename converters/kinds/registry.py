"""Registry of the kinds of files that can be converted, and of their readers."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.recognise import recognise
from streamsvm_converters.libsvm.inputs import STDIN

from streamsvm.errors import InputError, Option, Remedy, SettingsError
from streamsvm.store.list_file import SUFFIXES as LIST_SUFFIXES
from streamsvm.store.open import is_store

if TYPE_CHECKING:
    from streamsvm_converters.kinds.reader import Reader


class Kind(NamedTuple):
    """A kind of file.

    Attributes
    ----------
    title : str
        Name in messages.
    reader : str
        Module and class of its `Reader`; imported when it is used.
    options : frozenset of str
        Attributes of `ReadOptions` that apply to this kind, and not to all.
    """

    title: str
    reader: str
    options: frozenset[str]


_FILE = Remedy("write it to a file first: only LIBSVM text is read from a pipe")
_TABLE = frozenset(
    {"label", "labels_as", "drop", "categorical", "missing", "text", "analyzer", "ngrams", "bits", "on_error"}
)
_MATRIX = frozenset({"label", "labels", "labels_as"})
_ANNDATA = frozenset({"label", "join", "layer", "raw", "obsm"})
_TEXT = frozenset({"index_base", "n_features", "multilabel", "groups", "labels_as", "on_error"})
KINDS = {
    "libsvm": Kind("LIBSVM text", "libsvm.LibsvmFileReader", _TEXT),
    "anndata": Kind("AnnData", "stored.StoredReader", _ANNDATA),
    "npz": Kind("a .npz archive", "stored.StoredReader", _MATRIX),
    "npy": Kind("a NumPy array", "stored.StoredReader", _MATRIX),
    "lists": Kind("a column of lists of numbers", "stored.StoredReader", _MATRIX),
    "parquet": Kind("a Parquet table", "table.TableReader", _TABLE),
    "csv": Kind("CSV", "table.TableReader", _TABLE),
    "tsv": Kind("tab-separated values", "table.TableReader", _TABLE),
    "jsonl": Kind("JSON lines", "table.TableReader", _TABLE),
}
_SPECIFIC = frozenset().union(*(kind.options for kind in KINDS.values()))


def kind_of(path: str | Path, format: str | None = None) -> str:
    """Return the kind of a file or folder, a name in `KINDS`, by its content or else by its suffix.

    Parameters
    ----------
    path : path or "-"
        Standard input is LIBSVM text.
    format : str, optional
        A name in `KINDS`, which the content must not contradict.

    Raises
    ------
    InputError
        If it cannot be read, or is of no kind in `KINDS`; the message says what it begins with.
    """
    if format is not None and format not in KINDS:
        raise ValueError(f"format must be one of {', '.join(KINDS)}, not {format!r}")
    found, certain = recognise(path)
    if format is None or format == found:
        return found
    if str(path) == STDIN:
        raise InputError(f"standard input must be LIBSVM text, and not {KINDS[format].title}", remedy=_FILE)
    if certain:
        raise InputError(f"{path} is {KINDS[found].title}, not {KINDS[format].title}")
    return format


def _kind_to_read(path: str | Path, options: ReadOptions) -> str:
    """Return the kind of a file; a table with one column of lists is that, unless its columns are wanted."""
    by_column = options.changed(sorted(_TABLE - _MATRIX - _TEXT))
    like_table = options.like is not None and options.like.encoding is not None
    may_be_lists = Path(path).suffix.lower() in LIST_SUFFIXES
    if may_be_lists and not by_column and not like_table and is_store(path):
        return "lists"
    return kind_of(path, options.format)


def open_reader(inputs: Sequence[str | Path], options: ReadOptions | None = None, **changes: Any) -> Reader:
    """Return a reader of some files, all of one kind.

    Parameters
    ----------
    inputs : sequence of path
    options : ReadOptions, optional
    **changes
        Attributes of `options` to replace.

    Returns
    -------
    Reader
        Iterate over it once for pairs of `Rows`, without norms, and row numbers. Its options say how labels
        are read: what is not given is as in the earlier data.

    Raises
    ------
    InputError
        If they are of several kinds, or of none in `KINDS`, or cannot be read.
    SettingsError
        If an option is not for this kind.
    """
    options = replace(options or ReadOptions(), **changes)
    kinds = {str(path): _kind_to_read(path, options) for path in inputs}
    name = next(iter(kinds.values()), "libsvm")
    other = next((path for path, kind in kinds.items() if kind != name), None)
    if other is not None:
        raise InputError(
            f"{next(iter(kinds))} is {KINDS[name].title}, and {other} is {KINDS[kinds[other]].title}; "
            "convert files of one kind at a time"
        )
    kind = KINDS[name]
    for path in map(Path, inputs):
        if name != "libsvm" and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path} is no regular file, as {kind.title} must be", remedy=_FILE)
    for option in options.changed(sorted(_SPECIFIC - kind.options)):
        remedy = None
        if name == "libsvm" and option in _TABLE:
            remedy = Remedy(f"if {inputs[0]} is a table, give {{}}", Option("format", "csv"))
        raise SettingsError(f"{option} does not apply to {kind.title}", remedy=remedy, setting=option)
    if options.on_error == "fix" and name != "libsvm":
        raise SettingsError(
            f"on_error fix does not apply to {kind.title}; it can skip rows", setting="on_error"
        )
    like = options.like
    if like is not None and "label" in kind.options and options.label is None and options.labels is None:
        options = replace(options, label=like.label)
    labels_as = options.labels_as or ("numbers" if like is None else like.labels_as)
    options = replace(options, labels_as=labels_as, format=name)
    module, name = kind.reader.split(".")
    found = importlib.import_module(f"streamsvm_converters.kinds.{module}")
    reader: Reader = getattr(found, name)(list(inputs), options)
    return reader
