"""Base class of transforms, which map rows to rows, and the data that they are fitted to."""

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
    """Error for a row that a transform cannot take.

    Attributes
    ----------
    row : int
        Its number in the rows that the transform was given, from 0 on.
    problem : str
        Completes "row 5 ...".
    remedy : Remedy
    """

    def __init__(self, row: int, problem: str, remedy: Remedy) -> None:
        super().__init__(problem)
        self.row = row
        self.problem = problem
        self.remedy = remedy


@dataclasses.dataclass(frozen=True)
class FittingData:
    """Facts of the training data, after the preceding transforms, that a transform is fitted to.

    Attributes
    ----------
    n_features : int
    names : sequence of str, or None
        Of the features.
    index_base : int or None
        Number of the first feature in LIBSVM text, if the data is from text.
    statistics : Statistics or None
        Of the features; None if no transform needs them, or if rows come in batches.
    numbers : ndarray of int64, or None
        The features that are columns of numbers, of a table or a dense matrix; None if there are none.
    seed : int
        Seed of the training.
    n_rows : int
        Rows that are not held out; 0 if rows come in batches.
    """

    n_features: int
    names: Sequence[str] | None
    index_base: int | None
    statistics: Statistics | None
    numbers: np.ndarray | None = None
    seed: int = 0
    n_rows: int = 0


class Transform:
    """Base class of transforms: frozen dataclasses of their parameters.

    A transform maps each row by itself: the result must not depend on the other rows, on their order, or on
    anything but the transform's record and `array`, so that a resumed run and a prediction do the same.

    Attributes
    ----------
    name : str
        Its key in `streamsvm.transforms.TRANSFORMS`.
    takes_any_feature : bool
        True if rows may have features that training did not see: it then takes the numbers of features as
        they stand in LIBSVM text.
    dense : bool or None
        Whether rows are dense after it; None: as they were. What it makes of rows does not depend on which of
        the two they are.
    by_feature : bool
        True if it knows the features by their columns: such a transform does not come before one that takes
        any feature.
    makes_features : bool
        Whether its features are others, without names, and no columns of numbers.
    constant : float
        Value of the feature that it adds to all rows; 0 if there is none.
    needs : {"counts", "variance", "moments"} or None
        The statistics that `fitted` asks for. The moments have the variance, which centring leaves known.
    needs_rows : bool
        Whether `fitted_to_rows` is to be called, too.
    setting : str or None
        The parameter that is the value in ``name=value``, as text. None stands for a value that is left out,
        if there is no default.
    array_dtype : dtype or None
        Of the array that training finds for it, if there is one.
    array : ndarray or None
        This array, one-dimensional, read-only; None before it is fitted.
    """

    name: ClassVar[str]
    takes_any_feature: ClassVar[bool] = False
    dense: ClassVar[bool | None] = None
    by_feature: ClassVar[bool] = False
    makes_features: ClassVar[bool] = False
    constant: float = 0.0
    needs: ClassVar[Literal["counts", "variance", "moments"] | None] = None
    needs_rows: ClassVar[bool] = False
    setting: ClassVar[str | None] = None
    array_dtype: ClassVar[np.dtype | None] = None
    array: np.ndarray | None = None

    def __call__(self, rows: Rows) -> Rows:
        """Return the transformed rows, whose ``norm2`` need not be right.

        The arrays of `rows` are not modified. Raises `RowFault` for a row that it cannot take.
        """
        raise NotImplementedError

    @classmethod
    def from_text(cls, value: str | None) -> Self:
        """Parse the transform that the user writes as ``name=value``, or ``name``.

        Raises `ValueError`, whose text completes "it must be ...".
        """
        if cls.setting is not None:
            default = getattr(cls, cls.setting, None)
            return cls(**{cls.setting: default if value is None else value})
        if value is not None:
            raise ValueError(f"{cls.name}, without a value")
        return cls()

    def fitted(self, data: FittingData) -> Self:
        """Return the transform fitted to the training data; itself if it needs no fitting.

        Raises `SettingsError` if it does not apply to the data.
        """
        return self

    def fitted_to_rows(self, rows: Rows, ranks: np.ndarray) -> Self:
        """Return the transform fitted to rows drawn from those that are not held out; `ranks` order them."""
        raise NotImplementedError

    def after(self, statistics: Statistics) -> Statistics | None:
        """Return the statistics of the transformed data if they follow from those of the data, else None."""
        return None

    def n_features(self, n_features: int | None) -> int | None:
        """Return the number of features of the transformed rows, given that of the rows; None if not known.

        Raises `ValueError` if it was not fitted to so many features.
        """
        return n_features

    def feature_names(self, names: Sequence[str] | None) -> Sequence[str] | None:
        """Return the names of the features of the transformed rows, given those of the rows."""
        return None if self.makes_features else names

    def numbers(self, numbers: np.ndarray | None) -> np.ndarray | None:
        """Return the columns of numbers of the transformed rows, given those of the rows, if any."""
        return None if self.makes_features else numbers

    def nnz(self, nnz: Any, n_rows: int = 1) -> Any:
        """Return how many values `n_rows` CSR rows have after the transform, at most, given those before."""
        return nnz + n_rows * (self.constant != 0)

    @property
    def array_length(self) -> int:
        """Length of `array`, from the parameters."""
        return 0

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the transform holds."""
        return 0 if self.array is None else self.array.nbytes

    def record(self) -> dict[str, Any]:
        """Return the parameters as JSON, without `array`."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if field.name != "array"
        }

    def with_array(self, array: np.ndarray) -> Self:
        """Return the transform with its array; raise `ValueError` if training cannot have found it."""
        return dataclasses.replace(self, array=array)  # type: ignore[type-var]


def checked_number(value: Any, wanted: str, *, positive: bool = False) -> float:
    """Return a finite number from a record or a user's text as float; raise ``ValueError(wanted)``."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(wanted) from None
    if isinstance(value, bool) or not math.isfinite(number) or (positive and number <= 0):
        raise ValueError(wanted)
    return number


def checked_count(value: Any, what: str) -> int:
    """Return a valid number of features from a record; raise `ValueError` for others."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{what} must be a number of features, not {value!r}")
    return value


def refuse_row(rows: Rows, element: int, problem: str, remedy: Remedy) -> NoReturn:
    """Raise the `RowFault` of the row that has the value number `element`."""
    row = int(np.searchsorted(rows.indptr, element, "right")) - 1
    raise RowFault(row, problem, remedy)


def refuse_negative(rows: Rows, name: str) -> None:
    """Raise the `RowFault` of the first value below 0, if any, which the transform `name` cannot take."""
    if np.fmin.reduce(rows.data, initial=0.0) < 0:
        at = int(np.argmax(rows.data < 0))
        refuse_row(
            rows, at, f"has the value {rows.data[at]:g}, and {name} takes none below 0",
            Remedy(f"give the data as it was counted, or leave {name} out"),
        )  # fmt: skip
