"""Begin and resume runs on stores: open the store, plan its memory, claim the folder, and train."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import durable, format
from streamsvm.data import memory_plan
from streamsvm.data.blocks import Blocks, blocks_to_score
from streamsvm.data.memory_plan import MemoryPolicy, Plan, cut_blocks, dual_id_dtype
from streamsvm.errors import Call, Interrupted, Option, PlanError, Remedy, RunError, SettingsError, StoreError
from streamsvm.losses import get_loss
from streamsvm.model_files import check_room
from streamsvm.run.directory import RunDir, claimed, locked
from streamsvm.run.files import RunFiles
from streamsvm.run.hybrid_weights import HybridWeights, find_rare
from streamsvm.run.weights import DenseWeights
from streamsvm.settings import Interval, Settings
from streamsvm.store import Store, open_store, open_validation_store
from streamsvm.training.auto_c import choose_c
from streamsvm.training.fit import Fit
from streamsvm.training.fit_plan import check_dense_duals, choices, columns_of, describe_fit, plan_fit
from streamsvm.training.learner import Learner, new_buffer
from streamsvm.training.results import FitResult, OnlineResult
from streamsvm.training.sources import BlocksSource, Stream
from streamsvm.training.stream_runs import resume_stream
from streamsvm.training.trainer import Callbacks
from streamsvm.transforms import Transform, records_of, transforms_from


def fit_store(
    path: str | Path,
    out: str | Path,
    settings: Settings,
    *,
    every: Interval,
    force: bool = False,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
    policy: MemoryPolicy | None = None,
    transforms: Sequence[Transform] = (),
) -> FitResult:
    """Begin a run on a store, as `streamsvm.fit` describes it."""
    policy = policy or memory_plan.POLICY
    run = RunDir(out)
    with open_store(path, label=settings.label) as store:
        _check_width(store, transforms)
        settings, chosen = choose_c(store, settings, transforms)
        plan, starts = plan_fit(store, settings, policy)
        record = {
            "version": format.RUN_VERSION,
            "settings": dataclasses.asdict(settings),
            "store": {
                "path": os.path.abspath(path),
                "fingerprint": store.fingerprint,
                "n_features": store.n_features,
                "n_classes": store.n_classes,
            },
            "plan": dataclasses.asdict(plan),
            "C_auto": chosen,
            "transforms": records_of(transforms),
            "valid_fingerprint": _check_valid(store, settings, plan),
        }
        with claimed(run, force=force):
            free = durable.free_bytes(run.path)
            check_dense_duals(settings, store.n_rows, store.n_classes, free, f"the disk of {run.path}")
            check_room(run.path, store.n_features, store.n_classes, np.dtype(settings.dtype).itemsize)
            run.write_settings(record)
            return _StoreRun(run, store, record, starts, every, callbacks, policy).trainer().run()


def plan_store(path: str | Path, settings: Settings, policy: MemoryPolicy | None = None) -> dict[str, Any]:
    """What a fit of a store would hold in memory and on disk, as `streamsvm.plan` describes it."""
    policy = policy or memory_plan.POLICY
    with open_store(path, label=settings.label) as store:
        settings, chosen = choose_c(store, settings)
        described = describe_fit(store, settings, *plan_fit(store, settings, policy), policy)
        return {**described, "C_auto": chosen}


def resume_run(
    path: str | Path,
    open_stream: Callable[[dict[str, Any]], Stream] | None = None,
    *,
    passes: int | None = None,
    tol: float | None = None,
    store: str | Path | None = None,
    valid: str | Path | None = None,
    every: Interval,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
    policy: MemoryPolicy | None = None,
) -> FitResult | OnlineResult:
    """Continue a run of either kind, as `streamsvm.resume` describes it."""
    run = RunDir(path)
    run.read_settings()  # before the lock file is made, so that a wrong path stays clean
    with locked(run):
        record = run.read_settings()
        if record.get("kind") == format.ONLINE:
            for name, value in {"passes": passes, "tol": tol, "store": store, "valid": valid}.items():
                if value is not None:
                    raise SettingsError(f"{name} does not apply: {path} learns from a stream", setting=name)
            if open_stream is None:
                raise SettingsError(
                    "open_stream is missing: give TextSource.from_record of streamsvm_converters, or what "
                    f"else made the stream of {path}",
                    setting="open_stream",
                )
            return resume_stream(run, record, open_stream, every, callbacks)
        return _resume_store(
            run, record, every, callbacks, policy or memory_plan.POLICY,
            passes=passes, tol=tol, store=store, valid=valid,
        )  # fmt: skip


def _resume_store(
    run: RunDir,
    record: dict[str, Any],
    every: Interval,
    callbacks: Callbacks,
    policy: MemoryPolicy,
    *,
    passes: int | None,
    tol: float | None,
    store: str | Path | None,
    valid: str | Path | None,
) -> FitResult:
    path = record["store"]["path"] if store is None else os.path.abspath(store)
    _check_exists(path, "store")
    with open_store(path, label=record["settings"]["label"]) as opened:
        if opened.fingerprint != record["store"]["fingerprint"]:
            raise RunError(
                f"the store {path} has changed since {run.path} was begun (its content fingerprint differs)",
                remedy=Remedy("bring the old store back, or fit again"),
            )
        plan = Plan(**record["plan"])
        settings = Settings.from_record(record["settings"])
        if plan not in choices(opened, settings, plan.memory, policy):
            raise RunError(
                f"{run.settings} holds another memory plan than this program makes",
                remedy=Remedy("use the version of streamsvm that made it, or fit again"),
            )
        changes: dict[str, Any] = {}
        if passes is not None and passes != settings.passes:
            _check_extends(run, settings, passes)
            changes["passes"] = passes
        if tol is not None:
            changes |= {"tol": tol, "gap": "pass"}
        if valid is not None:
            changes["valid"] = os.path.abspath(valid)
        settings = dataclasses.replace(settings, **changes)
        if settings.valid is not None:
            _check_exists(settings.valid, "valid")
        fingerprint = _check_valid(opened, settings, plan)
        if valid is None and fingerprint != record.get("valid_fingerprint"):
            raise _other_valid(settings.valid)
        record |= {"settings": dataclasses.asdict(settings), "valid_fingerprint": fingerprint}
        record["store"]["path"] = path
        starts = cut_blocks(opened, plan)
        trainer = _StoreRun(run, opened, record, starts, every, callbacks, policy).trainer()
        run.write_settings(record)  # only now: a refusal changes nothing
        return trainer.run()


def _check_width(store: Store, transforms: Sequence[Transform]) -> None:
    """Raise `PlanError` if a transform gives another number of features, for which there is no plan."""
    for transform in transforms:
        if transform.n_features(store.n_features) != store.n_features:
            raise PlanError(
                f"the transform {transform.name} changes the number of features, which a fit of a store "
                "cannot do; train on text with online, or transform the data before it is stored"
            )


def _check_extends(run: RunDir, settings: Settings, passes: int) -> None:
    """Raise `RunError` unless a run with these settings can go on to `passes` in all."""
    if passes < settings.passes:
        raise RunError(
            f"{run.path} was asked for {settings.passes} passes; it can be extended, not shortened"
        )
    if not settings.keep_duals:
        raise RunError(
            f"{run.path} kept no duals to start another pass from",
            remedy=Remedy("fit again with {}", Option("keep_duals", True)),
        )


def _check_exists(path: str | os.PathLike, setting: str) -> None:
    if not Path(path).exists():
        raise StoreError(
            f"{path}: nothing is there",
            remedy=Remedy("bring it back, or say where it is now with {}", Option(setting)),
        )


def _check_valid(store: Store, settings: Settings, plan: Plan) -> str | None:
    """The fingerprint of the validation store; raise now, not after a pass, if it cannot be used."""
    if settings.valid is None:
        return None
    with open_validation_store(settings.valid, settings.label) as held_out:
        _valid_blocks(held_out, store, settings, plan)
        return held_out.fingerprint


def _other_valid(path: Any) -> RunError:
    return RunError(
        f"the validation store {path} has changed since the run was begun (its content fingerprint differs): "
        "accuracies before and after would not compare",
        remedy=Remedy("bring the old store back, or resume with {} to measure on this one", Option("valid")),
    )


def _valid_blocks(
    held_out: Store, store: Store, settings: Settings, plan: Plan, transforms: Sequence[Transform] = ()
) -> Blocks:
    """The blocks of a validation store, in what weights, duals and rows in memory leave of the plan."""
    kept = plan.largest_block if plan.largest_block <= plan.block_bytes else 0
    return blocks_to_score(
        held_out,
        classes=store.classes,
        n_features=store.n_features,
        index_base=store.index_base,
        dtype=np.dtype(settings.dtype),
        memory=plan.memory - (plan.fixed - plan.decode_bytes) - plan.dual_bytes - kept,
        feature_names=store.feature_names(),
        model="the training data",
        transforms=transforms,
    )


class _StoreRun:
    """A run on a store, from its record to its trainer."""

    def __init__(
        self,
        run: RunDir,
        store: Store,
        record: dict[str, Any],
        starts: np.ndarray,
        every: Interval,
        callbacks: Callbacks,
        policy: MemoryPolicy,
    ) -> None:
        self.run = run
        self.store = store
        self.record = record
        self.settings = Settings.from_record(record["settings"])
        self.plan = Plan(**record["plan"])
        self.callbacks = callbacks
        self.policy = policy
        self.dtype = np.dtype(self.settings.dtype)
        self.transforms = transforms_from(record.get("transforms", []))
        self.blocks = Blocks(store, starts, self.dtype, cost=self.settings.C, transforms=self.transforms)
        self.every = every
        self.described = describe_fit(store, self.settings, self.plan, starts, policy)

    def trainer(self) -> Fit:
        """The trainer, at the position of the last commit."""
        settings, store = self.settings, self.store
        loss = get_loss(settings.loss)
        self.callbacks.report({**self.described, "C_auto": self.record["C_auto"]})
        rare = self._find_rare()
        n_rows = store.n_features if rare is None else int(len(rare) - rare.sum())
        shape = (n_rows, columns_of(store, settings))
        ids_dtype = dual_id_dtype(store.n_classes)
        bytes_of_bits = loss.bytes_of_bits(store.n_classes)
        files = RunFiles(
            self.run, self.dtype, ids_dtype, store.n_classes, loss.max_duals(store.n_classes), bytes_of_bits,
            self.every,
        )  # fmt: skip
        position = files.recover(shape)
        storage = self._storage(shape, rare)
        buffer = new_buffer(
            self.plan.dual_entries,
            int(np.diff(self.blocks.starts).max()),
            self.dtype,
            ids_dtype,
            bytes_of_bits,
        )
        trainer = Fit(
            BlocksSource(self.blocks, settings.seed),
            settings,
            files,
            Learner(settings, storage, buffer, store.n_classes),
            position,
            self.callbacks,
            record={
                "memory": settings.memory,
                "block_rows": settings.block_rows,
                "classes": list(store.classes),
                "n_features": store.n_features,
                "index_base": store.index_base,
                "C_auto": self.record["C_auto"],
                "store_fingerprint": store.fingerprint,
                "transforms": records_of(self.transforms),
            },
            names=store.feature_names(),
            valid_blocks=None if settings.valid is None else self._open_valid,
            order_warning=self.described["order_warning"],
            bytes_read=lambda: store.bytes_read,
        )
        if position is not None:
            files.restore(position, storage)
        return trainer

    def _storage(self, shape: tuple[int, int], rare: np.ndarray | None) -> DenseWeights:
        """The weights where the plan has them."""
        plan, run, average = self.plan, self.run, self.settings.average
        paths = (
            None if plan.weights_in_memory else run.weights,
            None if plan.average_in_memory else run.average_delta,
            None if plan.weights_in_memory else run.dirty,
        )
        time_unit = float(self.store.n_rows)
        n_columns = self.store.n_classes + get_loss(self.settings.loss).extra_columns
        if rare is None:
            return DenseWeights(shape, self.dtype, time_unit, paths, average=average)
        return HybridWeights(
            rare, shape[1], n_columns, self.dtype, time_unit, paths, run.sparse_weights,
            average=average,
        )  # fmt: skip

    def _find_rare(self) -> np.ndarray | None:
        """Which features are rare, if the plan has their weights sparse."""
        if not self.plan.sparse_rare:
            return None

        def step(block: int) -> None:
            self.callbacks.progress("count", int(self.blocks.starts[block + 1]), self.store.n_rows)
            if self.callbacks.stop():
                raise Interrupted(
                    "stopped before pass 1", remedy=Remedy("{} begins it", Call("resume", self.run.path))
                )

        return find_rare(self.run.rare_features, self.blocks, self.policy.classes_per_row, step)

    @contextlib.contextmanager
    def _open_valid(self) -> Iterator[Blocks]:
        valid = self.settings.valid
        assert valid is not None
        with open_validation_store(valid, self.settings.label) as store:
            if store.fingerprint != self.record["valid_fingerprint"]:
                raise _other_valid(valid)
            yield _valid_blocks(store, self.store, self.settings, self.plan, self.transforms)
