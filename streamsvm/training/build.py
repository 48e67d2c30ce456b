"""Wiring of a training: from its specification and the place of its arrays to its trainer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.base.threads import Threads, count_workers, one_thread_each
from streamsvm.data.blocks import Blocks
from streamsvm.data.memory_plan import Placement
from streamsvm.run.checkpoint import RunPosition
from streamsvm.run.directory import RunDir
from streamsvm.run.files import Files, RunFiles
from streamsvm.run.sparse_weights import SparseWeights
from streamsvm.run.weights import DenseWeights, WeightStorage
from streamsvm.training.learner import Learner, Visits
from streamsvm.training.parallel.class_learner import ClassRounds
from streamsvm.training.parallel.executor import Executor
from streamsvm.training.parallel.row_learner import RowRounds
from streamsvm.training.parallel.split_learner import room_for_duals
from streamsvm.training.parallel.splits import check_splits
from streamsvm.training.passes import AboutData, Fit
from streamsvm.training.plain_visits import PlainVisits
from streamsvm.training.sources import ShuffledSource
from streamsvm.training.spec import Spec
from streamsvm.training.trainer import Callbacks

if TYPE_CHECKING:
    from streamsvm.training.training import Training


def build(
    spec: Spec,
    placement: Placement,
    blocks: Blocks,
    files: Files,
    workers: Threads | Executor,
    callbacks: Callbacks,
    about: AboutData,
    *,
    position: RunPosition | None = None,
    training: Training | None = None,
) -> Fit:
    """Return the trainer of several passes, at a position.

    Parameters
    ----------
    spec : Spec
    placement : Placement
        Where the weights and the new duals are.
    blocks : Blocks
        The rows to train on, with their costs.
    files : RunFiles or MemoryRun
        With memory for matrices of the duals of two passes, and the place of weights that are not in memory.
    workers : Threads or Executor
    callbacks : Callbacks
    about : AboutData
    position : RunPosition, optional
        Position of the last commit.
    training : Training, optional
        The training as a value, for the workers of a cluster.
    """
    settings = spec.settings
    spec = spec.changed(average=placement.average)
    storage: WeightStorage = new_storage(spec, placement, files.run)
    pairs = about.costs.pairs(settings, spec.columns)
    entries, block_rows = placement.dual_entries, int(np.diff(blocks.starts).max())
    visits: Visits
    if settings.splits == 1:
        assert isinstance(workers, Threads)
        visits = PlainVisits(
            spec, pairs, threads=workers, dual_entries=entries, block_rows=block_rows,
            sparse=placement.sparse, common_dual=placement.common_dual,
            dual_matrix=not placement.sparse and 0 < spec.dual_matrix_bytes <= files.held_bytes,
        )  # fmt: skip
    else:
        entries = room_for_duals(spec, -(-entries // settings.splits))  # not 0: duals would be lost
        if isinstance(workers, Threads):
            kind = RowRounds if spec.groups is None else ClassRounds
            visits = kind(spec, pairs, workers, entries, block_rows)
        else:
            from streamsvm.cluster.learners import ClusterClassRounds, ClusterRowRounds
            from streamsvm.cluster.tasks import Job
            from streamsvm.cluster.weights import ShardedWeights

            assert training is not None
            kind = ClusterRowRounds if spec.groups is None else ClusterClassRounds
            visits = kind(spec, pairs, workers.threads, entries, block_rows)
            storage = visits.weights = ShardedWeights(
                storage, workers, blocks, Job(workers.token, training, spec, entries, pairs)
            )
    learner = Learner(spec, storage, visits)
    source = ShuffledSource(blocks, settings, unread=not isinstance(workers, Threads))
    trainer = Fit(source, settings, files, learner, position, callbacks, about)
    if position is not None:
        assert isinstance(files, RunFiles)
        files.restore(position, storage)
    return trainer


@contextlib.contextmanager
def find_workers(
    spec: Spec, wanted: int | None, cluster: str | os.PathLike[str] | None = None
) -> Iterator[Threads | Executor]:
    """Provide the workers of a training: a cluster if there is one, else threads.

    There are `wanted` threads, by default one a processor, but at most as many as splits, unless they
    compute matrix products. Meanwhile each product has one thread, in the whole process.
    """
    settings, number = spec.settings, count_workers(wanted)
    if cluster is not None:
        from streamsvm.cluster.client import Cluster

        check_splits(settings.splits)
        with Cluster(cluster, wanted, settings.splits) as found:
            yield found
    elif spec.by_products:
        with one_thread_each, Threads(number) as threads:
            yield threads
    else:
        with Threads(min(number, settings.splits)) as threads:
            yield threads


def new_storage(spec: Spec, placement: Placement, run: RunDir | None) -> DenseWeights | SparseWeights:
    """Make the storage of the weights: in memory, in files of the run, or as sparse rows."""
    if placement.sparse:
        return SparseWeights(
            spec.shape[0], spec.columns, spec.dtype, spec.time_unit,
            None if run is None else run.sparse_weights, placement.pool_bytes, average=placement.average,
        )  # fmt: skip
    in_files = run is not None and not placement.weights_in_memory
    paths: tuple[Path, ...] = (run.weights, run.dirty) if run is not None and in_files else ()
    return DenseWeights(spec.shape, spec.dtype, spec.time_unit, paths, average=placement.average)
