"""Reader of a file with the weight of each row."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from streamsvm_converters.libsvm.inputs import Input
from streamsvm_converters.libsvm.plain_parser import show
from streamsvm_converters.libsvm.position import InputFile

from streamsvm.errors import InputError, Remedy

_READ_SIZE = 2**20  # bytes of text read at a time


class WeightFile:
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
        self._pieces = self._weights()
        self._read = 0  # lines
        self._ready = np.empty(0)  # the weights of the last of them

    def __enter__(self) -> WeightFile:
        return self

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
        wanted = int(numbers[-1]) + 1
        while self._read < wanted:
            piece = next(self._pieces, None)
            if piece is None:
                raise InputError(
                    f"{self._input.name} has {self._read:,} lines, fewer than the input has rows; "
                    "give one weight for each row"
                )
            self._ready = np.concatenate([self._ready, piece])
            self._read += len(piece)
        first = self._read - len(self._ready)
        found = self._ready[numbers - first]
        self._ready = self._ready[wanted - first :]
        return found

    def finish(self, n_rows: int) -> InputFile:
        """Check that there are `n_rows` weights and no more; return name, size and hash of the file.

        Raises
        ------
        InputError
            If there are fewer or more, or one of the rest is not a number of at least 0.
        """
        taken = self._read - len(self._ready)
        if n_rows > taken:
            self.at(np.array([n_rows - 1]))
            taken = n_rows
        if len(self._ready) or next(self._pieces, None) is not None:
            raise InputError(
                f"{self._input.name}, line {taken + 1}: the input has only {n_rows:,} rows; "
                "give one weight for each row"
            )
        return self._input.record()

    def _weights(self) -> Iterator[np.ndarray]:
        """Yield the weights of the next lines."""
        text = b""  # of which the last line may be incomplete
        while piece := self._input.read(_READ_SIZE):
            text += piece
            end = text.rfind(b"\n") + 1
            if not end and len(text) > _READ_SIZE:
                raise self._error(0, text[:100])
            if end:
                yield self._parse(text[:end])
                text = text[end:]
        if text:
            yield self._parse(text + b"\n")

    def _parse(self, text: bytes) -> np.ndarray:
        """Return the numbers of whole lines; raise for the first line that is no weight."""
        lines = text.split(b"\n")[:-1]
        weights = np.full(len(lines), np.nan)
        with contextlib.suppress(ValueError):
            weights = np.array(list(map(float, lines)))
        if b"_" in text or not (np.isfinite(weights) & (weights >= 0)).all():
            at = next(at for at, line in enumerate(lines) if not _is_weight(line))
            raise self._error(at, lines[at])
        return weights

    def _error(self, at: int, line: bytes) -> InputError:
        return InputError(
            f"{self._input.name}, line {self._read + at + 1}: {show(line.strip())} is not a weight; "
            "write one number from 0 on in each line"
        )


def _is_weight(line: bytes) -> bool:
    try:
        return 0 <= float(line) < math.inf and b"_" not in line  # float allows it between digits
    except ValueError:
        return False
