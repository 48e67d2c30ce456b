"""Picklable description of the training data of a run, with which other processes read the same blocks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from streamsvm.data.blocks import Blocks
from streamsvm.data.hold_out import held_out_part
from streamsvm.errors import Remedy, StoreError
from streamsvm.settings.fit import NONE, Settings
from streamsvm.store import Store, open_stores
from streamsvm.store.sliced import SlicedStore
from streamsvm.training.costs import check_multilabel
from streamsvm.transforms import Transform
from streamsvm.transforms.store import TransformedStore


def open_to_train(paths: Sequence[str | os.PathLike[str]], settings: Settings) -> Store:
    """Open the store to train on, of one file or several; the loss must be able to take its labels."""
    column = None if settings.sample_weight == NONE else settings.sample_weight
    store = open_stores(
        paths, join=settings.join, label=settings.label, sample_weight=column, layer=settings.layer,
        raw=settings.raw,
    )  # fmt: skip
    try:
        check_multilabel(settings, multilabel=store.multilabel, where=str(store.path))
    except BaseException:
        store.close()
        raise
    return store


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Description of a run's blocks: the store, and how its rows are transformed, weighted and cut.

    Attributes
    ----------
    paths : tuple of str
    fingerprint : str
        Content fingerprint of the store.
    settings : Settings
    transforms : tuple of Transform
    slice_rows : int
        Rows of a slice, if the blocks are made of slices; else 0.
    starts : ndarray of int64
        The first row of each block, and the number of rows.
    class_weights : ndarray of float64, shape (k,), or None
        Factor of the cost of a row of each class.
    """

    paths: tuple[str, ...]
    fingerprint: str
    settings: Settings
    transforms: tuple[Transform, ...]
    slice_rows: int
    starts: np.ndarray
    class_weights: np.ndarray | None

    def open(self) -> Store:
        """Open the store, with transforms and slices; raises `StoreError` if its content is another."""
        raw = open_to_train(self.paths, self.settings)
        if raw.fingerprint != self.fingerprint:
            found = raw.fingerprint
            raw.close()
            raise StoreError(
                f"{', '.join(self.paths)} has the content fingerprint {found[:12]}, and the run has "
                f"{self.fingerprint[:12]}",
                remedy=Remedy("let all machines read the same store"),
            )
        store: Store = TransformedStore(raw, self.transforms)
        if self.slice_rows:
            store = SlicedStore(store, self.slice_rows, self.settings.seed)
        return store

    def blocks(self, store: Store) -> Blocks:
        """Return the blocks of the opened store."""
        settings = self.settings
        return Blocks(
            store,
            self.starts,
            np.dtype(settings.dtype),
            cost=settings.C,
            class_weights=self.class_weights,
            weighted=settings.sample_weight != NONE,
            held_out=held_out_part(settings),
        )
