"""Resumption of runs: check that their data and settings are unchanged, and train on."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamsvm.base import format
from streamsvm.base.text import absolute, as_url, format_size
from streamsvm.data.memory_plan import Plan, cut_blocks
from streamsvm.errors import Option, Remedy, RunError, SettingsError, StoreError
from streamsvm.model.results import FitResult, OnlineResult
from streamsvm.model.transform_files import load_transforms
from streamsvm.run.checkpoint import read_commit
from streamsvm.run.directory import RunDir, locked
from streamsvm.settings.fit import Interval, Settings
from streamsvm.training.build import find_workers
from streamsvm.training.costs import TrainingCosts
from streamsvm.training.fit_stream import resume_stream
from streamsvm.training.held_out import check_held_out, other_held_out
from streamsvm.training.sources import Stream
from streamsvm.training.spec import specify
from streamsvm.training.store_training import StoreRun, copy_inputs
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import DataRef, Training, open_to_train


def resume_run(
    path: str | Path | RunDir,
    open_stream: Callable[[dict[str, Any]], Stream] | None = None,
    *,
    store: Sequence[str | os.PathLike[str]] | None = None,
    every: Interval,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    **changes: Any,
) -> FitResult | OnlineResult:
    """Continue a run of either kind, as `streamsvm.resume` describes it; a change may be None."""
    run = RunDir.at(path)
    run.read_settings()  # before the lock file is made, so that a wrong path stays clean
    changes = {name: value for name, value in changes.items() if value is not None}
    with locked(run), contextlib.ExitStack() as stack:
        record = run.read_settings()
        if record.get("kind") == format.ONLINE:
            given = {"workers": workers, "cluster": cluster}
            for name, value in {**changes, **given}.items():
                if value is not None:
                    raise SettingsError(f"{name} does not apply: {run.path} is a run of online", setting=name)
            return resume_stream(run, record, open_stream, every, callbacks, store)
        run.find_stores(record)
        paths = record["store"]["path"] if store is None else [absolute(each) for each in store]
        if store is None and not record.get("keep_data", True) and not run.data.exists():
            again = Remedy("convert them again, and say with {} where they are", Option("store"))
            raise StoreError(f"{run.path} has not kept its data", remedy=again)
        for path in paths:
            _check_exists(path, "store")
        settings = Settings(**record["settings"])
        inputs = [*paths, changes.get("valid") or settings.valid]
        cache = changes.get("cache") or settings.cache
        copy_inputs(run, inputs, cache, callbacks, on_cluster=cluster is not None)
        raw = stack.enter_context(open_to_train(paths, settings))
        if raw.fingerprint != record["store"]["fingerprint"]:
            raise RunError(
                f"the store {', '.join(paths)} has changed since {run.path} was begun (its content "
                "fingerprint differs)",
                remedy=Remedy("bring the old store back, or fit again"),
            )
        facts = record["store"]
        transforms = tuple(load_transforms(run.path, record, raw.n_features, facts["n_features"]))
        data = DataRef(tuple(paths), raw.fingerprint, settings, transforms, facts["slice_rows"])
        opened, plan = data.view(raw), Plan(**record["plan"])
        spec = specify(settings, opened)
        if plan.needs_cluster and cluster is None:
            raise RunError(
                f"{run.path} was begun on a cluster: the weights of its {settings.splits} splits do not fit "
                f"into {format_size(plan.memory)}",
                remedy=Remedy("go on with {}", Option("cluster")),
            )
        asked = changes.get("passes", settings.passes)
        if asked > settings.passes:
            _check_extends(run, settings)
        elif asked < settings.passes:
            _check_shortens(run, settings, asked)
        if "tol" in changes:
            changes["gap"] = "pass"
        if settings.valid and absolute(changes.get("valid", settings.valid)) != absolute(settings.valid):
            changes.setdefault("valid_labels", None)  # those were of other rows
        spec = spec.changed(**changes)
        settings = spec.settings
        costs = TrainingCosts.load(record["error_weights"], run.costs, opened.classes)
        data = dataclasses.replace(data, settings=settings)
        training = Training(data, spec, plan, cut_blocks(opened, plan), costs.row_factors(settings))
        if settings.valid is not None:
            _check_exists(settings.valid, "valid")
        fingerprint = check_held_out(raw, training, record)
        if "valid" not in changes and fingerprint != record.get("valid_fingerprint"):
            raise other_held_out(settings)
        record["valid_fingerprint"] = fingerprint
        record["settings"] = dataclasses.asdict(settings)
        record["store"]["path"] = paths
        found = stack.enter_context(find_workers(spec, workers, cluster))
        resumed = StoreRun(run, training, raw, opened, record, costs, every, callbacks, found)
        trainer = resumed.trainer()
        run.write_settings(record)  # only now: a refusal changes nothing
        return resumed.train(trainer)


def _check_shortens(run: RunDir, settings: Settings, passes: int) -> None:
    """Raise `RunError` unless a run with these settings can end after `passes`.

    The last pass, for its average, is yet to begin, and C must not depend on the passes.
    """
    done = least = 0
    for number in run.commits():
        with contextlib.suppress(RunError, OSError):  # a damaged one: the one before is resumed
            position = read_commit(run, run.commit_path(number), verify=False)
            done, least = position.passes_done, position.passes_done + 1 + (position.blocks_done > 0)
            break
    if passes < least:
        remedy = Remedy("give {} or more", Option("passes", least))
        problem = f"{run.path} has made {done} passes, and cannot be shortened to {passes}"
        raise RunError(problem, remedy=remedy if least < settings.passes else None)
    if settings.C_factors:
        raise RunError(f"C of {run.path} depends on its passes: they cannot be fewer")


def _check_extends(run: RunDir, settings: Settings) -> None:
    """Raise `RunError` unless a run with these settings can go on after its last pass."""
    if not settings.keep_duals:
        raise RunError(
            f"{run.path} kept no duals to start another pass from",
            remedy=Remedy("fit again with {}", Option("keep_duals", True)),
        )


def _check_exists(path: str | os.PathLike, setting: str) -> None:
    if as_url(path) is None and not Path(path).exists():
        raise StoreError(
            f"{path}: nothing is there",
            remedy=Remedy("bring it back, or say where it is now with {}", Option(setting)),
        )
