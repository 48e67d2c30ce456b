"""Class labels of text: their order, and a hash table that numbers them without a Python object per row."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from decimal import Decimal

import numpy as np
from streamsvm_converters.libsvm.lines import COMMA, OK, Parsed
from streamsvm_converters.libsvm.numbers import compiled, inlined
from streamsvm_converters.libsvm.parse_errors import show

from streamsvm.base.format import LABEL_DTYPE, UNSEEN_LABEL
from streamsvm.base.label_texts import as_number, canonical_name

# Bytes of memory for each label beside its text: table, offsets, and at the end its str and sort key.
_BYTES_PER_LABEL = 400
_MAX_UNKNOWN_BYTES = 2**22  # such bytes of spellings that mean no known class: they are forgotten then


def duplicate_warnings(labels: Iterable[str]) -> list[str]:
    """Return a warning about the first two labels that spell the same number: they are two classes."""
    seen: dict[Decimal, str] = {}
    for label in labels:
        if (value := as_number(label)) is not None:
            twin = seen.setdefault(Decimal(label if value else 0), label)  # exact, for row numbers as labels
            if twin is not label:
                pair = f"{show(twin.encode())} and {show(label.encode())}"
                return [f"labels {pair} are the same number but different classes; spell them alike"]
    return []


class LabelTable:
    """Hash table of the spellings of labels, and of the classes that they mean.

    Codes count the classes in the order of their first appearance. The class of a spelling is looked up once.

    Parameters
    ----------
    known : sequence of str, optional
        Labels that have the codes 0, 1, ... from the start.
    learns : bool, optional
        Whether any other label gets the next code, or -1. By default it learns if `known` is None.
    as_text : bool
        Whether labels are different if they are spelled differently, or numbers are compared as numbers.
    """

    def __init__(
        self, known: Sequence[str] | None = None, learns: bool | None = None, *, as_text: bool = False
    ) -> None:
        self.learns = known is None if learns is None else learns
        self._classes = list(known or ())
        self._name = str if as_text else canonical_name
        self._codes = {self._name(label): code for code, label in enumerate(self._classes)}
        self._codes |= {label: code for code, label in enumerate(self._classes)}
        self._takes_spellings = self.learns or not as_text
        self._reset()

    def _reset(self) -> None:
        """Fill the table with the spellings of the classes, and forget all others."""
        texts = [label.encode("utf-8") for label in self._classes]
        self._n_spellings = len(texts)
        self._letters = np.frombuffer(b"".join(texts), dtype=np.uint8)
        self._ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        self._code_of = np.array([*range(len(texts)), UNSEEN_LABEL], LABEL_DTYPE)  # the last one of faults
        self._max_bytes = self.nbytes + _MAX_UNKNOWN_BYTES
        self._grow()

    def _grow(self, n_letters: int = 0) -> None:
        """Make room for as many labels again, of which one may have `n_letters`."""
        count = self._n_spellings
        n_slots = 1 << (4 * count + 15).bit_length()
        self._ends = np.pad(self._ends[: count + 1], (0, n_slots // 2 - count))
        self._letters = np.pad(self._letters, (0, max(256, len(self._letters)) + n_letters))
        self._slots = np.full(n_slots, -1, dtype=np.int32)
        rehash(self._slots, self._ends, self._letters, count)

    def encode(
        self, text: np.ndarray, parsed: Parsed, n_rows: int, *, lists: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the codes of the label of each row, with `lists` of its labels, and where they begin.

        Returns
        -------
        codes : ndarray of int32, shape (n_labels,)
        indptr : ndarray of int64, shape (n_rows + 1,)
            Rows with a fault have no labels.
        """
        lengths = parsed.label_end[:n_rows] - parsed.label_at[:n_rows]
        codes = np.empty(int(((lengths + 1) // 2).sum()), np.int32)  # between two labels is a comma
        indptr = np.zeros(n_rows + 1, np.int64)
        row = 0
        while True:
            row, self._n_spellings = encode_labels(
                text, parsed, row, n_rows, lists, self._slots, self._ends, self._letters, self._n_spellings,
                self._takes_spellings, codes, indptr,
            )  # fmt: skip
            if row == n_rows:
                return self._class_codes(codes[: indptr[-1]]), indptr
            self._grow(int(lengths[row]))

    def _class_codes(self, spellings: np.ndarray) -> np.ndarray:
        """Return the codes of classes for those of spellings, after looking up the new spellings."""
        seen = len(self._code_of) - 1
        if seen < self._n_spellings:
            new = [self._code(text) for text in self._spellings(seen)]
            self._code_of = np.concatenate([self._code_of[:-1], np.array([*new, UNSEEN_LABEL], LABEL_DTYPE)])
        codes = self._code_of[spellings]
        if not self.learns and self.nbytes > self._max_bytes:
            self._reset()  # unknown labels may be as many as rows
        return codes

    def _code(self, text: str) -> int:
        """Return the code of the class of a spelling that is new."""
        name = self._name(text)
        code = self._codes.get(name, UNSEEN_LABEL)
        if code == UNSEEN_LABEL and self.learns:
            code = self._codes[name] = len(self._classes)
            self._classes.append(name)
        return code

    def _spellings(self, first: int = 0) -> list[str]:
        """Return the spellings from number `first` on."""
        ends = self._ends[first : self._n_spellings + 1].tolist()
        letters = self._letters[ends[0] : ends[-1]].tobytes()
        return [letters[a - ends[0] : b - ends[0]].decode("utf-8") for a, b in itertools.pairwise(ends)]

    @property
    def count(self) -> int:
        """Number of classes."""
        return len(self._classes)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the labels take, including their sorting at the end."""
        return self._n_spellings * _BYTES_PER_LABEL + int(self._ends[self._n_spellings])

    def texts(self) -> list[str]:
        """Return the names of the classes in the order of their codes."""
        return list(self._classes)

    def notes(self) -> list[str]:
        """Return a line about the first two spellings of one class, if any class has two."""
        first: dict[int, str] = {}
        for text, code in zip(self._spellings(), self._code_of.tolist(), strict=False):
            if code != UNSEEN_LABEL and (other := first.setdefault(code, text)) is not text:
                pair = f"{show(other.encode())} and {show(text.encode())}"
                return [f"labels {pair} are one number, and so one class, {self._classes[code]}"]
        return []


# -- compiled hash table ---------------------------------------------------------------------------

TABLE_FULL = -2
FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@compiled
def first_slot(text, at, end, n_slots):
    """Return where to start looking for text[at:end] among `n_slots`, a power of two (FNV-1a, folded)."""
    value = FNV_OFFSET
    for place in range(at, end):
        value = (value ^ np.uint64(text[place])) * FNV_PRIME
    return np.int64((value ^ (value >> np.uint64(32))) & np.uint64(n_slots - 1))


@compiled
def find_label(text, at, end, slots, ends, letters):
    """Return the slot that holds the code of text[at:end], or the empty slot (-1) where it belongs."""
    slot = first_slot(text, at, end, len(slots))
    while slots[slot] >= 0:
        code = slots[slot]
        begin = ends[code]
        if ends[code + 1] - begin == end - at:
            same = True
            for place in range(end - at):
                if letters[begin + place] != text[at + place]:
                    same = False
                    break
            if same:
                break
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@compiled
def rehash(slots, ends, letters, count):
    """Insert labels 0..count-1 into an empty table."""
    for code in range(count):
        slots[find_label(letters, ends[code], ends[code + 1], slots, ends, letters)] = code


@inlined
def code_of(text, at, end, slots, ends, letters, count, learn):
    """Return (code, count) of the label text[at:end]; a new one gets the next code with `learn`, else -1.

    Label c is letters[ends[c]:ends[c + 1]]. The code is TABLE_FULL if the table must grow first.
    """
    slot = find_label(text, at, end, slots, ends, letters)
    if slots[slot] < 0 and learn:
        stop = ends[count] + end - at
        if 2 * (count + 1) > len(slots) or stop > len(letters):
            return np.int32(TABLE_FULL), count
        for place in range(end - at):
            letters[ends[count] + place] = text[at + place]
        count += 1
        ends[count] = stop
        slots[slot] = count - 1
    return slots[slot], count


@compiled
def encode_labels(text, parsed, row, n_rows, lists, slots, ends, letters, count, learn, codes, indptr):
    """Write the codes of the labels of each row without a fault to `codes`, and where they end to `indptr`.

    Starts at `row`, whose labels begin at ``indptr[row]``; with `lists`, commas separate them. Returns
    (row, count), where `row` is less than `n_rows` if the table must grow first.
    """
    while row < n_rows:
        size = indptr[row]
        if parsed.fault[row] == OK:
            at, end = parsed.label_at[row], parsed.label_end[row]
            while at < end:
                stop = at
                while stop < end and not (lists and text[stop] == COMMA):
                    stop += 1
                code, count = code_of(text, at, stop, slots, ends, letters, count, learn)
                if code == TABLE_FULL:
                    return row, count
                codes[size] = code
                size += 1
                at = stop + 1
        row += 1
        indptr[row] = size
    return row, count
