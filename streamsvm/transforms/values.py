"""Elementwise transforms: log1p, binarize and clip. Zeros remain zeros."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.transforms.base import Transform, checked_number, refuse_negative

_SYNTAX = "clip=v with a number v above 0, such as clip=10"


@dataclasses.dataclass(frozen=True)
class Log1p(Transform):
    """Replace each value x by log(1 + x), as in ``scanpy.pp.log1p``."""

    name: ClassVar = "log1p"

    def __call__(self, rows: Rows) -> Rows:
        refuse_negative(rows, self.name)
        return rows._replace(data=np.log1p(rows.data))


@dataclasses.dataclass(frozen=True)
class Binarize(Transform):
    """Replace positive values by 1 and all others by 0, as in ``sklearn.preprocessing.Binarizer``."""

    name: ClassVar = "binarize"

    def __call__(self, rows: Rows) -> Rows:
        return rows._replace(data=(rows.data > 0).astype(rows.data.dtype))


@dataclasses.dataclass(frozen=True)
class Clip(Transform):
    """Limit values to the interval [-`most`, `most`]."""

    name: ClassVar = "clip"
    setting: ClassVar = "most"

    most: float  # above 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", checked_number(self.most, _SYNTAX, positive=True))

    def __call__(self, rows: Rows) -> Rows:
        most = rows.data.dtype.type(self.most)
        return rows._replace(data=np.clip(rows.data, -most, most))
