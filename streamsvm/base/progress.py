"""Progress reports as tqdm bars and as messages of `logging`."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from streamsvm.errors import wrong_setting

Progress = Callable[[str, int, int | None], None]  # arguments: stage, done, total or None
Report = Callable[[dict[str, Any]], None]

logger = logging.getLogger("streamsvm")
logger.addHandler(logging.NullHandler())  # silent unless the program configures logging

# Prefixes in pass reports: the first marks measurements of the averaged weights. The second marks accuracies
# of the last iterate, which are reported if the averaged weights are the model.
AVERAGE_PREFIX, LAST_ITERATE_PREFIX = "average_", "last_iterate_"
COMPILING = "compiling kernels, which happens once per machine"
_listeners: list[Callable[[str], None]] = []  # callbacks to be notified of kernel compilation
_NOTICE_SECONDS = 3600.0  # minimum time between two notifications of compilation
_BAR_DELAY = 1.0  # seconds before an automatic bar appears
_BYTES = ("convert", "copy", "read", "verify")  # first words of stages that are counted in bytes
_FIGURES = {  # format of each measured value
    "relative_gap": ".2e", "relative_gap_estimate": ".2e", "dual": ".6g", "primal": ".6g",
    "train_accuracy": ".4f", "valid_accuracy": ".4f", "progressive_accuracy": ".4f",
}  # fmt: skip


@contextmanager
def shown(progress: bool | Progress | None) -> Iterator[Progress]:
    """Yield a function ``report(stage, done, total)`` that shows progress; `total` is None if unknown.

    `progress` is a function like ``report``, or a bool that turns bars on or off. None shows bars in
    terminals and notebooks for stages that take more than a second. Other values raise `SettingsError`.
    """
    if not callable(progress) and progress not in (None, True, False):
        raise wrong_setting("progress", f"must be True, False, None or a function, not {progress!r:.40}")
    with ExitStack() as stack:
        stack.enter_context(told_of_compiling(logger.info))
        if callable(progress):
            yield progress
        elif _is_watched() if progress is None else progress:
            bars = _Bars(_BAR_DELAY if progress is None else 0.0)
            stack.callback(bars.close)
            stack.enter_context(told_of_compiling(bars.say))
            yield bars
        else:
            yield lambda stage, done, total: None


@contextmanager
def told_of_compiling(say: Callable[[str], None]) -> Iterator[None]:
    """Within the context, call ``say(COMPILING)`` once when a kernel is about to be compiled."""
    if say in _listeners:  # already registered by a caller
        yield
        return
    _listeners.append(say)
    try:
        yield
    finally:
        with suppress(ValueError):  # removed when it was called
            _listeners.remove(say)


def tell_of_compiling(notice: Path | None = None) -> None:
    """Notify all listeners that kernels are about to be compiled, and remove the listeners.

    Errors from the listeners' streams are ignored. Nobody is notified if this or another process touched the
    file `notice` within the last hour.
    """
    if notice is not None and _listeners:
        with suppress(OSError):
            if notice.exists() and time.time() - notice.stat().st_mtime < _NOTICE_SECONDS:
                _listeners.clear()
            notice.touch()
    while _listeners:
        with suppress(IndexError, OSError, ValueError):  # another thread emptied the list
            _listeners.pop(0)(COMPILING)


def unit_of(stage: str) -> str:
    """Return the unit in which a stage reports progress: "rows", or "B" for bytes."""
    return "B" if stage.split()[0] in _BYTES else "rows"


class _Bars:
    """Progress bar of the current stage, on standard error or in the notebook."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._stage: str | None = None
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        if stage != self._stage:
            from tqdm.auto import tqdm

            self.close()
            self._stage = stage
            self._bar = tqdm(
                total=total, desc=stage, unit=unit_of(stage), unit_scale=True, leave=False,
                dynamic_ncols=True, delay=self._delay,
            )  # fmt: skip
        self._bar.update(done - self._bar.n)
        if done == total:
            self.close()

    def say(self, line: str) -> None:
        from tqdm.auto import tqdm

        tqdm.write(f"streamsvm: {line}", file=sys.stderr)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = self._stage = None


def _is_watched() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None and "IPKernelApp" in shell.config:
        return True
    return sys.stderr is not None and sys.stderr.isatty()


def logged(report: Report | None) -> Report:
    """Return a callback that logs each training event and then passes it to `report`, if any."""

    def log_and_report(event: dict[str, Any]) -> None:
        _log(event)
        if report is not None:
            report(event)

    return log_and_report


def _log(event: dict[str, Any]) -> None:
    """Log an event: passes, streams and tuning at level INFO, warnings at WARNING, and all else at DEBUG."""
    kind = event["event"]
    if kind == "warning":
        logger.warning("%s", event["warning"])
    elif not logger.isEnabledFor(logging.INFO):
        return
    elif kind == "pass":
        logger.info(
            "%spass %d: %s; %s rows in %.2f s",
            f"{event['trial']}, " if "trial" in event else "", event["pass"], _figures(event),
            f"{event['rows']:,}", event["seconds"],
        )  # fmt: skip
    elif kind == "rows" and "pass" not in event:  # event of a stream
        logger.info("%s rows: %s", f"{event['rows']:,}", _figures(event))
    else:
        level = (
            logging.INFO
            if kind in ("search", "tried", "C", "choose", "candidate", "chosen")
            else logging.DEBUG
        )
        known = {name: value for name, value in event.items() if name != "event" and value is not None}
        logger.log(level, "%s: %s", kind, ", ".join(f"{name}={value}" for name, value in known.items()))


def of_model(report: dict[str, Any]) -> dict[str, Any]:
    """Return a pass report whose measurements without a prefix are those of the model."""
    if f"{LAST_ITERATE_PREFIX}train_accuracy" not in report:
        return report
    averages = {name: value for name, value in report.items() if name.startswith(AVERAGE_PREFIX)}
    return report | {name.removeprefix(AVERAGE_PREFIX): value for name, value in averages.items()}


def _figures(event: dict[str, Any]) -> str:
    known = [(name, of_model(event).get(name), form) for name, form in _FIGURES.items()]
    return ", ".join(
        f"{name.replace('_', ' ')} {value:{form}}" for name, value, form in known if value is not None
    )
