"""Online training in one pass over a stream, which predicts each row before learning from it.

The duals of a row are zero before its only visit and not needed after it, so neither rows nor duals are kept.
One exact block step per row updates the weights, and the average of the weights is the model. New features
and classes may appear during the pass. The memory used does not depend on the length of the stream.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import class_order, dtype_of_names
from streamsvm.base.prefetch import Prefetcher, Stopped
from streamsvm.base.threads import Threads
from streamsvm.data.order import STREAM_WARNING, LabelGroups
from streamsvm.data.rows import row_span
from streamsvm.errors import (
    Call,
    InputError,
    Interrupted,
    Option,
    PlanError,
    Remedy,
    RunError,
    StreamsvmError,
    wrong_setting,
)
from streamsvm.inputs.schema import reading_of
from streamsvm.kernels.tally import CORRECT, EMPTY
from streamsvm.model.coefficients import Coefficients
from streamsvm.model.results import OnlineResult
from streamsvm.run.directory import RunDir, claimed
from streamsvm.run.files import RunFiles
from streamsvm.run.growing_weights import GrowingWeights
from streamsvm.run.manifest import RunPosition, StreamPosition
from streamsvm.settings.fit import AUTO, Interval
from streamsvm.settings.online import TEXT_TRANSFORM, TRANSFORM, OnlineSettings
from streamsvm.training.auto_c import c_for
from streamsvm.training.build import find_workers
from streamsvm.training.learner import Learner
from streamsvm.training.plain_visits import PlainVisits
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.store_stream import STORE, StoreStream
from streamsvm.training.stream import Stream, StreamSource
from streamsvm.training.trainer import Callbacks, Trainer
from streamsvm.training.visitor import VisitPlan
from streamsvm.transforms import Transform, dense_after, parse_transforms, records_of
from streamsvm.transforms.base import FittingData
from streamsvm.transforms.defaults import counts_n_grams
from streamsvm.transforms.fitting import fit_without_rows


@dataclasses.dataclass(eq=False)
class Online(Trainer):
    """Trainer that makes one pass over a stream. Its position includes a `StreamPosition`."""

    source: StreamSource
    online_settings: OnlineSettings  # for the model's record; `settings`, for the loop, are derived from them

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.files.run is not None
        self.stream, self._run = self.source.stream, self.files.run
        self._first_block = self.position.blocks_done
        self._was_at_end = self.position.passes_done > 0  # True if the stream was read to its end
        self.position = dataclasses.replace(self.position, passes_done=0)  # the stream may have new rows
        self._history: list[dict[str, Any]] = []

    @property
    def _state(self) -> StreamPosition:
        assert self.position.stream is not None
        return self.position.stream

    def run(self) -> OnlineResult:
        """Learn from all remaining rows, and save the model."""
        with self.compiled(self.source.empty()):
            self.begin_pass(1)
            blocks = self.source.blocks(self.position)
            # A pipe may stay silent, so `stop` is polled while waiting, and the reading thread is not joined.
            with Prefetcher(blocks, self.stop, join=self.stream.resumable) as read:
                finished = self.learn(self._with_room(read), "online", self._report_rows, averages=True)
            self.waited = read.waited
            if not finished:
                raise self._commit_and_advise(Interrupted("stopped"))
            rows = self.learner.visited
            if rows == 0:
                raise InputError("the input has no rows to learn from")
            if not self._was_at_end or self.position.blocks_done > self._first_block:
                self._report_rest()
                self.position = dataclasses.replace(self.position, passes_done=1)
                self.commit()
            if len(classes := self._state.classes) < 2:
                raise InputError(
                    f"all {rows:,} rows have the label {classes[0]}; a classifier needs two or more"
                )
        return self._save("done")

    def end_early(self) -> OnlineResult:
        """Save the model of the last commit, because the stream cannot be read again."""
        if not self._run.has_commit or len(self._state.classes) < 2:
            raise RunError(
                f"{self._run.path} learned from standard input or a pipe, which cannot be read again, and "
                "has no commit from which to save a model",
                remedy=Remedy("start again with {}", Option("force", True)),
            )
        if not self._was_at_end:
            self.files.warnings.append(
                "standard input or a pipe cannot be read again, so the model was trained on only the "
                f"{self.learner.visited:,} rows up to the last commit"
            )
        return self._save("done" if self._was_at_end else "stopped")

    def _with_room(self, read: Prefetcher[TrainingBlock]) -> Iterator[TrainingBlock]:
        try:
            for block in read:
                self._make_room(block)
                yield block
        except Stopped:
            raise self._commit_and_advise(Interrupted("stopped")) from None
        except StreamsvmError as error:
            raise self._commit_and_advise(error) from None

    def _make_room(self, block: TrainingBlock) -> None:
        storage, rows = self.learner.storage, block.rows
        n_classes, largest = self.learner.n_classes + len(block.new_classes), rows.largest_feature
        try:
            storage.grow(largest + 1, n_classes)
        except PlanError as error:
            if largest < storage.n_features:
                raise
            at = int(np.argmax(rows.features == largest))
            row = self.learner.visited + int(np.searchsorted(rows.indptr, at, "right"))
            feature = largest - self.source.constant_first
            problem = f"row {row:,} has the feature {feature:,}: {error.message.problem}"
            raise PlanError(problem, remedy=error.remedy) from None

    def _commit_and_advise(self, error: StreamsvmError) -> StreamsvmError:
        """Commit after an error or a signal; return the error with advice on how to use the commit."""
        rows, is_new = self.learner.visited, self.position.blocks_done > self._first_block
        if rows == 0 or not (is_new or isinstance(error, Interrupted)):
            return error
        if not self.stream.resumable:
            self._report_rest()
        self.commit()
        if self.stream.resumable:
            if isinstance(error, PlanError):  # resuming with the same settings would fail again
                return error
            remedy = Remedy("{} continues after these rows", Call("resume", self._run.path))
        elif len(self._state.classes) < 2:
            return error
        else:
            remedy = Remedy(f"{self._save('stopped').model} was trained on them; a pipe cannot be resumed")
        problem = f"{error.message.problem} (after learning from {rows:,} rows)"
        return type(error)(problem, remedy=remedy)

    # -- reports -----------------------------------------------------------------------------------

    def _report_rows(self, block: TrainingBlock | None = None, at: int = 0) -> None:
        """Report the rows learned from so far, including the first `at` rows of `block`."""
        record = {"event": "rows", **self._measures(block, at)}
        hidden = [each["progressive_accuracy"] is None for each in self._history]
        if record["progressive_accuracy"] is None and not any(hidden):
            self.report({"event": "warning", "warning": STREAM_WARNING})
        reported = self.learner.visited, int(self.learner.tally[CORRECT])
        self.position = dataclasses.replace(self.position, reported=reported)
        self.log(record)
        self._history.append(record)

    def _report_rest(self) -> None:
        if self.position.reported[0] != self.learner.visited:
            self._report_rows()

    def _measures(self, block: TrainingBlock | None = None, at: int = 0) -> dict[str, Any]:
        tally, state = self.learner.tally, self._state
        groups, n_features = LabelGroups(state.label_groups), state.n_features
        if block is not None:
            groups.add(block.rows.labels[:at])
            n_features = max(n_features, row_span(block.rows, 0, at).largest_feature + 1)
        rows, correct, seconds = self.learner.visited, int(tally[CORRECT]), self.seconds()
        rows_before, correct_before = self.position.reported
        accuracy = recent = correct / max(rows, 1)
        if rows > rows_before:
            recent = (correct - correct_before) / (rows - rows_before)
        return {
            "rows": rows,
            "progressive_accuracy": None if groups.alike else accuracy,  # sorted labels would bias it
            "recent_accuracy": None if groups.alike else recent,
            "classes": self.learner.n_classes,
            "features": n_features,
            "empty_rows": int(tally[EMPTY]),
            "rows_per_second": rows / max(seconds, 1e-9),
            "seconds": seconds,
        }

    def _save(self, status: str) -> OnlineResult:
        measures = self._history[-1] if self._history else self._measures()
        state, stream = self._state, self.stream
        order = class_order(state.classes) if stream.classes is None else np.arange(len(state.classes))
        record = self._model_record(order)
        model = self.files.save_model(
            self._coefficients(order), record,
            stream.feature_names, saved=lambda model: self.report({"event": "saved", "model": model}),
        )  # fmt: skip
        warnings: list[str] = [STREAM_WARNING] if measures["progressive_accuracy"] is None else []
        return OnlineResult(
            status=status,
            C=record["C"],
            **{name: value for name, value in measures.items() if name != "event"},
            waited_fraction=self.waited / max(measures["seconds"], 1e-9),
            peak_memory_bytes=self.peak,
            checkpoints=self.files.checkpoints,
            checkpoint_seconds=self.files.checkpoint_seconds,
            checkpoint_bytes=self.files.checkpoint_bytes,
            input=stream.summary(state.place),
            model=model,
            history=self._history,
            warnings=self.files.warnings + warnings,
        )

    def _coefficients(self, order: np.ndarray) -> Coefficients:
        """Return the coefficients of the model, with a constant feature moved to the end."""
        storage, first = self.learner.storage, int(self.source.constant_first)
        if first:
            n_features = storage.n_features
            storage.grow(n_features + 1, self.learner.n_classes)
            for array in storage.weights[:2]:
                array[n_features] = array[0]
        coefficients = self.learner.coefficients(order, average=True)
        assert coefficients.average_delta is not None
        assert coefficients.used is not None
        return coefficients._replace(
            current=coefficients.current[first:],
            average_delta=coefficients.average_delta[first:],
            used=np.maximum(coefficients.used - first, 0),
        )

    def _model_record(self, order: np.ndarray) -> dict[str, Any]:
        online_settings, state = self.online_settings, self._state
        classes = [state.classes[code] for code in order]
        n_features, n_features_in = self.learner.storage.n_features, self.stream.n_features
        if n_features_in is None:
            n_features_in = n_features - self.source.constant_first
        transforms = _fitted(online_settings, self.stream, n_features_in)
        return {
            "classes": classes,
            "label_dtype": self.stream.label_dtype or dtype_of_names(classes),
            "n_features": n_features,
            **({"n_features_in": n_features_in} if transforms else {}),
            "index_base": self.stream.index_base,
            **reading_of(self.stream.record()),
            "loss": online_settings.loss,
            "dtype": online_settings.dtype,
            **online_settings.of_loss,
            "C": c_for(*state.norms) if online_settings.C == AUTO else online_settings.C,
            "C_auto": online_settings.C == AUTO,
            "transforms": records_of(transforms),
            "average": True,
            "passes": 1,
            "rows": self.learner.visited,
            "sources": self.stream.sources(state.place),
        }


def learn_stream(
    stream: Stream,
    out: str | Path | RunDir,
    online_settings: OnlineSettings,
    *,
    every: Interval,
    force: bool = False,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
) -> OnlineResult:
    """Start a run on a stream (see `streamsvm.online`)."""
    if stream.classes is not None and len(stream.classes) < 2:
        raise PlanError(f"the number of classes is {len(stream.classes)}, but a classifier needs two or more")
    if online_settings.transform is None:
        default = TEXT_TRANSFORM if counts_n_grams(stream.record().get("encoding") or {}) else TRANSFORM
        online_settings = dataclasses.replace(online_settings, transform=default)
    # Check the transforms before an older run is removed.
    _fitted(online_settings, stream, stream.n_features or 0)
    run = RunDir.at(out)
    record = {
        "version": format.RUN_VERSION,
        "kind": format.ONLINE,
        "settings": dataclasses.asdict(online_settings),
        "input": stream.record(),
    }
    with claimed(run, force=force):
        run.write_settings(record)
        try:
            with _stream_trainer(run, stream, online_settings, every, callbacks) as trainer:
                return trainer.run()
        except Exception:
            if not run.has_commit:
                run.clear()  # a run without a commit cannot continue
            raise


def resume_stream(
    run: RunDir,
    record: dict[str, Any],
    open_stream: Callable[[dict[str, Any]], Stream] | None,
    every: Interval,
    callbacks: Callbacks,
    store: Sequence[str | os.PathLike[str]] | None = None,
) -> OnlineResult:
    """Continue a run on a stream. `store` is the new location if the stream is a store that was moved."""
    online_settings = OnlineSettings(**record["settings"])
    opened: contextlib.AbstractContextManager[Stream]
    if record["input"].get("kind") == STORE:
        opened = StoreStream.from_record(record["input"], store)
    elif store is not None:
        raise wrong_setting("store", f"does not apply: {run.path} does not learn from a store")
    else:
        assert open_stream is not None  # only `fit` omits it, and `fit` resumes only its own runs
        opened = contextlib.nullcontext(open_stream(record["input"]))
    with opened as stream, _stream_trainer(run, stream, online_settings, every, callbacks) as trainer:
        if store is not None:
            run.write_settings({**record, "input": stream.record()})
        return trainer.run() if stream.resumable else trainer.end_early()


def _fitted(online_settings: OnlineSettings, stream: Stream, n_features: int) -> list[Transform]:
    """Fit the transforms to `n_features` features; raise `SettingsError` if a transform needs all rows."""
    for each in parse_transforms(online_settings.transform):
        if each.array_dtype is not None:
            problem = f"{each.name} needs statistics of all rows, but online reads each row once; use fit"
            raise wrong_setting("transform", problem)
    data = FittingData(n_features, stream.feature_names, stream.index_base, None)
    return fit_without_rows(online_settings.transform, data)


@contextlib.contextmanager
def _stream_trainer(
    run: RunDir, stream: Stream, online_settings: OnlineSettings, every: Interval, callbacks: Callbacks
) -> Iterator[Online]:
    callbacks.report({"event": "plan", **dataclasses.asdict(online_settings), **stream.record()})
    settings = online_settings.one_pass()
    dtype = np.dtype(settings.dtype)
    transforms = _fitted(online_settings, stream, stream.n_features or 0)
    source = StreamSource(stream, dtype, online_settings.C, transforms)
    if isinstance(stream, StoreStream) and source.n_features and dense_after(transforms, False):
        stream.cut_blocks(source.n_features * dtype.itemsize)
    counts = np.zeros(len(stream.classes or ()), np.int64)
    spec = Spec(settings, 0, 0, counts, dense_rows=source.dense_rows)
    files = RunFiles(spec.dual_format(), run, every)
    position = files.recover() or RunPosition(stream=StreamPosition(classes=list(stream.classes or ())))
    assert position.stream is not None
    classes = position.stream.classes
    if position.blocks_done and (
        source.n_features not in (None, position.weights_shape[0])
        or stream.classes not in (None, classes)  # labels are codes of these classes
    ):
        raise RunError(
            f"the features or classes of the stream differ from those with which {run.path} was started",
            remedy=Remedy("restore the old stream, or start a new run"),
        )
    storage = GrowingWeights(position.weights_shape, dtype, (run.weights, run.average_delta))
    files.restore(storage)
    if source.n_features is not None:
        storage.grow(source.n_features, len(classes))
    spec = spec.grown(storage.n_features, len(classes))
    with find_workers(spec, None) as threads:
        assert isinstance(threads, Threads)
        learner = Learner(spec, storage, PlainVisits(VisitPlan(spec), threads))
        yield Online(source, spec.settings, files, learner, position, callbacks, online_settings)
