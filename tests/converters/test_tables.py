"""Tables become stores: columns as scikit-learn encodes them, quoted fields as Python reads them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable
from datetime import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from stored_rows import stored
from streamsvm_converters import convert
from streamsvm_converters.tables.batches import TableFile
from streamsvm_converters.tables.quotes import CheckedText

from streamsvm import evaluate, fit
from streamsvm.errors import InputError, PlanError, SettingsError, StreamsvmWarning
from streamsvm.store import open_store

N = 400


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(size=N).round(3),
            "y": rng.choice(["no", "yes", "perhaps"], N),
            "member": rng.random(N) < 0.5,
            "colour": rng.choice(["red", "green", "blue", "NA"], N),
            "visits": rng.integers(0, 3, N),
            "zip": rng.choice([1010, 99, 2345], N),
        }
    )


Writer = Callable[[pd.DataFrame, Path], object]
WRITERS: dict[str, Writer] = {
    "t.csv": lambda frame, path: frame.to_csv(path, index=False),
    "t.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "t.tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "t.jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "t.parquet": lambda frame, path: frame.to_parquet(path),
    "dictionary.parquet": lambda frame, path: frame.astype({"colour": "category"}).to_parquet(path),
    "no suffix": lambda frame, path: frame.to_parquet(path),
}


def expected(frame: pd.DataFrame) -> np.ndarray:
    """What scikit-learn makes of the frame, in the order of its columns but `y`."""
    parts = []
    for name in ("age", "member", "colour", "visits", "zip"):
        if name in ("colour", "zip"):
            parts.append(OneHotEncoder(sparse_output=False).fit_transform(frame[[name]].astype(str)))
        else:
            parts.append(frame[[name]].to_numpy(np.float64))
    return np.hstack(parts).astype(np.float32)


@pytest.mark.parametrize("name", WRITERS)
def test_columns_are_what_scikit_learn_makes_of_them(frame: pd.DataFrame, name: str, tmp_path: Path) -> None:
    WRITERS[name](frame, tmp_path / name)
    report = convert([tmp_path / name], tmp_path / "a.zarr", label="y", categorical=["zip"], shuffle=False)
    matrix, labels, names = stored(tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix, expected(frame))
    assert labels == frame["y"].tolist()
    assert names == [
        "age", "member", "colour=NA", "colour=blue", "colour=green", "colour=red", "visits",
        "zip=1010", "zip=2345", "zip=99",
    ]  # fmt: skip
    assert report.nnz == np.count_nonzero(expected(frame))
    assert report.bytes_read == (tmp_path / name).stat().st_size
    assert any("'colour' as 4 categories" in note for note in report.notes)


def test_little_memory_and_many_batches_give_the_same(frame: pd.DataFrame, tmp_path: Path) -> None:
    many = pd.concat([frame] * 60, ignore_index=True)
    many.to_csv(tmp_path / "t.csv", index=False)
    prints = {
        convert([tmp_path / "t.csv"], tmp_path / "a.zarr", label="y", force=True, **options).fingerprint
        for options in ({}, {"memory": 2**22, "chunk_nnz": 2**10}, {"threads": 1})
    }
    assert len(prints) == 1


def test_several_files_are_one_table(frame: pd.DataFrame, tmp_path: Path) -> None:
    """A category that is in the second file alone has a feature, too; columns may be in another order."""
    frame[:300].assign(colour="red").to_csv(tmp_path / "a.csv", index=False)
    frame[300:][frame.columns[::-1]].to_csv(tmp_path / "b.csv", index=False)
    both = pd.concat([frame[:300].assign(colour="red"), frame[300:]])
    convert(
        [tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "a.zarr", label="y", categorical=["zip"],
        shuffle=False,
    )  # fmt: skip
    np.testing.assert_array_equal(stored(tmp_path / "a.zarr")[0], expected(both))


def test_like_encodes_new_tables_as_the_first_one(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "a.csv", index=False)
    convert([tmp_path / "a.csv"], tmp_path / "a.zarr", label="y", categorical=["zip"])
    new = frame[:50].assign(colour="violet", more=1, y="never")
    new.loc[3, "colour"] = "red"
    new.to_parquet(tmp_path / "b.parquet")
    report = convert(
        [tmp_path / "b.parquet"], tmp_path / "b.zarr", label="y", like=tmp_path / "a.zarr",
        unseen_label="keep", shuffle=False,
    )  # fmt: skip
    assert (report.unseen_values, report.unseen_labels, report.d) == (49, 50, 10)
    matrix, labels, names = stored(tmp_path / "b.zarr")
    assert labels == ["?"] * 50
    assert names == stored(tmp_path / "a.zarr")[2]
    assert np.flatnonzero(matrix[:, 2:6].any(axis=1)).tolist() == [3]
    with pytest.raises(InputError, match="row 1: label 'never' is not among the 3 known classes"):
        convert([tmp_path / "b.parquet"], tmp_path / "c.zarr", label="y", like=tmp_path / "a.zarr")
    new.drop(columns="zip").to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(InputError, match=r"c\.csv has no column 'zip'; its columns are 'age'"):
        convert([tmp_path / "c.csv"], tmp_path / "c.zarr", label="y", like=tmp_path / "a.zarr")


LABELS: dict[str, tuple[pa.Array, list[str]]] = {
    "whole": (pa.array([1, 2, None, 1]), ["1", "2", "1"]),
    "float": (pa.array([1.0, 2.5, None, float("nan")]), ["1", "2.5"]),
    "truth": (pa.array([True, False, None, True]), ["True", "False", "True"]),
    "text": (pa.array(["b", "", None, "ä"]), ["b", "ä"]),
    "dictionary": (pa.array(["b", "a", None, "b"]).dictionary_encode(), ["b", "a", "b"]),
}


def test_labels_of_any_type_and_missing_ones(tmp_path: Path) -> None:
    columns = {name: column for name, (column, _) in LABELS.items()}
    pq.write_table(pa.table({**columns, "x": pa.array([1.0, 2, 3, 4])}), tmp_path / "t.parquet")
    for name, (_, found) in LABELS.items():
        options: dict[str, Any] = {"label": name, "drop": [other for other in columns if other != name]}
        report = convert([tmp_path / "t.parquet"], tmp_path / "a.zarr", force=True, shuffle=False, **options)
        assert stored(tmp_path / "a.zarr")[1] == found, name
        assert report.unlabelled == 4 - len(found)
        with open_store(tmp_path / "a.zarr") as store:
            assert store.names(0, store.n_rows).tolist() == [0, 1, 3][: len(found)] or name == "text"


def test_weights_follow_rows_that_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,a\n2,\n,b\n4,b\n")
    (tmp_path / "w").write_text("1\n2\n3\n4\n")
    report = convert(
        [tmp_path / "t.csv"], tmp_path / "a.zarr", label="y", weights=tmp_path / "w", on_error="skip",
        shuffle=False,
    )  # fmt: skip
    assert (report.n, report.unlabelled, report.skipped) == (2, 1, 1)
    assert "row 3: column 'x' has no value" in report.first_errors[0]
    with open_store(tmp_path / "a.zarr") as store:
        assert store.weights(0, 2).tolist() == [1.0, 4.0]
        assert store.names(0, 2).tolist() == [0, 3]


Y: dict[str, Any] = {"label": "y"}
LITTLE = {**Y, "memory": 2**22, "chunk_nnz": 2**10}
SMALL = "x,y,z\n1,a,1\n2,b,1\n"
IDS = "id,x,y\n" + "".join(f"u{i},{i},{'ab'[i % 2]}\n" for i in range(50))
FIVE = "y,x\n" + "a,3\n" * 250_000 + "a,3.5\nb,five\n"
REFUSALS: list[tuple[str, str | bytes, dict[str, Any], type[Exception], str]] = [
    ("t.csv", "x,y\n1,a\nnan,b\n", Y, InputError, "row 2: column 'x' has no value"),
    ("t.csv", "x,y\n1,a\n-inf,b\n", Y, InputError, "row 2: column 'x' has -inf, which is not finite"),
    ("t.csv", "x,y\n1,a\n1e39,b\n", Y, InputError, "row 2: column 'x' has 1e.39, which is too large for"),
    ("t.csv", "x,y\n1,a\n2,b,c\n", Y, InputError, "table separated by commas: .*Expected 2 columns, got 3"),
    ("t.csv", "x,y\n1,a\n2\n", Y, InputError, "row 2: Expected 2 columns, got 1"),
    ("t.csv", "xy\n1,2\n2,3\n", Y, InputError, "row 1: Expected 1 columns, got 2"),
    ("t.csv", FIVE, LITTLE, InputError, "csv, row 250,002: column 'x' .* 'five'.*categorical='x'"),
    ("t.csv", "x,x,y\n1,2,a\n", Y, InputError, "several columns have the name 'x'"),
    ("t.csv", "x,z\n1,a\n", Y, InputError, "has no column 'y'; its columns are 'x', 'z'"),
    ("t.csv", "", Y, InputError, "table separated by commas: Empty CSV file"),
    ("t.csv", "x,y\n", Y, InputError, "the input has no usable rows"),
    ("t.csv", "x,y\n1,\n2,\n", Y, InputError, "the input has no usable rows; 2 rows have no label"),
    ("t.csv", "x,z,y\n1,,a\n2,,b\n", Y, InputError, "column 'z' has no value in any row.*drop='z'"),
    ("t.csv", "c,c=red,y\nred,1,a\nblue,2,b\n", Y, InputError, "two features would have the name 'c=red'"),
    ("t.csv", "x,y\n1,a\x07b\n2,b\n", Y, InputError, "row 1: the name of .* contains a control character"),
    ("t.csv", IDS, Y, InputError, "'id' has a different value in each of 50 rows.*drop='id'.*text='id'"),
    ("t.csv", "x,y\n1,Käse\n".encode("latin-1"), Y, InputError, r"t\.csv is not UTF-8 text.*iconv"),
    ("t.csv.gz", gzip.compress(SMALL.encode() * 999)[:-20], Y, InputError, "read as a table: Truncated"),
    ("t.csv.xz", lzma.compress(SMALL.encode()), Y, InputError, "is compressed with xz, .*decompress it"),
    ("t.jsonl", '{"x": 1, "y": "a"}\n{"x": 2, "y"', Y, InputError, r"t\.jsonl .* as a table of JSON lines"),
    ("t.parquet", b"PAR1" + bytes(99), Y, InputError, r"t\.parquet cannot be read as a Parquet table"),
    ("t.csv", SMALL, {**Y, "index_base": 1}, SettingsError, "index_base"),
    ("t.csv", SMALL, {**Y, "multilabel": True}, SettingsError, "multilabel"),
    ("t.csv", SMALL, {**Y, "labels": "l"}, SettingsError, "labels"),
    ("t.csv", SMALL, {**Y, "on_error": "fix"}, SettingsError, "on_error"),
    ("t.csv", SMALL, {**Y, "bits": 4}, SettingsError, "bits"),
    ("t.csv", SMALL, {**Y, "text": "x", "drop": ["z"]}, SettingsError, "drop"),
    ("t.csv", SMALL, {**Y, "text": "x", "missing": "mean"}, SettingsError, "missing applies only"),
    ("t.csv", SMALL, {**Y, "text": "x", "analyzer": "words"}, SettingsError, "analyzer"),
    ("t.csv", SMALL, {**Y, "text": "x", "ngrams": (2, 1)}, SettingsError, "ngrams"),
    ("t.csv", SMALL, {**Y, "text": "x", "bits": 31}, SettingsError, "bits"),
    ("t.csv", SMALL, {**Y, "missing": "median"}, SettingsError, "missing must be one of error, 0, mean"),
    ("t.csv", SMALL, {**Y, "delimiter": ";;"}, SettingsError, "delimiter must be one ASCII character"),
    ("t.jsonl", '{"y": 1}', {**Y, "decimal": ","}, SettingsError, "decimal does not apply to JSON lines"),
    ("t.csv", SMALL, {**Y, "text": "t"}, InputError, "has no column 't'; its columns are 'x', 'y'"),
    ("t.csv", SMALL, {**Y, "text": "y"}, InputError, "cannot be both text and label"),
]


def test_what_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    for name, content, options, error, words in REFUSALS:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(error, match=words) as caught:
            convert([tmp_path / name], tmp_path / "a.zarr", **options)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "a.zarr").exists()


def test_columns_of_other_types_are_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    for x, words in [
        (pa.array([time(12, 30)]), "'x' holds time64.*drop='x'"),
        (pa.array([[1.0]]), "'x' holds list"),
        (pa.array(["1"]), "second.parquet: column 'x' must contain numbers, not string"),
    ]:
        bad = pa.table({"x": x, "v": x, "y": ["a"]})
        pq.write_table(pa.table({"x": [1.0], "v": [1.0], "y": ["a"]}) if "second" in words else bad, first)
        pq.write_table(bad, second)
        with pytest.raises(InputError, match=words):
            convert([first, second], tmp_path / "a.h5", **Y)


def test_csv_of_many_forms_is_read(tmp_path: Path) -> None:
    quoted = '\ufeffx,y\r\n"1",a\r\n\r\n2,b\r\n'
    for text in "y,z\na,b\n", '"x, z";y\n1;a\n2;b\n', quoted, "y\tx\na\t1\nb\t2\n":
        (tmp_path / "t.csv").write_text(text)
        assert convert([tmp_path / "t.csv"], tmp_path / "a.zarr", force=True, **Y).d == 1, text


def test_columns_have_the_types_of_the_first_block(tmp_path: Path) -> None:
    """Whole numbers, with a fraction far below, are float64; numbers among words are categories."""
    lines = [
        f"{i % 7},{'true' if i % 2 else 'false'},2024-01-0{i % 2 + 1},{i % 3},a\n" for i in range(300_000)
    ]
    lines[3] = "NA,true,2024-01-01,?,b\n"
    lines[250_000] = "3.5,true,2025-01-01 12:00,1,b\n"
    (tmp_path / "t.csv").write_text("x,b,date,n,y\n" + "".join(lines))
    convert([tmp_path / "t.csv"], tmp_path / "a.zarr", label="y", missing=0, shuffle=False)
    matrix, _, names = stored(tmp_path / "a.zarr")
    assert names == ["x", "b", "date", "date (year)", "n=0", "n=1", "n=2", "n=?"]
    assert matrix[[1, 3, 250_000]].tolist() == [
        [1, 1, 19724, 2024, 0, 1, 0, 0], [0, 1, 19723, 2024, 0, 0, 0, 1], [3.5, 1, 20089.5, 2025, 0, 1, 0, 0],
    ]  # fmt: skip


def test_dates_of_every_type_are_days_and_years(tmp_path: Path) -> None:
    """Compared with pandas, before 1970, too; a date that is none names its row."""
    dates = pd.Series(["1969-12-31 18:00", "2024-02-29 00:00", None, "2199-01-01 00:01"], dtype="M8[ns]")
    frame = pd.DataFrame({"when": dates, "zone": dates.dt.tz_localize("Europe/Rome"), "y": list("abab")})
    utc = [dates, frame["zone"].dt.tz_convert("UTC").dt.tz_localize(None)]
    wanted = [x for each in utc for x in ((each - pd.Timestamp(0)) / pd.Timedelta("1D"), each.dt.year)]
    wanted = SimpleImputer().fit_transform(np.column_stack(wanted))
    options: dict[str, Any] = {"label": "y", "missing": "mean", "dtype": "float64", "shuffle": False}
    for name in ("t.parquet", "t.csv"):
        WRITERS[name](frame, tmp_path / name)
        report = convert([tmp_path / name], tmp_path / "a.zarr", force=True, **options)
        np.testing.assert_allclose(stored(tmp_path / "a.zarr")[0], wanted, rtol=1e-12)
        assert (report.missing_values, report.notes[0][:34]) == (2, "2 numeric columns: 'when (days and")
    (tmp_path / "b.csv").write_text("when,zone,y\n2024-02-30,,a\n")
    with pytest.raises(InputError, match=r"row 1: column 'when' needs dates: invalid value '2024-02-30'"):
        convert([tmp_path / "b.csv"], tmp_path / "b.zarr", like=tmp_path / "a.zarr")
    as_category = convert([tmp_path / "t.csv"], tmp_path / "b.zarr", categorical="when", **options)
    assert as_category.d == 3 + 2


AS_BEFORE: dict[str, Any] = {"label": "y", "categorical": ["zip"], "shuffle": False, "force": True}


def test_columns_that_name_the_rows_are_no_features(frame: pd.DataFrame, tmp_path: Path) -> None:
    cells = frame.set_index(pd.Index([f"c{n}" for n in range(N)], name="cell"))
    for name, shown in ("t.csv", "(the first column, which has no name)"), ("t.parquet", "cell"):
        frame.to_csv(tmp_path / name) if name == "t.csv" else cells.to_parquet(tmp_path / name)
        report = convert([tmp_path / name], tmp_path / "a.zarr", **AS_BEFORE)
        np.testing.assert_array_equal(stored(tmp_path / "a.zarr")[0], expected(frame))
        assert report.notes[0] == f"columns that name the rows and do not become features: '{shown}'"
    frame.set_index("zip").to_parquet(tmp_path / "t.parquet")  # which `categorical` asks for
    assert convert([tmp_path / "t.parquet"], tmp_path / "a.zarr", **AS_BEFORE).d == expected(frame).shape[1]


DIALECTS = [(";", ",", ""), ("\t", ",", ""), (";", ".", ""), (",", ",", "decimal"), ("^", ",", "delimiter")]


def test_semicolons_and_decimal_commas_are_recognised(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Others are given, and to score, too."""
    for delimiter, decimal, name in DIALECTS:
        frame.to_csv(tmp_path / "t.csv", index=False, sep=delimiter, decimal=decimal)
        said: dict[str, Any] = {name: delimiter if name == "delimiter" else decimal} if name else {}
        convert([tmp_path / "t.csv"], tmp_path / "a.zarr", **AS_BEFORE, **said)
        np.testing.assert_array_equal(stored(tmp_path / "a.zarr")[0], expected(frame))
    fit(tmp_path / "a.zarr", out=tmp_path / "run", passes=1)
    assert evaluate(tmp_path / "run", tmp_path / "t.csv", **said).n == N


def test_a_row_that_does_not_fit_into_memory_says_what_would(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"t,y\n{'w' * 400_000},a\nw,b\n")
    options: dict[str, Any] = {"label": "y", "text": "t", "chunk_nnz": 256}
    memory = 2**21
    for _ in range(2):
        with pytest.raises(PlanError, match="a row is longer than") as caught:
            convert([tmp_path / "t.csv"], tmp_path / "a.zarr", memory=memory, **options)
        needed = caught.value.needed_memory
        assert needed > memory
        memory = needed
    assert convert([tmp_path / "t.csv"], tmp_path / "a.zarr", memory=4 * memory, **options).n == 2


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,a\n2,b\n")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'streamsvm\[tables\]'"):
        convert([tmp_path / "t.csv"], tmp_path / "a.zarr", label="y")


def test_a_field_that_appears_late_in_json_lines_is_an_error(tmp_path: Path) -> None:
    """Columns are those of what is read first: the later field would be left out without a word."""
    lines = [
        json.dumps({"y": "ab"[i % 2], "a": i % 7, **({"late": 1} if i > 70_000 else {})})
        for i in range(75_000)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="a later line has a field or a type of value that does not"):
        convert(path, tmp_path / "a.zarr", label="y", memory="64M")
    path.write_text("\n".join(json.dumps({"late": 0, **json.loads(line)}) for line in lines) + "\n")
    convert(path, tmp_path / "a.zarr", label="y", memory="64M")
    with open_store(tmp_path / "a.zarr") as store:
        assert store.feature_names() == ["late", "a"]


def test_one_class_and_a_table_without_rows_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,a\n2,a\n")
    (tmp_path / "b.csv").write_text("x,y\n")
    with pytest.warns(StreamsvmWarning, match=r"b\.csv has no rows"):
        report = convert([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "a.zarr", label="y")
    one_class = "all rows have the label 'a', so there is nothing to learn"
    assert (report.n, report.n_classes, report.warnings) == (2, 1, (one_class,))


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


def texts(path: Path, rows: list[list[str]]) -> list[list[str]]:
    """The rows of a table, written by Python's writer, as they are read."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",").writerows([["y", "text"], *rows])
    table = TableFile(path, path.suffix[1:], MEMORY, None, None)
    read = [batch.to_pylist() for batch in table.batches(["y", "text"], {})]
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
