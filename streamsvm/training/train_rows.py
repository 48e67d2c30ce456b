"""Train on rows in memory with resolved settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamsvm.data.groups import group_starts
from streamsvm.data.memory_plan import Placement, available_memory
from streamsvm.data.rows import Rows
from streamsvm.model.model import Model
from streamsvm.run.files import MemoryRun
from streamsvm.store import Store
from streamsvm.training.build import build, find_workers
from streamsvm.training.costs import TrainingCosts
from streamsvm.training.fit_plan import check_dense_duals
from streamsvm.training.passes import AboutData
from streamsvm.training.spec import Spec
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import blocks_to_train
from streamsvm.transforms import Transform

_MAX_BUFFERED_DUALS = 2**22  # entries of the buffer of new duals
_SMALL = 2**28  # bytes that matrices of duals may take; or twice those of the rows


def train_rows(
    store: Store,
    spec: Spec,
    costs: TrainingCosts,
    *,
    record: Mapping[str, Any],
    callbacks: Callbacks = Callbacks(),  # noqa: B008
    workers: int | None = None,
    names: Sequence[str] | None = None,
    transforms: Sequence[Transform] = (),
) -> Model:
    """Return the model of the rows of a store in memory, after `transforms`; `names` are those before."""
    check_dense_duals(spec, available_memory(), "the memory of this process")
    blocks = blocks_to_train(store, np.array([0, store.n_rows]), spec, costs.row_factors(spec.settings))
    rows = blocks.read_all(0)
    duals = spec.dual_format(common_dual=spec.has_common_dual)
    files = MemoryRun(duals, held_bytes=max(_SMALL, 2 * rows.nbytes))
    with find_workers(spec, workers) as threads:
        trainer = build(
            spec,
            _placement(spec, rows),
            blocks,
            files,
            threads,
            callbacks,
            AboutData(record, names, costs, transforms),
        )
        result = trainer.run()
    assert files.model is not None
    files.model.result = result
    return files.model


def _placement(spec: Spec, rows: Rows) -> Placement:
    """Return the place of the weights, and room for the new duals of any row or group."""
    entries = 0
    if spec.settings.keep_duals or spec.settings.inner_passes:
        most = spec.max_duals
        entries = max(spec.n_classes, min(rows.n_rows * most, _MAX_BUFFERED_DUALS))
        if spec.loss.sequences:
            entries = max(entries, int(np.diff(group_starts(rows.qid)).max()) * most)
    common = spec.has_common_dual
    return Placement(
        dual_entries=entries, weights_in_memory=True, average=spec.settings.averages, sparse=common,
        common_dual=common,
    )  # fmt: skip
