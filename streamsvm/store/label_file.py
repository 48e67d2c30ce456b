"""Read the labels and weights of a matrix from separate files; labels may also be in the matrix file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import label_values
from streamsvm.base.durable import open_file, os_errors_as
from streamsvm.base.format import LABEL_DTYPE, UNSEEN_LABEL
from streamsvm.data.arrays import row_weights
from streamsvm.errors import InputError, Option, Remedy
from streamsvm.store.array_file import load_array
from streamsvm.store.container import Container
from streamsvm.store.ranges import Ranges, numbers_in
from streamsvm.store.store import Columns


class FileLabels:
    """Labels of a matrix with `n_rows` rows in the file `path`, held in memory as class codes.

    The classes are in the same order as in a converted store. `labels` is an array with the label of each
    row. If `at` is given, `labels` is instead a list of distinct labels, and `at` contains the position of
    each row's label in that list. `where` names the source of the labels in messages. Raises InputError if
    there is not one label per row, or if a value cannot be a label.
    """

    def __init__(
        self, labels: Any, where: str, path: Path, n_rows: int, at: np.ndarray | None = None
    ) -> None:
        if at is None:
            if labels.ndim != 1 or len(labels) != n_rows:
                raise InputError(f"{where} has the shape {labels.shape}, but {path} has {n_rows:,} rows")
            distinct, at = np.unique(labels, return_inverse=True)
            is_text, labels = labels.dtype.kind in "US", distinct.tolist()
        else:
            is_text = any(isinstance(value, str) for value in labels)
        names: list[str | None] = []
        for number, value in enumerate(labels):
            try:
                names.append(label_values.label_text(value))
            except ValueError as error:  # includes UnicodeDecodeError
                row = int(np.argmax(at == number))
                raise InputError(f"{where}, row {row + 1}: the value cannot be a label: {error}") from None
        known = list(dict.fromkeys(name for name in names if name is not None))  # values may share a name
        self.classes = [known[place] for place in label_values.class_order(known)] if known else []
        self.label_dtype = label_values.TEXT if is_text else label_values.dtype_of_names(self.classes)
        code = {name: number for number, name in enumerate(self.classes)}
        codes = [UNSEEN_LABEL if name is None else code[name] for name in names]
        self._codes = np.array(codes, LABEL_DTYPE)[at.ravel()]
        self.nbytes = self._codes.nbytes

    def columns(self, ranges: Ranges) -> Columns:
        """Return `labels`, the class codes in ranges of rows; a missing label has code -1."""
        return {"labels": self._codes[numbers_in(ranges)]}


def open_labels(
    container: Container,
    n_rows: int,
    label: str | None,
    labels: str | os.PathLike[str] | None,
    like: Mapping[str, Any],
) -> FileLabels:
    """Read the labels of a matrix from the file `labels`, or from `label` in the file of the matrix.

    `label` is an array or a column, and `like` is as for `open_store`. Raises InputError unless exactly one
    of `label` and `labels` is given.
    """
    path = container.path
    if labels is not None and label is not None:
        raise InputError(f"{path}: label and labels cannot be combined; omit one of them")
    if labels is not None:
        with os_errors_as(InputError, labels, "read"):
            return FileLabels(_read_labels(Path(labels), like), str(labels), path, n_rows)
    if label is not None:
        values, at = container.labels(label)
        return FileLabels(values, f"{path}, {label!r}", path, n_rows, at)
    remedy = "specify a text or .npy file with {}, or name an array or column of the matrix file with {}"
    raise InputError(
        f"{path} is a matrix without labels",
        remedy=Remedy(remedy, Option("labels"), Option("label")),
    )


def read_weights(path: Path, n_rows: int) -> np.ndarray:
    """Return the row weights of a matrix, float64; raise InputError if they are invalid."""
    with os_errors_as(InputError, path, "read"):
        return row_weights(None, _array_or_lines(path), n_rows, str(path))


def _array_or_lines(path: Path) -> np.ndarray | list[str]:
    with open_file(path, follow=True) as file:
        if file.read(6) == b"\x93NUMPY":
            return load_array(path)
    try:
        return [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; write one value per line, or use an .npy file") from None


def _read_labels(path: Path, like: Mapping[str, Any]) -> np.ndarray:
    """Read labels from a file. Numbers are normalised as in LIBSVM text, and missing labels become ""."""
    lines = _array_or_lines(path)
    if isinstance(lines, np.ndarray):
        return lines
    if like.get("labels_as") == "text":
        return np.array(lines, object)
    known = set(like.get("classes", ()))
    names = {line: label_values.canonical_name(line) for line in set(lines)}
    names |= {line: line for line in known} | dict.fromkeys(label_values.MISSING_TEXTS - known, "")
    return np.array([names[line] for line in lines], object)
