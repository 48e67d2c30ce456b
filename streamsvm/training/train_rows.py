"""Train on rows in memory with resolved settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamsvm.data.groups import group_starts
from streamsvm.data.memory_plan import Placement, available_memory
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
    settings, common = spec.settings, spec.has_common_dual
    blocks = blocks_to_train(store, np.array([0, store.n_rows]), spec, costs.row_factors(settings))
    rows = blocks.read_all(0)
    files = MemoryRun(spec.dual_format(common_dual=common), held_bytes=max(_SMALL, 2 * rows.nbytes))
    entries = 0  # room for the new duals of any row or group
    if settings.keep_duals or settings.inner_passes:
        entries = max(spec.n_classes, min(rows.n_rows * spec.max_duals, _MAX_BUFFERED_DUALS))
        if spec.loss.sequences:
            entries = max(entries, int(np.diff(group_starts(rows.qid)).max()) * spec.max_duals)
    placement = Placement(
        dual_entries=entries, weights_in_memory=True, average=settings.average, sparse=common,
        common_dual=common,
    )  # fmt: skip
    about = AboutData(record, names, costs, transforms)
    with find_workers(spec, workers) as threads:
        result = build(spec, placement, blocks, files, threads, callbacks, about).run()
    assert files.model is not None
    files.model.result = result
    return files.model
