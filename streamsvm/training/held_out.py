"""Held-out stores of a run: to measure the accuracy on, or to calibrate the model with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamsvm.data.blocks import Blocks
from streamsvm.data.value_kinds import SAMPLE_VALUES, trained_values, warn_of_difference
from streamsvm.errors import Option, Remedy, RunError, SettingsError, StoreError, StreamsvmWarning, warn
from streamsvm.inputs.blocks import blocks_to_score
from streamsvm.inputs.schema import schema_of_store
from streamsvm.settings.fit import CLASSES, Settings
from streamsvm.store import Store, open_validation_store
from streamsvm.training.fit_plan import check_has_groups
from streamsvm.training.training import Training, rows_to_learn
from streamsvm.transforms.fitting import first_rows

_CHECKED_ROWS = 256  # held-out rows that are transformed before the training, to find refusals early
HELD_OUT = {"valid": "validation", "calibrate": "hold-out"}  # settings that name a store


def check_held_out(
    name: str,
    raw: Store,
    training: Training,
    record: Mapping[str, Any],
) -> str | None:
    """Check a held-out store before the training begins, and return its fingerprint; None without a store.

    `record` is the record of the training data that `fit_transforms` returns.
    """
    settings, transforms = training.spec.settings, training.data.transforms
    path = getattr(settings, name)
    if path is None:
        labels = f"{name}_labels"
        if getattr(settings, labels) is not None:
            raise SettingsError(f"{labels} is for the matrix of {name}; give both", setting=labels)
        return None
    with open_held_out(name, settings) as held_out:
        check_has_groups(settings, has_groups=held_out.grouped, where=str(path))
        blocks = held_out_blocks(held_out, raw, training)
        blocks.match.warn()
        sample = first_rows(held_out, 0, held_out.n_rows, SAMPLE_VALUES)
        warn_of_difference([sample.data], trained_values(record, transforms), str(held_out.path))
        if transforms:  # which may refuse rows
            blocks.store.rows(0, min(_CHECKED_ROWS, held_out.n_rows))
        if held_out.multilabel and settings.splits > 1 and settings.split == CLASSES:
            raise SettingsError(
                f"{name} is for data of one label a row with {CLASSES} split, and {path} has several",
                setting=name,
            )
        if name == "calibrate":
            _check_calibration_store(held_out, raw)
        elif not held_out.multilabel:
            _check_labels(held_out, raw)
        return held_out.fingerprint


def open_held_out(name: str, settings: Settings) -> Store:
    """Open a held-out store with the same label column and matrix as the store that is trained on."""
    return open_validation_store(
        getattr(settings, name), settings.label, settings.layer, settings.raw, settings.obsm,
        getattr(settings, f"{name}_labels"),
    )  # fmt: skip


def _check_calibration_store(hold_out: Store, store: Store) -> None:
    """Raise an error if `hold_out` cannot be used to calibrate a model of `store`."""
    [own] = hold_out.members
    if any(
        own.fingerprint == each.fingerprint or own.path.resolve() == each.path.resolve()
        for each in store.members
    ):
        raise SettingsError(
            "calibrate names the store that is trained on, whose labels the scores fit too well; give rows "
            "that take no part in training",
            setting="calibrate",
        )
    if hold_out.multilabel or store.multilabel:
        several = hold_out if hold_out.multilabel else store
        raise SettingsError(
            f"calibrate is for data of one label a row, and {several.path} has several", setting="calibrate"
        )
    if not _n_known(hold_out, store):
        raise StoreError(f"{hold_out.path} has no row of a class of the training data to calibrate with")


def _check_labels(held_out: Store, store: Store) -> None:
    """Raise `StoreError` if no held-out row is of a class of the training data; warn if some are not."""
    unknown = held_out.n_rows - _n_known(held_out, store)
    if unknown and unknown == held_out.n_rows:
        raise StoreError(f"{held_out.path} has no row of a class of the training data to measure with")
    if unknown:
        problem = f"{held_out.path}: {unknown:,} of {held_out.n_rows:,} rows"
        warn(StreamsvmWarning(f"{problem} have labels that the training data lacks, and count as wrong"))


def _n_known(held_out: Store, store: Store) -> int:
    return int(held_out.class_counts[np.isin(held_out.classes, store.classes)].sum())


def other_held_out(name: str, settings: Settings) -> RunError:
    """Return the error for a held-out store that has changed."""
    return RunError(
        f"the {HELD_OUT[name]} store {getattr(settings, name)} has changed since the run was begun (its "
        "content fingerprint differs): what was measured before and after would not compare",
        remedy=Remedy("bring the old store back, or resume with {} to take this one", Option(name)),
    )


def held_out_blocks(
    held_out: Store,
    raw: Store,
    training: Training,
    held_bytes: int = 0,
) -> Blocks:
    """Return the blocks of a held-out store, transformed like the training rows from the store `raw`.

    Their memory is the part of the plan that weights, duals and blocks in memory do not use; `held_bytes` of
    it are for the duals of a single block.
    """
    plan = training.plan
    memory = plan.memory - (plan.fixed - plan.decode_bytes) - plan.dual_bytes - plan.held_bytes
    return blocks_to_score(
        held_out,
        schema_of_store(raw, "the training data"),
        training.spec.dtype,
        memory - held_bytes,
        transformed=lambda matched: rows_to_learn(
            matched, training.data.transforms, dense=training.spec.dense_rows
        ),
    )
