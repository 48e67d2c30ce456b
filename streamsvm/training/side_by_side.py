"""Several trainings on a store at the same time, which read each of its blocks once for all of them."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from streamsvm.data.memory_plan import MemoryPolicy, Plan
from streamsvm.errors import Interrupted, PlanError
from streamsvm.settings import Settings
from streamsvm.store.shared import Reads, SharedReads
from streamsvm.store.sliced import SlicedStore
from streamsvm.training.fit_plan import find_budget, in_slices, plan_fit
from streamsvm.training.parallel.splits import settle_split
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training_data import open_to_train
from streamsvm.transforms import Transform
from streamsvm.transforms.store import TransformedStore

T = TypeVar("T")

_MOST = 16  # trainings at a time: beyond, reading is a small part of their work, and blocks become small
_ROUNDS = 32  # in which blocks are made shorter, until those of all trainings are the same


class Arrangement(NamedTuple):
    """How many trainings run at a time, and what each of them may have.

    Attributes
    ----------
    side_by_side : int
    memory : int
        Bytes for each.
    block_rows : int or None
        Most rows of a block; None if memory alone decides.
    """

    side_by_side: int
    memory: int
    block_rows: int | None

    def of(self, settings: Settings) -> Settings:
        """The settings of a training in this arrangement."""
        return dataclasses.replace(settings, memory=self.memory, block_rows=self.block_rows)


def arrange(
    paths: Sequence[str | os.PathLike[str]],
    candidates: Sequence[tuple[Settings, Sequence[Transform]]],
    n_trainings: int,
    policy: MemoryPolicy,
    *,
    cluster: bool = False,
) -> Arrangement:
    """As many trainings at a time as memory allows.

    It allows so many if each, with an equal share of the budget, has its weights in memory as it would have
    them with all of the budget.

    Parameters
    ----------
    paths : sequence of path
        The store.
    candidates : sequence of (Settings, sequence of Transform)
        The different settings to train with, which all have the same budget, and their transforms, fitted.
    n_trainings : int
    policy : MemoryPolicy
    cluster : bool
        Whether they are made on a cluster.

    Raises
    ------
    PlanError
        If the budget is too small for one training.
    """
    settings = candidates[0][0]

    def layouts(memory: int, block_rows: int | None) -> list[_Layout]:
        given = Arrangement(1, memory, block_rows)
        return [
            _layout(paths, given.of(settings), transforms, policy, cluster)
            for settings, transforms in candidates
        ]

    alone = layouts(settings.memory, settings.block_rows)
    budget = min(find_budget(settings) for settings, _ in candidates)
    least, most = 1, min(n_trainings, _MOST) if all(each.holds_weights for each in alone) else 1
    while least < most:
        middle = (least + most + 1) // 2
        try:
            fits = all(
                shared.weights == own.weights
                for shared, own in zip(layouts(budget // middle, settings.block_rows), alone, strict=True)
            )
        except PlanError:
            fits = False
        least, most = (middle, most) if fits else (least, middle - 1)
    if least == 1:
        return Arrangement(1, settings.memory, settings.block_rows)
    side_by_side = -(-n_trainings // -(-n_trainings // least))  # as many each time
    memory, block_rows = budget // side_by_side, settings.block_rows
    for _ in range(_ROUNDS):
        found = layouts(memory, block_rows)
        if all(each.has_blocks_of(found[0]) for each in found):
            break
        shortest = min(each.shortest_block for each in found)
        block_rows = shortest if block_rows is None else min(shortest, max(block_rows * 3 // 4, 1))
    return Arrangement(side_by_side, memory, block_rows)


class _Layout(NamedTuple):
    """Where the weights of a training are, and where its blocks begin."""

    plan: Plan
    starts: np.ndarray
    slice_rows: int

    @property
    def weights(self) -> tuple[bool, ...]:
        plan = self.plan
        return (
            plan.weights_in_memory,
            plan.average_in_memory,
            plan.sparse and plan.pool_bytes > 0,
            plan.needs_cluster,
        )

    @property
    def holds_weights(self) -> bool:
        """Whether weights are in memory, not in files for which the system's cache must have room."""
        in_memory, _, has_pool, _ = self.weights
        return in_memory or has_pool

    @property
    def shortest_block(self) -> int:
        """Rows of the shortest block, but for the last one."""
        starts = self.starts
        return int(np.diff(starts if len(starts) == 2 else starts[:-1]).min())

    def has_blocks_of(self, other: _Layout) -> bool:
        return self.slice_rows == other.slice_rows and np.array_equal(self.starts, other.starts)


def _layout(
    paths: Sequence[str | os.PathLike[str]],
    settings: Settings,
    transforms: Sequence[Transform],
    policy: MemoryPolicy,
    cluster: bool,
) -> _Layout:
    with open_to_train(paths, settings) as raw:
        transformed = TransformedStore(raw, transforms)
        settings = settle_split(settings, raw.class_counts, multilabel=raw.multilabel)
        store = in_slices(transformed, settings, policy, cluster=cluster)
        slice_rows = store.slice_rows if isinstance(store, SlicedStore) else 0
        return _Layout(*plan_fit(store, settings, policy, cluster=cluster), slice_rows)


def train_side_by_side(
    trainings: Sequence[tuple[str, Callable[[Reads, Callbacks], T]]], callbacks: Callbacks
) -> list[T]:
    """Make all of the trainings at the same time, each in a thread of its own.

    Parameters
    ----------
    trainings : sequence of (str, callable)
        Names, and functions that train with what is given and return the result.
    callbacks : Callbacks
        They are called from the threads, by one at a time. Events have the name of the training as
        ``trial``; progress is that of the first training that still runs.

    Returns
    -------
    list
        The results, in the order of `trainings`.

    Raises
    ------
    Exception
        The first error of any training, when the others have stopped after their present block.
    """
    shared = SharedReads(len(trainings))
    joint = _JointCallbacks(callbacks, len(trainings))

    def run(number: int) -> T:
        name, train = trainings[number]
        try:
            return train(shared.readers[number], joint.of(number, name))
        except BaseException as error:
            joint.fail(error)
            raise
        finally:
            joint.end(number)
            shared.readers[number].end()

    futures: list[Future[T]] = []
    with ThreadPoolExecutor(len(trainings), thread_name_prefix="streamsvm-training") as pool:
        try:
            for number in range(len(trainings)):
                futures.append(pool.submit(run, number))
            for future in futures:
                future.exception()  # waits
        except BaseException:  # of this thread: the user interrupts it, or there is no thread left
            joint.stopping = True
            for reader in shared.readers[len(futures) :]:
                reader.end()
            raise
    if joint.error is not None:
        raise joint.error
    return [future.result() for future in futures]


class _JointCallbacks:
    """The callbacks of several threads, of which one at a time is let through."""

    def __init__(self, callbacks: Callbacks, n_trainings: int) -> None:
        self.stopping = False
        self.error: BaseException | None = None
        self._compiles = False
        self._callbacks = callbacks
        self._lock = threading.RLock()
        self._running = set(range(n_trainings))

    def fail(self, error: BaseException) -> None:
        """Stop all, since one has failed or was stopped; an error tells more than that."""
        with self._lock:
            self.stopping = True
            if self.error is None or isinstance(self.error, Interrupted):
                self.error = error

    def end(self, number: int) -> None:
        with self._lock:
            self._running.discard(number)

    def of(self, number: int, name: str) -> Callbacks:
        def report(event: dict[str, Any]) -> None:
            with self._lock:
                if event["event"] == "compile" and self._compiles:
                    return  # all of them load the same kernels
                self._compiles |= event["event"] == "compile"
                self._callbacks.report({**event, "trial": name})

        def progress(stage: str, done: int, total: int | None) -> None:
            with self._lock:
                if number == min(self._running):
                    self._callbacks.progress(stage, done, total)

        def stop() -> bool:
            with self._lock:
                self.stopping = self.stopping or self._callbacks.stop()
                return self.stopping

        return Callbacks(report, progress, stop)
