"""Hold out a fraction of each class, or all rows of some groups, without copying rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.base.text import parse_part
from streamsvm.data.rows import PIECE_ROWS
from streamsvm.errors import InputError, PlanError, warn
from streamsvm.settings.fit import NONE, Settings

if TYPE_CHECKING:
    from streamsvm.store import Store


class HeldOutPart(NamedTuple):
    """One of several parts into which the rows of a store are divided.

    By default, rows are sorted by class and, within a class, by a hash of their number in the input (the
    finalizer of SplitMix64, Steele et al. 2014). The sorted rows are dealt to the parts in turn, so part
    sizes differ by at most one row, and each class is divided evenly. Rows with several labels are sorted by
    their first label, and rows with weight 0 form an additional class. A sequence is never divided: a hash of
    its number determines its part.

    With a hold-out column, the hashes of its values are sorted and cut into parts with about the same number
    of rows. Each part contains at least one value if there are enough values.
    """

    part: int  # from 0
    part_of: np.ndarray  # uint8 or uint16: part of each row, by row number in the input
    n_values: tuple[int, ...] = ()  # number of hold-out values in each part

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """Return a mask of the rows in this part, given the numbers of the rows in the input."""
        return self.part_of[numbers] == self.part

    def described(self, by: str | None) -> str | None:
        """Describe how much is held out by the column `by`; return None if there is no hold-out column."""
        if not self.n_values:
            return None
        n, total, fraction = self.n_values[self.part], sum(self.n_values), (self.part_of == self.part).mean()
        return f"held out by {by}: {n:,} of {total:,} groups, {fraction:.1%} of the rows"


def held_out_part(hold_out: str | None, store: Store, memory: int) -> HeldOutPart | None:
    """Return the part of the rows that the setting `hold_out` names, or None if it is not set.

    Raises `PlanError` if dividing the rows of a store on disk takes more than `memory` bytes. Raises
    `InputError` if the hold-out column has too few values for this part, or several values in a sequence.
    """
    if hold_out is None:
        return None
    needed, (part, parts) = division_bytes(store), parse_part(hold_out)
    if store.members and needed > memory:
        raise PlanError(f"{store.path}: holding out rows needs {needed:,} bytes", needed_memory=needed)
    divisions = store.facts.parts_of
    if parts not in divisions:
        divisions[parts] = (_divide_values if store.held_out_by else _divide)(store, parts)
    result: HeldOutPart = divisions[parts]._replace(part=part - 1)
    if result.n_values and result.n_values[part - 1] in (0, total := sum(result.n_values)):
        problem = f"part {hold_out} contains {result.n_values[part - 1]} of the {total:,} groups to hold out"
        raise InputError(f"{store.path}: {problem}; choose another column, or use fewer parts")
    return result


def division_bytes(store: Store) -> int:
    """Return the memory, in bytes, that is needed to divide the rows of a store into parts."""
    return (26 if store.held_out_by else 10) * store.n_rows


def _pieces(store: Store, names: set[str]) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yield (first row, columns) for pieces of the rows; successive pieces overlap by one row."""
    for begin in range(0, store.n_rows, PIECE_ROWS):
        first = max(begin - 1, 0)
        yield first, store.columns(np.array([[first, min(begin + PIECE_ROWS, store.n_rows)]]), names)


def _divide_values(store: Store, parts: int) -> HeldOutPart:
    n, hashes = store.n_rows, np.empty(store.n_rows, np.int64)
    for begin, columns in _pieces(store, {"hold_out_by", "qid"}):
        values = columns["hold_out_by"]
        hashes[begin : begin + len(values)] = values
        if ((np.diff(columns.get("qid", values)) == 0) & (np.diff(values) != 0)).any():
            raise InputError(f"{store.path}: a sequence has two hold-out values; choose another column")
    hashes.sort()
    edges = np.append(np.flatnonzero(np.diff(hashes, prepend=-1)), n)  # start of each value, and the end
    n_values, largest = len(edges) - 1, np.diff(edges).max()
    if n_values > 1 and 2 * largest > n:
        warn(f"{store.path}: {largest:,} of the {n:,} rows share one hold-out value; try another column")
    cuts = [0]
    nearest = np.searchsorted(edges[1:] + edges[:-1], 2 * n * np.arange(1, parts) / parts)
    for part, at in enumerate(nearest.tolist(), 1):
        reserved = parts - part if parts <= n_values else 1  # values reserved for the remaining parts
        cuts.append(min(max(at, cuts[-1] + 1), n_values - reserved))
    bounds, part_of = hashes[edges[cuts[1:]]], np.empty(n, np.min_scalar_type(parts - 1))
    for _, columns in _pieces(store, {"hold_out_by", "numbers"}):
        part_of[columns["numbers"]] = np.searchsorted(bounds, columns["hold_out_by"], "right")
    return HeldOutPart(0, part_of, tuple(np.diff([*cuts, n_values]).tolist()))


def _divide(store: Store, parts: int) -> HeldOutPart:
    from streamsvm.kernels.random import GAMMA, mix  # late, because numba is slow to import

    # A store made by `convert` may be shuffled, but its row names are the row numbers in the input.
    input_numbers = {"names"} if [each.native for each in store.members] == [True] else set()
    label_shift = np.uint64(64 - store.n_classes.bit_length())
    number_mask = np.uint64(2 ** store.n_rows.bit_length() - 1)
    keys = np.empty(store.n_rows, np.uint64)  # bits of a key: class, first bits of the hash, row number
    part_of = np.empty(store.n_rows, np.min_scalar_type(parts - 1))
    for begin, columns in _pieces(store, {"labels", "numbers", "qid", "cost"} | input_numbers):
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
    """Return a mask of the rows ``begin:end`` that have a positive weight and are not held out."""
    part = held_out_part(settings.hold_out, store, settings.memory)
    names = set() if settings.sample_weight == NONE else {"cost"}
    names |= set() if part is None else {"numbers"}
    columns = store.columns(np.array([[begin, end]]), names)
    used = columns["cost"] > 0 if "cost" in columns else np.ones(end - begin, bool)
    if part is not None:
        used &= ~part.has(columns["numbers"])
    return used
