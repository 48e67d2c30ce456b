"""From a store to a stream of blocks: the memory plan, the cut into blocks, and reading ahead."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from streamsvm.errors import PlanError, StoreError
from streamsvm.features import match_features, sort_rows
from streamsvm.format import LABEL_DTYPE, UNSEEN_LABEL
from streamsvm.rows import Rows
from streamsvm.store.cache import room

if TYPE_CHECKING:
    from streamsvm.store import Store

T = TypeVar("T")

LIVE_BLOCKS = 2  # the one in work and the one read ahead
# Non-zeros times columns of a block, at most: a few seconds of work, after which a run can commit or
# stop. As much as that and memory allow, for the fewer blocks, the finer a gap is reached.
SHUFFLED_BLOCK_WORK = 2**35
_SCAN_ROWS = 2**18  # row offsets looked at in one go while cutting blocks
_POOL_SHARE = 1 / 8  # of the budget, for new duals on their way to the log


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a fit holds in memory, decided before the first row is read; all sizes in bytes.

    Memory-mapped files (weights, duals of the last pass) are not counted: the operating system
    keeps as much of them as there is room for.
    """

    memory: int
    fixed: int  # chunks being decoded, one row's scratch, what is shared
    pool_entries: int  # new duals held before they are appended to the log
    pool_bytes: int
    block_bytes: int  # bound of one block
    row_bytes: int  # cost of a row in a block, beside its non-zeros
    nnz_bytes: int  # cost of a non-zero in a block
    max_block_rows: int
    max_block_nnz: int

    @property
    def total(self) -> int:
        """Bound of everything planned: less than the budget where the blocks cannot fill it."""
        block = self.row_bytes * self.max_block_rows + self.nnz_bytes * self.max_block_nnz
        return self.fixed + self.pool_bytes + LIVE_BLOCKS * min(block, self.block_bytes)


def make_plan(
    store: Store,
    *,
    dtype: np.dtype,
    columns: int,
    memory: int,
    pooled: bool,
    shared: int = 0,
    block_rows: int | None = None,
) -> Plan:
    """Divide the budget `memory` (bytes) between blocks, new duals and scratch.

    Parameters
    ----------
    columns : int
        Columns of the weights (classes, padded).
    pooled : bool
        Whether new duals are held, for the log or for inner passes.
    shared : int
        Bytes for all that a fit holds beside blocks and scratch: weights, lists, threads, commits.
    block_rows : int, optional
        Upper bound of the rows in a block, beside those that memory sets.
    """
    decode = 8 * store.chunk_nnz * (store.dtype.itemsize + store.index_dtype.itemsize)
    scratch = columns * (2 * dtype.itemsize + 3 * 8 + 2) + 16 * columns  # and a sorted copy
    fixed = decode + scratch + shared
    entry = dtype.itemsize + dual_id_dtype(store.n_classes).itemsize
    pool_entries = 0
    if pooled:
        worst = store.n_rows * store.n_classes
        pool_entries = max(store.n_classes, min(worst, int(memory * _POOL_SHARE) // entry))
    pool_bytes = pool_entries * entry
    # Non-zeros: value and index in this block, the same again while they are read and checked.
    nnz_bytes = 2 * (store.dtype.itemsize + store.index_dtype.itemsize) + dtype.itemsize
    # Rows: offsets, labels, norms, and as much again while reading; order, old and new duals; what
    # inner passes know of a row.
    row_bytes = 2 * (8 + 4 + 8) + 8 + (8 + 8 + 4) + (4 + 4) + 8 * 8
    block_bytes = (memory - fixed - pool_bytes) // LIVE_BLOCKS
    return Plan(
        memory=memory,
        fixed=fixed,
        pool_entries=pool_entries,
        pool_bytes=pool_bytes,
        block_bytes=max(block_bytes, 0),
        row_bytes=row_bytes,
        nnz_bytes=nnz_bytes,
        max_block_rows=min(block_rows or store.n_rows, store.n_rows, np.iinfo(np.int32).max),
        max_block_nnz=min(SHUFFLED_BLOCK_WORK // columns, store.nnz) if store.shuffled else store.nnz,
    )


def dual_id_dtype(n_classes: int) -> np.dtype:
    """Smallest unsigned type that numbers the classes."""
    return np.min_scalar_type(max(n_classes - 1, 0))


def _too_small(store: Store, plan: Plan, share: int) -> str:
    """Why the plan cannot work, and the budget that would do: for two of the longest row, and the rest."""
    longest = 0
    for begin in range(0, store.n_rows, _SCAN_ROWS):
        longest = max(longest, int(np.diff(store.indptr(begin, min(begin + _SCAN_ROWS, store.n_rows))).max()))
    need = plan.fixed + LIVE_BLOCKS * (plan.row_bytes + plan.nnz_bytes * longest)
    entry = plan.pool_bytes // max(plan.pool_entries, 1)
    need = max(need + store.n_classes * entry, int(need / (1 - _POOL_SHARE))) + 8
    need = -(-4 * need // 3)  # of which a quarter may go to weights that so large a budget keeps in memory
    part, need = "" if share == 1 else f"1/{share} of ", share * need
    return (
        f"{store.path}: {part}a memory budget of {share * plan.memory:,} bytes cannot hold a row of "
        f"{longest:,} non-zeros and the {plan.fixed:,} bytes for chunks, scratch and features; "
        f"give at least {need:,} (--memory {-(-need // 2**20)}M)"
    )


def cut_blocks(store: Store, plan: Plan, share: int = 1) -> np.ndarray:
    """First row of every block, and the number of rows at the end (int64).

    Rows are taken in the store's order for as long as they fit the plan, so the cut is a function
    of store and plan alone. Reads the row offsets once, in pieces. Of a plan for one of `share` equal
    parts of a budget, messages speak of the whole.

    Raises
    ------
    PlanError
        If the budget cannot hold a row; says which budget can.
    """
    starts = [0]
    rows_left, nnz_left, bytes_left = plan.max_block_rows, plan.max_block_nnz, plan.block_bytes
    for begin in range(0, store.n_rows, _SCAN_ROWS):
        offsets = store.indptr(begin, min(begin + _SCAN_ROWS, store.n_rows))
        n = len(offsets) - 1
        cost = plan.nnz_bytes * (offsets - offsets[0]) + plan.row_bytes * np.arange(n + 1)
        at = 0
        while at < n:
            by_nnz = int(np.searchsorted(offsets, offsets[at] + nnz_left, side="right")) - 1
            by_bytes = int(np.searchsorted(cost, cost[at] + bytes_left, side="right")) - 1
            end = max(at, min(at + rows_left, by_nnz, by_bytes, n))
            if end == at:  # the next row does not fit what is left
                row = begin + at
                if starts[-1] == row:  # nor a block of its own
                    if cost[at + 1] - cost[at] > plan.block_bytes:
                        raise PlanError(_too_small(store, plan, share))
                    end = at + 1  # longer than the preferred block, but it fits in memory
                else:
                    starts.append(row)
                    rows_left, nnz_left, bytes_left = (
                        plan.max_block_rows,
                        plan.max_block_nnz,
                        plan.block_bytes,
                    )
                    continue
            rows_left -= end - at
            nnz_left -= int(offsets[end] - offsets[at])
            bytes_left -= int(cost[end] - cost[at])
            at = end
    return np.array([*starts, store.n_rows] if store.n_rows else [0], dtype=np.int64)


class Blocks:
    """The blocks of a store: how many, where they start, and reading one of them.

    Parameters
    ----------
    starts : ndarray of int64
        As `cut_blocks` gives them.
    dtype : dtype
        Of the computation; values are converted to it.
    classes : sequence of str, optional
        Give label codes in this order of classes instead of the store's own; -1 for others.
    columns : ndarray of int32 or int64, shape (store.n_features,), optional
        Give these features instead of the store's own: a permutation.
    """

    def __init__(
        self,
        store: Store,
        starts: np.ndarray,
        dtype: np.dtype,
        classes: Sequence[str] | None = None,
        columns: np.ndarray | None = None,
    ) -> None:
        self.store = store
        self.starts = starts
        self.dtype = dtype
        self.columns = columns
        self._only: Rows | None = None  # the rows, if all are one block: read once
        self._codes = None
        if classes is not None and tuple(classes) != tuple(store.classes):
            code = {label: c for c, label in enumerate(classes)}
            self._codes = np.array(
                [*(code.get(label, UNSEEN_LABEL) for label in store.classes), UNSEEN_LABEL], LABEL_DTYPE
            )  # the last entry serves code -1

    def __len__(self) -> int:
        return len(self.starts) - 1

    def read(self, block: int) -> Rows:
        """The rows of a block."""
        if self._only is not None:
            return self._only
        rows = self.store.rows(int(self.starts[block]), int(self.starts[block + 1]))
        labels = rows.labels if self._codes is None else self._codes[rows.labels]
        data, indices = rows.data.astype(self.dtype, copy=False), rows.indices
        if self.columns is not None:
            data, indices = sort_rows(data, self.columns[indices], rows.indptr, self.store.n_features)
        rows = rows._replace(data=data, indices=indices, labels=labels)
        if len(self) == 1:
            self._only = rows
        return rows

    @property
    def held_bytes(self) -> int:
        """Size of the rows that are kept between readings."""
        return 0 if self._only is None else sum(array.nbytes for array in self._only)

    def empty(self) -> Rows:
        """No rows, in the types of those that `read` gives."""
        indices, labels = np.zeros(0, self.store.index_dtype), np.zeros(0, LABEL_DTYPE)
        return Rows(np.zeros(0, self.dtype), indices, np.zeros(1, np.int64), labels, np.zeros(0))

    def read_to_train(self, block: int) -> Rows:
        """As `read`, but a row without a known class is an error."""
        rows = self.read(block)
        if rows.n_rows and rows.labels.min() < 0:
            row = int(self.starts[block]) + int(np.argmax(rows.labels < 0))
            raise StoreError(
                f"{self.store.path}: row {row} has a label outside the store's classes (kept by "
                "--unseen-label keep); such a store serves to evaluate, not to train"
            )
        return rows


def open_like(path: str | os.PathLike, label: str | None) -> Store:
    """Open a store of ours, or with the column `label` one of others."""
    from streamsvm.store import open_store

    if label is not None:
        with contextlib.suppress(StoreError):
            return open_store(path)
    return open_store(path, label=label)


def blocks_to_score(
    store: Store,
    *,
    classes: Sequence[str],
    n_features: int,
    index_base: int | None,
    dtype: np.dtype,
    memory: int,
    share: int = 1,
    labelled: bool = True,
    feature_names: Sequence[str] | None = None,
    model: str = "the model",
) -> Blocks:
    """The blocks of a store that a model of these classes and features can score.

    Reading takes one of `share` equal parts of `memory`; messages speak of the whole. Labels come in
    the model's codes, and features in its order, whatever the store's. Raises `FeatureError` if
    features cannot be matched by name (an error calls the model `model`), `StoreError` if, without
    names, the store's features are not the model's, or, if `labelled`, none of its classes is.
    """
    columns = match_features(store.feature_names(), feature_names, str(store.path), model=model)
    if not store.native and store.n_features != n_features:
        raise StoreError(
            f"{store.path} has {store.n_features:,} features, the model {n_features:,}: give it the features "
            "of the training data, in their order"
        )
    if store.n_features > n_features:
        raise StoreError(
            f"{store.path} has {store.n_features:,} features, the model {n_features:,}; convert it "
            "with --like and the model, or the store it was trained on"
        )
    if None not in (index_base, store.index_base) and index_base != store.index_base:
        raise StoreError(
            f"{store.path} counts features from {store.index_base}, the model's data from {index_base}; "
            "convert it with --like and the model, or the store it was trained on"
        )
    if labelled and not set(classes) & set(store.classes):
        raise StoreError(
            f"{store.path} has none of the model's classes (its first is {store.classes[:1]}, the model's "
            f"{tuple(classes[:1])}); convert it with --like and the model, or the store it was trained on"
        )
    plan = make_plan(
        store,
        dtype=dtype,
        columns=len(classes),
        memory=memory // share,
        pooled=False,
        shared=0 if columns is None else columns.nbytes,
    )
    return Blocks(store, cut_blocks(store, plan, share), dtype, classes, columns)


class ReadAhead:
    """Read items in a thread, one ahead of their use, and count the time spent waiting."""

    def __init__(self) -> None:
        self.waited = 0.0

    def __call__(self, read: Callable[[int], T], items: Iterable[int]) -> Iterator[T]:
        with ThreadPoolExecutor(1, thread_name_prefix="streamsvm-read") as pool:
            todo = iter(items)
            ahead = [pool.submit(read, item) for item in itertools.islice(todo, 1)]
            while ahead:
                value = self._wait(ahead.pop())
                ahead = [pool.submit(read, item) for item in itertools.islice(todo, 1)]
                yield value

    def _wait(self, future: Future[T]) -> T:
        begin = time.perf_counter()
        try:
            return future.result()
        finally:
            self.waited += max(time.perf_counter() - begin, 0.0)


def available_memory() -> int:
    """Bytes that this process and the pages of its files could have beside what it holds for itself."""
    available = room() - private_memory()
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
        available = min(available, int(line.split()[1]) * 1024)
    return available


def private_memory() -> int:
    """Bytes of memory this process holds for itself now, memory-mapped files not counted.

    Where the system does not tell (it does on Linux), the peak of all resident memory.
    """
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
