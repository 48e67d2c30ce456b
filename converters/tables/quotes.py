"""Detection of quotation marks of CSV that are not closed, while the text is read.

A mark that opens a field and is missing at its end makes the text up to the next mark, or to the end of the
file, a part of the field: rows vanish in it, and what parses the table cannot tell.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import kernel

_MARK, _RETURN, _NEWLINE, _SPACE = 34, 13, 10, 32

# Where in a field the text ends. CLOSED is behind a mark that ends the field, unless a second one follows.
_START, _PLAIN, _QUOTED, _CLOSED, _SPACES = range(5)
# The entries of the state: the place, the line, whether it follows a carriage return, the line of the last
# mark that opened a field, and the lines of the marks of the first fault, 0 without one.
_PLACE, _LINE, _RETURNED, _OPENED, _FAULT, _FAULT_END, _N_ENTRIES = range(7)


@kernel
def scan(text, delimiter, state):
    """Advance `state`, int64 of shape (_N_ENTRIES,), over text, uint8; it is modified."""
    place, line, returned, opened = state[_PLACE], state[_LINE], state[_RETURNED] != 0, state[_OPENED]
    for at in range(len(text)):
        byte = text[at]
        ends = byte in (_NEWLINE, _RETURN)
        if ends and not (byte == _NEWLINE and returned):
            line += 1
        returned = byte == _RETURN
        if place == _QUOTED:
            if byte == _MARK:
                place = _CLOSED
        elif ends or byte == delimiter:
            place = _START
        elif place == _START:
            place = _PLAIN
            if byte == _MARK:
                place, opened = _QUOTED, line
        elif place == _CLOSED and byte == _MARK:  # two of them stand for one
            place = _QUOTED
        elif place in (_CLOSED, _SPACES):
            place = _SPACES
            if byte != _SPACE:
                place = _PLAIN
                if line > opened and state[_FAULT] == 0:
                    state[_FAULT], state[_FAULT_END] = opened, line
    state[_PLACE], state[_LINE], state[_RETURNED], state[_OPENED] = place, line, returned, opened


class Quotes:
    """State of the quotation marks of a table, whose text is read in pieces.

    Fields may have line ends in quotation marks, and a mark inside of such a field is doubled.

    Parameters
    ----------
    delimiter : str
        One ASCII character.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)
        self._state = np.zeros(_N_ENTRIES, np.int64)
        self._state[_LINE] = 1
        self._began = self._ended = False

    def add(self, text: bytes) -> None:
        """Scan the next piece of text; an empty one is the end."""
        if not text:
            self._ended = True
            return
        if not self._began:
            text = text.removeprefix(b"\xef\xbb\xbf")
            self._began = True
        scan(np.frombuffer(text, np.uint8), self._delimiter, self._state)

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
