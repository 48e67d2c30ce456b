"""Picklable description of a training run, and options for executing it."""

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
    """Callbacks, commit interval and workers for executing a training run."""

    callbacks: Callbacks = Callbacks()  # noqa: RUF009
    every: Interval | None = None
    workers: int | None = None  # number of threads or of cluster workers
    cluster: str | os.PathLike[str] | None = None

    @property
    def threads(self) -> int | None:
        """Number of threads that read and convert data in this process; None for the default."""
        return self.workers if self.cluster is None else None


def open_to_train(
    paths: Sequence[str | os.PathLike[str]], settings: Settings, known: str | None = None
) -> Store:
    """Open one or several files as the store to train on, and check that the loss supports its labels.

    Raises `StoreError` if it has no rows, and `RunError` if its fingerprint differs from `known`.
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
                f"the store {', '.join(map(str, paths))} has changed since the run was started, or is "
                "a different store (its content fingerprint differs)",
                remedy=Remedy("restore the old store, or fit again"),
            )
    except BaseException:
        store.close()
        raise
    return store


def copy_inputs(run: RunDir, paths: Iterable[Any], cache: str | None, how: Execution) -> None:
    """Copy the remote inputs of a run to the folder `cache` or, if it is None, to a folder of the run.

    On a cluster, raises `SettingsError` if `cache` is None, because workers may not be able to read the run.
    """

    def progress(stage: str, done: int, total: int | None) -> None:
        if how.callbacks.stop():
            raise Interrupted("stopped while copying data; repeat the command to continue")
        how.callbacks.progress(stage, done, total)

    for url in filter(None, map(as_url, filter(None, paths))):
        if how.cluster is not None and cache is None:
            remedy = Remedy("set {} to a folder that all workers of the cluster can read", Option("cache"))
            raise wrong_setting("cache", f"is required to copy {url} for a cluster", remedy)
        copy_address(url, cache or run.cache, progress)


def rows_to_learn(
    raw: Store, transforms: Sequence[Transform], settings: Settings, slice_rows: int = 0
) -> Store:
    """Return a view of `raw` with transformed rows, in random slices unless `slice_rows` is 0."""
    store = transformed(raw, transforms, dense=takes_dense_rows(settings))
    return sliced(store, slice_rows, settings.seed) if slice_rows else store


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """Picklable description of a training run, from which any process can open the same blocks."""

    spec: Spec
    plan: Plan
    starts: np.ndarray  # int64: first row of each block, followed by the number of rows
    class_weights: np.ndarray | None = None  # float64, shape (k,): factor of the costs of each class's rows
    transforms: Sequence[Transform] = ()
    slice_rows: int = 0  # number of rows in each random slice; 0 for no slices
    paths: tuple[str, ...] = ()  # paths of the stores; empty for rows in memory
    fingerprint: str = ""

    def open(self) -> Store:
        """Open the store, and apply the transforms and slices."""
        settings = self.spec.settings
        paths = [copy_address(path, settings.cache) for path in self.paths]
        raw = open_to_train(paths, settings, self.fingerprint)
        return rows_to_learn(raw, self.transforms, settings, self.slice_rows)

    def blocks(self, store: Store) -> Blocks:
        """Return the blocks of the opened store, with the cost of each row; held-out rows have cost 0."""
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
