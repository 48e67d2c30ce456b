"""Label texts to class codes, without a Python object a row."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

import numpy as np
from streamsvm_converters import faults, kernels

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

# What a label costs beside its letters: table, offsets, and at the end its str and sort key.
_BYTES_PER_LABEL = 400


def number(text: str) -> float | None:
    """The finite number that a label spells, if it does."""
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def class_order(texts: Sequence[str]) -> np.ndarray:
    """The order of the classes: as numbers (ties as text) if all are finite numbers, else as text."""
    numbers = [number(text) for text in texts]
    keys = list(texts) if None in numbers else list(zip(numbers, texts, strict=True))
    return np.array(sorted(range(len(texts)), key=keys.__getitem__), dtype=np.int64)


def same_number(texts: Iterable[str]) -> list[str]:
    """A warning of the first two labels that spell one number: they are two classes."""
    seen: dict[Decimal, str] = {}
    for text in texts:
        if (value := number(text)) is not None:
            twin = seen.setdefault(Decimal(text if value else 0), text)  # exact, as row numbers need it
            if twin is not text:
                pair = f"{faults.show(twin.encode())} and {faults.show(text.encode())}"
                return [f"labels {pair} are the same number, and different classes; spell them alike"]
    return []


class LabelTable:
    """Codes for label texts, in order of first appearance.

    Parameters
    ----------
    known : sequence of str, optional
        Labels that have codes 0, 1, ... already.
    learns : bool, optional
        Whether other labels get the next codes, or -1; by default only if none is `known`.
    """

    def __init__(self, known: Sequence[str] | None = None, learns: bool | None = None) -> None:
        self.learns = known is None if learns is None else learns
        self.count = 0
        self._slots = np.full(16, -1, dtype=np.int32)
        self._ends = np.zeros(16, dtype=np.int64)
        self._letters = np.zeros(256, dtype=np.uint8)
        if known is not None:
            texts = [text.encode("utf-8") for text in known]
            self.count = len(texts)
            self._letters = np.frombuffer(b"".join(texts) or b"\0", dtype=np.uint8).copy()
            n_slots = max(16, 1 << (2 * self.count + 1).bit_length())
            self._ends = np.zeros(n_slots, dtype=np.int64)
            np.cumsum([len(text) for text in texts], out=self._ends[1 : self.count + 1])
            self._rebuild(n_slots)

    def _rebuild(self, n_slots: int) -> None:
        self._slots = np.full(n_slots, -1, dtype=np.int32)
        kernels.rehash(self._slots, self._ends, self._letters, self.count)

    def code(self, text: np.ndarray, parsed: kernels.Parsed, n_rows: int) -> np.ndarray:
        """The code of each faultless row's label."""
        codes = np.full(n_rows, -1, dtype=np.int32)
        row = 0
        while True:
            row, self.count = kernels.code_labels(
                text, parsed, row, n_rows, self._slots, self._ends, self._letters, self.count,
                self.learns, codes,
            )  # fmt: skip
            if row == n_rows:
                return codes
            longest = int(parsed.label_end[row] - parsed.label_at[row])
            self._letters = np.concatenate(
                (self._letters, np.zeros(len(self._letters) + longest, dtype=np.uint8))
            )
            self._ends = np.concatenate((self._ends, np.zeros(len(self._ends), dtype=np.int64)))
            self._rebuild(2 * len(self._slots))

    @property
    def nbytes(self) -> int:
        """Memory that the labels take, up to their sorting at the end."""
        return self.count * _BYTES_PER_LABEL + int(self._ends[self.count])

    def texts(self) -> list[str]:
        """The labels by code."""
        letters, ends = self._letters.tobytes(), self._ends[: self.count + 1].tolist()
        return [letters[a:b].decode("utf-8") for a, b in itertools.pairwise(ends)]
