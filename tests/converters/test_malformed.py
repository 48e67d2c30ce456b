"""Malformed text is refused with file, line, column, token and a remedy."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamsvm_converters import convert, read_rows

from streamsvm.errors import InputError

# A line, the column of its fault, the token as shown, and a part of the reason.
MALFORMED = [
    (b"1:2", 1, "'1:2'", "label should be"),
    (b"1:2 3:4", 1, "'1:2'", "label should be"),
    (b" 1:2 3:4", 2, "'1:2'", "label should be"),
    (b":", 1, "':'", "label should be"),
    (b"a:b 1:2", 1, "'a:b'", "label should be"),
    (b"qid:3 1:2", 1, "'qid:3'", "label should be"),
    (b"1:0.5 3:4", 1, "'1:0.5'", "label should be"),
    (b"1,2 1:1", 1, "'1,2'", "comma"),
    (b"news,sport 1:1", 1, "'news,sport'", "comma"),
    (b", 1:1", 1, "','", "comma"),
    (b"\xff 1:1", 1, "'\\\\xff'", "UTF-8"),
    (b"caf\xe9 1:1", 1, "'caf\\\\xe9'", "UTF-8"),
    (b"\xc0\xaf 1:1", 1, "xc0", "UTF-8"),
    (b"\xed\xa0\x80 1:1", 1, "xed", "UTF-8"),
    (b"\xf4\x90\x80\x80 1:1", 1, "xf4", "UTF-8"),
    (b"\xe2\x82 1:1", 1, "xe2", "UTF-8"),
    (b"a\x00b 1:1", 1, "a\\x00b", "0x00"),
    (b"a\x7f 1:1", 1, "a\\x7f", "0x7f"),
    (b"\x1b[0m 1:1", 1, "[0m", "0x1b"),
    (b"1\r1:1 2:2", 1, "1\\r1:1", "0x0d"),
    ("a\u0085 1:1".encode(), 1, "'a\\x85'", "U+0085"),
    ("\u2028 1:1".encode(), 1, "'\\u2028'", "U+2028"),
    ("1\u202e2 1:1".encode(), 1, "'1\\u202e2'", "U+202E"),
    ("\u2066 1:1".encode(), 1, "'\\u2066'", "U+2066"),
    (b"5.1,3.5,setosa", 1, "'5.1,3.5,setosa'", "looks like a table, such as CSV"),
    (b"a;b 2", 5, "'2'", "looks like a table"),
    (b"5.1\t3.5\t0", 5, "'3.5'", "looks like a table"),
    (b"1 | height:1.5 length:2", 3, "'|'", "Vowpal Wabbit"),
    (b"1 2 'tag|f a:1", 3, "'2'", "no colon"),
    (b"1 1.0 |f a:1", 3, "'1.0'", "Vowpal Wabbit"),
    (b"| a:1 b:2", 3, "'a:1'", "Vowpal Wabbit"),
    (b"1 abc", 3, "'abc'", "no colon"),
    (b"1 3", 3, "'3'", "no colon"),
    (b"1 1:1 3 4:1", 7, "'3'", "no colon"),
    (b"1 1:1 \x00", 7, "'\\x00'", "0x00"),
    (b"1 1:1\x0b2:2", 3, "'1:1\\x0b2:2'", "0x0b"),
    (b"1 1:1\x0c", 3, "'1:1\\x0c'", "0x0c"),
    (b"1 1:1\r2:2", 3, "'1:1\\r2:2'", "0x0d"),
    (b"1 3 :1", 3, "'3'", "space before its colon"),
    (b"1 3\t:1", 3, "'3'", "space before its colon"),
    (b"1 3: 1", 3, "'3:'", "no value"),
    (b"1 3:", 3, "'3:'", "no value"),
    (b"1 3:#1", 3, "'3:'", "no value"),
    (b"1 3:\t1", 3, "'3:'", "no value"),
    (b"1 :1", 3, "':1'", "no index"),
    (b"1 :", 3, "':'", "no index"),
    (b"1 -3:1", 3, "'-3:1'", "negative"),
    (b"1 1:1 -2:1", 7, "'-2:1'", "negative"),
    (b"1 +3:1", 3, "'+3:1'", "not an integer"),
    (b"1 1.5:1", 3, "'1.5:1'", "not an integer"),
    (b"1 1e2:1", 3, "'1e2:1'", "not an integer"),
    (b"1 x:1", 3, "'x:1'", "not an integer"),
    (b"1 0x1:1", 3, "'0x1:1'", "not an integer"),
    (b"1 \xd9\xa1:1", 3, "'\u0661:1'", "not an integer"),
    (b"1 4611686018427387903:1", 3, "'4611686018427387903:1'", "above 4611686018427387902"),
    (b"1 9223372036854775808:1", 3, "'9223372036854775808:1'", "above 4611686018427387902"),
    (b"1 18446744073709551617:1", 3, "'18446744073709551617:1'", "above"),
    (b"1 00000099999999999999999999999:1", 3, "999", "above"),
    (b"1 3:1 2:1", 7, "'2:1'", "lower index"),
    (b"1 3:1 4:1 1:1", 11, "'1:1'", "lower index"),
    (b"1 3:1 3:1", 7, "'3:1'", "repeats"),
    (b"1 3:0 3:1", 7, "'3:1'", "repeats"),
    (b"1 1:nan", 3, "'1:nan'", "not finite"),
    (b"1 1:NaN", 3, "'1:NaN'", "not finite"),
    (b"1 1:inf", 3, "'1:inf'", "not finite"),
    (b"1 1:-inf", 3, "'1:-inf'", "not finite"),
    (b"1 1:+Infinity", 3, "'1:+Infinity'", "not finite"),
    (b"1 1:abc", 3, "'1:abc'", "not a decimal number"),
    (b"1 1:1_000", 3, "'1:1_000'", "not a decimal number"),
    (b"1 1:0x10", 3, "'1:0x10'", "not a decimal number"),
    (b"1 1:1e", 3, "'1:1e'", "not a decimal number"),
    (b"1 1:1e+", 3, "'1:1e+'", "not a decimal number"),
    (b"1 1:.", 3, "'1:.'", "not a decimal number"),
    (b"1 1:-", 3, "'1:-'", "not a decimal number"),
    (b"1 1:--1", 3, "'1:--1'", "not a decimal number"),
    (b"1 1:1.2.3", 3, "'1:1.2.3'", "not a decimal number"),
    (b"1 1:1d5", 3, "'1:1d5'", "not a decimal number"),
    (b"1 1:2:3", 3, "'1:2:3'", "not a decimal number"),
    (b"1 1:5%", 3, "'1:5%'", "not a decimal number"),
    (b"1 1:\xd9\xa1", 3, "'1:\u0661'", "not a decimal number"),
    (b"1 1:\xff", 3, "xff", "not a decimal number"),
    (b"1 1:0,5", 3, "'1:0,5'", "comma"),
    (b"1 1:2,3:4", 3, "'1:2,3:4'", "comma"),
    (b"1 1:1e39", 3, "'1:1e39'", "too large for float32"),
    (b"1 1:-1e39", 3, "'1:-1e39'", "too large"),
    (b"1 1:3.4028235677973366e38", 3, "e38'", "too large"),
    (b"1 1:1e400", 3, "'1:1e400'", "too large"),
    (b"1 2:1e999999999999", 3, "'2:1e999999999999'", "too large"),
    (b"1 1:1 2:1" + b"0" * 40, 7, "'2:1000", "too large"),
    (b"1 1:34028235677973366163753939545814", 3, None, None),  # below the bound: no error
    (b"1 1:" + b"9" * 50 + b".1", 3, "'1:9999", "too large"),
    (b"1 qid:", 3, "'qid:'", "qid"),
    (b"1 qid:x 1:1", 3, "'qid:x'", "qid"),
    (b"1 qid:1.5 1:1", 3, "'qid:1.5'", "qid"),
    (b"1 qid 1:1", 3, "'qid'", "no colon"),
]


@pytest.mark.parametrize(("line", "column", "token", "reason"), MALFORMED)
def test_message(tmp_path: Path, line: bytes, column: int, token: str | None, reason: str | None) -> None:
    path = tmp_path / "bad.svm"
    path.write_bytes(b"# comment\n\n2 1:1 2:1\n" + line + b"\r\n1 1:1\n")
    stream = read_rows([path], classes=["1", "2"], n_features=9, index_base=0)
    if reason is None:
        assert sum(rows.n_rows for rows, _ in stream) == 3
        return
    with pytest.raises(InputError) as caught:
        list(stream)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 4, column {column}: ")
    assert token is not None
    assert token in message
    assert reason in message
    assert "\n" not in message
    assert " --" not in message

    # With "skip" the neighbours of the row stay, and the message does not offer to skip it.
    stream = read_rows([path], classes=["1", "2"], n_features=9, index_base=0, on_error="skip")
    names = [name for _, names in stream for name in names.tolist()]
    assert names == [0, 2]
    assert stream.counts.skipped == 1
    [again] = stream.counts.first_errors
    assert again.problem == caught.value.message.problem
    assert "skip" not in again


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (b"1 0:1", "check index_base=..."),
        (b"1 3:1 2:1", "on_error='fix' sorts such rows"),
        (b"1 3:1 3:1", "on_error='fix' sums duplicates"),
        (b"1 1:1e39", "try dtype='float64'"),
        (b"1 1:x", None),
    ],
)
def test_the_remedy_names_options_that_help(tmp_path: Path, line: bytes, remedy: str | None) -> None:
    path = tmp_path / "bad.svm"
    path.write_bytes(line + b"\n")
    with pytest.raises(InputError) as caught:
        convert([path], tmp_path / "a.h5", index_base=1)
    skip = "on_error='skip' skips such rows"
    assert str(caught.value.remedy) == (skip if remedy is None else f"{remedy}, or {skip}")


def test_long_tokens_are_cut_in_messages(tmp_path: Path) -> None:
    path = tmp_path / "bad.svm"
    path.write_bytes(b"1 1:" + b"x" * 10_000 + b"\n")
    with pytest.raises(InputError) as caught:
        convert([path], tmp_path / "a.h5")
    assert len(str(caught.value)) < 250 + len(str(path))


def test_index_zero_with_base_one(tmp_path: Path) -> None:
    path = tmp_path / "zero.svm"
    path.write_text("1 1:1\n2 0:1 3:1\n")
    with pytest.raises(InputError, match="line 2, column 3: '0:1' has index 0"):
        convert([path], tmp_path / "a.h5", index_base=1)


def test_values_whose_norm_overflows(tmp_path: Path) -> None:
    path = tmp_path / "huge.svm"
    path.write_text("1 1:1e154\n2 1:1e154 2:1e154\n")
    with pytest.raises(
        InputError, match="line 2, column 1: '2' is the label of a row whose squared norm overflows"
    ):
        convert([path], tmp_path / "a.h5", dtype="float64")


def test_duplicates_that_sum_too_high(tmp_path: Path) -> None:
    path = tmp_path / "huge.svm"
    path.write_text("1 1:1\n2 1:3e38 1:3e38\n")
    report = convert([path], tmp_path / "a.h5", on_error="fix")
    assert (report.n, report.skipped, report.repaired) == (1, 1, 0)
    assert "line 2, column 1: '2' is the label of a row whose duplicates sum" in report.first_errors[0]


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from(list(b"0123456789:.-+eE \t\r\n#,aqid\x00\xff")), max_size=200).map(bytes),
    st.sampled_from(["raise", "skip", "fix"]),
)
def test_any_bytes_give_rows_or_an_input_error(tmp_path: Path, content: bytes, on_error: str) -> None:
    path = tmp_path / "any"
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        for rows, names in read_rows([path], classes=["1"], n_features=50, index_base=0, on_error=on_error):
            assert rows.n_rows == len(names) > 0
            assert (rows.indices < 50).all()
            assert (rows.indices >= 0).all()
            assert (rows.data != 0).all()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([b"1", b" ", b"2:3", b"\n", b"a", b":", b"\r", b"9" * 19, b"#"])).map(b"".join)
)
def test_any_tokens_convert_or_give_an_input_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        report = convert([path], tmp_path / "any.h5", on_error="skip", force=True, chunk_nnz=64)
        assert report.n > 0
    assert [found.name for found in tmp_path.iterdir() if "partial" in found.name] == []


def test_text_in_another_format_is_not_to_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("5.1,3.5,setosa\n4.9,3.0,virginica\n")
    with pytest.raises(InputError, match="looks like a table") as refused:
        convert([path], tmp_path / "a.zarr")
    assert "skip" not in str(refused.value)
