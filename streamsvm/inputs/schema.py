"""Schema of the data in a store, run or model, which new data must match."""

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
    """Classes, features and encoding of the data in a store, run or model."""

    path: Path
    classes: Sequence[str]
    label_dtype: str
    n_features: int
    index_base: int | None  # index of the first feature in LIBSVM text; None for other data
    transforms: Sequence[Transform] = ()
    names: Sequence[str] | None = None
    encoding: dict[str, Any] | None = None  # encoding of table columns as features (docs/formats.md)
    label: str | None = None
    labels_as: str = "numbers"  # how labels in text are read, as for ``convert``

    @property
    def takes_any_feature(self) -> bool:
        """Whether data may have any features, because a transform hashes them."""
        return any(transform.takes_any_feature for transform in self.transforms)

    @property
    def has_plain_features(self) -> bool:
        """Whether all features are plain columns, rather than categories or n-grams of a table."""
        encoding = self.encoding or {"columns": []}
        plain = [each.keys() <= {"name", "type"} for each in encoding["columns"]]
        return "text" not in encoding and all(plain)

    def resolve_index_base(self, index_base: int | None) -> int:
        """Return the index of the first feature in LIBSVM text that has this schema.

        Raises `InputError` if `index_base` contradicts the schema, if none is set, or if features have names.
        """
        if self.encoding is not None or self.names is not None:
            have = "have names" if self.encoding is None else "are columns of a table"
            raise InputError(
                f"the features of {self.path} {have}, but LIBSVM text numbers its features",
                remedy=Remedy("use data of the same kind, or convert without {}", Option("like")),
            )
        base = index_base if self.index_base is None else self.index_base
        if base is None:
            raise InputError(
                f"{self.path} does not record an index base",
                remedy=Remedy("set {} to 0 or 1", Option("index_base")),
            )
        if index_base not in (None, base):
            raise InputError(
                f"an index base of {index_base} contradicts {self.path}, whose indices start at {base}",
                remedy=Remedy("leave {} out", Option("index_base")),
            )
        return base


def reading_of(record: Mapping[str, Any]) -> dict[str, Any]:
    names = ("encoding", "label", "labels_as")
    return {name: record[name] for name in names if record.get(name) is not None}


def read_schema(path: str | Path) -> DataSchema:
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
    record, names = model.record, model.feature_names_in_
    return DataSchema(
        Path(path), record["classes"], record.get("label_dtype", TEXT), model.n_features_in_,
        record["index_base"], model.transforms, None if names is None else names.tolist(),
        **reading_of(record),
    )  # fmt: skip
