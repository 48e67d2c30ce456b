"""Numbers equal Python's float() to the last bit."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from helpers import read_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from streamsvm_converters.libsvm import numbers

SPELLINGS = """
0 -0 +0 00 0.0 .0 0. 0e5 0e-999 0e999999999999999999999 1 -1 +1 1. .5 -.5 +.5 5. 00012.500
1e0 1E0 1e+0 1e-0 1e22 1e23 1e15 1e16 1e17 1e18 1e19 1e20 1e21 6.02214076e23
9007199254740992 9007199254740993 9007199254740991e22 9007199254740993e-22
123456789012345678 1234567890123456789 12345678901234567890 12345678901234567891
99999999999999999999999999 100000000000000000000000000000000000000000000000000
0.1 0.2 0.3 0.30000000000000004 0.1000000000000000055511151231257827021181583404541015625
0.100000000000000000000000000000000000000000000000000000000001
0.000000000000000000000000000000000000000000000000000000123456789
1.7976931348623157e308 17976931348623157e292 8.98846567431158e307
2.2250738585072014e-308 2.2250738585072011e-308 2.225073858507201e-308 4.9e-324 5e-324
2.4703282292062327e-324 2.4703282292062328e-324 1e-323 1e-330 1e-400 1e-5000000000000000000
0.000000000000000000000000000000000e01 0.000000000000000000000000000000000001e33
3.4028234663852886e38 3.4028235677973366e38 0000000000000000000000000000001
1.00000000000000011102230246251565 1.00000000000000011102230246251565404236316680908203124
1.00000000000000011102230246251565404236316680908203125
1.00000000000000011102230246251565404236316680908203126
7.2057594037927933e+16 7.2057594037927945e16 5e-20 67e14 985e15 3652245464857896e21 895e-12
"""


def read(token: str) -> tuple[int, float, int]:
    return numbers.read_number(np.frombuffer(token.encode() + b" \n", dtype=np.uint8), 0)


def same_bits(a: float, b: float) -> bool:
    return struct.pack("d", a) == struct.pack("d", b)


def check(token: str) -> None:
    kind, value, end = read(token)
    assert end == len(token)
    assert kind in (numbers.NUMBER, numbers.UNDECIDED)
    assert kind == numbers.UNDECIDED or same_bits(value, float(token)), (token, value)


def test_spellings() -> None:
    for token in SPELLINGS.split():
        check(token)


@settings(max_examples=500)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 25))
def test_floats_in_any_precision(value: float, digits: int) -> None:
    for token in (repr(value), f"{value:.{digits}e}", f"{value:.{digits}g}", f"{value:.{digits}f}"):
        check(token)


@settings(max_examples=500)
@given(st.from_regex(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?", fullmatch=True))
def test_decimals(token: str) -> None:
    if token.isascii():
        check(token)


@settings(max_examples=300)
@given(st.integers(2**52, 2**53 - 1), st.integers(-90, 90), st.sampled_from(["", "1", "0000000001"]))
def test_halfway_between_two_floats(mantissa: int, exponent: int, tail: str) -> None:
    """Where the nearest float is hardest to tell: exactly between two, or just above."""
    odd = 2 * mantissa + 1
    check(f"{odd << exponent}.0{tail}" if exponent >= 0 else f"{odd * 5**-exponent}.0{tail}e{exponent}")


def test_common_numbers_are_decided_by_the_kernel() -> None:
    """17 digits, as repr and %.17g write them, are settled without a Python object."""
    generator = np.random.default_rng(0)
    tokens = [f"{x:.17g}" for x in generator.normal(size=2000) * 10.0 ** generator.integers(-30, 30, 2000)]
    assert all(read(token)[0] == numbers.NUMBER for token in tokens)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_whole_path_rounds_once(tmp_path: Path, dtype: str) -> None:
    """Undecided numbers included: float() of the token, then one rounding to the dtype."""
    generator = np.random.default_rng(1)
    tokens = [repr(x) for x in generator.normal(size=500).tolist()]
    # Just above the midpoint of two float32: rounding twice would go down to the even one.
    tokens += ["1.00000005960464477539062500000000001", "1.0000000596046448", "1.00000005960464477539062"]
    tokens += [f"{x:.30f}" for x in generator.normal(size=100)]
    tokens += ["2.2250738585072011e-308", "1e-310", "4.9e-324"] if dtype == "float64" else ["1e-45", "1e-40"]
    path = tmp_path / "numbers"
    path.write_text("".join(f"x {row}:{token}\n" for row, token in enumerate(tokens)))
    stream = read_rows([path], classes=["x"], n_features=len(tokens), index_base=0, dtype=dtype)
    found = np.concatenate([rows.data for rows, _ in stream])
    np.testing.assert_array_equal(found, np.array([float(token) for token in tokens]).astype(dtype))
