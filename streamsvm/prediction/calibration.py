"""Temperature scaling: one temperature, fitted to hold-out data (Guo et al. 2017, section 4.2).

Let s be the scores of a row less their maximum, y the class of the row, and β one over the temperature. Class
j has the probability p_j = softmax(β s)_j. The mean log loss over n labelled rows

    f(β) = 1/n Σ (log Σ_j exp(β s_j) − β s_y)

is convex, because with mean and variance under p

    f'(β) = 1/n Σ (E[s] − s_y),    f''(β) = 1/n Σ Var[s].

Each evaluation reads the data once. Newton's method within a bracket finds the minimum, from β = 0 on, where
p is uniform. Two kinds of data have no minimum at a finite β > 0:

- f'(0) >= 0: on average, the true class scores no higher than the others, so the best temperature is
  infinite. The test allows for scores that hardly correlate with the labels: −f'(0) must exceed a thousandth
  of their spread, √f''(0).
- Every row has the highest score in its true class, so f falls for all β. The labels are then smoothed: the
  true class gets (n + 1)/(n + k), each other class 1/(n + k), as in Platt (1999) for k = 2 classes. With
  ε = k/(n + k) this adds −ε f'(0) β to f, and so a constant to f'.
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
_PRECISION = 1e-7  # relative, of β; the relative error of the log loss is its square
_PIECE_BYTES = 2**20  # bytes of scores processed at a time, so that they stay in the cache

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
    change. Do not use the training data, because the scores fit it too well. The data is usually read 5 to 10
    times. The accuracy above each probability is saved, too, for `unknown` of `streamsvm.predict`.

    Parameters
    ----------
    model : Model or path
        Model, whose temperature is set; or run directory or model folder, whose ``model.json`` is replaced.
    data : path, Store, Rows, list of Rows, or matrix, optional
        Labelled data, as for `streamsvm.evaluate`, but no iterator or pipe, because it is read more than
        once. Rows whose label the model does not know are left out of the log loss, and count as wrong for
        `unknown`. By default the rows of ``hold_out`` or ``valid`` of the run, read within its memory.
    y : array_like, shape (n,), or str, optional
        Labels of a matrix, or `label` for AnnData and DataFrames.
    memory : int or str
        Memory budget in bytes, or as text such as 500M or 2G.
    **settings
        As `ScoringSettings` declares them.
    progress : bool or callable, optional
        Whether to show a bar, or a callback, as in `streamsvm.fit`; each reading is a stage, "calibrate 1".

    Returns
    -------
    Calibration

    Raises
    ------
    ModelError, FeatureError, StoreError
        If the model cannot be read or written, or a training uses it; if the data cannot be read, does not
        fit the model, has several labels per row, or no label that the model knows; or if a score overflows.
    InputError
        If `data` can be read only once, a file is malformed, or a matrix has no labels.
    RunError
        If `data` is left out, and `model` is not a run, or the run kept no hold-out rows, or its data
        changed.
    SettingsError
        If `memory` is not valid, or `y` or `label` does not apply to the data.
    PlanError
        If the memory budget cannot hold the longest row; `PlanError.needed_memory` is enough.

    Warns
    -----
    StreamsvmWarning
        If no temperature minimises the log loss: scores are unrelated to labels, or all rows are correct.
    """
    memory, asked = parse_size(memory), ScoringSettings(**settings)
    is_path = isinstance(data, str | os.PathLike)
    if isinstance(data, Iterator) or (is_path and (os.fspath(data) == "-" or Path(data).is_fifo())):
        problem = "a pipe or an iterator can be read only once, and calibrating reads several times"
        raise InputError(f"{problem}; give a file, a store, or a list of Rows")
    if data is None:
        for name in asked.given() | ({} if y is None else {"y": y}):
            raise wrong_setting(name, "is for data, and none is given")
    readings = itertools.count(1)
    with ExitStack() as stack:
        report = stack.enter_context(shown(progress))
        model, run = stack.enter_context(_opened(model))
        if model.transitions_ is not None:
            raise ModelError("a model of sequences has no probabilities of single rows to calibrate")
        data, reader = copy_address(data, asked.cache, report), RowsToScore(model, asked, memory)
        held_out = stack.enter_context(_held_out(run)) if data is None else None

        def read() -> Iterator[Rows]:
            stage, done = f"calibrate {next(readings)}", 0
            given = (rows for rows, _ in reader.read(data, y))
            for rows in given if held_out is None else held_out():
                yield rows
                done += rows.n_rows
                report(stage, done, reader.n_rows)

        is_stored = isinstance(data, Store | str | os.PathLike | None) or getattr(data, "isbacked", False)
        rows = [] if is_stored else list(read())  # convert a matrix only once
        found = _calibrate(model, read if is_stored else lambda: rows, min(memory // 32, _PIECE_BYTES))
    logger.info("%r", found)
    if found.warning is not None:
        warn(found.warning)
    return found


@contextmanager
def _opened(model: Model | str | Path) -> Iterator[tuple[Model, RunDir | None]]:
    """Yield a model and the locked run of a saved model; write the record back at the end."""
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
            now = durable.read_record(folder / format.MODEL_JSON, follow=True)
            if now.get("checksum") != loaded.record["checksum"]:
                raise ModelError(f"{folder} was replaced by another model meanwhile; calibrate that one")
            write_record(folder, loaded.record)


@contextmanager
def _held_out(run: RunDir | None) -> Iterator[_Read]:
    """Yield a function that reads the rows on which a run measured its accuracy."""
    record = {} if run is None else run.read_settings()
    trained, is_kept = record.get("settings", {}), record.get("keep_data", True)
    measured = trained.get("hold_out") or trained.get("valid")
    if run is None or not (measured and (is_kept or run.data.exists())):
        remedy = Remedy("give data, or train with {}", Call("fit", options=(Option("hold_out", "1/10"),)))
        raise RunError("without data, calibrate needs a run that held out rows and kept them", remedy=remedy)
    with reopened(run, record, Execution()) as opened, opened.measured_blocks() as blocks:
        each = functools.partial(blocks.each, blocks.starts, range(len(blocks)))
        yield lambda: (kept_rows(rows, rows.cost > 0) for rows in each())


def _calibrate(model: Model, read: _Read, piece_bytes: int) -> Calibration:
    """Find the temperature and count the answers, and write both to the model's record."""
    found = _Search(model, read, piece_bytes).run()
    record, counts = model.record | {format.TEMPERATURE: found.temperature}, AnswerCounts()
    for rows in read():
        for begin, scores in model.scores(rows, piece_bytes):
            is_right = scores.argmax(axis=1) == rows.labels[begin : begin + len(scores)]
            counts.add(log_probabilities(scores, record, found.temperature).max(axis=1), is_right)
    answered = counts.answered()
    model.record.update(record, **{format.ANSWERED: dataclasses.asdict(answered)})
    return dataclasses.replace(found, unknown=answered.by_threshold(answered))


class _LogLoss(NamedTuple):
    """Mean log loss and its derivatives at one β."""

    loss: float
    slope: float
    curvature: float


@dataclasses.dataclass
class _Search:
    model: Model
    read: _Read
    memory: int  # bytes of scores processed at a time
    rows: int = 0  # rows whose label the model knows
    wrong: int = 0  # such rows that score another class higher

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
                "the scores say nothing about the labels of the hold-out data, so the probabilities are "
                "nearly the same for all classes; check that these labels belong to these rows"
            )
        else:
            smoothing = 0.0
            if not self.wrong:
                k = len(self.model.classes_)
                smoothing = k / (self.rows + k)
                warning = (
                    f"no row of the hold-out data is predicted wrongly (of {self.rows:,}), so the lowest "
                    "temperature would fit best; smoothed labels were fitted instead, and more rows give a "
                    "better temperature"
                )
            beta, after = self._minimise(uniform, smoothing)
        if not MIN_TEMPERATURE <= 1 / beta <= MAX_TEMPERATURE:
            raise _unfit_scores()
        return Calibration(1 / beta, before.loss, after.loss, self.rows, warning)

    def _minimise(self, uniform: _LogLoss, smoothing: float) -> tuple[float, _LogLoss]:
        """Find the β where the slope is `smoothing` times the slope at 0; return β and f(β)."""
        shift = -smoothing * uniform.slope
        # Newton's step from 0 overshoots if one class of many stands out; the zero of the tangent limits it.
        beta = min(-uniform.slope / uniform.curvature, uniform.loss / -uniform.slope)
        low, high = 0.0, math.inf
        while True:
            (at,) = self._evaluate(beta)
            slope = at.slope + shift
            low, high = (beta, high) if slope < 0 else (low, beta)
            step = -slope / at.curvature if at.curvature > 0 else math.copysign(math.inf, -slope)
            if slope == 0 or min(abs(step), high - low) <= _PRECISION * beta:
                return beta, at
            if low < beta + step < min(high, 8 * beta):
                beta += step
            else:
                beta = 8 * beta if high == math.inf else max(math.sqrt(low * high), high / 16)

    def _evaluate(self, *betas: float) -> list[_LogLoss]:
        """Compute the log loss and its derivatives at each β, in one reading."""
        sums = np.zeros((len(betas), 3))
        n_rows = rows = wrong = 0
        for batch in self.read():
            if len(batch.label_indptr):
                raise ModelError("probabilities are of one label a row, and the hold-out data has several")
            for begin, scores in self.model.scores(batch, self.memory, first=n_rows):
                labels = batch.labels[begin : begin + len(scores)]
                known = np.flatnonzero(labels >= 0)
                shifted = scores[known].astype(np.float64)
                with np.errstate(over="ignore"):
                    shifted -= shifted.max(axis=1, keepdims=True)
                own = shifted[np.arange(len(known)), labels[known]]
                rows += len(known)
                wrong += int(np.count_nonzero(own < 0))
                for total, beta in zip(sums, betas, strict=True):
                    total += _sums(shifted, own, beta)
            n_rows += batch.n_rows
        if not rows:
            found = f"none of the {n_rows:,} rows has a label that the model knows" if n_rows else "no rows"
            raise ModelError(f"the hold-out data cannot calibrate the model: {found}")
        if not np.isfinite(sums).all():
            raise _unfit_scores()
        self.rows, self.wrong = rows, wrong
        return [_LogLoss(*total) for total in (sums / rows).tolist()]


def _unfit_scores() -> ModelError:
    return ModelError("the scores are too large or too small to calibrate; scale the values to about 1")


def _sums(scores: np.ndarray, own: np.ndarray, beta: float) -> np.ndarray:
    """Sum the log loss and its two derivatives at `beta` over rows whose highest score is 0."""
    with np.errstate(over="ignore", invalid="ignore"):  # the sums are checked
        weights = np.exp(beta * scores)
        norm = weights.sum(axis=1)
        mean = np.einsum("ij,ij->i", weights, scores) / norm
        square = np.einsum("ij,ij,ij->i", weights, scores, scores) / norm
        loss = np.log(norm) - beta * own
        variance = np.maximum(square - mean * mean, 0.0)  # rounding may make it negative
    return np.array([loss.sum(), (mean - own).sum(), variance.sum()])
