"""Kinds of values, to detect data that was prepared differently from the training data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import Message, Remedy, StreamsvmWarning, warn

VALUES_IN = "values_in"  # entry of the records of runs and models
SAMPLE_VALUES = 2**16  # that are looked at before a prediction
_REMEDY = Remedy("prepare the data as the training data was, or name its layer")


_FIRST = 1000  # values that are looked at before all others


class ValuesIn(NamedTuple):
    """Entry `VALUES_IN` of a record."""

    integers: bool
    largest: float


def describe_values(pieces: Iterable[np.ndarray]) -> dict[str, Any]:
    """Return the fields of `ValuesIn` for some values: all integers or not, and the largest magnitude."""
    integers, largest = True, 0.0
    for data in pieces:
        for part in (data[:_FIRST], data):  # most others are seen at once
            integers = integers and bool((np.floor(part) == part).all())
        largest = max(largest, float(data.max(initial=0)), -float(data.min(initial=0)))
    return ValuesIn(integers, largest)._asdict()


def find_difference(
    found: Mapping[str, Any], trained: Mapping[str, Any] | None, where: str
) -> Message | None:
    """Return a warning if values are of another kind than those of the training data, else None.

    That is, whole numbers alone, beyond the largest value of training data with other numbers: mostly counts
    where the model knows logarithms; or other numbers where the training data had whole numbers alone.
    """
    if trained is None or not trained["largest"] or not found["largest"]:
        return None
    if found["integers"] and not trained["integers"] and found["largest"] > trained["largest"]:
        return Message(
            f"{where}: the first values are whole numbers, up to {found['largest']:,.6g}, as counts are; the "
            f"training data had others, up to {trained['largest']:,.6g}",
            _REMEDY,
        )
    if trained["integers"] and not found["integers"]:
        return Message(
            f"{where}: not all values are whole numbers, and those of the training data were", _REMEDY
        )
    return None


def trained_values(record: Mapping[str, Any], transforms: Iterable[Any]) -> Mapping[str, Any] | None:
    """Return the description of the training data's values in the record of a run or model.

    None if that is not known, or one of the `transforms` refuses other values than counts.
    """
    return None if any(each.name == "counts" for each in transforms) else record.get(VALUES_IN)


def warn_of_difference(pieces: Iterable[np.ndarray], trained: Mapping[str, Any] | None, where: str) -> None:
    """Issue what `find_difference` returns, as a `StreamsvmWarning`; without `trained`, no piece is read."""
    message = None if trained is None else find_difference(describe_values(pieces), trained, where)
    if message is not None:
        warn(StreamsvmWarning(message))
