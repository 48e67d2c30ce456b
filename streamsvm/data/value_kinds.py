"""Detection of data that was prepared differently from the training data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import Remedy, StreamsvmWarning, warn

VALUES_IN = "values_in"  # entry of run and model records
SAMPLE_VALUES = 2**16  # values checked before a prediction
_FIRST = 1000  # values checked before the rest


class ValuesIn(NamedTuple):
    """Content of the record entry `VALUES_IN`."""

    integers: bool
    largest: float


def describe_values(values: np.ndarray) -> ValuesIn:
    """Return whether all values are integers, and the largest magnitude."""
    # Shortcut: most non-integer data is detected in the first values.
    integers = all((np.floor(part) == part).all() for part in (values[:_FIRST], values))
    return ValuesIn(integers, max(float(values.max(initial=0)), -float(values.min(initial=0))))


def warn_of_difference(
    values: np.ndarray, record: Mapping[str, Any], transforms: Iterable[Any], where: str
) -> None:
    """Issue a `StreamsvmWarning` if the values look different from the training data in `record`.

    Two cases are reported: integers above the largest non-integer training value, such as counts for a model
    of logarithms; and non-integers for a model of integers. Models with the transform ``counts`` are skipped,
    because the transform checks its input.
    """
    entry = None if any(each.name == "counts" for each in transforms) else record.get(VALUES_IN)
    if entry is None:
        return
    found, trained = describe_values(values), ValuesIn(**entry)
    if not trained.largest or not found.largest:
        return
    problem = None
    if found.integers and not trained.integers and found.largest > trained.largest:
        problem = (
            f"{where}: the first values are whole numbers, up to {found.largest:,.6g}, as counts are; the "
            f"training data had others, up to {trained.largest:,.6g}"
        )
    elif trained.integers and not found.integers:
        problem = f"{where}: not all values are whole numbers, and those of the training data were"
    if problem is not None:
        remedy = Remedy("prepare the data as the training data was, or name its layer")
        warn(StreamsvmWarning(problem, remedy=remedy))
