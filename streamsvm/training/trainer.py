"""The training loop: it streams blocks through a learner, commits, reports and stops."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from streamsvm.base.progress import Progress, Report, logged
from streamsvm.data.memory_plan import private_memory
from streamsvm.data.rows import Rows
from streamsvm.errors import StreamsvmError
from streamsvm.kernels.jit import running_time
from streamsvm.run.files import RunFiles
from streamsvm.run.manifest import RunPosition
from streamsvm.settings.fit import Settings
from streamsvm.training.learner import Learner
from streamsvm.training.sources import ShuffledSource, TrainingBlock
from streamsvm.training.stream import StreamSource

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


@dataclasses.dataclass(eq=False)
class Trainer:
    """A training in progress: its loop over blocks, and the reports and commits on the way.

    `streamsvm.training.passes.Fit` makes several passes with it, `streamsvm.training.online.Online` one.

    Attributes
    ----------
    source : ShuffledSource or StreamSource
    settings : Settings
    files : RunFiles
    learner : Learner
        Learner with the weights of `position`.
    position : RunPosition
        Progress of the training, in the form that commits record.
    callbacks : Callbacks
    waited : float
        Seconds of the last pass spent waiting for rows.
    peak : int
        Largest private memory observed, in bytes.
    """

    source: ShuffledSource | StreamSource
    settings: Settings
    files: RunFiles
    learner: Learner
    position: RunPosition
    callbacks: Callbacks

    def __post_init__(self) -> None:
        called = self.callbacks
        self.report, self.progress, self.stop = called.report, called.progress, called.stop
        self.n_rows = self.source.n_rows or 0  # of a stream nobody knows how many come
        self.learner.tally[:] = self.position.tally
        self.peak = private_memory()
        self._memory_due = -np.inf
        self.waited = 0.0
        # When the present pass began in this process, and what earlier ones spent on it.
        self._begin, self._before = running_time(), self.position.pass_seconds

    @contextlib.contextmanager
    def compiled(self, rows: Rows) -> Iterator[None]:
        """Compile the kernels for rows like `rows`, of which there are none; then train in this context."""
        begin = time.perf_counter()
        old = self.files.old_duals(self.position, 0)
        self.learner.compile(rows, old.segment(0, 0))
        self.report({"event": "ready", "seconds": time.perf_counter() - begin})
        self.files.every.restart()
        try:
            yield
        except StreamsvmError:
            with contextlib.suppress(OSError):  # what was reported since the last commit
                self.files.write_metrics(self.position.metrics_length)
            raise

    # -- the loop ----------------------------------------------------------------------------------

    def begin_pass(self, this_pass: int) -> None:
        """Begin a pass, or the rest of one that was interrupted."""
        self.learner.averaging = self.position.average_pass == this_pass
        self._begin, self._before = running_time(), self.position.pass_seconds

    def learn(
        self,
        blocks: Iterable[TrainingBlock],
        stage: str,
        report_rows: Callable[[TrainingBlock, int], None],
        *,
        averages: bool,
    ) -> bool:
        """Learn from the blocks that are left of a pass.

        Parameters
        ----------
        blocks : iterable of TrainingBlock
        stage : str
            Name of the pass for `progress`.
        report_rows : callable
            Called in the first pass whenever the number of visited rows has doubled, with the block and the
            position in it.
        averages : bool
            Whether the iterates are averaged: those of the second half of the pass, or all of a stream.

        Returns
        -------
        bool
            False if the user stopped the training; what was learned has been committed.
        """
        learner, this_pass = self.learner, self.position.passes_done + 1
        half = self.n_rows // 2

        def next_pause(visited: int) -> int:
            """Pause where an average may begin and, in the first pass, each time the rows have doubled."""
            doubled = 1 << visited.bit_length() if this_pass == 1 else self.n_rows + 1
            return min(doubled, half) if visited < half else doubled

        def begin_average_if_due() -> None:
            # The visited rows are beyond the half, if a group of rows ended later.
            if averages and not learner.averaging and half <= learner.visited:
                learner.begin_average()
                self.position = dataclasses.replace(self.position, average_pass=this_pass)

        old = self.files.old_duals(self.position, this_pass - 1)
        new = self.files.new_duals(self.position, this_pass) if self.settings.keep_duals else None
        for block in blocks:
            learner.storage.check_room(block.rows)
            begin_average_if_due()
            duals = learner.read_duals(old, block.first, block.rows)
            duals = duals._replace(scale=self.position.dual_scale)
            for at in learner.learn(block, duals, new, next_pause):
                self.files.check_finite(learner.tally.tolist())
                if this_pass == 1 and learner.visited.bit_count() == 1:
                    report_rows(block, at)
                begin_average_if_due()
            self.files.check_finite(learner.tally.tolist())
            position = self.position
            self.position = dataclasses.replace(
                position,
                blocks_done=position.blocks_done + (block.rows.n_rows > 0),
                tally=tuple(learner.tally.tolist()),
                duals=position.duals if new is None else position.duals | {this_pass: new.files},
                pass_seconds=self.seconds(),
                stream=block.behind,
            )
            if block.rows.n_rows == 0:  # as behind the last row of a stream: nothing was learned
                continue
            self.note_memory()
            self.progress(stage, learner.visited, self.n_rows or None)
            stopping = self.stop()
            if self.files.every.due(1) or stopping:
                self.commit()
            if stopping:
                return False
        return True

    def seconds(self) -> float:
        """Return the time spent in the present pass, in earlier processes too, but for compiling."""
        return self._before + max(running_time() - self._begin, 0.0)

    def note_memory(self) -> None:
        """Measure the memory, unless that was done a moment ago."""
        if (now := time.monotonic()) >= self._memory_due:
            self.peak = max(self.peak, private_memory())
            self._memory_due = now + _MEMORY_SECONDS

    # -- commits and reports -----------------------------------------------------------------------

    def commit(self) -> None:
        """Commit the position, the weights and the duals."""
        self.peak = max(self.peak, private_memory())
        self.position = self.files.commit(self.position, self.learner.storage)

    def log(self, record: dict[str, Any]) -> None:
        """Report `record`, and append it to the metrics."""
        self.position = self.files.append_metrics(self.position, record)
        self.report(record)
