"""Quotation marks of CSV that are not closed are found where Python's own reader finds them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from streamsvm_converters import convert
from streamsvm_converters.tables.batches import TableFile
from streamsvm_converters.tables.quotes import CheckedText

from streamsvm.errors import InputError, PlanError

MEMORY = 2**21  # the least: blocks of 64 KB


def fault(text: bytes, size: int = 100) -> int | None:
    """The line of the fault of a text that is read in pieces of `size` bytes."""
    checked = CheckedText(io.BytesIO(text), ",")
    assert b"".join(iter(lambda: checked.read(size), b"")) == text
    return checked.fault


@given(st.text('"",\n a', max_size=30), st.integers(1, 30))
@example('1,"a\n2,b\n', 5)
@example('1,"a\n2,"b"\n', 5)
@example('""a,"', 1)
def test_texts_are_faulty_as_for_a_strict_reader(text: str, size: int) -> None:
    found = fault(text.encode())
    assert fault(text.encode(), size) == found
    try:
        list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        if "unexpected end" in str(error):
            assert found is not None
        # Text behind the end of a field is its own, unless the field has a line end; but another field may
        # be open at the end, where the strict reader has stopped before.
        elif found is not None:
            assert "\n" in text[text.index('"') :] or fault(text.encode() + b'"') is None
    else:
        assert found is None


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_is_that_where_the_field_begins(end: str) -> None:
    lines = ['"x","y"', '1,"two', 'lines"', '2,"open', '3,"b"', "4,c"]
    assert fault(end.join(lines).encode()) == 4  # the next mark does not end a field
    lines[4] = "3,b"
    assert fault(end.join(lines).encode()) == 4  # never closed
    lines[3] = '2,"closed"'
    assert fault(end.join(lines).encode()) is None


def texts(path: Path, rows: list[list[str]]) -> list[list[str]]:
    """The rows of a table, written by Python's writer, as they are read."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",").writerows([["y", "text"], *rows])
    table = TableFile(path, path.suffix[1:], MEMORY)
    read = [batch.to_pylist() for batch in table.batches(["y", "text"])]
    return [[row["y"], row["text"]] for batch in read for row in batch]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_fields_with_line_ends_are_read(tmp_path: Path, name: str) -> None:
    rows = [[f"c{i % 3}", 'say "so"\nor, not\r\n' * (i % 5) + "end"] for i in range(20_000)]
    assert texts(tmp_path / name, rows) == rows


@pytest.mark.parametrize(("n_rows", "at"), [(10, 0), (10, 8), (30_000, 8)])
def test_a_mark_that_is_never_closed_is_an_error_that_names_its_line(
    tmp_path: Path, n_rows: int, at: int
) -> None:
    lines = [f"c{i % 2},some text number {i}" for i in range(n_rows)]
    lines[at] = 'c0,"some text that is not closed'
    (tmp_path / "a.csv").write_text("\n".join(["y,text", *lines]) + "\n")
    with pytest.raises((InputError, PlanError), match=rf"a\.csv, line {at + 2}: .*not closed"):
        convert([tmp_path / "a.csv"], tmp_path / "a.h5", label="y", text="text", memory="64M")
    assert not (tmp_path / "a.h5").exists()
