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
    group : number of the last qid field, if there is any
    ascii_only : whether the labels are; if not, `reader` checks them
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
    group: np.ndarray
    ascii_only: np.ndarray
    undecided_slot: np.ndarray
    undecided_at: np.ndarray


@compiled
def is_blank(text, at):
    """Return True if text[at] is a space, a tab, or the carriage return before a newline."""
    # `in` a tuple would make each start import Numba's lists.
    return text[at] == SPACE or text[at] == TAB or (text[at] == RETURN and text[at + 1] == NEWLINE)


@compiled
def is_end(text, at):
    """Return True if a token ends before text[at]."""
    return text[at] == NEWLINE or text[at] == HASH or is_blank(text, at)


@compiled
def read_label(text, at, lists):
    """Read the label at text[at:], up to where it ends; with `lists`, commas separate several.

    Returns
    -------
    fault : OK, or the fault of the label
    end : int
    ascii_only : whether it has no other characters, which are not checked
    """
    part, good, ascii_only, fault = at, True, True, OK
    while not is_end(text, at):
        byte = text[at]
        if byte < SPACE or text[at] == DELETE or text[at] == COLON:
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
    return fault if good else LABEL, at, ascii_only


@compiled
def read_qid(text, at):
    """Return the end of a qid:N token at text[at:], or `at` if there is none; and N, -1 if out of range."""
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
def parse(text, at, end, lowest, too_large, fix, lists, groups, out):
    """Parse whole lines of text[at:end] into `out` (see `Parsed`), as many rows as it has room for.

    Indices below `lowest` and values of at least `too_large` are faults. With `fix`, unsorted rows are
    marked instead of being faults. With `lists`, commas separate the labels of a row, and a line that begins
    with a blank has none. With `groups`, each row must have one qid field. Rows with faults keep no values.

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
            ascii_only = True
            if lists and at > line_at:
                out.label_at[row], out.label_end[row] = line_at, line_at
            else:
                fault, at, ascii_only = read_label(text, at, lists)
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
                    at, out.group[row] = read_qid(text, token)
                    if at == token:
                        fault = MALFORMED
                    elif groups and qids > 0:
                        fault = TWO_GROUPS
                    elif groups and out.group[row] < 0:
                        fault = GROUP_RANGE
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
            if fault == OK and groups and qids == 0:
                fault, token = NO_GROUP, out.label_at[row]
            if fault != OK:
                size, undecided = row_begin, row_undecided
            out.begin[row], out.end[row] = row_begin, size
            out.line[row], out.line_at[row] = line, line_at
            out.fault[row], out.fault_at[row], out.needs_repair[row] = fault, token, needs_repair
            out.qids[row], out.ascii_only[row] = qids, ascii_only
            row += 1
        while text[at] != NEWLINE:
            at += 1
        at += 1
        line += 1
    return at, line, row, undecided
