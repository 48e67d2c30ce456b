"""Creation of a training: settings and opened data are resolved to a specification, a plan and a record."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.text import absolute
from streamsvm.base.threads import count_workers
from streamsvm.data.hold_out import held_out_part
from streamsvm.data.memory_plan import Plan, cut_blocks
from streamsvm.errors import Interrupted, StreamsvmWarning, warn
from streamsvm.inputs.schema import reading_of
from streamsvm.model.transform_files import transform_sums
from streamsvm.run.directory import RunDir
from streamsvm.settings.fit import BALANCED, NONE, Settings
from streamsvm.store import Store
from streamsvm.store.arrays import in_memory
from streamsvm.store.sliced import sliced
from streamsvm.store.store import IN_MEMORY
from streamsvm.training.auto_c import c_of_norms, rows_trained_on
from streamsvm.training.costs import read_training_costs
from streamsvm.training.execution import Execution
from streamsvm.training.fit_plan import find_slice_rows, plan_fit, plan_rows
from streamsvm.training.opened import OpenTraining
from streamsvm.training.same_run import read_same
from streamsvm.training.search_c import find_sample, search_c
from streamsvm.training.spec import specify
from streamsvm.training.training import Training, rows_to_learn
from streamsvm.transforms import parse_transforms, records_of
from streamsvm.transforms.defaults import MATRIX_DEFAULT, with_transform
from streamsvm.transforms.fitting import FittedTransforms, fit_transforms, raw_rows, raw_store
from streamsvm.transforms.store import shift_to_text, transformed

_MANY_ROWS = 100  # of which most should not have classes of their own


def create(
    raw: Store,
    settings: Settings,
    how: Execution,
    given: Mapping[str, Any] = MappingProxyType({}),
    *,
    paths: Sequence[str | os.PathLike[str]] = (),
    fitted: FittedTransforms | None = None,
    tuned: bool = False,
    made: Mapping[str, Any] = MappingProxyType({}),
    begun: RunDir | None = None,
    search: bool = True,
) -> OpenTraining:
    """Resolve the settings of a training of a store or of rows in memory, and plan its memory.

    Parameters
    ----------
    raw : Store
        The opened data.
    settings : Settings
    how : Execution
    given : mapping
        ``costs`` or ``tree`` if it is not a file, by name.
    paths : sequence of path
        Where the store is; none if the rows are in memory.
    fitted : FittedTransforms, optional
        The transforms, if they are fitted to the store already.
    tuned : bool
        True if C was found by a search, and so chosen from the data.
    made : mapping
        Further entries of the record.
    begun : RunDir, optional
        Run that this training goes on with, and whose memory plan it keeps; raises `RunError` if the run was
        begun with other settings or data.
    search : bool
        False to take C of the norms where `find_sample` finds rows to search C on.
    """
    is_in_memory, on_cluster = raw.kind == IN_MEMORY, how.cluster is not None
    encoding = raw.meta.get("encoding")
    settings = with_transform(settings, encoding, MATRIX_DEFAULT if is_in_memory else None)
    if fitted is None:
        [fitted] = fit_to_store(raw, settings, how, [settings.hold_out])
    transforms = tuple(fitted.transforms)
    store = rows_to_learn(raw, transforms, settings)
    if is_in_memory:
        store = in_memory(store)
    _warn_of_quantities(store)
    costs = read_training_costs(settings, store.classes, _class_counts(store, settings), given)
    resolved, chosen = c_of_norms(store, transforms, settings)
    if search and (sample := find_sample(store, settings)) is not None:
        C = search_c(store, sample, settings, resolved.C, costs, how.callbacks)
        resolved = dataclasses.replace(settings, C=C)
    spec, slice_rows = specify(resolved, store), 0
    settings, places = spec.settings, tuple(map(absolute, paths))
    of_store = {
        "path": list(places),
        "fingerprint": raw.fingerprint,
        "n_features": store.n_features,
        "n_classes": store.n_classes,
    }
    record = {
        "version": format.RUN_VERSION,
        "settings": dataclasses.asdict(settings),
        "store": of_store,
        "C_auto": chosen or tuned,
        **fitted.record,
        "transforms": records_of(transforms),
        format.SUMS: transform_sums(transforms),
        "error_weights": costs.record(),
        **reading_of(store.meta),
        **made,
    }
    if begun is not None:
        old = read_same(begun, record)
        record["valid_fingerprint"] = old["valid_fingerprint"]
        plan, slice_rows = Plan(**old["plan"]), old["store"]["slice_rows"]
        if slice_rows:
            store = sliced(store, slice_rows, settings.seed)
        starts = cut_blocks(store, plan)
    elif is_in_memory:
        plan, starts = plan_rows(store, spec)
    else:
        plan, starts = plan_fit(store, spec, cluster=on_cluster)
        if slice_rows := find_slice_rows(store, settings, len(starts) - 1):
            store = sliced(store, slice_rows, settings.seed)
            plan, starts = plan_fit(store, spec, cluster=on_cluster)
    of_store["slice_rows"] = slice_rows
    record["plan"] = dataclasses.asdict(plan)
    training = Training(
        spec, plan, starts, costs.row_factors(settings), transforms, slice_rows, places, raw.fingerprint
    )
    return OpenTraining(training, raw, store, costs, record, on_cluster)


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


def _class_counts(store: Store, settings: Settings) -> np.ndarray:
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
    raw: Store, settings: Settings, how: Execution, parts: Sequence[str | None]
) -> list[FittedTransforms]:
    """Fit the transforms of the settings to the rows of a store, without each of some held-out parts."""

    def progress(done: int, total: int) -> None:
        how.callbacks.progress("statistics", done, total)
        if how.callbacks.stop():
            raise Interrupted("stopped before the training began")

    transforms, held_out = parse_transforms(settings.transform), [held_out_part(part) for part in parts]
    if raw.kind == IN_MEMORY:
        rows = raw_rows(raw.rows(0, raw.n_rows), raw.n_features, raw.feature_names())
        return fit_transforms(transforms, rows, held_out)
    store = transformed(raw, (), shift_to_text(raw, transforms))
    data = raw_store(store, settings.memory, progress, count_workers(how.threads))
    return fit_transforms(transforms, data, held_out, memory=settings.memory)
