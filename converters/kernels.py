"""Compiled loops of the converters: read numbers and lines, tidy rows, number labels, move rows.

Text is a uint8 array whose last byte in use is a newline, so that no scan needs a bounds check: every
loop stops at a newline.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from streamsvm_converters.words import MARGIN, SPAN, first_bit, load_word, non_digits

from streamsvm.kernels import jit

# Without fastmath: it would let the compiler change the last bit of a number.
compiled = functools.partial(jit.kernel, fastmath=False)
inlined = functools.partial(jit.inlined, fastmath=False)
allocating = functools.partial(jit.allocating, fastmath=False)

NEWLINE, RETURN, SPACE, TAB, HASH, COLON = 10, 13, 32, 9, 35, 58
PLUS, MINUS, POINT, ZERO, NINE, COMMA, DELETE = 43, 45, 46, 48, 57, 44, 127

# What can be wrong with a row. The kernels say where; `faults.explain` says what, from the text.
OK, LABEL, MALFORMED, INDEX_LOW, UNSORTED, DUPLICATE, VALUE_LARGE, SUM_LARGE, NORM_LARGE = range(9)

# A store has fewer than 2**62 features, so that sums of sizes stay within int64.
MAX_INDEX = 2**62 - 2

# -- numbers ---------------------------------------------------------------------------------------

BAD_NUMBER, NUMBER, HARD_NUMBER = range(3)

EXACT_POWERS = 10.0 ** np.arange(23)  # the powers of ten that float64 holds exactly
MIN_POWER, MAX_POWER = -342, 308  # decimal exponents beyond which 19 digits are 0 or infinite


def _powers_of_five() -> np.ndarray:
    """The leading 128 bits of 5**q, as (high, low) words, for q from MIN_POWER to MAX_POWER."""
    table = np.empty((MAX_POWER - MIN_POWER + 1, 2), dtype=np.uint64)
    for row, q in enumerate(range(MIN_POWER, MAX_POWER + 1)):
        if q >= 0:
            bits = (5**q << 128) >> (5**q).bit_length()
        else:  # reciprocals are rounded up, as the algorithm's proof asks; then truncated
            width = (5**-q - 1).bit_length()
            bits = (1 << (width + 127 if q >= -27 else 2 * width + 128)) // 5**-q + 1
            bits >>= bits.bit_length() - 128
        table[row] = bits >> 64, bits & (2**64 - 1)
    return table


POWERS_OF_FIVE = _powers_of_five()

U0, U1, U3, U9, U10, U32, U52, U63 = (np.uint64(n) for n in (0, 1, 3, 9, 10, 32, 52, 63))
LOW_HALF = np.uint64(2**32 - 1)
LOW_9_BITS = np.uint64(2**9 - 1)
ALL_ONES = np.uint64(2**64 - 1)
TOP_BIT = np.uint64(2**63)
BIT_52, BIT_53 = np.uint64(2**52), np.uint64(2**53)


@compiled
def multiply_high(a, b):
    """The upper 64 bits of the 128-bit product of two uint64."""
    a_high, a_low, b_high, b_low = a >> U32, a & LOW_HALF, b >> U32, b & LOW_HALF
    middle = a_high * b_low + ((a_low * b_low) >> U32)
    return a_high * b_high + (middle >> U32) + ((a_low * b_high + (middle & LOW_HALF)) >> U32)


@compiled
def nearest_float(digits, power):
    """The bits of the float64 nearest to digits * 10**power, and whether that is certain.

    Eisel and Lemire's algorithm (Lemire 2021, "Number parsing at a gigabyte per second"), for
    `digits` a nonzero uint64. Subnormal and infinite results count as uncertain.
    """
    if power < MIN_POWER or power > MAX_POWER:
        return U0, False
    zeros = 0
    while digits < TOP_BIT:
        digits <<= U1
        zeros += 1
    high_five, low_five = POWERS_OF_FIVE[power - MIN_POWER, 0], POWERS_OF_FIVE[power - MIN_POWER, 1]
    lower, upper = digits * high_five, multiply_high(digits, high_five)
    if upper & LOW_9_BITS == LOW_9_BITS:  # 64 bits of the power do not decide: take all 128
        carry = multiply_high(digits, low_five)
        lower += carry
        if lower < carry:
            upper += U1
    if lower == ALL_ONES and (power < -27 or power > 55):
        return U0, False
    top = upper >> U63
    shift = top + U9
    mantissa = upper >> shift
    exponent = ((217706 * power) >> 16) + 63 + np.int64(top) - zeros + 1023
    if exponent <= 0:
        return U0, False
    if lower <= U1 and -4 <= power <= 23 and mantissa & U3 == U1 and mantissa << shift == upper:
        mantissa -= U1  # exactly between two floats: towards the even one
    mantissa = (mantissa + (mantissa & U1)) >> U1
    if mantissa >= BIT_53:
        mantissa = BIT_52
        exponent += 1
    if exponent >= 2047:
        return U0, False
    return (mantissa - BIT_52) | (np.uint64(exponent) << U52), True


@compiled
def read_number(text, at):
    """Read [+-]digits[.digits][e[+-]digits] at text[at:].

    Returns (BAD_NUMBER | NUMBER | HARD_NUMBER, value, end). A number is hard when its float64
    is not certain here; Python's float() then has the word.
    """
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    digits, used, power, lost, seen = U0, 0, 0, False, False
    while ZERO <= text[at] <= NINE:
        seen = True
        if used < 19:
            digits = digits * U10 + np.uint64(text[at] - ZERO)
            used += digits != U0
        else:
            lost |= text[at] != ZERO
            power += 1
        at += 1
    if text[at] == POINT:
        at += 1
        while ZERO <= text[at] <= NINE:
            seen = True
            if used < 19:
                digits = digits * U10 + np.uint64(text[at] - ZERO)
                used += digits != U0
                power -= 1
            else:
                lost |= text[at] != ZERO
            at += 1
    if not seen:
        return BAD_NUMBER, 0.0, at
    if text[at] == 101 or text[at] == 69:  # e, E
        at += 1
        sign = 1
        if text[at] == MINUS or text[at] == PLUS:
            sign = -1 if text[at] == MINUS else 1
            at += 1
        if not ZERO <= text[at] <= NINE:
            return BAD_NUMBER, 0.0, at
        exponent = 0
        while ZERO <= text[at] <= NINE:
            if exponent < 10**15:  # far beyond any exponent that the length of the mantissa can undo
                exponent = exponent * 10 + (text[at] - ZERO)
            at += 1
        power += sign * exponent
    if digits == U0:
        value = 0.0
    elif not lost and digits <= BIT_53 and -22 <= power <= 22:
        # Both operands are exact, so the one rounding of * or / is the right one (Clinger 1990).
        value = np.float64(np.int64(digits))
        value = value * EXACT_POWERS[power] if power >= 0 else value / EXACT_POWERS[-power]
    else:
        bits, certain = nearest_float(digits, power)
        if certain and lost:  # what was cut off lies between digits and digits + 1
            above, certain = nearest_float(digits + U1, power)
            certain = certain and above == bits
        if not certain:
            return HARD_NUMBER, 0.0, at
        value = np.uint64(bits).view(np.float64)
    return NUMBER, -value if negative else value, at


# -- pairs as they usually are ---------------------------------------------------------------------

POWERS = np.array([10**power for power in range(17)], dtype=np.uint64)
ASCII_ZEROS = np.uint64(0x3030303030303030)
BYTE_PAIRS = np.uint64(0x000000FF000000FF)
# Multiplied, they bring together digits 1, 3, 5, 7 and 2, 4, 6, 8 of a number (Lemire 2018).
ODD_PLACES, EVEN_PLACES = np.uint64(0x000F424000000064), np.uint64(0x0000271000000001)
U8, U16 = np.uint64(8), np.uint64(16)
ONE = np.uint32(1)


@inlined
def read_digits(text, at, count):
    """The number that text[at:at + count] spells, 1 to 8 digits, without a loop."""
    word = (load_word(text, at) ^ ASCII_ZEROS) << np.uint64(64 - 8 * count)
    word = word * U10 + (word >> U8)
    return ((word & BYTE_PAIRS) * ODD_PLACES + ((word >> U16) & BYTE_PAIRS) * EVEN_PLACES) >> U32


@inlined
def read_pair(text, at):
    """Read index:value and the blank or newline after it, if it is written as most are.

    That is: index and whole part in 1 to 8 digits each, no more than 16 digits after the point, no
    exponent, `SPAN` bytes in all, and `MARGIN` bytes to look at. All separators come out of one
    comparison, so that no branch depends on how long the numbers are.

    Returns
    -------
    usual : whether it is; else the pair is still to be read
    index, value
    end : where the pair ends, or `at`
    """
    others = non_digits(text, at)
    colon = first_bit(others)
    others &= others - ONE
    begin = colon + 1
    negative = text[at + begin] == MINUS
    if negative:
        begin += 1
        others &= others - ONE
    end = first_bit(others)
    whole, places = end - begin, 0
    if text[at + end] == POINT:
        end = first_bit(others & (others - ONE))
        places = end - begin - whole - 1
        if places < 1 or places > 16:
            return False, np.int64(0), 0.0, at
    if (
        colon < 1 or colon > 8 or text[at + colon] != COLON or whole < 1 or whole > 8
        or end >= SPAN or (text[at + end] != SPACE and text[at + end] != NEWLINE)
    ):  # fmt: skip
        return False, np.int64(0), 0.0, at
    digits = read_digits(text, at + begin, whole)
    if places > 8:
        if whole > 3:  # more than 19 digits
            return False, np.int64(0), 0.0, at
        digits = digits * POWERS[8] + read_digits(text, at + begin + whole + 1, 8)
        digits = digits * POWERS[places - 8] + read_digits(text, at + begin + whole + 9, places - 8)
    elif places > 0:
        digits = digits * POWERS[places] + read_digits(text, at + begin + whole + 1, places)
    if digits <= BIT_53:
        value = np.float64(np.int64(digits)) / EXACT_POWERS[places]  # one rounding of exact operands
    else:
        bits, certain = nearest_float(digits, -places)
        if not certain:
            return False, np.int64(0), 0.0, at
        value = np.uint64(bits).view(np.float64)
    return True, np.int64(read_digits(text, at, colon)), -value if negative else value, at + end


# -- lines -----------------------------------------------------------------------------------------


class Parsed(NamedTuple):
    """Arrays that `parse` fills, reused for every block of text.

    Per value: `indices` as written, `values` in float64. Per row: its values are
    [begin, end); `line` counts from 0; `line_at`, `label_at`, `label_end` and `fault_at` are
    offsets into the text; `fault` is one of the codes above; `untidy` marks rows that
    `repair` must sort; `qids` counts qid fields. `hard_slot` and `hard_at` list hard numbers:
    which value, where.
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
    untidy: np.ndarray
    qids: np.ndarray
    hard_slot: np.ndarray
    hard_at: np.ndarray


@compiled
def is_blank(text, at):
    """A space, a tab, or the carriage return of a line that ends in both."""
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
        low, high = 0x80, 0xBF  # what the second byte may be
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
    """Whether well-formed UTF-8 holds one of the control characters beyond ASCII (see `streamsvm.text`)."""
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
    """Returns (whether the token at text[at:] can be a label, its end)."""
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
    """The end of a qid:N token at text[at:], or `at` if there is none."""
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

    Indices below `lowest` are faults, and so are values of at least `too_large`; with `fix`,
    unsorted rows are only marked. A row with a fault keeps no values.

    Returns
    -------
    at : where the next call continues
    line : lines read
    rows, hard : rows and hard numbers written to `out`
    """
    line, row, size, hard = 0, 0, 0, 0
    while at < end and row < len(out.fault):
        line_at = at
        while is_blank(text, at):
            at += 1
        if text[at] != NEWLINE and text[at] != HASH:
            row_begin, row_hard, qids = size, hard, 0
            previous, untidy = np.int64(-1), False
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
                        untidy = True
                    previous = index
                    if kind == HARD_NUMBER:
                        out.hard_slot[hard], out.hard_at[hard] = size, number_at
                        hard += 1
                    out.indices[size], out.values[size] = index, value
                    size += 1
            if fault != OK:
                size, hard = row_begin, row_hard
            out.begin[row], out.end[row] = row_begin, size
            out.line[row], out.line_at[row] = line, line_at
            out.fault[row], out.fault_at[row], out.untidy[row] = fault, token, untidy
            out.qids[row] = qids
            row += 1
        while text[at] != NEWLINE:
            at += 1
        at += 1
        line += 1
    return at, line, row, hard


# -- rows ------------------------------------------------------------------------------------------


@compiled
def merge_sort(indices, values, spare_indices, spare_values):
    """Sort by index, in place and stably: duplicates are summed in the order they were written."""
    size, width = len(indices), 1
    while width < size:
        for low in range(0, size, 2 * width):
            middle, high = min(low + width, size), min(low + 2 * width, size)
            left, right = low, middle
            for slot in range(low, high):
                if left < middle and (right >= high or indices[left] <= indices[right]):
                    source = left
                    left += 1
                else:
                    source = right
                    right += 1
                spare_indices[slot], spare_values[slot] = indices[source], values[source]
        for slot in range(size):
            indices[slot], values[slot] = spare_indices[slot], spare_values[slot]
        width *= 2


@allocating
def repair(parsed, n_rows, too_large):
    """Sort the rows marked untidy and sum their duplicates; returns how many were repaired."""
    repaired = 0
    for row in range(n_rows):
        if parsed.fault[row] != OK or not parsed.untidy[row]:
            continue
        begin, end = parsed.begin[row], parsed.end[row]
        indices, values = parsed.indices[begin:end], parsed.values[begin:end]
        merge_sort(indices, values, np.empty_like(indices), np.empty_like(values))
        last = 0
        for slot in range(1, end - begin):
            if indices[slot] == indices[last]:
                values[last] += values[slot]
            else:
                last += 1
                indices[last], values[last] = indices[slot], values[slot]
        parsed.end[row] = begin + last + 1
        for slot in range(last + 1):
            if abs(values[slot]) >= too_large:
                parsed.fault[row], parsed.fault_at[row] = SUM_LARGE, parsed.label_at[row]
        repaired += parsed.fault[row] == OK
    return repaired


@compiled
def settle(parsed, n_rows, last_feature, data, indices, indptr, norm2):
    """Close up the rows without a fault: values and indices to `data` and `indices` in their dtypes.

    Drops features beyond `last_feature` and values that are zero in the dtype; finds the last
    fault a row can have, a squared norm that overflows. `indptr` and `norm2` get one entry a row
    kept (`indptr` after its first).

    With `indices` too narrow for the largest index kept, call again with wider ones.

    Returns
    -------
    qids : qid fields in the rows kept
    zeros, unseen : values dropped for either reason
    smallest, largest : the indices met (MAX_INDEX, -1 if none), dropped ones included
    largest_row : the row with the largest index
    """
    size, kept, qids, zeros, unseen = 0, 0, 0, 0, 0
    smallest, largest, largest_row = np.int64(MAX_INDEX), np.int64(-1), 0
    indptr[0] = 0
    for row in range(n_rows):
        if parsed.fault[row] != OK:
            continue
        begin, end = parsed.begin[row], parsed.end[row]
        first, last = np.int64(MAX_INDEX), np.int64(-1)
        if begin < end:
            first, last = parsed.indices[begin], parsed.indices[end - 1]
        row_size, row_zeros, row_unseen, total = size, 0, 0, 0.0
        for slot in range(begin, end):
            if parsed.indices[slot] > last_feature:
                row_unseen += 1
                continue
            data[row_size] = parsed.values[slot]
            value = np.float64(data[row_size])
            if value == 0.0:
                row_zeros += 1
                continue
            indices[row_size] = parsed.indices[slot]
            total += value * value
            row_size += 1
        if not np.isfinite(total):
            parsed.fault[row], parsed.fault_at[row] = NORM_LARGE, parsed.label_at[row]
            continue
        smallest = min(smallest, first)
        if last > largest:
            largest, largest_row = last, row
        size = row_size
        qids += parsed.qids[row]
        zeros += row_zeros
        unseen += row_unseen
        norm2[kept] = total
        kept += 1
        indptr[kept] = size
    return qids, zeros, unseen, smallest, largest, largest_row


@compiled
def gather(data, indices, indptr, order, shift, out_data, out_indices, out_indptr):
    """Write rows `order` of a CSR batch to the `out` arrays, each index less `shift`."""
    size = 0
    out_indptr[0] = 0
    for place in range(len(order)):
        row = order[place]
        for slot in range(indptr[row], indptr[row + 1]):
            out_data[size] = data[slot]
            out_indices[size] = indices[slot] - shift
            size += 1
        out_indptr[place + 1] = size


# -- labels ----------------------------------------------------------------------------------------

FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@compiled
def first_slot(text, at, end, n_slots):
    """Where to look for text[at:end] in a table of `n_slots`, a power of two (FNV-1a, folded)."""
    value = FNV_OFFSET
    for place in range(at, end):
        value = (value ^ np.uint64(text[place])) * FNV_PRIME
    return np.int64((value ^ (value >> U32)) & np.uint64(n_slots - 1))


@compiled
def find_label(text, at, end, slots, ends, letters):
    """The slot that holds the code of text[at:end], or the empty one (-1) where it belongs."""
    slot = first_slot(text, at, end, len(slots))
    while slots[slot] >= 0:
        code = slots[slot]
        begin = ends[code]
        if ends[code + 1] - begin == end - at:
            same = True
            for place in range(end - at):
                if letters[begin + place] != text[at + place]:
                    same = False
                    break
            if same:
                break
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@compiled
def rehash(slots, ends, letters, count):
    """Enter labels 0..count-1 into an empty table."""
    for code in range(count):
        slots[find_label(letters, ends[code], ends[code + 1], slots, ends, letters)] = code


@compiled
def code_labels(text, parsed, row, n_rows, slots, ends, letters, count, learn, codes):
    """Write the code of each faultless row's label to `codes`, from `row` on.

    Label c is letters[ends[c]:ends[c + 1]]. With `learn`, a new label gets the next code;
    without, -1. Returns (row, count): stops before `n_rows` where the table must grow.
    """
    while row < n_rows:
        if parsed.fault[row] == OK:
            at, end = parsed.label_at[row], parsed.label_end[row]
            slot = find_label(text, at, end, slots, ends, letters)
            if slots[slot] < 0 and learn:
                stop = ends[count] + end - at
                if 2 * (count + 1) > len(slots) or stop > len(letters):
                    return row, count
                for place in range(end - at):
                    letters[ends[count] + place] = text[at + place]
                count += 1
                ends[count] = stop
                slots[slot] = count - 1
            codes[row] = slots[slot]
        row += 1
    return row, count
