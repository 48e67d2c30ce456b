"""Typed decoding of JSON: what was encoded comes back, and anything else is refused with its place."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.base.decode import Check, Count, SchemaError, between, decode, encode


class Place(NamedTuple):
    line: Count
    digest: str = ""


@dataclasses.dataclass(frozen=True)
class Inner:
    size: Annotated[int, between(1, 100)]
    ratio: Annotated[float, between(0, 1)] = 0.5

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("13 brings bad luck")


@dataclasses.dataclass(frozen=True)
class Record:
    kind: Literal["fit", "online"]
    inner: Inner
    shape: tuple[Count, Count]
    sums: tuple[float, ...]
    lengths: dict[int, Count]
    names: list[str] | None
    place: Place
    C: float | Literal["auto"] = "auto"
    other: Any = None
    done: bool = False


GOOD = Record("fit", Inner(3), (2, 16), (0.0, 1.5), {1: 10, 22: 0}, ["a"], Place(7), C=0.1, other={"x": [1]})


def read(record: Record) -> dict[str, Any]:
    """What a file holds."""
    return json.loads(json.dumps(encode(record)))


def test_what_was_encoded_comes_back() -> None:
    assert decode(Record, read(GOOD)) == GOOD
    assert read(GOOD)["lengths"] == {"1": 10, "22": 0}  # sorted as text, like what is read


def test_defaults_replace_what_is_missing_and_unknown_entries_are_ignored() -> None:
    value = read(GOOD)
    del value["done"], value["C"], value["inner"]["ratio"]
    found = decode(Record, {**value, "later": 1})
    assert (found.done, found.C, found.inner.ratio) == (False, "auto", 0.5)


def test_a_whole_number_becomes_a_float_where_one_is_expected() -> None:
    found = decode(Record, {**read(GOOD), "sums": [1, 2.5], "C": 2})
    assert found.sums == (1.0, 2.5)
    assert [type(found.sums[0]), type(found.C)] == [float, float]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "other"}, "kind must be one of .*'other'"),
    ({"inner": []}, r"inner must be an object, not \[\]"),
    ({"inner": {"ratio": 0.5}}, r"inner\.size is missing"),
    ({"inner": {"size": 0}}, r"inner\.size must be in \[1, .*, not 0"),
    ({"inner": {"size": True}}, r"inner\.size must be of type int, not True"),
    ({"inner": {"size": 13}}, "inner: 13 brings bad luck"),
    ({"inner": {"size": 1, "ratio": 1.5}}, r"inner\.ratio must be in \[0, 1\]"),
    ({"shape": [1]}, "shape must be a list of 2 items"),
    ({"shape": [1, 1.0]}, r"shape\[1\] must be of type int"),
    ({"shape": [1, 2**63]}, r"shape\[1\] must be within 64 bits"),
    ({"sums": [math.nan]}, r"sums\[0\] must be finite"),
    ({"sums": [math.inf]}, r"sums\[0\] must be finite"),
    ({"sums": [10**400]}, r"sums\[0\] must be finite"),
    ({"sums": "12"}, "sums must be a list"),
    ({"lengths": {"-1": 1}}, "lengths must be an object with whole numbers as keys"),
    ({"lengths": {"1": -1}}, r"lengths\['1'\] must be in"),
    ({"names": ["a", None]}, r"names\[1\] must be of type str"),
    ({"place": {"line": -1}}, r"place\.line must be in"),
    ({"C": "best"}, "C must be one of"),
    ({"C": False}, "C must be"),
    ({"done": 1}, "done must be of type bool"),
    ({"done": None}, "done must be of type bool"),
]


def test_a_wrong_entry_is_named() -> None:
    for change, message in REFUSED:
        with pytest.raises(SchemaError, match=message):
            decode(Record, {**read(GOOD), **change})


def test_a_check_of_the_callers_own() -> None:
    even = Annotated[int, Check(lambda value: value % 2 == 0, "even")]
    assert decode(list[even], [2, 4]) == [2, 4]
    with pytest.raises(SchemaError, match=r"sizes\[1\] must be even, not 3"):
        decode(list[even], [2, 3], "sizes")


def test_a_message_stays_short() -> None:
    with pytest.raises(SchemaError) as refused:
        decode(Record, {**read(GOOD), "names": list(range(10**6)), "done": "x" * 10**6})
    assert len(str(refused.value)) < 200
    with pytest.raises(SchemaError) as refused:
        decode(Record, "x" * 10**6)
    assert len(str(refused.value)) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


@given(st.dictionaries(st.sampled_from([field.name for field in dataclasses.fields(Record)]), JSON), JSON)
def test_whatever_json_holds_is_decoded_or_refused(changes: dict[str, Any], other: Any) -> None:
    for value in ({**read(GOOD), **changes}, other):
        try:
            found = decode(Record, value)
        except SchemaError:
            continue
        assert repr(decode(Record, read(found))) == repr(found)  # a NaN equals no other
