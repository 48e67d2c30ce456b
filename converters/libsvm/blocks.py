"""Read several text inputs in blocks of whole lines, within a memory limit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from streamsvm_converters.libsvm.byte_vectors import MARGIN
from streamsvm_converters.libsvm.inputs import Input
from streamsvm_converters.libsvm.lines import Parsed
from streamsvm_converters.libsvm.numbers import NEWLINE
from streamsvm_converters.libsvm.position import LinePosition, ReadingState

from streamsvm.errors import InputError

_BOM = b"\xef\xbb\xbf"
_FLAGS = ("faulty", "unsorted", "undecided")
_PER_ROW = ("begin", "end", "line", "line_at", "label_at", "label_end", "qids", "group")


class ParseBuffers:
    """Buffers for `size` bytes of text and the values parsed from it.

    They have room for a single line with `size` bytes, or for the rows in `block` bytes of text if each line
    has at least 8 bytes. Blocks with shorter lines are parsed in several steps.
    """

    def __init__(self, size: int, block: int) -> None:
        values, rows = size // 4 + 1, block // 8 + 1  # a value takes at least four bytes, as in "1:1 "
        self.size = size
        self.buffer = bytearray(size + MARGIN)
        self.text = np.frombuffer(self.buffer, dtype=np.uint8)
        self.parsed = Parsed(
            indices=np.empty(values, np.int64),
            values=np.empty(values, np.float64),
            **{name: np.empty(rows, np.bool_) for name in _FLAGS},
            **{name: np.empty(rows, np.int64) for name in _PER_ROW},
        )


class TextBlock(NamedTuple):
    """Block of whole lines of text, ``buffers.text[at:cut]``."""

    buffers: ParseBuffers
    at: int
    cut: int
    real: int  # number of bytes of text in the buffers, without a final newline that was added
    input: int  # number of the input
    name: str  # name of the input for messages
    offset: int  # offset of the buffers in the text of the input
    sha256: Any  # hash of the input text before the buffers, updated by the consumer if interactive
    bytes_read: int  # from all inputs so far, before decompression


class LineTooLong(Exception):
    """Error for a line that exceeds the memory limit; `args` are its input number, input name and length."""


class BlockReader:
    """Iterable over the text of all inputs in blocks of whole lines. It can be used only once.

    Iteration raises `InputError` if an input cannot be read or its text before `start` has changed, and
    `LineTooLong` if a line has more than `max_line` bytes. `sources` contains a record of each input that was
    read to its end.

    Parameters
    ----------
    inputs : sequence of path or "-"
    block : int
        Size of a block in bytes, unless a line is longer.
    max_line : int
        Maximum size of a line in bytes.
    start : ReadingState
        Position to start from. The input text before it must not have changed.
    interactive : bool
        Whether a block ends where the writer of a pipe pauses. If so, the consumer of the blocks hashes the
        text, because it needs the hash at each position.
    waiting : callable
        Function called repeatedly while a pipe is silent.
    """

    def __init__(
        self,
        inputs: Sequence[str | Path],
        block: int,
        max_line: int,
        start: ReadingState,
        *,
        interactive: bool,
        waiting: Callable[[], None],
    ) -> None:
        self.sources = list(start.sources)
        self._inputs = inputs
        self._block, self._max_line = block, max_line
        self._start, self._interactive = start.place, interactive
        self._waiting = waiting
        self._free: list[ParseBuffers] = []

    def __iter__(self) -> Iterator[TextBlock]:
        bytes_before = sum(source.size for source in self.sources)
        first = self._start.source
        for number, path in enumerate(self._inputs[first:], first):
            with Input(path, hashes_text=not self._interactive, waiting=self._waiting) as source:
                buffers = self._buffers_for(0)
                filled = offset = 0
                has_begun = has_ended = False
                sha256 = hashlib.sha256()
                if number == first and self._start.text > 0:
                    self._skip(source, self._start, sha256)
                    offset, has_begun = self._start.text, True
                while not has_ended:
                    buffer = buffers.buffer
                    count = source.readinto(memoryview(buffer)[filled : buffers.size])
                    has_ended = count == 0
                    filled += count
                    real = filled
                    if has_ended and filled and buffer[filled - 1] != NEWLINE:
                        buffer[filled] = NEWLINE
                        filled += 1
                    has_room = filled < buffers.size and not has_ended
                    if has_room and not (self._interactive and source.would_wait()):
                        continue
                    cut = buffer.rfind(b"\n", 0, filled) + 1
                    if not cut and has_room:
                        continue
                    if not cut and not has_ended:
                        buffers = self._enlarged(buffers, source, number)
                        continue
                    at = len(_BOM) if not has_begun and buffer.startswith(_BOM) else 0
                    has_begun = True
                    rest = self._buffers_for(filled - cut)
                    rest.buffer[: filled - cut] = memoryview(buffer)[cut:filled]
                    bytes_read = bytes_before + source.size
                    yield TextBlock(buffers, at, cut, real, number, source.name, offset, sha256, bytes_read)
                    buffers, filled, offset = rest, filled - cut, offset + cut
                self.release(buffers)
                self.sources.append(source.record(sha256))
                bytes_before += source.size

    def is_long(self, block: TextBlock) -> bool:
        """Return True if the buffers were enlarged for a long line and may take all of the memory."""
        return block.buffers.size > self._block

    def release(self, buffers: ParseBuffers) -> None:
        if buffers.size == self._block:
            self._free.append(buffers)

    def _skip(self, source: Input, start: LinePosition, sha256: Any) -> None:
        buffer = memoryview(bytearray(self._block))
        remaining = start.text
        while remaining and (count := source.readinto(buffer[:remaining])):
            sha256.update(buffer[:count])
            remaining -= count
        if remaining or sha256.hexdigest() != start.sha256:
            raise InputError(
                f"the first {start.line:,} lines of {source.name} have changed since the run learned from "
                "them; restore the file, or start a new run"
            )

    def _buffers_for(self, size: int) -> ParseBuffers:
        if size >= self._block:
            return ParseBuffers(min(2 * size, self._max_line), self._block)
        return self._free.pop() if self._free else ParseBuffers(self._block, self._block)

    def _enlarged(self, buffers: ParseBuffers, source: Input, number: int) -> ParseBuffers:
        """Copy an incomplete line to larger buffers; raise `LineTooLong` if they would exceed the limit."""
        if buffers.size == self._max_line:
            length = buffers.size
            rest = bytearray(2**16)
            while count := source.readinto(memoryview(rest)):
                end = rest.find(b"\n", 0, count)
                length += count if end < 0 else end
                if end >= 0:
                    break
            raise LineTooLong(number, source.name, length)
        larger = self._buffers_for(buffers.size)
        larger.buffer[: buffers.size] = memoryview(buffers.buffer)[: buffers.size]
        return larger
