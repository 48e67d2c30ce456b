"""Readers of files with a line for each row: its weight, or the value by which it is held out."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
from functools import partial
from pathlib import Path

import numpy as np
from streamsvm_converters.libsvm.inputs import Input
from streamsvm_converters.libsvm.plain_parser import show
from streamsvm_converters.libsvm.position import InputFile

from streamsvm.data.checks import first_no_amount
from streamsvm.data.groups import check_hashes, group_hashes
from streamsvm.errors import InputError, Remedy

_LONGEST = 1000  # bytes of a line that are read as one


class LineFile(contextlib.AbstractContextManager):
    """Reader of a file with a value in each line, in the order of the rows; a context manager.

    Parameters
    ----------
    path : path or "-"
        Plain text or compressed, as the rows are.

    Raises
    ------
    InputError
        If it cannot be read.
    """

    what: str  # each line has

    def __init__(self, path: str | Path) -> None:
        if Path(path).suffix == ".npy":
            raise InputError(
                f"{path}: each line must have one {self.what}, and this is an array of NumPy",
                remedy=Remedy("write it as text, as numpy.savetxt(path, values, fmt='%s') does"),
            )
        self._input = Input(path)
        self._lines = iter(partial(io.BufferedReader(self._input).readline, _LONGEST), b"")
        self._read = 0  # lines

    def __exit__(self, *_: object) -> None:
        self._input.close()

    def values(self, lines: list[bytes], first: int) -> np.ndarray:
        """Return the values of lines, counted from `first` on; raise `InputError` for one without."""
        raise NotImplementedError

    def place(self, line: int) -> str:
        """Return the name of the place of a line, counted from 0."""
        return f"{self._input.name}, line {line + 1}"

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Return the values of the rows with these numbers.

        Parameters
        ----------
        numbers : ndarray of int64
            Increasing, and above those of earlier calls.

        Raises
        ------
        InputError
            If a line up to the last of them does not have a value, or is missing.
        """
        if len(numbers) == 0:
            return np.empty(0)
        first, wanted = self._read, int(numbers[-1]) + 1
        lines = list(itertools.islice(self._lines, wanted - first))
        self._read += len(lines)
        values = self.values(lines, first)
        if self._read < wanted:
            raise InputError(
                f"{self._input.name} has {self._read:,} lines, fewer than the input has rows; "
                f"give one {self.what} for each row"
            )
        return values[numbers - first]

    def finish(self, n_rows: int) -> InputFile:
        """Check that there are `n_rows` lines and no more; return name, size and hash of the file.

        Raises
        ------
        InputError
            If there are fewer or more, or one of the rest does not have a value.
        """
        if n_rows > self._read:
            self.at(np.array([n_rows - 1]))
        if next(self._lines, None) is not None:
            raise InputError(
                f"{self.place(n_rows)}: the input has only {n_rows:,} rows; give one {self.what} for each row"
            )
        return self._input.record()


class WeightFile(LineFile):
    """Reader of a file of weights, numbers from 0 on, as float64."""

    what = "weight"

    def values(self, lines: list[bytes], first: int) -> np.ndarray:
        weights = np.array(list(map(_weight, lines)))
        if (at := first_no_amount(weights)) is not None:
            raise InputError(
                f"{self.place(first + at)}: {show(lines[at].strip())} is not a weight; write one number from "
                "0 on in each line"
            )
        return weights


class GroupFile(LineFile):
    """Reader of a file of values by which rows are held out, as hashes: see `group_hashes`."""

    what = "value"

    def values(self, lines: list[bytes], first: int) -> np.ndarray:
        hashes = group_hashes(line.decode("utf-8", "replace").strip() for line in lines)
        check_hashes(hashes, lambda at: self.place(first + at))
        return hashes


def _weight(line: bytes) -> float:
    """Return the number in a line, NaN if there is none."""
    with contextlib.suppress(ValueError):
        return math.nan if b"_" in line else float(line)  # float allows it between digits
    return math.nan
