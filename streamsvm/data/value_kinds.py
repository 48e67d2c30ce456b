"""Detect data that was prepared differently from the training data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import Remedy, StreamsvmWarning, warn

VALUES_IN = "values_in"  # entry of run and model records
SAMPLE_VALUES = 2**16  # values checked before a prediction
_FIRST = 1000  # values checked first, because most non-integers show up early


class ValuesIn(NamedTuple):
    """Whether all values are integers, and the largest magnitude; stored in the record as `VALUES_IN`."""

    integers: bool
    largest: float


def describe_values(values: np.ndarray) -> ValuesIn:
    """Return whether all values are integers, and the largest magnitude."""
    integers = all((np.floor(part) == part).all() for part in (values[:_FIRST], values))
    return ValuesIn(integers, max(float(values.max(initial=0)), -float(values.min(initial=0))))


def warn_of_difference(
    values: np.ndarray, record: Mapping[str, Any], transforms: Iterable[Any], where: str
) -> None:
    """Issue a `StreamsvmWarning` if the values look different from the training data in `record`.

    Two cases are reported: integers above the range of non-integer training values, such as counts for a
    model trained on logarithms; and non-integers for a model trained on integers. Models with the transform
    ``counts`` are skipped, because it checks its input.
    """
    entry = None if any(each.name == "counts" for each in transforms) else record.get(VALUES_IN)
    if entry is None:
        return
    current, trained = describe_values(values), ValuesIn(**entry)
    if not trained.largest or not current.largest:
        return
    problem = None
    if current.integers and not trained.integers and current.largest > trained.largest:
        problem = (
            f"{where}: the first values are whole numbers, up to {current.largest:,.6g}, like counts, but "
            f"the training data had values that are not whole numbers, up to {trained.largest:,.6g}"
        )
    elif trained.integers and not current.integers:
        problem = f"{where}: some values are not whole numbers, but the training data had only whole numbers"
    if problem is not None:
        remedy = Remedy("prepare the data like the training data, or choose the layer used in training")
        warn(StreamsvmWarning(problem, remedy=remedy))
