"""Tasks of a cluster if the classes are split: visiting the rows of two groups, and centring weights."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from streamsvm.cluster.logs import lists_of_old, row_duals, write_duals
from streamsvm.cluster.tasks import (
    Job,
    Round,
    TaskResult,
    WeightShard,
    bounds_of,
    local_weights,
    new_visitor,
    renumbered,
)
from streamsvm.data.rows import kept_rows
from streamsvm.kernels.centre import mean_of_groups, subtract_from_columns, sums_of_group
from streamsvm.kernels.tally import CLOCK, N_TALLIES
from streamsvm.kernels.weights import Weights, sums_of_squares
from streamsvm.training.learner import features_of, problem_of
from streamsvm.training.parallel.class_learner import DualLists, divide_lists, join_lists, sum_list


def visit_pair(
    job: Job,
    round_: Round,
    pair: tuple[int, int],
    left: WeightShard,
    right: WeightShard,
    before: list[TaskResult],
    is_last: bool,
) -> tuple[WeightShard, WeightShard, TaskResult]:
    """Visit the rows of two groups over their classes, as `ClassSplitLearner` does.

    Duals of other groups' classes are read from the run directory and written there; those of a group's own
    classes stay with its weights until the last round.

    Parameters
    ----------
    before : list of TaskResult
        Results of the round before, if the clock of the average goes on from there.
    is_last : bool
        Whether the groups' own duals are to be written, too.

    Returns
    -------
    tuple
        The groups' new weights, and the result.
    """
    begin = time.thread_time()
    groups, settings = job.spec.groups, job.spec.settings
    assert groups is not None
    shards = [left, right]
    rows = job.rows(round_)
    columns = np.append(groups.columns, -1)[rows.labels].astype(rows.labels.dtype)
    of_rows_ = groups.groups[columns]
    is_member = (of_rows_ == pair[0]) | (of_rows_ == pair[1])
    members = np.flatnonzero(is_member)
    at_pair = (of_rows_[members] == pair[1]).astype(np.int64)
    of_each = [np.flatnonzero(at_pair == at) for at in range(2)]
    own = {(g, g): each.duals for g, each in zip(pair, shards, strict=True) if each.duals is not None}
    wanted = _keys_of(pair, diagonal=round_.number == 0)
    old_lists = lists_of_old(job, round_, columns, pair, [members[at] for at in of_each], wanted)
    lists: DualLists = {**own, **old_lists}
    tally = np.zeros(N_TALLIES)
    tally[CLOCK] = max([result.tally[CLOCK] for result in before], default=round_.clock)
    if len(members):
        bounds = bounds_of(shards)
        # Columns of these groups side by side minus their columns of all weights, which are ids of duals too.
        shifts = [int(bounds[at] - groups.ranges[g, 0]) for at, g in enumerate(pair)]
        labels = columns[members] + np.array(shifts, columns.dtype)[at_pair]
        features, few = renumbered(kept_rows(rows, is_member), job.spec.n_features)
        few = few._replace(labels=labels.astype(columns.dtype))
        old = join_lists(lists, pair, of_each, len(members), shifts)
        weights = local_weights(features, shards, round_, job)
        number = round_.block * (len(groups.ranges) - 1) + round_.number
        order = round_.permute(len(members), settings.seed, round_.pass_number, number, 0)
        ranges = groups.ranges[list(pair)] + np.array(shifts)[:, None]
        problem = problem_of(settings, int(bounds[-1]))._replace(ranges=ranges)
        new = new_visitor(job, int(bounds[-1]), len(members)).visit(
            few, order, old, problem, weights, tally, (round_.pass_number, number),
            read_work=round_.read_work * (round_.number == 0),
        )  # fmt: skip
        left, right = (
            _with_rows(each, features, weights, slice(bounds[at], bounds[at + 1]), round_)
            for at, each in enumerate(shards)
        )
        places = np.repeat(np.arange(2), np.diff(bounds))
        lists = divide_lists(new, pair, of_each, len(members), places, shifts)
    elif round_.begins_average:
        left, right = (each._replace(average_delta=each.average_delta[:0]) for each in shards)
    left, right = (each._replace(duals=lists[g, g]) for g, each in zip(pair, (left, right), strict=True))
    done = {key: lists[key] for key in _keys_of(pair, diagonal=is_last)}
    of_key = {g: members[at] for g, at in zip(pair, of_each, strict=True)}
    whole = problem_of(settings, groups.n_columns)._replace(ranges=groups.ranges)
    sums = {
        key: sum_list(settings.trained_loss, whole, rows, of_key[key[0]], each) for key, each in done.items()
    }
    log = write_duals(job, round_, [row_duals(of_key[g], each) for (g, _), each in done.items()])
    return left, right, job.result(shards, begin, tally, log=log, sums=sums)


def _keys_of(pair: tuple[int, int], *, diagonal: bool) -> list[tuple[int, int]]:
    """List the duals that a pair reads or writes, by the groups of the rows and of the classes."""
    g, h = pair
    return [(g, h), (h, g), *([(g, g), (h, h)] if diagonal else [])]


def _with_rows(
    shard: WeightShard, features: np.ndarray, weights: Weights, columns: slice, round_: Round
) -> WeightShard:
    """Copy a shard, with new weights of some features."""
    new = shard.copy(averaging=round_.averaging, begins_average=round_.begins_average)
    new.current[features] = weights.current[:, columns]
    if round_.averaging:
        new.average_delta[features] = weights.average_delta[:, columns]
    return new


def norm2_of_group(job: Job, g: int, shard: WeightShard, average_scale: float) -> float:
    """Compute ‖w‖² of the columns of a group, without padding, as `ClassSplitLearner` does."""
    assert job.spec.groups is not None
    weights = job.weights_of(shard, averaged=average_scale > 0)
    begin, end, _ = job.spec.groups.ranges[g].tolist()
    columns, sums = np.array([[0, end - begin]]), np.zeros(1)
    sums_of_squares(weights, average_scale, columns, sums)
    return float(sums[0])


def sum_group(job: Job, round_: Round, shard: WeightShard) -> tuple[np.ndarray, np.ndarray]:
    """Sum up the columns of a group: of its weights and their average, for the features of a block."""
    features = features_of(job.rows(round_), job.spec.n_features)
    matrices = (shard.current, shard.average_delta)
    current, average = (
        sums_of_group(features, matrix, 0, matrix.shape[1]) if len(matrix) else np.zeros(len(features))
        for matrix in matrices
    )
    return current, average


def centre_group(
    job: Job, round_: Round, g: int, shard: WeightShard, sums: Sequence[tuple[np.ndarray, np.ndarray]]
) -> WeightShard:
    """Subtract the mean over the classes of all groups from the weights of a group."""
    assert job.spec.groups is not None
    features = features_of(job.rows(round_), job.spec.n_features)
    n_columns = int(job.spec.groups.ranges[g, 1] - job.spec.groups.ranges[g, 0])
    new = shard.copy(averaging=round_.averaging, begins_average=False)
    for at, matrix in enumerate((new.current, new.average_delta)):
        if len(matrix):
            means = mean_of_groups([each[at] for each in sums], job.spec.n_classes)
            subtract_from_columns(features, means, 0, n_columns, matrix)
    return new
