"""Reader of a file with a line for each row: its weight, or the value by which it is held out."""

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

_LONGEST = 1000  # bytes of a line that are read as one


class LineFile(contextlib.AbstractContextManager):
    """Reader of a file with a value a line, in the order of the rows; a context manager.

    Parameters
    ----------
    path : path or "-"
        Plain text or compressed, as the rows are.
    kind : tuple
        What each line has, in messages; and a function of a line that returns the number that stands for it,
        from 0 on, or another one if it is wrong.

    Raises
    ------
    InputError
        If it cannot be read.
    """

    def __init__(self, path: str | Path, kind: tuple[str, Callable[[bytes], float]]) -> None:
        self._what, self._parse = kind
        self._input = Input(path)
        self._lines = iter(partial(io.BufferedReader(self._input).readline, _LONGEST), b"")
        self._read = 0  # lines

    def __exit__(self, *_: object) -> None:
        self._input.close()

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Return the numbers that stand for the lines of the rows with these numbers.

        Parameters
        ----------
        numbers : ndarray of int64
            Increasing, and above those of earlier calls.

        Raises
        ------
        InputError
            If a line up to the last of them is wrong, or missing.
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
        """Check that there are `n_rows` lines and no more; return name, size and hash of the file.

        Raises
        ------
        InputError
            If there are fewer or more, or one of the rest is wrong.
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
    """Return the number in a line, NaN if there is none."""
    with contextlib.suppress(ValueError):
        return math.nan if b"_" in line else float(line)  # float allows it between digits
    return math.nan


def _hash(line: bytes) -> float:
    """Return the hash of the text in a line, -1 if there is none."""
    return group_hash(line.decode("utf-8", "replace").strip())


# What a line has, for `LineFile`.
WEIGHT = "weight, a number from 0 on", _weight
GROUP = "text or number to hold out by", _hash
