"""Detection of unclosed quotation marks in CSV, while pyarrow reads the text.

An unclosed quote swallows everything up to the next quote; the CSV parser cannot detect the lost rows.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from streamsvm.kernels.jit import kernel

_MARK, _RETURN, _NEWLINE = 34, 13, 10

# Where in a field the text ends. CLOSED is behind a mark that ends the field, unless a second one follows.
_START, _PLAIN, _QUOTED, _CLOSED = range(4)
# The entries of the state: the place, the line, the line of the last mark that opened a field, and that of
# the first such mark that was not closed, 0 without one.
_PLACE, _LINE, _OPENED, _FAULT = range(4)


@kernel
def scan(text, delimiter, state):
    """Advance `state`, int64 of shape (4,), over text, uint8; it is modified."""
    place, line, opened = state[_PLACE], state[_LINE], state[_OPENED]
    for byte in text:
        line += byte == _NEWLINE
        if place == _QUOTED:
            place = _CLOSED if byte == _MARK else _QUOTED
        elif byte == _MARK and place == _CLOSED:  # two of them stand for one
            place = _QUOTED
        elif byte == _MARK and place == _START:
            place, opened = _QUOTED, line
        elif byte in (_NEWLINE, _RETURN, delimiter):
            place = _START
        else:
            if place == _CLOSED and line > opened and state[_FAULT] == 0:
                state[_FAULT] = opened
            place = _PLAIN
    state[_PLACE], state[_LINE], state[_OPENED] = place, line, opened


class CheckedText(io.RawIOBase):
    """Text of CSV whose quotation marks are checked as it is read.

    Fields may have line ends in quotation marks, and a mark inside of such a field is doubled.

    Parameters
    ----------
    text : file
    delimiter : str
        One ASCII character.
    """

    def __init__(self, text: Any, delimiter: str) -> None:
        self._text, self._delimiter, self._ended = text, ord(delimiter), False
        self._state = np.array([_START, 1, 0, 0])

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found: bytes = self._text.read(size)
        self._ended = not found
        scan(np.frombuffer(found, np.uint8), self._delimiter, self._state)
        return found

    @property
    def open_line(self) -> int | None:
        """Line number of the opening mark of the unterminated field, or None."""
        return int(self._state[_OPENED]) if self._state[_PLACE] == _QUOTED else None

    @property
    def fault(self) -> int | None:
        """Line number of an opening mark that is not closed, by the text so far; None if there is none."""
        return int(self._state[_FAULT]) or (self.open_line if self._ended else None)
