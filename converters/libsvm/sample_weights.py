"""Reader of a file with the weight of each row."""

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
from streamsvm.errors import InputError, Remedy

_LONGEST = 1000  # bytes of a line that are read as one


class WeightFile(contextlib.AbstractContextManager):
    """Reader of a file of weights, one number a line in the order of the rows; a context manager.

    Parameters
    ----------
    path : path or "-"
        Plain text or compressed, as the rows are.

    Raises
    ------
    InputError
        If it cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        if Path(path).suffix == ".npy":
            raise InputError(
                f"{path}: weights of text and tables are a number a line, and not an array of NumPy",
                remedy=Remedy("write them with numpy.savetxt(path, weights)"),
            )
        self._input = Input(path)
        self._lines = iter(partial(io.BufferedReader(self._input).readline, _LONGEST), b"")
        self._read = 0  # lines

    def __exit__(self, *_: object) -> None:
        self._input.close()

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Return the weights of the rows with these numbers, float64.

        Parameters
        ----------
        numbers : ndarray of int64
            Increasing, and above those of earlier calls.

        Raises
        ------
        InputError
            If a line up to the last of them is not a number of at least 0, or is missing.
        """
        if len(numbers) == 0:
            return np.empty(0)
        first, wanted = self._read, int(numbers[-1]) + 1
        lines = list(itertools.islice(self._lines, wanted - first))
        self._read += len(lines)
        weights = np.array(list(map(_weight, lines)))
        if (at := first_no_amount(weights)) is not None:
            raise InputError(
                f"{self._input.name}, line {first + at + 1}: {show(lines[at].strip())} is not a weight; "
                "write one number from 0 on in each line"
            )
        if self._read < wanted:
            raise InputError(
                f"{self._input.name} has {self._read:,} lines, fewer than the input has rows; "
                "give one weight for each row"
            )
        return weights[numbers - first]

    def finish(self, n_rows: int) -> InputFile:
        """Check that there are `n_rows` weights and no more; return name, size and hash of the file.

        Raises
        ------
        InputError
            If there are fewer or more, or one of the rest is not a number of at least 0.
        """
        if n_rows > self._read:
            self.at(np.array([n_rows - 1]))
        if next(self._lines, None) is not None:
            raise InputError(
                f"{self._input.name}, line {n_rows + 1}: the input has only {n_rows:,} rows; "
                "give one weight for each row"
            )
        return self._input.record()


def _weight(line: bytes) -> float:
    """Return the number in a line, NaN if there is none."""
    with contextlib.suppress(ValueError):
        return math.nan if b"_" in line else float(line)  # float allows it between digits
    return math.nan
