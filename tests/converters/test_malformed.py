"""Malformed text is refused with file, line, column, token and a remedy; rows are those of a plain parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fuzz.targets import text as target
from helpers import read_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from streamsvm_converters import convert

from streamsvm.errors import InputError

LISTS, GROUPS = {"multilabel": True}, {"groups": True}
FROM_1, DOUBLE = {"index_base": 1}, {"dtype": "float64"}
TOO_LARGE = ["1e39", "-1e39", "3.4028235677973366e38", "1e400", "1e999999999999", "9" * 50 + ".1"]
ABOVE = [str(2**62 - 1), str(2**63), str(2**64 + 1), "0000009" + "9" * 22]
NO_VALUES = (
    *("", "nan", "NaN", "inf", "-inf", "+Infinity", "abc", "1_000", "0x10", "1e", "1e+", ".", "-", "--1"),
    *("1.2.3", "1d5", "2:3", "5%", "\u0661", "0,5", "2,3:4", "1\v2:2", "1\f", "1\r2:2"),
)
NO_INDICES = ("", "-3", "+3", "1.5", "1e2", "x", "0x1", "\u0661")
NO_LABELS = ("a\0b", "a\x7f", "\x1b[0m", "a\x85", "\u2028", "1\u202e2", "\u2066")
NOT_UTF8 = (b"\xff", b"caf\xe9", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")
COLONS = ("1:2", ":", "a:b", "qid:3")
# A line, the column of its fault, parts of the message about it with dots between, and options.
REFUSED: list[tuple[str | bytes, int, str, dict[str, Any]]] = [
    *((f"{label} 3:4", 1, f"'{label}' has a colon, but a line must", {}) for label in COLONS),
    (" 1:2 3:4", 2, "'1:2' has a colon, but a line must start with a label", {}),
    ("1,2 1:1", 1, "'1,2' is a label with a comma; multilabel=True reads several labels per row", {}),
    *((f"{label} 1:1", 1, "is a label that is not UTF-8 or contains a control", {}) for label in NO_LABELS),
    *((label + b" 1:1", 1, "is a label that is not UTF-8", {}) for label in NOT_UTF8),
    ("5.1,3.5,setosa", 1, "'5.1,3.5,setosa' is not ... looks like a table, such as CSV ... format='csv'", {}),
    ("a;b 2", 5, "'2' is not LIBSVM text: the line looks like a table", {}),
    ("5.1\t3.5\t0", 5, "'3.5' is not LIBSVM text: the line looks like a table", {}),
    *((f"1 {token} 5:1", 3, f"{token!r} has no colon", {}) for token in ("abc", "3", "|", "qid", "\0")),
    ("1 1:1 3 :1", 7, "'3' has no colon", {}),
    *((f"1 {index}:1", 3, f"'{index}:1' has an index that is not an integer", {}) for index in NO_INDICES),
    *((f"1 {token}", 3, f"'{token}' has an index that", {}) for token in ("qid:", "qid:x", "qid:1.5")),
    *((f"1 {index}:1", 3, f"has an index above {2**62 - 2}", {}) for index in ABOVE),
    *((f"1 1:{value}", 3, "has a value that is not a finite decimal number", {}) for value in NO_VALUES),
    ("1 3:#1", 3, "'3:' has a value that is not", {}),
    (b"1 1:\xff", 3, "'1:\\\\xff' has a value", {}),
    *((f"1 1:{value}", 3, "is too large for float32 ... use dtype='float64'", {}) for value in TOO_LARGE),
    ("1 1:1 2:1e400", 7, "'2:1e400' is too large for float64; on_error='skip'", DOUBLE),
    ("1 3:1 4:1 1:1", 11, "'1:1' has a lower index ... on_error='fix' sorts such rows, or on_error", {}),
    ("1 3:0 3:1", 7, "'3:1' repeats the previous index ... on_error='fix' sums duplicates", {}),
    ("1 0:1", 3, "'0:1' has index 0, but the indices of this input start at 1; check index_base=...", FROM_1),
    ("1 1:1e154 2:1e154", 1, "'1' begins a row whose squared norm overflows", DOUBLE),
    ("1 1:" + "x" * 10_000, 3, "'1:xxx", {}),
    ("1,,2 1:1", 1, "'1,,2' has an empty label before or after a comma", LISTS),
    (",1 1:1", 1, "',1' has an empty label before or after a comma", LISTS),
    ("1, 1:1", 1, "'1,' has an empty label before or after a comma", LISTS),
    ("1,a:b 1:1", 1, "'1,a:b' has a colon, but a line must", LISTS),
    ("1,\u2028 1:1", 1, "is a label that is not UTF-8 or contains a control character", LISTS),
    (" 1,2 1:1", 2, "'1,2' has no colon", LISTS),  # the line begins with a blank, so it has no labels
    ("1:1 2:1", 1, "a line must start with a label, or with a space if it has no label", LISTS),
    ("1 1:1", 1, "'1' begins a row without qid:", GROUPS),
    ("1 qid:-1 1:1", 3, f"'qid:-1' is a qid outside 0..{2**63 - 1}", GROUPS),
    (f"1 qid:{2**63} 1:1", 3, "is a qid outside", GROUPS),
    (f"1 1:1 qid:{'9' * 5000}", 7, "is a qid outside", GROUPS),
    ("1 qid:1 1:1 qid:1", 13, "'qid:1' is the second qid in its row", GROUPS),
]  # fmt: skip


def test_refusals(tmp_path: Path) -> None:
    path = tmp_path / "bad.svm"
    for line, column, words, options in REFUSED:
        content = line.encode() if isinstance(line, str) else line
        path.write_bytes(b"# comment\n\n2 qid:1 1:1 2:1\n" + content + b"\r\n1 qid:1 1:1\n")
        layout: dict[str, Any] = {"classes": ["1", "2"], "n_features": 9, "index_base": 0, **options}
        with pytest.raises(InputError) as caught:
            list(read_rows([path], **layout))
        message, where = str(caught.value), f"{path}, line 4, column {column}: "
        assert message.startswith(where), message
        assert all(part in message for part in words.split(" ... ")), message
        assert len(message) < len(where) + 250
        assert "\n" not in message
        others_alike = "table" in words or "label with a comma" in words
        assert ("on_error='skip' skips such rows" in message) != others_alike, message

        # With "skip" the neighbours of the row stay, and the message does not offer to skip it.
        stream = read_rows([path], **layout, on_error="skip")
        assert [name for _, names in stream for name in names.tolist()] == [0, 2]
        assert stream.counts.skipped == 1
        [again] = stream.counts.first_errors
        assert again.problem == caught.value.message.problem
        assert "skip" not in again


def test_duplicates_that_sum_too_high(tmp_path: Path) -> None:
    path = tmp_path / "huge.svm"
    path.write_text("1 1:1\n2 1:3e38 1:3e38\n1 1:34028235677973366163753939545814\n")
    report = convert([path], tmp_path / "a.h5", on_error="fix")
    assert (report.n, report.skipped, report.repaired) == (2, 1, 0)
    assert "line 2, column 1: '2' begins a row whose sum of duplicates is too large" in report.first_errors[0]


@pytest.mark.filterwarnings("ignore:.* is empty")
def test_usual_and_odd_texts_give_the_rows_or_the_fault_of_a_plain_parser() -> None:
    for seed in target.seeds():
        target.run(seed)


@settings(max_examples=400)
@given(
    st.binary(min_size=4, max_size=4),
    st.binary(max_size=200)
    | st.lists(st.sampled_from(list(b"0123456789:.-+eE \t\r\n#,aqid\x00\xff")), max_size=200).map(bytes)
    | st.lists(st.sampled_from([b"1", b" ", b"2:3", b"\n", b"a", b":", b"\r", b"9" * 19, b"#"])).map(
        b"".join
    ),
)
def test_any_bytes_give_the_rows_or_the_fault_of_a_plain_parser(options: bytes, content: bytes) -> None:
    target.run(options + b"\n" + content)  # without the first bytes of other formats
