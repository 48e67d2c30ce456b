"""Estimate how many passes remain, and warn of models that are far from the optimum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamsvm.base.progress import logger, of_model
from streamsvm.errors import Call, ConvergenceWarning, Message, Option, Remedy, warn
from streamsvm.settings.fit import Settings

History = Sequence[Mapping[str, Any]]

_LARGE_GAP = 0.5
_LOWERED = 0.9  # more passes help if the last pass lowered the gap by at least a tenth
_DEFAULT_TARGET = 0.1  # target for the suggested number of passes if there is no tolerance
_FASTEST_DECAY, _USUAL_DECAY, _SLOWEST_DECAY = 0.7, 0.9, 0.99  # factor of a relative gap per pass
_MIN_TARGET = 1e-12
# If gaps hardly fall, the gap of the average is smaller than that of the last iterate by the first fraction
# (measured). Averaging costs half a pass, so the predicted gap must be below the second fraction of `tol`.
_GAIN_OF_AVERAGE, _AVERAGE_FRACTION = 0.4, 0.9


def zero_warning(norm2: float) -> list[Message]:
    """Warn if `norm2`, the squared norm of the weights, is 0; return the warning in a list."""
    if norm2 > 0:
        return []
    message = Message(
        "all weights of the model are 0, so it cannot tell classes apart",
        Remedy("rescale the data and the row weights to values of order 1, or change {}", Option("C")),
    )
    warn(ConvergenceWarning(message))
    return [message]


def gap_messages(
    measured: Mapping[str, Any], settings: Settings, history: History, run: Path | None, *, chosen: bool
) -> tuple[list[str], Message | None]:
    """Warn if the tolerance was not reached. Return the warnings, and a hint if the gap is large.

    A hint is returned only if there is no tolerance, the relative gap is above 0.5, and the last pass lowered
    the gap by at least a tenth. More passes would then lower the objective, although the accuracy may already
    be good. A smaller C is not suggested if C was `chosen` from the data. `measured` contains the gap and
    relative gap of the model, both None if not measured, and `history` contains the reports of the passes.
    """
    gap, advice = measured["relative_gap"], list[Remedy]()
    if gap is None:
        return [], None
    if settings.tol is not None:
        problem = f"the tolerance {settings.tol:g} was not reached: the relative gap is {gap:.3g}"
    elif gap > _LARGE_GAP and _still_falls(measured["gap"], history):
        problem = f"the model is far from the optimum: the relative gap is {gap:.3g}"
        advice = [] if chosen else [Remedy("use a smaller {}", Option("C"))]
    else:
        return [], None
    passes = Option("passes", passes_to(settings.tol or _DEFAULT_TARGET, gap, history))
    extends = run is not None and settings.keep_duals
    resume = (
        Remedy("{}", Call("resume", run, (passes,))) if extends else Remedy("fit again with about {}", passes)
    )
    message = Message(problem, None if gap < 0 else Remedy.join([resume, *advice]))  # negative by rounding
    if settings.tol is None:
        logger.info("%s", message)
        return [], message
    warn(ConvergenceWarning(message))
    return [message], None


def _still_falls(gap: float, history: History) -> bool:
    """Return True if the last of several passes lowered the gap by at least a tenth or if this is unknown."""
    previous = {} if len(history) < 2 else of_model(dict(history[-2]))
    estimate = previous.get("primal_estimate")
    previous_gap = previous.get("gap", estimate and estimate - previous["dual"])
    return bool(previous) and (previous_gap is None or gap <= _LOWERED * previous_gap)


def passes_to(target: float, gap: float, history: History) -> int:
    """Estimate the total number of passes needed to bring the relative gap down to `target`.

    The gap is assumed to fall by its mean factor in the last half of the passes, within limits.
    """
    recent = history[-(len(history) // 2 + 1) :]
    gaps = [(at, record["relative_gap"]) for at, record in enumerate(recent) if record.get("relative_gap")]
    factor = _USUAL_DECAY
    if len(gaps) > 1:
        (begin, first), *_, (end, last) = gaps
        factor = abs(last / first) ** (1 / (end - begin))
    decay = -math.log(min(max(factor, _FASTEST_DECAY), _SLOWEST_DECAY))
    return len(history) + max(math.ceil(math.log(abs(gap) / max(target, _MIN_TARGET)) / decay), 1)


def average_saves_passes(tol: float, history: History) -> bool:
    """Return True if the average after the next pass is expected to reach `tol` but the last iterate is not.

    Relative gaps are assumed to fall by their mean factor in the last two passes.
    """
    gaps = [record.get("relative_gap") or math.inf for record in history[-3:]]
    if len(gaps) < 2 or min(gaps) < 0:  # negative by rounding
        return False
    factor = min((gaps[-1] / gaps[0]) ** (1 / (len(gaps) - 1)), 1.0)
    expected = factor * gaps[-1]
    return expected > tol and (1 - _GAIN_OF_AVERAGE * factor) * expected <= _AVERAGE_FRACTION * tol
