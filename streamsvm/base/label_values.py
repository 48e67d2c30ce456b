"""Conversion between users' labels and class names, the strings that the library uses for them.

A model record stores the class names as ``classes`` and the NumPy dtype of the labels as ``label_dtype``. If
labels of dtype object differ from their names, it also stores them as ``class_values`` (docs/formats.md).
"""

from __future__ import annotations

import contextlib
import datetime
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from streamsvm.base.format import LABEL_DTYPE, UNSEEN_LABEL
from streamsvm.base.text import as_python_value
from streamsvm.errors import InputError, Remedy, StreamsvmWarning, warn

NO_LABEL = -2  # code of a missing label
TEXT, INTEGER, OBJECT = "str", "int64", "object"
LABEL_DTYPES = (
    TEXT, OBJECT, "bool", "int8", "int16", "int32", INTEGER, "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip
MAX_LABEL = 2**16  # maximum number of characters of a label
_JSON_TYPES = (str, int, float, bool)  # types that labels of dtype object may have
_INFINITE = (math.inf, -math.inf)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGER = re.compile("0|-?[1-9][0-9]*")  # Python's spelling only, so 01 and +1 stay text
# Default spellings of missing values in pandas and pyarrow.
MISSING_TEXTS = frozenset({"", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"})
MISSING_TEXTS |= {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}


def class_name(label: Any) -> str:
    """Return a label as a string; a whole float is written without a decimal point: 1.0 becomes "1"."""
    label = as_python_value(label)
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def class_record(labels: np.ndarray) -> dict[str, Any]:
    """Return the entries of a model record for the labels of all classes; `class_labels` is the inverse.

    Raises `InputError` for floats that are not whole numbers, and for labels that a model cannot store.
    """
    dtype = TEXT if labels.dtype.kind in "UT" else labels.dtype.name
    values = [as_python_value(label) for label in labels.tolist()]
    fraction = next((x for x in values if labels.dtype.kind == "f" and not x.is_integer()), None)
    if fraction is not None:
        raise InputError(
            f"Unknown label type: continuous: y contains {fraction:g}, but numeric labels must be integers",
            remedy=Remedy("convert class labels to text with y.astype(str), or train a regression model"),
        )
    wrong: Any = None if dtype in LABEL_DTYPES else labels.dtype
    if dtype == OBJECT:
        wrong = next((type(x).__name__ for x in values if type(x) not in _JSON_TYPES or x in _INFINITE), None)
    if wrong is not None:
        raise InputError(
            f"y has labels of type {wrong}, which a model cannot store",
            remedy=Remedy("use strings, such as y.astype(str), or whole numbers or booleans"),
        )
    record = {"classes": [class_name(label) for label in values], "label_dtype": dtype}
    return record | ({"class_values": values} if dtype == OBJECT and values != record["classes"] else {})


def is_missing(label: Any) -> bool:
    """Return whether a label is None, NaN, NaT or ``pandas.NA``."""
    return label is None or type(label).__name__ == "NAType" or bool(label != label)


def codes_among(labels: Iterable[Any], classes: np.ndarray) -> np.ndarray:
    """Return the class code of each label: `UNSEEN_LABEL` if unknown, `NO_LABEL` if missing.

    Labels are compared by value, so 1, 1.0 and True are equal. A string matches the number that it spells.
    """
    code: dict[Any, int] = {}
    for at, label in enumerate(classes.tolist()):
        code[label] = code[class_name(label)] = at

    def find(label: Any) -> int:
        result = code.get(label) if isinstance(label, Hashable) else None
        if result is None and is_missing(label):
            return NO_LABEL
        result = code.get(class_name(label)) if result is None else result
        if result is None and isinstance(label, str) and classes.dtype.kind in "biuf":
            with contextlib.suppress(ValueError):
                result = code.get(float(label))
        return UNSEEN_LABEL if result is None else result

    return np.array([find(label) for label in labels], LABEL_DTYPE)


def warn_of_unknown(n: int, where: str) -> None:
    if n:
        rows = "1 row has a label" if n == 1 else f"{n:,} rows have labels"
        warn(StreamsvmWarning(f"{where}: {rows} unknown to the model; such rows count as wrong"))


def class_labels(record: Mapping[str, Any]) -> np.ndarray:
    """Return the labels of all classes in their original dtype; raise `ValueError` for an invalid record."""
    names, dtype = record["classes"], record.get("label_dtype", TEXT)
    if dtype == TEXT:
        return np.array(names, str)
    values: list[Any] = [int(name) if _INTEGER.fullmatch(name) else None for name in names]
    if dtype == OBJECT:
        values = record.get("class_values") or names
        valid = len(values) == len(names) and all(type(value) in _JSON_TYPES for value in values)
    else:
        values = [name == "True" for name in names] if dtype == "bool" else values
        valid = None not in values and len(set(values)) == len(names)
    if not valid:
        raise ValueError(f"the classes are not distinct labels of type {dtype}")
    labels = np.empty(len(names), dtype)
    try:
        labels[:] = values
    except OverflowError:
        raise ValueError(f"a class is outside the range of {dtype}") from None
    return labels


def dtype_of_names(names: Sequence[str]) -> str:
    """Return "int64" if all names are whole numbers that fit in 64 bits, else "str"."""
    short = (_INTEGER.fullmatch(name) and len(name) < 21 for name in names)
    return INTEGER if names and all(short) and all(-(2**63) <= int(name) < 2**63 for name in names) else TEXT


def as_number(label: str) -> float | None:
    """Return a label as a float if it is a finite decimal number, else None."""
    value = float(label) if _NUMBER.fullmatch(label) else math.inf
    return value if math.isfinite(value) else None


def class_order(labels: Sequence[str]) -> np.ndarray:
    """Return the int64 permutation that sorts labels: numerically if all are finite numbers, else as text.

    Different spellings of the same number are sorted as text.
    """
    if dtype_of_names(labels) == INTEGER:
        return np.argsort(np.array(labels).astype(np.int64), kind="stable")
    numbers = [as_number(label) for label in labels]
    keys = list(labels) if None in numbers else list(zip(numbers, labels, strict=True))
    return np.array(sorted(range(len(labels)), key=keys.__getitem__), dtype=np.int64)


def canonical_name(label: str) -> str:
    """Return the class name for a label in LIBSVM text: a number in its shortest form, or the text unchanged.

    Numbers are decimal and finite: ``+1``, ``1.0`` and ``1e0`` become ``1``, but ``0x10``, ``1_000`` and
    ``nan`` stay unchanged. Whole numbers of any length are exact; other numbers are rounded to float64.
    """
    value = as_number(label)
    if value is None:
        return label
    if not value.is_integer():
        return repr(value)
    exact = Decimal(label if value else 0)
    return str(int(exact if exact == exact.to_integral_value() else value))


def label_text(value: Any) -> str | None:
    """Return a label as pandas prints it, except that whole floats have no decimal point; None if missing.

    Raises `ValueError` for values that cannot be labels: lists and similar types, strings longer than
    `MAX_LABEL` characters, and floats so large that several integers round to the same float.
    """
    value = as_python_value(value)
    if isinstance(value, str | bytes) and len(value) > MAX_LABEL:
        raise ValueError(f"it has {len(value):,} characters, more than {MAX_LABEL:,}")
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    if value == "" or is_missing(value):
        return None
    if isinstance(value, float) and 2**53 <= abs(value) < math.inf:
        raise ValueError(f"{value:.0f} may have been rounded; write such numbers as text")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, str | int | float | datetime.date | datetime.time):
        return class_name(value)
    raise ValueError(f"it is a {type(value).__name__}")
