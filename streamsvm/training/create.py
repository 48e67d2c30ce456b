"""Create a training run and its record from settings and data, and train on stores."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import as_number
from streamsvm.base.text import absolute
from streamsvm.base.threads import count_workers
from streamsvm.cluster.worker_memory import worker_bytes
from streamsvm.data.arrays import labelled_rows, labels_of, row_groups, row_weights, with_layer, without_label
from streamsvm.data.groups import row_hashes
from streamsvm.data.hold_out import held_out_part
from streamsvm.data.memory_plan import Plan, cut_blocks
from streamsvm.data.value_kinds import VALUES_IN
from streamsvm.errors import InputError, Interrupted, Option, Remedy, SettingsError, StreamsvmWarning, warn
from streamsvm.inputs.schema import reading_of
from streamsvm.losses import get_loss
from streamsvm.model.model import Model, load_model
from streamsvm.model.results import FitResult
from streamsvm.model.transform_files import transform_sums
from streamsvm.run.directory import RunDir, check_place, claimed, locked
from streamsvm.settings.fit import AUTO, BALANCED, NONE, Settings
from streamsvm.store import Store
from streamsvm.store.arrays import ArrayStore, in_memory
from streamsvm.store.sliced import sliced
from streamsvm.store.store import IN_MEMORY
from streamsvm.training.auto_c import rows_trained_on, settle_c
from streamsvm.training.choose import choose
from streamsvm.training.costs import check_multilabel, read_training_costs
from streamsvm.training.fit_plan import check_has_groups, find_slice_rows, plan_fit, plan_rows
from streamsvm.training.opened import OpenTraining
from streamsvm.training.origin import extend_schema
from streamsvm.training.same_run import read_same
from streamsvm.training.search_c import find_sample, search_c
from streamsvm.training.spec import specify
from streamsvm.training.train import train
from streamsvm.training.training import Execution, Training, open_to_train, rows_to_learn
from streamsvm.transforms import parse_transforms, records_of
from streamsvm.transforms.counts import Counts
from streamsvm.transforms.defaults import with_transform
from streamsvm.transforms.fitting import FittedTransforms, fit_transforms, raw_rows, raw_store
from streamsvm.transforms.store import number_columns, shift_to_text, transformed

Paths = Sequence[str | os.PathLike[str]]

_MANY_NUMBERS, _FEW_ROWS = 30, 10  # see `_warn_of_quantities`


def fit_store(
    paths: Paths,
    out: str | Path | RunDir,
    settings: Settings,
    how: Execution,
    tables: Mapping[str, Any] = MappingProxyType({}),
    *,
    force: bool = False,
    resume: bool = False,
    fitted: FittedTransforms | None = None,
    tuned: bool = False,
    made: Mapping[str, Any] = MappingProxyType({}),
) -> FitResult:
    """Train on a store (see `streamsvm.fit`). If `resume` is True, continue an existing run in `out`.

    `tables`, `fitted` and `tuned` are as for `create`. `made` contains the entries of ``run.json`` about
    stores that were converted from files for this run.
    """
    run = RunDir.at(out)
    check_place(run)
    converted = [run.path / f"{name}.zarr" for name in made.get("files", ())]  # a search converts files, too
    kept = run.stores_among([*paths, settings.valid, *converted])
    existing = run if resume and run.settings.exists() else None
    with locked(run) if existing else contextlib.nullcontext(), open_to_train(paths, settings) as raw:
        opened = create(
            raw, settings, how, tables, paths=paths, fitted=fitted, tuned=tuned, made=made, existing=existing
        )
        claim = locked(run) if existing else claimed(run, force=force, by_tune=tuned, kept=kept)
        return train(opened, how, run, claim)[0]


def plan_store(
    paths: Paths, settings: Settings, how: Execution, tables: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Plan the memory and disk space for fitting on a store (see `streamsvm.plan`)."""
    with open_to_train(paths, settings) as raw:
        opened = create(raw, settings, how, tables, paths=paths, search=False)
        plan = {
            **opened.described,
            **worker_bytes(opened.store, opened.training),
            "C_auto": opened.run_record["C_auto"],
        }
        if find_sample(opened.store, settings) is not None:
            plan["C"] = settings.C
        return plan


def open_matrix(
    data: tuple[Any, Any, Any],
    settings: Settings,
    how: Execution,
    tables: Mapping[str, Any],
    *,
    tuned: bool = False,
    encoding: Mapping[str, Any] | None = None,
) -> OpenTraining:
    """Prepare a training run on a matrix.

    `data` is the tuple (X, y, groups). In addition to the values for `create`, `tables` may contain
    ``sample_weight``, ``hold_out_by`` and, as for `as_matrix`, ``columns``. `encoding` describes how X was
    made from text documents; None for other data.
    """
    X, y, groups = data
    X = with_layer(X, settings.layer, settings.raw, settings.obsm)
    by, y = tables.get("hold_out_by", settings.hold_out_by), labels_of(X, y, settings.label)
    table = without_label(without_label(X, settings.label), by if isinstance(by, str) else None)
    rows, labels, matrix = labelled_rows(table, y, np.dtype(settings.dtype), tables.get("columns"))
    if settings.sample_weight not in (None, NONE):
        weights = tables.get("sample_weight", settings.sample_weight)
        rows = rows._replace(cost=row_weights(X, weights, rows.n_rows))
    if by is not None:
        rows = rows._replace(hold_out_by=row_hashes(X, by, rows.n_rows))
    if groups is not None:
        if not get_loss(settings.loss).sequences:
            raise SettingsError(f"groups does not apply to the loss {settings.loss}", setting="groups")
        rows = rows._replace(qid=row_groups(X, groups, rows.n_rows, InputError))
    meta = {
        "encoding": matrix.encoding if encoding is None else encoding,
        "label": settings.label,
        format.ANNDATA: hasattr(X, "obs") and settings.obsm is None,
    }
    raw = ArrayStore(rows, labels, matrix.n_features, matrix.names, meta, dense=matrix.dense)
    check_multilabel(settings, multilabel=raw.multilabel, where="y")
    check_has_groups(settings, has_groups=raw.grouped, where="the matrix")
    return create(raw, settings, how, tables, tuned=tuned, made=labels)


def create(
    raw: Store,
    settings: Settings,
    how: Execution,
    tables: Mapping[str, Any] = MappingProxyType({}),
    *,
    paths: Paths = (),
    fitted: FittedTransforms | None = None,
    tuned: bool = False,
    made: Mapping[str, Any] = MappingProxyType({}),
    existing: RunDir | None = None,
    search: bool = True,
) -> OpenTraining:
    """Resolve the settings for training on a store or on rows in memory, and plan the memory.

    Raises `RunError` if the run `existing` was started with other settings or data.

    Parameters
    ----------
    tables : mapping
        Values of ``costs`` or ``tree`` that are not files.
    paths : sequence of path
        Paths of the store; empty if the rows are in memory.
    fitted : FittedTransforms, optional
        Transforms that are already fitted to the store.
    tuned : bool
        Whether C was chosen by a search.
    made : mapping
        Additional entries of the record.
    existing : RunDir, optional
        Run to continue. Its memory plan is kept.
    search : bool
        Whether an automatic C may be chosen by training on a sample. Otherwise it is computed from norms.
    """
    is_in_memory, on_cluster, base = raw.kind == IN_MEMORY, how.cluster is not None, None
    if AUTO in (settings.transform, settings.loss):
        run_record = {} if existing is None else existing.read_settings()
        if choice := run_record.get("choice"):
            names = ("transform", "loss", "margin", "solver")
            settings = dataclasses.replace(settings, **{name: run_record["settings"][name] for name in names})
        else:
            settings, choice = choose(raw, settings, how.callbacks, partial(create, tables=tables))
        made = {**made, "choice": choice}
    if settings.from_ is None:
        settings = with_transform(settings, raw)
    else:
        base = load_model(settings.from_)
        raw = extend_schema(raw, base)
        fitted = _refit(raw, base, settings, how)
    by = raw.meta.get("hold_out_by", settings.hold_out_by)
    settings = dataclasses.replace(settings, label=settings.label or raw.meta.get("label"), hold_out_by=by)
    if fitted is None:
        [fitted] = fit_to_store(raw, settings, how, [settings.hold_out])
    transforms = tuple(fitted.transforms)
    store = rows_to_learn(raw, transforms, settings)
    if is_in_memory:
        store = in_memory(store)
    _warn_of_quantities(store)
    costs = read_training_costs(settings, store.classes, _class_counts(store, settings), tables)
    resolved, chosen = settle_c(store, transforms, settings)
    sample = find_sample(store, settings) if search else None
    if by is not None and settings.hold_out is None and sample is None and search and not tuned:
        warn("hold_out_by has no effect", remedy=Remedy("hold out a part with {}", Option("hold_out", "1/5")))
    if sample is not None:
        C = search_c(store, sample, settings, resolved.C, costs, how.callbacks)
        resolved = dataclasses.replace(settings, C=C)
    spec, slice_rows = specify(resolved, store), 0
    settings, places = spec.settings, tuple(map(absolute, paths))
    store_record = {
        "path": list(places),
        "fingerprint": raw.fingerprint,
        "n_features": store.n_features,
        "n_classes": store.n_classes,
    }
    record = {
        "version": format.RUN_VERSION,
        "settings": dataclasses.asdict(settings),
        "store": store_record,
        "C_auto": chosen or tuned,
        **fitted.record,
        "transforms": records_of(transforms),
        format.SUMS: transform_sums(transforms),
        "error_weights": costs.record(),
        **reading_of(store.meta),
        **made,
    }
    if base is not None:
        record["model"] = base.record["checksum"]
        record.pop("class_values", None)  # it describes only the new data
    if existing is not None:
        old = read_same(existing, record)
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
    store_record["slice_rows"] = slice_rows
    record["plan"] = dataclasses.asdict(plan)
    training = Training(
        spec, plan, starts, costs.row_factors(settings), transforms, slice_rows, places, raw.fingerprint
    )
    return OpenTraining(training, raw, store, costs, record, on_cluster)


def _warn_of_quantities(store: Store) -> None:
    """Warn if labels look like quantities: many numbers, half of them rare, but not 0, 1, ... or 1, 2, ..."""
    counts = store.class_counts[store.class_counts > 0]
    rare = int(np.count_nonzero(counts < _FEW_ROWS))
    if len(counts) <= _MANY_NUMBERS or 2 * rare < len(counts) or store.multilabel:
        return
    numbers = set(map(as_number, store.classes))
    codes = [set(range(first, first + len(numbers))) for first in (0, 1)]
    if None not in numbers and numbers not in codes:
        few = f"{rare:,} of them have fewer than {_FEW_ROWS} rows"
        problem = f"{store.path}: the labels are {len(counts):,} different numbers, and {few}"
        remedy = Remedy("if the labels are quantities, use a regression model, or group them into ranges")
        warn(StreamsvmWarning(problem, remedy=remedy))


def _class_counts(store: Store, settings: Settings) -> np.ndarray:
    """Count the rows of each class; for balanced class weights, count only rows to train on."""
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


def _refit(raw: Store, base: Model, settings: Settings, how: Execution) -> FittedTransforms:
    transforms = list(base.transforms)
    if raw.n_features > base.n_features_in_ and not base.takes_any_feature:
        known = [Counts(checked=False), *transforms]  # so that no check of counts is added
        [(transforms, _)] = fit_to_store(raw, settings, how, [settings.hold_out], known)
    record = {"n_features_in": raw.n_features} if transforms else {}
    record |= {format.MULTILABEL: True} if raw.multilabel or base.multilabel else {}
    return FittedTransforms(transforms, {**record, VALUES_IN: base.record.get(VALUES_IN)})


def fit_to_store(
    raw: Store, settings: Settings, how: Execution, parts: Sequence[str | None], known: Sequence[Any] = ()
) -> list[FittedTransforms]:
    """Fit the transforms of the settings once for each part in `parts`, to the rows outside the part.

    If `known` contains transforms of a model, these are fitted to the new features instead.
    """

    def progress(done: int, total: int) -> None:
        how.callbacks.progress("statistics", done, total)
        if how.callbacks.stop():
            raise Interrupted("stopped before training began")

    held_out = [held_out_part(part, raw, settings.memory) for part in parts]
    transforms = known or parse_transforms(settings.transform)
    if raw.kind == IN_MEMORY:
        rows = raw_rows(raw.rows(0, raw.n_rows), raw.n_features, raw.feature_names())
        rows = rows._replace(numbers=number_columns(raw))
        return fit_transforms(transforms, rows, held_out, seed=settings.seed)
    store = transformed(raw, (), shift_to_text(raw, transforms))
    data = raw_store(store, settings.memory, progress, count_workers(how.threads))
    return fit_transforms(transforms, data, held_out, memory=settings.memory, seed=settings.seed)
