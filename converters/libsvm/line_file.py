"""Reader of a file with one line per row: a weight, or the value by which the row is held out."""

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

_LONGEST = 1000  # maximum bytes of a line


class LineFile(contextlib.AbstractContextManager):
    """Reader of a file with one value per line, in the order of the rows; a context manager.

    `kind` has a description of a value for messages, and a function from a line to a number. A negative or
    non-finite number stands for an invalid line. Raises `InputError` if the file cannot be read.
    """

    def __init__(self, path: str | Path, kind: tuple[str, Callable[[bytes], float]]) -> None:
        self._what, self._parse = kind
        self._input = Input(path)
        self._lines = iter(partial(io.BufferedReader(self._input).readline, _LONGEST), b"")
        self._read = 0  # lines read so far

    def __exit__(self, *_: object) -> None:
        self._input.close()

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Return the parsed values of rows.

        The int64 `numbers` of the rows increase within and between calls. Raises `InputError` if a line up to
        the last row is invalid or missing.
        """
        if len(numbers) == 0:
            return np.empty(0)
        first, wanted = self._read, int(numbers[-1]) + 1
        lines = list(itertools.islice(self._lines, wanted - first))
        self._read += len(lines)
        values = np.array(list(map(self._parse, lines)))
        if (at := first_no_amount(values)) is not None:
            self._refuse(first + at + 1, f"is {show(lines[at].strip())}")
        if self._read < wanted:
            self._refuse(self._read + 1, "is missing")
        return values[numbers - first]

    def finish(self, n_rows: int) -> InputFile:
        """Return name, size and hash of the file, after checking the remaining lines.

        Raises `InputError` unless there are exactly `n_rows` lines and all are valid.
        """
        if n_rows > self._read:
            self.at(np.array([n_rows - 1]))
        if next(self._lines, None) is not None:
            self._refuse(n_rows + 1, f"comes after the last of the {n_rows:,} rows")
        return self._input.record()

    def _refuse(self, line: int, problem: str) -> NoReturn:
        wanted = f"there must be a line for each row, with one {self._what}"
        raise InputError(f"{self._input.name}, line {line} {problem}; {wanted}")


def _weight(line: bytes) -> float:
    """Return the number in a line, or NaN."""
    with contextlib.suppress(ValueError):
        return math.nan if b"_" in line else float(line)  # float() accepts 1_000
    return math.nan


def _hash(line: bytes) -> float:
    """Return the hash of the text in a line, -1 for an empty line."""
    return group_hash(line.decode("utf-8", "replace").strip())


WEIGHT = "weight, a number from 0 on", _weight
GROUP = "text or number to hold out by", _hash
