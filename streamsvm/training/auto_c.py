"""Automatic C: one over the mean squared distance of the rows from their mean.

What tells the classes apart is how rows differ from their mean. A block step moves a row's score for a class,
relative to that of the mean, by about C times that distance squared: so this C makes the largest step about
one margin, whatever the scale of the data, and wherever it lies. A constant feature does not change it.
Dense rows, such as embeddings, may have thousandths of that C (see `streamsvm.training.search_c`).
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.hold_out import is_trained_on
from streamsvm.errors import Option, Remedy, ScaleWarning, warn
from streamsvm.losses import get_loss
from streamsvm.settings.fit import AUTO, Settings
from streamsvm.store.ranges import ranges_of
from streamsvm.store.store import IN_MEMORY

if TYPE_CHECKING:
    from streamsvm.store import Store
    from streamsvm.transforms import Transform

_ROWS_AT_ONCE = 2**18  # labels, weights or norms read at a time
_MAX_SLICES, _SLICE_ROWS = 64, 1024  # a sample of the rows, where norms are not stored
_SHUFFLED_SLICES = 4  # of rows in random order, to estimate how far they are from their mean
_SHARE_ROWS = 1024  # of all these slices, at most
_SHARE_MEMORY, _VALUE_BYTES = 8, 64  # share of the budget for them, and bytes of a value
_LEAST_SHARE = 0.001  # of the squared norm of rows that is that of their distance from the mean
_STREAM_ROWS = 1000  # first rows of a stream, from whose norms C is chosen
_MAX_DOUBLINGS = 30
_MIN_C, _MAX_C = sys.float_info.min, sys.float_info.max


def c_of_norms(store: Store, transforms: Sequence[Transform], settings: Settings) -> tuple[Settings, bool]:
    """Return settings in which C is a number, and whether it was chosen here; to a tolerance C may grow.

    `store` has the rows after `transforms`. A store made by `streamsvm.convert` has the norms of all its
    rows, and those of rows in memory are computed. Of other AnnData, and of rows that are transformed, up to
    64 slices of 1,024 rows are read, evenly spaced; what part of the mean squared norm is that of the mean is
    estimated from about 1,000 rows. Rows of weight 0, and those held out, do not count.

    Warns
    -----
    ScaleWarning
        If nearly all of the rows is their mean: little of their digits is left for what tells classes apart.
        Or the constant feature of ``bias``, so that the passes train little more than the intercepts.
    """
    grows = settings.tol is not None and settings.from_ is None and settings.keep_duals
    if settings.C != AUTO and not (grows and get_loss(settings.loss).linear_duals):
        return settings, False
    total, count = 0.0, 0
    for norm2 in _norms_trained_on(store, settings):
        norm2 = norms_of_c(norm2, transforms, store.dtype)
        total += float(norm2.sum())
        count += int(np.count_nonzero(norm2))
    share = _share_around_mean(store, transforms, settings)
    if share < _LEAST_SHARE:
        problem = (
            f"{store.path}: the mean of the rows is more than {1 - _LEAST_SHARE:.1%} of their squared norm"
        )
        warn(ScaleWarning(problem, remedy=Remedy("subtract the mean of each column first")))
    elif share * total < _LEAST_SHARE * count * _constant2(transforms, store.dtype):
        problem = (
            f"{store.path}: the values are so small that the constant feature makes more than "
            f"{1 - _LEAST_SHARE:.1%} of the squared norm of the rows: a few passes learn little else"
        )
        remedy = Remedy("scale them, or give {} of about their size", Option("transform", "bias=value"))
        warn(ScaleWarning(problem, remedy=remedy))
    automatic = c_for(total * max(share, _LEAST_SHARE), count)
    if settings.C == AUTO:
        return dataclasses.replace(settings, C=automatic), True
    return dataclasses.replace(settings, C_factors=_growth(automatic / settings.C, settings.passes)), False


def _growth(first: float, passes: int) -> tuple[float, ...]:
    """Return factors of C, doubled in each pass: from `first`, or as much as is 1 by half of the passes."""
    first = max(first, 0.5 ** min(passes // 2, _MAX_DOUBLINGS))
    if first >= 1:
        return ()
    doubled = (first * 2.0**n for n in itertools.count())
    return (*itertools.takewhile(lambda factor: factor < 1, doubled), 1.0)


def _share_around_mean(store: Store, transforms: Sequence[Transform], settings: Settings) -> float:
    """Estimate the squared distances of rows from their mean, as a share of their squared norms."""
    if not store.n_rows:
        return 1.0
    of_memory = settings.memory // (_SHARE_MEMORY * _VALUE_BYTES)
    most = max(2, min(_SHARE_ROWS, of_memory * store.n_rows // max(store.nnz, 1)))
    rows = store.read(ranges_of(_sample(store, settings, most)))
    norms = norms_of_c(rows.norm2, transforms, store.dtype)
    kept = norms > 0
    n = int(np.count_nonzero(kept))
    if n < 2:
        return 1.0
    values = np.where(np.repeat(kept, np.diff(rows.indptr)), rows.data, 0).astype(np.float64)
    if rows.dense:
        sums = values.reshape(rows.n_rows, -1).sum(axis=0)
    else:
        sums = np.bincount(np.unique(rows.features, return_inverse=True)[1], values)
    # Not as scalar products, whose last bits depend on the number of threads.
    around = float(np.square(values).sum() - np.square(sums).sum() / n) * n / (n - 1)
    return min(around / float(norms[kept].sum()), 1.0)


def _sample(store: Store, settings: Settings, most: int) -> np.ndarray:
    """Return the numbers of about `most` rows that are trained on, ascending: some slices, evenly spaced."""
    n_slices = min(_SHUFFLED_SLICES if store.shuffled else _MAX_SLICES, most)
    length = most // n_slices
    begins = np.linspace(0, max(store.n_rows - length, 0), n_slices, dtype=np.int64)
    numbers = np.unique((begins[:, np.newaxis] + np.arange(length)).clip(max=store.n_rows - 1))
    used = [is_trained_on(store, settings, *each) for each in ranges_of(numbers).tolist()]
    found = numbers[np.concatenate(used)]
    if 2 * len(found) >= len(numbers):
        return found

    def spread(numbers: np.ndarray) -> np.ndarray:
        at = np.linspace(0, max(len(numbers) - 1, 0), min(most, len(numbers)), dtype=np.int64)
        return numbers[at]

    parts = [spread(begin + np.flatnonzero(used)) for begin, _, used in rows_trained_on(store, settings)]
    return spread(np.concatenate(parts))


def rows_trained_on(store: Store, settings: Settings) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield ranges of all rows as (begin, end, mask of those that are trained on)."""
    for begin in range(0, store.n_rows, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, store.n_rows)
        yield begin, end, is_trained_on(store, settings, begin, end)


def norms_of_c(norm2: np.ndarray, transforms: Sequence[Transform], dtype: np.dtype) -> np.ndarray:
    """Return squared norms of rows without the constant feature that a transform may have added.

    Parameters
    ----------
    norm2 : ndarray of float64, shape (n_rows,)
        Squared norms of the transformed rows.
    transforms : sequence of Transform
    dtype : dtype
        Type of the values.
    """
    constant2 = _constant2(transforms, dtype)
    return np.maximum(norm2 - constant2, 0.0) if constant2 else norm2


def _constant2(transforms: Sequence[Transform], dtype: np.dtype) -> float:
    """Return the square of the constant feature that a transform may have added, or 0."""
    return float(sum(np.square(np.float64(np.asarray(each.constant or 0, dtype))) for each in transforms))


def c_for(total: float, count: int) -> float:
    """Return C for `count` rows whose squared norms sum to `total`: positive and finite; 1 without rows."""
    with np.errstate(all="ignore"):
        mean = np.float64(total) / np.float64(count)
        C = 1.0 / mean if mean > 0 else 1.0
    return float(min(max(C, _MIN_C), _MAX_C))


Norms = tuple[float, int]  # sum and number of nonzero squared norms


def running_costs(C: Any, norm2: np.ndarray, visited: int, norms: Norms) -> tuple[np.ndarray, Norms]:
    """Return C for each row of a stream, and the norms after the rows.

    Parameters
    ----------
    C : float or "auto"
        With "auto", it is chosen from the norms of the first 1,000 rows or, until then, of those up to a row.
    norm2 : ndarray of float64, shape (n_rows,)
        Squared norms of the next rows.
    visited : int
        Number of rows before these.
    norms : tuple of float and int
        Sum and number of the nonzero squared norms among the first 1,000 rows that came before these.
    """
    if C != AUTO:
        return np.full(len(norm2), C), norms
    n = min(max(_STREAM_ROWS - visited, 0), len(norm2))  # rows that still decide
    sums = np.cumsum([norms[0], *norm2[:n]])
    counts = np.cumsum([norms[1], *(norm2[:n] > 0)])
    cost = np.full(len(norm2), c_for(float(sums[-1]), int(counts[-1])))
    for i in range(n):
        cost[i] = c_for(float(sums[i + 1]), int(counts[i + 1]))
    return cost, (float(sums[-1]), int(counts[-1]))


def _norms_trained_on(store: Store, settings: Settings) -> Iterator[np.ndarray]:
    """Yield squared norms of rows that are trained on: of all, or of a sample if norms are not stored."""
    if store.native or store.kind == IN_MEMORY:
        for begin, end, used in rows_trained_on(store, settings):
            yield store.norms(begin, end)[used]
        return
    n_slices = min(_MAX_SLICES, -(-store.n_rows // _SLICE_ROWS))
    starts = np.linspace(0, store.n_rows, n_slices, endpoint=False).astype(np.int64)
    for begin, stop in zip(starts.tolist(), [*starts[1:].tolist(), store.n_rows], strict=True):
        end = min(begin + _SLICE_ROWS, stop)
        yield store.norms(begin, end)[is_trained_on(store, settings, begin, end)]
