"""Begin and resume runs on stores: open the store, plan its memory, claim the folder, and train."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from streamsvm import durable, format
from streamsvm.data import memory_plan
from streamsvm.data.blocks import Blocks
from streamsvm.data.memory_plan import MemoryPolicy, Plan, cut_blocks, dual_id_dtype
from streamsvm.errors import Interrupted, ModelError, Option, Remedy, RunError, SettingsError, StoreError
from streamsvm.losses import get_loss
from streamsvm.model_files import check_room
from streamsvm.run.directory import RunDir, claimed, locked
from streamsvm.run.files import RunFiles
from streamsvm.run.sparse_weights import SparseWeights
from streamsvm.run.weights import DenseWeights
from streamsvm.settings import BALANCED, NONE, Interval, Settings
from streamsvm.store import Store, open_stores, open_validation_store
from streamsvm.store.scoring import blocks_to_score
from streamsvm.store.sliced import SlicedStore
from streamsvm.text import absolute, as_paths, as_url
from streamsvm.training.auto_c import choose_c
from streamsvm.training.error_weights import ErrorWeights, check_error_weights, read_error_weights
from streamsvm.training.fit import Fit
from streamsvm.training.fit_plan import (
    check_dense_duals,
    check_has_groups,
    choices,
    columns_of,
    describe_fit,
    in_slices,
    plan_fit,
    weight_rows,
)
from streamsvm.training.learner import Learner, new_buffer
from streamsvm.training.results import FitResult, OnlineResult
from streamsvm.training.same_run import check_same
from streamsvm.training.sources import BlocksSource, Stream
from streamsvm.training.stream_runs import resume_stream
from streamsvm.training.trainer import Callbacks
from streamsvm.transform_files import load_transforms, save_transforms, saved_records
from streamsvm.transforms import Transform, parse_transforms
from streamsvm.transforms.fitting import OF_DATA, FittedTransforms, fit_transforms, raw_store
from streamsvm.transforms.store import TransformedStore, shift_to_text

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_PIECE = 2**18  # rows that are counted at a time
_FIRST = 256  # rows of held-out data that are transformed before the training
_HELD_OUT = {"valid": "validation", "calibrate": "hold-out"}  # settings that name a store


def fit_store(
    path: Paths,
    out: str | Path,
    settings: Settings,
    *,
    every: Interval,
    force: bool = False,
    resume: bool = False,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
    policy: MemoryPolicy | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> FitResult:
    """Begin a run on a store, as `streamsvm.fit` describes it; if `resume`, go on with one that is there.

    `given` has the ``costs`` and ``tree`` that are not files, by name.
    """
    policy = policy or memory_plan.POLICY
    run = RunDir(out)
    asked = parse_transforms(settings.transform)
    paths = as_paths(path) or []
    with _open_to_train(paths, settings) as raw:
        fitted = _fit_transforms(raw, asked, settings, callbacks)
        transforms = fitted.transforms
        store: Store = TransformedStore(raw, transforms)
        weights = read_error_weights(settings, store.classes, _class_counts(store, settings), given)
        settings, chosen = choose_c(store, settings)
        store = in_slices(store, settings, policy)
        plan, starts = plan_fit(store, settings, policy)
        record = {
            "version": format.RUN_VERSION,
            "settings": dataclasses.asdict(settings),
            "store": {
                "path": [absolute(each) for each in paths],
                "slice_rows": store.slice_rows if isinstance(store, SlicedStore) else 0,
                "fingerprint": raw.fingerprint,
                "n_features": store.n_features,
                "n_classes": store.n_classes,
            },
            "plan": dataclasses.asdict(plan),
            "C_auto": chosen,
            **fitted.record,
            "transforms": saved_records(transforms),
            "error_weights": weights.record(),
            **_encoding_of(store),
            **{
                f"{name}_fingerprint": _check_held_out(name, raw, transforms, settings, plan)
                for name in _HELD_OUT
            },
        }
        if resume and run.settings.exists():
            check_same(run, record)
            store.close()
            result = resume_run(out, store=paths, every=every, callbacks=callbacks, policy=policy)
            assert isinstance(result, FitResult)
            return result
        with claimed(run, force=force):
            free = durable.free_bytes(run.path)
            check_dense_duals(settings, store.n_rows, store.n_classes, free, f"the disk of {run.path}")
            check_room(run.path, store.n_features, store.n_classes, np.dtype(settings.dtype).itemsize)
            weights.save(run.costs)
            save_transforms(run.path, transforms)
            durable.sync_tree(run.path)
            run.write_settings(record)
            return (
                _StoreRun(run, raw, transforms, store, record, weights, starts, every, callbacks, policy)
                .trainer()
                .run()
            )


def plan_store(
    path: Paths,
    settings: Settings,
    policy: MemoryPolicy | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """What a fit of a store would hold in memory and on disk, as `streamsvm.plan` describes it."""
    policy = policy or memory_plan.POLICY
    asked = parse_transforms(settings.transform)
    with _open_to_train(as_paths(path) or [], settings) as raw:
        fitted = _fit_transforms(raw, asked, settings, Callbacks())
        store: Store = TransformedStore(raw, fitted.transforms)
        read_error_weights(settings, store.classes, store.class_counts, given)
        settings, chosen = choose_c(store, settings)
        store = in_slices(store, settings, policy)
        described = describe_fit(store, settings, *plan_fit(store, settings, policy), policy)
        return {**described, "C_auto": chosen}


def resume_run(
    path: str | Path,
    open_stream: Callable[[dict[str, Any]], Stream] | None = None,
    *,
    passes: int | None = None,
    tol: float | None = None,
    store: Sequence[str | os.PathLike[str]] | None = None,
    valid: str | Path | None = None,
    calibrate: str | Path | None = None,
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
            given = {"passes": passes, "tol": tol, "store": store, "valid": valid, "calibrate": calibrate}
            for name, value in given.items():
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
            passes=passes, tol=tol, store=store, held_out={"valid": valid, "calibrate": calibrate},
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
    store: Sequence[str | os.PathLike[str]] | None,
    held_out: dict[str, str | Path | None],
) -> FitResult:
    paths = record["store"]["path"] if store is None else [absolute(each) for each in store]
    for path in paths:
        _check_exists(path, "store")
    settings = Settings.from_record(record["settings"])
    with _open_to_train(paths, settings) as raw:
        if raw.fingerprint != record["store"]["fingerprint"]:
            raise RunError(
                f"the store {', '.join(paths)} has changed since {run.path} was begun (its content "
                "fingerprint differs)",
                remedy=Remedy("bring the old store back, or fit again"),
            )
        transforms = _transforms_of(run, record, raw)
        opened: Store = TransformedStore(raw, transforms)
        if record["store"]["slice_rows"]:
            opened = SlicedStore(opened, record["store"]["slice_rows"], settings.seed)
        plan = Plan(**record["plan"])
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
        changes |= {name: absolute(new) for name, new in held_out.items() if new is not None}
        settings = dataclasses.replace(settings, **changes)
        for name, new in held_out.items():
            if getattr(settings, name) is not None:
                _check_exists(getattr(settings, name), name)
            fingerprint = _check_held_out(name, raw, transforms, settings, plan)
            if new is None and fingerprint != record.get(f"{name}_fingerprint"):
                raise _other_held_out(name, settings)
            record[f"{name}_fingerprint"] = fingerprint
        record["settings"] = dataclasses.asdict(settings)
        record["store"]["path"] = paths
        starts = cut_blocks(opened, plan)
        weights = ErrorWeights.load(record["error_weights"], run.costs, opened.classes)
        trainer = _StoreRun(
            run, raw, transforms, opened, record, weights, starts, every, callbacks, policy
        ).trainer()
        run.write_settings(record)  # only now: a refusal changes nothing
        return trainer.run()


def _open_to_train(paths: Sequence[str | os.PathLike[str]], settings: Settings) -> Store:
    """The store to train on, of one file or several, whose labels the loss can take."""
    column = None if settings.sample_weight == NONE else settings.sample_weight
    store = open_stores(
        paths, join=settings.join, label=settings.label, sample_weight=column, layer=settings.layer,
        raw=settings.raw,
    )  # fmt: skip
    try:
        check_error_weights(settings, multilabel=store.multilabel, where=str(store.path))
    except BaseException:
        store.close()
        raise
    return store


def _encoding_of(store: Store) -> dict[str, Any]:
    """How columns of a table became the features of a store, as records of runs and models have it."""
    return {"encoding": store.meta["encoding"]} if store.meta.get("encoding") else {}


def _class_counts(store: Store, settings: Settings) -> np.ndarray:
    """The rows of each class, without those of weight 0."""
    if settings.class_weight != BALANCED or settings.sample_weight == NONE or not store.weighted:
        return store.class_counts
    counts = np.zeros(store.n_classes, np.int64)
    for begin in range(0, store.n_rows, _PIECE):
        end = min(begin + _PIECE, store.n_rows)
        used = store.weights(begin, end) > 0
        counts += np.bincount(store.labels(begin, end)[used], minlength=store.n_classes)
    return counts


def _fit_transforms(
    store: Store, transforms: Sequence[Transform], settings: Settings, callbacks: Callbacks
) -> FittedTransforms:
    """Transforms fitted to a store."""

    def progress(done: int, total: int) -> None:
        callbacks.progress("statistics", done, total)
        if callbacks.stop():
            raise Interrupted("stopped before the training began")

    numbered = TransformedStore(store, (), shift_to_text(store, transforms))
    raw = raw_store(numbered, settings.memory, progress)
    return fit_transforms(transforms, raw, memory=settings.memory)


def _transforms_of(run: RunDir, record: dict[str, Any], store: Store) -> list[Transform]:
    """The transforms that a run applies to a store; raises `RunError` if their files are damaged."""
    try:
        return load_transforms(
            run.path, record.get("transforms", []), store.n_features, record["store"]["n_features"]
        )
    except ModelError as error:
        raise RunError(f"{error.message.problem}; fit again") from None
    except (OSError, KeyError, TypeError) as error:
        raise RunError(f"{run.path}: the array of a transform cannot be read: {error}; fit again") from None


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
    if as_url(path) is None and not Path(path).exists():
        raise StoreError(
            f"{path}: nothing is there",
            remedy=Remedy("bring it back, or say where it is now with {}", Option(setting)),
        )


def _check_held_out(
    name: str, raw: Store, transforms: Sequence[Transform], settings: Settings, plan: Plan
) -> str | None:
    """The fingerprint of a held-out store; raise now, not after a pass, if it cannot be used."""
    path = getattr(settings, name)
    if path is None:
        return None
    with _open_held_out(path, settings) as held_out:
        check_has_groups(settings, has_groups=held_out.grouped, where=str(path))
        blocks = _held_out_blocks(held_out, raw, transforms, settings, plan)
        blocks.match.warn()
        if transforms:  # which may refuse rows
            blocks.store.rows(0, min(_FIRST, held_out.n_rows))
        if name == "calibrate":
            _check_calibration_store(held_out, raw)
        return held_out.fingerprint


def _open_held_out(path: str, settings: Settings) -> Store:
    return open_validation_store(path, settings.label, settings.layer, settings.raw)


def _check_calibration_store(hold_out: Store, store: Store) -> None:
    """Raise an error if a store is not fit to calibrate a model of `store` with."""
    if hold_out.fingerprint == store.fingerprint or hold_out.path.resolve() == store.path.resolve():
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
    known = np.isin(hold_out.classes, store.classes)
    if not hold_out.class_counts[known].any():
        raise StoreError(f"{hold_out.path} has no row of a class of the training data to calibrate with")


def _other_held_out(name: str, settings: Settings) -> RunError:
    return RunError(
        f"the {_HELD_OUT[name]} store {getattr(settings, name)} has changed since the run was begun (its "
        "content fingerprint differs): what was measured before and after would not compare",
        remedy=Remedy("bring the old store back, or resume with {} to take this one", Option(name)),
    )


def _held_out_blocks(
    held_out: Store, raw: Store, transforms: Sequence[Transform], settings: Settings, plan: Plan
) -> Blocks:
    """The blocks of a held-out store, transformed as the rows of `raw` are to train on.

    They take what weights, duals and rows in memory leave of the plan.
    """
    kept = plan.largest_block if plan.largest_block <= plan.block_bytes else 0
    return blocks_to_score(
        held_out,
        classes=raw.classes,
        n_features=raw.n_features,
        index_base=raw.index_base,
        dtype=np.dtype(settings.dtype),
        memory=plan.memory - (plan.fixed - plan.decode_bytes) - plan.dual_bytes - kept,
        feature_names=raw.feature_names(),
        model="the training data",
        transformed=lambda matched: TransformedStore(matched, transforms),
    )


class _StoreRun:
    """A run on a store, from its record to its trainer.

    `raw` is what is on the disk, and `store` the rows to train on, after `transforms`.
    """

    def __init__(
        self,
        run: RunDir,
        raw: Store,
        transforms: Sequence[Transform],
        store: Store,
        record: dict[str, Any],
        weights: ErrorWeights,
        starts: np.ndarray,
        every: Interval,
        callbacks: Callbacks,
        policy: MemoryPolicy,
    ) -> None:
        self.run = run
        self.raw = raw
        self.transforms = transforms
        self.store = store
        self.record = record
        self.settings = Settings.from_record(record["settings"])
        self.plan = Plan(**record["plan"])
        self.callbacks = callbacks
        self.policy = policy
        self.dtype = np.dtype(self.settings.dtype)
        self.weights = weights
        self.blocks = Blocks(
            store,
            starts,
            self.dtype,
            cost=self.settings.C,
            class_weights=self.weights.of_rows(self.settings),
            weighted=self.settings.sample_weight != NONE,
        )
        self.every = every
        self.described = describe_fit(store, self.settings, self.plan, starts, policy)

    def trainer(self) -> Fit:
        """The trainer, at the position of the last commit."""
        settings, store = self.settings, self.store
        loss = get_loss(settings.loss)
        self.callbacks.report({**self.described, "C_auto": self.record["C_auto"]})
        # Of the matrix: with sparse rows it has none.
        shape = (0 if self.plan.sparse else weight_rows(store, settings), columns_of(store, settings))
        n_ids = loss.dual_ids(store.n_classes, settings.solver) + self.plan.common_dual
        ids_dtype = dual_id_dtype(n_ids)
        bytes_of_bits = loss.bytes_of_bits(store.n_classes)
        files = RunFiles(
            self.run, self.dtype, ids_dtype, n_ids, loss.max_duals(store.n_classes, settings.solver),
            bytes_of_bits, self.every, distinct_ids=loss.has_distinct_ids(settings.solver),
        )  # fmt: skip
        position = files.recover(shape)
        storage = self._storage(shape)
        buffer = new_buffer(
            self.plan.dual_entries,
            int(np.diff(self.blocks.starts).max()),
            self.dtype,
            ids_dtype,
            bytes_of_bits,
        )
        trainer = Fit(
            BlocksSource(self.blocks, settings.seed, settings.share_of_C, by_group=loss.sequences),
            settings,
            files,
            Learner(
                settings,
                storage,
                buffer,
                store.n_classes,
                self.weights.pairs(settings, shape[1]),
                common_dual=self.plan.common_dual,
            ),
            position,
            self.callbacks,
            record={
                "memory": settings.memory,
                "block_rows": settings.block_rows,
                "classes": list(store.classes),
                "n_features": store.n_features,
                "index_base": store.index_base,
                "C_auto": self.record["C_auto"],
                "store_fingerprint": self.raw.fingerprint,
                **{name: self.record[name] for name in OF_DATA if name in self.record},
                **_encoding_of(store),
            },
            names=self.raw.feature_names(),
            weights=self.weights,
            transforms=self.transforms,
            valid_blocks=self._opens("valid"),
            hold_out=self._opens("calibrate"),
            order_warning=self.described["order_warning"],
            bytes_read=lambda: store.bytes_read,
        )
        if position is not None:
            files.restore(position, storage)
        return trainer

    def _storage(self, shape: tuple[int, int]) -> DenseWeights | SparseWeights:
        """The weights where the plan has them."""
        plan, run, average = self.plan, self.run, self.settings.average
        time_unit = float(self.store.n_rows)
        if plan.sparse:
            n_columns = self.store.n_classes + get_loss(self.settings.loss).extra_columns
            return SparseWeights(
                weight_rows(self.store, self.settings), shape[1], n_columns, self.dtype, time_unit,
                run.sparse_weights, plan.pool_bytes, average=average,
            )  # fmt: skip
        paths = (
            None if plan.weights_in_memory else run.weights,
            None if plan.average_in_memory else run.average_delta,
            None if plan.weights_in_memory else run.dirty,
        )
        return DenseWeights(shape, self.dtype, time_unit, paths, average=average)

    def _opens(self, name: str) -> Callable[[], Any] | None:
        """What opens the blocks of a held-out store, as a context manager; None without such a store."""
        path = getattr(self.settings, name)

        @contextlib.contextmanager
        def opened() -> Iterator[Blocks]:
            with _open_held_out(path, self.settings) as store:
                if store.fingerprint != self.record[f"{name}_fingerprint"]:
                    raise _other_held_out(name, self.settings)
                yield _held_out_blocks(store, self.raw, self.transforms, self.settings, self.plan)

        return None if path is None else opened
