"""Labels and weights of a matrix without any: in ``.npy`` files, its ``.npz`` archive, or lines of text."""

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
    """Labels of all rows, in memory as codes; the classes are in the order that ``convert`` gives them.

    Parameters
    ----------
    labels : ndarray, or list
        The label of each row; with `at`, the distinct labels, of which it has the number for each row.
    where : str
        Their place in messages.
    path : Path
        The matrix.
    n_rows : int
        Its rows.

    Attributes
    ----------
    classes : list of str
    label_dtype : str
        int64 if they are integers, and else str.
    nbytes : int
        Of the codes.

    Raises
    ------
    InputError
        If there is not one label for each row, or a value is no label.
    """

    def __init__(
        self, labels: Any, where: str, path: Path, n_rows: int, at: np.ndarray | None = None
    ) -> None:
        if at is None:
            if labels.ndim != 1 or len(labels) != n_rows:
                raise InputError(f"{where}: values of shape {labels.shape} for the {n_rows:,} rows of {path}")
            distinct, at = np.unique(labels, return_inverse=True)
            is_text, labels = labels.dtype.kind in "US", distinct.tolist()
        else:
            is_text = any(isinstance(value, str) for value in labels)
        names: list[str | None] = []
        for number, value in enumerate(labels):
            try:
                names.append(label_values.label_text(value))
            except ValueError as error:  # of UnicodeDecodeError, too
                row = int(np.argmax(at == number))
                raise InputError(f"{where}, row {row + 1}: this cannot be a label: {error}") from None
        known = list(dict.fromkeys(name for name in names if name is not None))  # all NaN are one
        self.classes = [known[place] for place in label_values.class_order(known)] if known else []
        self.label_dtype = label_values.TEXT if is_text else label_values.dtype_of_names(self.classes)
        code = {name: number for number, name in enumerate(self.classes)}
        codes = [UNSEEN_LABEL if name is None else code[name] for name in names]
        self._codes = np.array(codes, LABEL_DTYPE)[at.ravel()]
        self.nbytes = self._codes.nbytes

    def columns(self, ranges: Ranges) -> Columns:
        """Return the `labels` of ranges of rows; -1 where the label is missing."""
        return {"labels": self._codes[numbers_in(ranges)]}


def open_labels(
    container: Container,
    n_rows: int,
    label: str | None,
    labels: str | os.PathLike[str] | None,
    like: Mapping[str, Any],
) -> FileLabels:
    """Open the labels of the `n_rows` rows of a matrix: the file `labels`, or its own array or column.

    `like` is as for `open_store`.
    """
    path = container.path
    if labels is not None and label is not None:
        raise InputError(f"{path}: labels are given twice, by label and by labels; leave one of them out")
    if labels is not None:
        with os_errors_as(InputError, labels, "read"):
            return FileLabels(_read_labels(Path(labels), like), str(labels), path, n_rows)
    if label is not None:
        values, at = container.labels(label)
        return FileLabels(values, f"{path}, {label!r}", path, n_rows, at)
    remedy = "give a file with one a line, or an .npy array, with {}, or name its own with {}"
    raise InputError(
        f"{path} is a matrix, and its labels are missing",
        remedy=Remedy(remedy, Option("labels"), Option("label")),
    )


def read_weights(path: Path, n_rows: int) -> np.ndarray:
    """Return the weights of the rows of a matrix, float64; raises InputError for what are none."""
    with os_errors_as(InputError, path, "read"):
        return row_weights(None, _array_or_lines(path), n_rows, str(path))


def _array_or_lines(path: Path) -> np.ndarray | list[str]:
    with open_file(path, follow=True) as file:
        if file.read(6) == b"\x93NUMPY":
            return load_array(path)
    try:
        return [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; give one value a line, or an .npy array") from None


def _read_labels(path: Path, like: Mapping[str, Any]) -> np.ndarray:
    """Return the labels in a file: lines are names of classes as in LIBSVM text; "" is a missing label."""
    lines = _array_or_lines(path)
    if isinstance(lines, np.ndarray):
        return lines
    if like.get("labels_as") == "text":
        return np.array(lines, object)
    known = set(like.get("classes", ()))
    names = {line: label_values.canonical_name(line) for line in set(lines)}
    names |= {line: line for line in known} | dict.fromkeys(label_values.MISSING_TEXTS - known, "")
    return np.array([names[line] for line in lines], object)
