"""Rows of stores as a stream, for online training."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streamsvm.base.text import absolute
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, SettingsError
from streamsvm.model.schema import reading_of
from streamsvm.store import Store, open_stores

_VALUES = 2**22  # of a batch, about
_ROWS = 2**14  # no batch goes beyond a multiple of it, so that batches do not depend on where a run resumes


class StoreStream:
    """Rows of a store, or of several as one, in their order: a stream for `streamsvm.online`.

    Its classes and features are known, and a run over it can be resumed. Rows count by their weights.

    Parameters
    ----------
    *paths : path
        What `streamsvm.fit` trains on where it lies: stores, AnnData, matrices (.npy, .npz, Zarr, lists).
    **options
        `label`, `labels`, `weights`, `layer`, `raw`, `obsm` and `join`, as for `streamsvm.fit`.

    Raises
    ------
    StoreError
        If it cannot be opened, or has no labels.
    SettingsError
        If rows have several labels, or an option is for other data.
    """

    resumable = True

    def __init__(self, *paths: str | os.PathLike[str], **options: Any) -> None:
        self._paths = [absolute(path) for path in paths]
        self._options = {
            name: absolute(value) if name in ("labels", "weights") else value
            for name, value in options.items()
            if value is not None
        }
        with self._open() as store:
            if store.multilabel:
                raise SettingsError(f"{paths[0]} has rows of several labels, which online does not take")
            self.classes: list[str] | None = list(store.classes)
            self.n_features: int | None = store.n_features
            self.index_base = store.index_base
            self.dense_rows = store.dense_rows
            self.names = store.feature_names()
            self._n_rows, self._label_dtype = store.n_rows, store.label_dtype
            self._fingerprint, self._reading = store.fingerprint, reading_of(store.meta)

    def _open(self) -> Store:
        return open_stores(self._paths, **self._options)

    def record(self) -> dict[str, Any]:
        """Return what `from_record` opens again, as JSON."""
        return {
            "inputs": self._paths, "options": self._options, "fingerprint": self._fingerprint,
            "classes": self.classes, "resumable": True, **self._reading,
        }  # fmt: skip

    @staticmethod
    def is_record(record: dict[str, Any]) -> bool:
        """Return True if a record is of such a stream."""
        return "fingerprint" in record

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> StoreStream:
        """Return the stream that `record` describes; raise `InputError` if its data are others now."""
        try:
            stream = cls(*record["inputs"], **record["options"])
        except (KeyError, TypeError) as error:
            raise InputError(f"the input recorded in the run is invalid: {error}; start a new run") from None
        if stream._fingerprint != record["fingerprint"]:
            raise InputError(
                f"{', '.join(stream._paths)} has changed since the run learned from it; restore the file, or "
                "start a new run"
            )
        return stream

    def batches(
        self, place: dict[str, Any] | None, classes: Sequence[str]
    ) -> Iterator[tuple[Rows, list[str], dict[str, Any]]]:
        """Yield the batches from `place` on, no new classes, and the place after each."""
        done, n_rows = self._row(place), self._n_rows
        with self._open() as store:
            for window in range(done - done % _ROWS, n_rows, _ROWS):
                for first, rows in store.pieces(_VALUES, max(window, done), min(window + _ROWS, n_rows)):
                    yield rows, [], {"row": first + rows.n_rows}

    def _row(self, place: dict[str, Any] | None) -> int:
        row = 0 if place is None else place.get("row")
        if not (isinstance(row, int) and 0 <= row <= self._n_rows):
            raise InputError("the position recorded in the run is invalid; start a new run")
        return row

    def sources(self, place: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Return the data, for the model's record, if they were read to their end."""
        whole = self._row(place) == self._n_rows
        return [{"path": self._paths, "fingerprint": self._fingerprint}] if whole else []

    def summary(self, place: dict[str, Any] | None) -> dict[str, Any]:
        """Return that nothing was left out."""
        return {"first_errors": []}

    def in_order(self, classes: Sequence[str]) -> np.ndarray:
        return np.arange(len(classes))

    def label_dtype(self, classes: Sequence[str]) -> str:
        return self._label_dtype
