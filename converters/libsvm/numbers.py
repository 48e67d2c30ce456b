"""Read decimal numbers from text in compiled code, correctly rounded to float64.

The text is a uint8 array whose last used byte is a newline. Loops stop there, so they need no bounds checks.
"""

from __future__ import annotations

import functools

import numpy as np
from streamsvm_converters.libsvm.byte_vectors import SPAN, blanks, first_bit, load_byte, load_word, non_digits

from streamsvm.kernels import jit

# No fastmath, because it may change the last bit of a number.
compiled = functools.partial(jit.kernel, fastmath=False)
inlined = functools.partial(jit.inlined, fastmath=False)

NEWLINE, SPACE, COLON = 10, 32, 58
PLUS, MINUS, POINT, ZERO, NINE = 43, 45, 46, 48, 57

BAD_NUMBER, NUMBER, UNDECIDED = range(3)

EXACT_POWERS = 10.0 ** np.arange(23)
MAX_POWER = 270  # largest decimal exponent for which products neither overflow nor lose bits


def _powers_of_ten() -> np.ndarray:
    """Return 10**q for q from -MAX_POWER to MAX_POWER, each as the sum of two float64 numbers."""
    table = np.empty((2 * MAX_POWER + 1, 2))
    for q in range(-MAX_POWER, MAX_POWER + 1):
        above, below = 10 ** max(q, 0), 10 ** max(-q, 0)  # Python rounds quotients of integers correctly
        a, b = (above / below).as_integer_ratio()
        table[q + MAX_POWER] = above / below, (above * b - a * below) / (below * b)
    return table


POWERS_OF_TEN = _powers_of_ten()
SPLITTER = 2.0**27 + 1
U0, U1, U10, U32 = (np.uint64(n) for n in (0, 1, 10, 32))
LARGEST_EXACT = np.uint64(2**53)


@compiled
def halves(x):
    """Return two float64 numbers, each with at most 26 significant bits, whose sum is x."""
    scaled = SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high


@compiled
def nearest_float(digits, power):
    """Return the float64 nearest to digits * 10**power, for a uint64 `digits`, and whether it is certain.

    Each factor is a sum of two float64 numbers, so the product (Dekker 1971) is accurate to over 98 bits. The
    result is uncertain only if the number is almost midway between two floats, or if abs(power) > MAX_POWER.
    """
    if abs(power) > MAX_POWER:
        return 0.0, False
    ten, ten_rest = POWERS_OF_TEN[power + MAX_POWER, 0], POWERS_OF_TEN[power + MAX_POWER, 1]
    number = np.float64(digits)
    number_rest = np.float64(np.int64(digits - np.uint64(number)))
    product = number * ten
    (a, b), (c, d) = halves(number), halves(ten)
    rest = ((a * c - product) + a * d + b * c) + b * d + (number * ten_rest + number_rest * ten)
    bound = product * 2.0**-98
    return product + rest, product + (rest - bound) == product + (rest + bound)


@compiled
def read_number(text, at):
    """Read a number [+-]digits[.digits][e[+-]digits] at text[at:].

    Returns (BAD_NUMBER | NUMBER | UNDECIDED, value, end). UNDECIDED means that the nearest float64 is not
    certain, so the caller must use Python's float().
    """
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    digits, used, power, lost, seen, after_point = U0, 0, 0, False, False, 0
    while ZERO <= text[at] <= NINE or (text[at] == POINT and not after_point):
        if text[at] == POINT:
            after_point = 1
        elif used < 19:
            digits = digits * U10 + np.uint64(text[at] - ZERO)
            used += digits != U0
            power -= after_point
            seen = True
        else:
            lost |= text[at] != ZERO
            power += 1 - after_point
        at += 1
    if not seen:
        return BAD_NUMBER, 0.0, at
    if text[at] == 101 or text[at] == 69:
        at += 1
        sign = 1
        if text[at] == MINUS or text[at] == PLUS:
            sign = -1 if text[at] == MINUS else 1
            at += 1
        if not ZERO <= text[at] <= NINE:
            return BAD_NUMBER, 0.0, at
        exponent = 0
        while ZERO <= text[at] <= NINE:
            if exponent < 10**15:  # no mantissa compensates for a larger exponent
                exponent = exponent * 10 + (text[at] - ZERO)
            at += 1
        power += sign * exponent
    if digits == U0:
        value = 0.0
    elif not lost and digits <= LARGEST_EXACT and -22 <= power <= 22:
        # Both operands are exact, so the single rounding of * or / is correct (Clinger 1990).
        value = np.float64(np.int64(digits))
        value = value * EXACT_POWERS[power] if power >= 0 else value / EXACT_POWERS[-power]
    else:
        value, certain = nearest_float(digits, power)
        if certain and lost:  # the full mantissa is between digits and digits + 1
            above, certain = nearest_float(digits + U1, power)
            certain = certain and above == value
        if not certain:
            return UNDECIDED, 0.0, at
    return NUMBER, -value if negative else value, at


POWERS = np.array([10**power for power in range(17)], dtype=np.uint64)
ASCII_ZEROS = np.uint64(0x3030303030303030)
BYTE_PAIRS = np.uint64(0x000000FF000000FF)
# Multipliers that combine digits 1, 3, 5, 7 and digits 2, 4, 6, 8 of a number (Lemire 2018).
ODD_PLACES, EVEN_PLACES = np.uint64(0x000F424000000064), np.uint64(0x0000271000000001)
U8, U16 = np.uint64(8), np.uint64(16)


@inlined
def read_digits(text, at, count):
    """Return the integer in text[at:at + count], which has 1 to 8 digits, without a loop."""
    word = (load_word(text, at) ^ ASCII_ZEROS) << np.uint64(64 - 8 * count)
    word = word * U10 + (word >> U8)
    return ((word & BYTE_PAIRS) * ODD_PLACES + ((word >> U16) & BYTE_PAIRS) * EVEN_PLACES) >> U32


@inlined
def read_pair(text, at):
    """Read a pair index:value, followed by a space or newline, if it has the usual form.

    In the usual form, the index and the whole part of the value have 1 to 8 digits each, at most 16 digits
    follow the point, there is no exponent, and the pair is shorter than `SPAN` bytes. `MARGIN` bytes must be
    readable. A single comparison of all bytes finds the end of the pair. Reading the next pair depends only
    on this end, so the processor can work on several pairs at a time.

    Returns whether the pair has the usual form, its index, its value, and its end. A pair in another form is
    not read.
    """
    last = blanks(text, at)
    end = first_bit(last)
    marks = non_digits(text, at) & ~last & (last - U1)  # colon, sign and point of the pair
    if marks == U0:
        return False, np.int64(0), 0.0, at
    colon = first_bit(marks)
    marks &= marks - U1
    negative = load_byte(text, at + colon + 1) == MINUS
    marks &= marks - np.uint64(negative)
    begin = colon + 1 + negative
    stop, places = end, 0
    if marks != U0:
        stop = first_bit(marks)
        places = end - stop - 1
        if (
            load_byte(text, at + stop) != POINT or marks & (marks - U1) != U0
            or np.uint64(places - 1) >= U16
        ):  # fmt: skip
            return False, np.int64(0), 0.0, at
    whole = stop - begin
    if (
        np.uint64(colon - 1) >= U8 or np.uint64(whole - 1) >= U8 or end >= SPAN
        or load_byte(text, at + colon) != COLON
        or (load_byte(text, at + end) != SPACE and load_byte(text, at + end) != NEWLINE)
    ):  # fmt: skip
        return False, np.int64(0), 0.0, at
    if whole == 1:
        digits = np.uint64(load_byte(text, at + begin) - ZERO)
    else:
        digits = read_digits(text, at + begin, whole)
    if places > 8:
        if whole > 3:  # the number may have more than 19 digits
            return False, np.int64(0), 0.0, at
        digits = digits * POWERS[8] + read_digits(text, at + stop + 1, 8)
        digits = digits * POWERS[np.uint64(places - 8)] + read_digits(text, at + stop + 9, places - 8)
    elif places > 0:
        digits = digits * POWERS[np.uint64(places)] + read_digits(text, at + stop + 1, places)
    if digits <= LARGEST_EXACT:
        value = np.float64(np.int64(digits)) / EXACT_POWERS[np.uint64(places)]
    else:
        value, certain = nearest_float(digits, -places)
        if not certain:
            return False, np.int64(0), 0.0, at
    return True, np.int64(read_digits(text, at, colon)), -value if negative else value, at + end
