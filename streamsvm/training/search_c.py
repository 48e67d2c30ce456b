"""Automatic C of dense rows: the best of four on a part of a sample that is held out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamsvm.data.hold_out import is_trained_on
from streamsvm.kernels.dual_matrix import MOST_COLUMNS
from streamsvm.kernels.random import permutation
from streamsvm.losses import get_loss
from streamsvm.settings.fit import AUTO, Settings
from streamsvm.store import Store
from streamsvm.store.arrays import ArrayStore
from streamsvm.store.ranges import ranges_of
from streamsvm.training.auto_c import c_of_norms, with_c
from streamsvm.training.costs import read_training_costs
from streamsvm.training.spec import specify, takes_dense_rows
from streamsvm.training.train_rows import train_rows
from streamsvm.transforms import Transform

_FACTORS = (1.0, 0.1, 0.01, 0.001)
_HOLD_OUT = "1/5"
_PASSES = 2
_MOST_ROWS, _LEAST_ROWS = 20_000, 500  # of the sample
_LEAST_CLASSES = 16  # of the sample, if there are as many: none has more than its share of the rows
_MEMORY_SHARE = 16  # of the budget, for the values of the sample
_ROWS_AT_ONCE = 2**18  # labels read at a time


def choose_c(store: Store, transforms: Sequence[Transform], settings: Settings) -> tuple[Settings, bool]:
    """Return settings in which C and first_C are numbers, and whether C was chosen here.

    `store` has the rows after `transforms`. C auto is as `c_of_norms` has it; of dense rows with one label
    each, `search_c` may make it smaller. A path has several values of C already.
    """
    found, chosen = c_of_norms(store, transforms, settings)
    searched = settings.C == AUTO and settings.C_path is None and not store.multilabel
    if searched and store.dense_rows and takes_dense_rows(settings):
        found = with_c(settings, search_c(store, settings, found.C))
    return found, chosen


def search_c(store: Store, settings: Settings, C: float) -> float:
    """Return 1, 0.1, 0.01 or 0.001 times `C`: the one whose model is right most often on held-out rows.

    For each, two passes are made over four fifths of a sample, which has all rows of some classes: the best C
    is the smaller, the more rows a class has. Of equal ones the largest is returned; and `C`, if there are
    fewer than 500 rows to train on, or all are of one class.

    Parameters
    ----------
    store : Store
        Dense rows of one label each, after the transforms.
    settings : Settings
    C : float
    """
    sample = draw_sample(store, settings)
    if sample is None:
        return C
    right = [accuracy(sample, settings, C * factor) for factor in _FACTORS]
    return C * _FACTORS[int(np.argmax(right))]


def accuracy(sample: ArrayStore, settings: Settings, C: float) -> float:
    """Return the accuracy on held-out rows of a sample after training on the others with `C`."""
    tried = Settings(
        loss=settings.loss, **settings.of_loss, C=C, passes=_PASSES, average=settings.average, gap="none",
        dtype=settings.dtype, seed=settings.seed, memory=settings.memory,
        sample_weight=settings.sample_weight, inner_passes=settings.inner_passes, hold_out=_HOLD_OUT,
    )  # fmt: skip
    costs = read_training_costs(tried, sample.classes, sample.class_counts, {})
    record = {"classes": sample.classes, "n_features": sample.n_features, "index_base": None, "C_auto": True}
    result = train_rows(sample, specify(with_c(tried, C), sample), costs, record=record, workers=1).result
    assert result is not None
    assert result.valid_accuracy is not None
    return result.valid_accuracy


def draw_sample(store: Store, settings: Settings) -> ArrayStore | None:
    """Return all rows to train on of some classes, drawn by the seed; None if they are too few.

    Of a class with more than its share of the sample, the rows are drawn, too.
    """
    loss, k = get_loss(settings.loss), store.n_classes
    duals = min(k, MOST_COLUMNS) if loss.duals == "sparse" else k  # of a row, in memory for two passes
    row_bytes = (store.n_features + 2 * duals) * store.dtype.itemsize
    most = min(_MOST_ROWS, settings.memory // (_MEMORY_SHARE * row_bytes))
    counts = store.class_counts
    classes = np.flatnonzero(counts)
    share = most if counts.sum() <= most else most // min(max(len(classes), 1), _LEAST_CLASSES)
    classes = classes[permutation(len(classes), settings.seed, 0, 0, 0)]
    reached = np.cumsum(np.minimum(counts[classes], share))
    classes = np.sort(classes[: np.searchsorted(reached, most) + 1])
    numbers, codes = _rows_of(store, settings, classes, 2 * share / counts[classes])
    order = permutation(len(numbers), settings.seed, 0, 1, 0)
    order = order[np.argsort(codes[order], kind="stable")]  # by class, within it at random
    place = np.arange(len(order)) - np.searchsorted(codes[order], codes[order])
    kept = np.sort(order[place < share])
    if len(kept) < _LEAST_ROWS or len(np.unique(codes)) < 2:
        return None
    rows = store.read(ranges_of(numbers[kept]))._replace(labels=codes[kept])
    return ArrayStore(rows, {"classes": [store.classes[c] for c in classes]}, store.n_features)


def _rows_of(
    store: Store, settings: Settings, classes: np.ndarray, part: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to train on of some classes, and the places of their classes among these.

    Of each class they are about a `part`, or all if that is 1 or more.
    """
    code_of = np.full(store.n_classes + 1, -1, np.int32)  # the last entry serves code -1
    code_of[classes] = np.arange(len(classes))
    numbers, codes = [], []
    for begin in range(0, store.n_rows, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, store.n_rows)
        found = code_of[store.labels(begin, end)]
        drawn = np.random.default_rng((settings.seed, begin)).random(end - begin) < part[found]
        kept = np.flatnonzero((found >= 0) & drawn & is_trained_on(store, settings, begin, end))
        numbers.append(kept + begin)
        codes.append(found[kept])
    return np.concatenate(numbers), np.concatenate(codes)
