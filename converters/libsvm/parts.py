"""Parts of LIBSVM text that several processes read: whole lines of a plain file, or a compressed file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from streamsvm_converters.libsvm.blocks import BlockReader, LineTooLong, block_sizes, too_long
from streamsvm_converters.libsvm.inputs import plain_size
from streamsvm_converters.libsvm.lines import HASH, is_blank
from streamsvm_converters.libsvm.numbers import NEWLINE, compiled
from streamsvm_converters.libsvm.position import InputPart, Position, Source


class Scan(NamedTuple):
    """What a first reading of an input finds.

    Attributes
    ----------
    source : Source
    n_rows : int
        With those that have a fault.
    parts : list of InputPart
        With rows counted from the first of the input.
    decompress_seconds : float
    """

    source: Source
    n_rows: int
    parts: list[InputPart]
    decompress_seconds: float


def scan(path: str | Path, number: int, size: int, memory: int) -> Scan:
    """Count the rows of an input, and cut it into parts.

    Parameters
    ----------
    path : path
    number : int
        Of the input.
    size : int
        Bytes of a part at least, but for the last one. A compressed file is a single part.
    memory : int
        Bytes that reading may take.

    Raises
    ------
    InputError
        If it cannot be read.
    PlanError
        If a line does not fit in memory.
    """
    is_plain = plain_size([path]) is not None
    blocks = BlockReader([path], *block_sizes(memory, threads=1), Position(), interactive=False)
    parts = [InputPart(str(path), number, 0, None, 0, 0)]
    line = row = 0
    try:
        for block in blocks:
            lines, rows = count_rows(block.scratch.text, block.at, block.cut)
            line, row, end = line + lines, row + rows, block.offset + block.cut
            if is_plain and end - parts[-1].begin >= size:
                parts[-1] = parts[-1]._replace(end=end)
                parts.append(InputPart(str(path), number, end, None, line, row))
            blocks.release(block.scratch)
    except LineTooLong as error:
        raise too_long(error, line) from None
    [source] = blocks.sources
    return Scan(source, row, parts, blocks.decompress_seconds)


@compiled
def count_rows(text, at, end):
    """Return how many lines text[at:end] has, and how many of them `parse` takes for rows."""
    lines, rows = 0, 0
    while at < end:
        while is_blank(text, at):
            at += 1
        rows += text[at] != NEWLINE and text[at] != HASH
        while text[at] != NEWLINE:
            at += 1
        at += 1
        lines += 1
    return lines, rows
