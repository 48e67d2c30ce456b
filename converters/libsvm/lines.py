"""Compiled parsing of lines: labels, qid fields, index:value pairs, and their faults.

Text is a uint8 array whose last byte in use is a newline: every loop stops at a newline, so no scan needs
a bounds check.
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

# The faults of a row. The kernels record which and where; `parse_errors.explain` words it from the text.
OK, LABEL, MALFORMED, INDEX_LOW, UNSORTED, DUPLICATE, VALUE_LARGE, SUM_LARGE, NORM_LARGE = range(9)
# Those of lists of labels, and of groups:
COMMA_IN_LABEL, EMPTY_LABEL, NO_GROUP, TWO_GROUPS, GROUP_RANGE = range(9, 14)

# A store has fewer than 2**62 features, so that sums of sizes stay within int64.
MAX_INDEX = 2**62 - 2
MAX_GROUP = 2**63 - 1
LETTER_Q = 113


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
        A row without labels, among lists of them, has its label from `line_at` to `line_at`.
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
    """Return True if text[at] is a space, a tab, or the carriage return before a newline."""
    byte = text[at]
    return byte in (SPACE, TAB) or (byte == RETURN and text[at + 1] == NEWLINE)


@compiled
def is_end(text, at):
    """Return True if a token ends before text[at]."""
    return text[at] == NEWLINE or text[at] == HASH or is_blank(text, at)


@compiled
def is_utf8(text, at, end):
    """Return True if text[at:end] is well-formed UTF-8 (Unicode 16, table 3-7)."""
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
    """Return True if well-formed UTF-8 has a control character beyond ASCII (see `streamsvm.base.text`)."""
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
def read_label(text, at, lists):
    """Return (OK or the fault of the label at text[at:], its end); with `lists`, commas separate several."""
    start, part, good, ascii_only, fault = at, at, True, True, OK
    while not is_end(text, at):
        byte = text[at]
        if byte < SPACE or byte in (DELETE, COLON):
            good = False
        if byte == COMMA:
            if not lists:
                fault = COMMA_IN_LABEL
            elif part == at:
                fault = EMPTY_LABEL
            part = at + 1
        ascii_only &= byte < 0x80
        at += 1
    if lists and part == at:
        fault = EMPTY_LABEL
    if good and not ascii_only:
        good = is_utf8(text, start, at) and not has_control(text, start, at)
    return fault if good else LABEL, at


@compiled
def read_qid(text, at):
    """Return the end of a qid:N token at text[at:], or `at` if there is none."""
    if text[at] != LETTER_Q or text[at + 1] != 105 or text[at + 2] != 100 or text[at + 3] != COLON:
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
def read_groups(text, parsed, n_rows, groups):
    """Write the number of the qid field of each row without a fault to `groups`, shape (n_rows,).

    A row without such a field, or with two, or with a number outside 0..2**63 - 1, gets a fault.
    """
    for row in range(n_rows):
        if parsed.fault[row] != OK:
            continue
        if parsed.qids[row] == 0:
            parsed.fault[row], parsed.fault_at[row] = NO_GROUP, parsed.label_at[row]
            continue
        at, left = parsed.label_end[row], parsed.qids[row]
        while left > 0:  # the row was parsed: a token that begins with q is a qid field
            while is_blank(text, at):
                at += 1
            token = at
            if text[at] == LETTER_Q:
                left -= 1
                at += 4
                negative = text[at] == MINUS
                if negative or text[at] == PLUS:
                    at += 1
                number, fault = np.int64(0), OK
                while ZERO <= text[at] <= NINE:
                    digit = np.int64(text[at]) - ZERO
                    if number > (MAX_GROUP - digit) // 10:
                        fault = GROUP_RANGE
                        break
                    number = number * 10 + digit
                    at += 1
                if negative and number > 0:
                    fault = GROUP_RANGE
                if left + 1 < parsed.qids[row]:
                    fault = TWO_GROUPS
                if fault != OK:
                    parsed.fault[row], parsed.fault_at[row] = fault, token
                    break
                groups[row] = number
            while not is_end(text, at):
                at += 1


@compiled
def parse(text, at, end, lowest, too_large, fix, lists, out):
    """Parse whole lines of text[at:end] into `out` (see `Parsed`), as many rows as it has room for.

    Indices below `lowest` and values of at least `too_large` are faults. With `fix`, unsorted rows are
    marked instead of being faults. With `lists`, commas separate the labels of a row, and a line that begins
    with a blank has none. A row with a fault keeps no values.

    Returns
    -------
    at : where the next call continues
    line : number of lines read
    rows, undecided : numbers of rows and of undecided numbers written to `out`
    """
    line, row, size, undecided = 0, 0, 0, 0
    usual_end = len(text) - MARGIN
    while at < end and row < len(out.fault):
        line_at = at
        while is_blank(text, at):
            at += 1
        if text[at] != NEWLINE and text[at] != HASH:
            row_begin, row_undecided, qids = size, undecided, 0
            previous, needs_repair = np.int64(lowest - 1), False
            fault, token = OK, at
            if lists and at > line_at:
                out.label_at[row], out.label_end[row] = line_at, line_at
            else:
                fault, at = read_label(text, at, lists)
                out.label_at[row], out.label_end[row] = token, at
            while fault == OK:
                while is_blank(text, at):
                    at += 1
                while at <= usual_end:  # the loop below reads what this one does not
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
                index, number_at = np.int64(0), at
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
