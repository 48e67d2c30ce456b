"""Spellings of labels: which texts are the same number, which are missing, and in what order classes are."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from streamsvm.base.label_values import INTEGER, dtype_of_names

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Spellings of missing values, as pandas and pyarrow have them by default.
MISSING_TEXTS = frozenset({"", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"})
MISSING_TEXTS |= {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}


def as_number(label: str) -> float | None:
    """Return the finite number that a label spells, or None."""
    value = float(label) if _NUMBER.fullmatch(label) else math.inf
    return value if math.isfinite(value) else None


def class_order(labels: Sequence[str]) -> np.ndarray:
    """Return the permutation that sorts labels: as numbers (ties as text) if all are finite, else as text.

    Parameters
    ----------
    labels : sequence of str

    Returns
    -------
    ndarray of int64, shape (len(labels),)
    """
    if dtype_of_names(labels) == INTEGER:
        return np.argsort(np.array(labels).astype(np.int64), kind="stable")
    numbers = [as_number(label) for label in labels]
    keys = list(labels) if None in numbers else list(zip(numbers, labels, strict=True))
    return np.array(sorted(range(len(labels)), key=keys.__getitem__), dtype=np.int64)


def canonical_name(label: str) -> str:
    """Return the name of the class of a label of LIBSVM text: the plainest spelling of a number, or itself.

    Numbers are decimal and finite: ``+1``, ``1.0`` and ``1e0`` are ``1``; ``0x10``, ``1_000`` and ``nan`` are
    text. Whole numbers are exact, however long they are; others are compared as float64.
    """
    value = as_number(label)
    if value is None:
        return label
    if not value.is_integer():
        return repr(value)
    exact = Decimal(label if value else 0)
    return str(int(exact if exact == exact.to_integral_value() else value))


def label_text(value: Any) -> str | None:
    """Return a label as text, as pandas prints it, but whole numbers without a point; None if missing.

    Raise `ValueError` if it is no label, such as a list, or a float that may stand for several integers.
    """
    if value is None:
        return None
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    if isinstance(value, str):
        return value or None
    if isinstance(value, float | np.floating):
        if math.isnan(value):
            return None
        if math.isfinite(value) and abs(float(value)) >= 2**53:
            raise ValueError(f"{value:.0f} may have been rounded; write such numbers as text")
        return str(int(value)) if float(value).is_integer() else str(value)
    if isinstance(value, int | np.integer | datetime.date | datetime.time):
        return str(value)
    if hasattr(value, "as_tuple"):  # a decimal
        return format(value, "f")
    raise ValueError(f"it is a {type(value).__name__}")
