"""Validation store of a run."""

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

_CHECKED_ROWS = 256  # held-out rows to transform before the training, so that a refused row is found early


def check_held_out(raw: Store, training: Training, record: Mapping[str, Any]) -> str | None:
    """Check the validation store before training; return its fingerprint, or None without a store.

    The `record` of the run may have the expected fingerprint.
    """
    settings, transforms = training.spec.settings, training.transforms
    if settings.valid is None:
        if settings.valid_labels is not None:
            raise wrong_setting("valid_labels", "is for the matrix of valid; give both")
        return None
    with open_held_out(settings, record.get("valid_fingerprint")) as held_out:
        check_has_groups(settings, has_groups=held_out.grouped, where=settings.valid)
        blocks = held_out_blocks(held_out, raw, training)
        sample = first_rows(held_out, 0, held_out.n_rows, SAMPLE_VALUES)
        blocks.match.warn(sample, str(held_out.path))
        warn_of_difference(sample.data, record, transforms, str(held_out.path))
        if transforms:  # transforms may refuse rows
            blocks.store.rows(0, min(_CHECKED_ROWS, held_out.n_rows))
        if held_out.multilabel and settings.splits > 1 and settings.split == CLASSES:
            problem = f"is for data of one label a row with {CLASSES} split, and {held_out.path} has several"
            raise wrong_setting("valid", problem)
        if not held_out.multilabel:
            known = int(held_out.class_counts[np.isin(held_out.classes, raw.classes)].sum())
            if not known:
                problem = "has no row of a class of the training data to measure with"
                raise StoreError(f"{held_out.path} {problem}")
            if unknown := held_out.n_rows - known:
                problem = f"{held_out.path}: {unknown:,} of {held_out.n_rows:,} rows have labels that the"
                warn(StreamsvmWarning(f"{problem} training data lacks, and count as wrong"))
        return held_out.fingerprint


def open_held_out(settings: Settings, known: str | None = None) -> Store:
    """Open the validation store with the label column and matrix of the training store.

    Raises `RunError` if its fingerprint differs from `known`.
    """
    assert settings.valid is not None
    store = open_validation_store(
        settings.valid, settings.label, settings.layer, settings.raw, settings.obsm, settings.valid_labels
    )
    if known not in (None, store.fingerprint):
        store.close()
        raise RunError(
            f"the validation store {settings.valid} has changed since the run was begun (its content "
            "fingerprint differs): what was measured before and after would not compare",
            remedy=Remedy("bring the old store back, or resume with {} to take this one", Option("valid")),
        )
    return store


def held_out_blocks(held_out: Store, raw: Store, training: Training, held_bytes: int = 0) -> Blocks:
    """Return the blocks of the validation store, transformed like the training rows from the store `raw`.

    They may use the memory of the plan that weights, duals and blocks in memory leave. `held_bytes` of it are
    reserved for the duals of a single block.
    """
    plan = training.plan
    memory = plan.memory - (plan.fixed - plan.decode_bytes) - plan.dual_bytes - plan.held_bytes
    return blocks_to_score(
        held_out,
        schema_of_store(raw, "the training data"),
        training.spec.dtype,
        memory - held_bytes,
        transformed=lambda matched: transformed(matched, training.transforms, dense=training.spec.dense_rows),
    )
