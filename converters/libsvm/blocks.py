"""The text of several inputs, cut into blocks of whole lines within a bound of memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from streamsvm_converters.libsvm.byte_vectors import MARGIN
from streamsvm_converters.libsvm.inputs import Input
from streamsvm_converters.libsvm.lines import Parsed
from streamsvm_converters.libsvm.numbers import NEWLINE
from streamsvm_converters.libsvm.position import Place, Position

from streamsvm.errors import InputError

_BOM = b"\xef\xbb\xbf"
_PER_ROW = ("begin", "end", "line", "line_at", "label_at", "label_end", "fault_at", "qids")


class Scratch:
    """Buffers for `size` bytes of text and the values parsed from them.

    They hold any single line of `size` bytes, and the rows of `block` bytes of text with lines of 8 bytes;
    more rows are parsed in several rounds.
    """

    def __init__(self, size: int, block: int) -> None:
        values, rows = size // 4 + 1, block // 8 + 1  # "1:1 " takes four bytes
        self.size = size
        self.buffer = bytearray(size + MARGIN)
        self.text = np.frombuffer(self.buffer, dtype=np.uint8)
        self.parsed = Parsed(
            indices=np.empty(values, np.int64),
            values=np.empty(values, np.float64),
            undecided_slot=np.empty(values, np.int64),
            undecided_at=np.empty(values, np.int64),
            fault=np.empty(rows, np.uint8),
            needs_repair=np.empty(rows, np.bool_),
            **{name: np.empty(rows, np.int64) for name in _PER_ROW},
        )


class Block(NamedTuple):
    """Whole lines of text.

    Attributes
    ----------
    scratch : Scratch
        The lines are ``scratch.text[at:cut]``.
    at, cut : int
    real : int
        Bytes of the scratch that come from the input: a newline missing at its end was added.
    input : int
        Number of the input.
    name : str
        Its name in messages.
    offset : int
        Offset of the scratch in the text of the input.
    sha256 : hash object
        Hash of the text of the input before ``at``. Whoever parses the block updates it.
    bytes_read : int
        Bytes of all inputs read so far, as stored.
    """

    scratch: Scratch
    at: int
    cut: int
    real: int
    input: int
    name: str
    offset: int
    sha256: Any
    bytes_read: int


class LineTooLong(Exception):
    """A line that has more bytes than memory allows: number and name of its input, and its length."""


class BlockReader:
    """Iterate once over the text of all inputs, in blocks of whole lines.

    Parameters
    ----------
    inputs : sequence of path or "-"
    block : int
        Bytes of a block, unless a line is longer.
    longest : int
        Bytes of the longest line that is read.
    start : Position
        Where to begin; the text of the input before it must be unchanged.
    interactive : bool
        Whether a block ends where the writer of a pipe pauses. Then whoever parses the blocks hashes the
        text, so that there is a hash for each position.

    Attributes
    ----------
    sources : list of Source
        Name, size and SHA-256 of each input read to its end.
    decompress_seconds : float
        Time spent decompressing these inputs.

    Raises
    ------
    InputError
        While iterating, if an input cannot be read, or has changed before `start`.
    LineTooLong
        While iterating, at a line of more than `longest` bytes.
    """

    def __init__(
        self,
        inputs: Sequence[str | Path],
        block: int,
        longest: int,
        start: Position,
        *,
        interactive: bool,
    ) -> None:
        self.sources = list(start.sources)
        self.decompress_seconds = 0.0
        self._inputs = inputs
        self._block, self._longest = block, longest
        self._start, self._interactive = start.place, interactive
        self._free: list[Scratch] = []

    def __iter__(self) -> Iterator[Block]:
        bytes_before = sum(source.size for source in self.sources)
        first = self._start.source
        for number, path in enumerate(self._inputs[first:], first):
            with Input(path, hashes_text=not self._interactive) as source:
                scratch = self._scratch_for(0)
                held = offset = 0
                begun = ended = False
                sha256 = hashlib.sha256()
                if number == first and self._start.text > 0:
                    self._skip(source, self._start, sha256)
                    offset, begun = self._start.text, True
                while not ended:
                    buffer = scratch.buffer
                    count = source.readinto(memoryview(buffer)[held : scratch.size])
                    ended = count == 0
                    held += count
                    real = held
                    if ended and held and buffer[held - 1] != NEWLINE:
                        buffer[held] = NEWLINE  # into the margin
                        held += 1
                    has_room = held < scratch.size and not ended
                    if has_room and not (self._interactive and source.would_wait()):
                        continue
                    cut = buffer.rfind(b"\n", 0, held) + 1
                    if not cut and has_room:
                        continue
                    if not cut and not ended:
                        scratch = self._enlarged(scratch, source, number)
                        continue
                    at = len(_BOM) if not begun and buffer.startswith(_BOM) else 0
                    begun = True
                    rest = self._scratch_for(held - cut)
                    rest.buffer[: held - cut] = memoryview(buffer)[cut:held]
                    bytes_read = bytes_before + source.size
                    yield Block(scratch, at, cut, real, number, source.name, offset, sha256, bytes_read)
                    scratch, held, offset = rest, held - cut, offset + cut
                self.release(scratch)
                self.sources.append(source.record(sha256))
                self.decompress_seconds += source.decompress_seconds
                bytes_before += source.size

    def is_long(self, block: Block) -> bool:
        """Return whether a block is larger than usual, for a long line, and so takes the memory of all."""
        return block.scratch.size > self._block

    def release(self, scratch: Scratch) -> None:
        """Take back a scratch whose text is no longer in use."""
        if scratch.size == self._block:
            self._free.append(scratch)

    def _skip(self, source: Input, start: Place, sha256: Any) -> None:
        """Read and hash the text before `start`; raise `InputError` if it has changed."""
        space = memoryview(bytearray(self._block))
        left = start.text
        while left and (count := source.readinto(space[:left])):
            sha256.update(space[:count])
            left -= count
        if left or sha256.hexdigest() != start.sha256:
            raise InputError(
                f"{source.name} has changed in its first {start.line:,} lines, which the run has learned; "
                "restore the file, or start a new run"
            )

    def _scratch_for(self, size: int) -> Scratch:
        """Return a scratch that holds more than `size` bytes."""
        if size >= self._block:
            return Scratch(min(2 * size, self._longest), self._block)
        return self._free.pop() if self._free else Scratch(self._block, self._block)

    def _enlarged(self, scratch: Scratch, source: Input, number: int) -> Scratch:
        """Return a larger scratch with the same text, of a line that fills this one."""
        if scratch.size == self._longest:
            length = scratch.size
            rest = bytearray(2**16)
            while count := source.readinto(memoryview(rest)):
                end = rest.find(b"\n", 0, count)
                length += count if end < 0 else end
                if end >= 0:
                    break
            raise LineTooLong(number, source.name, length)
        larger = self._scratch_for(scratch.size)
        larger.buffer[: scratch.size] = memoryview(scratch.buffer)[: scratch.size]
        return larger
