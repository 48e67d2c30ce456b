"""The default of C: one over the mean squared norm of the rows.

A block step moves a row's scores by at most C‖x‖² for each class, so this C makes the largest step one
margin, whatever the scale of the data.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.settings import AUTO, Settings
from streamsvm.transforms import apply

if TYPE_CHECKING:
    from streamsvm.store import Store
    from streamsvm.transforms import Transform

_PIECE = 2**18  # rows whose norms are read at a time
_SLICES, _SLICE = 64, 1024  # rows of AnnData by others that are looked at: its norms are not stored
_SMALLEST, _LARGEST = sys.float_info.min, sys.float_info.max


def choose_c(store: Store, settings: Settings, transforms: Sequence[Transform] = ()) -> tuple[Settings, bool]:
    """Settings in which C is a number, and whether it was chosen here.

    A store made by `streamsvm.convert` has the norms of all its rows; of other AnnData, and of rows that are
    transformed, up to 64 slices of 1,024 rows are read, evenly spaced.
    """
    if settings.C != AUTO:
        return settings, False
    total, count = 0.0, 0
    for norm2 in _norms(store, transforms):
        total += float(norm2.sum())
        count += int(np.count_nonzero(norm2))
    return dataclasses.replace(settings, C=c_for(total, count)), True


def c_for(total: float, count: int) -> float:
    """C for `count` rows whose squared norms sum to `total`: positive and finite; 1 if there are none."""
    with np.errstate(all="ignore"):
        mean = np.float64(total) / np.float64(count)
        C = 1.0 / mean if mean > 0 else 1.0
    return float(min(max(C, _SMALLEST), _LARGEST))


def _norms(store: Store, transforms: Sequence[Transform]) -> Iterator[np.ndarray]:
    """Squared norms of the transformed rows, some at a time."""
    if store.native and not transforms:
        for begin in range(0, store.n_rows, _PIECE):
            yield store.norms(begin, min(begin + _PIECE, store.n_rows))
        return
    n_slices = min(_SLICES, -(-store.n_rows // _SLICE))
    for begin in np.linspace(0, max(store.n_rows - _SLICE, 0), n_slices).astype(np.int64).tolist():
        end = min(begin + _SLICE, store.n_rows)
        yield apply(transforms, store.rows(begin, end)).norm2 if transforms else store.norms(begin, end)
