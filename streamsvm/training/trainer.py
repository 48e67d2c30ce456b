"""The training loop: it streams blocks through a learner, commits, reports and stops."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from streamsvm.base.prefetch import Prefetcher, Stopped
from streamsvm.base.progress import Progress, Report, logged
from streamsvm.data.memory_plan import private_memory
from streamsvm.errors import StreamsvmError
from streamsvm.run.checkpoint import RunPosition
from streamsvm.run.files import Files, NewLog, OldLog
from streamsvm.settings.fit import Settings
from streamsvm.training.learner import Learner
from streamsvm.training.sources import Source, TrainingBlock

_MEMORY_SECONDS = 0.1  # between two measurements of memory, which read a file of the system


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """Callbacks for the reports and the progress of a training, and to stop it.

    Attributes
    ----------
    report : callable
        Called with a dict for each event.
    progress : callable
        Called with a stage, the rows done, and the rows in all or None.
    stop : callable
        Called after each block; if it returns true, the training commits and raises `Interrupted`.
    """

    report: Report = lambda event: None
    progress: Progress = lambda stage, done, total: None
    stop: Callable[[], bool] = lambda: False

    @classmethod
    def of(
        cls, report: Report | None, progress: Progress | None, stop: Callable[[], bool] | None
    ) -> Callbacks:
        """Return the given callbacks with defaults for the others; events are logged, too."""
        return cls(logged(report), progress or cls.progress, stop or cls.stop)


class Trainer(abc.ABC):
    """Base of trainers: a training in progress.

    Subclasses define what differs between several passes over a store and one over a stream: which passes
    are left, what is reported, and what happens when a pass ends.

    Parameters
    ----------
    source : Source
    settings : Settings
    files : RunFiles or MemoryRun
    learner : Learner
        Learner with the weights of `position`.
    position : RunPosition
        Position to begin at.
    callbacks : Callbacks

    Attributes
    ----------
    position : RunPosition
        Progress of the training, in the form that commits record.
    waited : float
        Seconds of the present pass spent waiting for rows.
    peak : int
        Largest private memory observed, in bytes.
    """

    def __init__(
        self,
        source: Source,
        settings: Settings,
        files: Files,
        learner: Learner,
        position: RunPosition,
        callbacks: Callbacks,
    ) -> None:
        self.source = source
        self.settings = settings
        self.files = files
        self.learner = learner
        self.learner.tally[:] = position.tally
        self.position = position
        self.report, self.progress, self.stop = callbacks.report, callbacks.progress, callbacks.stop
        self.dtype = np.dtype(settings.dtype)
        self.peak = private_memory()
        self._memory_due = -np.inf
        self.waited = 0.0
        # When the present pass began in this process, and what earlier ones spent on it.
        self._begin, self._before = time.perf_counter(), position.pass_seconds

    # -- for subclasses ----------------------------------------------------------------------------

    @abc.abstractmethod
    def remaining_passes(self) -> Iterator[int]:
        """Yield the numbers of the passes to make, each after the one before has ended."""

    @abc.abstractmethod
    def blocks_left(self, this_pass: int) -> Prefetcher[TrainingBlock]:
        """Read the blocks of a pass that are not yet trained, in a thread if there may be several."""

    @abc.abstractmethod
    def position_after(self, block: TrainingBlock) -> RunPosition:
        """Return the position after a block, without the entries that the loop itself records."""

    @abc.abstractmethod
    def next_pause(self, visited: int) -> int:
        """Return the number of visited rows in the pass at which to pause next, after `visited` of them."""

    @abc.abstractmethod
    def at_pause(self, block: TrainingBlock, at: int) -> None:
        """Report, if a report is due, within a block of which the first `at` rows have been visited."""

    @abc.abstractmethod
    def average_begins(self, this_pass: int) -> int | None:
        """Return the number of visited rows at which the average of a pass begins; None without average."""

    @abc.abstractmethod
    def end_pass(self, this_pass: int) -> None:
        """Report and commit a pass whose blocks have all been learned."""

    @abc.abstractmethod
    def stopped(self) -> NoReturn:
        """Raise `Interrupted` after what was learned has been committed."""

    def failed(self, error: StreamsvmError) -> StreamsvmError:
        """Return the error to raise when the source, or making room for its rows, failed with `error`."""
        return error

    def make_room(self, block: TrainingBlock) -> None:  # noqa: B027
        """Make room for the features and classes of a block."""

    def whole(self, block: TrainingBlock, take: Callable[[], Any]) -> TrainingBlock:
        """Return the block of which the source has yielded the first piece; `take` returns the next one."""
        return block

    def begin_pass(self, this_pass: int) -> None:  # noqa: B027
        """Prepare a pass, or the rest of one."""

    # -- the loop ----------------------------------------------------------------------------------

    def train(self) -> None:
        """Make the remaining passes."""
        self._compile()
        self.files.every.restart()
        try:
            for this_pass in self.remaining_passes():
                self._train_pass(this_pass)
                self.end_pass(this_pass)
        except StreamsvmError:
            self.files.write_metrics(self.position)  # what was reported since the last commit
            raise

    def _compile(self) -> None:
        begin = time.perf_counter()
        old = self.files.old_duals(self.position, 0)
        self.learner.compile(self.source.empty(), old.segment(0, 0))
        self.report({"event": "ready", "seconds": time.perf_counter() - begin})

    def _train_pass(self, this_pass: int) -> None:
        settings, learner = self.settings, self.learner
        learner.averaging = self.position.average_pass == this_pass
        self._begin, self._before = time.perf_counter(), self.position.pass_seconds
        self.begin_pass(this_pass)
        old = self.files.old_duals(self.position, this_pass - 1)
        new = self.files.new_duals(self.position, this_pass) if settings.keep_duals else None
        blocks = self.blocks_left(this_pass)
        try:
            while (block := self._next(blocks, new)) is not None:
                block = self.whole(block, lambda: self._next(blocks, new))
                self._learn(block, old, new)
                position = self.position_after(block)
                self.position = dataclasses.replace(
                    position,
                    tally=tuple(learner.tally.tolist()),
                    duals=position.duals if new is None else position.duals | {this_pass: new.end},
                    pass_seconds=self.seconds(),
                )
                if block.rows.n_rows == 0:
                    continue
                self.note_memory()
                self.progress(self.stage(this_pass), learner.visited, self.source.n_rows)
                stopping = self.stop()
                if self.files.every.due(1) or stopping:
                    self.commit(new)
                if stopping:
                    self.stopped()
        finally:
            self.waited = blocks.waited
            blocks.close()
            if new is not None:
                new.close()

    def seconds(self) -> float:
        """Return the time spent in the present pass, in earlier processes too."""
        return self._before + max(time.perf_counter() - self._begin, 0.0)

    def note_memory(self) -> None:
        """Measure the memory, unless that was done a moment ago."""
        if (now := time.monotonic()) >= self._memory_due:
            self.peak = max(self.peak, private_memory())
            self._memory_due = now + _MEMORY_SECONDS

    def stage(self, this_pass: int) -> str:
        """Return the name of a pass for `progress`."""
        return f"pass {this_pass} of {self.settings.passes}"

    def _next(self, blocks: Prefetcher[TrainingBlock], new: NewLog | None) -> TrainingBlock | None:
        """Return the next block, or None at the end of the pass."""
        try:
            return next(blocks, None)
        except Stopped:
            if self.learner.visited:
                self.commit(new)
            self.stopped()
        except StreamsvmError as error:
            raise self.failed(error) from None

    def _learn(self, block: TrainingBlock, old: OldLog, new: NewLog | None) -> None:
        learner, this_pass = self.learner, block.pass_number
        try:
            self.make_room(block)
        except StreamsvmError as error:  # before any of these rows was learned from
            raise self.failed(error) from None
        learner.storage.check_room(block.rows)
        self._begin_average_if_due(this_pass)
        duals = learner.read_duals(old, block.number, block.rows)._replace(scale=self.position.dual_scale)
        for at in learner.learn(block, duals, new, self.next_pause):
            self.files.check_finite(learner.tally.tolist())
            self.at_pause(block, at)
            self._begin_average_if_due(this_pass)
        self.files.check_finite(learner.tally.tolist())

    def _begin_average_if_due(self, this_pass: int) -> None:
        begins, has_begun = self.average_begins(this_pass), self.position.average_pass == this_pass
        # The visited rows are beyond the place, if a group of rows ended later.
        if begins is not None and not has_begun and begins <= self.learner.visited:
            self.learner.begin_average()
            self.position = dataclasses.replace(self.position, average_pass=this_pass)

    # -- commits and reports -----------------------------------------------------------------------

    def commit(self, new: NewLog | None = None) -> None:
        """Commit the position, with the log of duals that is being written."""
        self.peak = max(self.peak, private_memory())
        self.position = self.files.commit(self.position, self.learner.storage, new)

    def log(self, record: dict[str, Any]) -> None:
        """Report `record`, and append it to the metrics."""
        self.position = self.files.append_metrics(self.position, record)
        self.report(record)
