"""Memory plan of a fit: weights are placed first, blocks get the rest of the budget."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any

import numpy as np

from streamsvm.base.page_cache import memory_limit
from streamsvm.base.text import format_size
from streamsvm.data import memory_plan
from streamsvm.data.groups import GIVE_GROUPS
from streamsvm.data.memory_plan import (
    INTERPRETER,
    SMALL_BLOCK,
    Plan,
    available_memory,
    cut_blocks,
    dual_id_dtype,
    least_budget,
    longest_group,
    make_plan,
)
from streamsvm.data.order import block_warning
from streamsvm.errors import Message, Option, PlanError, Remedy, SettingsError, StoreError
from streamsvm.kernels.dual_matrix import MOST_COLUMNS
from streamsvm.kernels.weights import padded_classes
from streamsvm.losses import get_loss
from streamsvm.losses.base import FILLING, MOST_SEQUENCES, ROUNDS
from streamsvm.run.checkpoint import MAX_LOG_RATIO
from streamsvm.run.sparse_weights import SparseWeights
from streamsvm.run.weight_log import append_buffer_bytes
from streamsvm.run.weights import LARGEST_FILE
from streamsvm.settings.fit import AUTO, COSTS, MARGINS, ROWS, Settings
from streamsvm.store import Store
from streamsvm.store.sliced import SlicedStore, choose_slice_rows
from streamsvm.training.parallel.class_groups import ClassGroups
from streamsvm.training.parallel.splits import groups_of, why_split

_DIRTY_BYTES = 16  # size of a feature's dirty bits
_TYPICAL_ROW_DUALS = 8  # bound, with few exceptions, of the mean number of a row's duals after the first pass


def plan_fit(store: Store, settings: Settings, *, cluster: bool = False) -> tuple[Plan, np.ndarray]:
    """Return the memory plan of a fit, and the first row of each of its blocks.

    Weights are read and written at random, rows in sequence. So weights, their dirty bits and their average
    are in memory if they leave room for small blocks; else there is no average; else the weights are
    memory-mapped files, and the blocks are small, so that the system can cache as many of the files' pages
    as possible. Workers of a `cluster` hold the weights of splits by rows; but if threads could, the plan is
    the same.

    Raises
    ------
    StoreError
        If the store cannot be trained on.
    PlanError
        If the weights would be larger than a file can be, or the budget is too small.
    """
    if store.n_rows == 0:
        raise StoreError(f"{store.path} has no rows to train on")
    if store.n_classes < 2:
        raise StoreError(f"{store.path} has {store.n_classes} class; training needs two or more")
    size = array_bytes(store, settings)
    if size > LARGEST_FILE:
        raise PlanError(
            f"the weights of {store.n_features:,} features and {store.n_classes:,} classes take {size:.1e} "
            "bytes, more than a file can",
            remedy=Remedy("number the features without gaps, and convert again"),
        )
    check_has_groups(settings, has_groups=store.grouped, where=str(store.path))
    *better, last = choices(store, settings, find_budget(settings), cluster=cluster)
    for plan in better:
        is_enough = plan.total <= plan.memory and plan.block_bytes >= min(SMALL_BLOCK, plan.largest_block)
        if is_enough or last.needs_cluster:
            with contextlib.suppress(PlanError):  # a row is longer than its blocks
                return plan, cut_blocks(store, plan)
    try:
        return last, cut_blocks(store, last)
    except PlanError as error:
        if last.memory == settings.memory:
            if settings.splits == 1 or settings.split != ROWS or last.needs_cluster:
                raise
            enough = max(error.needed_memory or 0, _enough(last, store.n_classes))
            raise PlanError(
                f"each of the {settings.splits} splits by rows has weights of its own, of "
                f"{format_size((1 + last.average) * size)}: too much for {format_size(last.memory)}",
                remedy=Remedy("give at least {}, or fewer {}, or workers with memory of their own, by {}",
                              Option("memory", enough), Option("splits"), Option("cluster")),
                needed_memory=enough,
            ) from None  # fmt: skip
        need, longest = least_budget(store, last)
        raise PlanError(
            f"{store.path}: this process may have {format_size(memory_limit())} of memory, and a fit with a "
            f"row of {longest:,} non-zeros needs {format_size(need + INTERPRETER)}",
            remedy=Remedy("raise the limit of the process (its cgroup or container)"),
        ) from None


def in_slices(store: Store, settings: Settings, *, cluster: bool = False) -> Store:
    """Return the store to train on: in random slices if it is not shuffled and has several blocks.

    It keeps its own order if its labels are spread evenly and slices would be shorter than chunks.
    """
    if store.shuffled or store.grouped or settings.slice_rows == 0:
        return store
    _, starts = plan_fit(store, settings, cluster=cluster)
    n_blocks = len(starts) - 1
    if n_blocks < 2:
        return store
    slice_rows = settings.slice_rows
    if slice_rows is None:
        slice_rows = choose_slice_rows(store, store.n_rows // n_blocks)
        if slice_rows < store.chunk_rows and block_warning(store, n_blocks) is None:
            return store  # labels are even as they are, and each slice would decode a whole chunk
    return SlicedStore(store, slice_rows, settings.seed)


def choices(store: Store, settings: Settings, budget: int, *, cluster: bool = False) -> list[Plan]:
    """Return the plans for a budget: the fastest first, the one that needs the least memory last."""
    size, dirty = array_bytes(store, settings), _DIRTY_BYTES * weight_rows(store, settings)
    sequences = get_loss(settings.loss).sequences
    plan = functools.partial(_plan, store, settings, budget, longest=longest_group(store) if sequences else 1)
    plans = []
    if settings.splits > 1 and settings.split == ROWS:  # each split has weights of its own
        held = (1 + settings.average) * size
        by_rows = functools.partial(plan, weights_in_memory=True, average=settings.average)
        plans = [by_rows((1 + settings.splits) * held + dirty)]
        if cluster:  # whose weights come to the command beside those that are saved
            plans.append(by_rows(2 * held + dirty, needs_cluster=True))
        return plans
    common = has_common_dual(settings, multilabel=store.multilabel)
    if not (common and store.n_classes >= memory_plan.COMMON_DUAL_CLASSES):
        for average in sorted({settings.average, False}, reverse=True):
            plans.append(plan((1 + average) * size + dirty, weights_in_memory=True, average=average))
    touches_all = settings.trained_loss.extra_columns > 0  # each visit moves the weights of all classes
    can_be_sparse = not (sequences or touches_all or settings.splits > 1)
    if store.n_classes >= memory_plan.MANY_CLASSES and can_be_sparse:
        held = SparseWeights.size(store.n_features, columns_of(store, settings))
        # At most half of the budget, and of small weights no more than lists and rows in full can ever take.
        for pool in (min(budget // 2, 2**24 + 16 * size), 0):
            plans.append(
                plan(held + pool, sparse=True, average=settings.average, pool_bytes=pool, common_dual=common)
            )
    else:
        plans.append(plan(0, most_block_bytes=max(SMALL_BLOCK, budget // 8)))
        plans.append(plan(0))
    return plans


def has_common_dual(settings: Settings, *, multilabel: bool) -> bool:
    """Return True if the loss and the costs allow a common dual (see `streamsvm.losses.common_dual`)."""
    plain = settings.costs is None and settings.tree is None and not multilabel and settings.splits == 1
    exact = settings.solver == "newton" and settings.inner_passes in (0, AUTO)
    return plain and exact and get_loss(settings.loss).common_dual


def find_budget(settings: Settings) -> int:
    """Return the bytes that a plan may use: `settings.memory`, or less if the process may have less."""
    limit = memory_limit()
    return min(settings.memory, max(limit - INTERPRETER, limit // 4))


def array_bytes(store: Store, settings: Settings) -> int:
    """Return the size of the weights as a matrix, in bytes; their average takes as much again."""
    rows, columns = weight_rows(store, settings), columns_of(store, settings)
    return rows * columns * np.dtype(settings.dtype).itemsize


def weight_rows(store: Store, settings: Settings) -> int:
    """Return the number of rows of the weights: one for each feature, and those that the loss adds."""
    return store.n_features + get_loss(settings.loss).extra_rows(store.n_classes)


def columns_of(store: Store, settings: Settings) -> int:
    """Return the number of columns of the weights."""
    groups = _groups(store, settings)
    if groups is not None:
        return groups.n_columns
    extra = settings.trained_loss.extra_columns
    return padded_classes(store.n_classes + extra, np.dtype(settings.dtype))


def _groups(store: Store, settings: Settings) -> ClassGroups | None:
    return groups_of(settings, store.class_counts) if settings.splits > 1 else None


def row_dual_bytes(store: Store, settings: Settings) -> int:
    """Return the bytes that the duals of a row take: the most, or a mean if the loss has few duals."""
    loss = settings.trained_loss
    most = _TYPICAL_ROW_DUALS if loss.duals == "sparse" else loss.max_duals(store.n_classes, settings.solver)
    return most * (np.dtype(settings.dtype).itemsize + dual_id_dtype(dual_ids(store, settings)).itemsize)


def dual_ids(store: Store, settings: Settings) -> int:
    """Return the number of ids of duals: mostly one for each class; for each column if classes are split."""
    groups = _groups(store, settings)
    if groups is not None:
        return groups.n_columns
    return get_loss(settings.loss).dual_ids(store.n_classes, settings.solver)


def pair_bytes(n_classes: int, settings: Settings, columns: int) -> int:
    """Return the bytes of margins and costs of pairs of classes, and of the matrix they are made from."""
    if settings.costs is None:
        return 0
    margins = settings.costs_as != COSTS
    costs = settings.costs_as != MARGINS
    return n_classes * (columns * (margins * np.dtype(settings.dtype).itemsize + costs * 8) + 8 * n_classes)


def chain_bytes(settings: Settings, longest: int, k: int) -> int:
    """Return the bytes of a visit's scratch arrays, at most, for the longest chain and `k` classes."""
    # Scores, steps and the best labels before each token; of pairs, transitions and steps; inner products.
    common = 3 * longest * k + 2 * k**2 + longest**2
    if settings.solver == "cached":
        most = MOST_SEQUENCES + 1 + ROUNDS  # their labels, weights and inner products
        return 8 * (common + most * (longest + most + 8) + (longest + k) * k)
    if settings.solver in FILLING:  # marginals, ids, old duals, those to go towards; and forward-backward
        return 8 * (common + 4 * longest * k**2 + 3 * longest * k)
    return 8 * (common + 3 * longest * min(k**2, settings.passes))  # a pass adds a pair to each token


def check_has_groups(settings: Settings, *, has_groups: bool, where: str) -> None:
    """Raise `SettingsError` if the loss needs groups of rows, and the data called `where` has none."""
    if get_loss(settings.loss).sequences and not has_groups:
        raise SettingsError(
            f"the loss {settings.loss} needs to know which rows are a sequence, and {where} does not say it",
            remedy=GIVE_GROUPS,
            setting="loss",
        )


def two_dual_matrices(settings: Settings, n_rows: int, columns: int) -> int:
    """Return the most bytes of two passes' duals as matrices; 0 if they may not be.

    See `streamsvm.kernels.dual_matrix`.
    """
    if columns > MOST_COLUMNS or settings.splits > 1 or get_loss(settings.loss).sequences:
        return 0
    return 2 * n_rows * columns * np.dtype(settings.dtype).itemsize


def dense_duals_bytes(settings: Settings, n_rows: int, n_classes: int) -> int:
    """Return the least bytes of two passes' duals if rows have duals of nearly all classes; else 0.

    Of duals that are kept as bits, those that are not at C take more; their number is not known beforehand.
    """
    loss = settings.trained_loss
    is_dense = loss.duals != "sparse" or settings.solver in FILLING
    if not (is_dense and settings.keep_duals):
        return 0
    row = loss.bytes_of_bits(n_classes)
    if loss.duals != "bits":
        ids = dual_id_dtype(loss.dual_ids(n_classes, settings.solver))
        row = loss.max_duals(n_classes, settings.solver) * (np.dtype(settings.dtype).itemsize + ids.itemsize)
    return 2 * n_rows * (row + 8)  # with the row's number and count


def check_dense_duals(settings: Settings, n_rows: int, n_classes: int, free: int, where: str) -> None:
    """Raise `PlanError` if the place called `where`, with `free` bytes left, cannot hold dense duals."""
    needed = dense_duals_bytes(settings, n_rows, n_classes)
    if needed > free:
        raise PlanError(
            f"the loss {settings.loss} with the solver {settings.solver} has duals of nearly all classes: "
            f"those of {n_rows:,} rows and {n_classes:,} classes take {format_size(needed)} or more, and "
            f"{where} has {format_size(free)} left",
            remedy=Remedy("train with a loss of few duals, such as {}, or with {}",
                          Option("loss", "ww"), Option("passes", 1)),
        )  # fmt: skip


def _plan(
    store: Store,
    settings: Settings,
    budget: int,
    held: int,
    *,
    longest: int,
    average: bool = False,
    sparse: bool = False,
    common_dual: bool = False,
    **recorded: Any,
) -> Plan:
    """Return the plan in which weights, or the index of sparse ones, take `held` bytes.

    `longest` is the largest number of rows that are visited as one; `recorded` goes to `make_plan`.
    """
    dtype, loss, k = np.dtype(settings.dtype), settings.trained_loss, store.n_classes
    columns = columns_of(store, settings)
    row_duals = None
    if loss.sequences:
        held += chain_bytes(settings, longest, k)
        row_duals = loss.max_duals(k, settings.solver)
    held += pair_bytes(store.n_classes, settings, columns)
    held_row_bytes = 0
    if _groups(store, settings) is not None:  # duals of a block: counts by group, and lists, with copies
        held_row_bytes = 2 * settings.splits * 4 + 3 * row_dual_bytes(store, settings)
    held += append_buffer_bytes(
        weight_rows(store, settings), columns, dtype.itemsize, average=average, sparse=sparse
    )
    return make_plan(
        store,
        dtype=dtype,
        columns=columns,
        memory=budget,
        keeps_duals=settings.keep_duals or settings.inner_passes != 0,
        bytes_of_bits=loss.bytes_of_bits(k),
        dual_ids=dual_ids(store, settings) + common_dual,
        row_duals=row_duals,
        rows_at_once=longest,
        shared=held,
        block_rows=settings.block_rows,
        average=average,
        sparse=sparse,
        common_dual=common_dual,
        held_row_bytes=held_row_bytes,
        **recorded,
    )


def describe_fit(store: Store, settings: Settings, plan: Plan, starts: np.ndarray) -> dict[str, Any]:
    """Return the description of a plan that `streamsvm.plan` returns and a fit reports."""
    size = (1 + plan.average) * array_bytes(store, settings)
    in_files = 0 if plan.weights_in_memory else size
    return {
        "event": "plan",
        "rows": store.n_rows,
        "features": store.n_features,
        "classes": store.n_classes,
        "nnz": store.nnz,
        "unlabelled_rows": store.unlabelled,
        "slice_rows": store.slice_rows if isinstance(store, SlicedStore) else 0,
        "blocks": len(starts) - 1,
        "budget": plan.memory,
        "planned_bytes": plan.total,
        "weights_bytes": size,
        "mapped_bytes": in_files,
        "weights_in_memory": plan.weights_in_memory,
        "sparse": plan.sparse,
        "sparse_bytes": plan.pool_bytes,
        "common_dual": plan.common_dual,
        "dense_duals_bytes": dense_duals_bytes(settings, store.n_rows, store.n_classes),
        "log_bytes": int(MAX_LOG_RATIO * size) + in_files,
        "warning": _warning(store, settings, plan, in_files),
        "average_warning": _average_warning(store, settings, plan),
        "split_reason": None
        if settings.splits == 1
        else why_split(settings, store.class_counts, multilabel=store.multilabel),
        "order_warning": block_warning(store, len(starts) - 1),
        **dataclasses.asdict(settings),
    }


def _warning(store: Store, settings: Settings, plan: Plan, in_files: int) -> str | None:
    """Return a warning about a plan that is slow or too large, with remedies; None if there is none."""
    limit, needed = memory_limit(), plan.total + INTERPRETER
    if needed > limit:  # of a run that was begun where there was more
        return Message(
            f"this run holds about {format_size(needed)}, and the limit of this process is "
            f"{format_size(limit)}: it may be killed",
            Remedy("resume it where there is more memory"),
        )
    free = max(available_memory() - plan.total, 0)
    if plan.sparse or not in_files:
        return None
    remedies = []
    resident = choices(store, settings, plan.memory)[0]
    enough = _enough(resident, store.n_classes)
    if limit > enough + INTERPRETER:
        remedies.append(Remedy("{}, which holds them in memory", Option("memory", enough)))
    if in_files <= free:
        slow = f"weights of {format_size(in_files)} are in files, slower than in memory"
        return Message(slow, _what_helps(remedies)) if remedies else slow
    if settings.dtype == "float64":
        remedies.append(Remedy("{} (half)", Option("dtype", "float32")))
    remedies.append(Remedy("a machine or a limit with more memory"))
    return Message(
        f"weights of {format_size(in_files)} are in files, and {format_size(free)} of memory are left for "
        "them: a pass may take tens of times as long",
        _what_helps(remedies),
    )


def _average_warning(store: Store, settings: Settings, plan: Plan) -> str | None:
    """Return a warning, with the memory that is needed, if a plan leaves out the average that is wanted."""
    if plan.average or not settings.average:
        return None
    enough = _enough(choices(store, settings, plan.memory)[0], store.n_classes)
    needs = f"the average needs {{}}, in a process that may have {format_size(enough + INTERPRETER)}"
    left_out = "there is no memory for the average of the weights: the model is the last iterate"
    return Message(left_out, Remedy(needs, Option("memory", enough)))


def _enough(plan: Plan, n_classes: int) -> int:
    """Return a budget, in whole MiB, with which a plan has room for small blocks."""
    return -(-(plan.fixed + 3 * SMALL_BLOCK + 16 * n_classes) // 2**20) * 2**20


def _what_helps(remedies: list[Remedy]) -> Remedy:
    joined = Remedy.join(remedies, ", ")
    return Remedy(f"what helps: {joined.words}", *joined.parts)
