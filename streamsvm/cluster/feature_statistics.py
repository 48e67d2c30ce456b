"""Statistics of features on a Dask cluster: workers read spans of rows, which are joined in their order."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from streamsvm.cluster import worker as on_worker
from streamsvm.data.rows import kept_rows
from streamsvm.data.statistics import SpanStatistics, Statistics, join_spans, spans
from streamsvm.settings.fit import Settings
from streamsvm.store import Store
from streamsvm.training.training_data import TrainingData
from streamsvm.transforms import apply
from streamsvm.transforms.fitting import Gather, Kind, StatisticsRequest, nnz_per_piece, store_pieces
from streamsvm.transforms.store import TransformedStore


class _Reading(NamedTuple):
    """What workers need to know of a reading.

    Attributes
    ----------
    token : str
    data : TrainingData
        Without transforms.
    wanted : tuple of StatisticsRequest
    shift : int
        As for `TransformedStore`.
    kind : {"counts", "moments"}
    memory : int
        Bytes for what a thread reads at a time.
    """

    token: str
    data: TrainingData
    wanted: tuple[StatisticsRequest, ...]
    shift: int
    kind: Kind
    memory: int

    def open(self) -> Store:
        return TransformedStore(self.data.open(), (), self.shift)


def gather_on_cluster(
    address: str | os.PathLike[str],
    workers: int | None,
    paths: Sequence[str],
    store: Store,
    settings: Settings,
    progress: Callable[[int, int], None],
) -> Gather:
    """What gathers statistics of a store by the workers of the cluster at an address, reached when needed.

    Parameters
    ----------
    address, workers
        As for `Cluster`.
    paths : sequence of str
        Of the store, from the root.
    store : TransformedStore
        The features before any transform, with the numbers that the first one takes.
    settings : Settings
    progress : callable
        Called with the rows read and all rows.
    """
    assert isinstance(store, TransformedStore)
    no_blocks = np.zeros(1, np.int64)
    data = TrainingData(tuple(paths), store.inner.fingerprint, settings, (), 0, no_blocks, None)

    def gather(wanted: Sequence[StatisticsRequest], kind: Kind) -> list[Statistics]:
        from streamsvm.cluster.client import Cluster

        found = spans(store.n_rows)

        def parts(reading: _Reading) -> Iterator[list[Statistics]]:
            held = cluster.hold(reading)
            results = cluster.in_order("statistics", _of_span, ((held, *ends) for ends in found))
            for (_, stop), part in zip(found, results, strict=True):
                yield part
                progress(stop, store.n_rows)

        with Cluster(address, workers) as cluster:
            cluster.check(data)
            token, memory = cluster.token + uuid.uuid4().hex, settings.memory // cluster.most_threads
            try:
                reading = _Reading(token, data, tuple(wanted), store.shift, kind, memory)
                return join_spans(parts(reading))
            finally:
                cluster.tell(on_worker.close, token)

    return gather


def _of_span(reading: _Reading, start: int, stop: int) -> list[Statistics]:
    store = on_worker.opened(reading.token, reading.open)
    found = [SpanStatistics(each.n_features, reading.kind) for each in reading.wanted]
    takes = nnz_per_piece(store, reading.memory)
    for first, rows in store_pieces(store, takes, start, stop):
        for each, span in zip(reading.wanted, found, strict=True):
            own = apply(each.transforms, rows, where=str(store.path), first=first)
            if each.held_out is not None:
                own = kept_rows(own, each.held_out.kept(first, rows))
            span.add(own.n_rows, own.data, own.indices)
    return [span.result() for span in found]
