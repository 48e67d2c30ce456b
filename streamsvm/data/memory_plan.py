"""The memory plan: a budget divided between weights, blocks and scratch, and the cut into blocks."""

from __future__ import annotations

import contextlib
import dataclasses
import resource
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.errors import PlanError
from streamsvm.store.page_cache import memory_limit

if TYPE_CHECKING:
    from streamsvm.store import Store

LIVE_BLOCKS = 2  # the one in work and the one read ahead
# Bytes of a block, enough where weights need the memory: rows are read in sequence, weights at random.
SMALL_BLOCK = 2**22
# What a process takes beside its plan: the interpreter, libraries and compiled code.
INTERPRETER = 120 * 2**20
_SCAN_ROWS = 2**18  # row offsets read at a time while cutting blocks


@dataclasses.dataclass(frozen=True)
class MemoryPolicy:
    """By what memory plans are made: the same policy makes the same plan again.

    Attributes
    ----------
    dual_share : float
        Fraction of what weights and scratch leave that holds new duals on their way to the log.
    block_work : int
        Non-zeros times columns of a block, at most: a few seconds of work, after which a run can commit or
        stop. Fewer and larger blocks reach a finer gap.
    many_classes : int
        Classes from which on the weights of rare features are sparse where a matrix does not fit the budget.
        With fewer, a feature's row of the matrix is less than a page.
    classes_per_row : float
        A feature is rare if it occurs in fewer than one row for so many classes. With fewer classes per row,
        sparse rows take longer than the matrix, and no less memory (docs/engine.md has the measurements).
    prefer : callable, optional
        ``prefer(plan)`` returns true for the plans to try before all others.
    """

    dual_share: float = 1 / 8
    block_work: int = 2**35
    many_classes: int = 1000
    classes_per_row: float = 256
    prefer: Callable[[Plan], bool] | None = None


POLICY = MemoryPolicy()


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a fit holds in memory, decided before the first row is read; all sizes in bytes.

    Memory-mapped files (weights that do not fit, duals of the last pass) are not counted: the operating
    system keeps as much of them as there is room for.
    """

    memory: int  # the budget: what was asked for, or less where the process may not have as much
    fixed: int  # weights in memory, chunks being decoded, one row's scratch, what is shared
    decode_bytes: int  # of that, for the chunks
    dual_entries: int  # new duals held before they are appended to the log
    dual_bytes: int
    block_bytes: int  # bound of one block
    row_bytes: int  # cost of a row in a block, beside its non-zeros
    nnz_bytes: int  # cost of a non-zero in a block
    max_block_rows: int
    max_block_nnz: int
    weights_in_memory: bool = False  # and not in memory-mapped files
    average_in_memory: bool = False
    sparse_rare: bool = False  # the weights of rare features are sparse

    @property
    def total(self) -> int:
        """Bound of everything planned: less than the budget where the blocks cannot fill it."""
        return self.fixed + self.dual_bytes + LIVE_BLOCKS * min(self.largest_block, self.block_bytes)

    @property
    def largest_block(self) -> int:
        """Bytes of the largest block that any budget would give."""
        return self.row_bytes * self.max_block_rows + self.nnz_bytes * self.max_block_nnz


def are_sizes(plan: Plan) -> bool:
    """Whether a plan from a record has the types of one that was made here."""
    kinds = {field.name: bool if field.type == "bool" else int for field in dataclasses.fields(plan)}
    values = dataclasses.asdict(plan)
    return all(type(values[name]) is kind and 0 <= values[name] < 2**63 for name, kind in kinds.items())


def make_plan(
    store: Store,
    *,
    dtype: np.dtype,
    columns: int,
    memory: int,
    keeps_duals: bool,
    shared: int = 0,
    policy: MemoryPolicy = POLICY,
    block_rows: int | None = None,
    most_block_bytes: int | None = None,
    weights_in_memory: bool = False,
    average_in_memory: bool = False,
    sparse_rare: bool = False,
) -> Plan:
    """Divide the budget `memory` (bytes): `shared` and scratch first, then new duals and blocks.

    Parameters
    ----------
    columns : int
        Columns of the weights (classes, padded).
    keeps_duals : bool
        Whether new duals are held, for the log or for inner passes.
    shared : int
        Bytes for all that a fit holds beside blocks and scratch: weights, lists, commits.
    block_rows, most_block_bytes : int, optional
        Upper bounds of a block, beside those that memory sets.
    weights_in_memory, average_in_memory, sparse_rare : bool
        Where the weights are, for the record; `shared` counts what they take.
    """
    decode = 8 * store.chunk_nnz * (store.dtype.itemsize + store.index_dtype.itemsize)
    scratch = columns * (2 * dtype.itemsize + 3 * 8 + 2) + 16 * columns  # and a sorted copy
    fixed = decode + scratch + shared
    entry = dtype.itemsize + dual_id_dtype(store.n_classes).itemsize
    dual_entries = 0
    if keeps_duals:
        worst = store.n_rows * store.n_classes
        dual_entries = max(store.n_classes, min(worst, int((memory - fixed) * policy.dual_share) // entry))
    dual_bytes = dual_entries * entry
    # Non-zeros: value and index in this block, the same again while they are read and checked.
    nnz_bytes = 2 * (store.dtype.itemsize + store.index_dtype.itemsize) + dtype.itemsize
    # Rows: offsets, labels, norms, and as much again while reading; order, old and new duals; what
    # inner passes know of a row.
    row_bytes = 2 * (8 + 4 + 8) + 8 + (8 + 8 + 4) + (4 + 4) + 8 * 8
    block_bytes = max((memory - fixed - dual_bytes) // LIVE_BLOCKS, 0)
    return Plan(
        memory=memory,
        fixed=fixed,
        decode_bytes=decode,
        dual_entries=dual_entries,
        dual_bytes=dual_bytes,
        block_bytes=block_bytes if most_block_bytes is None else min(block_bytes, most_block_bytes),
        row_bytes=row_bytes,
        nnz_bytes=nnz_bytes,
        max_block_rows=min(block_rows or store.n_rows, store.n_rows, np.iinfo(np.int32).max),
        max_block_nnz=min(policy.block_work // columns, store.nnz) if store.shuffled else store.nnz,
        weights_in_memory=weights_in_memory,
        average_in_memory=average_in_memory,
        sparse_rare=sparse_rare,
    )


def dual_id_dtype(n_classes: int) -> np.dtype:
    """Smallest unsigned type that numbers the classes."""
    return np.min_scalar_type(max(n_classes - 1, 0))


def least_budget(store: Store, plan: Plan, policy: MemoryPolicy = POLICY) -> tuple[int, int]:
    """The budget that would do where a plan does not, and the non-zeros of the longest row."""
    longest = 0
    for begin in range(0, store.n_rows, _SCAN_ROWS):
        longest = max(longest, int(np.diff(store.indptr(begin, min(begin + _SCAN_ROWS, store.n_rows))).max()))
    blocks = LIVE_BLOCKS * (plan.row_bytes + plan.nnz_bytes * longest)
    entry = plan.dual_bytes // max(plan.dual_entries, 1)
    need = plan.fixed + max(blocks + store.n_classes * entry, int(blocks / (1 - policy.dual_share))) + 8
    return need, longest


def _too_small(store: Store, plan: Plan) -> PlanError:
    """Why the plan cannot work, and the budget that is enough: for two of the longest row, and the rest."""
    need, longest = least_budget(store, plan)
    return PlanError(
        f"{store.path}: the memory budget cannot hold a row of {longest:,} non-zeros and the "
        f"{plan.fixed:,} bytes for chunks, scratch and features",
        needed_memory=need,
    )


def cut_blocks(store: Store, plan: Plan) -> np.ndarray:
    """First row of every block, and the number of rows at the end (int64).

    Rows are taken in the store's order for as long as they fit the plan, so the cut is a function
    of store and plan alone. Reads the row offsets once, in pieces.

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
                        raise _too_small(store, plan)
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


def available_memory() -> int:
    """Bytes that this process and the pages of its files could have beside what it holds for itself."""
    available = memory_limit() - private_memory()
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
