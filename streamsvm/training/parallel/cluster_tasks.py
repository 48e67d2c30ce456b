"""What the workers of a cluster do: pure functions, whose arguments they leave as they are.

A worker reads the blocks itself. It visits rows with weights of the features that they have, so that it
copies no others, and computes the very sums that threads do.
"""

from __future__ import annotations

import collections
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from streamsvm.data.memory_plan import private_memory
from streamsvm.data.rows import Rows, row_span
from streamsvm.errors import StreamsvmError
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.dual_lists import by_row, of_rows
from streamsvm.kernels.duals import OldDuals
from streamsvm.kernels.jit import compiler
from streamsvm.kernels.sum_rows import add_rows, subtract_rows
from streamsvm.kernels.tally import CLOCK, N_TALLIES
from streamsvm.kernels.weights import Weights
from streamsvm.losses import get_loss
from streamsvm.run.weights import map_array
from streamsvm.settings import Settings
from streamsvm.training.learner import label_sets, new_buffer, problem_of
from streamsvm.training.parallel.class_groups import ClassGroups
from streamsvm.training.parallel.class_learner import divide_duals
from streamsvm.training.parallel.row_learner import ROUNDS, rows_after
from streamsvm.training.parallel.visitor import RowDuals, Visitor
from streamsvm.training.training_data import TrainingData

Lists = tuple[np.ndarray, np.ndarray, np.ndarray]  # counts, ids and values, as `divide_duals` has them

_KEPT = 2  # blocks, and stores of runs, that a worker keeps


# -- what workers are, and what they read ----------------------------------------------------------


def versions_here() -> dict[str, str]:
    """Of what results depend on: programs, and the processor that kernels are compiled for."""
    return {
        "streamsvm": sys.modules["streamsvm"].__version__,
        "python": platform.python_version().rpartition(".")[0],
        "numpy": np.__version__,
        **compiler(),
    }


def check_data(data: TrainingData) -> str | None:
    """Why this process cannot read the data of a run; None if it can."""
    try:
        with data.open() as store:
            store.rows(0, min(1, store.n_rows))
    except StreamsvmError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


class _Reader:
    """The blocks of a run: the last ones are kept, and the next one of the pass is read ahead."""

    def __init__(self, data: TrainingData) -> None:
        self._store = data.open()
        self._source = data.source(data.blocks(self._store))
        self._pool = ThreadPoolExecutor(1, "streamsvm-read")
        self._rows: collections.OrderedDict[tuple[int, int], Future[Rows]] = collections.OrderedDict()
        self._order: tuple[int, list[int]] = (0, [])
        self._lock = threading.Lock()

    def rows(self, pass_number: int, number: int) -> Rows:
        with self._lock:
            if self._order[0] != pass_number:
                self._order = pass_number, self._source.order(pass_number).tolist()
            at = self._order[1].index(number)
            wanted = [(pass_number, block) for block in self._order[1][at : at + _KEPT]]
            for key in wanted:
                if key not in self._rows:
                    self._rows[key] = self._pool.submit(self._source.read, *key)
            for key in [key for key in self._rows if key not in wanted]:
                del self._rows[key]
            found = self._rows[wanted[0]]
        return found.result()

    def close(self) -> None:
        self._pool.shutdown()
        self._store.close()


_READERS: collections.OrderedDict[str, _Reader] = collections.OrderedDict()
_LOCK = threading.Lock()


def _rows_of(job: Job, place: Place) -> Rows:
    """The rows of a block, as this worker reads them."""
    with _LOCK:
        reader = _READERS.get(job.token)
        if reader is None:
            reader = _READERS[job.token] = _Reader(job.data)
        _READERS.move_to_end(job.token)
        while len(_READERS) > _KEPT:
            _READERS.popitem(last=False)[1].close()
    return reader.rows(place.pass_number, place.number)


# -- what tasks are given and return ---------------------------------------------------------------


class Job(NamedTuple):
    """What all tasks of a run need to know."""

    token: str  # names the run
    data: TrainingData
    settings: Settings
    n_features: int
    n_classes: int
    columns: int  # of the weights
    entries: int  # room for new duals
    ids_dtype: np.dtype
    time_unit: float  # of the average
    groups: ClassGroups | None = None
    bytes_of_bits: int = 0
    pairs: ClassPairs | None = None


class Place(NamedTuple):
    """Which visits a task makes."""

    pass_number: int
    number: int  # of the block
    step: int  # the matchday, or the round
    was_read: bool
    averaging: bool
    begins_average: bool
    clock: float  # of the average, unless tallies of earlier tasks tell
    permute: Callable[[int, int, int, int, int], np.ndarray]  # orders rows


class Held(NamedTuple):
    """Weights that a worker holds: all columns, or those of one group."""

    current: np.ndarray  # (n_features, K)
    average_delta: np.ndarray  # the same shape; or (0, K)
    worker: str = ""
    duals: Lists | None = None  # of the group's own rows for its own classes, within a block

    @property
    def nbytes(self) -> int:
        return self.current.nbytes + self.average_delta.nbytes


class Work(NamedTuple):
    """What a task has to tell."""

    tally: np.ndarray
    seconds: float  # of the processor
    moved: int  # bytes of weights that came from another worker
    peak: int  # memory of the worker


def hold(value: Any) -> Any:
    """The value: a task that has data, which the scheduler keeps and sends again if it was lost."""
    return value


def zeros(n_features: int, columns: int, dtype: np.dtype) -> Held:
    """Weights of a training that has not begun."""
    return Held(np.zeros((n_features, columns), dtype), np.zeros((0, columns), dtype))


def take(results: Sequence[Any], at: int) -> Any:
    """One of several results, to be moved without the others."""
    return results[at]


def _here() -> str:
    from distributed import get_worker

    return get_worker().address


def _new_visitor(job: Job, columns: int, n_rows: int) -> Visitor:
    """A visitor of weights with so many columns, which copies its new duals when one of the run would."""
    dtype = np.dtype(job.settings.dtype)
    entries = job.entries and job.entries - job.columns + columns
    buffer = new_buffer(entries, n_rows, dtype, job.ids_dtype, job.bytes_of_bits)
    pairs = job.pairs and ClassPairs(*map(np.array, job.pairs))  # what is received cannot be written to
    return Visitor(get_loss(job.settings.loss), job.settings, columns, buffer, pairs)


def _local_weights(features: np.ndarray, held: Sequence[Held], place: Place, job: Job) -> Weights:
    """The weights of some features, of all that are held, side by side."""
    dtype = held[0].current.dtype
    shape = len(features), sum(each.current.shape[1] for each in held)
    current = map_array(None, shape, dtype)
    np.concatenate([each.current[features] for each in held], axis=1, out=current)
    average = map_array(None, shape if place.averaging else (0, shape[1]), dtype)
    if place.averaging and not place.begins_average:
        for each, columns in zip(held, np.split(average, _bounds(held)[1:-1], axis=1), strict=True):
            if len(each.average_delta):
                columns[:] = each.average_delta[features]
    none = np.zeros((0, 2), np.uint64)
    return Weights.create(current, average, job.time_unit if place.averaging else np.inf, none)


def _bounds(held: Sequence[Held]) -> np.ndarray:
    return np.cumsum([0, *(each.current.shape[1] for each in held)])


def _with_rows(held: Held, features: np.ndarray, weights: Weights, columns: slice, place: Place) -> Held:
    """Weights in which some features have new ones."""
    current, average = held.current.copy(), held.average_delta[:0]
    current[features] = weights.current[:, columns]
    if place.averaging:
        kept = len(held.average_delta) and not place.begins_average
        average = held.average_delta.copy() if kept else np.zeros_like(current)
        average[features] = weights.average_delta[:, columns]
    return Held(current, average, _here())


def _renumbered(rows: Rows, n_features: int) -> tuple[np.ndarray, Rows]:
    """The features of rows, ascending, and the rows with these numbered from 0 on."""
    seen = np.zeros(n_features, np.bool_)
    seen[rows.indices] = True
    features = np.flatnonzero(seen)
    numbers = np.zeros(n_features, rows.indices.dtype)
    numbers[features] = np.arange(len(features))
    return features, rows._replace(indices=numbers[rows.indices])


def _rows_at(rows: Rows, at: np.ndarray) -> Rows:
    """Some rows of one label each, in this order."""
    lengths = np.diff(rows.indptr)[at]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    values = np.repeat(rows.indptr[at] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return Rows(
        rows.data[values], rows.indices[values], indptr, rows.labels[at], rows.norm2[at], rows.cost[at]
    )


# -- classes ---------------------------------------------------------------------------------------


def visit_pair(
    job: Job,
    place: Place,
    pair: tuple[int, int],
    left: Held,
    right: Held,
    lists: dict[tuple[int, int], Lists],
    before: list[Work],
    is_last: bool,
) -> tuple[Held, Held, tuple[dict[tuple[int, int], Lists], Work], Work]:
    """Visit the rows of two groups over their classes, as `ClassSplitLearner` does.

    Parameters
    ----------
    lists : dict
        Duals by the groups of the rows and of the classes: those that the groups do not bring along.
    before : list of Work
        What was done on the matchday before, if the average's clock goes on from there.
    is_last : bool
        Whether the groups' own duals are to be returned, too.

    Returns
    -------
    tuple
        The groups; their new duals as `lists`, and the `Work`; the `Work` alone.
    """
    begin = time.thread_time()
    groups, settings = job.groups, job.settings
    assert groups is not None
    held = [left, right]
    own = {(g, g): each.duals for g, each in zip(pair, held, strict=True) if each.duals is not None}
    lists = {**own, **lists}
    rows = _rows_of(job, place)
    columns = np.append(groups.columns, -1)[rows.labels].astype(rows.labels.dtype)
    of_rows_ = groups.groups[columns]
    members = np.flatnonzero((of_rows_ == pair[0]) | (of_rows_ == pair[1]))
    tally = np.zeros(N_TALLIES)
    tally[CLOCK] = max([work.tally[CLOCK] for work in before], default=place.clock)
    moved = sum(each.nbytes for each in held if each.worker != _here())
    if len(members):
        bounds = _bounds(held)
        # By what columns of the weights, which are ids of duals too, differ from those side by side.
        shifts = [int(bounds[at] - groups.ranges[g, 0]) for at, g in enumerate(pair)]
        at_pair = (of_rows_[members] == pair[1]).astype(np.int64)
        of_each = [np.flatnonzero(at_pair == at) for at in range(2)]
        labels = columns[members] + np.array(shifts, columns.dtype)[at_pair]
        features, few = _renumbered(_rows_at(rows, members), job.n_features)
        few = few._replace(labels=labels.astype(columns.dtype))
        old = _side_by_side(lists, pair, shifts, of_each, len(members))
        weights = _local_weights(features, held, place, job)
        n_days = len(groups.ranges) - 1
        number = place.number * n_days + place.step
        order = place.permute(len(members), settings.seed, place.pass_number, number, 0)
        ranges = groups.ranges[list(pair)] + np.array(shifts)[:, None]
        problem = problem_of(settings, int(bounds[-1]))._replace(ranges=ranges)
        new = _new_visitor(job, int(bounds[-1]), len(members)).visit(
            few, order, old, problem, weights, tally, (place.pass_number, number),
            was_read=place.was_read and place.step == 0,
        )  # fmt: skip
        left, right = (
            _with_rows(each, features, weights, slice(bounds[at], bounds[at + 1]), place)
            for at, each in enumerate(held)
        )
        places = np.repeat(np.arange(2), np.diff(bounds))
        lists = _by_groups(new, pair, shifts, of_each, places)
    elif place.begins_average:
        left, right = (each._replace(average_delta=each.average_delta[:0]) for each in held)
    left, right = (each._replace(duals=lists[g, g]) for g, each in zip(pair, (left, right), strict=True))
    told = lists if is_last else {key: part for key, part in lists.items() if key[0] != key[1]}
    work = Work(tally, time.thread_time() - begin, moved, private_memory())
    return left, right, (told, work), work


def _side_by_side(
    lists: dict[tuple[int, int], Lists],
    pair: tuple[int, int],
    shifts: Sequence[int],
    of_each: Sequence[np.ndarray],
    n_rows: int,
) -> OldDuals:
    """The duals of a pair's rows, whose ids are columns side by side."""
    found = []
    for at, g in enumerate(pair):
        parts = [lists[g, h] for h in pair]
        counts = np.stack([part[0] for part in parts])
        ids = [
            (part[1].astype(np.int64) + shift).astype(part[1].dtype)
            for part, shift in zip(parts, shifts, strict=True)
        ]
        values = np.concatenate([part[2] for part in parts])
        found.append((of_each[at].astype(np.int32), *by_row(counts, np.concatenate(ids), values)))
    return of_rows(n_rows, *(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def _by_groups(
    new: list[RowDuals],
    pair: tuple[int, int],
    shifts: Sequence[int],
    of_each: Sequence[np.ndarray],
    places: np.ndarray,
) -> dict[tuple[int, int], Lists]:
    """New duals by the groups of rows and classes, whose ids are columns of all weights again."""
    found = of_rows(len(of_each[0]) + len(of_each[1]), *_joined(new))
    lists = {}
    for at, g in enumerate(pair):
        parts = divide_duals(found, of_each[at], places, 2)
        for h, shift, (counts, ids, values) in zip(pair, shifts, parts, strict=True):
            lists[g, h] = counts, (ids.astype(np.int64) - shift).astype(ids.dtype), values
    return lists


def _joined(parts: Sequence[RowDuals]) -> list[np.ndarray]:
    """Rows, counts, ids and values of several parts."""
    return [np.concatenate([part[at] for part in parts]) for at in range(4)]


# -- rows ------------------------------------------------------------------------------------------


class Moved(NamedTuple):
    """By what the weights of some features have moved."""

    features: np.ndarray  # (m,) int64, ascending
    current: np.ndarray  # (m, K)
    average_delta: np.ndarray  # the same shape; or (0, K)


def visit_part(
    job: Job, place: Place, split: int, held: Held, old: OldDuals
) -> tuple[Moved, tuple[list[RowDuals], Work]]:
    """Visit one round's rows of a part of a block, as `RowSplitLearner` does.

    Parameters
    ----------
    old : OldDuals
        Of the part's rows alone.

    Returns
    -------
    tuple
        What the weights moved by; the new duals, and the `Work`.
    """
    begin = time.thread_time()
    settings = job.settings
    splits = settings.splits
    block = _rows_of(job, place)
    first, end = (block.n_rows * s // splits for s in (split, split + 1))
    features, rows = _renumbered(row_span(block, first, end), job.n_features)
    order = place.permute(end - first, settings.seed, place.pass_number, place.number * splits + split, 0)
    low, high = (rows_after(n, len(order)) for n in (place.step, place.step + 1))
    # The average of this part begins with zero: what is returned is by how much it moves.
    weights = _local_weights(features, [held._replace(average_delta=held.average_delta[:0])], place, job)
    tally = np.zeros(N_TALLIES)
    tally[CLOCK] = place.clock
    old = OldDuals.create(*(np.array(array) for array in old[:-1]))._replace(scale=old.scale)
    new = _new_visitor(job, job.columns, rows.n_rows).visit(
        rows._replace(norm2=rows.norm2 * splits), order[low:high], old,
        problem_of(settings, job.n_classes)._replace(sigma=float(splits)), weights, tally,
        (place.pass_number, (place.number * splits + split) * ROUNDS + place.step), label_sets(rows),
        was_read=place.was_read,
    )  # fmt: skip
    subtract_rows(np.arange(len(features)), held.current[features], weights.current)
    new = [part._replace(rows=part.rows + np.int32(first)) for part in new]
    moved = held.nbytes * (held.worker != _here())
    work = Work(tally, time.thread_time() - begin, moved, private_memory())
    return Moved(features, weights.current, weights.average_delta), (new, work)


def sum_moved(left: Moved, right: Moved) -> Moved:
    """The sum of two parts: a node of the binary tree of `sum_as_tree`."""
    features = np.union1d(left.features, right.features)
    sums = []
    for a, b in ((left.current, right.current), (left.average_delta, right.average_delta)):
        total = np.zeros((len(features) if len(a) else 0, a.shape[1]), a.dtype)
        if len(a):
            other = np.zeros_like(total)
            total[np.searchsorted(features, left.features)] = a
            at = np.searchsorted(features, right.features)
            other[at] = b
            add_rows(at, other, 1.0, total)
        sums.append(total)
    return Moved(features, *sums)


def add_moved(held: Held, moved: Moved, place: Place, splits: int) -> Held:
    """Weights that have moved by the mean of what the parts have."""
    current, average = held.current.copy(), held.average_delta[:0]
    rows = np.arange(len(moved.features))
    if place.averaging:
        kept = len(held.average_delta) and not place.begins_average
        average = held.average_delta.copy() if kept else np.zeros_like(current)
    for weights, step in ((current, moved.current), (average, moved.average_delta)):
        if len(step):
            few = weights[moved.features]
            add_rows(rows, step, 1.0 / splits, few)
            weights[moved.features] = few
    return Held(current, average, _here())
