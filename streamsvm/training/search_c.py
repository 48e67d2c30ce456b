"""Choose C for dense rows: the best of four values on a held-out part of a sample."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import Interrupted
from streamsvm.kernels.duals import MOST_COLUMNS
from streamsvm.kernels.random import permutation
from streamsvm.losses import get_loss
from streamsvm.settings.fit import AUTO, Settings
from streamsvm.store import Store
from streamsvm.store.arrays import ArrayStore
from streamsvm.store.ranges import ranges_of
from streamsvm.training.auto_c import rows_trained_on
from streamsvm.training.costs import TrainingCosts
from streamsvm.training.fit_plan import plan_rows
from streamsvm.training.opened import OpenTraining
from streamsvm.training.spec import specify, takes_dense_rows
from streamsvm.training.train import train
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import Execution, Training

_FACTORS = (0.001, 0.01, 0.1, 1.0)
_HOLD_OUT = "1/3"
_STANDARD_ERRORS = 0.5  # standard errors below the best accuracy that count as equally good
_PASSES = 2
_MAX_ROWS, _MIN_ROWS = 12_000, 500
_MIN_CLASSES = 16  # minimum number of classes in the sample, unless the data has fewer
_MAX_CLASSES = 500  # maximum; the time of a pass grows with rows times classes
_MEMORY_SHARE = 16  # budget divided by the memory for the values of the sample


class Sample(NamedTuple):
    """Sample of the training rows of some classes."""

    numbers: np.ndarray  # (n,) int64: row numbers in the store
    labels: np.ndarray  # (n,) int32: index in `classes` of each row's class
    classes: np.ndarray  # int64: codes in the store, ascending

    def read(self, store: Store) -> ArrayStore:
        rows = store.read(ranges_of(self.numbers))._replace(labels=self.labels)
        return ArrayStore(rows, {"classes": [store.classes[c] for c in self.classes]}, store.n_features)


def find_sample(store: Store, settings: Settings) -> Sample | None:
    """Return a sample of rows on which to search for C, or None if there is no search.

    A search requires that C is "auto", that `tune` is not searching for C, and that training does not
    continue from a model. The transformed rows of `store` must be dense and have one label each, and the
    sample must have at least 500 rows and two classes. The sample contains all training rows of randomly
    drawn classes. If a class exceeds its quota, only randomly drawn rows of the class are included.
    """
    if settings.C != AUTO or settings.C_factors or settings.from_ is not None or store.multilabel:
        return None
    if not (store.dense_rows and takes_dense_rows(settings)):
        return None
    loss, k = get_loss(settings.loss), store.n_classes
    duals = k if loss.dense_duals else min(k, MOST_COLUMNS)  # duals of a row, in memory for two passes
    row_bytes = (store.n_features + 2 * duals) * store.dtype.itemsize
    max_rows = min(_MAX_ROWS, settings.memory // (_MEMORY_SHARE * row_bytes))
    counts = store.class_counts
    classes = np.flatnonzero(counts)
    quota = max_rows if counts.sum() <= max_rows else max_rows // min(max(len(classes), 1), _MIN_CLASSES)
    classes = classes[permutation(len(classes), settings.seed, 0, 0, 0)]
    reached = np.cumsum(np.minimum(counts[classes], quota))
    classes = np.sort(classes[: np.searchsorted(reached, max_rows) + 1][:_MAX_CLASSES])
    numbers, codes = _draw_rows(store, settings, classes, 2 * quota / counts[classes])
    order = permutation(len(numbers), settings.seed, 0, 1, 0)
    order = order[np.argsort(codes[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(codes[order], codes[order])
    kept = np.sort(order[rank < quota])
    if len(kept) < _MIN_ROWS or len(np.unique(codes)) < 2:
        return None
    return Sample(numbers[kept], codes[kept], classes)


def search_c(
    store: Store, sample: Sample, settings: Settings, C: float, costs: TrainingCosts, callbacks: Callbacks
) -> float:
    """Return the largest of 1, 0.1, 0.01 and 0.001 times `C` that is about as accurate as the best.

    One trial run on two thirds of the sample makes a pass for each value, in ascending order. Each pass
    starts with the weights and duals of the previous pass. If the loss does not allow this, there is a trial
    run of two passes for each value. The accuracy is measured on the remaining third. It counts as equal if
    it is at most half a standard error below the best. The sample contains all rows of some classes, because
    the best C decreases with the number of rows per class.

    `store` contains the transformed rows, and `costs` the costs of all classes. `callbacks` receives
    ``{"event": "C", ...}`` with the values tried. Raises `Interrupted` if a callback stops the search.
    """
    linear, passes_done, tried = get_loss(settings.loss).linear_duals, 0, list[dict[str, float]]()
    paths, n = [_FACTORS] if linear else [(factor,) * _PASSES for factor in _FACTORS], len(sample.numbers)

    def report(event: dict[str, Any]) -> None:
        nonlocal passes_done
        if event["event"] == "pass":
            passes_done += 1
            callbacks.progress("choose C", passes_done * n, sum(map(len, paths)) * n)
        elif event["event"] == "ready":
            callbacks.report(event)

    try:
        rows = sample.read(store)
        if rows.held_out_by and np.ptp(rows.rows(0, n).hold_out_by) == 0:
            return C  # all rows are in the same hold-out group
        costs = costs.of_classes(sample.classes)
        callbacks.progress("choose C", 0, sum(map(len, paths)) * n)
        for path in paths:
            trial = dataclasses.replace(
                settings, C=C, C_factors=path, passes=len(path), keep_duals=True, tol=None, gap="none",
                hold_out=_HOLD_OUT, valid=None, valid_labels=None,
            )  # fmt: skip
            spec = specify(trial, rows)
            training = Training(spec, *plan_rows(rows, spec), costs.row_factors(trial))
            execution = Execution(Callbacks(report, stop=callbacks.stop), workers=1)
            result, _ = train(OpenTraining(training, rows, rows, costs, {"C_auto": True}), execution)
            measured = (each for each in result.history if "valid_accuracy" in each)
            tried += [{name: each[name] for name in ("C", "valid_accuracy")} for each in measured]
    except Interrupted:
        raise Interrupted("stopped while choosing C, before training began") from None
    best = max(each["valid_accuracy"] for each in tried)
    held_out = Fraction(_HOLD_OUT) * n
    threshold = best - _STANDARD_ERRORS * math.sqrt(best * (1 - best) / held_out)
    chosen = max(each["C"] for each in tried if each["valid_accuracy"] >= threshold)
    callbacks.report({"event": "C", "C": chosen, "rows": n, "tried": tried})
    return chosen


def _draw_rows(
    store: Store, settings: Settings, classes: np.ndarray, fractions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw training rows of some classes; return their numbers, and the index of each label in `classes`.

    Each row of ``classes[c]`` is drawn with probability ``fractions[c]``, or always if it is 1 or more.
    """
    code_of = np.full(store.n_classes + 1, -1, np.int32)  # the last entry is for code -1
    code_of[classes] = np.arange(len(classes))
    numbers, codes = [], []
    for begin, end, used in rows_trained_on(store, settings):
        class_indices = code_of[store.labels(begin, end)]
        drawn = np.random.default_rng((settings.seed, begin)).random(end - begin) < fractions[class_indices]
        kept = np.flatnonzero((class_indices >= 0) & drawn & used)
        numbers.append(kept + begin)
        codes.append(class_indices[kept])
    return np.concatenate(numbers), np.concatenate(codes)
