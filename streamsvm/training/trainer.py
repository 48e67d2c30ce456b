"""Training loop, which feeds blocks to a learner, commits, reports, and stops on request."""

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

_MEMORY_SECONDS = 0.1  # minimum time between two measurements of memory, each of which reads a system file


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """Callbacks that receive reports and progress, and that can stop a training run.

    `progress` is called with a stage, the number of rows done, and the number of all rows or None. `stop` is
    called after each block. If it returns True, the trainer commits and raises `Interrupted`.
    """

    report: Report = lambda event: None
    progress: Progress = lambda stage, done, total: None
    stop: Callable[[], bool] = lambda: False

    @classmethod
    def of(
        cls, report: Report | None, progress: Progress | None, stop: Callable[[], bool] | None
    ) -> Callbacks:
        """Return callbacks, with defaults in place of None. Reports are also logged."""
        return cls(logged(report), progress or cls.progress, stop or cls.stop)


@dataclasses.dataclass(eq=False)
class Trainer:
    """Base class of trainers, with the loop over blocks, reports and commits.

    `streamsvm.training.passes.Fit` makes several passes, and `streamsvm.training.online.Online` makes one.
    `position` is the progress that a commit would record, and `learner` holds the weights at this position.
    `waited` is the time in seconds spent waiting for rows in the last pass. `peak` is the largest private
    memory in bytes.
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
        # Start of the current pass in this process, and time in seconds that earlier processes spent on it.
        self._pass_start, self._earlier_seconds = running_time(), self.position.pass_seconds

    @contextlib.contextmanager
    def compiled(self, rows: Rows) -> Iterator[None]:
        """Compile the kernels with the empty `rows`, and provide a context for training."""
        begin = time.perf_counter()
        old = self.files.old_duals(self.position, 0)
        self.learner.compile(rows, old.segment(0, 0))
        self.report({"event": "ready", "seconds": time.perf_counter() - begin})
        self.files.every.restart()
        try:
            yield
        except StreamsvmError:
            with contextlib.suppress(OSError):  # keep the reports since the last commit
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
        """Learn from the remaining blocks of a pass. If the user stops training, commit and return False.

        `stage` is the name of the pass for `progress`. In the first pass, `report_rows` is called whenever
        the number of visited rows has doubled, with the block and the position in the block. If `averages` is
        True, the iterates are averaged in the second half of the pass, or over the whole stream.
        """
        learner, this_pass = self.learner, self.position.passes_done + 1
        half = self.n_rows // 2

        def next_pause(visited: int) -> int:
            """Return the number of rows at which to pause: half of all rows or, in pass 1, a power of 2."""
            doubled = 1 << visited.bit_length() if this_pass == 1 else self.n_rows + 1
            return min(doubled, half) if visited < half else doubled

        def begin_average_if_due() -> None:
            # A group of rows may extend beyond the middle of the pass.
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
        """Return the seconds spent on the current pass, including earlier processes but not compiling."""
        return self._earlier_seconds + max(running_time() - self._pass_start, 0.0)

    def note_memory(self) -> None:
        """Update the peak memory, unless it was measured a moment ago."""
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
