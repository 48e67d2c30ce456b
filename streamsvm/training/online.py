"""Test, then train: one pass over a stream of rows, each predicted before it is learned from.

A row's duals are zero when it comes and never needed again, so nothing is kept of it: one exact block
step moves the weights, and their average is the model. Features and classes appear on the way, and
memory does not depend on the length of the stream.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from streamsvm import durable, format
from streamsvm.data.label_order import STREAM_WARNING, LabelGroups
from streamsvm.data.memory_plan import private_memory
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, Interrupted, PlanError, RunError, SettingsError, StreamsvmError
from streamsvm.kernels.candidates import Scratch
from streamsvm.kernels.duals import Duals, OldDuals
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.jit import is_compiled
from streamsvm.kernels.tally import CLOCK, CORRECT, EMPTY, N_TALLIES, VISITED
from streamsvm.kernels.weights import AVERAGE_POWER, padded_classes
from streamsvm.losses import get_loss
from streamsvm.model import save_model
from streamsvm.run.checkpoint import Position, check_finite, commit, recover
from streamsvm.run.directory import RunDir, claimed, locked
from streamsvm.run.dual_log import DualLog, make_pool
from streamsvm.run.growing_weights import HORIZON, GrowingWeights
from streamsvm.run.weight_log import restore
from streamsvm.settings import AUTO, Interval, OnlineSettings
from streamsvm.training.auto_c import c_for
from streamsvm.training.trainer import Progress, Report
from streamsvm.transforms.hashing import hash_rows

_NO_IDS = np.dtype(np.uint8)  # of the class ids of duals, of which there are none
_C_ROWS = 1000  # from whose norms C is chosen
_PATIENCE = 0.2  # seconds to wait for rows before asking whether to stop


class Stream(Protocol):
    """What is learned from: rows in an order that is the same each time they are drawn.

    Attributes
    ----------
    resumable : bool
        Whether the stream can be drawn again from a place in it.
    classes : list of str or None
        All classes; None if they appear on the way.
    n_features : int or None
        All features; None if they appear on the way.
    index_base : int
        Number of the first feature in the text, for the model's users.
    """

    resumable: bool
    classes: list[str] | None
    n_features: int | None
    index_base: int

    def batches(
        self, place: dict[str, Any] | None, classes: Sequence[str]
    ) -> Iterator[tuple[Rows, list[str], dict[str, Any]]]:
        """Rows from `place` on; the classes that are new in them; the place behind them, as JSON.

        Labels are codes in `classes` and, beyond, in the order of first appearance. A batch without rows
        may say how far the stream was read beyond the last one.
        """

    def record(self) -> dict[str, Any]:
        """What is kept of the stream so that it can be opened again, as JSON."""

    def sources(self, place: dict[str, Any] | None) -> list[dict[str, Any]]:
        """What ends before `place`, for the model."""

    def summary(self, place: dict[str, Any] | None) -> dict[str, Any]:
        """What was met before `place`."""

    def in_order(self, classes: Sequence[str]) -> np.ndarray:
        """The order in which a model lists `classes`."""

    def warnings(self, classes: Sequence[str]) -> list[str]:
        """What is odd about `classes` that appeared on the way."""


@dataclasses.dataclass(frozen=True)
class OnlineResult:
    """How a pass over a stream ended, and what it met.

    Attributes
    ----------
    status : {"done", "stopped"}
        Whether the stream ended, or could not be drawn any further; then the model is that of the
        rows before.
    C : float
        That trained the rows, from the first 1,000 of them on.
    rows, classes, features : int
    progressive_accuracy : float or None
        Of the rows, each predicted by the weights before it; the first row of a class counts as wrong.
        None where the order of the labels makes it no estimate, as a warning says.
    recent_accuracy : float or None
        The same since the last line of the report.
    rows_per_second, waited_fraction, seconds, peak_memory_bytes, checkpoints, checkpoint_seconds,
    checkpoint_bytes
        As in `FitResult`.
    empty_rows : int
        Rows of norm zero, or without a known label, from which nothing was learned.
    input : dict
        What was met in the input as far as it was learned from.
    model : str
        Folder of the model.
    history : list of dict
        The lines of the report since this process began.
    warnings : list of str
    """

    status: str
    C: float
    rows: int
    classes: int
    features: int
    progressive_accuracy: float | None
    recent_accuracy: float | None
    rows_per_second: float
    waited_fraction: float
    seconds: float
    peak_memory_bytes: int
    checkpoints: int
    checkpoint_seconds: float
    checkpoint_bytes: int
    empty_rows: int
    input: dict[str, Any]
    model: str
    history: list[dict[str, Any]]
    warnings: list[str]


def online(
    stream: Stream,
    out: str | Path,
    *,
    checkpoint_every: str | float = "60s",
    force: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> OnlineResult:
    """Learn from each row of a stream once, in its order, after predicting it.

    The model is the average of the iterates, that after t rows weighted by t.

    Parameters
    ----------
    stream : Stream
        Such as ``streamsvm_converters.TextStream``, with values in the dtype of the settings.
    out : path
        Run directory to create.
    checkpoint_every : str or float
        A time ("0.5s", "60s", "5m"), a number of seconds, or of batches as text ("8 blocks").
    force, report, progress, stop
        As for `fit`; the total of `progress` is None.
    **settings
        ``C="auto", loss="ww", dtype="float32", hash_bits=None, ...``: the fields of
        `streamsvm.settings.OnlineSettings`, which explains them all.

    Returns
    -------
    OnlineResult

    Raises
    ------
    SettingsError
        If a setting is not valid.
    PlanError
        If the weights would be larger than a file can be.
    InputError
        If the stream has no rows, or one class only, or raises it; what was learned before it is
        committed, and of a stream that cannot be drawn again, its model is written.
    RunError
        If `out` is there already, cannot be written, or another process uses it.
    Interrupted
        If `stop` asked for it. Of a stream that cannot be drawn again, the model is that of the rows
        so far.
    """
    asked = OnlineSettings(**settings)
    every = Interval(checkpoint_every)
    _check_classes(stream)
    if asked.hash_bits is not None and stream.index_base != 0:
        raise SettingsError(
            f"hash_bits takes the numbers of features as they stand in the text, and index_base="
            f"{stream.index_base} changes them; leave it 0"
        )
    run = RunDir(out)
    record = {
        "version": format.RUN_VERSION,
        "kind": format.ONLINE,
        "settings": dataclasses.asdict(asked),
        "input": stream.record(),
    }
    with claimed(run, force=force):
        run.write_settings(record)
        learning = _Learning(run, stream, asked, every, report, progress, stop)
        try:
            return learning.run_to_end()
        except Exception:
            if not run.commits():
                durable.remove(run.settings)  # there is nothing to continue: the folder is free again
            raise


def resume(
    run: str | Path,
    open_stream: Callable[[dict[str, Any]], Stream],
    *,
    checkpoint_every: str | float = "60s",
    report: Report | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> OnlineResult:
    """Continue an interrupted pass from its last commit, or a finished one with rows added since.

    The model is byte for byte that of a pass never interrupted, on the same machine and versions. A
    stream that cannot be drawn again ends at the last commit: then that is the model.

    Parameters
    ----------
    run : path
        Run directory made by `online`.
    open_stream : callable
        Makes the stream from its record.
    checkpoint_every, report, progress, stop
        As for `online`.

    Raises
    ------
    RunError
        If there is no such run, every commit is damaged or one cannot be read, or there is none and
        the stream cannot be drawn again.
    InputError
        If what was learned from has changed.
    """
    every = Interval(checkpoint_every)
    directory = RunDir(run)
    directory.read_settings()  # before the lock file is made, so that a wrong path stays clean
    with locked(directory):
        record = directory.read_settings()
        if record.get("kind") != format.ONLINE:
            raise RunError(f"{directory.path} was trained on a store; continue it with `streamsvm.resume`")
        asked, stream = OnlineSettings(**record["settings"]), open_stream(record["input"])
        _check_classes(stream)
        return _Learning(directory, stream, asked, every, report, progress, stop).run_to_end(again=True)


def _check_classes(stream: Stream) -> None:
    if stream.classes is not None and len(stream.classes) < 2:
        raise PlanError(f"{len(stream.classes)} class is given; a classifier needs two or more")


class _Learning:
    """A pass in progress: its files, its position, and the loop."""

    def __init__(
        self,
        run: RunDir,
        stream: Stream,
        settings: OnlineSettings,
        every: Interval,
        report: Report | None,
        progress: Progress | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self.run = run
        self.stream = stream
        self.settings = settings
        self.every = every
        self.report = report or (lambda event: None)
        self.progress = progress or (lambda stage, done, total: None)
        self.stop = stop or (lambda: False)
        self.loss = get_loss(settings.loss)
        self.solver = self.loss.solvers.index(settings.solver)
        self.dtype = np.dtype(settings.dtype)
        self.scratch = Scratch.create(0, self.dtype)
        self.no_pool = make_pool(0, 0, self.dtype, _NO_IDS)
        self.no_duals = DualLog(run.duals(0), self.dtype, _NO_IDS, 1, write=False)
        self.peak = private_memory()
        self.checkpoints = 0
        self.checkpoint_seconds = 0.0
        self.checkpoint_bytes = 0
        self.waited = 0.0
        self.told = False  # of the order of the labels
        self.history: list[dict[str, Any]] = []

    # -- the loop ----------------------------------------------------------------------------------

    def run_to_end(self, *, again: bool = False) -> OnlineResult:
        self.report({"event": "plan", **dataclasses.asdict(self.settings), **self.stream.record()})
        position, self.warnings = recover(self.run, None, self.dtype, _NO_IDS, True)
        fixed = self.settings.hash_bits is not None or self.stream.n_features is not None
        if position is None:
            if self.run.model.exists():  # of a run that ended, so it had commits
                self.warnings.append(f"the commits of {self.run.path} are gone; it began anew")
            durable.remove(self.run.metrics)
            self.position = Position(0, 0, [0.0] * N_TALLIES, {}, [], stream=None)
            self.classes = list(self.stream.classes or ())
            self.place: dict[str, Any] | None = None
            self.norms: list[Any] = [0.0, 0]  # sum and number of the first rows' squared norms
            self.marked = [0, 0]  # rows and correct ones at the last line of the report
            self.groups = LabelGroups()
            self.ended = False
            shape = 0, 0
        else:
            shape = self._restore(position)
        files_of = (self.run.weights, self.run.lag, self.run.marks)
        self.weights = GrowingWeights(files_of, shape, self.dtype)
        if self.position.changes_number:
            log = self.run.changes(self.position.changes_number)
            restore(log, self.position.changes_length, self.weights.weights)
        if fixed:
            bits = self.settings.hash_bits
            width = self.stream.n_features if bits is None else 2**bits
            self.weights.grow(int(width or 0), len(self.classes))
        self.width = self.weights.n_features  # features seen; those beyond are mapped for rows to come
        self.tally = np.array(self.position.tally)
        self._use_classes()
        self._compile()
        if again and not self.stream.resumable:
            return self._end_early(position)
        self.before = self.position.seconds
        self.begin = time.perf_counter()
        self.every.restart()
        learned = self._learn_all()
        if self.visited == 0:
            raise InputError("the input has no rows to learn from")
        if learned or not self.ended:
            self.ended = True
            if self.marked[0] != self.visited:
                self._mark()
            self._commit()
        if len(self.classes) < 2:
            raise InputError(
                f"all {self.visited:,} rows have the label {self.classes[0]}; a classifier needs two classes"
            )
        self._save()
        return self._result("done")

    def _restore(self, position: Position) -> tuple[int, int]:
        """Go to a position; return the shape of its weights."""
        state = position.stream or {}
        shape: Any = state.get("shape")
        classes: Any = state.get("classes")
        marked: Any = state.get("marked")
        norms: Any = state.get("norms")
        bits = self.settings.hash_bits
        width = self.stream.n_features if bits is None else 2**bits
        sound = (
            isinstance(shape, list)
            and len(shape) == 2
            and all(type(n) is int and n >= 0 for n in shape)
            and width in (None, shape[0])
            and format.are_labels(classes)
            and self.stream.classes in (None, classes)  # whose codes the stream gives to labels
            and padded_classes(len(classes), self.dtype) <= shape[1] == padded_classes(shape[1], self.dtype)
            and isinstance(marked, list)
            and len(marked) == 2
            and all(type(n) is int for n in marked)
            and isinstance(norms, list)
            and [type(n) for n in norms] == [float, int]
            and LabelGroups.is_state(state.get("label_groups"), len(classes))
            and isinstance(state.get("place"), dict)
            and all(0 <= position.tally[each] < 2**53 for each in (VISITED, CORRECT, CLOCK))
        )
        if not sound:
            raise RunError(f"the newest commit of {self.run.path} is not one of this run; begin anew")
        self.position, self.classes, self.marked, self.norms = position, classes, marked, norms
        self.place, self.ended = state["place"], bool(state.get("ended"))
        self.groups = LabelGroups(state["label_groups"])
        return shape[0], shape[1]

    def _compile(self) -> None:
        """Compile or load the kernels on no rows, so that neither counts as training."""
        begin = time.perf_counter()
        if not is_compiled(self.loss.visit):
            self.report({"event": "compile"})
        none = np.zeros(0, np.int64)
        narrow = none.astype(np.int32)
        rows = Rows(np.zeros(0, self.dtype), narrow, np.zeros(1, np.int64), narrow, np.zeros(0))
        if self.settings.hash_bits is not None:
            rows = hash_rows(rows, self.settings.hash_bits, self.settings.seed)
        self._visit(self._narrowed(rows), none, 0, 0, self.no_duals.segment(0, 0))
        self.report({"event": "ready", "seconds": time.perf_counter() - begin})

    def _learn_all(self) -> int:
        """Learn from all batches that are left, committing when it is time; return how many they were."""
        before = self.position.blocks_done
        batches = self.stream.batches(self.place, self.classes)
        ahead = _Ahead(batches, wait=self.stream.resumable)
        try:
            while True:
                begin = time.perf_counter()
                try:
                    batch, stopping = ahead.draw(self.stop)
                except StreamsvmError as error:
                    raise self._left_by(error, before) from None
                self.waited += time.perf_counter() - begin
                if batch is not None:
                    rows, new, place = batch
                    try:
                        self._learn(rows, new)
                    except PlanError as error:  # before any of these rows was learned from
                        raise self._left_by(error, before) from None
                    self.place = place
                    if rows.n_rows == 0:
                        continue
                    self.position.blocks_done += 1
                    self.peak = max(self.peak, private_memory())
                    self.progress("online", self.visited, None)  # type: ignore[arg-type]
                    stopping = stopping or self.stop()
                    if self.every.due(1) and not stopping:
                        self._commit()
                if stopping:
                    self._interrupt()
                if batch is None:
                    return self.position.blocks_done - before
        finally:
            ahead.close()

    def _left_by(self, error: StreamsvmError, before: int) -> StreamsvmError:
        """Commit, for a bad row does not undo those before it; the error, which says what is left of them."""
        if self.position.blocks_done == before:
            return error
        self._commit()
        if self.stream.resumable:
            if isinstance(error, PlanError):  # for which other options are needed
                return error
            remains = f"`streamsvm resume {self.run.path}` continues after them, once that is mended"
        else:
            if len(self.classes) < 2:
                return error
            self._save()
            remains = f"{self.run.model} is their model"
        return type(error)(f"{error}; {self.visited:,} rows before were learned from: {remains}")

    def _learn(self, rows: Rows, new: list[str]) -> None:
        """Predict and learn from `rows`; pause where a class appears, and where to report."""
        rows = rows._replace(data=rows.data.astype(self.dtype, copy=False))
        if self.settings.hash_bits is not None:
            rows = hash_rows(rows, self.settings.hash_bits, self.settings.seed)
        elif len(rows.indices):
            largest = int(rows.indices.max())
            try:
                self.weights.grow(largest + 1, len(self.classes) + len(new))
            except PlanError as error:
                at = int(np.argmax(rows.indices == largest))
                row = self.visited + int(np.searchsorted(rows.indptr, at, "right"))
                raise PlanError(f"row {row:,} has the feature {largest:,}: {error}") from None
        rows = self._narrowed(rows).with_cost(0.0)
        firsts = []
        if new:
            codes, at_first = np.unique(rows.labels, return_index=True)
            firsts = at_first[np.searchsorted(codes, len(self.classes)) :].tolist()
        order, old = np.arange(rows.n_rows), self.no_duals.segment(0, rows.n_rows)
        at = counted = 0
        while at < rows.n_rows:
            end = min(rows.n_rows, at + (1 << self.visited.bit_length()) - self.visited)
            if self.settings.C == AUTO and self.visited < _C_ROWS:
                end = at + 1  # C is of the rows so far, this one included
                self.norms = [self.norms[0] + float(rows.norm2[at]), self.norms[1] + int(rows.norm2[at] > 0)]
            if firsts and firsts[0] == at:
                end = at + 1
                self.classes.append(new[len(new) - len(firsts)])
                self._use_classes()
                correct = self.tally[CORRECT]
                self._visit(rows, order, at, end, old)
                self.tally[CORRECT] = correct  # what nobody knew was not predicted
                del firsts[0]
            else:
                end = min([end, *firsts[:1]])
                self._visit(rows, order, at, end, old)
            seen = rows.indices[rows.indptr[at] : rows.indptr[end]]
            if len(seen):
                self.width = max(self.width, int(seen.max()) + 1)
            at = end
            if self.visited.bit_count() == 1 or at == rows.n_rows:
                self.groups.add(rows.labels[counted:at])
                counted = at
            if self.visited.bit_count() == 1:
                self._mark()

    def _use_classes(self) -> None:
        """Have columns and scratch for the classes known now: rows are scored for them alone."""
        self.weights.grow(self.weights.n_features, len(self.classes))
        columns = padded_classes(max(len(self.classes), 1), self.dtype)
        if len(self.scratch.scores) != columns:
            self.scratch = Scratch.create(columns, self.dtype)

    def _narrowed(self, rows: Rows) -> Rows:
        """Rows with indices of the type that numbers the features: half as wide, while they fit."""
        dtype = format.index_dtype(self.weights.n_features)
        return rows._replace(indices=rows.indices.astype(dtype, copy=False))

    def _visit(self, rows: Rows, order: np.ndarray, begin: int, end: int, old: OldDuals) -> None:
        rows.cost[begin:end] = self.C
        self.loss.visit(
            rows, order, begin, end, Problem(len(self.classes), self.settings.margin, self.solver),
            self.weights.weights, Duals(old, self.no_pool), self.scratch, self.tally, None,
        )  # fmt: skip

    def _end_early(self, position: Position | None) -> OnlineResult:
        """End a pass over a stream that cannot be drawn again at its last commit."""
        if position is None or len(self.classes) < 2:
            raise RunError(
                f"{self.run.path} learned from standard input or a pipe, which cannot be read again, and has "
                "no commit to end at: begin anew, with --force"
            )
        self.before, self.begin = self.position.seconds, time.perf_counter()
        if not self.ended:
            self.warnings.append(
                "standard input or a pipe cannot be read again and is not resumed: the model is that "
                f"of the {self.visited:,} rows learned from up to the last commit"
            )
        self._save()
        return self._result("done" if self.ended else "stopped")

    # -- files -------------------------------------------------------------------------------------

    def _commit(self) -> None:
        begin = time.perf_counter()
        used = self.weights.used
        position = self.position
        position.tally = self.tally.tolist()
        position.seconds = self.before + begin - self.begin
        position.stream = {
            "place": self.place,
            "classes": self.classes,
            "shape": list(used.current.shape),
            "marked": self.marked,
            "norms": self.norms,
            "label_groups": self.groups.state.tolist(),
            "ended": self.ended,
        }
        if self.run.metrics.exists():
            durable.sync_tree(self.run.metrics)
        self.checkpoint_bytes += commit(self.run, position, used, anew=self.weights.laid_out)
        self.weights.laid_out = False
        self.checkpoints += 1
        self.checkpoint_seconds += time.perf_counter() - begin
        self.every.restart()

    def _interrupt(self) -> None:
        """Commit, and end; a stream that cannot be drawn again leaves its model behind."""
        if self.visited == 0:
            raise Interrupted("stopped before the first row")
        self._commit()
        if self.stream.resumable:
            raise Interrupted(
                f"stopped after {self.visited:,} rows; `streamsvm resume {self.run.path}` continues"
            )
        if len(self.classes) < 2:
            raise Interrupted(f"stopped after {self.visited:,} rows of one class; there is no model yet")
        self._save()
        raise Interrupted(
            f"stopped after {self.visited:,} rows, of which {self.run.model} is the model; standard input or "
            "a pipe cannot be resumed"
        )

    def _save(self) -> None:
        clock = max(float(self.tally[CLOCK]), 1.0)
        order = np.arange(len(self.classes))
        if self.stream.classes is None:
            order = self.stream.in_order(self.classes)
        used = self.weights.used
        save_model(
            self.run.model, used.current, self._model_record(order),
            lag=used.average_delta, lagging=(HORIZON / clock) ** AVERAGE_POWER, columns=order,
            marks=used.dirty,
        )  # fmt: skip
        self.run.remove_weights()

    def _log(self, record: dict[str, Any]) -> None:
        """Report `record`, and append it to the metrics."""
        check_finite(self.run, [self.tally.tolist(), record])
        with durable.open_file(self.run.metrics, "ab") as file:
            file.write(json.dumps(record).encode() + b"\n")
            self.position.metrics_length = file.tell()
        self.history.append(record)
        self.report(record)

    # -- records -----------------------------------------------------------------------------------

    @property
    def visited(self) -> int:
        return int(self.tally[VISITED])

    @property
    def C(self) -> float:
        """The C that was asked for, or that of the first rows."""
        return c_for(*self.norms) if self.settings.C == AUTO else self.settings.C

    def _mark(self) -> None:
        """Report how it goes."""
        if self.groups.alike and not self.told:
            self.told = True
            self.report({"event": "warning", "warning": STREAM_WARNING})
        record = {"event": "rows", **self._figures()}
        self.marked = [self.visited, int(self.tally[CORRECT])]
        self._log(record)

    def _figures(self) -> dict[str, Any]:
        rows, correct = self.visited, int(self.tally[CORRECT])
        seconds = self.before + time.perf_counter() - self.begin
        accuracy = correct / max(rows, 1)
        since = rows - self.marked[0]
        recent = (correct - self.marked[1]) / since if since else accuracy
        grouped = self.groups.alike
        return {
            "rows": rows,
            "progressive_accuracy": None if grouped else accuracy,
            "recent_accuracy": None if grouped else recent,
            "classes": len(self.classes),
            "features": self.width,
            "empty_rows": int(self.tally[EMPTY]),
            "rows_per_second": rows / max(seconds, 1e-9),
            "seconds": seconds,
        }

    def _model_record(self, order: np.ndarray) -> dict[str, Any]:
        """What the model says of itself: nothing that differs between equal passes."""
        settings = dataclasses.asdict(self.settings)
        bits, seed = settings.pop("hash_bits"), settings.pop("seed")
        return {
            "classes": [self.classes[code] for code in order],
            "n_features": self.weights.n_features,
            "index_base": self.stream.index_base,
            **settings,
            "C": self.C,
            "C_auto": self.settings.C == AUTO,
            **({} if bits is None else {"hash": {"bits": bits, "seed": seed}}),
            "average": True,
            "passes": 1,
            "rows": self.visited,
            "sources": self.stream.sources(self.place),
        }

    def _result(self, status: str) -> OnlineResult:
        figures = self._figures()
        if self.history:  # the last line says it, of the time before the model was written too
            figures = {name: self.history[-1][name] for name in figures}
        odd = self.stream.warnings(self.classes) if self.stream.classes is None else []
        if self.groups.alike:
            odd.append(STREAM_WARNING)
        return OnlineResult(
            status=status,
            C=self.C,
            **figures,
            waited_fraction=self.waited / max(time.perf_counter() - self.begin, 1e-9),
            peak_memory_bytes=self.peak,
            checkpoints=self.checkpoints,
            checkpoint_seconds=self.checkpoint_seconds,
            checkpoint_bytes=self.checkpoint_bytes,
            input=self.stream.summary(self.place),
            model=str(self.run.model),
            history=self.history,
            warnings=self.warnings + odd,
        )


class _Ahead:
    """Draws from an iterator in a thread, one item ahead of its use.

    A pipe may stay silent for ever: whoever waits for an item can be asked to stop meanwhile, and
    the thread is left behind when the process ends.
    """

    def __init__(self, items: Iterator[Any], *, wait: bool) -> None:
        self._items = items
        self._wait = wait
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._drawn: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="streamsvm-read", daemon=True)
        self._thread.start()
        self._wanted.put(True)

    def _serve(self) -> None:
        while self._wanted.get():
            try:
                self._drawn.put((next(self._items, None), None))
            except BaseException as error:
                self._drawn.put((None, error))
        self._items.close()  # type: ignore[attr-defined]

    def draw(self, stop: Callable[[], bool]) -> tuple[Any, bool]:
        """The next item, None at the end; and whether `stop` asked to go without it."""
        while True:
            try:
                item, error = self._drawn.get(timeout=_PATIENCE)
            except queue.Empty:
                if stop():
                    return None, True
                continue
            if error is not None:
                raise error
            if item is not None:
                self._wanted.put(True)
            return item, False

    def close(self) -> None:
        self._wanted.put(False)
        if self._wait:
            self._thread.join()
