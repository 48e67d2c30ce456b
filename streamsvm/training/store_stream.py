"""Stream of the rows of a store, in the order in which they are stored."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from streamsvm.base.label_values import TEXT, class_name
from streamsvm.base.text import absolute
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, Option, Remedy, SettingsError, StoreError, part_of_memory
from streamsvm.inputs.blocks import blocks_to_score
from streamsvm.inputs.schema import reading_of, schema_of_store
from streamsvm.settings.fit import NONE, Settings
from streamsvm.settings.online import StoreSettings
from streamsvm.store.addresses import copy_address
from streamsvm.training.training import open_to_train

STORE = "store"  # value of "kind" in the record; text streams have no "kind"


class StoreStream:
    """Stream of the rows of one store or several joined stores. As a context manager, it closes them.

    `classes` lists all classes. It is needed only if the stores lack some classes, or to set their order.
    Raises `StoreError` if the store cannot be read or has no rows, or if rows have weights or several labels.
    """

    resumable = True

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        settings: StoreSettings,
        dtype: str,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self._paths, self._settings, self._dtype = list(map(absolute, paths)), settings, dtype
        self._listed = None if classes is None else [class_name(label) for label in classes]
        if len(set(self._listed or ())) < len(self._listed or ()):
            raise SettingsError("classes lists a class twice; list each class once", setting="classes")
        self.store = open_to_train(self._paths, Settings(**settings.of_fit))
        try:
            self._check_rows()
            self.classes: list[str] | None = list(self._listed or self.store.classes)
            self.feature_names = self.store.feature_names()
            self.cut_blocks(0)
        except BaseException:
            self.store.close()
            raise
        label_dtype, known = self.store.label_dtype, set(self.store.classes)
        self.label_dtype = label_dtype if label_dtype == TEXT or set(self.classes) <= known else None
        self.n_features: int | None = self.store.n_features
        self.index_base, self.dense_rows = self.store.index_base, self.store.dense_rows

    def cut_blocks(self, row_bytes: int) -> None:
        """Divide the rows into blocks; a transformed copy of each row takes `row_bytes` of extra memory."""
        like = dataclasses.replace(schema_of_store(self.store, self.store.path), classes=self.classes or ())
        with part_of_memory(2):
            self._blocks = blocks_to_score(
                self.store, like, np.dtype(self._dtype), self._settings.memory // 2, held_row_bytes=row_bytes
            )
        self._blocks.labelled = self._settings.unseen_label != "keep"

    def _check_rows(self) -> None:
        store = self.store
        if store.n_rows == 0:
            raise StoreError(f"{store.path} has no rows to learn from")
        if store.multilabel:
            raise StoreError(f"rows of {store.path} may have several labels, but online needs one; use fit")
        if store.weighted and self._settings.sample_weight != NONE:
            remedy = Remedy("ignore the weights with {}, or train with fit", Option("sample_weight", NONE))
            raise StoreError(
                f"the rows of {store.path} have weights, which online does not support", remedy=remedy
            )

    def record(self) -> dict[str, Any]:
        """Return the record for `from_record`, including how the columns of the store are read."""
        return {
            "kind": STORE,
            "inputs": self._paths,
            "fingerprint": self.store.fingerprint,
            "store": dataclasses.asdict(self._settings),
            "dtype": self._dtype,
            "classes": self._listed,
            "resumable": True,
            **reading_of(self.store.meta),
        }

    @classmethod
    def from_record(
        cls, record: dict[str, Any], paths: Sequence[str | os.PathLike[str]] | None = None
    ) -> Self:
        """Open the recorded store again, or its copy at `paths`; raise `InputError` if it has changed."""
        settings = StoreSettings(**record["store"])
        for path in (paths := paths or record["inputs"]):
            copy_address(path, settings.cache)
        stream = cls(paths, settings, record["dtype"], record["classes"])
        if stream.store.fingerprint != record["fingerprint"]:
            stream.store.close()
            raise InputError(
                f"{', '.join(stream._paths)} has changed since the run learned from it (its content "
                "fingerprint differs); restore it, or start a new run"
            )
        return stream

    def batches(
        self, place: dict[str, Any] | None, classes: Sequence[str]
    ) -> Iterator[tuple[Rows, list[str], dict[str, Any]]]:
        """Yield (rows, [], place after the block) for the blocks after `place`; there are no new classes."""
        blocks, row = self._blocks, (place or {}).get("row", 0)
        first = int(np.searchsorted(blocks.starts, row))
        if blocks.starts[first] != row:  # the chunks of the store have changed
            raise InputError(f"the chunks of {self.store.path} have changed; restore the old store")
        for block in range(first, len(blocks)):
            yield blocks.read(block), [], {"row": int(blocks.starts[block + 1])}

    def sources(self, place: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Return an empty list, because the run's record contains the fingerprint of the store."""
        return []

    def summary(self, place: dict[str, Any] | None) -> dict[str, Any]:
        """Return the number of unlabelled rows in the whole store, which are left out."""
        return {"unlabelled": self.store.unlabelled, "first_errors": []}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.store.close()
