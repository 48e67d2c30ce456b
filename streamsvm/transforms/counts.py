"""Check that rows contain counts, for models with ``normalize`` or ``log1p`` that were trained on counts.

Without the check, normalised values or logarithms would be transformed twice, and predictions would be wrong.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import Remedy
from streamsvm.transforms.base import Transform, refuse_row


@dataclasses.dataclass(frozen=True)
class Counts(Transform):
    """Leave rows unchanged, but raise `RowFault` if a value is not a whole number.

    Training on counts with `normalize` or `log1p` inserts this transform first, unless ``counts=no`` is set.
    """

    name: ClassVar = "counts"

    checked: bool = True  # False for ``counts=no``; training then removes the transform

    def __call__(self, rows: Rows) -> Rows:
        is_fraction = np.floor(rows.data) != rows.data
        if is_fraction.any():
            at = int(np.argmax(is_fraction))
            refuse_row(
                rows, at, f"has the value {rows.data[at]:.6g}, which is not a whole number, but the "
                "training data are counts",
                Remedy(
                    "use the counts, which AnnData usually stores in raw or in a layer, or train with "
                    "counts=no as the first transform"
                ),
            )  # fmt: skip
        return rows

    @classmethod
    def from_text(cls, value: str | None) -> Self:
        if value not in (None, "no"):
            raise ValueError("counts, or counts=no")
        return cls(value is None)

    def record(self) -> dict[str, bool]:
        return {}
