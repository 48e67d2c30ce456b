"""Training of a run on a store: its parts, from the record to the trainer."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from streamsvm.base import durable
from streamsvm.base.text import as_url
from streamsvm.base.threads import Threads, WorkersLost
from streamsvm.data.blocks import Blocks
from streamsvm.errors import ClusterError, Interrupted, Option, Remedy, wrong_setting
from streamsvm.inputs.schema import reading_of
from streamsvm.model.results import FitResult
from streamsvm.run.directory import RunDir
from streamsvm.run.files import RunFiles
from streamsvm.settings.fit import Interval
from streamsvm.store import Store
from streamsvm.store.addresses import copy_address
from streamsvm.training.build import build
from streamsvm.training.costs import TrainingCosts
from streamsvm.training.fit_plan import describe_fit
from streamsvm.training.held_out import held_out_blocks, open_held_out, other_held_out
from streamsvm.training.parallel.executor import Executor
from streamsvm.training.passes import AboutData, Fit
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import Training
from streamsvm.transforms.fitting import DATA_ENTRIES

_MAX_LOSSES = 4  # losses of workers, one after the other without a commit between them


def copy_inputs(
    run: RunDir, paths: Iterable[Any], cache: str | None, callbacks: Callbacks, *, on_cluster: bool
) -> None:
    """Copy the inputs of a run that are at addresses to the folder `cache`, or to one in the run.

    Raises
    ------
    SettingsError
        If workers of a cluster, which need not see the run, would have to read a copy in it.
    """

    def progress(stage: str, done: int, total: int | None) -> None:
        if callbacks.stop():
            raise Interrupted("stopped while data was copied; the same command goes on")
        callbacks.progress(stage, done, total)

    for url in filter(None, map(as_url, filter(None, paths))):
        if on_cluster and cache is None:
            remedy = Remedy("name a folder that all workers of the cluster see with {}", Option("cache"))
            raise wrong_setting("cache", f"is missing, for a copy of {url}", remedy)
        copy_address(url, cache or run.cache, progress)


@dataclasses.dataclass
class StoreRun:
    """Run on a store, from its record to its trainer.

    `raw` is the store on the disk, and `store` has the rows to train on: what `training` opens.
    """

    run: RunDir
    training: Training
    raw: Store
    store: Store
    record: dict[str, Any]
    costs: TrainingCosts
    every: Interval
    callbacks: Callbacks
    workers: Threads | Executor

    def __post_init__(self) -> None:
        self.settings = self.training.spec.settings
        self.blocks = self.training.blocks(self.store)
        self.described = describe_fit(self.store, self.training)
        self._warnings: list[str] = []
        self._check_workers()

    def _check_workers(self) -> None:
        """Raise `ClusterError` unless the workers read the store."""
        if not isinstance(self.workers, Threads):
            self._warnings = self.workers.check(self.training.data)

    def train(self, trainer: Fit | None = None) -> FitResult:
        """Train to the end; if workers of a cluster are lost, go on from the last commit with the others."""
        times, before = 0, None
        resume = self.run.continues()

        def stop_in_block() -> None:
            if self.callbacks.stop():
                raise Interrupted("stopped while a worker does not answer", remedy=resume)

        if not isinstance(self.workers, Threads):
            self.workers.when_silent = stop_in_block
        while True:
            try:
                if times:
                    self._check_workers()  # others may have come
                trainer = trainer or self.trainer()
                begins = trainer.position.passes_done, trainer.position.blocks_done
                times, before = times + 1 if begins == before else 1, begins
                result = trainer.run()
                break
            except WorkersLost as error:
                if times >= _MAX_LOSSES:
                    raise ClusterError(error.message.problem, remedy=resume) from error
                warning = f"{error.message.problem}; the training goes on from the last commit"
                self.callbacks.report({"event": "warning", "warning": warning})
            except ClusterError as error:
                if times == 0:  # nothing has begun
                    raise
                raise ClusterError(error.message.problem, remedy=resume) from None
            trainer = None  # frees its weights
        if not self.record.get("keep_data", True):
            for path in (*self.run.stores(), self.run.cache):
                durable.remove(path)
        return result

    def trainer(self) -> Fit:
        """Return the trainer, at the position of the last commit."""
        spec, plan, settings, store = self.training.spec, self.training.plan, self.settings, self.store
        self.callbacks.report({**self.described, "C_auto": self.record["C_auto"]})
        duals = spec.dual_format(common_dual=plan.common_dual)
        files = RunFiles(self.run, duals, self.every, held_bytes=self._held_bytes())
        position = files.recover()
        files.warnings += self._warnings
        if self.described["average_warning"]:
            files.warnings.append(self.described["average_warning"])
        record = {
            "memory": settings.memory,
            "block_rows": settings.block_rows,
            "classes": list(store.classes),
            "label_dtype": store.label_dtype,
            "n_features": store.n_features,
            "index_base": store.index_base,
            "C_auto": self.record["C_auto"],
            "store_fingerprint": self.raw.fingerprint,
            **{name: self.record[name] for name in DATA_ENTRIES if name in self.record},
            **reading_of(store.meta),
        }
        return build(
            spec,
            plan,
            self.blocks,
            files,
            self.workers,
            self.callbacks,
            AboutData(
                record, self.raw.feature_names(), self.costs, self.training.data.transforms,
                valid_blocks=None if settings.valid is None else self._open_valid,
                order_warning=self.described["order_warning"],
            ),
            position=position,
            training=self.training,
        )  # fmt: skip

    def _held_bytes(self) -> int:
        """Return the memory for duals of two passes: what the plan leaves, if there is but one block.

        Blocks of the validation store take half of it.
        """
        if len(self.blocks) > 1 or not isinstance(self.workers, Threads):
            return 0
        plan, settings = self.training.plan, self.settings
        left = max(plan.memory - plan.total, 0)
        return left if settings.valid is None else left // 2

    @contextlib.contextmanager
    def _open_valid(self) -> Iterator[Blocks]:
        """Open the blocks of the validation store."""
        with open_held_out(self.settings) as store:
            if store.fingerprint != self.record["valid_fingerprint"]:
                raise other_held_out(self.settings)
            yield held_out_blocks(store, self.raw, self.training, self._held_bytes())
