"""Schema of the data of a store, a run or a model, which new data must fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.base import format
from streamsvm.base.label_values import TEXT
from streamsvm.errors import InputError, Option, Remedy

if TYPE_CHECKING:
    from streamsvm.model.model import Model
    from streamsvm.store import Store
    from streamsvm.transforms import Transform


@dataclasses.dataclass(frozen=True)
class DataSchema:
    """Classes, features and encoding of the data of a store, run or model.

    Attributes
    ----------
    path : Path
    classes : sequence of str
        Label texts by class code.
    label_dtype : str
        Type of the labels in Python.
    n_features : int
    index_base : int or None
        Index of the first feature in the text that the data is from, if it is from text.
    transforms : sequence of Transform
        Transforms of a model; `n_features` counts the features before them.
    names : sequence of str or None
        Names of the features, which LIBSVM text cannot give.
    encoding : dict or None
        Record of the encoding of a table's columns as features (docs/formats.md).
    label : str or None
        The column with the labels.
    labels_as : {"numbers", "text"}
        Reading of labels of text, as for ``convert``.
    """

    path: Path
    classes: Sequence[str]
    label_dtype: str
    n_features: int
    index_base: int | None
    transforms: Sequence[Transform] = ()
    names: Sequence[str] | None = None
    encoding: dict[str, Any] | None = None
    label: str | None = None
    labels_as: str = "numbers"

    @property
    def takes_any_feature(self) -> bool:
        """True if data may have any features, because a transform hashes them."""
        return any(transform.takes_any_feature for transform in self.transforms)

    @property
    def has_plain_features(self) -> bool:
        """False if features are not columns of a table but made from them: categories, or n-grams of text."""
        encoding = self.encoding or {"columns": []}
        plain = [each.keys() <= {"name", "type"} for each in encoding["columns"]]
        return "text" not in encoding and all(plain)

    def resolve_index_base(self, given: int | None) -> int:
        """Return the index base of text with these features.

        Raises `InputError` if `given` contradicts it, neither is known, or the features have names.
        """
        if self.encoding is not None or self.names is not None:
            have = "have names" if self.encoding is None else "are columns of a table"
            raise InputError(
                f"the features of {self.path} {have}, and those of LIBSVM text have numbers",
                remedy=Remedy("give data of the same kind, or convert without {}", Option("like")),
            )
        base = given if self.index_base is None else self.index_base
        if base is None:
            raise InputError(
                f"{self.path} does not record an index base",
                remedy=Remedy("give {}, 0 or 1", Option("index_base")),
            )
        if given not in (None, base):
            raise InputError(
                f"an index base of {given} contradicts {self.path}, whose indices start at {base}",
                remedy=Remedy("leave {} out", Option("index_base")),
            )
        return base


def reading_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a store's, run's or model's record that describe the reading of its data."""
    names = ("encoding", "label", "labels_as")
    return {name: record[name] for name in names if record.get(name) is not None}


def read_schema(path: str | Path) -> DataSchema:
    """Read the schema of the data of the store, run or model at `path`."""
    path = Path(path)
    if (path / format.RUN_JSON).exists() or (path / format.MODEL_JSON).exists():
        from streamsvm.model.model import load_model

        return schema_of_model(load_model(path), path)
    from streamsvm.store import open_store

    with open_store(path) as store:
        return schema_of_store(store, path)


def schema_of_store(store: Store, path: str | Path) -> DataSchema:
    """Return the schema of a store, which messages call `path`."""
    return DataSchema(
        Path(path), store.classes, store.label_dtype, store.n_features, store.index_base, (),
        store.feature_names(), **reading_of(store.meta),
    )  # fmt: skip


def schema_of_model(model: Model, path: str | Path = "the model") -> DataSchema:
    """Return the schema of the data of a model, which messages call `path`."""
    record, names = model.record, model.feature_names_in_
    return DataSchema(
        Path(path), record["classes"], record.get("label_dtype", TEXT), model.n_features_in_,
        record["index_base"], model.transforms, None if names is None else names.tolist(),
        **reading_of(record),
    )  # fmt: skip
