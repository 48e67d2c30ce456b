"""Automatic C: one over the mean squared distance of the rows from their mean.

A block step changes the score of a row for a class, relative to the score of the mean, by about C times this
squared distance. The largest step is therefore about one margin, whatever the scale and the mean of the data.
Dense rows, such as embeddings, may need a C that is 1,000 times smaller (see `streamsvm.training.search_c`).
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

_ROWS_AT_ONCE = 2**18
_MAX_SLICES, _SLICE_ROWS = 64, 1024  # sample of the rows if norms are not stored
_SHUFFLED_SLICES = 4  # slices for the estimate of `_spread_fraction` if rows are shuffled
_FRACTION_ROWS = 1024
_SHARE_MEMORY, _VALUE_BYTES = 8, 64  # budget divided by the memory for this estimate; bytes per value
_MIN_FRACTION = 0.001  # warn if squared distances from the mean are a smaller fraction of squared norms
_STREAM_ROWS = 1000
_MAX_DOUBLINGS = 30
_MIN_C, _MAX_C = sys.float_info.min, sys.float_info.max


def settle_c(store: Store, transforms: Sequence[Transform], settings: Settings) -> tuple[Settings, bool]:
    """Return settings with a numeric C, and whether C was "auto" before.

    If there is a tolerance, C may grow from pass to pass. `store` contains the rows after `transforms`. All
    norms are used if the store was written by `streamsvm.convert` or is in memory. Otherwise, up to 64 evenly
    spaced slices of 1,024 rows are read. About 1,000 rows suffice to estimate how much of the squared norms
    is due to the mean row. Held-out rows and rows with weight 0 are ignored.

    A `ScaleWarning` is issued if the mean row accounts for nearly all of the squared norms, so that only a
    few digits are left for the differences between rows. It is also issued if the constant feature of
    ``bias`` accounts for nearly all of them, so that the passes train little more than the intercepts.
    """
    grows = settings.tol is not None and settings.from_ is None and settings.keep_duals
    if settings.C != AUTO and not (grows and get_loss(settings.loss).linear_duals):
        return settings, False
    total, count = 0.0, 0
    for norm2 in _norms_trained_on(store, settings):
        norm2 = norms_of_c(norm2, transforms, store.dtype)
        total += float(norm2.sum())
        count += int(np.count_nonzero(norm2))
    fraction = _spread_fraction(store, transforms, settings)
    if fraction < _MIN_FRACTION:
        mean = f"the mean of the rows makes up more than {1 - _MIN_FRACTION:.1%} of their squared norm"
        warn(ScaleWarning(f"{store.path}: {mean}", remedy=Remedy("subtract the mean of each column first")))
    elif fraction * total < _MIN_FRACTION * count * _constant2(transforms, store.dtype):
        problem = (
            f"{store.path}: the values are so small that the constant feature makes up more than "
            f"{1 - _MIN_FRACTION:.1%} of the squared norm of rows, so passes train little but the intercepts"
        )
        remedy = Remedy("scale the values, or use {} with a smaller value", Option("transform", "bias=value"))
        warn(ScaleWarning(problem, remedy=remedy))
    automatic = c_for(total * max(fraction, _MIN_FRACTION), count)
    if settings.C == AUTO:
        return dataclasses.replace(settings, C=automatic), True
    return dataclasses.replace(settings, C_factors=_growth(automatic / settings.C, settings.passes)), False


def _growth(first: float, passes: int) -> tuple[float, ...]:
    """Return factors of C that double in each pass and reach 1 after at most half of the passes."""
    first = max(first, 0.5 ** min(passes // 2, _MAX_DOUBLINGS))
    if first >= 1:
        return ()
    doubled = (first * 2.0**n for n in itertools.count())
    return (*itertools.takewhile(lambda factor: factor < 1, doubled), 1.0)


def _spread_fraction(store: Store, transforms: Sequence[Transform], settings: Settings) -> float:
    """Estimate the sum of squared distances from the mean row, divided by the sum of squared norms."""
    if not store.n_rows:
        return 1.0
    affordable = settings.memory // (_SHARE_MEMORY * _VALUE_BYTES)
    limit = max(2, min(_FRACTION_ROWS, affordable * store.n_rows // max(store.nnz, 1)))
    rows = store.read(ranges_of(_sample(store, settings, limit)))
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
    # Dot products are avoided, because their last bits depend on the number of threads.
    around = float(np.square(values).sum() - np.square(sums).sum() / n) * n / (n - 1)
    return min(around / float(norms[kept].sum()), 1.0)


def _sample(store: Store, settings: Settings, limit: int) -> np.ndarray:
    """Return ascending numbers of about `limit` rows to train on, if possible in evenly spaced slices."""
    n_slices = min(_SHUFFLED_SLICES if store.shuffled else _MAX_SLICES, limit)
    length = limit // n_slices
    begins = np.linspace(0, max(store.n_rows - length, 0), n_slices, dtype=np.int64)
    numbers = np.unique((begins[:, np.newaxis] + np.arange(length)).clip(max=store.n_rows - 1))
    used = [is_trained_on(store, settings, *bounds) for bounds in ranges_of(numbers).tolist()]
    sampled = numbers[np.concatenate(used)]
    if 2 * len(sampled) >= len(numbers):
        return sampled

    def spread(numbers: np.ndarray) -> np.ndarray:
        at = np.linspace(0, max(len(numbers) - 1, 0), min(limit, len(numbers)), dtype=np.int64)
        return numbers[at]

    parts = [spread(begin + np.flatnonzero(used)) for begin, _, used in rows_trained_on(store, settings)]
    return spread(np.concatenate(parts))


def rows_trained_on(store: Store, settings: Settings) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield successive ranges of the rows as (begin, end, mask of the rows to train on)."""
    for begin in range(0, store.n_rows, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, store.n_rows)
        yield begin, end, is_trained_on(store, settings, begin, end)


def norms_of_c(norm2: np.ndarray, transforms: Sequence[Transform], dtype: np.dtype) -> np.ndarray:
    """Return the squared norms of transformed rows without the constant feature, float64 (n_rows,)."""
    constant2 = _constant2(transforms, dtype)
    return np.maximum(norm2 - constant2, 0.0) if constant2 else norm2


def _constant2(transforms: Sequence[Transform], dtype: np.dtype) -> float:
    return float(sum(np.square(np.float64(np.asarray(each.constant or 0, dtype))) for each in transforms))


def c_for(total: float, count: int) -> float:
    """Return ``count / total``, limited to positive, finite numbers; return 1 if `total` is 0."""
    with np.errstate(all="ignore"):
        mean = np.float64(total) / np.float64(count)
        C = 1.0 / mean if mean > 0 else 1.0
    return float(min(max(C, _MIN_C), _MAX_C))


Norms = tuple[float, int]  # sum and number of non-zero squared norms


def running_costs(C: Any, norm2: np.ndarray, visited: int, norms: Norms) -> tuple[np.ndarray, Norms]:
    """Return C for each row of a batch of a stream, and the updated `norms`.

    If C is "auto", it is determined by the norms of the first 1,000 rows of the stream. For each of these
    rows, only the norms up to and including its own are used. `norm2` contains the squared norms of the
    batch, float64 (n_rows,), and `visited` is the number of rows before the batch. `norms` is the sum and the
    number of the non-zero squared norms before the batch, among the first 1,000 rows of the stream.
    """
    if C != AUTO:
        return np.full(len(norm2), C), norms
    n = min(max(_STREAM_ROWS - visited, 0), len(norm2))
    sums = np.cumsum([norms[0], *norm2[:n]])
    counts = np.cumsum([norms[1], *(norm2[:n] > 0)])
    cost = np.full(len(norm2), c_for(float(sums[-1]), int(counts[-1])))
    for i in range(n):
        cost[i] = c_for(float(sums[i + 1]), int(counts[i + 1]))
    return cost, (float(sums[-1]), int(counts[-1]))


def _norms_trained_on(store: Store, settings: Settings) -> Iterator[np.ndarray]:
    """Yield the squared norms of all rows to train on, or of a sample if norms are not stored."""
    if store.native or store.kind == IN_MEMORY:
        for begin, end, used in rows_trained_on(store, settings):
            yield store.norms(begin, end)[used]
        return
    n_slices = min(_MAX_SLICES, -(-store.n_rows // _SLICE_ROWS))
    starts = np.linspace(0, store.n_rows, n_slices, endpoint=False).astype(np.int64)
    for begin, stop in zip(starts.tolist(), [*starts[1:].tolist(), store.n_rows], strict=True):
        end = min(begin + _SLICE_ROWS, stop)
        yield store.norms(begin, end)[is_trained_on(store, settings, begin, end)]
