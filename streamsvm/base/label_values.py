"""Labels of users, and the class names that the library uses for them, which are always text.

A model record stores ``classes``, the names; ``label_dtype``, the NumPy dtype of the labels; and
``class_values``, the labels of dtype object if they differ from the names (docs/formats.md).
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
MAX_LABEL = 2**16  # characters
_JSON_TYPES = (str, int, float, bool)  # types allowed in labels of dtype object, because JSON supports them
_INFINITE = (math.inf, -math.inf)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGER = re.compile("0|-?[1-9][0-9]*")  # Python's spelling only, so 01 and +1 stay text
# Default spellings of missing values in pandas and pyarrow.
MISSING_TEXTS = frozenset({"", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"})
MISSING_TEXTS |= {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}


def class_name(label: Any) -> str:
    """Return the class name of a label: its text, with whole floats written without a decimal point."""
    label = as_python_value(label)
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def class_record(labels: np.ndarray) -> dict[str, Any]:
    """Return the record entries for the labels of all classes; `class_labels` is the inverse.

    Raises `InputError` for fractional numbers and for label types that a model cannot store.
    """
    dtype = TEXT if labels.dtype.kind in "UT" else labels.dtype.name
    given = [as_python_value(label) for label in labels.tolist()]
    fraction = next((x for x in given if labels.dtype.kind == "f" and not x.is_integer()), None)
    if fraction is not None:
        raise InputError(
            f"Unknown label type: continuous: y has {fraction:g}, and numbers that name classes are whole",
            remedy=Remedy("give texts, such as y.astype(str), if they are classes; a regression if not"),
        )
    wrong: Any = None if dtype in LABEL_DTYPES else labels.dtype
    if dtype == OBJECT:
        wrong = next((type(x).__name__ for x in given if type(x) not in _JSON_TYPES or x in _INFINITE), None)
    if wrong is not None:
        raise InputError(
            f"y has labels of the type {wrong}, which a model does not keep",
            remedy=Remedy("give texts, such as y.astype(str), whole numbers or booleans"),
        )
    record = {"classes": [class_name(label) for label in given], "label_dtype": dtype}
    return record | ({"class_values": given} if dtype == OBJECT and given != record["classes"] else {})


def is_missing(label: Any) -> bool:
    """Return True for None, NaN, NaT and the missing value of pandas."""
    return label is None or type(label).__name__ == "NAType" or bool(label != label)


def codes_among(labels: Iterable[Any], classes: np.ndarray) -> np.ndarray:
    """Return the class code of each label: `UNSEEN_LABEL` if unknown, `NO_LABEL` if missing.

    Labels are compared as values, so 1, 1.0 and True are equal. Text matches the number that it spells.
    """
    code: dict[Any, int] = {}
    for at, label in enumerate(classes.tolist()):
        code[label] = code[class_name(label)] = at

    def find(label: Any) -> int:
        found = code.get(label) if isinstance(label, Hashable) else None
        if found is None and is_missing(label):
            return NO_LABEL
        found = code.get(class_name(label)) if found is None else found
        if found is None and isinstance(label, str) and classes.dtype.kind in "biuf":
            with contextlib.suppress(ValueError):
                found = code.get(float(label))
        return UNSEEN_LABEL if found is None else found

    return np.array([find(label) for label in labels], LABEL_DTYPE)


def warn_of_unknown(n: int, where: str) -> None:
    if n:
        warn(StreamsvmWarning(f"{where}: labels unknown to the model, counted as wrong (rows: {n:,})"))


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
        raise ValueError(f"its classes are not distinct labels of the type {dtype}")
    labels = np.empty(len(names), dtype)
    try:
        labels[:] = values
    except OverflowError:
        raise ValueError(f"a class is out of the range of {dtype}") from None
    return labels


def dtype_of_names(names: Sequence[str]) -> str:
    """Return int64 if all names spell whole numbers of this type, else str."""
    short = (_INTEGER.fullmatch(name) and len(name) < 21 for name in names)
    return INTEGER if names and all(short) and all(-(2**63) <= int(name) < 2**63 for name in names) else TEXT


def as_number(label: str) -> float | None:
    """Return the finite number that a label spells, or None."""
    value = float(label) if _NUMBER.fullmatch(label) else math.inf
    return value if math.isfinite(value) else None


def class_order(labels: Sequence[str]) -> np.ndarray:
    """Return the permutation that sorts labels: numerically if all are finite numbers, else as text.

    Equal numbers are sorted as text. The result is int64 of shape (len(labels),).
    """
    if dtype_of_names(labels) == INTEGER:
        return np.argsort(np.array(labels).astype(np.int64), kind="stable")
    numbers = [as_number(label) for label in labels]
    keys = list(labels) if None in numbers else list(zip(numbers, labels, strict=True))
    return np.array(sorted(range(len(labels)), key=keys.__getitem__), dtype=np.int64)


def canonical_name(label: str) -> str:
    """Return the class name of a label of LIBSVM text: the shortest spelling of a number, or the label.

    Numbers are decimal and finite: ``+1``, ``1.0`` and ``1e0`` become ``1``, but ``0x10``, ``1_000`` and
    ``nan`` are text. Whole numbers of any length are exact; other numbers are rounded to float64.
    """
    value = as_number(label)
    if value is None:
        return label
    if not value.is_integer():
        return repr(value)
    exact = Decimal(label if value else 0)
    return str(int(exact if exact == exact.to_integral_value() else value))


def label_text(value: Any) -> str | None:
    """Return a label as text in the format of pandas, but whole floats without a point; None if missing.

    Raises `ValueError` for values that cannot be labels: other types such as lists, text of more than
    `MAX_LABEL` characters, and floats so large that they may stand for several integers.
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
