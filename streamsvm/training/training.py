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


def rows_to_learn(raw: Store, transforms: Sequence[Transform], *, dense: bool) -> Store:
    """Return the transformed rows of an opened store: as CSR, unless dense rows may stay so."""
    return transformed(raw if dense else as_sparse(raw), transforms)


@dataclasses.dataclass(frozen=True)
class DataRef:
    """Picklable reference to the data of a run: the stores, and how their rows are transformed and sliced.

    Attributes
    ----------
    paths : tuple of str
    fingerprint : str
        Content fingerprint of the stores.
    settings : Settings
        They say which columns and layers of the stores are read.
    transforms : tuple of Transform
    slice_rows : int
        Rows of a slice, if rows are read in random slices; else 0.
    """

    paths: tuple[str, ...]
    fingerprint: str
    settings: Settings
    transforms: tuple[Transform, ...] = ()
    slice_rows: int = 0

    def open(self) -> Store:
        """Open the store, with transforms and slices; raises `StoreError` if its content is another."""
        raw = open_to_train([copy_address(path, self.settings.cache) for path in self.paths], self.settings)
        if raw.fingerprint != self.fingerprint:
            found = raw.fingerprint
            raw.close()
            raise StoreError(
                f"{', '.join(self.paths)} has the content fingerprint {found[:12]}, and the run has "
                f"{self.fingerprint[:12]}",
                remedy=Remedy("let all machines read the same store"),
            )
        return self.view(raw)

    def view(self, raw: Store) -> Store:
        """Return the rows to train on of the opened stores."""
        store = rows_to_learn(raw, self.transforms, dense=takes_dense_rows(self.settings))
        if self.slice_rows:
            store = sliced(store, self.slice_rows, self.settings.seed)
        return store


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """What a run trains, as a value: any process opens the same blocks with it.

    Attributes
    ----------
    data : DataRef
    spec : Spec
    plan : Plan
    starts : ndarray of int64
        The first row of each block, and the number of rows.
    class_weights : ndarray of float64, shape (k,), or None
        Factor of the cost of a row of each class.
    """

    data: DataRef
    spec: Spec
    plan: Plan
    starts: np.ndarray
    class_weights: np.ndarray | None

    def blocks(self, store: Store) -> Blocks:
        """Return the blocks of the opened data."""
        return blocks_to_train(store, self.starts, self.spec, self.class_weights, self.plan)


def blocks_to_train(
    store: Store, starts: np.ndarray, spec: Spec, class_weights: np.ndarray | None, plan: Plan | None = None
) -> Blocks:
    """Return the blocks of opened data, with the costs of their rows; held-out rows have the cost 0."""
    settings = spec.settings
    return Blocks(
        store,
        starts,
        spec.dtype,
        cost=settings.C,
        class_weights=class_weights,
        weighted=settings.sample_weight != NONE,
        held_out=held_out_part(settings.hold_out),
        plan=plan,
    )
