"""Tasks of a cluster if the classes are split: visits by pairs of groups, and centring of weights."""

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
    before: list[TaskResult],
    is_last: bool,
) -> tuple[WeightShard, WeightShard, DualLists, TaskResult]:
    """Visit the rows of two groups over their classes, as `ClassRounds` does.

    `lists` has the old duals of each group's rows for the other group's classes and, in the first round, for
    its own classes. Duals for own classes then stay with the group's weights, and are returned if `is_last`.
    `before` has the results of the last round, if the clock of the average continues from them.

    Returns the groups' new weights, the new duals, and the result.
    """
    begin = time.thread_time()
    groups, shards = job.spec.groups, [left, right]
    assert groups is not None
    rows = in_columns(job.reader().rows(turn), groups)
    lists = lists | {
        (g, g): each.duals for g, each in zip(pair, shards, strict=True) if each.duals is not None
    }
    turn = turn._replace(clock=max([result.tally[CLOCK] for result in before], default=turn.clock))
    bounds = np.cumsum([0, *(each.current.shape[1] for each in shards)])
    weights = new_weights(job.spec, len(left.current), int(bounds[-1]), averaging=turn.averaging)
    np.concatenate([each.current for each in shards], axis=1, out=weights.current)
    if turn.averaging and all(len(each.average_delta) for each in shards):
        np.concatenate([each.average_delta for each in shards], axis=1, out=weights.average_delta)
    shifts = (bounds[:2] - groups.ranges[list(pair), 0]).tolist()
    here = np.full(groups.n_columns + 1, -1, rows.labels.dtype)  # local column for each label
    for g, shift in zip(pair, shifts, strict=True):
        own = np.arange(*groups.ranges[g, ::2])
        here[own] = own + shift
    found, tally = class_learner.visit_pair(
        new_visitor(job, int(bounds[-1]), sum(len(lists[g, g].rows) for g in pair)), job.spec, turn,
        rows._replace(labels=here[rows.labels]), pair, lists, weights, shifts,
    )  # fmt: skip
    lists |= found
    left, right = (WeightShard.of(weights, slice(*bounds[at : at + 2])) for at in range(2))
    own_duals = [None if is_last else lists[g, g] for g in pair]
    left, right = (each._replace(duals=own) for own, each in zip(own_duals, (left, right), strict=True))
    done = {(g, h): new for (g, h), new in lists.items() if is_last or g != h}
    return left, right, done, job.result(shards, begin, tally)


def sum_group(job: Job, turn: Turn, shard: WeightShard) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of a group's weights and average deltas over its columns, for a block's features."""
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
    """Subtract the mean over the classes of all groups from the weights of a group."""
    assert job.spec.groups is not None
    features = features_of(job.reader().rows(turn), job.spec.n_features)
    n_columns = int(job.spec.groups.ranges[g, 1] - job.spec.groups.ranges[g, 0])
    new = shard.copy(averaging=turn.averaging)
    for at, matrix in enumerate((new.current, new.average_delta)):
        if len(matrix):
            means = mean_of_groups([each[at] for each in sums], job.spec.n_classes)
            subtract_from_columns(features, means, 0, n_columns, matrix)
    return new
