"""Transform that selects the features listed in a file."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from streamsvm.base.durable import open_file, reason
from streamsvm.base.format import index_dtype
from streamsvm.base.text import check_local
from streamsvm.data.names import examples
from streamsvm.data.rows import Rows, with_matrix
from streamsvm.data.statistics import Statistics
from streamsvm.errors import SettingsError, warn, wrong_setting
from streamsvm.kernels.csr import places_of, with_places
from streamsvm.transforms.base import FittingData, Transform, checked_count


@dataclasses.dataclass(frozen=True)
class Select(Transform):
    """Select the features in `array`, in the order of the data.

    Each line of the file `path` contains the name of a feature or, if features have no names, its number:
    that of LIBSVM text, or, in other data, counted from 0. Models store the columns, but not the path.
    """

    name: ClassVar = "select"
    by_feature: ClassVar = True
    array_dtype: ClassVar = np.dtype(np.int64)

    path: str = dataclasses.field(default="", compare=False)
    width: int = 0
    kept: int = 0
    # Selected columns, int64, shape (kept,), ascending.
    array: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        checked_count(self.width, "width")
        checked_count(self.kept, "kept")

    @classmethod
    def from_text(cls, value: str | None) -> Self:
        if not value:
            raise ValueError("select=FILE with one feature per line")
        check_local(value, SettingsError)
        path = os.path.abspath(value)
        _read_names(path)  # an unreadable file raises before the data are read
        return cls(path)

    def __call__(self, rows: Rows) -> Rows:
        if rows.dense:
            assert self.array is not None
            matrix = rows.data.reshape(rows.n_rows, self.width)
            return with_matrix(rows, np.take(matrix, self.array, axis=1))
        return with_places(rows, rows.features, self._places, index_dtype(self.kept))

    @functools.cached_property
    def _places(self) -> np.ndarray:
        """New index of each column of the data; -1 for columns that are not selected."""
        assert self.array is not None
        return places_of(self.array, self.width, index_dtype(self.width))

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + self._places.nbytes

    def record(self) -> dict[str, Any]:
        return {"width": self.width, "kept": self.kept}

    def fitted(self, data: FittingData) -> Self:
        """Return a copy with the columns of the listed features; warn if the data lacks some of them."""
        listed = _read_names(self.path)
        if data.names is not None:
            column = {name: at for at, name in enumerate(data.names)}
        else:
            for name in listed:
                if not (name.isascii() and name.isdecimal() and len(name) < 18):
                    problem = f"select: {self.path} lists {name!r}, but the features have no names"
                    raise wrong_setting("transform", f"{problem}; list feature numbers")
            base = data.index_base or 0
            numbers = {name: int(name) - base for name in listed}
            column = {name: at for name, at in numbers.items() if 0 <= at < data.n_features}
        columns = np.array(sorted({column[name] for name in listed if name in column}), np.int64)
        unknown = [name for name in listed if name not in column]
        if not len(columns):
            first = (f" (its first entry is {listed[0]!r})" if listed else "") + "; list other features"
            raise wrong_setting("transform", f"select: {self.path} lists no feature of the data{first}")
        if unknown:
            warn(
                f"{self.path} lists {len(unknown):,} features that the data lacks ({examples(unknown)}); "
                f"the other {len(columns):,} are selected"
            )
        columns.flags.writeable = False
        return dataclasses.replace(self, width=data.n_features, kept=len(columns), array=columns)

    def after(self, statistics: Statistics) -> Statistics | None:
        assert self.array is not None
        return statistics.take(self.array)

    def n_features(self, n_features: int | None) -> int | None:
        if n_features not in (None, self.width):
            raise ValueError(f"select takes {self.width} features, not {n_features}")
        return self.kept

    def feature_names(self, names: Sequence[str] | None) -> Sequence[str] | None:
        assert self.array is not None
        return None if names is None else [names[column] for column in self.array]

    def numbers(self, numbers: np.ndarray | None) -> np.ndarray | None:
        return None if numbers is None else np.setdiff1d(self._places[numbers], -1)

    @property
    def array_length(self) -> int:
        return self.kept

    def with_array(self, array: np.ndarray) -> Self:
        inside = not len(array) or (array[0] >= 0 and array[-1] < self.width)
        if not (inside and (np.diff(array) > 0).all()):
            raise ValueError("the columns of select must be columns of the data in ascending order")
        return super().with_array(array)


def _read_names(path: str) -> list[str]:
    try:
        with open_file(path, follow=True) as file:
            text = file.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = f"cannot be read: {reason(error)}" if isinstance(error, OSError) else "is not UTF-8 text"
        raise SettingsError(f"transform: select: {path} {why}", setting="transform") from None
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
