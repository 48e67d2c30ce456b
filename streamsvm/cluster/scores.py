"""Scoring of a store on a Dask cluster: workers read blocks and return predictions, or sums for metrics."""

from __future__ import annotations

import dataclasses
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.cluster import worker
from streamsvm.data.rows import Rows
from streamsvm.errors import Option, Remedy, SettingsError, StoreError, part_of_memory
from streamsvm.model.inputs import StoreBlocks
from streamsvm.model.model import Model
from streamsvm.model.rows_to_score import RowCounts
from streamsvm.store import Store, open_store

if TYPE_CHECKING:
    from streamsvm.cluster.client import Cluster

# Function of a block: (model, rows, names of the rows, number of the first row) -> result.
Work = Callable[[Model, Rows, np.ndarray, int], Any]


@dataclasses.dataclass(frozen=True)
class StoreToScore:
    """Picklable description of a store to score, which workers open.

    Attributes
    ----------
    path : str
        Absolute, since workers have other working directories.
    label, default_label, layer, raw, labelled
        As for `open_store`.
    named : bool
        Whether to read the names of its rows.
    memory : int
        Bytes that a block may take; in the argument of `score_on_cluster`, bytes that a worker may take.
    fingerprint : str, optional
        Fingerprint that the store must have.
    """

    path: str
    label: str | None
    layer: str | None
    raw: bool
    labelled: bool
    named: bool
    memory: int
    fingerprint: str | None = None
    default_label: str | None = None

    def open(self) -> Store:
        store = open_store(
            self.path, label=self.label, default_label=self.default_label, labelled=self.labelled,
            layer=self.layer, raw=self.raw,
        )  # fmt: skip
        if self.fingerprint not in (None, store.fingerprint):
            store.close()
            raise StoreError(
                f"{self.path} is not what the command reads: the content fingerprint differs",
                remedy=Remedy("let all machines read the same store"),
            )
        return store

    def blocks(self, model: Model, store: Store) -> StoreBlocks:
        """Return the blocks of the store, with the features and classes of a model."""
        return model.store_blocks(store, self.memory, labelled=self.labelled, named=self.named)


@dataclasses.dataclass(frozen=True)
class _ScoringJob:
    """Facts that all tasks of one scoring need."""

    token: str
    model: Model
    data: StoreToScore
    work: Work


def check_is_store(data: Iterable[Any], **for_matrices: Any) -> None:
    """Raise `SettingsError` unless all data is paths, and no argument that only matrices need is given."""
    for each in data:
        if not isinstance(each, str | os.PathLike):
            raise SettingsError(
                "cluster is for paths of stores, which its workers read, not for what is open or in memory",
                remedy=Remedy("convert text first, or leave {} out", Option("cluster")),
                setting="cluster",
            )
    for name, value in for_matrices.items():
        if value is not None:
            raise SettingsError(f"{name} is for the rows of a matrix; a store has its own", setting=name)


def score_on_cluster(
    cluster: Cluster, model: Model, data: StoreToScore, work: Work, counts: RowCounts
) -> Iterator[Any]:
    """Call `work` for each block of a store, on the workers, and yield the results in the order of blocks.

    Raises
    ------
    ClusterError
        If workers differ, cannot read the store, or are lost faster than others do their work.
    """
    shares = 2 * cluster.most_threads  # a block of each thread, and what is made of it
    with data.open() as store, part_of_memory(shares):
        data = dataclasses.replace(data, fingerprint=store.fingerprint, memory=data.memory // shares)
        counts.n_rows, counts.unlabelled = store.n_rows, store.unlabelled
        n_blocks = len(data.blocks(model, store))
    cluster.check(data)
    token = cluster.token + uuid.uuid4().hex
    job = cluster.hold(_ScoringJob(token, model, data, work))
    try:
        yield from cluster.in_order("score", _score_block, ((job, block) for block in range(n_blocks)))
    finally:
        cluster.tell(worker.close, token)  # else nobody could write to the file


class _OpenBlocks:
    """Blocks of a store that a worker has opened."""

    def __init__(self, job: _ScoringJob) -> None:
        self._store = job.data.open()
        self.blocks = job.data.blocks(job.model, self._store)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._store.close()

    def read(self, block: int) -> tuple[Rows, np.ndarray]:
        with self._lock:  # a worker may have several threads
            return self.blocks.read(block)


def _score_block(job: _ScoringJob, block: int) -> Any:
    store = worker.open_once(job.token, lambda: _OpenBlocks(job))
    rows, names = store.read(block)
    return job.work(job.model, rows, names, store.blocks.first_row(block))
