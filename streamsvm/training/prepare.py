"""From opened data and settings to what is trained: transforms, costs, C and the specification."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamsvm.base.threads import count_workers
from streamsvm.data.hold_out import held_out_part
from streamsvm.errors import Interrupted, StreamsvmWarning, warn
from streamsvm.settings.fit import BALANCED, NONE, Settings
from streamsvm.store import Store
from streamsvm.store.arrays import in_memory
from streamsvm.store.store import IN_MEMORY
from streamsvm.training.auto_c import c_of_norms, rows_trained_on
from streamsvm.training.costs import TrainingCosts, read_training_costs
from streamsvm.training.search_c import find_sample, search_c
from streamsvm.training.spec import Spec, specify, takes_dense_rows
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import rows_to_learn
from streamsvm.transforms import parse_transforms
from streamsvm.transforms.fitting import FittedTransforms, fit_transforms, raw_store
from streamsvm.transforms.store import shift_to_text, transformed

_MANY_ROWS = 100  # of which most should not have classes of their own


class Prepared(NamedTuple):
    """What is trained, with what was opened and read to find that out.

    Attributes
    ----------
    store : Store
        The transformed rows.
    spec : Spec
    costs : TrainingCosts
    fitted : FittedTransforms
    chosen : bool
        True if C was chosen from the data.
    """

    store: Store
    spec: Spec
    costs: TrainingCosts
    fitted: FittedTransforms
    chosen: bool


def prepare(
    raw: Store,
    fitted: FittedTransforms,
    settings: Settings,
    given: Mapping[str, Any],
    callbacks: Callbacks,
    *,
    search: bool = True,
) -> Prepared:
    """Resolve the settings of a training of the store `raw`, whose transforms are fitted.

    `given` has ``costs`` or ``tree`` if it is not a file, by name. Without `search`, C auto is that of the
    norms, where `find_sample` finds rows to search it on.
    """
    store = rows_to_learn(raw, fitted.transforms, dense=takes_dense_rows(settings))
    if store.kind == IN_MEMORY:
        store = in_memory(store)
    _warn_of_quantities(store)
    costs = read_training_costs(settings, store.classes, class_counts(store, settings), given)
    resolved, chosen = c_of_norms(store, fitted.transforms, settings)
    sample = find_sample(store, settings) if search else None
    if sample is not None:
        C = search_c(store, sample, settings, resolved.C, costs, callbacks)
        resolved = dataclasses.replace(settings, C=C)
    return Prepared(store, specify(resolved, store), costs, fitted, chosen)


def _warn_of_quantities(store: Store) -> None:
    """Warn if most rows have a class of their own, and these are fractions: numbers of a regression."""
    alone = int(np.count_nonzero(store.class_counts == 1))
    if store.n_rows >= _MANY_ROWS and 2 * alone > store.n_rows and _are_fractions(store.classes):
        problem = f"{store.path}: {alone:,} of {store.n_rows:,} rows are the only one with their label"
        warn(StreamsvmWarning(f"{problem}; labels that are quantities, to be predicted, are no classes"))


def _are_fractions(names: Sequence[str]) -> bool:
    try:
        return any(float(name) % 1 for name in names)
    except ValueError:
        return False


def class_counts(store: Store, settings: Settings) -> np.ndarray:
    """Count the rows of each class; for balanced weights, only rows of weight above 0 not held out."""
    weighted = store.weighted and settings.sample_weight != NONE
    if settings.class_weight != BALANCED or not (weighted or settings.hold_out):
        return store.class_counts
    counts = np.zeros(store.n_classes, np.int64)
    for begin, end, used in rows_trained_on(store, settings):
        if store.multilabel:
            codes, starts = store.label_sets(begin, end)
            codes = codes[np.repeat(used, np.diff(starts))]
        else:
            codes = store.labels(begin, end)[used]
        counts += np.bincount(codes[codes >= 0], minlength=store.n_classes)
    return counts


def fit_to_store(
    store: Store, settings: Settings, callbacks: Callbacks, workers: int | None, parts: Sequence[str | None]
) -> list[FittedTransforms]:
    """Fit the transforms of the settings to the rows of a store, without each of some held-out parts.

    `workers` is the number of threads that share the reading.
    """

    def progress(done: int, total: int) -> None:
        callbacks.progress("statistics", done, total)
        if callbacks.stop():
            raise Interrupted("stopped before the training began")

    transforms = parse_transforms(settings.transform)
    shift = shift_to_text(store, transforms)
    raw = raw_store(transformed(store, (), shift), settings.memory, progress, count_workers(workers))
    return fit_transforms(transforms, raw, list(map(held_out_part, parts)), memory=settings.memory)
