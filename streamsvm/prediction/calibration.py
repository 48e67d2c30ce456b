"""Temperature scaling: fit one temperature to hold-out data (Guo et al. 2017, section 4.2).

Let s be the scores of a row minus their maximum, y its true class, and β the inverse of the temperature. The
probability of class j is p_j = softmax(β s)_j. The mean log loss over n labelled rows

    f(β) = 1/n Σ (log Σ_j exp(β s_j) − β s_y)

is convex, as its derivatives show, where E and Var are the mean and variance under p:

    f'(β) = 1/n Σ (E[s] − s_y),    f''(β) = 1/n Σ Var[s].

Each evaluation reads the data once. Newton's method finds the minimum within a bracket, starting at β = 0,
where p is uniform. In two cases, no finite β > 0 minimises f:

- f'(0) >= 0: on average, the true class scores no higher than the average class, so the best temperature is
  infinite. To include scores that hardly correlate with the labels, the test is −f'(0) <= √f''(0) / 1000.
- The true class has the highest score in every row, so f decreases for all β. The labels are then smoothed:
  the true class gets (n + 1)/(n + k), each other class 1/(n + k), as in Platt (1999) for k = 2 classes. With
  ε = k/(n + k) this adds −ε f'(0) β to f, and therefore a constant to f'.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.base import durable, format
from streamsvm.base.progress import Progress, logger, shown
from streamsvm.base.text import check_local, parse_size
from streamsvm.data.rows import Rows, kept_rows
from streamsvm.errors import Call, InputError, ModelError, Option, Remedy, RunError, warn, wrong_setting
from streamsvm.inputs.rows import RowsToScore
from streamsvm.model.doubt import AnswerCounts
from streamsvm.model.model import Model, load_model
from streamsvm.model.results import Calibration
from streamsvm.model.scoring import log_probabilities
from streamsvm.model.serialization import MAX_TEMPERATURE, MIN_TEMPERATURE, model_folder, write_record
from streamsvm.run.directory import RunDir
from streamsvm.settings.scoring import TO_CALIBRATE, ScoringSettings
from streamsvm.settings.signature import takes
from streamsvm.store import Store
from streamsvm.store.addresses import copy_address
from streamsvm.training.train import reopened
from streamsvm.training.training import Execution

_MIN_SLOPE = 1e-3  # relative to the spread of the scores
_PRECISION = 1e-7  # relative precision of β; that of the log loss is about its square
_PIECE_BYTES = 2**20  # size of the scores processed at a time; it is small enough for the cache

_Read = Callable[[], Iterable[Rows]]  # reads the labelled rows, ready to score


@takes(TO_CALIBRATE, after="memory")
def calibrate(
    model: Model | str | Path,
    data: Any = None,
    y: Any = None,
    *,
    memory: int | str = 2**28,
    progress: bool | Progress | None = None,
    **settings: Any,
) -> Calibration:
    """Fit the temperature of a model's probabilities to labelled hold-out data (Guo et al. 2017).

    The temperature minimises the mean log loss of the softmax of scores / temperature; predictions do not
    change. Do not use the training data, because the model fits it too well. The data is usually read 5 to 10
    times. For the parameter `unknown` of `streamsvm.predict`, the model also stores how many rows reach each
    probability, and how many of these are predicted correctly.

    Parameters
    ----------
    model : Model or path
        `Model`, whose temperature is set, or path of a run or model folder, whose ``model.json`` is replaced.
    data : path, Store, Rows, list of Rows, or matrix, optional
        Labelled data, as for `streamsvm.evaluate`, except for iterators and pipes, because the data is read
        more than once. Rows whose label the model does not know are left out of the log loss, and count as
        wrong for `unknown`. By default, the ``hold_out`` or ``valid`` rows of the run, read within its memory
        budget.
    y : array_like, shape (n,), or str, optional
        Labels of a matrix, or their name in AnnData or a DataFrame, as for the setting `label`.
    memory : as for `streamsvm.evaluate`
    **settings
        See `ScoringSettings`.
    progress : bool or callable, optional
        Whether to show a bar, or a callback, as in `streamsvm.fit`; the stages are "calibrate 1", "calibrate
        2" and so on, one for each reading of the data.

    Raises
    ------
    ModelError, FeatureError, StoreError
        If the model cannot be read or written, or is being trained; if the data cannot be read, does not fit
        the model, has several labels per row, or contains no label that the model knows; or if a score
        overflows.
    InputError
        If `data` can be read only once, if a file is malformed, or if a matrix has no labels.
    RunError
        If `data` is left out, but `model` is not a run that kept its hold-out rows, or if these have changed.
    SettingsError
        If `memory` is invalid, or if `y` or `label` does not apply to the data.
    PlanError
        If the longest row does not fit into the memory budget; `PlanError.needed_memory` is sufficient.

    Warns
    -----
    StreamsvmWarning
        If no temperature minimises the log loss, because the scores are unrelated to the labels or because
        all predictions are correct.
    """
    memory, options = parse_size(memory), ScoringSettings(**settings)
    is_path = isinstance(data, str | os.PathLike)
    if isinstance(data, Iterator) or (is_path and (os.fspath(data) == "-" or Path(data).is_fifo())):
        problem = "a pipe or an iterator can be read only once, but calibration reads the data several times"
        raise InputError(f"{problem}; pass a file, a store, or a list of Rows")
    if data is None:
        for name in options.given() | ({} if y is None else {"y": y}):
            raise wrong_setting(name, f"applies only if data is passed; pass data, or leave {name} out")
    readings = itertools.count(1)
    with ExitStack() as stack:
        report = stack.enter_context(shown(progress))
        model, run = stack.enter_context(_opened(model))
        if model.transitions_ is not None:
            raise ModelError("sequence models cannot be calibrated, because their rows have no probabilities")
        data, reader = copy_address(data, options.cache, report), RowsToScore(model, options, memory)
        held_out = stack.enter_context(_held_out(run)) if data is None else None

        def read() -> Iterator[Rows]:
            stage, done = f"calibrate {next(readings)}", 0
            batches = (rows for rows, _ in reader.read(data, y))
            for rows in batches if held_out is None else held_out():
                yield rows
                done += rows.n_rows
                report(stage, done, reader.n_rows)

        is_stored = isinstance(data, Store | str | os.PathLike | None) or getattr(data, "isbacked", False)
        rows = [] if is_stored else list(read())
        result = _calibrate(model, read if is_stored else lambda: rows, min(memory // 32, _PIECE_BYTES))
    logger.info("%r", result)
    if result.warning is not None:
        warn(result.warning)
    return result


@contextmanager
def _opened(model: Model | str | Path) -> Iterator[tuple[Model, RunDir | None]]:
    """Yield a model and, if a run contains it, the locked run; at the end, save a loaded model's record."""
    if isinstance(model, Model):
        yield model, None
        return
    check_local(model, ModelError)
    folder = model_folder(Path(model))
    run = RunDir(folder.parent)
    with ExitStack() as stack:
        if has_run := run.settings.exists():
            with durable.os_errors_as(ModelError, run.lock, "locked"):
                stack.enter_context(durable.locked(run.lock, ModelError, f"the run {run.path}"))
        loaded = load_model(folder)
        yield loaded, run if has_run else None
        with durable.os_errors_as(ModelError, folder, "written"):
            current = durable.read_record(folder / format.MODEL_JSON, follow=True)
            if current.get("checksum") != loaded.record["checksum"]:
                raise ModelError(f"{folder} was replaced during calibration; calibrate the new model")
            write_record(folder, loaded.record)


@contextmanager
def _held_out(run: RunDir | None) -> Iterator[_Read]:
    record = {} if run is None else run.read_settings()
    trained, is_kept = record.get("settings", {}), record.get("keep_data", True)
    validation = trained.get("hold_out") or trained.get("valid")
    if run is None or not (validation and (is_kept or run.data.exists())):
        remedy = Remedy("pass data, or train with {}", Call("fit", options=(Option("hold_out", "1/10"),)))
        raise RunError("without data, calibrate needs a run that kept its hold-out rows", remedy=remedy)
    with reopened(run, record, Execution()) as opened, opened.measured_blocks() as blocks:
        read_blocks = functools.partial(blocks.each, blocks.starts, range(len(blocks)))
        yield lambda: (kept_rows(rows, rows.cost > 0) for rows in read_blocks())


def _calibrate(model: Model, read: _Read, piece_bytes: int) -> Calibration:
    result = _Search(model, read, piece_bytes).run()
    record, counts = model.record | {format.TEMPERATURE: result.temperature}, AnswerCounts()
    for rows in read():
        for begin, scores in model.scores(rows, piece_bytes):
            is_right = scores.argmax(axis=1) == rows.labels[begin : begin + len(scores)]
            counts.add(log_probabilities(scores, record, result.temperature).max(axis=1), is_right)
    answered = counts.answered()
    model.record.update(record, **{format.ANSWERED: dataclasses.asdict(answered)})
    return dataclasses.replace(result, unknown=answered.by_threshold(answered))


class _LogLoss(NamedTuple):
    loss: float
    slope: float
    curvature: float


@dataclasses.dataclass
class _Search:
    model: Model
    read: _Read
    memory: int
    rows: int = 0
    wrong: int = 0

    def run(self) -> Calibration:
        old = self.model.temperature or 1.0
        before, uniform = self._evaluate(1 / old, 0.0)
        spread = math.sqrt(uniform.curvature)
        warning = None
        if spread == 0 and uniform.slope:
            raise _unfit_scores()
        if -uniform.slope <= _MIN_SLOPE * spread:
            beta = _MIN_SLOPE / spread if spread else 1.0
            (after,) = self._evaluate(beta)
            warning = (
                "the scores are unrelated to the labels of the hold-out data, so all classes have nearly the "
                "same probability; check that the labels are those of the rows"
            )
        else:
            smoothing = 0.0
            if not self.wrong:
                k = len(self.model.classes_)
                smoothing = k / (self.rows + k)
                warning = (
                    f"all {self.rows:,} hold-out rows are predicted correctly, so no temperature above 0 "
                    "minimises the log loss, and the temperature was fitted to smoothed labels; calibrate on "
                    "more rows for a better temperature"
                )
            beta, after = self._minimise(uniform, smoothing)
        if not MIN_TEMPERATURE <= 1 / beta <= MAX_TEMPERATURE:
            raise _unfit_scores()
        return Calibration(1 / beta, before.loss, after.loss, self.rows, warning)

    def _minimise(self, uniform: _LogLoss, smoothing: float) -> tuple[float, _LogLoss]:
        """Return the β at which f'(β) is `smoothing` times f'(0), with f and its derivatives at this β."""
        shift = -smoothing * uniform.slope
        # Newton's first step overshoots if one of many classes stands out. The zero of f's tangent limits it.
        beta = min(-uniform.slope / uniform.curvature, uniform.loss / -uniform.slope)
        low, high = 0.0, math.inf
        while True:
            (point,) = self._evaluate(beta)
            slope = point.slope + shift
            low, high = (beta, high) if slope < 0 else (low, beta)
            step = -slope / point.curvature if point.curvature > 0 else math.copysign(math.inf, -slope)
            if slope == 0 or min(abs(step), high - low) <= _PRECISION * beta:
                return beta, point
            if low < beta + step < min(high, 8 * beta):
                beta += step
            else:
                beta = 8 * beta if high == math.inf else max(math.sqrt(low * high), high / 16)

    def _evaluate(self, *betas: float) -> list[_LogLoss]:
        """Compute the log loss and its derivatives at each β, in one pass over the data."""
        sums = np.zeros((len(betas), 3))
        n_rows = rows = wrong = 0
        for batch in self.read():
            if len(batch.label_indptr):
                raise ModelError("calibration needs one label per row, but the data has rows with several")
            for begin, scores in self.model.scores(batch, self.memory, first=n_rows):
                labels = batch.labels[begin : begin + len(scores)]
                known = np.flatnonzero(labels >= 0)
                shifted = scores[known].astype(np.float64)
                with np.errstate(over="ignore"):
                    shifted -= shifted.max(axis=1, keepdims=True)
                true_scores = shifted[np.arange(len(known)), labels[known]]
                rows += len(known)
                wrong += int(np.count_nonzero(true_scores < 0))
                for total, beta in zip(sums, betas, strict=True):
                    total += _sums(shifted, true_scores, beta)
            n_rows += batch.n_rows
        if not rows:
            reason = f"it knows none of the labels of the {n_rows:,} rows" if n_rows else "there are no rows"
            raise ModelError(f"the model cannot be calibrated, because {reason}; pass rows with known labels")
        if not np.isfinite(sums).all():
            raise _unfit_scores()
        self.rows, self.wrong = rows, wrong
        return [_LogLoss(*total) for total in (sums / rows).tolist()]


def _unfit_scores() -> ModelError:
    return ModelError("the scores are too large or too small for calibration; rescale the data")


def _sums(scores: np.ndarray, true_scores: np.ndarray, beta: float) -> np.ndarray:
    """Sum the log loss and its two derivatives at `beta` over rows whose highest score is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(beta * scores)
        norm = weights.sum(axis=1)
        mean = np.einsum("ij,ij->i", weights, scores) / norm
        square = np.einsum("ij,ij,ij->i", weights, scores, scores) / norm
        loss = np.log(norm) - beta * true_scores
        variance = np.maximum(square - mean * mean, 0.0)  # rounding may make it negative
    return np.array([loss.sum(), (mean - true_scores).sum(), variance.sum()])
