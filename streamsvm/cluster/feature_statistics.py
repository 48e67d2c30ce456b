"""Statistics of features on a Dask cluster: workers read spans of rows, which are joined in their order."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from streamsvm.cluster import worker
from streamsvm.data.rows import kept_rows
from streamsvm.data.statistics import SpanStatistics, Statistics, join_spans, spans
from streamsvm.settings.fit import Settings
from streamsvm.store import Store
from streamsvm.training.training import DataRef
from streamsvm.transforms import apply
from streamsvm.transforms.fitting import Gather, Kind, StatisticsRequest, nnz_per_piece
from streamsvm.transforms.store import transformed


class _StatisticsJob(NamedTuple):
    """Facts of one reading that all of its tasks need.

    Attributes
    ----------
    token : str
    data : DataRef
        Without transforms.
    wanted : tuple of StatisticsRequest
    shift : int
        As for `transformed`.
    kind : {"counts", "moments"}
    memory : int
        Bytes for what a thread reads at a time.
    """

    token: str
    data: DataRef
    wanted: tuple[StatisticsRequest, ...]
    shift: int
    kind: Kind
    memory: int

    def open(self) -> Store:
        return transformed(self.data.open(), (), self.shift)


def gather_on_cluster(
    address: str | os.PathLike[str],
    workers: int | None,
    paths: Sequence[str],
    store: Store,
    shift: int,
    settings: Settings,
    progress: Callable[[int, int], None],
) -> Gather:
    """Return a function that gathers statistics of a store on a cluster, to which it connects when called.

    Parameters
    ----------
    address, workers
        As for `Cluster`.
    paths : sequence of str
        Absolute paths of the store.
    store : Store
        As the paths give it.
    shift : int
        As for `transformed`.
    settings : Settings
    progress : callable
        Called with the rows read and all rows.
    """
    data = DataRef(tuple(paths), store.fingerprint, settings)

    def gather(wanted: Sequence[StatisticsRequest], kind: Kind) -> list[Statistics]:
        from streamsvm.cluster.client import Cluster

        found = spans(store.n_rows)

        def parts(job: _StatisticsJob) -> Iterator[list[Statistics]]:
            held = cluster.hold(job)
            results = cluster.in_order("statistics", _span_statistics, ((held, *ends) for ends in found))
            for (_, stop), part in zip(found, results, strict=True):
                yield part
                progress(stop, store.n_rows)

        with Cluster(address, workers) as cluster:
            cluster.check(data)
            token, memory = cluster.token + uuid.uuid4().hex, settings.memory // cluster.most_threads
            try:
                job = _StatisticsJob(token, data, tuple(wanted), shift, kind, memory)
                return join_spans(parts(job))
            finally:
                cluster.tell(worker.close, token)

    return gather


def _span_statistics(job: _StatisticsJob, start: int, stop: int) -> list[Statistics]:
    store = worker.open_once(job.token, job.open)
    found = [SpanStatistics(each.n_features, job.kind) for each in job.wanted]
    takes = nnz_per_piece(store, job.memory)
    for first, rows in store.pieces(takes, start, stop):
        for each, span in zip(job.wanted, found, strict=True):
            own = apply(each.transforms, rows, where=str(store.path), first=first)
            if each.held_out is not None:
                own = kept_rows(own, each.held_out.kept(first, rows))
            span.add(own.n_rows, own.data, own.indices)
    return [span.result() for span in found]
