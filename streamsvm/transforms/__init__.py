"""Transforms of rows, applied in training and by the model in prediction: one file each, one line here.

A transform is a frozen dataclass of its parameters. Its record stands in the model's, so that whatever
predicts applies what training applied.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

from streamsvm.data.rows import Rows

TRANSFORMS = {  # name in a record: module and class
    "hash": ("streamsvm.transforms.hashing", "Hashing"),
}


class Transform(Protocol):
    """Rows in, rows out.

    Attributes
    ----------
    name : str
        Its key in `TRANSFORMS`.
    takes_any_feature : bool
        Whether rows may have features that training did not see: it then takes the numbers of features as
        they stand in the text.
    """

    name: ClassVar[str]
    takes_any_feature: ClassVar[bool]

    def __call__(self, rows: Rows) -> Rows: ...

    def n_features(self, n_features: int | None) -> int | None:
        """Features of the transformed rows, given those of the rows; None if not known."""

    def record(self) -> dict[str, Any]:
        """Its parameters, as JSON."""

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """The transform of a record; raises `ValueError` or `TypeError` if it is not one."""


def transforms_from(records: Sequence[dict[str, Any]]) -> list[Transform]:
    """The transforms of a model's record, in the order of their application.

    Raises `ValueError`, `TypeError` or `KeyError` if a record is not one that a transform wrote.
    """
    transforms = []
    for record in records:
        parameters = dict(record)
        module, kind = TRANSFORMS[parameters.pop("name")]
        transforms.append(getattr(importlib.import_module(module), kind).from_record(parameters))
    return transforms


def records_of(transforms: Sequence[Transform]) -> list[dict[str, Any]]:
    """What `transforms_from` makes the transforms from."""
    return [{"name": transform.name, **transform.record()} for transform in transforms]


def features_after(transforms: Sequence[Transform], n_features: int | None) -> int | None:
    """Features of the rows that `apply` gives, given those of the rows; None if not known."""
    for transform in transforms:
        n_features = transform.n_features(n_features)
    return n_features


def apply(transforms: Sequence[Transform], rows: Rows) -> Rows:
    """Rows after all transforms."""
    for transform in transforms:
        rows = transform(rows)
    return rows
