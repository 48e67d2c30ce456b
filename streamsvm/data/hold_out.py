"""Rows that are held out of training: a share of each class, by a hash of their numbers, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.base.text import parse_part
from streamsvm.data.rows import PIECE_ROWS
from streamsvm.errors import PlanError
from streamsvm.settings.fit import NONE, Settings

if TYPE_CHECKING:
    from streamsvm.store import Store

ROW_BYTES = 10  # of each row, while rows are divided into parts


class HeldOutPart(NamedTuple):
    """One of several parts of the rows, whose sizes differ by one row at most.

    Rows are put in order by class (the first label of a row with several; rows of weight 0 are a class) and,
    within a class, by a hash (the finalizer of SplitMix64, Steele et al. 2014) of their numbers in the input.
    The parts take turns along this order, so each class is divided evenly, too. Groups stay whole: their part
    is a hash of their number.
    """

    part: int  # from 0 on
    part_of: np.ndarray  # uint8 or uint16: the part of each row, by its number in the data as given

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """Return a mask of the rows of this part, by their numbers."""
        return self.part_of[numbers] == self.part


def held_out_part(hold_out: str | None, store: Store, memory: int) -> HeldOutPart | None:
    """Return the part of the rows of a store that the setting `hold_out` names, or None.

    Raises `PlanError` if a store on disk has too many rows to divide them within `memory` bytes.
    """
    if hold_out is None:
        return None
    needed, (part, parts) = ROW_BYTES * store.n_rows, parse_part(hold_out)
    if store.members and needed > memory:
        raise PlanError(f"{store.path}: holding out rows takes {needed:,} bytes", needed_memory=needed)
    made = store.facts.parts_of
    made[parts] = made[parts] if parts in made else _divide(store, parts)
    return HeldOutPart(part - 1, made[parts])


def _divide(store: Store, parts: int) -> np.ndarray:
    """Return the part of each row by its number, from 0 on."""
    from streamsvm.kernels.random import GAMMA, mix  # numba takes long to load

    # Names are the numbers in the input of a store of `convert`, which may be shuffled.
    own = {"names"} if [each.native for each in store.members] == [True] else set()
    label_shift = np.uint64(64 - store.n_classes.bit_length())
    number_mask = np.uint64(2 ** store.n_rows.bit_length() - 1)
    keys = np.empty(store.n_rows, np.uint64)  # of each row its class, the first bits of a hash, its number
    part_of = np.empty(store.n_rows, np.min_scalar_type(parts - 1))
    for begin in range(0, store.n_rows, PIECE_ROWS):
        end = min(begin + PIECE_ROWS, store.n_rows)
        columns = store.columns(np.array([[begin, end]]), {"labels", "numbers", "qid", "cost"} | own)
        numbers = columns["numbers"].astype(np.uint64)
        hashed = mix.py_func(columns.get("qid", columns.get("names", numbers)).astype(np.uint64) + GAMMA)
        part_of[numbers] = hashed % np.uint64(parts)
        classes = np.where(columns.get("cost", np.ones(1)) > 0, columns["labels"] + 1, 0).astype(np.uint64)
        keys[begin:end] = (
            classes << label_shift | (hashed >> (np.uint64(64) - label_shift)) & ~number_mask | numbers
        )
    if not store.grouped:
        keys.sort()
        for begin in range(0, store.n_rows, PIECE_ROWS):
            numbers = keys[begin : begin + PIECE_ROWS] & number_mask
            part_of[numbers] = np.arange(begin, begin + len(numbers)) % parts
    return part_of


def is_trained_on(store: Store, settings: Settings, begin: int, end: int) -> np.ndarray:
    """Return a mask of the rows ``begin:end`` of a store that have a positive weight and are not held out."""
    part = held_out_part(settings.hold_out, store, settings.memory)
    wanted = set() if settings.sample_weight == NONE else {"cost"}
    wanted |= set() if part is None else {"numbers"}
    columns = store.columns(np.array([[begin, end]]), wanted)
    used = columns["cost"] > 0 if "cost" in columns else np.ones(end - begin, bool)
    if part is not None:
        used &= ~part.has(columns["numbers"])
    return used
