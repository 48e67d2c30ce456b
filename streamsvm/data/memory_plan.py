"""Memory plan: division of a budget between weights, blocks and scratch; cutting of blocks."""

from __future__ import annotations

import contextlib
import dataclasses
import resource
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.base.page_cache import memory_limit
from streamsvm.errors import PlanError

if TYPE_CHECKING:
    from streamsvm.store import Store

# A block is filled by reads of this many bytes, as it holds them: more if there is much memory, fewer if
# there is little. Smaller reads decode the chunks at their ends twice, larger ones leave less for the blocks.
READ_BYTES = 2**26
READS_OF_ROOM = 256  # reads in the memory that weights, duals and scratch leave, if it is much
LEAST_READS = 8  # reads in that memory, if it is little: a read takes an eighth, and two blocks the rest
# Rows that fit are one block from the second pass on. The first pass has at most so many blocks, of at least
# so many bytes: it begins before all rows are read.
FIRST_BLOCKS = 16
FIRST_BYTES = 2**26
# Bytes of a block where the weights need the memory: rows are read in sequence, weights at random.
SMALL_BLOCK = 2**22
# Bytes that a process needs in addition to its plan: for the interpreter, libraries and compiled code.
INTERPRETER = 120 * 2**20
_SCAN_ROWS = 2**18  # row offsets read at a time while cutting blocks
# Of a fit: with the same constants its plan is the same. New duals are held in memory until they are appended
# to their files: in this fraction of the memory that weights and scratch leave.
DUAL_SHARE = 1 / 8
# Largest number of non-zeros times columns in a block: a few seconds of work, after which a run can commit or
# stop. Fewer and larger blocks reach a smaller gap.
BLOCK_WORK = 2**35
# With at least so many classes, weights are sparse rows if the matrix does not fit the budget. With fewer
# classes a feature's row of the matrix takes less than a page.
MANY_CLASSES = 1000
# With at least so many classes, weights are sparse rows, with a common dual, whatever the budget, if the loss
# allows it (docs/measurements/engine.md).
COMMON_DUAL_CLASSES = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Memory of each part of a fit in bytes, decided before the first row is read.

    Memory-mapped files (weights that do not fit, duals of the last pass) are not counted: the operating
    system caches as many of their pages as it has room for. Where there is a single block, duals of two
    passes take what the budget has left. A training of rows in memory has no budget: its plan leaves sizes 0.
    """

    dual_entries: int = 0  # most new duals held before they go to a file
    weights_in_memory: bool = False  # or in memory-mapped files
    average: bool = False  # there is memory for the average of the iterates, and it is wanted
    sparse: bool = False  # the weights are sparse rows
    pool_bytes: int = 0  # of these, what may be in memory: the rest is in a memory-mapped file
    common_dual: bool = False  # most wrong classes of a row have one dual in common
    memory: int = 0  # the budget: that of the settings, or less if the process may not use as much
    fixed: int = 0  # all but duals and blocks: weights in memory, chunks being decoded, scratch of one row
    decode_bytes: int = 0  # the chunks being decoded, which `fixed` includes
    dual_bytes: int = 0
    block_bytes: int = 0  # the most that one block may take
    held_blocks: int = 0  # 1 if there is but one; else the one being trained on and the next one
    first_blocks: int = 1  # blocks of the first pass, if there is but one in later passes
    read_bytes: int = 0  # the most that rows which are read at a time take in their block
    read_copies: int = 0  # times that they are in memory meanwhile, beside the blocks
    row_bytes: int = 0  # of each row in a block, without its non-zeros
    nnz_bytes: int = 0  # of each non-zero in a block
    max_block_rows: int = 0
    max_block_nnz: int = 0
    label_bytes: int = 0  # of each label in a block, if rows may have several
    max_block_labels: int = 0
    needs_cluster: bool = False  # whose workers hold the weights of each split, which are not counted

    @property
    def total(self) -> int:
        """Maximum memory that the plan uses: less than the budget if the store is too small to fill it."""
        return self.fixed + self.dual_bytes + self.read_copies * self.read_bytes + self.held_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the blocks in memory."""
        return self.held_blocks * min(self.largest_block, self.block_bytes)

    @property
    def largest_block(self) -> int:
        """Bytes of the largest block under an unlimited budget."""
        labels = self.label_bytes * self.max_block_labels
        return self.row_bytes * self.max_block_rows + self.nnz_bytes * self.max_block_nnz + labels


def make_plan(
    store: Store,
    *,
    dtype: np.dtype,
    columns: int,
    memory: int,
    keeps_duals: bool,
    dual_ids: int | None = None,
    row_duals: int | None = None,
    rows_at_once: int = 1,
    shared: int = 0,
    block_rows: int | None = None,
    most_block_bytes: int | None = None,
    held_row_bytes: int = 0,
    in_one_read: bool = False,
    **recorded: Any,
) -> Plan:
    """Divide the budget: `shared` and scratch come first, then new duals, then blocks.

    All rows are one block if they fit.

    Parameters
    ----------
    store : Store
    dtype : dtype
        Of the weights.
    columns : int
        Columns of the weights: one for each class, and padding.
    memory : int
        The budget in bytes.
    keeps_duals : bool
        Whether new duals are held, for files or for inner passes.
    dual_ids, row_duals : int, optional
        How many ids duals have, and how many a row may have; by default one for each class.
    rows_at_once : int
        Rows of the longest group, if groups are visited as one: there must be room for its new duals.
    shared : int
        Bytes of everything else that is in memory: weights, sparse rows.
    block_rows, most_block_bytes : int, optional
        Largest rows and bytes of a block, if the budget allows more.
    held_row_bytes : int
        Bytes of each row of a block that is trained on, beside those of any training.
    in_one_read : bool
        True if a block is read at once: blocks that are only scored need not be large.
    **recorded
        Place of the weights, only recorded in the plan: `shared` includes their memory.
    """
    decode = 8 * store.chunk_nnz * (store.dtype.itemsize + store.index_bytes)
    scratch = columns * (4 * dtype.itemsize + 6 * 8 + 5) + 16 * columns  # the second for a sorted copy
    fixed = decode + scratch + shared + store.held_bytes
    entry = dtype.itemsize + dual_id_dtype(dual_ids or store.n_classes).itemsize
    row_duals = row_duals or store.n_classes
    dual_entries = 0
    if keeps_duals:
        worst = store.n_rows * row_duals
        dual_entries = max(rows_at_once * row_duals, min(worst, int((memory - fixed) * DUAL_SHARE) // entry))
    dual_bytes = dual_entries * entry
    # A non-zero: its value in the dtype of the weights, and its index. Of dense rows all values count.
    nnz_bytes = dtype.itemsize + store.index_bytes
    # A row: offset, label, norm, and cost, also times a share of C; its place in the order; its old and new
    # duals; and the arrays of inner passes.
    row_bytes = (8 + 4 + 8 + 2 * 8) + 8 + (8 + 8 + 4) + (4 + 4) + 8 * 8
    row_bytes += 8 * (store.grouped + store.multilabel + store.held_out_by)
    row_bytes += held_row_bytes
    label_bytes = 4 * store.multilabel
    # While it is read: as stored, twice if it is copied to be checked or converted, and transformed.
    stored = store.dtype.itemsize + store.index_bytes
    read = stored * (1 if store.native else 2) + store.extra_nnz_bytes
    read += dtype.itemsize * (dtype != store.dtype)
    copies = -(-read // nnz_bytes)
    n_rows = min(block_rows or store.n_rows, store.n_rows, np.iinfo(np.int32).max)
    nnz = min(BLOCK_WORK // columns, store.nnz) if store.shuffled else store.nnz
    largest = row_bytes * n_rows + nnz_bytes * nnz + label_bytes * store.n_labels
    room = max(memory - fixed - dual_bytes, 0)
    most = room if most_block_bytes is None else most_block_bytes
    everything = row_bytes * store.n_rows + nnz_bytes * store.nnz + label_bytes * store.n_labels
    read = min(max(READ_BYTES, room // READS_OF_ROOM), everything, most)
    held_blocks = 1
    if not largest == everything <= min(most, room - copies * read):
        held_blocks = 2
        read = min(read, room // (2 + copies if in_one_read else LEAST_READS * copies))
    block_bytes = min((room - copies * read) // held_blocks, read if in_one_read else most)
    first_blocks = 1
    if held_blocks == 1 and store.shuffled and not store.grouped:
        first_blocks = max(1, min(FIRST_BLOCKS, everything // FIRST_BYTES, store.n_rows))
    return Plan(
        memory=memory,
        fixed=fixed,
        decode_bytes=decode,
        dual_entries=dual_entries,
        dual_bytes=dual_bytes,
        block_bytes=block_bytes,
        held_blocks=held_blocks,
        first_blocks=first_blocks,
        read_bytes=read,
        read_copies=copies,
        row_bytes=row_bytes,
        nnz_bytes=nnz_bytes,
        max_block_rows=n_rows,
        max_block_nnz=nnz,
        label_bytes=label_bytes,
        max_block_labels=store.n_labels,
        **recorded,
    )


def dual_id_dtype(n_ids: int) -> np.dtype:
    """Return the smallest unsigned integer type for the ids of duals, which mostly are classes."""
    return np.min_scalar_type(max(n_ids - 1, 0))


def longest_group(store: Store) -> int:
    """Return the number of rows of the longest group of a store that has groups."""
    return max((int(np.diff(rows).max()) for rows, _, _ in _units(store, Plan())), default=0)


def _units(store: Store, plan: Plan) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the rows of a store that no block divides, in pieces: single rows, or groups if there are any.

    Of each unit come the first row, its first non-zero, and the bytes that a block takes for all before it,
    from an arbitrary origin; then where the last one ends. Reads row offsets, and groups, once.
    """
    if store.units is not None:
        rows, offsets = store.units.rows, store.units.offsets
        cost = plan.nnz_bytes * offsets + plan.row_bytes * rows
        if store.multilabel:  # as if all had the mean number of labels
            cost += plan.label_bytes * -(-store.n_labels // store.n_rows) * rows
        yield rows, offsets, cost
        return
    held = 0  # the first row of a group that may go on in the next piece
    for begin in range(0, store.n_rows, _SCAN_ROWS):
        end = min(begin + _SCAN_ROWS, store.n_rows)
        rows = np.arange(begin, end + 1)
        if store.grouped:
            qid = store.groups(begin, min(end + 1, store.n_rows))  # one more row, to see whether a group ends
            edges = begin + 1 + np.flatnonzero(qid[1:] != qid[:-1])
            rows = np.r_[held, edges, np.arange(end, end + (end == store.n_rows))]
            held = int(rows[-1])
            if len(rows) < 2:
                continue
        offsets, labels = _pointers_at(store, rows)
        cost = plan.nnz_bytes * offsets + plan.row_bytes * (rows - rows[0]) + plan.label_bytes * labels
        yield rows, offsets, cost


def _pointers_at(store: Store, rows: np.ndarray) -> np.ndarray:
    """Return where the non-zeros and the labels of `rows` begin, from 0 on, int64 of shape (2, len(rows)).

    `rows` increase. Those from the first to the last are read once; labels are 0 if each row has one.
    """
    found, before = np.zeros((2, len(rows)), np.int64), [0, 0]
    for begin in range(int(rows[0]), int(rows[-1]), _SCAN_ROWS):
        end = min(begin + _SCAN_ROWS, int(rows[-1]))
        these = slice(*np.searchsorted(rows, (begin, end + 1)))
        for i, sizes in enumerate(store.sizes(np.array([[begin, end]]))):
            if len(sizes):
                pointers = np.concatenate([before[i : i + 1], sizes]).cumsum()
                found[i, these] = pointers[rows[these] - begin]
                before[i] = int(pointers[-1])
    return found


def least_budget(store: Store, plan: Plan) -> tuple[int, int]:
    """Return a budget that can hold the largest row (or group), and its non-zeros."""
    largest = longest = 0
    for _, offsets, cost in _units(store, plan):
        largest = max(largest, int(np.diff(cost).max()))
        longest = max(longest, int(np.diff(offsets).max()))
    room = (LEAST_READS * plan.read_copies if largest <= READ_BYTES else READS_OF_ROOM) * (largest + 1)
    need = plan.fixed + max(room + plan.dual_bytes, int(room / (1 - DUAL_SHARE))) + 8
    return need, longest


def _too_small(store: Store, plan: Plan) -> PlanError:
    """Return the error, with a sufficient budget, for a plan whose blocks cannot hold the largest unit."""
    need, longest = least_budget(store, plan)
    unit = "group of rows" if store.grouped else "row"
    return PlanError(
        f"{store.path}: the memory budget cannot hold a {unit} of {longest:,} non-zeros and the "
        f"{plan.fixed:,} bytes for weights, chunks and scratch",
        needed_memory=need,
    )


def cut_blocks(store: Store, plan: Plan) -> np.ndarray:
    """Return the first row of each block, followed by the number of rows.

    A block is as many successive rows of the store as the plan allows, so that the result depends only on
    the store and the plan. The rows of a group are never in two blocks. Reads the row offsets, and the
    groups of a store that has them, once, in pieces.

    Parameters
    ----------
    store : Store
    plan : Plan

    Returns
    -------
    ndarray of int64, shape (n_blocks + 1,)

    Raises
    ------
    PlanError
        If the budget cannot hold the largest row, or group of rows; says which budget can.
    """
    starts = [0]
    limits = plan.max_block_rows, plan.max_block_nnz, plan.block_bytes
    # A slice may be read in several parts, but not a row, or group.
    longest = plan.block_bytes if store.units else min(plan.block_bytes, plan.read_bytes)
    rows_left, nnz_left, bytes_left = limits
    for rows, offsets, cost in _units(store, plan):
        if np.diff(cost).max(initial=0) > longest:
            raise _too_small(store, plan)
        at, n = 0, len(rows) - 1
        while at < n:
            by_rows = int(np.searchsorted(rows, rows[at] + rows_left, side="right")) - 1
            by_nnz = int(np.searchsorted(offsets, offsets[at] + nnz_left, side="right")) - 1
            by_bytes = int(np.searchsorted(cost, cost[at] + bytes_left, side="right")) - 1
            end = max(at, min(by_rows, by_nnz, by_bytes, n))
            if end == at:  # the next row, or group, does not fit what is left
                row = int(rows[at])
                if starts[-1] == row:  # nor an empty block
                    end = at + 1  # it has more than the largest block should, but fits in memory
                else:
                    starts.append(row)
                    rows_left, nnz_left, bytes_left = limits
                    continue
            rows_left -= int(rows[end] - rows[at])
            nnz_left -= int(offsets[end] - offsets[at])
            bytes_left -= int(cost[end] - cost[at])
            at = end
    return np.array([*starts, store.n_rows] if store.n_rows else [0], dtype=np.int64)


def available_memory() -> int:
    """Return the bytes that are left for this process and for cached pages of its files."""
    available = memory_limit() - private_memory()
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
        available = min(available, int(line.split()[1]) * 1024)
    return available


def private_memory() -> int:
    """Return the bytes of memory that this process uses now, without memory-mapped files.

    On systems that do not report this (Linux does), the peak of all resident memory.
    """
    found = _status().get("RssAnon")
    return _peak_resident() if found is None else found


def peak_private_memory() -> int:
    """Return the peak memory since `forget_peak`, less the memory-mapped files that are resident now.

    It had more or less of them at its peak: the system says no more.
    """
    status = _status()
    if not {"VmHWM", "VmRSS", "RssAnon"} <= status.keys():
        return _peak_resident()
    return status["VmHWM"] - (status["VmRSS"] - status["RssAnon"])


def forget_peak() -> None:
    """Let `peak_private_memory` begin anew, where the system can."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _status() -> dict[str, int]:
    """Read the memory figures of this process from /proc (Linux), in bytes."""
    try:
        with open("/proc/self/status") as file:
            lines = [line.split() for line in file if line.endswith(" kB\n")]
    except OSError:
        return {}
    return {name.rstrip(":"): 1024 * int(size) for name, size, _ in lines}


def _peak_resident() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
