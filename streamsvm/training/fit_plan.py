"""Memory plan of a fit: weights are placed first, and blocks get the rest of the budget."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import mmap
from typing import Any

import numpy as np

from streamsvm.base.page_cache import memory_limit
from streamsvm.base.text import format_size
from streamsvm.data.groups import GIVE_GROUPS, group_starts
from streamsvm.data.hold_out import division_bytes, held_out_part
from streamsvm.data.memory_plan import (
    DUAL_SHARE,
    INTERPRETER,
    LEAST_READS,
    SMALL_BLOCK,
    Plan,
    available_memory,
    cut_blocks,
    least_budget,
    longest_group,
    make_plan,
)
from streamsvm.data.order import block_warning
from streamsvm.errors import Message, Option, PlanError, Remedy, StoreError, wrong_setting
from streamsvm.losses import get_loss
from streamsvm.run.weights import LARGEST_FILE
from streamsvm.settings.fit import Settings
from streamsvm.store import Store
from streamsvm.store.sliced import choose_slice_rows
from streamsvm.training.parallel.splits import why_split
from streamsvm.training.spec import Spec
from streamsvm.training.training import Training

_MAX_BUFFERED_DUALS = 2**22
_SMALL = 2**28  # minimum budget for rows in memory, so that their duals may be matrices


def plan_fit(store: Store, spec: Spec, *, cluster: bool = False) -> tuple[Plan, np.ndarray]:
    """Return the memory plan of a fit, and the first row of each block.

    Weights are accessed at random, whereas rows are read in sequence. Weights and their average are therefore
    kept in memory if this leaves room for small blocks. Otherwise, the average is dropped first. If the
    weights still do not fit, they are kept in memory-mapped files, and blocks are small, so that the system
    can cache many pages of the files. If training is split by rows, the workers of a `cluster` may hold the
    weights. If this process can hold them, the plan is the same as without a cluster.

    Raises `StoreError` if there are fewer than two classes, and `PlanError` if the weights would exceed the
    maximum size of a file or if the budget is too small.
    """
    if store.n_classes < 2:
        raise StoreError(f"{store.path} has too few classes ({store.n_classes}); training needs two or more")
    settings, size = spec.settings, spec.weights_bytes
    if size > LARGEST_FILE:
        raise PlanError(
            f"the weights of {store.n_features:,} features and {store.n_classes:,} classes take {size:.1e} "
            "bytes, more than a file can hold",
            remedy=Remedy("number the features without gaps, and convert again"),
        )
    check_has_groups(settings, has_groups=store.grouped, where=str(store.path))
    *better, last = choices(store, spec, find_budget(settings), cluster=cluster)
    for plan in better:
        is_enough = plan.total <= plan.memory and plan.block_bytes >= min(SMALL_BLOCK, plan.largest_block)
        if is_enough or last.needs_cluster:
            with contextlib.suppress(PlanError):  # raised if a row does not fit in a block
                return plan, cut_blocks(store, plan)
    try:
        return last, cut_blocks(store, last)
    except PlanError:
        if last.memory == settings.memory:
            raise
        need, longest = least_budget(store, last)
        raise PlanError(
            f"{store.path}: the memory limit of this process is {format_size(memory_limit())}, but "
            f"training on a row with {longest:,} non-zeros needs {format_size(need + INTERPRETER)}",
            remedy=Remedy("raise the memory limit of the cgroup or container"),
        ) from None


def find_slice_rows(store: Store, settings: Settings, n_blocks: int) -> int:
    """Return the number of rows per random slice of a store that is not shuffled; 0 for no slices.

    If there is only one block, slices are not needed. They are not used either if the labels are evenly
    spread and slices would be shorter than chunks.
    """
    if n_blocks < 2 or store.shuffled or store.grouped or settings.slice_rows == 0:
        return 0
    if settings.slice_rows is not None:
        return settings.slice_rows
    slice_rows = choose_slice_rows(store, store.n_rows // n_blocks)
    if slice_rows < store.chunk_rows and block_warning(store, n_blocks) is None:
        return 0  # each slice would require decoding a whole chunk, for no gain
    return slice_rows


def choices(store: Store, spec: Spec, budget: int, *, cluster: bool = False) -> list[Plan]:
    """Return the plans for a budget, from the fastest to the one that needs the least memory."""
    settings, size = spec.settings, spec.weights_bytes
    longest = longest_group(store) if spec.loss.sequences else 1
    plan = functools.partial(_plan, store, spec, budget, longest=longest)
    plans = []
    if settings.splits > 1 and spec.groups is None:  # each split has its own weights
        held = (1 + settings.average) * size
        by_rows = functools.partial(plan, weights_in_memory=True, average=settings.average)
        plans = [by_rows((1 + settings.splits) * held)]
        if cluster:  # this process holds the weights of the workers and the saved weights
            plans.append(by_rows(2 * held, needs_cluster=True))
        return plans
    if not spec.has_common_dual:
        for average in sorted({settings.average, False}, reverse=True):
            plans.append(plan((1 + average) * size, weights_in_memory=True, average=average))
    if spec.sparse_bytes is not None:
        common = spec.can_have_common_dual
        # Half of the budget, or less if the weights are small, so that their lists and full rows need less.
        for pool in (min(budget // 2, 2**24 + 16 * size), 0):
            plans.append(plan(
                spec.sparse_bytes + pool, sparse=True, average=settings.average, pool_bytes=pool,
                common_dual=common,
            ))  # fmt: skip
    else:
        plans.append(plan(0, most_block_bytes=max(SMALL_BLOCK, budget // 8)))
        plans.append(plan(0))
    return plans


def plan_rows(store: Store, spec: Spec) -> tuple[Plan, np.ndarray]:
    """Return the plan for training on rows in memory, and the bounds of the single block.

    Raises `PlanError` if dense duals do not fit into the memory of the process.
    """
    check_dense_duals(spec, available_memory(), "the memory of this process")
    settings, rows, common = spec.settings, store.rows(0, store.n_rows), spec.has_common_dual
    entries = 0  # the buffer must hold the new duals of any row or group
    if settings.keep_duals or settings.inner_passes:
        entries = max(spec.n_classes, min(rows.n_rows * spec.max_duals, _MAX_BUFFERED_DUALS))
        if spec.loss.sequences:
            entries = max(entries, int(np.diff(group_starts(rows.qid)).max()) * spec.max_duals)
    plan = Plan(
        memory=max(_SMALL, 2 * rows.nbytes), dual_entries=entries, weights_in_memory=True,
        average=settings.average, sparse=common, common_dual=common,
    )  # fmt: skip
    return plan, np.array([0, store.n_rows])


def find_budget(settings: Settings) -> int:
    """Return the memory budget in bytes: `settings.memory`, or less if the process has a memory limit."""
    limit = memory_limit()
    return min(settings.memory, max(limit - INTERPRETER, limit // 4))


def check_has_groups(settings: Settings, *, has_groups: bool, where: str) -> None:
    """Raise `SettingsError` if the loss needs groups of rows, but the data called `where` has none."""
    if get_loss(settings.loss).sequences and not has_groups:
        problem = f"{settings.loss} needs groups of rows that form sequences, but {where} has none"
        raise wrong_setting("loss", problem, GIVE_GROUPS)


def check_dense_duals(spec: Spec, free: int, where: str) -> None:
    """Raise `PlanError` if dense duals do not fit into the `free` bytes that are left in `where`."""
    settings, needed = spec.settings, spec.dense_duals_bytes
    if needed > free:
        raise PlanError(
            f"the loss {settings.loss} with the solver {settings.solver} has duals for nearly all classes. "
            f"The duals of {spec.n_rows:,} rows and {spec.n_classes:,} classes take {format_size(needed)}, "
            f"but {where} has only {format_size(free)} left",
            remedy=Remedy("use a loss with few duals, such as {}, or set {}",
                          Option("loss", "ww"), Option("passes", 1)),
        )  # fmt: skip


def _plan(
    store: Store,
    spec: Spec,
    budget: int,
    held: int,
    *,
    longest: int,
    common_dual: bool = False,
    **recorded: Any,
) -> Plan:
    """Return a plan in which `held` bytes are used for the weights.

    `longest` is the maximum number of rows visited together. `recorded` is passed on to `make_plan`.
    """
    settings = spec.settings
    held += spec.product_bytes + spec.pair_bytes + spec.chain_bytes(longest) * spec.loss.sequences
    held += division_bytes(store) * (settings.hold_out is not None)
    held_row_bytes = 0
    if spec.groups is not None:  # counts by group and lists of the duals of a block, with copies
        held_row_bytes = 2 * settings.splits * 4 + 3 * spec.row_dual_bytes
    duals = spec.dual_format(common_dual=common_dual)
    return make_plan(
        store,
        dtype=spec.dtype,
        columns=spec.columns,
        memory=budget,
        keeps_duals=settings.keep_duals or settings.inner_passes != 0,
        dual_ids=duals.n_ids,
        row_duals=duals.max_duals if spec.loss.sequences else None,
        rows_at_once=longest,
        shared=held,
        block_rows=settings.block_rows,
        common_dual=common_dual,
        held_row_bytes=held_row_bytes,
        **recorded,
    )


def commit_bytes(store: Store, spec: Spec, plan: Plan) -> int:
    """Return the maximum size in bytes of the weights in a commit.

    Features that occur in no row need no space, unless training continues from a model.
    """
    row = spec.columns * spec.dtype.itemsize + mmap.PAGESIZE
    used = spec.n_features if spec.settings.from_ is not None else min(spec.n_features, store.nnz)
    return (1 + plan.average) * min(spec.weights_bytes, used * row)


def describe_fit(store: Store, training: Training) -> dict[str, Any]:
    """Describe the plan of a fit, for `streamsvm.plan` and for the reports of a run."""
    spec, plan, n_blocks = training.spec, training.plan, len(training.starts) - 1
    settings, size = spec.settings, (1 + plan.average) * spec.weights_bytes
    mapped_bytes = 0 if plan.weights_in_memory else size
    part = held_out_part(settings.hold_out, store, settings.memory)
    return {
        "event": "plan",
        "rows": store.n_rows,
        "features": store.n_features,
        "classes": store.n_classes,
        "nnz": store.nnz,
        "unlabelled_rows": store.unlabelled,
        "held_out": None if part is None else part.described(settings.hold_out_by),
        "slice_rows": training.slice_rows,
        "blocks": n_blocks,
        "budget": plan.memory,
        "planned_bytes": plan.total,
        "weights_bytes": size,
        "mapped_bytes": mapped_bytes,
        "weights_in_memory": plan.weights_in_memory,
        "sparse": plan.sparse,
        "sparse_bytes": plan.pool_bytes,
        "common_dual": plan.common_dual,
        "dense_duals_bytes": spec.dense_duals_bytes,
        "commit_bytes": commit_bytes(store, spec, plan),
        "warning": _warning(store, spec, plan, mapped_bytes),
        "average_warning": _average_warning(store, spec, plan),
        "split_reason": None
        if settings.splits == 1
        else why_split(settings, spec.class_counts, multilabel=spec.multilabel),
        "order_warning": block_warning(store, n_blocks),
        **dataclasses.asdict(settings),
    }


def _warning(store: Store, spec: Spec, plan: Plan, mapped_bytes: int) -> str | None:
    limit, needed = memory_limit(), plan.total + INTERPRETER
    if needed > limit:  # the run started with more memory
        return Message(
            f"this run needs about {format_size(needed)} of memory, but the limit of this process is "
            f"{format_size(limit)}, so it may be killed",
            Remedy("resume the run in a process with more memory"),
        )
    if plan.sparse or not mapped_bytes:
        return None
    slow = f"weights of {format_size(mapped_bytes)} are kept in files, which are slower than memory"
    if mapped_bytes > (free := max(available_memory() - plan.total, 0)):
        slow += f". Only {format_size(free)} is left to cache them, so a pass may take tens of times as long"
    budget = _sufficient_budget(store, spec, plan.memory)
    if limit <= budget + INTERPRETER:
        return slow
    return Message(slow, Remedy("use {} to keep the weights in memory", Option("memory", budget)))


def _average_warning(store: Store, spec: Spec, plan: Plan) -> str | None:
    if plan.average or not spec.settings.average:
        return None
    budget = _sufficient_budget(store, spec, plan.memory)
    needs = f"to keep the average, use {{}} and a memory limit of {format_size(budget + INTERPRETER)} or more"
    problem = "the average of the weights does not fit into memory, so the model is the last iterate"
    return Message(problem, Remedy(needs, Option("memory", budget)))


def _sufficient_budget(store: Store, spec: Spec, budget: int) -> int:
    """Return the budget in bytes, rounded up to whole MiB, for the fastest plan with small blocks."""
    room = int(2 * SMALL_BLOCK / (1 - 1 / LEAST_READS) / (1 - DUAL_SHARE))
    return -(-(choices(store, spec, budget)[0].fixed + room + 16 * store.n_classes) // 2**20) * 2**20
