"""Build a trainer, with its learner, weights, source and files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import numpy as np

from streamsvm.base.threads import Threads, count_workers, one_thread_each
from streamsvm.data.memory_plan import Plan
from streamsvm.model.model import load_model
from streamsvm.run.directory import RunDir
from streamsvm.run.files import RunFiles
from streamsvm.run.manifest import RunPosition
from streamsvm.run.sparse_weights import SparseWeights
from streamsvm.run.weights import DenseWeights, WeightStorage
from streamsvm.training.learner import Learner, Visits
from streamsvm.training.opened import OpenTraining
from streamsvm.training.origin import Origin
from streamsvm.training.parallel.class_learner import ClassRounds
from streamsvm.training.parallel.executor import Executor
from streamsvm.training.parallel.row_learner import RowRounds
from streamsvm.training.parallel.splits import check_splits
from streamsvm.training.passes import Fit
from streamsvm.training.plain_visits import PlainVisits
from streamsvm.training.sources import ShuffledSource
from streamsvm.training.spec import Spec
from streamsvm.training.training import Execution
from streamsvm.training.visitor import VisitPlan


def build(
    opened: OpenTraining,
    workers: Threads | Executor,
    how: Execution,
    run: RunDir | None = None,
    warnings: Sequence[str] = (),
) -> Fit:
    """Build a trainer that starts at the last commit of `run`, if any, or trains in memory if `run` is None.

    `warnings` are included in the result of the run.
    """
    training, blocks, callbacks = opened.training, opened.blocks, how.callbacks
    plan, settings = training.plan, training.spec.settings
    duals = training.spec.dual_format(common_dual=plan.common_dual)
    if run is not None:
        callbacks.report({**opened.described, "C_auto": opened.run_record["C_auto"]})
    files = RunFiles(duals, run, how.every, opened.held_bytes)
    position = files.recover() or RunPosition()
    if run is not None:
        files.warnings += filter(None, [*warnings, opened.described["average_warning"]])
    spec = training.spec.changed(average=plan.average)
    storage: WeightStorage = new_storage(spec, plan, run)
    visit_plan = VisitPlan(
        spec, opened.costs.pairs(settings, spec.columns), plan.dual_entries,
        int(np.diff(blocks.starts).max()), plan.sparse, plan.common_dual,
        dual_matrix=not plan.sparse and 0 < spec.dual_matrix_bytes <= opened.held_bytes,
    )  # fmt: skip
    visits: Visits
    if settings.splits == 1:
        assert isinstance(workers, Threads)
        visits = PlainVisits(visit_plan, workers)
    elif isinstance(workers, Threads):
        visits = (RowRounds if spec.groups is None else ClassRounds)(visit_plan, workers)
    else:
        from streamsvm.cluster.learners import ClusterClassRounds, ClusterRowRounds
        from streamsvm.cluster.tasks import Job
        from streamsvm.cluster.weights import ShardedWeights

        kind = ClusterRowRounds if spec.groups is None else ClusterClassRounds
        visits = kind(visit_plan, workers.threads)
        job = Job(workers.token, training, visits.plan)
        storage = visits.weights = ShardedWeights(storage, workers, blocks, job)
    learner = Learner(spec, storage, visits)
    if settings.from_ is not None:
        base = load_model(settings.from_ if run is None else run.base)
        learner.origin = Origin(base, spec, opened.store.classes)
        if position.weights is None:
            learner.origin.write(storage)
    source = ShuffledSource(blocks, settings, unread=not isinstance(workers, Threads))
    trainer = Fit(source, settings, files, learner, position, callbacks, opened)
    files.restore(storage)
    return trainer


@contextlib.contextmanager
def find_workers(
    spec: Spec, n_workers: int | None, cluster: str | os.PathLike[str] | None = None
) -> Iterator[Threads | Executor]:
    """Provide the workers for training: a cluster or `n_workers` threads, by default one per processor.

    There are at most as many threads as splits, unless training uses matrix products. In that case, NumPy
    computes each product in a single thread.
    """
    settings, number = spec.settings, count_workers(n_workers)
    if cluster is not None:
        from streamsvm.cluster.client import Cluster

        check_splits(settings.splits)
        with Cluster(cluster, n_workers, settings.splits) as dask_workers:
            yield dask_workers
        return
    if not spec.by_products:
        number = min(number, settings.splits)
    with one_thread_each if spec.by_products else contextlib.nullcontext(), Threads(number) as threads:
        yield threads


def new_storage(spec: Spec, plan: Plan, run: RunDir | None) -> DenseWeights | SparseWeights:
    """Create the storage of the weights: an array in memory, files of the run, or sparse rows."""
    if plan.sparse:
        return SparseWeights(
            spec.shape[0], spec.columns, spec.dtype, spec.time_unit,
            None if run is None else run.sparse_weights, plan.pool_bytes, average=plan.average,
        )  # fmt: skip
    paths = [] if run is None or plan.weights_in_memory else [run.weights]
    return DenseWeights(spec.shape, spec.dtype, spec.time_unit, paths, average=plan.average)
