"""Train models: start, resume or extend a run, or fit rows in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from streamsvm.base import durable, format
from streamsvm.base.text import absolute, as_url, format_size
from streamsvm.base.threads import Threads, WorkersLost
from streamsvm.data.memory_plan import Plan, cut_blocks
from streamsvm.errors import ClusterError, Interrupted, Option, Remedy, RunError, SettingsError, StoreError
from streamsvm.model.model import Model, load_model
from streamsvm.model.results import FitResult, OnlineResult
from streamsvm.model.serialization import check_room, model_folder
from streamsvm.model.transform_files import load_transforms, save_transforms
from streamsvm.run.directory import RunDir, locked
from streamsvm.run.manifest import read_commit
from streamsvm.settings.fit import Settings
from streamsvm.training.build import build, find_workers
from streamsvm.training.costs import TrainingCosts
from streamsvm.training.fit_plan import check_dense_duals, commit_bytes
from streamsvm.training.online import resume_stream
from streamsvm.training.opened import OpenTraining
from streamsvm.training.origin import extend_schema
from streamsvm.training.parallel.executor import Executor
from streamsvm.training.passes import Fit
from streamsvm.training.spec import specify
from streamsvm.training.stream import Stream
from streamsvm.training.training import Execution, Training, copy_inputs, open_to_train, rows_to_learn
from streamsvm.training.validation import check_validation

_MAX_LOSSES = 4  # maximum number of attempts from the same commit when workers are lost


def train(
    opened: OpenTraining,
    how: Execution,
    run: RunDir | None = None,
    claim: contextlib.AbstractContextManager[None] = contextlib.nullcontext(),  # noqa: B008
) -> tuple[FitResult, Model | None]:
    """Train to completion. Return the result and, for rows in memory, the model.

    A run starts from its last commit, if it has one. If workers of a cluster are lost, training continues
    from the last commit with the remaining workers. `claim` creates the folder of a new run after all checks.
    """
    training, record, plan = opened.training, opened.run_record, opened.training.plan
    if training.spec.settings.from_ is not None and how.cluster is not None:
        raise SettingsError("cluster cannot be used to continue a model; leave it out", setting="cluster")
    if run is not None:
        if plan.needs_cluster and how.cluster is None:
            raise RunError(
                f"{run.path} was started on a cluster: the weights of its "
                f"{training.spec.settings.splits} splits need more than {format_size(plan.memory)} of memory",
                remedy=Remedy("continue with {}", Option("cluster")),
            )
        record["valid_fingerprint"] = check_validation(opened.raw, training, record)
    with find_workers(training.spec, how.workers, how.cluster) as workers:
        warnings, attempts, last_start = _check_workers(workers, opened, how, run), 0, None
        with claim:
            if run is not None and not run.settings.exists():
                _write_inputs(opened, run)
            while True:
                trainer: Fit | None = None  # free the weights of the last attempt
                try:
                    if attempts:
                        warnings = _check_workers(workers, opened, how, run)  # new workers may have joined
                    trainer = build(opened, workers, how, run, warnings)
                    if run is not None:
                        run.write_settings(record)  # only now, so that an error changes nothing
                    start = trainer.position.passes_done, trainer.position.blocks_done
                    attempts, last_start = attempts + 1 if start == last_start else 1, start
                    result = trainer.run()
                    break
                except ClusterError as error:
                    if run is None or attempts == 0:
                        raise
                    problem = error.message.problem
                    if attempts >= _MAX_LOSSES or not isinstance(error, WorkersLost):
                        raise ClusterError(problem, remedy=run.continues()) from error
                    warning = f"{problem}; training continues from the last commit"
                    how.callbacks.report({"event": "warning", "warning": warning})
            if run is not None and not record.get("keep_data", True):
                for path in (*run.stores(), run.cache):
                    durable.remove(path)
    model = trainer.files.model
    if model is not None:
        model.result = result
    return result, model


def _write_inputs(opened: OpenTraining, run: RunDir) -> None:
    """Write the record of a new run and the files that it needs, after checking the free disk space."""
    spec, plan = opened.training.spec, opened.training.plan
    check_dense_duals(spec, durable.free_bytes(run.path), f"the disk of {run.path}")
    # Room for two commits, and for weights that are in files; but at least room for a dense model.
    copies = 0 if plan.sparse else 2 + (not plan.weights_in_memory)
    model_bytes = spec.n_features * spec.n_classes * spec.dtype.itemsize
    size = max(copies * commit_bytes(opened.store, spec, plan), model_bytes)
    base = spec.settings.from_
    check_room(run.path, size + model_bytes * (base is not None), spec.n_features, spec.n_classes)
    if base is not None:
        shutil.copytree(model_folder(Path(base)), run.base)
    opened.costs.save(run.costs)
    save_transforms(run.path, opened.training.transforms)
    durable.sync_tree(run.path)
    run.write_settings(opened.run_record)  # before reports, which fail if their reader has exited


def _check_workers(
    workers: Threads | Executor, opened: OpenTraining, how: Execution, run: RunDir | None
) -> list[str]:
    """Return the warnings of cluster workers; raise `ClusterError` unless all of them can read the store."""
    if isinstance(workers, Threads):
        return []

    def stop_in_block() -> None:
        if how.callbacks.stop():
            assert run is not None
            raise Interrupted("stopped while waiting for an unresponsive worker", remedy=run.continues())

    warnings = workers.check(opened.training)
    workers.when_silent = stop_in_block
    return warnings


def resume_run(
    path: str | Path | RunDir,
    how: Execution,
    open_stream: Callable[[dict[str, Any]], Stream] | None = None,
    *,
    store: Sequence[str | os.PathLike[str]] | None = None,
    **changes: Any,
) -> FitResult | OnlineResult:
    """Continue a run of `fit` or `online` (see `streamsvm.resume`). `changes` that are None are ignored."""
    run = RunDir.at(path)
    run.read_settings()  # before locking, so that no lock file is created at a wrong path
    changes = {name: value for name, value in changes.items() if value is not None}
    with locked(run):
        record = run.read_settings()
        if record.get("kind") == format.ONLINE:
            for name, value in {**changes, "workers": how.workers, "cluster": how.cluster}.items():
                if value is not None:
                    raise SettingsError(f"{name} does not apply to the online run {run.path}", setting=name)
            assert how.every is not None
            return resume_stream(run, record, open_stream, how.every, how.callbacks, store)
        with reopened(run, record, how, store, **changes) as opened:
            return train(opened, how, run)[0]


@contextlib.contextmanager
def reopened(
    run: RunDir, record: dict[str, Any], how: Execution, store: Any = None, **changes: Any
) -> Iterator[OpenTraining]:
    """Provide the `OpenTraining` of a run, and update the run's record with the changed settings."""
    run.find_stores(record)
    settings, facts, plan = Settings(**record["settings"]), record["store"], Plan(**record["plan"])
    paths = facts["path"] if store is None else [absolute(each) for each in store]
    valid, cache = changes.get("valid") or settings.valid, changes.get("cache") or settings.cache
    for each, name in [*((path, "store") for path in paths), *([(valid, "valid")] if valid else [])]:
        if as_url(each) is None and not Path(each).exists():
            remedy = Remedy("restore it, or set its new location with {}", Option(name))
            raise StoreError(f"{each} does not exist", remedy=remedy)
    copy_inputs(run, [*paths, valid], cache, how)
    with open_to_train(paths, settings, facts["fingerprint"]) as raw:
        _check_passes(run, settings, changes.get("passes", settings.passes))
        raw = raw if settings.from_ is None else extend_schema(raw, load_model(run.base))
        transforms = load_transforms(run.path, record, raw.n_features, facts["n_features"])
        rows = rows_to_learn(raw, transforms, settings, facts["slice_rows"])
        if "tol" in changes:
            changes["gap"] = "pass"
        if valid and settings.valid and absolute(valid) != absolute(settings.valid):
            changes.setdefault("valid_labels", None)  # these labels are for the rows of the old store
        if "valid" in changes:
            del record["valid_fingerprint"]
        spec = specify(settings, rows).changed(**changes)
        costs = TrainingCosts.load(record["error_weights"], run.costs, rows.classes)
        record["settings"], facts["path"] = dataclasses.asdict(spec.settings), paths
        training = Training(
            spec, plan, cut_blocks(rows, plan), costs.row_factors(spec.settings), transforms,
            facts["slice_rows"], tuple(paths), raw.fingerprint,
        )  # fmt: skip
        yield OpenTraining(training, raw, rows, costs, record, how.cluster is not None)


def _check_passes(run: RunDir, settings: Settings, passes: int) -> None:
    """Raise `RunError` unless the number of passes of a run can be changed to `passes`.

    More passes require the duals of the last pass. Fewer passes are possible only if the new last pass, which
    needs an average, has not begun, and if C does not depend on the number of passes.
    """
    if passes > settings.passes and not settings.keep_duals:
        raise RunError(
            f"{run.path} cannot make another pass, because its duals were not kept",
            remedy=Remedy("fit again with {}", Option("keep_duals", True)),
        )
    if passes >= settings.passes:
        return
    min_passes = 0
    if run.has_commit:
        with contextlib.suppress(RunError, OSError):  # a damaged commit is reported later
            position = read_commit(run, verify=False)
            min_passes = position.passes_done + 1 + (position.blocks_done > 0)
    if passes < min_passes:
        remedy = Remedy("use {} or more", Option("passes", min_passes))
        problem = f"{run.path} has begun pass {min_passes - 1}, so passes cannot be reduced to {passes}"
        raise RunError(problem, remedy=remedy if min_passes < settings.passes else None)
    if settings.C_factors:
        raise RunError(f"{run.path} cannot be shortened: C depends on the number of passes; fit again")
