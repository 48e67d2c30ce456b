"""Parse lines in compiled code: labels, qid fields and index:value pairs.

As in `numbers`, the text must end with a newline, so that scans need no bounds checks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from streamsvm_converters.libsvm.byte_vectors import MARGIN, load_byte
from streamsvm_converters.libsvm.numbers import (
    BAD_NUMBER,
    COLON,
    MINUS,
    NEWLINE,
    NINE,
    PLUS,
    SPACE,
    UNDECIDED,
    ZERO,
    compiled,
    read_number,
    read_pair,
)

TAB, RETURN, HASH, COMMA, DELETE = 9, 13, 35, 44, 127

MAX_INDEX = 2**62 - 2  # keeps sums of sizes within int64
MAX_GROUP = 2**63 - 1
LETTER_Q = 113


class Rules(NamedTuple):
    """Rules that the lines of a text must follow.

    Indices must be at least `lowest`, and absolute values must be below `too_large`. If `fix` is True, the
    indices of a row may be unsorted or repeated. If `lists` is True, commas separate the labels of a row, and
    a line that begins with a space or tab has no label. If `groups` is True, each row must have exactly one
    qid field.
    """

    lowest: int
    too_large: float
    fix: bool
    lists: bool
    groups: bool


class Parsed(NamedTuple):
    """Arrays that `parse` fills, reused for later blocks. All but the first two have one entry per row."""

    indices: np.ndarray  # int64 index of each value, as written in the text
    values: np.ndarray  # float64
    begin: np.ndarray  # the values of a row are ``values[begin:end]``
    end: np.ndarray
    line: np.ndarray  # line number within the block, starting at 0
    line_at: np.ndarray  # offset of the line in the text
    label_at: np.ndarray  # offset of the label, or of the line if the row has no label
    label_end: np.ndarray
    faulty: np.ndarray  # whether the line breaks a rule, which `plain_parser.find_fault` describes
    unsorted: np.ndarray  # whether `repair` must sort the row
    undecided: np.ndarray  # whether the kernel could not round a number of the row with certainty
    qids: np.ndarray  # number of qid fields
    group: np.ndarray  # number in the last qid field, if any


@compiled
def is_blank(text, at):
    """Return True if text[at] is a space, a tab, or a carriage return before a newline."""
    # `in` with a tuple would import Numba's support for lists at each start.
    return text[at] == SPACE or text[at] == TAB or (text[at] == RETURN and text[at + 1] == NEWLINE)


@compiled
def is_end(text, at):
    """Return True if a token ends before text[at]."""
    return text[at] == NEWLINE or text[at] == HASH or is_blank(text, at)


@compiled
def read_label(text, at, lists):
    """Read the label at text[at:], or several labels separated by commas if `lists` is True.

    Returns (valid, end). Labels with control characters, colons or misplaced commas are invalid. UTF-8 is not
    checked.
    """
    part, good = at, True
    while not is_end(text, at):
        byte = text[at]
        good &= byte >= SPACE and byte != DELETE and byte != COLON
        if byte == COMMA:
            good &= lists and part < at
            part = at + 1
        at += 1
    return good and part < at, at


@compiled
def read_qid(text, at):
    """Return (end, N) for a token qid:N at text[at:].

    If there is no such token, the end is `at`. If N is out of range, it is replaced by -1.
    """
    if text[at] != LETTER_Q or text[at + 1] != 105 or text[at + 2] != 100 or text[at + 3] != COLON:
        return at, np.int64(-1)
    stop = at + 4
    negative = text[stop] == MINUS
    if negative or text[stop] == PLUS:
        stop += 1
    if not ZERO <= text[stop] <= NINE:
        return at, np.int64(-1)
    number = np.int64(0)
    while ZERO <= text[stop] <= NINE:
        digit = np.int64(text[stop]) - ZERO
        in_range = 0 <= number <= (MAX_GROUP - digit) // 10
        number = number * 10 + digit if in_range else np.int64(-1)
        stop += 1
    if negative and number > 0:
        number = np.int64(-1)
    return stop if is_end(text, stop) else at, number


@compiled
def parse(text, at, end, rules, out):
    """Parse the whole lines in text[at:end] into `out` (see `Parsed`), until its row arrays are full.

    Rows that break a rule are marked as faulty and get no values. Returns the offset where the next call must
    continue, the number of lines read, and the number of rows written.
    """
    line, row, size = 0, 0, 0
    usual_end = len(text) - MARGIN
    while at < end and row < len(out.faulty):
        line_at = at
        while is_blank(text, at):
            at += 1
        if text[at] != NEWLINE and text[at] != HASH:
            row_begin, qids = size, 0
            previous, unsorted, undecided = np.int64(rules.lowest - 1), False, False
            good, token = True, at
            if rules.lists and at > line_at:
                out.label_at[row], out.label_end[row] = line_at, line_at
            else:
                good, at = read_label(text, at, rules.lists)
                out.label_at[row], out.label_end[row] = token, at
            while good:
                while is_blank(text, at):
                    at += 1
                while at <= usual_end:  # fast path; the code below reads all other tokens
                    usual, index, value, stop = read_pair(text, at)
                    if not usual or index <= previous:
                        break
                    previous = index
                    out.indices[size], out.values[size] = index, value
                    size += 1
                    at = stop
                    if load_byte(text, at) != SPACE:
                        break
                    at += 1
                while is_blank(text, at):
                    at += 1
                token = at
                if text[at] == NEWLINE or text[at] == HASH:
                    break
                index = np.int64(0)
                while ZERO <= text[at] <= NINE:
                    digit = np.int64(text[at]) - ZERO
                    if index > (MAX_INDEX - digit) // 10:
                        break  # the row is faulty, because this digit is not a colon
                    index = index * 10 + digit
                    at += 1
                if at == token or text[at] != COLON:
                    at, out.group[row] = read_qid(text, token)
                    good = at > token and not (rules.groups and (qids > 0 or out.group[row] < 0))
                    qids += 1
                    continue
                kind, value, at = read_number(text, at + 1)
                good = kind != BAD_NUMBER and is_end(text, at) and abs(value) < rules.too_large
                if index <= previous:
                    good &= rules.fix and index >= rules.lowest
                if good:
                    unsorted |= index <= previous
                    previous = index
                    undecided |= kind == UNDECIDED
                    out.indices[size], out.values[size] = index, value
                    size += 1
            good &= qids > 0 or not rules.groups
            if not good:
                size = row_begin
            out.begin[row], out.end[row] = row_begin, size
            out.line[row], out.line_at[row] = line, line_at
            out.faulty[row], out.unsorted[row], out.undecided[row] = not good, unsorted, undecided
            out.qids[row] = qids
            row += 1
        while text[at] != NEWLINE:
            at += 1
        at += 1
        line += 1
    return at, line, row
