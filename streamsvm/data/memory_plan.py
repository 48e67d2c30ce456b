"""Memory plan: division of the budget between weights, blocks and scratch; cutting of blocks."""

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

# Bytes per read while a block is filled, in the block's dtypes; more with much memory, fewer with little.
# Smaller reads decode more boundary chunks twice, larger reads leave less memory for blocks.
READ_BYTES = 2**26
READS_OF_ROOM = 256  # with much memory, a read takes 1/256 of the memory left for blocks
LEAST_READS = 8  # with little memory, reads take an eighth, and two blocks the rest
# If all rows fit, they are one block from the second pass on. The first pass has up to FIRST_BLOCKS blocks of
# at least FIRST_BYTES, so that it can start before all rows are read.
FIRST_BLOCKS = 16
FIRST_BYTES = 2**26
# Bytes per block if the weights need the memory, because rows are read sequentially, but weights at random.
SMALL_BLOCK = 2**22
# Bytes beyond the plan, for the interpreter, libraries and compiled code.
INTERPRETER = 120 * 2**20
_SCAN_ROWS = 2**18  # row offsets per read while cutting blocks
# Fraction of the memory left by weights and scratch that holds new duals until they are written to files. It
# is constant, so that plans are reproducible.
DUAL_SHARE = 1 / 8
# Maximum of non-zeros times columns per block: a few seconds of work between opportunities to commit or stop.
# Fewer and larger blocks reach a smaller gap.
BLOCK_WORK = 2**35
# From this number of classes, weights are sparse rows if the matrix exceeds the budget. With fewer classes, a
# matrix row of a feature takes less than a page.
MANY_CLASSES = 1000
# From this number of classes, weights are always sparse rows with a common dual, if the loss allows it
# (docs/measurements/engine.md).
COMMON_DUAL_CLASSES = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Memory of each part of a fit in bytes, decided before the first row is read.

    Memory-mapped files (large weights, duals of the last pass) are not counted, because the operating system
    caches only as many of their pages as fit. With a single block, duals of two passes use the rest of the
    budget. Training on rows in memory has no budget, and sizes of 0.
    """

    dual_entries: int = 0  # capacity for new duals before they are written to a file
    weights_in_memory: bool = False  # False if they are in memory-mapped files
    average: bool = False  # the average of the iterates is wanted and fits
    sparse: bool = False  # the weights are sparse rows
    pool_bytes: int = 0  # bytes of sparse rows kept in RAM; the rest is memory-mapped
    common_dual: bool = False  # most wrong classes of a row share one dual
    memory: int = 0  # budget: the setting, or the memory available to the process if less
    fixed: int = 0  # everything but duals and blocks: weights in memory, chunks being decoded, scratch
    decode_bytes: int = 0  # chunks being decoded, included in `fixed`
    dual_bytes: int = 0
    block_bytes: int = 0
    held_blocks: int = 0  # 1 for a single block; else 2: current and next block
    first_blocks: int = 1  # blocks of the first pass, if later passes have one
    read_bytes: int = 0  # maximum per read, counted as in the block
    read_copies: int = 0  # copies of a read in memory, besides the blocks
    row_bytes: int = 0  # per row in a block, without non-zeros
    nnz_bytes: int = 0  # per non-zero in a block
    max_block_rows: int = 0
    max_block_nnz: int = 0
    label_bytes: int = 0  # per label in a block of multi-label rows
    max_block_labels: int = 0
    needs_cluster: bool = False  # workers hold the weights of each split, which are not counted

    @property
    def total(self) -> int:
        """Maximum memory of the plan; below the budget if the store is too small to fill it."""
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
    """Divide the budget: first `shared` and scratch, then new duals, then blocks.

    All rows form one block if they fit.

    Parameters
    ----------
    dtype : dtype
        Dtype of the weights.
    columns : int
        Columns of the weights: one per class, and padding.
    memory : int
        Budget in bytes.
    keeps_duals : bool
        Whether new duals are held, for files or for inner passes.
    dual_ids, row_duals : int, optional
        Number of dual ids, and maximum number of duals per row; by default one per class.
    rows_at_once : int
        Rows of the longest group if groups are visited as a unit; its new duals must fit.
    shared : int
        Bytes of everything else in memory: weights, sparse rows.
    block_rows, most_block_bytes : int, optional
        Upper limits of rows and bytes per block.
    held_row_bytes : int
        Additional bytes per row of the current block.
    in_one_read : bool
        Whether each block is one read. Blocks that are only scored can be small.
    **recorded
        Further fields of the plan, such as the place of the weights, whose memory is part of `shared`.
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
    # Value and index of a non-zero; dense rows store all values.
    nnz_bytes = dtype.itemsize + store.index_bytes
    # Offset, label, norm, cost and scaled cost; position in the order; old and new duals; arrays of inner
    # passes.
    row_bytes = (8 + 4 + 8 + 2 * 8) + 8 + (8 + 8 + 4) + (4 + 4) + 8 * 8
    row_bytes += 8 * (store.grouped + store.multilabel + store.held_out_by)
    row_bytes += held_row_bytes
    label_bytes = 4 * store.multilabel
    # During a read: the stored form, twice if copied for checks or conversion, plus transforms.
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
    """Return the smallest unsigned dtype for `n_ids` ids of duals, which usually are classes."""
    return np.min_scalar_type(max(n_ids - 1, 0))


def longest_group(store: Store) -> int:
    """Return the number of rows of the longest group of a store with groups."""
    return max((int(np.diff(rows).max()) for rows, _, _ in _units(store, Plan())), default=0)


def _units(store: Store, plan: Plan) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, in pieces, the boundaries of units that blocks do not divide: rows, groups or slices.

    Each piece has three arrays: first rows, first non-zeros, and cumulative block bytes from an arbitrary
    origin, for each unit and for the end of the last. Reads row offsets, and groups, once.
    """
    if store.units is not None:
        rows, offsets = store.units.rows, store.units.offsets
        cost = plan.nnz_bytes * offsets + plan.row_bytes * rows
        if store.multilabel:  # estimated by the mean number of labels
            cost += plan.label_bytes * -(-store.n_labels // store.n_rows) * rows
        yield rows, offsets, cost
        return
    held = 0  # first row of a group that may continue in the next piece
    for begin in range(0, store.n_rows, _SCAN_ROWS):
        end = min(begin + _SCAN_ROWS, store.n_rows)
        rows = np.arange(begin, end + 1)
        if store.grouped:
            qid = store.groups(begin, min(end + 1, store.n_rows))  # one more row shows whether a group ends
            edges = begin + 1 + np.flatnonzero(qid[1:] != qid[:-1])
            rows = np.r_[held, edges, np.arange(end, end + (end == store.n_rows))]
            held = int(rows[-1])
            if len(rows) < 2:
                continue
        offsets, labels = _pointers_at(store, rows)
        cost = plan.nnz_bytes * offsets + plan.row_bytes * (rows - rows[0]) + plan.label_bytes * labels
        yield rows, offsets, cost


def _pointers_at(store: Store, rows: np.ndarray) -> np.ndarray:
    """Return the first non-zero and the first label of increasing `rows`, relative to ``rows[0]``.

    The result is int64 of shape (2, len(rows)), with labels 0 if each row has one. The range is read once.
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
    """Return (sufficient budget, most non-zeros) for the largest row or group of the store."""
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
        f"{store.path}: the memory budget cannot hold a {unit} of {longest:,} non-zeros and the "
        f"{plan.fixed:,} bytes for weights, chunks and scratch",
        needed_memory=need,
    )


def cut_blocks(store: Store, plan: Plan) -> np.ndarray:
    """Return the first row of each block, followed by the number of rows, int64 of shape (n_blocks + 1,).

    A block has as many consecutive rows as the plan allows, so the result depends only on the store and the
    plan. Groups are never divided. Row offsets and groups are read once, in pieces.

    Raises `PlanError`, with a sufficient budget, if the budget cannot hold the largest row or group.
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
    """Return the bytes that are still available to this process and the page cache of its files."""
    available = memory_limit() - private_memory()
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
        available = min(available, int(line.split()[1]) * 1024)
    return available


def private_memory() -> int:
    """Return the bytes of memory that this process uses now, without memory-mapped files.

    Systems other than Linux report the peak of all resident memory instead.
    """
    found = _status().get("RssAnon")
    return _peak_resident() if found is None else found


def peak_private_memory() -> int:
    """Return the peak memory since `forget_peak`, minus the memory-mapped files resident now.

    This is an estimate, because the system does not report the memory-mapped files at the peak.
    """
    status = _status()
    if not {"VmHWM", "VmRSS", "RssAnon"} <= status.keys():
        return _peak_resident()
    return status["VmHWM"] - (status["VmRSS"] - status["RssAnon"])


def forget_peak() -> None:
    """Reset `peak_private_memory`, if the system supports it."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _status() -> dict[str, int]:
    """Return the memory figures in /proc/self/status (Linux) in bytes."""
    try:
        with open("/proc/self/status") as file:
            lines = [line.split() for line in file if line.endswith(" kB\n")]
    except OSError:
        return {}
    return {name.rstrip(":"): 1024 * int(size) for name, size, _ in lines}


def _peak_resident() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
