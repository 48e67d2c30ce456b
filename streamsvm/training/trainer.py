"""Training loop: stream blocks through a learner, commit, report and stop."""

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

_MEMORY_SECONDS = 0.1  # between two measurements of memory, which read a system file


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """Callbacks for the reports and the progress of a training, and for stopping it.

    `progress` is called with a stage, the rows done, and the number of all rows or None. `stop` is called
    after each block; if it returns True, the training commits and raises `Interrupted`.
    """

    report: Report = lambda event: None
    progress: Progress = lambda stage, done, total: None
    stop: Callable[[], bool] = lambda: False

    @classmethod
    def of(
        cls, report: Report | None, progress: Progress | None, stop: Callable[[], bool] | None
    ) -> Callbacks:
        """Return callbacks with defaults for None; events are also logged."""
        return cls(logged(report), progress or cls.progress, stop or cls.stop)


@dataclasses.dataclass(eq=False)
class Trainer:
    """Training in progress: its loop over blocks, and its reports and commits.

    `streamsvm.training.passes.Fit` makes several passes, and `streamsvm.training.online.Online` makes one.
    `learner` has the weights of `position`, which is the progress as commits record it. `waited` are the
    seconds of waiting for rows in the last pass, and `peak` is the largest observed private memory in bytes.
    """

    source: ShuffledSource | StreamSource
    settings: Settings
    files: RunFiles
    learner: Learner
    position: RunPosition
    callbacks: Callbacks

    def __post_init__(self) -> None:
        callbacks = self.callbacks
        self.report, self.progress, self.stop = callbacks.report, callbacks.progress, callbacks.stop
        self.n_rows = self.source.n_rows or 0
        self.learner.tally[:] = self.position.tally
        self.peak = private_memory()
        self._memory_due = -np.inf
        self.waited = 0.0
        # Start of the current pass in this process, and seconds of the pass in earlier processes.
        self._pass_start, self._earlier_seconds = running_time(), self.position.pass_seconds

    @contextlib.contextmanager
    def compiled(self, rows: Rows) -> Iterator[None]:
        """Compile the kernels for rows like the empty `rows`, and provide a context for training."""
        begin = time.perf_counter()
        old = self.files.old_duals(self.position, 0)
        self.learner.compile(rows, old.segment(0, 0))
        self.report({"event": "ready", "seconds": time.perf_counter() - begin})
        self.files.every.restart()
        try:
            yield
        except StreamsvmError:
            with contextlib.suppress(OSError):  # keep reports since the last commit
                self.files.write_metrics(self.position.metrics_length)
            raise

    # -- the loop ----------------------------------------------------------------------------------

    def begin_pass(self, this_pass: int) -> None:
        """Start a pass, or continue an interrupted pass."""
        self.learner.averaging = self.position.average_pass == this_pass
        self._pass_start, self._earlier_seconds = running_time(), self.position.pass_seconds

    def learn(
        self,
        blocks: Iterable[TrainingBlock],
        stage: str,
        report_rows: Callable[[TrainingBlock, int], None],
        *,
        averages: bool,
    ) -> bool:
        """Learn from the remaining blocks of a pass; if the user stops the training, commit and return False.

        `stage` is the name of the pass for `progress`. In the first pass, `report_rows` is called with the
        block and the position in it whenever the number of visited rows has doubled. `averages` is True to
        average the iterates, in the second half of a pass or over a whole stream.
        """
        learner, this_pass = self.learner, self.position.passes_done + 1
        half = self.n_rows // 2

        def next_pause(visited: int) -> int:
            """Return where an average may begin or, in the first pass, where the rows have doubled."""
            doubled = 1 << visited.bit_length() if this_pass == 1 else self.n_rows + 1
            return min(doubled, half) if visited < half else doubled

        def begin_average_if_due() -> None:
            # A group of rows may end beyond the half.
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
                stream=block.stream_position,
            )
            if block.rows.n_rows == 0:
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
        """Return the time of the current pass without compiling, including earlier processes."""
        return self._earlier_seconds + max(running_time() - self._pass_start, 0.0)

    def note_memory(self) -> None:
        """Measure the memory, unless it was measured a moment ago."""
        if (now := time.monotonic()) >= self._memory_due:
            self.peak = max(self.peak, private_memory())
            self._memory_due = now + _MEMORY_SECONDS

    # -- commits and reports -----------------------------------------------------------------------

    def commit(self) -> None:
        self.peak = max(self.peak, private_memory())
        self.position = self.files.commit(self.position, self.learner.storage)

    def log(self, record: dict[str, Any]) -> None:
        """Report `record`, and append it to the metrics."""
        self.position = self.files.append_metrics(self.position, record)
        self.report(record)
