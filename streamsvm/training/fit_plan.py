"""What a fit holds, and where: weights first, then the blocks in what they leave of the budget."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.data.label_order import block_warning
from streamsvm.data.memory_plan import (
    INTERPRETER,
    SMALL_BLOCK,
    Plan,
    available_memory,
    cut_blocks,
    least_budget,
    make_plan,
)
from streamsvm.errors import PlanError, StoreError
from streamsvm.kernels.weights import padded_classes
from streamsvm.run.checkpoint import MOST_LOGS
from streamsvm.run.dual_log import LARGEST_FILE
from streamsvm.run.hybrid_weights import MANY_CLASSES, RareFeatures
from streamsvm.run.weight_log import ChangeLog
from streamsvm.settings import Settings
from streamsvm.store import Store
from streamsvm.store.page_cache import memory_limit
from streamsvm.text import format_size

_MARK = 16  # bytes of a feature's marks


def plan_fit(store: Store, settings: Settings) -> tuple[Plan, np.ndarray]:
    """The memory plan of a fit, and the first row of each of its blocks.

    Weights are read and written at random, rows in sequence. So weights, their marks and their average
    are in memory where they leave room for small blocks; else the average, then the weights too are
    memory-mapped files, and the blocks are small, that the system may keep as many of the files' pages
    as it can.

    Raises
    ------
    StoreError
        If the store cannot be trained on.
    PlanError
        If the weights would be larger than a file can be, or no budget of this size can work.
    """
    if store.n_rows == 0:
        raise StoreError(f"{store.path} has no rows to train on")
    if store.n_classes < 2:
        raise StoreError(f"{store.path} has {store.n_classes} class; training needs two or more")
    size = array_bytes(store, settings)
    if size > LARGEST_FILE:
        raise PlanError(
            f"the weights of {store.n_features:,} features and {store.n_classes:,} classes take {size:.1e} "
            "bytes, more than a file can; number the features without gaps, and convert again"
        )
    *better, last = choices(store, settings, find_budget(settings))
    for plan in better:
        if plan.total <= plan.memory and plan.block_bytes >= min(SMALL_BLOCK, plan.largest_block):
            with contextlib.suppress(PlanError):  # a row is longer than its blocks
                return plan, cut_blocks(store, plan)
    try:
        return last, cut_blocks(store, last)
    except PlanError:
        if last.memory == settings.memory:
            raise
        need, longest = least_budget(store, last)
        raise PlanError(
            f"{store.path}: this process may have {format_size(memory_limit())} of memory, and a fit with a "
            f"row of {longest:,} non-zeros needs {format_size(need + INTERPRETER)}: raise the limit of the "
            "process (its cgroup or container)"
        ) from None


def choices(store: Store, settings: Settings, budget: int) -> Iterator[Plan]:
    """What a fit may do with a budget: the fastest plan first, the one that needs the least memory last."""
    size, marks = array_bytes(store, settings), _MARK * store.n_features
    if settings.average:
        yield _plan(store, settings, budget, 2 * size + marks, weights=True, average=True)
    yield _plan(store, settings, budget, size + marks, weights=True)
    if store.n_classes >= MANY_CLASSES:
        yield _plan(store, settings, budget, RareFeatures.size(store.n_features), lists=True)
        return
    yield _plan(store, settings, budget, 0, most_block_bytes=max(SMALL_BLOCK, budget // 8))
    yield _plan(store, settings, budget, 0)


def find_budget(settings: Settings) -> int:
    """The bytes that a plan may use: `settings.memory`, or what the process may have, if that is less."""
    limit = memory_limit()
    return min(settings.memory, max(limit - INTERPRETER, limit // 4))


def array_bytes(store: Store, settings: Settings) -> int:
    """Size of the weights as a matrix; of their average, as much again."""
    dtype = np.dtype(settings.dtype)
    return store.n_features * padded_classes(store.n_classes, dtype) * dtype.itemsize


def _plan(
    store: Store,
    settings: Settings,
    budget: int,
    held: int,
    *,
    weights: bool = False,
    average: bool = False,
    lists: bool = False,
    most_block_bytes: int | None = None,
) -> Plan:
    """A plan in which weights or lists take `held` bytes."""
    dtype = np.dtype(settings.dtype)
    columns = padded_classes(store.n_classes, dtype)
    held += ChangeLog.size(
        store.n_features, columns, dtype.itemsize, average=settings.average, lists=lists
    )  # fmt: skip
    return make_plan(
        store,
        dtype=dtype,
        columns=columns,
        memory=budget,
        pooled=settings.keep_duals or settings.inner_passes != 0,
        shared=held,
        block_rows=settings.block_rows,
        most_block_bytes=most_block_bytes,
        weights_in_memory=weights,
        average_in_memory=average,
        lists=lists,
    )


def describe_fit(store: Store, settings: Settings, plan: Plan, starts: np.ndarray) -> dict[str, Any]:
    """A plan as a report: what `streamsvm.training.trainer.plan` returns."""
    size = array_bytes(store, settings)
    both = (1 + settings.average) * size
    in_files = both - (plan.weights_in_memory + plan.average_in_memory) * size
    return {
        "event": "plan",
        "rows": store.n_rows,
        "features": store.n_features,
        "classes": store.n_classes,
        "nnz": store.nnz,
        "blocks": len(starts) - 1,
        "budget": plan.memory,
        "planned_bytes": plan.total,
        "weights_bytes": both,
        "mapped_bytes": in_files,
        "weights_in_memory": plan.weights_in_memory,
        "lists": plan.lists,
        "lists_bytes": RareFeatures.size(store.n_features) if plan.lists else 0,
        "log_bytes": int(MOST_LOGS * both) + in_files,
        "warning": _warning(store, settings, plan, in_files),
        "order_warning": block_warning(store, len(starts) - 1),
        **dataclasses.asdict(settings),
    }


def _warning(store: Store, settings: Settings, plan: Plan, in_files: int) -> str | None:
    """What is slow about a plan, and what would help."""
    limit, needed = memory_limit(), plan.total + INTERPRETER
    if needed > limit:  # of a run that was begun where there was more
        return (
            f"this run holds about {format_size(needed)}, and the limit of this process is "
            f"{format_size(limit)}: it may be killed; resume it where there is more memory"
        )
    free = max(available_memory() - plan.total, 0)
    if plan.lists or not in_files:
        return None
    helps = []
    resident = next(iter(choices(store, settings, plan.memory)))
    enough = -(-(resident.fixed + 3 * SMALL_BLOCK + 16 * store.n_classes) // 2**20)
    if limit > enough * 2**20 + INTERPRETER:
        helps.append(f"--memory {enough}M, which holds them in memory")
    if in_files <= free:
        slow = f"weights of {format_size(in_files)} are in files, slower than in memory"
        return f"{slow}; what helps: {helps[0]}" if helps else slow
    if settings.dtype == "float64":
        helps.append("--dtype float32 (half)")
    if settings.average:
        helps.append("--no-average (half)")
    helps.append("a machine or a limit with more memory")
    return (
        f"weights of {format_size(in_files)} are in files, and {format_size(free)} of memory are left for "
        f"them: a pass may take tens of times as long; what helps: {', '.join(helps)}"
    )
