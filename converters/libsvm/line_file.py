"""Read a file with one line per row: its weight, or its group, which is held out as a whole."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
from streamsvm_converters.libsvm.inputs import Input
from streamsvm_converters.libsvm.plain_parser import show
from streamsvm_converters.libsvm.position import InputFile

from streamsvm.data.checks import first_no_amount
from streamsvm.data.groups import group_hash
from streamsvm.errors import InputError

_MAX_LINE = 1000


class LineFile(contextlib.AbstractContextManager):
    """Context manager that reads a file with one value per line, in the order of the rows.

    `kind` consists of a description of the values for messages, and a function that parses a line as a
    number. A negative or non-finite number means that the line is invalid. Raises `InputError` if the file
    cannot be read.
    """

    def __init__(self, path: str | Path, kind: tuple[str, Callable[[bytes], float]]) -> None:
        self._description, self._parse = kind
        self._input = Input(path)
        self._lines = iter(partial(io.BufferedReader(self._input).readline, _MAX_LINE), b"")
        self._n_read = 0

    def __exit__(self, *_: object) -> None:
        self._input.close()

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Return the values for the rows `numbers`, int64, which must increase within and between calls.

        Raises `InputError` if a line up to the last of these rows is invalid or missing.
        """
        if len(numbers) == 0:
            return np.empty(0)
        first, n_needed = self._n_read, int(numbers[-1]) + 1
        lines = list(itertools.islice(self._lines, n_needed - first))
        self._n_read += len(lines)
        values = np.array(list(map(self._parse, lines)))
        if (at := first_no_amount(values)) is not None:
            self._refuse(first + at + 1, f"is {show(lines[at].strip())}")
        if self._n_read < n_needed:
            self._refuse(self._n_read + 1, "is missing")
        return values[numbers - first]

    def finish(self, n_rows: int) -> InputFile:
        """Return the record of the file; raise `InputError` unless it has exactly `n_rows` valid lines."""
        if n_rows > self._n_read:
            self.at(np.array([n_rows - 1]))
        if next(self._lines, None) is not None:
            self._refuse(n_rows + 1, f"comes after the last of the {n_rows:,} rows")
        return self._input.record()

    def _refuse(self, line: int, problem: str) -> NoReturn:
        requirement = f"the file must have one line for each row, with a {self._description}"
        raise InputError(f"{self._input.name}, line {line} {problem}; {requirement}")


def _weight(line: bytes) -> float:
    with contextlib.suppress(ValueError):
        return math.nan if b"_" in line else float(line)  # float() accepts 1_000
    return math.nan


def _hash(line: bytes) -> float:
    return group_hash(line.decode("utf-8", "replace").strip())


WEIGHT = "weight, a number of at least 0", _weight
GROUP = "group, a text or number", _hash
