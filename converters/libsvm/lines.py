"""Compiled parsing of lines: labels, qid fields and index:value pairs, and where a line has a fault.

Text is a uint8 array whose last byte in use is a newline: every loop stops at a newline, so no scan needs
a bounds check.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from streamsvm_converters.libsvm.byte_vectors import MARGIN
from streamsvm_converters.libsvm.numbers import (
    BAD_NUMBER,
    COLON,
    MINUS,
    NEWLINE,
    NINE,
    NUMBER,
    PLUS,
    SPACE,
    UNDECIDED,
    ZERO,
    compiled,
    read_number,
    read_pair,
)

TAB, RETURN, HASH, COMMA, DELETE = 9, 13, 35, 44, 127

# The faults of a row. The kernels record which and where; `parse_errors.explain` words it from the text.
OK, LABEL, MALFORMED, INDEX_LOW, UNSORTED, DUPLICATE, VALUE_LARGE, SUM_LARGE, NORM_LARGE = range(9)

# A store has fewer than 2**62 features, so that sums of sizes stay within int64.
MAX_INDEX = 2**62 - 2


class Parsed(NamedTuple):
    """Arrays that `parse` fills, reused for every block of text.

    Attributes
    ----------
    indices, values : ndarray of int64 and float64, one entry per value
        Indices are as written.
    begin, end : ndarray of int64, one entry per row, as all below
        The values of the row are ``values[begin:end]``.
    line : line number within the block, from 0
    line_at, label_at, label_end, fault_at : offsets into the text
    fault : one of the codes above
    needs_repair : whether `repair` must sort the row
    qids : number of qid fields
    undecided_slot, undecided_at : ndarray of int64, one entry per undecided number
        Its position in `values` and its offset in the text.
    """

    indices: np.ndarray
    values: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    line: np.ndarray
    line_at: np.ndarray
    label_at: np.ndarray
    label_end: np.ndarray
    fault: np.ndarray
    fault_at: np.ndarray
    needs_repair: np.ndarray
    qids: np.ndarray
    undecided_slot: np.ndarray
    undecided_at: np.ndarray


@compiled
def is_blank(text, at):
    """Whether text[at] is a space, a tab, or the carriage return before a newline."""
    byte = text[at]
    return byte in (SPACE, TAB) or (byte == RETURN and text[at + 1] == NEWLINE)


@compiled
def is_end(text, at):
    """Whether a token ends here."""
    return text[at] == NEWLINE or text[at] == HASH or is_blank(text, at)


@compiled
def is_utf8(text, at, end):
    """Whether text[at:end] is well-formed UTF-8 (Unicode 16, table 3-7)."""
    while at < end:
        first = text[at]
        at += 1
        if first < 0x80:
            continue
        low, high = 0x80, 0xBF  # bounds of the second byte
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        else:
            return False
        for _ in range(more):
            if at >= end or not low <= text[at] <= high:
                return False
            low, high = 0x80, 0xBF
            at += 1
    return True


@compiled
def has_control(text, at, end):
    """Whether well-formed UTF-8 contains a control character beyond ASCII (listed in `streamsvm.text`)."""
    for place in range(at, end - 1):
        first, second = text[place], text[place + 1]
        if first == 0xC2 and second < 0xA0:  # U+0080 to U+009F
            return True
        if first == 0xE2 and (second == 0x80 or second == 0x81):
            third = text[place + 2]
            if second == 0x80 and 0xA8 <= third <= 0xAE:  # U+2028 to U+202E
                return True
            if second == 0x81 and 0xA6 <= third <= 0xA9:  # U+2066 to U+2069
                return True
    return False


@compiled
def read_label(text, at):
    """Return (whether the token at text[at:] is a valid label, its end)."""
    start, good, ascii_only = at, True, True
    while not is_end(text, at):
        byte = text[at]
        if byte < SPACE or byte in (DELETE, COMMA, COLON):
            good = False
        ascii_only &= byte < 0x80
        at += 1
    if good and not ascii_only:
        good = is_utf8(text, start, at) and not has_control(text, start, at)
    return good, at


@compiled
def read_qid(text, at):
    """Return the end of a qid:N token at text[at:], or `at` if there is none."""
    if text[at] != 113 or text[at + 1] != 105 or text[at + 2] != 100 or text[at + 3] != COLON:
        return at
    stop = at + 4
    if text[stop] == MINUS or text[stop] == PLUS:
        stop += 1
    if not ZERO <= text[stop] <= NINE:
        return at
    while ZERO <= text[stop] <= NINE:
        stop += 1
    return stop if is_end(text, stop) else at


@compiled
def parse(text, at, end, lowest, too_large, fix, out):
    """Parse whole lines of text[at:end] into `out` (see `Parsed`), as many rows as it has room for.

    Indices below `lowest` and values of at least `too_large` are faults. With `fix`, unsorted rows are
    marked instead of being faults. A row with a fault keeps no values.

    Returns
    -------
    at : where the next call continues
    line : number of lines read
    rows, undecided : numbers of rows and of undecided numbers written to `out`
    """
    line, row, size, undecided = 0, 0, 0, 0
    while at < end and row < len(out.fault):
        line_at = at
        while is_blank(text, at):
            at += 1
        if text[at] != NEWLINE and text[at] != HASH:
            row_begin, row_undecided, qids = size, undecided, 0
            previous, needs_repair = np.int64(-1), False
            fault, token = OK, at
            good, at = read_label(text, at)
            out.label_at[row], out.label_end[row] = token, at
            if not good:
                fault = LABEL
            while fault == OK:
                while is_blank(text, at):
                    at += 1
                token = at
                if text[at] == NEWLINE or text[at] == HASH:
                    break
                usual, index, value = False, np.int64(0), 0.0
                if at + MARGIN <= len(text):
                    usual, index, value, at = read_pair(text, at)
                kind, number_at = NUMBER, at
                if not usual:
                    while ZERO <= text[at] <= NINE:
                        digit = np.int64(text[at]) - ZERO
                        if index > (MAX_INDEX - digit) // 10:
                            break  # then the byte here is no colon: a fault
                        index = index * 10 + digit
                        at += 1
                    if at == token or text[at] != COLON:
                        at = read_qid(text, token)
                        if at == token:
                            fault = MALFORMED
                        qids += 1
                        continue
                    number_at = at + 1
                    kind, value, at = read_number(text, number_at)
                    if not is_end(text, at):
                        kind = BAD_NUMBER
                if kind == BAD_NUMBER:
                    fault = MALFORMED
                elif index < lowest:
                    fault = INDEX_LOW
                elif index <= previous and not fix:
                    fault = DUPLICATE if index == previous else UNSORTED
                elif abs(value) >= too_large:
                    fault = VALUE_LARGE
                else:
                    if index <= previous:
                        needs_repair = True
                    previous = index
                    if kind == UNDECIDED:
                        out.undecided_slot[undecided], out.undecided_at[undecided] = size, number_at
                        undecided += 1
                    out.indices[size], out.values[size] = index, value
                    size += 1
            if fault != OK:
                size, undecided = row_begin, row_undecided
            out.begin[row], out.end[row] = row_begin, size
            out.line[row], out.line_at[row] = line, line_at
            out.fault[row], out.fault_at[row], out.needs_repair[row] = fault, token, needs_repair
            out.qids[row] = qids
            row += 1
        while text[at] != NEWLINE:
            at += 1
        at += 1
        line += 1
    return at, line, row, undecided
