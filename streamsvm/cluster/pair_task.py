"""Cluster tasks for training split by classes: visits for pairs of class groups, and centring of weights."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from streamsvm.cluster.tasks import Job, TaskResult, WeightShard, new_visitor
from streamsvm.kernels.centre import mean_of_groups, subtract_from_columns, sums_of_group
from streamsvm.kernels.tally import CLOCK
from streamsvm.training.learner import features_of
from streamsvm.training.parallel import class_learner
from streamsvm.training.parallel.class_groups import in_columns
from streamsvm.training.parallel.class_learner import DualLists
from streamsvm.training.parallel.split_learner import Turn, new_weights


def visit_pair(
    job: Job,
    turn: Turn,
    pair: tuple[int, int],
    left: WeightShard,
    right: WeightShard,
    lists: DualLists,
    previous: list[TaskResult],
    is_last: bool,
) -> tuple[WeightShard, WeightShard, DualLists, TaskResult]:
    """Visit the rows of two class groups, using the classes of both groups, as `ClassRounds` does.

    The rows of a group are the rows whose true class is in the group. `lists` contains the old duals of each
    group's rows for the classes of the other group and, in the first round, for the classes of the same
    group. The latter stay with the weights of the group, and are returned if `is_last` is True. `previous`
    contains the results of the previous round if the clock of the average continues from them.
    """
    begin = time.thread_time()
    groups, shards = job.spec.groups, [left, right]
    assert groups is not None
    rows = in_columns(job.reader().rows(turn), groups)
    lists = lists | {
        (g, g): shard.duals for g, shard in zip(pair, shards, strict=True) if shard.duals is not None
    }
    turn = turn._replace(clock=max([result.tally[CLOCK] for result in previous], default=turn.clock))
    bounds = np.cumsum([0, *(shard.current.shape[1] for shard in shards)])
    weights = new_weights(job.spec, len(left.current), int(bounds[-1]), averaging=turn.averaging)
    np.concatenate([shard.current for shard in shards], axis=1, out=weights.current)
    if turn.averaging and all(len(shard.average_delta) for shard in shards):
        np.concatenate([shard.average_delta for shard in shards], axis=1, out=weights.average_delta)
    shifts = (bounds[:2] - groups.ranges[list(pair), 0]).tolist()
    local_columns = np.full(groups.n_columns + 1, -1, rows.labels.dtype)  # local column for each label
    for g, shift in zip(pair, shifts, strict=True):
        columns = np.arange(*groups.ranges[g, ::2])
        local_columns[columns] = columns + shift
    new_lists, tally = class_learner.visit_pair(
        new_visitor(job, int(bounds[-1]), sum(len(lists[g, g].rows) for g in pair)), job.spec, turn,
        rows._replace(labels=local_columns[rows.labels]), pair, lists, weights, shifts,
    )  # fmt: skip
    lists |= new_lists
    left, right = (WeightShard.of(weights, slice(*bounds[at : at + 2])) for at in range(2))
    own_duals = [None if is_last else lists[g, g] for g in pair]
    left, right = (shard._replace(duals=own) for own, shard in zip(own_duals, (left, right), strict=True))
    new_duals = {(g, h): new for (g, h), new in lists.items() if is_last or g != h}
    return left, right, new_duals, job.result(shards, begin, tally)


def sum_group(job: Job, turn: Turn, shard: WeightShard) -> tuple[np.ndarray, np.ndarray]:
    """Return the row sums of a group's weights and average deltas, for the features of a block."""
    features = features_of(job.reader().rows(turn), job.spec.n_features)
    matrices = (shard.current, shard.average_delta)
    current, average = (
        sums_of_group(features, matrix, 0, matrix.shape[1]) if len(matrix) else np.zeros(len(features))
        for matrix in matrices
    )
    return current, average


def centre_group(
    job: Job, turn: Turn, g: int, shard: WeightShard, sums: Sequence[tuple[np.ndarray, np.ndarray]]
) -> WeightShard:
    """Subtract the mean over the classes of all groups from the weights of one group."""
    assert job.spec.groups is not None
    features = features_of(job.reader().rows(turn), job.spec.n_features)
    n_columns = int(job.spec.groups.ranges[g, 1] - job.spec.groups.ranges[g, 0])
    new = shard.copy(averaging=turn.averaging)
    for position, matrix in enumerate((new.current, new.average_delta)):
        if len(matrix):
            means = mean_of_groups([group_sums[position] for group_sums in sums], job.spec.n_classes)
            subtract_from_columns(features, means, 0, n_columns, matrix)
    return new
