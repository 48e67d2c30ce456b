"""Weights that the workers of a cluster hold.

They are futures, which the workers pass on among themselves. They come to this process when it measures; and
when it commits, unless the workers reach the run directory: then these write weights and duals there.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import format, on_worker
from streamsvm.cluster import Cluster
from streamsvm.coefficients import Coefficients
from streamsvm.data.rows import Rows
from streamsvm.kernels.dual_lists import joined
from streamsvm.kernels.duals import NewDuals, OldDuals, RowDuals
from streamsvm.kernels.tally import CLOCK
from streamsvm.kernels.update import mark_rows_dirty
from streamsvm.run.append_log import LogEnd
from streamsvm.training.learner import Learner
from streamsvm.training.parallel.cluster_logs import read_weights, write_weights
from streamsvm.training.parallel.cluster_tasks import Held, Job, Logs, Place, Told, Work, in_slices, zeros
from streamsvm.training.sources import Block
from streamsvm.workers import WorkersLost

# Tasks after which weights are committed, or go to the workers anew, if that was not done before: the
# scheduler keeps all that their futures depend on, to run it again.
_LONGEST_GRAPH = 100_000


@dataclasses.dataclass
class _Counted:
    """What the workers did in a pass."""

    tasks: int = 0
    busy: float = 0.0
    waited: float = 0.0
    moved: int = 0
    read: int = 0
    gathered: int = 0
    peak: int = 0


class OnCluster(Learner):
    """What both learners have in common: weights that are held by the workers.

    They may be in three places: with the workers (`_held`), in the storage (`_is_here`), and in the logs of a
    commit (`_committed`). Those that have moved are with the workers alone.
    """

    _cluster: Cluster
    _held: list[Any] | None = None  # futures of `Held`
    _is_here = True
    _committed: dict[str, LogEnd] | None = None
    _begins_average = False
    _counted = _Counted()
    _logs: Logs | None = None

    def _on(self, cluster: Cluster, job: Job, folder: Path | None) -> None:
        self._cluster, self._job_facts, self._counted = cluster, job, _Counted()
        self._folder, self._attempt = folder, uuid.uuid4().hex

    @functools.cached_property
    def _job(self) -> Any:
        """The future of what all tasks need to know."""
        return self._cluster.hold(self._job_facts)

    # -- the weights: there, here, and in the run directory ------------------------------------------

    def _columns(self) -> list[tuple[int, int]]:
        """The columns of the weights that belong together, as they are held."""
        raise NotImplementedError

    def _shares(self) -> list[tuple[Any, tuple[int, int], int, str]]:
        """What to write of the weights, and where: futures, their features, the first column, and workers."""
        raise NotImplementedError

    @property
    def _workers_write(self) -> bool:
        """Whether workers write duals and weights to the run directory, and read them there."""
        return self._folder is not None

    def _find_slots(self) -> None:
        """Find out which workers are there."""
        self._slots = self._cluster.slots
        if not self._slots:
            raise WorkersLost("no worker is left")

    def _places(self, count: int) -> list[str]:
        """The workers of so many pieces of work, neighbours on the same one, by their threads."""
        return [self._slots[at] for at in self._slots_of(count)]

    def _slots_of(self, count: int) -> list[int]:
        """The thread of all workers' threads that each of so many pieces of work is for."""
        return [at * len(self._slots) // count for at in range(count)]

    def _hold(self) -> list[Any]:
        """The futures of the weights."""
        if self._held is None:
            self._find_slots()
            self._first_task = self._cluster.count
            tasks = self._sent() if self._committed is None else self._read(self._committed)
            self._held = self._cluster.start(tasks)
        return self._held

    def _sent(self) -> list[Any]:
        """Tasks of the weights in the storage."""
        weights, tasks = self.storage.weights, []
        for begin, end in self._columns():
            current = weights.current[:, begin:end]
            if not current.any():
                tasks.append(self._cluster.task("weights", zeros, len(current), end - begin, current.dtype))
                continue
            average = weights.average_delta[:, begin:end] if self.averaging else current[:0]
            held = Held(np.ascontiguousarray(current), np.ascontiguousarray(average))
            tasks.append(self._cluster.task("weights", on_worker.hold, held))
        return tasks

    def _read(self, committed: dict[str, LogEnd]) -> list[Any]:
        """Tasks that read the weights from the logs of a commit."""
        logs = [(name, end.length) for name, end in committed.items()]
        columns = self._columns()
        return [
            self._cluster.task(
                "weights", read_weights, self._job, self._folder, logs, begin, end - begin, at=at
            )
            for (begin, end), at in zip(columns, self._places(len(columns)), strict=True)
        ]

    def _moved(self, held: list[Any]) -> None:
        """Take note of new weights."""
        self._held, self._is_here, self._committed = held, False, None

    def _gather(self) -> None:
        """Bring the weights into the storage."""
        if self._is_here:
            return
        for (begin, end), future in zip(self._columns(), self._hold(), strict=False):
            (held,) = self._cluster.results([future])
            self._put_in(held, slice(begin, end))
            self._counted.gathered += held.nbytes
        self._is_here = True

    def _put_in(self, held: Held, columns: slice) -> None:
        """Write what differs of some columns into the storage."""
        weights, bits = self.storage.weights, np.dtype(f"u{held.current.itemsize}")
        both = [(weights.current[:, columns], held.current)]
        if len(held.average_delta):
            both.append((weights.average_delta[:, columns], held.average_delta))
        differs = np.zeros(len(held.current), bool)
        for some in in_slices(len(differs)):
            at = np.arange(some.start, min(some.stop, len(differs)))
            if len(weights.dirty):  # the rest is zero, and holes of a file perhaps
                is_there = weights.dirty[at].any(axis=1)
                for _, found in both:
                    is_there |= found[at].view(bits).any(axis=1)
                at = at[is_there]
            for stored, found in both:
                differs[at] |= (stored[at].view(bits) != found[at].view(bits)).any(axis=1)
        features = np.flatnonzero(differs)
        if len(weights.dirty):
            mark_rows_dirty(features, weights)
            self.storage.check_room(_only(features))
        for stored, found in both:
            stored[features] = found[features]

    def restore(self, files: Any, position: Any) -> None:
        logs = position.worker_logs_of(format.WEIGHT_LOG, position.weights_number)
        if not self._workers_write or not logs:
            super().restore(files, position)
        else:  # the workers read what they need
            self._committed, self._is_here = logs, False

    def write_weights(self, number: int) -> dict[str, LogEnd] | None:
        """Let the workers write, if they reach the run; what follows no longer depends on earlier tasks."""
        if not self._workers_write or (self._held is None and self._is_here):
            self._gather()
            self._held = self._committed = None
            return None
        self._hold()
        tasks = [
            self._cluster.task(
                "write", write_weights, self._job, self._folder, number, held, features, column, at=at
            )
            for held, features, column, at in self._shares()
        ]
        self._committed, self._held = dict(self._cluster.results(self._cluster.start(tasks))), None
        return self._committed

    def scale(self, factor: float) -> None:
        if factor != 1:
            self._gather()
            self._held = self._committed = None
            super().scale(factor)

    # -- duals in the run directory ----------------------------------------------------------------

    def read_duals(self, log: Any, block: int, n_rows: int) -> OldDuals:
        if not self._workers_write:
            return super().read_duals(log, block, n_rows)
        self._old_files = log.files
        none = RowDuals.none(log.files.ids_dtype, log.files.values_dtype)
        return joined([none], 0, 0)  # the workers read them

    def _begin_block(self, old: OldDuals, keep: NewDuals | None) -> None:
        """Find out who is there, and where the duals are."""
        self._find_slots()
        if self._workers_write:
            folder = None if keep is None else self._folder
            self._logs = Logs(self._old_files, old.scale, folder, self._attempt)
        if self._has_long_graph and not self._workers_write:
            self._gather()
            self._held = None

    @property
    def _has_long_graph(self) -> bool:
        return self._held is not None and self._cluster.count - self._first_task > _LONGEST_GRAPH

    @property
    def needs_commit(self) -> bool:
        return self._workers_write and self._has_long_graph

    @property
    def needs_old_duals(self) -> bool:
        return self._workers_write and self._held is not None

    def _keep_written(self, told: Told, keep: NewDuals | None) -> None:
        if told.written is not None and keep is not None:
            keep.add_worker_log(*told.written)

    # -- what is counted ---------------------------------------------------------------------------

    def _results(self, futures: list[Any]) -> list[Any]:
        """What futures of visits hold, once these are made."""
        begin = time.perf_counter()
        found = self._cluster.results(futures)
        self._counted.waited += time.perf_counter() - begin
        return found

    def _count(self, work: Work) -> None:
        counted = self._counted
        counted.tasks += 1
        counted.busy += work.seconds
        counted.moved += work.moved
        counted.read += work.read
        counted.peak = max(counted.peak, work.peak)

    def work_of_pass(self) -> dict[str, float]:
        counted, self._counted = self._counted, _Counted()
        return {
            "workers": len(self._cluster.workers),
            "worker_tasks": counted.tasks,
            "worker_seconds": counted.busy,
            "worker_peak_memory_bytes": counted.peak,
            "waited_for_workers_seconds": counted.waited,
            "moved_bytes": counted.moved,
            "worker_bytes_read": counted.read,
            "gathered_bytes": counted.gathered,
        }

    # -- what needs the weights here ---------------------------------------------------------------

    def begin_average(self) -> None:
        super().begin_average()
        self._begins_average = True

    def _norms(self, average_scale: float) -> list[Any]:
        """Tasks that find ‖w‖² of the weights that are held, or of their average, and of parts of them."""
        raise NotImplementedError

    def norm2(self, average_scale: float = 0.0) -> float:
        if self._is_here:
            return super().norm2(average_scale)
        found: list[float] = self._cluster.results(self._cluster.start(self._norms(average_scale)))
        return sum(found)

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        if rows.n_rows:
            self._gather()
        super().score(rows, average_scale, tallies)

    def coefficients(self, columns: np.ndarray, *, average: bool) -> Coefficients:
        self._gather()
        return super().coefficients(columns, average=average)

    def _place(self, block: Block, step: int) -> Place:
        """Of the next visits."""
        begins, self._begins_average = self._begins_average, False
        return Place(
            block.pass_number, block.number, step, block.was_read, self.averaging, begins, self.tally[CLOCK],
            block.permute, self._logs,
        )  # fmt: skip


def _only(features: np.ndarray) -> Rows:
    """Rows that say no more than which features they have."""
    none = np.zeros(0)
    return Rows(none, features, np.zeros(1, np.int64), np.zeros(0, np.int32), none, none)
