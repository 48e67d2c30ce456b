"""Open and check the validation store of a run, and divide it into blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamsvm.data.blocks import Blocks
from streamsvm.data.value_kinds import SAMPLE_VALUES, warn_of_difference
from streamsvm.errors import Option, Remedy, RunError, StoreError, StreamsvmWarning, warn, wrong_setting
from streamsvm.inputs.blocks import blocks_to_score
from streamsvm.inputs.schema import schema_of_store
from streamsvm.settings.fit import CLASSES, Settings
from streamsvm.store import Store, open_validation_store
from streamsvm.training.fit_plan import check_has_groups
from streamsvm.training.training import Training
from streamsvm.transforms.fitting import first_rows
from streamsvm.transforms.store import transformed

_CHECKED_ROWS = 256  # number of rows transformed before training, to find invalid rows early


def check_validation(raw: Store, training: Training, record: Mapping[str, Any]) -> str | None:
    """Check the validation store before training; return its fingerprint, or None if there is no store.

    If `record`, the record of the run, contains a fingerprint, the store must have the same one.
    """
    settings, transforms = training.spec.settings, training.transforms
    if settings.valid is None:
        if settings.valid_labels is not None:
            raise wrong_setting("valid_labels", "has no effect without valid; set both")
        return None
    with open_validation(settings, record.get("valid_fingerprint")) as valid:
        check_has_groups(settings, has_groups=valid.grouped, where=settings.valid)
        blocks = validation_blocks(valid, raw, training)
        sample = first_rows(valid, 0, valid.n_rows, SAMPLE_VALUES)
        blocks.match.warn(sample, str(valid.path))
        warn_of_difference(sample.data, record, transforms, str(valid.path))
        if transforms:
            blocks.store.rows(0, min(_CHECKED_ROWS, valid.n_rows))
        if valid.multilabel and settings.splits > 1 and settings.split == CLASSES:
            problem = f"must have one label per row with split={CLASSES!r}, but {valid.path} has several"
            raise wrong_setting("valid", problem, Remedy("use {}", Option("split", "rows")))
        if not valid.multilabel:
            known = int(valid.class_counts[np.isin(valid.classes, raw.classes)].sum())
            if not known:
                problem = "shares no label with the training data, so accuracy cannot be measured"
                raise StoreError(f"{valid.path} {problem}; check its labels")
            if unknown := valid.n_rows - known:
                problem = f"{valid.path}: {unknown:,} of {valid.n_rows:,} rows have labels that the"
                warn(StreamsvmWarning(f"{problem} training data lacks, so their predictions count as errors"))
        return valid.fingerprint


def open_validation(settings: Settings, known: str | None = None) -> Store:
    """Open the validation store, with the same label column and matrix as the training store.

    Raises `RunError` if its fingerprint differs from `known`.
    """
    assert settings.valid is not None
    store = open_validation_store(
        settings.valid, settings.label, settings.layer, settings.raw, settings.obsm, settings.valid_labels
    )
    if known not in (None, store.fingerprint):
        store.close()
        raise RunError(
            f"the validation store {settings.valid} has changed since the run was started (its content "
            "fingerprint differs), so accuracies before and after would not be comparable",
            remedy=Remedy("restore the old store, or resume with {} to use the new store", Option("valid")),
        )
    return store


def validation_blocks(valid: Store, raw: Store, training: Training, held_bytes: int = 0) -> Blocks:
    """Return the blocks of the validation store `valid`, transformed like the rows of the training store.

    `raw` is the training store before transforms. The blocks may use the planned memory that is left by
    weights, duals and training blocks, except for `held_bytes`, which are reserved for duals if there is
    only one training block.
    """
    plan = training.plan
    memory = plan.memory - (plan.fixed - plan.decode_bytes) - plan.dual_bytes - plan.held_bytes
    return blocks_to_score(
        valid,
        schema_of_store(raw, "the training data"),
        training.spec.dtype,
        memory - held_bytes,
        transformed=lambda matched: transformed(matched, training.transforms, dense=training.spec.dense_rows),
    )
