"""Start of runs on stores: open the store, plan the memory, claim the folder, and train."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from streamsvm.base import durable, format
from streamsvm.base.text import absolute, as_paths
from streamsvm.base.threads import count_workers
from streamsvm.cluster.feature_statistics import gather_on_cluster
from streamsvm.cluster.worker_memory import worker_bytes
from streamsvm.data.hold_out import held_out_part, is_trained_on
from streamsvm.errors import Interrupted
from streamsvm.model.results import FitResult
from streamsvm.model.schema import reading_of
from streamsvm.model.serialization import check_room
from streamsvm.model.transform_files import save_transforms, saved_records
from streamsvm.run.directory import RunDir, check_place, claimed
from streamsvm.settings.fit import BALANCED, NONE, Interval, Settings
from streamsvm.store import Store
from streamsvm.training.auto_c import choose_c
from streamsvm.training.costs import TrainingCosts, read_training_costs
from streamsvm.training.fit_plan import check_dense_duals, describe_fit, find_slice_rows, plan_fit
from streamsvm.training.held_out import HELD_OUT, check_held_out
from streamsvm.training.parallel.splits import find_workers
from streamsvm.training.resume import resume_run
from streamsvm.training.same_run import check_same
from streamsvm.training.spec import specify
from streamsvm.training.store_training import StoreRun
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import DataRef, Training, open_to_train
from streamsvm.transforms import Transform, parse_transforms
from streamsvm.transforms.defaults import with_transform
from streamsvm.transforms.fitting import FittedTransforms, fit_transforms, raw_store
from streamsvm.transforms.store import shift_to_text, transformed

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_ROWS_AT_ONCE = 2**18  # rows that are counted at a time


def fit_store(
    path: Paths,
    out: str | Path,
    settings: Settings,
    *,
    every: Interval,
    force: bool = False,
    resume: bool = False,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
    given: Mapping[str, Any] = MappingProxyType({}),
    fitted: FittedTransforms | None = None,
    tuned: bool = False,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
) -> FitResult:
    """Begin a run on a store, as `streamsvm.fit` describes it; if `resume`, go on with one that is there.

    `given` has the ``costs`` and ``tree`` that are not files, by name; `workers` is the number of threads, or
    of workers of the `cluster`.
    `fitted` are the transforms, if they are fitted to the store already; `tuned` says that C was found by a
    search, and so chosen from the data.
    """
    run = RunDir(out)
    check_place(run)
    paths = as_paths(path) or []
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(open_to_train(paths, settings))
        if cluster is not None:
            from streamsvm.cluster.client import check_splits
            from streamsvm.cluster.local_workers import running_cluster

            check_splits(settings.splits)
            cluster, workers = stack.enter_context(running_cluster(cluster, workers, settings.splits))
        prepared = _prepare(
            paths, raw, settings, given, callbacks, workers, cluster, fitted, on_cluster=cluster is not None
        )
        training, store, costs, fitted, chosen = prepared
        spec, settings = training.spec, training.spec.settings
        record = {
            "version": format.RUN_VERSION,
            "settings": dataclasses.asdict(settings),
            "store": {
                "path": list(training.data.paths),
                "slice_rows": training.data.slice_rows,
                "fingerprint": training.data.fingerprint,
                "n_features": store.n_features,
                "n_classes": store.n_classes,
            },
            "plan": dataclasses.asdict(training.plan),
            "C_auto": chosen or tuned,
            **fitted.record,
            "transforms": saved_records(fitted.transforms),
            "error_weights": costs.record(),
            **reading_of(store.meta),
            **{
                f"{name}_fingerprint": check_held_out(name, raw, training, fitted.record) for name in HELD_OUT
            },
        }
        if resume and run.settings.exists():
            check_same(run, record)
            store.close()
            result = resume_run(
                out, store=paths, every=every, callbacks=callbacks, workers=workers, cluster=cluster
            )
            assert isinstance(result, FitResult)
            return result
        with find_workers(settings, workers, cluster) as found:
            trained = StoreRun(run, training, raw, store, record, costs, every, callbacks, found)
            with claimed(run, force=force, by_tune=tuned):
                free = durable.free_bytes(run.path)
                check_dense_duals(spec, free, f"the disk of {run.path}")
                check_room(run.path, spec.n_features, spec.n_classes, spec.dtype.itemsize)
                costs.save(run.costs)
                save_transforms(run.path, fitted.transforms)
                durable.sync_tree(run.path)
                run.write_settings(record)
                return trained.train()


def plan_store(
    path: Paths,
    settings: Settings,
    given: Mapping[str, Any] = MappingProxyType({}),
    workers: int | None = None,
    *,
    cluster: bool = False,
) -> dict[str, Any]:
    """Plan the memory and disk of a fit of a store, as `streamsvm.plan` describes it.

    `workers` threads read the statistics of transforms, on a cluster too.
    """
    paths = as_paths(path) or []
    with open_to_train(paths, settings) as raw:
        prepared = _prepare(paths, raw, settings, given, Callbacks(), workers, None, None, on_cluster=cluster)
        training, store = prepared.training, prepared.store
        return {
            **describe_fit(store, training),
            **worker_bytes(store, training),
            "C_auto": prepared.chosen,
        }


class _Prepared(NamedTuple):
    """What a fit trains, with what it opened and read to find that out.

    Attributes
    ----------
    training : Training
    store : Store
        The rows to train on.
    costs : TrainingCosts
    fitted : FittedTransforms
    chosen : bool
        True if C was chosen from the data.
    """

    training: Training
    store: Store
    costs: TrainingCosts
    fitted: FittedTransforms
    chosen: bool


def _prepare(
    paths: Sequence[str | os.PathLike[str]],
    raw: Store,
    settings: Settings,
    given: Mapping[str, Any],
    callbacks: Callbacks,
    workers: int | None,
    cluster: str | os.PathLike[str] | None,
    fitted: FittedTransforms | None,
    *,
    on_cluster: bool,
) -> _Prepared:
    """Resolve settings for the opened store `raw`, fit its transforms, and plan the memory."""
    settings = with_transform(settings, raw.meta.get("encoding"))
    if fitted is None:
        asked = parse_transforms(settings.transform)
        [fitted] = fit_to_store(paths, raw, asked, settings, callbacks, workers, cluster, [settings.hold_out])
    store = transformed(raw, fitted.transforms)
    costs = read_training_costs(settings, store.classes, class_counts(store, settings), given)
    settings, chosen = choose_c(store, fitted.transforms, settings)
    spec = specify(settings, store)
    slice_rows = find_slice_rows(store, spec, cluster=on_cluster)
    where = tuple(absolute(each) for each in paths)
    data = DataRef(where, raw.fingerprint, spec.settings, tuple(fitted.transforms), slice_rows)
    view = data.view(raw)
    plan, starts = plan_fit(view, spec, cluster=on_cluster)
    training = Training(data, spec, plan, starts, costs.row_factors(settings))
    return _Prepared(training, view, costs, fitted, chosen)


def class_counts(store: Store, settings: Settings) -> np.ndarray:
    """Count the rows of each class; for balanced weights, only rows of weight above 0 not held out."""
    weighted = store.weighted and settings.sample_weight != NONE
    if settings.class_weight != BALANCED or not (weighted or settings.hold_out):
        return store.class_counts
    counts = np.zeros(store.n_classes, np.int64)
    for begin in range(0, store.n_rows, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, store.n_rows)
        used = is_trained_on(store, settings, begin, end)
        if store.multilabel:
            codes, starts = store.label_sets(begin, end)
            codes = codes[np.repeat(used, np.diff(starts))]
        else:
            codes = store.labels(begin, end)[used]
        counts += np.bincount(codes[codes >= 0], minlength=store.n_classes)
    return counts


def fit_to_store(
    paths: Sequence[str | os.PathLike[str]],
    store: Store,
    transforms: Sequence[Transform],
    settings: Settings,
    callbacks: Callbacks,
    workers: int | None,
    cluster: str | os.PathLike[str] | None,
    parts: Sequence[str | None],
) -> list[FittedTransforms]:
    """Fit transforms to the rows of a store once for each of some held-out parts, without that part.

    `workers` is the number of threads, or of workers of the `cluster`, that share the reading.
    """

    def progress(done: int, total: int) -> None:
        callbacks.progress("statistics", done, total)
        if callbacks.stop():
            raise Interrupted("stopped before the training began")

    shift = shift_to_text(store, transforms)
    numbered = transformed(store, (), shift)
    gather = None
    if cluster is not None:
        where = [absolute(path) for path in paths]
        gather = gather_on_cluster(cluster, workers, where, store, shift, settings, progress)
    threads = count_workers(None if cluster is not None else workers)
    raw = raw_store(numbered, settings.memory, progress, threads, gather)
    held_out = [held_out_part(dataclasses.replace(settings, hold_out=part)) for part in parts]
    return fit_transforms(transforms, raw, held_out, memory=settings.memory)
