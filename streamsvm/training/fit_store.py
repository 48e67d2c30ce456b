"""Start of runs on stores: open the store, plan the memory, claim the folder, and train."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from streamsvm.base import durable, format
from streamsvm.base.text import absolute
from streamsvm.cluster.worker_memory import worker_bytes
from streamsvm.inputs.schema import reading_of
from streamsvm.model.results import FitResult
from streamsvm.model.serialization import check_room
from streamsvm.model.transform_files import save_transforms, transform_sums
from streamsvm.run.directory import RunDir, check_place, claimed
from streamsvm.settings.fit import Interval, Settings
from streamsvm.store import Store
from streamsvm.training.build import find_workers
from streamsvm.training.fit_plan import check_dense_duals, describe_fit, find_slice_rows, plan_fit
from streamsvm.training.held_out import check_held_out
from streamsvm.training.prepare import Prepared, fit_to_store, prepare
from streamsvm.training.resume import resume_run
from streamsvm.training.same_run import check_same
from streamsvm.training.search_c import find_sample
from streamsvm.training.store_training import StoreRun
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import DataRef, Training, open_to_train
from streamsvm.transforms import records_of
from streamsvm.transforms.defaults import with_transform
from streamsvm.transforms.fitting import FittedTransforms

Paths = Sequence[str | os.PathLike[str]]


def fit_store(
    paths: Paths,
    out: str | Path | RunDir,
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
    made: Mapping[str, Any] = MappingProxyType({}),
) -> FitResult:
    """Begin a run on a store, as `streamsvm.fit` describes it; if `resume`, go on with one that is there.

    `given` has ``costs`` or ``tree`` if it is not a file, by name; `workers` is the number of threads, or
    of workers of the `cluster`.
    `fitted` are the transforms, if they are fitted to the store already; `tuned` says that C was found by a
    search, and so chosen from the data. `made` are entries
    of ``run.json`` about the stores that the run made of files.
    """
    run = RunDir.at(out)
    check_place(run)
    with open_to_train(paths, settings) as raw:
        threads = workers if cluster is None else None  # of this process, which reads what transforms need
        prepared, training, store = _prepare(
            paths, raw, settings, given, callbacks, threads, fitted, on_cluster=cluster is not None
        )
        _, spec, costs, fitted, chosen = prepared
        settings = spec.settings
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
            "transforms": records_of(fitted.transforms),
            format.SUMS: transform_sums(fitted.transforms),
            "error_weights": costs.record(),
            **reading_of(store.meta),
            **made,
            "valid_fingerprint": check_held_out(raw, training, fitted.record),
        }
        if resume and run.settings.exists():
            check_same(run, record)
            store.close()
            result = resume_run(
                run, store=paths, every=every, callbacks=callbacks, workers=workers, cluster=cluster
            )
            assert isinstance(result, FitResult)
            return result
        with find_workers(spec, workers, cluster) as found:
            trained = StoreRun(run, training, raw, store, record, costs, every, callbacks, found)
            made_here = [run.path / f"{name}.zarr" for name in made.get("files", ())]  # by a search, too
            kept = run.stores_among([*paths, settings.valid, *made_here])
            with claimed(run, force=force, by_tune=tuned, kept=kept):
                free = durable.free_bytes(run.path)
                check_dense_duals(spec, free, f"the disk of {run.path}")
                check_room(run.path, spec.n_features, spec.n_classes, spec.dtype.itemsize)
                costs.save(run.costs)
                save_transforms(run.path, fitted.transforms)
                durable.sync_tree(run.path)
                run.write_settings(record)
                return trained.train()


def plan_store(
    paths: Paths,
    settings: Settings,
    given: Mapping[str, Any] = MappingProxyType({}),
    workers: int | None = None,
    *,
    cluster: bool = False,
) -> dict[str, Any]:
    """Plan the memory and disk of a fit of a store, as `streamsvm.plan` describes it.

    `workers` threads read the statistics of transforms.
    """
    with open_to_train(paths, settings) as raw:
        prepared, training, store = _prepare(
            paths, raw, settings, given, Callbacks(), workers, None, on_cluster=cluster, search=False
        )
        plan = {
            **describe_fit(store, training),
            **worker_bytes(store, training),
            "C_auto": prepared.chosen,
        }
        if find_sample(prepared.store, settings) is not None:
            plan["C"] = settings.C
        return plan


def _prepare(
    paths: Paths,
    raw: Store,
    settings: Settings,
    given: Mapping[str, Any],
    callbacks: Callbacks,
    workers: int | None,
    fitted: FittedTransforms | None,
    *,
    on_cluster: bool,
    search: bool = True,
) -> tuple[Prepared, Training, Store]:
    """Prepare a training of the opened store `raw`, plan its memory, and view the rows to train on."""
    settings = with_transform(settings, raw.meta.get("encoding"))
    if fitted is None:
        [fitted] = fit_to_store(raw, settings, callbacks, workers, [settings.hold_out])
    prepared = prepare(raw, fitted, settings, given, callbacks, search=search)
    spec = prepared.spec
    slice_rows = find_slice_rows(prepared.store, spec, cluster=on_cluster)
    where = tuple(absolute(each) for each in paths)
    data = DataRef(where, raw.fingerprint, spec.settings, tuple(fitted.transforms), slice_rows)
    view = data.view(raw)
    plan, starts = plan_fit(view, spec, cluster=on_cluster)
    return prepared, Training(data, spec, plan, starts, prepared.costs.row_factors(spec.settings)), view
