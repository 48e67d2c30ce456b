"""Rows that are held out of training, without a copy: a share of each class, or all rows of some groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.base.text import parse_part
from streamsvm.data.rows import PIECE_ROWS
from streamsvm.errors import InputError, PlanError, StreamsvmWarning, warn
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

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """Return a mask of the rows of this part, by their numbers."""
        return self.part_of[numbers] == self.part

    def described(self, by: str | None) -> str | None:
        """Say how many values of the column `by` are held out, and how many rows."""
        if not self.n_values:
            return None
        n, total, share = self.n_values[self.part], sum(self.n_values), (self.part_of == self.part).mean()
        return f"held out by {by}: {n:,} of {total:,} groups, {share:.1%} of the rows"


def held_out_part(hold_out: str | None, store: Store, memory: int) -> HeldOutPart | None:
    """Return the part of the rows of a store that the setting `hold_out` names, or None.

    Raises
    ------
    PlanError
        If a store on disk has too many rows to divide them within `memory` bytes.
    InputError
        If the column to hold out by has too few values for this part, or divides a sequence.
    """
    if hold_out is None:
        return None
    needed, (part, parts) = division_bytes(store), parse_part(hold_out)
    if store.members and needed > memory:
        raise PlanError(f"{store.path}: holding out rows takes {needed:,} bytes", needed_memory=needed)
    made = store.facts.parts_of
    if parts not in made:
        made[parts] = (_divide_values if store.held_out_by else _divide)(store, parts)
    found: HeldOutPart = made[parts]._replace(part=part - 1)
    if found.n_values and found.n_values[part - 1] in (0, total := sum(found.n_values)):
        problem = f"part {hold_out} has {found.n_values[part - 1]} of the {total:,} groups to hold out"
        raise InputError(f"{store.path}: {problem}; name another column, or make fewer parts")
    return found


def division_bytes(store: Store) -> int:
    """Return the bytes that dividing the rows takes."""
    return (26 if store.held_out_by else 10) * store.n_rows


def _pieces(store: Store, wanted: set[str]) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yield columns of the rows in pieces, which overlap by a row, each with its first row."""
    for begin in range(0, store.n_rows, PIECE_ROWS):
        first = max(begin - 1, 0)
        yield first, store.columns(np.array([[first, min(begin + PIECE_ROWS, store.n_rows)]]), wanted)


def _divide_values(store: Store, parts: int) -> HeldOutPart:
    """Divide the values of the column to hold out by, in the order of their hashes."""
    n, hashes = store.n_rows, np.empty(store.n_rows, np.int64)
    for begin, columns in _pieces(store, {"hold_out_by", "qid"}):
        found = columns["hold_out_by"]
        hashes[begin : begin + len(found)] = found
        if ((np.diff(columns.get("qid", found)) == 0) & (np.diff(found) != 0)).any():
            raise InputError(f"{store.path}: a sequence has two values of the column to hold out by")
    hashes.sort()
    edges = np.append(np.flatnonzero(np.diff(hashes, prepend=-1)), n)  # where each value begins, and the end
    n_values, largest = len(edges) - 1, np.diff(edges).max()
    if n_values > 1 and 2 * largest > n:
        warn(StreamsvmWarning(f"{store.path}: one value to hold out by has {largest:,} of the {n:,} rows"))
    cuts = [0]
    nearest = np.searchsorted(edges[1:] + edges[:-1], 2 * n * np.arange(1, parts) / parts)
    for part, at in enumerate(nearest.tolist(), 1):
        left = parts - part if parts <= n_values else 1  # values for the parts that follow
        cuts.append(min(max(at, cuts[-1] + 1), n_values - left))
    bounds, part_of = hashes[edges[cuts[1:]]], np.empty(n, np.min_scalar_type(parts - 1))
    for _, columns in _pieces(store, {"hold_out_by", "numbers"}):
        part_of[columns["numbers"]] = np.searchsorted(bounds, columns["hold_out_by"], "right")
    return HeldOutPart(0, part_of, tuple(np.diff([*cuts, n_values]).tolist()))


def _divide(store: Store, parts: int) -> HeldOutPart:
    """Divide the rows of each class."""
    from streamsvm.kernels.random import GAMMA, mix  # numba takes long to load

    # Names are the numbers in the input of a store of `convert`, which may be shuffled.
    own = {"names"} if [each.native for each in store.members] == [True] else set()
    label_shift = np.uint64(64 - store.n_classes.bit_length())
    number_mask = np.uint64(2 ** store.n_rows.bit_length() - 1)
    keys = np.empty(store.n_rows, np.uint64)  # of each row its class, the first bits of a hash, its number
    part_of = np.empty(store.n_rows, np.min_scalar_type(parts - 1))
    for begin, columns in _pieces(store, {"labels", "numbers", "qid", "cost"} | own):
        numbers = columns["numbers"].astype(np.uint64)
        hashed = mix.py_func(columns.get("qid", columns.get("names", numbers)).astype(np.uint64) + GAMMA)
        part_of[numbers] = hashed % np.uint64(parts)
        classes = np.where(columns.get("cost", np.ones(1)) > 0, columns["labels"] + 1, 0).astype(np.uint64)
        keys[begin : begin + len(numbers)] = (
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
