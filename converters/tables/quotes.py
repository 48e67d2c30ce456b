"""Detect unclosed quotation marks in CSV while pyarrow reads the text.

An unclosed quote swallows everything up to the next quote, and the CSV parser cannot detect the lost rows.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from streamsvm.kernels.jit import kernel

_MARK, _RETURN, _NEWLINE = 34, 13, 10

# Places in a field. CLOSED comes after a quotation mark, which ends the field unless another one follows.
_START, _PLAIN, _QUOTED, _CLOSED = range(4)
# Entries of the state: place, line, line of the last opening mark, line of the first unclosed mark or 0.
_PLACE, _LINE, _OPENED, _FAULT = range(4)


@kernel
def scan(text, delimiter, state):
    """Scan the uint8 array `text`, and update `state`, an int64 array of shape (4,), in place."""
    place, line, opened = state[_PLACE], state[_LINE], state[_OPENED]
    for byte in text:
        line += byte == _NEWLINE
        if place == _QUOTED:
            place = _CLOSED if byte == _MARK else _QUOTED
        elif byte == _MARK and place == _CLOSED:  # a doubled mark stands for one mark
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
    """File object that checks the quotation marks in CSV text as it is read; `delimiter` is one character."""

    def __init__(self, text: Any, delimiter: str) -> None:
        self._text, self._delimiter, self._ended = text, ord(delimiter), False
        self._state = np.array([_START, 1, 0, 0])

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._text.read(size)
        self._ended = not data
        scan(np.frombuffer(data, np.uint8), self._delimiter, self._state)
        return data

    @property
    def open_line(self) -> int | None:
        """Line on which the current quoted field begins, or None outside a quoted field."""
        return int(self._state[_OPENED]) if self._state[_PLACE] == _QUOTED else None

    @property
    def fault(self) -> int | None:
        """Line of the first opening quotation mark that is known to be unclosed, or None."""
        return int(self._state[_FAULT]) or (self.open_line if self._ended else None)
