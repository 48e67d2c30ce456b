"""Rows that are held out of training, chosen by a hash of their numbers without copying the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.base.text import parse_part
from streamsvm.data.rows import Rows
from streamsvm.settings.fit import NONE, Settings

if TYPE_CHECKING:
    from streamsvm.store import Store

_NO_GROUPS = np.zeros(0, np.int64)


class HeldOutPart(NamedTuple):
    """One of several parts of the rows, which have about the same size.

    The part of a row is a hash (the finalizer of SplitMix64, Steele et al. 2014) of its number in the data as
    given, or of its group: so it is known before transforms are fitted and rows are put in slices.
    """

    part: int  # from 1 on
    parts: int

    def has(self, numbers: np.ndarray, qid: np.ndarray = _NO_GROUPS) -> np.ndarray:
        """Return a mask of the rows of this part, by the rows' numbers or their groups, if any."""
        from streamsvm.kernels.random import GAMMA, mix  # numba takes long to load

        mixed = mix.py_func((qid if len(qid) else numbers).astype(np.uint64) + GAMMA)
        return mixed % np.uint64(self.parts) == np.uint64(self.part - 1)

    def kept(self, first: int, rows: Rows) -> np.ndarray:
        """Return a mask of the rows outside this part; `first` is the number of the first row."""
        return ~self.has(np.arange(first, first + rows.n_rows), rows.qid)


def held_out_part(hold_out: str | None) -> HeldOutPart | None:
    """Return the part of the rows that the setting `hold_out` names, or None."""
    return None if hold_out is None else HeldOutPart(*parse_part(hold_out))


def is_trained_on(store: Store, settings: Settings, begin: int, end: int) -> np.ndarray:
    """Return a mask of the rows ``begin:end`` of a store that have a positive weight and are not held out."""
    part = held_out_part(settings.hold_out)
    wanted = set() if settings.sample_weight == NONE else {"cost"}
    wanted |= set() if part is None else {"qid", "numbers"}
    columns = store.columns(np.array([[begin, end]]), wanted)
    used = columns["cost"] > 0 if "cost" in columns else np.ones(end - begin, bool)
    if part is not None:
        used &= ~part.has(columns["numbers"], columns.get("qid", _NO_GROUPS))
    return used
