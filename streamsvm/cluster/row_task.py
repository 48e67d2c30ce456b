"""Cluster tasks for training split by rows: visits of parts of a block, and sums of weight changes."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from streamsvm.cluster.tasks import Job, TaskResult, WeightShard, in_slices, new_visitor
from streamsvm.data.rows import row_span
from streamsvm.kernels.centre import centre_with_shared
from streamsvm.kernels.duals import RowDuals
from streamsvm.kernels.sum_rows import add_rows
from streamsvm.kernels.tally import N_TALLIES
from streamsvm.training.learner import features_of, problem_of
from streamsvm.training.parallel import row_learner
from streamsvm.training.parallel.split_learner import Turn, new_weights, scored_part
from streamsvm.training.visitor import Target, Visitor, VisitPlan


class WeightDelta(NamedTuple):
    features: np.ndarray  # (m,) int64, ascending
    current: np.ndarray  # (m, K)
    average_delta: np.ndarray  # the same shape; or (0, K)


def visit_part(
    job: Job, turn: Turn, split: int, shard: WeightShard, old: tuple[RowDuals, float]
) -> tuple[WeightDelta, TaskResult]:
    """Visit the rows of one round in a part of a block; `old` contains the old duals and their scale."""
    begin = time.thread_time()
    splits = job.spec.settings.splits
    block = job.reader().rows(turn)
    first, end = (block.n_rows * s // splits for s in (split, split + 1))
    duals, scale = old
    rows = row_span(block, first, end)
    features = features_of(rows, job.spec.n_features)
    positions = np.zeros(job.spec.n_features, rows.features.dtype)
    positions[features] = np.arange(len(features))
    rows = rows._replace(indices=positions[rows.features])
    # The average delta starts at zero, so its final value is its change.
    weights = new_weights(job.spec, len(features), job.spec.columns, averaging=turn.averaging)
    np.take(shard.current, features, axis=0, out=weights.current, mode="clip")  # "clip" needs no buffer
    tally, new = row_learner.visit_part(
        new_visitor(job, job.spec.columns, rows.n_rows), job.spec, turn, split, first, rows,
        duals.in_block(rows.n_rows)._replace(scale=scale), weights,
    )  # fmt: skip
    for part in in_slices(len(features)):
        weights.current[part] -= shard.current[features[part]]
    result = job.result([shard], begin, tally, new)
    return WeightDelta(features, weights.current, weights.average_delta), result


def sum_deltas(left: WeightDelta, right: WeightDelta) -> WeightDelta:
    """Return the sum of two changes, for a node of the binary tree that `sum_as_tree` defines."""
    features = np.union1d(left.features, right.features)
    sums = []
    for a, b in ((left.current, right.current), (left.average_delta, right.average_delta)):
        total = np.zeros((len(features) if len(a) else 0, a.shape[1]), a.dtype)
        for part, part_features in ((a, left.features), (b, right.features)):
            at = np.searchsorted(features, part_features)
            for slice_ in in_slices(len(part)):
                total[at[slice_]] += part[slice_]
        sums.append(total)
    return WeightDelta(features, *sums)


def score_part(
    job: Job, number: int, part: int, shard: WeightShard, average_scale: float | None
) -> TaskResult:
    """Score a part of a block with the current weights and, given `average_scale`, the averaged weights."""
    begin = time.thread_time()
    rows = scored_part(job.reader().to_score(number), part)
    weights = job.weights_of(shard, averaged=average_scale is not None)
    visitor = Visitor(VisitPlan(job.spec, job.reader().pairs), job.spec.columns)
    tallies = np.zeros((1 if average_scale is None else 2, N_TALLIES))
    visitor.score(rows, Target(problem_of(job.spec), weights, tallies), average_scale)
    return job.result([shard], begin, tallies)


def add_delta(job: Job, shard: WeightShard, delta: WeightDelta, turn: Turn) -> WeightShard:
    """Return the weights plus the mean change of the parts; `delta` is the sum of the changes."""
    new = shard.copy(averaging=turn.averaging)
    for weights, step in ((new.current, delta.current), (new.average_delta, delta.average_delta)):
        for part in in_slices(len(step)):
            features = delta.features[part]
            changed, rows = weights[features], np.arange(len(features))
            add_rows(rows, step[part], 1.0 / job.spec.settings.splits, changed)
            if job.spec.loss.extra_columns:
                centre_with_shared(rows, changed, job.spec.n_classes)
            weights[features] = changed
    return new
