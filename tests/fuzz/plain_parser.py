"""LIBSVM text by the documented rules, in plain Python: what the compiled parser is compared with."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass, field

import numpy as np

MAX_INDEX = 2**62 - 2
BOM = b"\xef\xbb\xbf"

TOKEN = re.compile(rb"[^ \t]+")
NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
PAIR = re.compile(rb"([0-9]+):(.*)", re.DOTALL)
QID = re.compile(rb"qid:[+-]?[0-9]+")
NO_LABEL = re.compile(rb"[\x00-\x1f\x7f,:]")


TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}  # the order of what follows


def is_control(letter: str) -> bool:
    """By Unicode's own tables."""
    return unicodedata.category(letter) in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(letter) in TURNS


@dataclass
class Row:
    """A line with a label: its pairs, or the column of its first fault (from 1)."""

    line: int
    label: str = ""
    pairs: list[tuple[int, float]] = field(default_factory=list)
    repaired: bool = False
    qids: int = 0
    fault: int | None = None


def split_lines(text: bytes) -> list[bytes]:
    """Lines without their ends: a newline, or a carriage return and a newline."""
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def parse(text: bytes, *, lowest: int, fix: bool, dtype: str) -> list[Row]:
    """The rows of one input, in order; blank lines and comments are none."""
    lines = split_lines(text.removeprefix(BOM))
    rows = (_row(line, number, lowest, fix, dtype) for number, line in enumerate(lines, 1))
    return [row for row in rows if row is not None]


def _row(line: bytes, number: int, lowest: int, fix: bool, dtype: str) -> Row | None:
    tokens = list(TOKEN.finditer(line.split(b"#")[0]))
    if not tokens:
        return None
    row = Row(number)
    first, *others = tokens
    row.fault = first.start() + 1
    try:
        row.label = first.group().decode("utf-8")
    except UnicodeDecodeError:
        return row
    if NO_LABEL.search(first.group()) or any(map(is_control, row.label)):
        return row
    previous = -1
    for token in others:
        row.fault = token.start() + 1
        if QID.fullmatch(token.group()):
            row.qids += 1
            continue
        pair = PAIR.fullmatch(token.group())
        if pair is None or not NUMBER.fullmatch(pair[2]) or len(pair[1].lstrip(b"0")) > 19:
            return row
        index, value = int(pair[1][-19:]), float(pair[2])
        if not lowest <= index <= MAX_INDEX or (index <= previous and not fix):
            return row
        if not fits(value, dtype):
            return row
        row.repaired |= index <= previous
        previous = index
        row.pairs.append((index, value))
    row.fault = first.start() + 1
    if row.repaired:
        sums: dict[int, float] = {}
        for index, value in row.pairs:  # in the order written
            sums[index] = sums[index] + value if index in sums else value
        row.pairs = sorted(sums.items())
        if not all(fits(value, dtype) for value in sums.values()):
            return row
    row.fault = None
    return row


def fits(value: float, dtype: str) -> bool:
    """Whether a float64 is finite in the dtype: at the midpoint to the next power it no longer is."""
    return abs(value) < 2.0**128 - 2.0**103 if dtype == "float32" else math.isfinite(value)


@dataclass
class Kept:
    """What is left of a row's pairs in the dtype, beside what was dropped."""

    indices: list[int]
    values: list[float]
    norm2: float
    zeros: int
    unseen: int


def settle(row: Row, dtype: str, last: int) -> Kept:
    """Round to the dtype, drop zeros and features beyond `last`, and add up the squares in order."""
    kept = Kept([], [], 0.0, 0, 0)
    for index, value in row.pairs:
        if index > last:
            kept.unseen += 1
            continue
        rounded = float(np.dtype(dtype).type(value))
        if rounded == 0:
            kept.zeros += 1
            continue
        kept.indices.append(index)
        kept.values.append(rounded)
        kept.norm2 += rounded * rounded
    return kept
