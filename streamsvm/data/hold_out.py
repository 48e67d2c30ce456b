"""Rows that are held out of training, without a copy: a share of each class, or all rows of some groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.base.text import parse_part
from streamsvm.data.rows import PIECE_ROWS
from streamsvm.errors import InputError, PlanError, Remedy
from streamsvm.settings.fit import NONE, Settings

if TYPE_CHECKING:
    from streamsvm.store import Store


class HeldOutPart(NamedTuple):
    """One of several parts of the rows.

    Their sizes differ by one row at most: rows are put in order by class (the first label of a row with
    several; rows of weight 0 are a class) and, within a class, by a hash (the finalizer of SplitMix64, Steele
    et al. 2014) of their numbers in the input. The parts take turns along this order, so each class is
    divided evenly, too. Sequences stay whole: their part is a hash of their number.

    With a column to hold out by, its values are put in the order of their hashes, and cut into parts where
    these are nearest to their shares of the rows. Each has a value or more, if there are as many.
    """

    part: int  # from 0 on
    part_of: np.ndarray  # uint8 or uint16: the part of each row, by its number in the data as given
    n_values: tuple[int, ...] = ()  # of each part, of the column to hold out by
    largest: int = 0  # rows of the most frequent value

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """Return a mask of the rows of this part, by their numbers."""
        return self.part_of[numbers] == self.part


def held_out_part(hold_out: str | None, store: Store, memory: int) -> HeldOutPart | None:
    """Return the part of the rows of a store that the setting `hold_out` names, or None.

    Raises
    ------
    PlanError
        If a store on disk has too many rows to divide them within `memory` bytes.
    InputError
        If the column to hold out by has one value, or too few for this part, or divides a sequence.
    """
    if hold_out is None:
        return None
    needed, (part, parts) = division_bytes(store), parse_part(hold_out)
    if store.members and needed > memory:
        raise PlanError(f"{store.path}: holding out rows takes {needed:,} bytes", needed_memory=needed)
    made = store.facts.parts_of
    if parts not in made:
        made[parts] = _divide_values(store, parts) if store.held_out_by else _divide(store, parts)
    found = made[parts]._replace(part=part - 1)
    if found.n_values and not found.n_values[part - 1]:
        raise InputError(
            f"{store.path}: the column to hold out by has {sum(found.n_values):,} different values, and part "
            f"{hold_out} has none of them",
            remedy=Remedy("make fewer parts"),
        )
    return found


def division_bytes(store: Store) -> int:
    """Return the bytes that dividing the rows takes."""
    return (18 if store.held_out_by else 10) * store.n_rows


def _divide_values(store: Store, parts: int) -> HeldOutPart:
    """Divide the values of the column to hold out by."""

    def read(wanted: set[str]) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        for begin in range(0, store.n_rows, PIECE_ROWS):
            end = min(begin + PIECE_ROWS, store.n_rows)
            yield begin, store.columns(np.array([[begin, end]]), wanted | {"hold_out_by"})

    n = store.n_rows
    hashes, last = np.empty(n, np.int64), (-1, -1)
    for begin, columns in read({"qid"}):
        found = columns["hold_out_by"]
        hashes[begin : begin + len(found)] = found
        if (qid := columns.get("qid")) is not None:
            follows = np.diff(qid, prepend=last[0]) == 0
            if (follows & (np.diff(found, prepend=last[1]) != 0)).any():
                raise InputError(f"{store.path}: the column to hold out by has two values in one sequence")
            last = qid[-1], found[-1]
    hashes.sort()
    starts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))  # of each value
    if len(starts) == 1:
        raise InputError(
            f"{store.path}: the column to hold out by has one value in all rows: nothing would be left",
            remedy=Remedy("name another column"),
        )
    cuts = [0]
    for part in range(1, parts):
        target = n * part / parts
        nearest = int(np.searchsorted(starts, target, "right"))
        end = starts[nearest] if nearest < len(starts) else n
        nearest -= target - starts[nearest - 1] <= end - target
        left = parts - part if parts <= len(starts) else 1  # values for the parts that follow
        cuts.append(min(max(nearest, cuts[-1] + 1), len(starts) - left))
    bounds = hashes[starts[cuts[1:]]]
    part_of = np.empty(n, np.min_scalar_type(parts - 1))
    for _, columns in read({"numbers"}):
        part_of[columns["numbers"]] = np.searchsorted(bounds, columns["hold_out_by"], "right")
    n_values = tuple(np.diff([*cuts, len(starts)]).tolist())
    return HeldOutPart(0, part_of, n_values, int(np.diff(starts, append=n).max()))


def _divide(store: Store, parts: int) -> HeldOutPart:
    """Divide the rows of each class."""
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
    return HeldOutPart(0, part_of)


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
