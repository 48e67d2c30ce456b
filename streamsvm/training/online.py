"""Online training: one pass over a stream of rows, each predicted before it is learned from.

The duals of a row are zero when it arrives and never needed again, so nothing is kept of it: one exact block
step moves the weights, and their average is the model. Features and classes may appear on the way, and
memory does not depend on the length of the stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from streamsvm.base.prefetch import Prefetcher
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
)
from streamsvm.inputs.schema import reading_of
from streamsvm.kernels.tally import CORRECT, EMPTY
from streamsvm.model.results import OnlineResult
from streamsvm.run.checkpoint import RunPosition, StreamPosition
from streamsvm.run.files import NewLog, RunFiles
from streamsvm.settings.fit import AUTO, Settings
from streamsvm.settings.online import OnlineSettings
from streamsvm.training.learner import Learner
from streamsvm.training.sources import StreamPlace, StreamSource, TrainingBlock
from streamsvm.training.trainer import Callbacks, Trainer
from streamsvm.transforms import records_of


class Online(Trainer):
    """Trainer for one pass over a stream.

    Parameters
    ----------
    source : StreamSource
    online_settings : OnlineSettings
        Settings for the model's record; `settings` is their form for the training loop.
    learner : Learner
    files : RunFiles
    position : RunPosition
        With a `StreamPosition`.
    """

    source: StreamSource
    files: RunFiles

    def __init__(
        self,
        source: StreamSource,
        online_settings: OnlineSettings,
        settings: Settings,
        files: RunFiles,
        learner: Learner,
        position: RunPosition,
        callbacks: Callbacks,
    ) -> None:
        super().__init__(source, settings, files, learner, position, callbacks)
        self.stream = source.stream
        self._online_settings = online_settings
        self._run = files.run
        state = position.stream
        assert state is not None
        self._place = StreamPlace(state.place or None, state.norms)
        self._classes = list(state.classes)
        self._groups = LabelGroups(state.label_groups)
        self._n_features = learner.storage.n_features  # of the rows learned from; the storage has the block's
        self._counted = 0  # rows of the present block that _groups and _n_features include
        self._reported = state.reported  # rows and correct ones at the last line of the report
        self._ended = state.ended  # True once the stream was read to its end
        self._has_warned = False
        self._blocks_before = position.blocks_done
        self._history: list[dict[str, Any]] = []

    def run(self) -> OnlineResult:
        """Learn from all rows that are left, and save the model."""
        self.train()
        return self._save("done")

    def end_early(self) -> OnlineResult:
        """End a pass over a stream that cannot be read again, at its last commit."""
        if not self._run.commits() or len(self._classes) < 2:
            raise RunError(
                f"{self._run.path} learned from standard input or a pipe, which cannot be read again, and "
                "has no commit to end at",
                remedy=Remedy("begin anew, with {}", Option("force", True)),
            )
        if not self._ended:
            self.files.warnings.append(
                "standard input or a pipe cannot be read again and is not resumed: the model is that "
                f"of the {self.learner.visited:,} rows learned from up to the last commit"
            )
        return self._save("done" if self._ended else "stopped")

    # -- the pass ----------------------------------------------------------------------------------

    def remaining_passes(self) -> Iterator[int]:
        yield 1

    def blocks_left(self, this_pass: int) -> Prefetcher[TrainingBlock]:
        begin = self._place, self.position.blocks_done, self.learner.visited, list(self._classes)
        # A pipe may stay silent for ever: `stop` is called meanwhile, and nothing waits for the thread then.
        return Prefetcher(self.source.blocks(this_pass, begin), self.stop, join=self.stream.resumable)

    def make_room(self, block: TrainingBlock) -> None:
        storage, rows = self.learner.storage, block.rows
        n_features, n_classes = storage.n_features, self.learner.n_classes + len(block.new_classes)
        if self.source.n_features is not None or len(rows.data) == 0:
            storage.grow(n_features, n_classes)
            return
        largest = rows.largest_feature
        try:
            storage.grow(largest + 1, n_classes)
        except PlanError as error:
            at = 0 if rows.dense else int(np.argmax(rows.features == largest))
            row = self.learner.visited + int(np.searchsorted(rows.indptr, at, "right"))
            raise PlanError(
                f"row {row:,} has the feature {largest:,}: {error.message.problem}", remedy=error.remedy
            ) from None

    def position_after(self, block: TrainingBlock) -> RunPosition:
        self._classes += block.new_classes
        assert block.place is not None
        self._place = block.place
        self._count(block, block.rows.n_rows)
        self._counted = 0
        if block.rows.n_rows == 0:  # as behind the last row of a stream: nothing was learned
            return self.position
        self._ended = False
        return dataclasses.replace(self.position, blocks_done=self.position.blocks_done + 1)

    def commit(self, new: NewLog | None = None) -> None:
        # A StreamPosition is as large as the list of classes, so it is made for commits alone, not for each
        # block.
        state = StreamPosition(
            place=self._place.place or {},
            classes=list(self._classes),
            reported=self._reported,
            norms=self._place.norms,
            label_groups=self._groups.state.tolist(),
            ended=self._ended,
        )
        self.position = dataclasses.replace(self.position, stream=state)
        super().commit(new)

    def next_pause(self, visited: int) -> int:
        return 1 << visited.bit_length()

    def at_pause(self, block: TrainingBlock, at: int) -> None:
        self._count(block, at)
        self._report_rows()

    def _count(self, block: TrainingBlock, at: int) -> None:
        """Count labels and features of the rows of a block before `at`."""
        rows = block.rows
        self._groups.add(rows.labels[self._counted : at])
        self._n_features = max(self._n_features, row_span(rows, self._counted, at).largest_feature + 1)
        self._counted = at

    def average_begins(self, this_pass: int) -> int | None:
        return 0

    def end_pass(self, this_pass: int) -> None:
        visited = self.learner.visited
        if visited == 0:
            raise InputError("the input has no rows to learn from")
        if not self._ended:
            if self._reported[0] != visited:
                self._report_rows()
            self._ended = True
            self.commit()
        if len(self._classes) < 2:
            raise InputError(
                f"all {visited:,} rows have the label {self._classes[0]}; a classifier needs two classes"
            )

    def failed(self, error: StreamsvmError) -> StreamsvmError:
        """Commit what was learned from the rows before a bad one, and tell in the error how to use it."""
        if self.position.blocks_done == self._blocks_before:
            return error
        self.commit()
        if self.stream.resumable:
            if isinstance(error, PlanError):  # other settings are needed
                return error
            remedy = Remedy("{} continues after them, once that is mended", Call("resume", self._run.path))
        else:
            if len(self._classes) < 2:
                return error
            self._save("stopped")
            remedy = Remedy(f"{self._run.model} is their model")
        problem = f"{error.message.problem}; {self.learner.visited:,} rows before were learned from"
        return type(error)(problem, remedy=remedy)

    def stopped(self) -> NoReturn:
        visited = self.learner.visited
        if visited == 0:
            raise Interrupted("stopped before the first row")
        if self.stream.resumable:
            raise Interrupted(
                f"stopped after {visited:,} rows",
                remedy=Remedy("{} continues", Call("resume", self._run.path)),
            )
        if len(self._classes) < 2:
            raise Interrupted(f"stopped after {visited:,} rows of one class; there is no model yet")
        self._save("stopped")
        raise Interrupted(
            f"stopped after {visited:,} rows, of which {self._run.model} is the model; standard input or "
            "a pipe cannot be resumed"
        )

    # -- reports -----------------------------------------------------------------------------------

    def stage(self, this_pass: int) -> str:
        return "online"

    def _report_rows(self) -> None:
        if self._groups.alike and not self._has_warned:
            self._has_warned = True
            self.report({"event": "warning", "warning": STREAM_WARNING})
        record = {"event": "rows", **self._figures()}
        self._reported = self.learner.visited, int(self.learner.tally[CORRECT])
        self.log(record)
        self._history.append(record)

    def _figures(self) -> dict[str, Any]:
        rows, correct = self.learner.visited, int(self.learner.tally[CORRECT])
        seconds = self.seconds()
        accuracy = correct / max(rows, 1)
        since = rows - self._reported[0]
        recent = (correct - self._reported[1]) / since if since else accuracy
        hidden = self._groups.alike  # no estimate then
        return {
            "rows": rows,
            "progressive_accuracy": None if hidden else accuracy,
            "recent_accuracy": None if hidden else recent,
            "classes": self.learner.n_classes,
            "features": self._n_features,
            "empty_rows": int(self.learner.tally[EMPTY]),
            "rows_per_second": rows / max(seconds, 1e-9),
            "seconds": seconds,
        }

    def _save(self, status: str) -> OnlineResult:
        order = np.arange(len(self._classes))
        if self.stream.classes is None:
            order = self.stream.in_order(self._classes)
        model = self.files.save_model(
            self.learner.coefficients(order, average=True), self._model_record(order),
            self.stream.feature_names, saved=lambda model: self.report({"event": "saved", "model": model}),
        )  # fmt: skip
        figures = self._figures()
        if self._history:  # of the time before the model was written
            figures = {name: self._history[-1][name] for name in figures}
        warnings: list[str] = [STREAM_WARNING] if self._groups.alike else []
        return OnlineResult(
            status=status,
            C=self.source.C_at(self._place),
            **figures,
            waited_fraction=self.waited / max(figures["seconds"], 1e-9),
            peak_memory_bytes=self.peak,
            checkpoints=self.files.checkpoints,
            checkpoint_seconds=self.files.checkpoint_seconds,
            checkpoint_bytes=self.files.checkpoint_bytes,
            input=self.stream.summary(self._place.place),
            model=model,
            history=self._history,
            warnings=self.files.warnings + warnings,
        )

    def _model_record(self, order: np.ndarray) -> dict[str, Any]:
        """Return the model's record, which has no entry that differs between equal passes."""
        online_settings, classes = self._online_settings, [self._classes[code] for code in order]
        return {
            "classes": classes,
            "label_dtype": self.stream.label_dtype(classes),
            "n_features": self.learner.storage.n_features,
            "index_base": self.stream.index_base,
            **reading_of(self.stream.record()),
            "loss": online_settings.loss,
            "dtype": online_settings.dtype,
            **online_settings.of_loss,
            "C": self.source.C_at(self._place),
            "C_auto": online_settings.C == AUTO,
            "transforms": records_of(self.source.transforms),
            "average": True,
            "passes": 1,
            "rows": self.learner.visited,
            "sources": self.stream.sources(self._place.place),
        }


def new_position(classes: Sequence[str] | None) -> RunPosition:
    """Return the position before the first row, with the classes that are known beforehand."""
    groups = LabelGroups().state.tolist()
    return RunPosition(stream=StreamPosition({}, list(classes or ()), (0, 0), (0.0, 0), groups, False))
