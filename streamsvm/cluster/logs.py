"""The logs of duals and weights that workers of a cluster write and read in the run directory.

Each process writes logs of its own and reports how long they are; a commit counts what was reported. So no
two processes write to one file, and what a worker wrote without living to report it does no harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import numpy as np

from streamsvm.base import durable, format
from streamsvm.base.threads import WorkersLost
from streamsvm.cluster.tasks import Job, LogPosition, Round, WeightShard
from streamsvm.cluster.worker import own_address
from streamsvm.cluster.worker_duals import naming_this_worker
from streamsvm.errors import RunError
from streamsvm.kernels.duals import OldDuals, RowDuals
from streamsvm.kernels.weights import Weights
from streamsvm.run.append_log import AppendLog, LogEnd
from streamsvm.run.dual_log import DualLog, WorkerDuals
from streamsvm.run.weight_log import append_columns, restore_columns
from streamsvm.run.weights import map_array
from streamsvm.training.parallel.class_learner import DualList, DualLists, divide_duals

# -- duals -----------------------------------------------------------------------------------------


def write_duals(job: Job, round_: Round, duals: Sequence[RowDuals]) -> LogPosition | None:
    """Append new duals durably to the log of this process; None if there are none, or they are not kept."""
    parts = [part for part in duals if len(part.rows)]
    if not job.spec.settings.keep_duals or not parts:
        return None
    path = job.folder / format.log_name(format.DUALS, round_.pass_number, uuid.uuid4().hex)
    with naming_this_worker(path):
        return job.reader().new_duals.append((job.attempt, round_.pass_number), path, round_.block, parts)


def span_of_old(job: Job, round_: Round, n_rows: int, begin: int, end: int) -> OldDuals:
    """Read the old duals of successive rows of a block of `n_rows`."""
    log = job.reader().dual_log(round_.old_duals)
    return log.span(round_.block, n_rows, begin, end)._replace(scale=round_.dual_scale)


def lists_of_old(
    job: Job,
    round_: Round,
    columns: np.ndarray,
    pair: tuple[int, int],
    members: Sequence[np.ndarray],
    keys: Sequence[tuple[int, int]],
) -> DualLists:
    """Read the old duals of a pair's rows for its classes, divided as `divide_duals` does.

    Parameters
    ----------
    columns : ndarray
        Column of the weights of the label of each row of the block.
    members : sequence of ndarray
        The rows of either group, ascending.
    keys : sequence of (int, int)
        Lists to return, by the groups of the rows and of the classes.
    """
    assert job.spec.groups is not None
    reader, groups, n_rows, scale = job.reader(), job.spec.groups.groups, len(columns), round_.dual_scale
    log = reader.dual_log(round_.old_duals)
    by_key = reader.once_per_block(log, round_.block, lambda: _by_groups(log, round_.block, columns, groups))
    if isinstance(by_key, OldDuals):
        old = by_key._replace(scale=scale)
        places = np.full(len(job.spec.groups.ranges), -1)
        places[list(pair)] = range(2)
        found = [divide_duals(old, each, places[groups], 2) for each in members]
        return {(g, h): found[pair.index(g)][pair.index(h)] for g, h in keys}
    return {
        (g, h): _read_list(log, round_.block, by_key.get((g, h)), members[pair.index(g)], n_rows, scale)
        for g, h in keys
    }


def _by_groups(
    log: DualLog, block: int, columns: np.ndarray, groups: np.ndarray
) -> dict[tuple[int, int], WorkerDuals] | OldDuals:
    """Sort what workers wrote of a block by the groups of rows and classes; return all if they did not."""

    def key_of(duals: WorkerDuals) -> tuple[int, int]:
        if not (0 <= duals.first_row < len(columns) and 0 <= duals.first_id < len(groups)):
            duals.check()
            raise log.foreign(block)
        return int(groups[columns[duals.first_row]]), int(groups[duals.first_id])

    found = log.of_workers(block, key_of)
    return log.segment(block, len(columns)) if found is None else found


def _read_list(
    log: DualLog, block: int, duals: WorkerDuals | None, members: np.ndarray, n_rows: int, scale: float
) -> DualList:
    counts = np.zeros(len(members), np.int32)
    if duals is None:
        return counts, np.zeros(0, log.files.format.ids_dtype), np.zeros(0, log.files.format.values_dtype)
    found = duals.read(n_rows)
    at = np.searchsorted(members, found.rows)
    log.check_rows(block, found, members[at.clip(max=len(members) - 1)])
    counts[at] = found.counts
    values = found.values if scale == 1 else (scale * found.values.astype(float)).astype(found.values.dtype)
    return counts, found.ids, values


def row_duals(members: np.ndarray, lists: DualList) -> RowDuals:
    """Return the duals of a list without the rows that have none."""
    counts, ids, values = lists
    some = counts > 0
    rows = members[some].astype(np.int32)
    return RowDuals(rows, counts[some], ids, values, np.zeros((len(rows), 0), np.uint8))


# -- weights ---------------------------------------------------------------------------------------


def write_weights(
    job: Job, number: int, shard: WeightShard, features: tuple[int, int], first_column: int
) -> LogPosition:
    """Write the weights of some features, all columns of a shard, durably to a log of their own."""
    some = slice(*features)
    current, average = shard.current[some], shard.average_delta[some]
    if job.spec.settings.averages and not len(average):
        average = map_array(None, current.shape, current.dtype)
    path = job.folder / format.log_name(format.WEIGHT_LOG, number, uuid.uuid4().hex)
    with naming_this_worker(path), AppendLog(path, LogEnd()) as log:
        append_columns(log, Weights.create(current, average, 1.0), features[0], first_column)
        log.sync()
        durable.sync_dir(job.folder)
    return path.name, log.end


def read_weights(job: Job, logs: Sequence[tuple[str, int]], first_column: int, n_columns: int) -> WeightShard:
    """Read some columns of the weights, and their average, from logs of a commit: names and lengths."""
    shape, dtype = (job.spec.n_features, n_columns), job.spec.dtype
    current = map_array(None, shape, dtype)
    average = map_array(None, shape if job.spec.settings.averages else (0, n_columns), dtype)
    weights = Weights.create(current, average, 1.0, np.zeros((0, 2), np.uint64))
    for name, length in logs:
        try:
            restore_columns(job.folder / name, length, weights, first_column)
        except (RunError, OSError) as error:  # the last commit may name others
            raise WorkersLost(
                f"the worker {own_address()} cannot read the weights of a commit: {error}"
            ) from None
    return WeightShard(current, average, own_address())
