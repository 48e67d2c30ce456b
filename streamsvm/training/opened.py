"""Training run with its data opened in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from streamsvm.data.blocks import Blocks
from streamsvm.inputs.schema import reading_of
from streamsvm.store import Store
from streamsvm.training.costs import TrainingCosts
from streamsvm.training.fit_plan import describe_fit
from streamsvm.training.training import Training
from streamsvm.training.validation import open_validation, validation_blocks
from streamsvm.transforms.fitting import DATA_ENTRIES


@dataclasses.dataclass(frozen=True, eq=False)
class OpenTraining:
    """Training run with its opened data, its costs and its record."""

    training: Training
    raw: Store
    store: Store  # view of `raw` with the rows to learn from
    costs: TrainingCosts  # their table is saved with the model
    run_record: dict[str, Any]  # content of ``run.json``; without a run, entries for the model's record
    on_cluster: bool = False

    @functools.cached_property
    def blocks(self) -> Blocks:
        return self.training.blocks(self.store)

    @functools.cached_property
    def described(self) -> dict[str, Any]:
        """Description of the plan, for `streamsvm.plan` and the reports of a run."""
        return describe_fit(self.store, self.training)

    @functools.cached_property
    def record(self) -> dict[str, Any]:
        """Entries of the model's record that are known before training."""
        store, settings = self.store, self.training.spec.settings
        run_entries: dict[str, Any] = {"memory": settings.memory, "block_rows": settings.block_rows}
        run_entries |= {"store_fingerprint": self.training.fingerprint}
        names = ("C_auto", "class_values", *DATA_ENTRIES)
        return {
            **(run_entries if self.training.paths else {}),
            "classes": list(store.classes),
            "label_dtype": store.label_dtype,
            "n_features": store.n_features,
            "index_base": store.index_base,
            **{name: self.run_record[name] for name in names if name in self.run_record},
            **reading_of(store.meta),
        }

    @property
    def order_warning(self) -> str | None:
        """Warning about the order of the labels in a store, if there is one."""
        return self.described["order_warning"] if self.training.paths else None

    @property
    def held_bytes(self) -> int:
        """Number of bytes left for the duals of two passes; 0 if there are several blocks or a cluster.

        If there is a validation store, half of the remaining memory is left for its blocks.
        """
        if len(self.blocks) > 1 or self.on_cluster:
            return 0
        plan = self.training.plan
        left = max(plan.memory - plan.total, 0)
        return left if self.training.spec.settings.valid is None else left // 2

    @contextlib.contextmanager
    def measured_blocks(self) -> Iterator[Blocks]:
        """Open the blocks on which to measure accuracy: the held-out rows or the validation store."""
        settings = self.training.spec.settings
        if settings.hold_out is not None:
            yield self.blocks.to_measure()
            return
        with open_validation(settings, self.run_record["valid_fingerprint"]) as store:
            yield validation_blocks(store, self.raw, self.training, self.held_bytes)
