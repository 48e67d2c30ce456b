"""Base class of transforms, which map rows to rows, and functions that check their parameters and rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import Remedy

if TYPE_CHECKING:
    from streamsvm.data.statistics import Statistics


class RowFault(Exception):
    """Raised if a transform cannot process a row.

    `row` is the index of the row in the batch. `problem` completes a sentence that begins with "row 5".
    """

    def __init__(self, row: int, problem: str, remedy: Remedy) -> None:
        super().__init__(problem)
        self.row = row
        self.problem = problem
        self.remedy = remedy


@dataclasses.dataclass(frozen=True)
class FittingData:
    """Properties of the training data after the preceding transforms, to which the next one is fitted."""

    n_features: int
    names: Sequence[str] | None
    index_base: int | None  # number of the first feature in LIBSVM text; None for other formats
    statistics: Statistics | None  # None if no transform needs them, or if rows come in batches
    numbers: np.ndarray | None = None  # indices of the numeric columns; None if there are none
    seed: int = 0
    n_rows: int = 0  # 0 if rows come in batches


class Transform:
    """Base class of transforms. A subclass is a frozen dataclass whose fields are its parameters.

    A transformed row must depend only on the original row and on the transform's record and `array`, not on
    other rows, on their order, or on whether the row is dense or sparse. Otherwise training, resumed
    training and prediction would disagree.
    """

    name: ClassVar[str]  # key in `streamsvm.transforms.TRANSFORMS`
    # Whether features that did not occur in training are accepted; they are numbered as in LIBSVM text.
    takes_any_feature: ClassVar[bool] = False
    dense: ClassVar[bool | None] = None  # whether transformed rows are dense; None if this does not change
    # Whether the transform depends on the columns, so that it cannot precede one that `takes_any_feature`.
    by_feature: ClassVar[bool] = False
    makes_features: ClassVar[bool] = False  # whether the features are replaced by new ones without names
    constant: float = 0.0  # value of the constant feature that the transform adds; 0 if it adds none
    # Statistics that `fitted` needs. "moments" include the variance, which remains known after centring.
    needs: ClassVar[Literal["counts", "variance", "moments"] | None] = None
    needs_rows: ClassVar[bool] = False  # whether `fitted_to_rows` is called after `fitted`
    # Name of the parameter that ``name=value`` sets. ``name`` alone sets it to its default or None.
    setting: ClassVar[str | None] = None
    array_dtype: ClassVar[np.dtype | None] = None
    array: np.ndarray | None = None  # fitted values, one-dimensional and read-only

    def __call__(self, rows: Rows) -> Rows:
        """Return the transformed rows, whose ``norm2`` is not updated; `rows` is not modified.

        Raises `RowFault` if a row cannot be transformed.
        """
        raise NotImplementedError

    @classmethod
    def from_text(cls, value: str | None) -> Self:
        """Create the transform from the value in ``name=value``, or from None if there is only ``name``.

        Raises `ValueError` if the value is invalid. The message completes "it must be ...".
        """
        if cls.setting is not None:
            default = getattr(cls, cls.setting, None)
            return cls(**{cls.setting: default if value is None else value})
        if value is not None:
            raise ValueError(f"{cls.name}, without a value")
        return cls()

    def fitted(self, data: FittingData) -> Self:
        """Return the transform fitted to the training data, or the transform itself if it needs no fitting.

        Raises `SettingsError` if the transform cannot be applied to the data.
        """
        return self

    def fitted_to_rows(self, rows: Rows, ranks: np.ndarray) -> Self:
        """Return the transform fitted to a random sample of rows; row i was drawn as number ``ranks[i]``."""
        raise NotImplementedError

    def after(self, statistics: Statistics) -> Statistics | None:
        """Return the statistics after the transform, or None if `statistics` do not determine them."""
        return None

    def n_features(self, n_features: int | None) -> int | None:
        """Return the number of features after the transform, given the number before; None if it is unknown.

        Raises `ValueError` if the transform was fitted to a different number of features.
        """
        return n_features

    def feature_names(self, names: Sequence[str] | None) -> Sequence[str] | None:
        """Return the feature names after the transform, given the names before."""
        return None if self.makes_features else names

    def numbers(self, numbers: np.ndarray | None) -> np.ndarray | None:
        """Return the indices of the numeric columns after the transform, given the indices before."""
        return None if self.makes_features else numbers

    def nnz(self, nnz: Any, n_rows: int = 1) -> Any:
        """Return the most values that `n_rows` CSR rows with `nnz` values can store after the transform."""
        return nnz + n_rows * (self.constant != 0)

    @property
    def array_length(self) -> int:
        return 0

    @property
    def held_bytes(self) -> int:
        return 0 if self.array is None else self.array.nbytes

    def record(self) -> dict[str, Any]:
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if field.name != "array"
        }

    def with_array(self, array: np.ndarray) -> Self:
        """Return a copy with a fitted array; raise `ValueError` if the array is invalid."""
        return dataclasses.replace(self, array=array)  # type: ignore[type-var]


def checked_number(value: Any, expected: str, *, positive: bool = False) -> float:
    """Convert a value from a record or setting to a finite float, or raise ``ValueError(expected)``."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(expected) from None
    if isinstance(value, bool) or not math.isfinite(number) or (positive and number <= 0):
        raise ValueError(expected)
    return number


def checked_count(value: Any, name: str) -> int:
    """Return `value` if it is an integer from 0 to 2**62 - 1, or raise `ValueError`."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{name} must be a whole number from 0 to 2**62 - 1, not {value!r}")
    return value


def refuse_row(rows: Rows, element: int, problem: str, remedy: Remedy) -> NoReturn:
    """Raise `RowFault` for the row that contains ``rows.data[element]``."""
    row = int(np.searchsorted(rows.indptr, element, "right")) - 1
    raise RowFault(row, problem, remedy)


def refuse_negative(rows: Rows, name: str) -> None:
    """Raise `RowFault` if a value is negative; `name` is the name of the transform."""
    if np.fmin.reduce(rows.data, initial=0.0) < 0:
        at = int(np.argmax(rows.data < 0))
        refuse_row(
            rows, at, f"has the value {rows.data[at]:g}, but {name} does not accept negative values",
            Remedy(f"use the original counts, or leave {name} out"),
        )  # fmt: skip
