"""Wiring of a training: from its specification and the place of its arrays to its trainer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.base.threads import Threads, count_workers, one_thread_each
from streamsvm.data.blocks import Blocks
from streamsvm.data.memory_plan import Placement
from streamsvm.run.checkpoint import RunPosition
from streamsvm.run.directory import RunDir
from streamsvm.run.files import Files, RunFiles
from streamsvm.run.sparse_weights import SparseWeights
from streamsvm.run.weights import DenseWeights, WeightStorage
from streamsvm.training.costs import TrainingCosts
from streamsvm.training.learner import Learner
from streamsvm.training.parallel.class_learner import ClassSplitLearner
from streamsvm.training.parallel.executor import Executor
from streamsvm.training.parallel.row_learner import RowSplitLearner
from streamsvm.training.parallel.splits import check_splits
from streamsvm.training.passes import Fit
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
    costs: TrainingCosts,
    workers: Threads | Executor,
    callbacks: Callbacks,
    *,
    matrix_bytes: int,
    position: RunPosition | None = None,
    run: RunDir | None = None,
    training: Training | None = None,
    **of_fit: Any,
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
    costs : TrainingCosts
    workers : Threads or Executor
    callbacks : Callbacks
    matrix_bytes : int
        Memory for matrices of the duals of two passes.
    position : RunPosition, optional
        Position of the last commit.
    run : RunDir, optional
        Place of weights that are not in memory.
    training : Training, optional
        The training as a value, for the workers of a cluster.
    **of_fit
        Further parameters of `Fit`.
    """
    settings = spec.settings
    is_local = isinstance(workers, Threads)
    learner = new_learner(
        spec.changed(average=placement.average),
        placement,
        new_storage(spec, placement, run),
        costs,
        workers,
        block_rows=int(np.diff(blocks.starts).max()),
        dual_matrix=not placement.sparse and 0 < spec.dual_matrix_bytes <= matrix_bytes,
        training=training,
    )
    source = ShuffledSource(blocks, settings, unread=not is_local)
    trainer = Fit(source, settings, files, learner, position, callbacks, costs=costs, **of_fit)
    if position is not None:
        assert isinstance(files, RunFiles)
        learner.restore(files, position)
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
            spec.shape[0], spec.columns, spec.n_classes + spec.loss.extra_columns, spec.dtype, spec.time_unit,
            None if run is None else run.sparse_weights, placement.pool_bytes, average=placement.average,
        )  # fmt: skip
    in_files = run is not None and not placement.weights_in_memory
    paths: tuple[Path, ...] = (run.weights, run.dirty) if run is not None and in_files else ()
    return DenseWeights(spec.shape, spec.dtype, spec.time_unit, paths, average=placement.average)


def new_learner(
    spec: Spec,
    placement: Placement,
    storage: WeightStorage,
    costs: TrainingCosts,
    workers: Threads | Executor,
    *,
    block_rows: int,
    dual_matrix: bool = False,
    training: Training | None = None,
) -> Learner:
    """Make the learner of a training: of one thread, or of several workers if it is split."""
    entries, pairs = placement.dual_entries, costs.pairs(spec.settings, spec.columns)
    splits = spec.settings.splits
    if splits == 1 and isinstance(workers, Threads):
        return Learner(
            spec, storage, pairs, threads=workers, dual_entries=entries, block_rows=block_rows,
            common_dual=placement.common_dual, dual_matrix=dual_matrix,
        )  # fmt: skip
    threads = workers if isinstance(workers, Threads) else workers.threads
    of_split = spec, storage, pairs, threads, -(-entries // splits), block_rows  # not 0: duals would be lost
    if isinstance(workers, Threads):
        return RowSplitLearner(*of_split) if spec.groups is None else ClassSplitLearner(*of_split)
    from streamsvm.cluster.learners import ClusterClassLearner, ClusterRowLearner

    assert training is not None
    learner = ClusterRowLearner(*of_split) if spec.groups is None else ClusterClassLearner(*of_split)
    return learner.use(workers, training)
