"""Format tables as text within the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streamsvm_cli.wording import fraction

from streamsvm.base.text import shortened

_WIDTH = 80


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> Iterator[str]:
    """Yield the lines of a table. If it is too wide, cells in the first `texts` columns are shortened."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    room = _WIDTH - sum(widths[texts:]) - 2 * (len(widths) - 1)
    by_width = sorted(range(texts), key=widths.__getitem__)
    # Space that short columns do not need is given to longer columns.
    for others, at in zip(range(texts, 0, -1), by_width, strict=True):
        widths[at] = min(widths[at], room // others)
        room -= widths[at]
    for row in (headings, *rows):
        cells = (
            shortened(cell, width).ljust(width) if at < texts else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def unknown_lines(records: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """Yield the lines of a table about predict --unknown: probability, answered rows and their accuracy."""
    cells = [(f"{each['unknown']:g}", *map(fraction, list(each.values())[1:])) for each in records]
    if cells:
        yield from ("", *table_lines(("--unknown", "from probability", "answered", "accuracy"), cells))
