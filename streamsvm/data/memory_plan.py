"""Divide the memory budget between weights, duals, scratch arrays and blocks, and cut a store into blocks."""

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

# Size of each read that fills a block, in bytes after conversion to the dtypes of the block. Smaller reads
# decode more boundary chunks twice, and larger reads leave less memory for blocks.
READ_BYTES = 2**26
READS_OF_ROOM = 256  # with much memory, a read may take 1/256 of the memory left for blocks
LEAST_READS = 8  # with little memory, a read and its copies take 1/8 of the memory left for blocks
# If all rows fit, they form one block. In the first pass only, they form up to FIRST_BLOCKS blocks of at
# least FIRST_BYTES, so that training starts before all rows are read.
FIRST_BLOCKS = 16
FIRST_BYTES = 2**26
# Bytes per block if memory is short. Weights then get the rest, because only they are accessed at random.
SMALL_BLOCK = 2**22
# Bytes that the interpreter, libraries and compiled code take in addition to the plan.
INTERPRETER = 120 * 2**20
_SCAN_ROWS = 2**18  # number of row offsets that are read at a time when blocks are cut
# Fraction of the memory not taken by weights and scratch arrays that holds new duals until they are written
# to files. It is constant, so that plans are reproducible.
DUAL_SHARE = 1 / 8
# Maximum product of the numbers of non-zeros and weight columns of a block: a few seconds of work, because
# training commits and stops only between blocks. Fewer and larger blocks would reach a smaller gap.
BLOCK_WORK = 2**35
# With at least this many classes, weights are stored as sparse rows if the dense matrix exceeds the budget.
# With fewer classes, the dense row of a feature takes less than a memory page.
MANY_CLASSES = 1000
# With at least this many classes, weights are always stored as sparse rows. If the loss allows it, all wrong
# classes for which a row has no separate dual share one (docs/measurements/engine.md).
COMMON_DUAL_CLASSES = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Division of the memory for a fit, in bytes, made before the first row is read.

    Memory-mapped files (large weights, duals of the last pass) are not counted, because the operating system
    caches only as many of their pages as fit. If there is only one block, unplanned memory is used for
    the duals of two passes. Training on a matrix in memory has no budget, so the sizes in its plan are 0.
    """

    dual_entries: int = 0  # number of new duals that are buffered before they are written to a file
    weights_in_memory: bool = False  # False if they are in memory-mapped files
    average: bool = False  # False if averaging is turned off or needs too much memory
    sparse: bool = False  # True if weights are stored as sparse rows
    pool_bytes: int = 0  # size of the sparse rows that are kept in RAM; the others are memory-mapped
    common_dual: bool = False  # True if most wrong classes of a row share one dual
    memory: int = 0  # budget: the setting, or the memory available to the process if that is less
    fixed: int = 0  # everything but duals and blocks: weights in memory, chunks being decoded, scratch
    decode_bytes: int = 0  # chunks being decoded, included in `fixed`
    dual_bytes: int = 0
    block_bytes: int = 0
    held_blocks: int = 0  # number of blocks in memory: 1 if there is only one block; else 2, to read ahead
    first_blocks: int = 1  # number of blocks in the first pass, if later passes have one block
    read_bytes: int = 0  # maximum size of a read, in the block's dtypes
    read_copies: int = 0  # number of copies of a read in memory, in addition to the blocks
    row_bytes: int = 0  # size of a row in a block, without its non-zeros
    nnz_bytes: int = 0  # size of a non-zero in a block
    max_block_rows: int = 0
    max_block_nnz: int = 0
    label_bytes: int = 0  # size of a label in a block of multi-label rows
    max_block_labels: int = 0
    needs_cluster: bool = False  # True if the weights of each split are held by workers and not counted

    @property
    def total(self) -> int:
        """Maximum memory of the plan in bytes; less than the budget if the store is small."""
        return self.fixed + self.dual_bytes + self.read_copies * self.read_bytes + self.held_bytes

    @property
    def held_bytes(self) -> int:
        """Total size, in bytes, of the blocks that are in memory at the same time."""
        return self.held_blocks * min(self.largest_block, self.block_bytes)

    @property
    def largest_block(self) -> int:
        """Size, in bytes, of the largest block that an unlimited budget would allow."""
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
    """Divide the budget between weights and scratch arrays, new duals, and blocks, in this order.

    Parameters
    ----------
    dtype : dtype
        Dtype of the weights.
    columns : int
        Number of weight columns: one per class, plus padding.
    memory : int
        Budget in bytes.
    keeps_duals : bool
        Whether new duals are buffered, so that they can be written to files or a block can be revisited.
    dual_ids : int, optional
        Number of distinct dual ids; by default one per class.
    row_duals : int, optional
        Maximum number of duals per row; by default one per class.
    rows_at_once : int
        Number of rows in the longest group if groups are solved as a whole; the duals of a group must fit.
    shared : int
        Size in bytes of the weights and of all other memory that is not computed here.
    block_rows : int, optional
        Maximum number of rows in a block.
    most_block_bytes : int, optional
        Maximum size of a block in bytes.
    held_row_bytes : int
        Additional bytes per row of the current block.
    in_one_read : bool
        Whether each block is a single read, as in scoring, for which small blocks suffice.
    **recorded
        Further fields of the plan, such as `weights_in_memory`.
    """
    decode = 8 * store.chunk_nnz * (store.dtype.itemsize + store.index_bytes)
    scratch = columns * (4 * dtype.itemsize + 6 * 8 + 5) + 16 * columns  # the last term is for a sorted copy
    fixed = decode + scratch + shared + store.held_bytes
    entry = dtype.itemsize + dual_id_dtype(dual_ids or store.n_classes).itemsize
    row_duals = row_duals or store.n_classes
    dual_entries = 0
    if keeps_duals:
        worst = store.n_rows * row_duals
        dual_entries = max(rows_at_once * row_duals, min(worst, int((memory - fixed) * DUAL_SHARE) // entry))
    dual_bytes = dual_entries * entry
    nnz_bytes = dtype.itemsize + store.index_bytes
    # Offset, label, norm, cost and scaled cost; position in the order; old and new duals; arrays of inner
    # passes.
    row_bytes = (8 + 4 + 8 + 2 * 8) + 8 + (8 + 8 + 4) + (4 + 4) + 8 * 8
    row_bytes += 8 * (store.grouped + store.multilabel + store.held_out_by)
    row_bytes += held_row_bytes
    label_bytes = 4 * store.multilabel
    # A read needs its stored form, twice if that is copied for checks or conversion, and room for transforms.
    stored = store.dtype.itemsize + store.index_bytes
    read = stored * (1 if store.native else 2) + store.extra_nnz_bytes
    read += dtype.itemsize * (dtype != store.dtype)
    copies = -(-read // nnz_bytes)
    n_rows = min(block_rows or store.n_rows, store.n_rows, np.iinfo(np.int32).max)
    nnz = min(BLOCK_WORK // columns, store.nnz) if store.shuffled else store.nnz
    largest = row_bytes * n_rows + nnz_bytes * nnz + label_bytes * store.n_labels
    room = max(memory - fixed - dual_bytes, 0)
    max_bytes = room if most_block_bytes is None else most_block_bytes
    everything = row_bytes * store.n_rows + nnz_bytes * store.nnz + label_bytes * store.n_labels
    read = min(max(READ_BYTES, room // READS_OF_ROOM), everything, max_bytes)
    held_blocks = 1
    if not largest == everything <= min(max_bytes, room - copies * read):
        held_blocks = 2
        read = min(read, room // (2 + copies if in_one_read else LEAST_READS * copies))
    block_bytes = min((room - copies * read) // held_blocks, read if in_one_read else max_bytes)
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
    """Return the smallest unsigned dtype for `n_ids` dual ids, which are usually class codes."""
    return np.min_scalar_type(max(n_ids - 1, 0))


def longest_group(store: Store) -> int:
    """Return the number of rows in the longest group of a store with groups."""
    return max((int(np.diff(rows).max()) for rows, _, _ in _units(store, Plan())), default=0)


def _units(store: Store, plan: Plan) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, in pieces, the boundaries of the units that blocks never divide: rows, groups or slices.

    A piece consists of three arrays, with an element for each unit and one for the end: first row, first
    non-zero, and cumulative size in bytes, from an arbitrary origin. Row offsets and groups are read once.
    """
    if store.units is not None:
        rows, offsets = store.units.rows, store.units.offsets
        cost = plan.nnz_bytes * offsets + plan.row_bytes * rows
        if store.multilabel:  # estimated by the mean number of labels
            cost += plan.label_bytes * -(-store.n_labels // store.n_rows) * rows
        yield rows, offsets, cost
        return
    group_start = 0  # first row of a group that may continue in the next piece
    for begin in range(0, store.n_rows, _SCAN_ROWS):
        end = min(begin + _SCAN_ROWS, store.n_rows)
        rows = np.arange(begin, end + 1)
        if store.grouped:
            qid = store.groups(begin, min(end + 1, store.n_rows))  # one more row shows whether a group ends
            edges = begin + 1 + np.flatnonzero(qid[1:] != qid[:-1])
            rows = np.r_[group_start, edges, np.arange(end, end + (end == store.n_rows))]
            group_start = int(rows[-1])
            if len(rows) < 2:
                continue
        offsets, labels = _pointers_at(store, rows)
        cost = plan.nnz_bytes * offsets + plan.row_bytes * (rows - rows[0]) + plan.label_bytes * labels
        yield rows, offsets, cost


def _pointers_at(store: Store, rows: np.ndarray) -> np.ndarray:
    """Return the offsets of the first non-zero and the first label of each row, relative to ``rows[0]``.

    `rows` is increasing. Returns int64 of shape (2, len(rows)). Label offsets are 0 for single-label rows.
    """
    result, before = np.zeros((2, len(rows)), np.int64), [0, 0]
    for begin in range(int(rows[0]), int(rows[-1]), _SCAN_ROWS):
        end = min(begin + _SCAN_ROWS, int(rows[-1]))
        selected = slice(*np.searchsorted(rows, (begin, end + 1)))
        for i, sizes in enumerate(store.sizes(np.array([[begin, end]]))):
            if len(sizes):
                pointers = np.concatenate([before[i : i + 1], sizes]).cumsum()
                result[i, selected] = pointers[rows[selected] - begin]
                before[i] = int(pointers[-1])
    return result


def least_budget(store: Store, plan: Plan) -> tuple[int, int]:
    """Return a sufficient budget, in bytes, for any row or group, and the non-zeros in the longest one."""
    largest = longest = 0
    for _, offsets, cost in _units(store, plan):
        largest = max(largest, int(np.diff(cost).max()))
        longest = max(longest, int(np.diff(offsets).max()))
    room = (LEAST_READS * plan.read_copies if largest <= READ_BYTES else READS_OF_ROOM) * (largest + 1)
    need = plan.fixed + max(room + plan.dual_bytes, int(room / (1 - DUAL_SHARE))) + 8
    return need, longest


def _too_small(store: Store, plan: Plan) -> PlanError:
    need, longest = least_budget(store, plan)
    unit = "group of rows" if store.grouped else "row"
    return PlanError(
        f"{store.path}: the memory budget is too small for a {unit} with {longest:,} non-zeros and the "
        f"{plan.fixed:,} bytes for weights, chunks and scratch arrays",
        needed_memory=need,
    )


def cut_blocks(store: Store, plan: Plan) -> np.ndarray:
    """Return the first row of each block, followed by the number of rows, int64 of shape (n_blocks + 1,).

    A block contains as many consecutive rows as the plan allows; groups are never divided. Row offsets and
    groups are read once, in pieces.

    Raises `PlanError`, which states a sufficient budget, if the budget is too small for a row or group.
    """
    starts = [0]
    limits = plan.max_block_rows, plan.max_block_nnz, plan.block_bytes
    # A slice may be read in several parts, but a row or group is one read.
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
            if end == at:  # the next unit does not fit in the rest of the block
                row = int(rows[at])
                if starts[-1] == row:  # nor in an empty block
                    end = at + 1  # it exceeds a row or non-zero limit, but fits in memory
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
    """Return the memory, in bytes, still available to this process and the page cache of its files."""
    available = memory_limit() - private_memory()
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
        available = min(available, int(line.split()[1]) * 1024)
    return available


def private_memory() -> int:
    """Return the memory, in bytes, that this process uses now, without memory-mapped files.

    On systems other than Linux, return the peak of all resident memory instead.
    """
    size = _status().get("RssAnon")
    return _peak_resident() if size is None else size


def peak_private_memory() -> int:
    """Return the peak memory in bytes since `forget_peak`, minus the memory-mapped files resident now.

    This is an estimate, because the system does not report the memory-mapped files at the peak.
    """
    status = _status()
    if not {"VmHWM", "VmRSS", "RssAnon"} <= status.keys():
        return _peak_resident()
    return status["VmHWM"] - (status["VmRSS"] - status["RssAnon"])


def forget_peak() -> None:
    """Reset the peak that `peak_private_memory` reports, if the system supports this."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _status() -> dict[str, int]:
    """Return the memory sizes in /proc/self/status, in bytes, or an empty dict if there is no such file."""
    try:
        with open("/proc/self/status") as file:
            lines = [line.split() for line in file if line.endswith(" kB\n")]
    except OSError:
        return {}
    return {name.rstrip(":"): 1024 * int(size) for name, size, _ in lines}


def _peak_resident() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
