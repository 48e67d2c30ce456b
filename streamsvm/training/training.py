"""A training as a value, with which other processes open the same blocks, and how it is executed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streamsvm.base.text import as_url
from streamsvm.data.blocks import Blocks
from streamsvm.data.hold_out import held_out_part
from streamsvm.data.memory_plan import Plan
from streamsvm.errors import Interrupted, Option, Remedy, RunError, StoreError, wrong_setting
from streamsvm.run.directory import RunDir
from streamsvm.settings.fit import NONE, Interval, Settings
from streamsvm.store import Store, open_stores
from streamsvm.store.addresses import copy_address
from streamsvm.store.sliced import sliced
from streamsvm.training.costs import check_multilabel
from streamsvm.training.spec import Spec, takes_dense_rows
from streamsvm.training.trainer import Callbacks
from streamsvm.transforms import Transform
from streamsvm.transforms.store import transformed


@dataclasses.dataclass(frozen=True)
class Execution:
    """Who is told about a training, how often it commits, and who does the work.

    Attributes
    ----------
    callbacks : Callbacks
    every : Interval or None
        Interval between commits of a run.
    workers : int or None
        Number of threads or, with a cluster, of its workers.
    cluster : str or path or None
        Address of the cluster.
    """

    callbacks: Callbacks = Callbacks()  # noqa: RUF009
    every: Interval | None = None
    workers: int | None = None
    cluster: str | os.PathLike[str] | None = None

    @property
    def threads(self) -> int | None:
        """Number of threads of this process that read and convert data."""
        return self.workers if self.cluster is None else None


def open_to_train(
    paths: Sequence[str | os.PathLike[str]], settings: Settings, known: str | None = None
) -> Store:
    """Open the store to train on, of one file or several; the loss must be able to take its labels.

    Raises `RunError` if the store does not have the `known` fingerprint.
    """
    column = None if settings.sample_weight == NONE else settings.sample_weight
    store = open_stores(
        paths, join=settings.join, label=settings.label, sample_weight=column, layer=settings.layer,
        raw=settings.raw, obsm=settings.obsm, labels=settings.labels, weights=settings.weights,
        hold_out_by=settings.hold_out_by,
    )  # fmt: skip
    try:
        check_multilabel(settings, multilabel=store.multilabel, where=str(store.path))
        if store.n_rows == 0:
            raise StoreError(f"{store.path} has no rows to train on")
        if known not in (None, store.fingerprint):
            raise RunError(
                f"the store {', '.join(map(str, paths))} has changed since the run was begun, or is another "
                "one on this machine (its content fingerprint differs)",
                remedy=Remedy("bring the old store back, or fit again"),
            )
    except BaseException:
        store.close()
        raise
    return store


def copy_inputs(run: RunDir, paths: Iterable[Any], cache: str | None, how: Execution) -> None:
    """Copy the inputs of a run that are at addresses to the folder `cache`, or to one in the run.

    Raises
    ------
    SettingsError
        If workers of a cluster, which need not see the run, would have to read a copy in it.
    """

    def progress(stage: str, done: int, total: int | None) -> None:
        if how.callbacks.stop():
            raise Interrupted("stopped while data was copied; the same command goes on")
        how.callbacks.progress(stage, done, total)

    for url in filter(None, map(as_url, filter(None, paths))):
        if how.cluster is not None and cache is None:
            remedy = Remedy("name a folder that all workers of the cluster see with {}", Option("cache"))
            raise wrong_setting("cache", f"is missing, for a copy of {url}", remedy)
        copy_address(url, cache or run.cache, progress)


def rows_to_learn(
    raw: Store, transforms: Sequence[Transform], settings: Settings, slice_rows: int = 0
) -> Store:
    """Return the transformed rows of an opened store, in random slices of `slice_rows` if these are not 0.

    They are CSR, unless dense rows may stay dense.
    """
    store = transformed(raw, transforms, dense=takes_dense_rows(settings))
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
        """Open the store, with transforms and slices."""
        settings = self.spec.settings
        paths = [copy_address(path, settings.cache) for path in self.paths]
        raw = open_to_train(paths, settings, self.fingerprint)
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
            held_out=held_out_part(settings.hold_out, store, settings.memory),
            plan=self.plan,
            labelled=True,
        )
