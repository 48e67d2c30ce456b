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
from streamsvm.kernels.duals import RowDuals
from streamsvm.kernels.weights import Weights
from streamsvm.run.append_log import AppendLog, LogEnd
from streamsvm.run.weight_log import append_columns, restore_columns
from streamsvm.run.weights import map_array
from streamsvm.training.parallel.class_learner import DualList

# -- duals -----------------------------------------------------------------------------------------


def write_duals(job: Job, round_: Round, duals: Sequence[RowDuals]) -> LogPosition | None:
    """Append new duals durably to the log of this process; None if there are none, or they are not kept."""
    parts = [part for part in duals if len(part.rows)]
    if not job.spec.settings.keep_duals or not parts:
        return None
    pass_number, block = round_.turn[:2]
    path = job.folder / format.log_name(format.DUALS, pass_number, uuid.uuid4().hex)
    with naming_this_worker(path):
        return job.reader().new_duals.append((job.attempt, pass_number), path, block, parts)


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
