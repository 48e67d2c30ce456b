"""A training as a value, with which other processes open the same blocks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from streamsvm.data.blocks import Blocks
from streamsvm.data.hold_out import held_out_part
from streamsvm.data.memory_plan import Plan
from streamsvm.errors import Remedy, StoreError
from streamsvm.settings.fit import NONE, Settings
from streamsvm.store import Store, open_stores
from streamsvm.store.addresses import copy_address
from streamsvm.store.sliced import sliced
from streamsvm.store.views import as_sparse
from streamsvm.training.costs import check_multilabel
from streamsvm.training.spec import Spec, takes_dense_rows
from streamsvm.transforms import Transform
from streamsvm.transforms.store import transformed


def open_to_train(paths: Sequence[str | os.PathLike[str]], settings: Settings) -> Store:
    """Open the store to train on, of one file or several; the loss must be able to take its labels."""
    column = None if settings.sample_weight == NONE else settings.sample_weight
    store = open_stores(
        paths, join=settings.join, label=settings.label, sample_weight=column, layer=settings.layer,
        raw=settings.raw, obsm=settings.obsm, labels=settings.labels, weights=settings.weights,
    )  # fmt: skip
    try:
        check_multilabel(settings, multilabel=store.multilabel, where=str(store.path))
    except BaseException:
        store.close()
        raise
    return store


def rows_to_learn(
    raw: Store, transforms: Sequence[Transform], settings: Settings, slice_rows: int = 0
) -> Store:
    """Return the transformed rows of an opened store, in random slices of `slice_rows` if these are not 0.

    They are CSR, unless dense rows may stay dense.
    """
    store = transformed(raw if takes_dense_rows(settings) else as_sparse(raw), transforms)
    return sliced(store, slice_rows, settings.seed) if slice_rows else store


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """What is trained, as a picklable value: any process opens the same blocks of a store with it.

    Attributes
    ----------
    spec : Spec
    plan : Plan
    starts : ndarray of int64
        The first row of each block, and the number of rows.
    class_weights : ndarray of float64, shape (k,), or None
        Factor of the cost of a row of each class.
    transforms : sequence of Transform
    slice_rows : int
        Rows of a slice, if rows are read in random slices; else 0.
    paths : tuple of str
        The stores; none if the rows are in memory.
    fingerprint : str
        Content fingerprint of the stores.
    """

    spec: Spec
    plan: Plan
    starts: np.ndarray
    class_weights: np.ndarray | None = None
    transforms: Sequence[Transform] = ()
    slice_rows: int = 0
    paths: tuple[str, ...] = ()
    fingerprint: str = ""

    def open(self) -> Store:
        """Open the store, with transforms and slices; raises `StoreError` if its content is another."""
        settings = self.spec.settings
        raw = open_to_train([copy_address(path, settings.cache) for path in self.paths], settings)
        if raw.fingerprint != self.fingerprint:
            found = raw.fingerprint
            raw.close()
            raise StoreError(
                f"{', '.join(self.paths)} has the content fingerprint {found[:12]}, and the run has "
                f"{self.fingerprint[:12]}",
                remedy=Remedy("let all machines read the same store"),
            )
        return rows_to_learn(raw, self.transforms, settings, self.slice_rows)

    def blocks(self, store: Store) -> Blocks:
        """Return the blocks of the opened store, with the costs of their rows; held-out rows have cost 0."""
        settings = self.spec.settings
        return Blocks(
            store,
            self.starts,
            self.spec.dtype,
            cost=settings.C,
            class_weights=self.class_weights,
            weighted=settings.sample_weight != NONE,
            held_out=held_out_part(settings.hold_out),
            plan=self.plan,
        )
