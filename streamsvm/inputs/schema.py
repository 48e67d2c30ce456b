"""Schema of the data of a store, run or model, which new data must fit."""

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
    """Classes, features and encoding of the data of a store, run or model."""

    path: Path
    classes: Sequence[str]  # labels as text, by class code
    label_dtype: str  # Python type of the labels
    n_features: int  # number of features before the transforms
    index_base: int | None  # index of the first feature in LIBSVM text; None for other data
    transforms: Sequence[Transform] = ()  # transforms of a model
    names: Sequence[str] | None = None  # names of the features; LIBSVM text has none
    encoding: dict[str, Any] | None = None  # encoding of table columns as features (docs/formats.md)
    label: str | None = None  # column of the labels
    labels_as: str = "numbers"  # how labels in text are read, as for ``convert``

    @property
    def takes_any_feature(self) -> bool:
        """Whether data may have any features, because a transform hashes them."""
        return any(transform.takes_any_feature for transform in self.transforms)

    @property
    def has_plain_features(self) -> bool:
        """Whether features are plain columns of a table, and not categories or n-grams."""
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
    """Return the entries of a record that describe how its data is read."""
    names = ("encoding", "label", "labels_as")
    return {name: record[name] for name in names if record.get(name) is not None}


def read_schema(path: str | Path) -> DataSchema:
    """Read the schema of the store, run or model at `path`."""
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
