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
# The entries of the state: the place, the line, whether it follows a carriage return, the line of the last
# mark that opened a field, and the lines of the marks of the first fault, 0 without one.
_PLACE, _LINE, _RETURNED, _OPENED, _FAULT, _FAULT_END, _N_ENTRIES = range(7)


@kernel
def scan(text, delimiter, state):
    """Advance `state`, int64 of shape (_N_ENTRIES,), over text, uint8; it is modified."""
    place, line, returned, opened = state[_PLACE], state[_LINE], state[_RETURNED] != 0, state[_OPENED]
    for byte in text:
        ends = byte in (_NEWLINE, _RETURN)
        line += ends and not (byte == _NEWLINE and returned)
        returned = byte == _RETURN
        if place == _QUOTED:
            place = _CLOSED if byte == _MARK else _QUOTED
        elif byte == _MARK and place == _CLOSED:  # two of them stand for one
            place = _QUOTED
        elif byte == _MARK and place == _START:
            place, opened = _QUOTED, line
        elif ends or byte == delimiter:
            place = _START
        else:
            if place == _CLOSED and line > opened and state[_FAULT] == 0:
                state[_FAULT], state[_FAULT_END] = opened, line
            place = _PLAIN
    state[_PLACE], state[_LINE], state[_RETURNED], state[_OPENED] = place, line, returned, opened


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
        self._state = np.zeros(_N_ENTRIES, np.int64)
        self._state[_LINE] = 1

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
    def fault(self) -> str | None:
        """Error about the text so far, to follow the name of the file; None if there is none."""
        if self._state[_FAULT]:
            line, what = self._state[_FAULT], "not closed"
            what += f"; the next one, in line {self._state[_FAULT_END]}, is not at the end of a field"
        elif self._ended and self.open_line is not None:
            line, what = self.open_line, "never closed"
        else:
            return None
        return (
            f", line {line}: the quotation mark that opens a field here is {what}; close it, or double it "
            "and enclose the field in marks"
        )
