"""Prepare data and convert errors for the scikit-learn estimator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from streamsvm.errors import InputError, SettingsError


@contextlib.contextmanager
def value_errors() -> Iterator[None]:
    """Convert errors about data and settings to `ValueError`, which scikit-learn expects."""
    try:
        yield
    except (InputError, SettingsError) as error:
        raise ValueError(str(error)) from error


class NamedMatrix(NamedTuple):
    """Matrix with named columns, which streamsvm treats like a DataFrame with numeric columns."""

    X: Any
    columns: Any

    def to_numpy(self) -> Any:
        return self.X


def part_of_rows(X: Any, rows: np.ndarray) -> Any:
    """Return the rows of a matrix where the mask `rows` is True."""
    if rows.all():
        return X
    return NamedMatrix(X.X[rows], X.columns) if isinstance(X, NamedMatrix) else X[rows]


def rows_to_train_on(y: np.ndarray, calibrate: float | None, random_state: Any) -> np.ndarray:
    """Return a mask that excludes a random fraction `calibrate` of rows, but keeps a row of each class."""
    kept = np.ones(len(y), bool)
    if calibrate is None:
        return kept
    if not 0 < calibrate < 1:
        raise ValueError(f"calibrate must be between 0 and 1, not {calibrate!r}")
    draw = check_random_state(random_state).random_sample(len(y))
    kept[draw < calibrate] = False
    _, first = np.unique(y, return_index=True)
    kept[first] = True
    if kept.all():
        raise ValueError(f"calibrate={calibrate} holds out none of {len(y)} rows; use a larger fraction")
    return kept
