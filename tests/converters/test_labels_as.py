"""Labels of text as numbers: compared with scikit-learn's reader, and with fractions; and as text."""

from __future__ import annotations

import pickle
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import read_rows
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file
from stored_rows import labels_of
from streamsvm_converters import TextSource, convert

import streamsvm
from streamsvm.base.label_values import canonical_name, class_order
from streamsvm.errors import InputError
from streamsvm.inputs.schema import read_schema
from streamsvm.store import open_store

SPELLINGS = ["1", "+1", "1.0", "1e0", "01", "10e-1", "-1", "-1.", "-01", "0", "-0", "+.0", "2.5", "25e-1"]


def write(path: Path, labels: list[str]) -> Path:
    path.write_text("".join(f"{label} {1 + row % 5}:1\n" for row, label in enumerate(labels)))
    return path


def test_numbers_are_the_classes_that_scikit_learn_reads(tmp_path: Path) -> None:
    text = write(tmp_path / "a.svm", 7 * SPELLINGS)
    y = load_svmlight_file(str(text))[1]
    for threads in (1, 2):
        report = convert(text, tmp_path / "a.zarr", shuffle=False, threads=threads, force=True)
        assert list(map(float, labels_of(tmp_path / "a.zarr"))) == y.tolist()
    assert report.warnings == ()
    assert report.notes == ("labels '1' and '+1' are the same number and form one class, 1",)
    with open_store(tmp_path / "a.zarr") as store:
        assert store.classes == ("-1", "0", "1", "2.5")
    convert(text, tmp_path / "b.zarr", shuffle=False, labels_as="text")
    assert labels_of(tmp_path / "b.zarr") == 7 * SPELLINGS


NUMBERS = re.compile(r"[-+]?([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,9})(e[-+]?[0-9]{1,2})?", re.ASCII)


@given(st.from_regex(NUMBERS, fullmatch=True))
@example("9010000000000001.1")  # between two numbers in float64, both whole
def test_a_class_is_named_by_its_number(label: str) -> None:
    exact, name = Fraction(label), canonical_name(label)
    assert canonical_name(name) == name
    if exact.denominator == 1:
        assert name == str(int(exact))  # no whole number is rounded
    else:
        assert float(name) == float(label)
    assert canonical_name(label.lstrip("+") if label[0] == "+" else label.replace("e", "E")) == name


def test_what_is_no_decimal_number_is_text() -> None:
    for label in ("0x10", "nan", "inf", "-inf", "1_000", "1e999", "1,5", "--1", "1e", "", "\u0663", "1 "):
        assert canonical_name(label) == label
    assert canonical_name("9007199254740993.0") == "9007199254740993"
    assert canonical_name("1e22") == "1" + 22 * "0"
    assert canonical_name("1e-400") == canonical_name("-0e99999999999999999999") == "0"


def test_a_list_of_labels_has_each_number_once(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1,+1,2 1:1\n2.0 1:2\n 1:1\n+2,1.0 1:3\n")
    report = convert(tmp_path / "a.svm", tmp_path / "a.zarr", multilabel=True, shuffle=False)
    assert report.n_labels == 5
    with open_store(tmp_path / "a.zarr") as store:
        assert store.classes == ("1", "2")
        assert [each.tolist() for each in store.label_sets(0, 4)] == [[0, 1, 1, 0, 1], [0, 2, 3, 3, 5]]


def test_classes_are_in_the_order_of_numbers_or_of_texts() -> None:
    for labels, classes in [
        ("10 9 -1 2.5", "-1 2.5 9 10"),
        ("10 9 -1", "-1 9 10"),
        ("10 9 b", "10 9 b"),
        ("10 9 nan", "10 9 nan"),
        ("10 9 1e999", "10 1e999 9"),
        ("10 9 1_0", "10 1_0 9"),
        ("b a Z é \U0001f600 \ue000", "Z a b é \ue000 \U0001f600"),
    ]:
        names = labels.split()
        assert [names[at] for at in class_order(names)] == classes.split()


@pytest.mark.parametrize("how", ["numbers", "text"])
def test_test_data_is_read_as_training_data(tmp_path: Path, how: str) -> None:
    """A file with other spellings has the same classes; where training kept spellings, so does the test."""
    convert(write(tmp_path / "a.svm", ["+1", "-1"] * 9), tmp_path / "a.zarr", labels_as=how)
    streamsvm.fit(tmp_path / "a.zarr", out=tmp_path / "fit", C=1.0, passes=2)
    source = TextSource([tmp_path / "a.svm"], labels_as=how, index_base=1)
    streamsvm.online(source, out=tmp_path / "online", C=1.0)
    test, out = write(tmp_path / "b.svm", ["1.0", "-1e0"]), tmp_path / "b.zarr"
    for run in (tmp_path / "fit", tmp_path / "online"):
        assert read_schema(run).labels_as == how
        classes = streamsvm.load_model(run).classes_.tolist()
        assert sorted(classes) == ([-1, 1] if how == "numbers" else ["+1", "-1"])
        if how == "numbers":
            convert(test, out, like=run, force=True, shuffle=False)
            assert labels_of(out) == ["1", "-1"]
        else:
            with pytest.raises(InputError, match=r"label '1\.0' is not among the 2 known classes"):
                convert(test, out, like=run, force=True)


def test_classes_that_are_given_are_numbers_too(tmp_path: Path) -> None:
    text = write(tmp_path / "a.svm", ["1", "-1", "+1"])
    source = TextSource([text], classes=["+1", "-1"], index_base=1)
    assert source.classes == ["1", "-1"]
    assert TextSource.from_record(source.record()).classes == ["1", "-1"]
    assert [rows.labels.tolist() for rows, *_ in source.batches(None, ["1", "-1"])] == [[0, 1, 0], []]
    with pytest.raises(InputError, match="classes contains a label, or a number, twice"):
        TextSource([text], classes=["+1", "1"])
    source = TextSource([text], classes=["+1", "1", "-1"], labels_as="text", index_base=1)
    assert next(source.batches(None, source.classes))[0].labels.tolist() == [1, 2, 0]


def test_many_unknown_labels_take_little_memory(tmp_path: Path) -> None:
    text = write(tmp_path / "a.svm", [f"{row}.5" if row % 3 else "+7" for row in range(60_000)])
    reader = read_rows(text, classes=["7.0"], n_features=5, index_base=1, memory=2**20)
    codes = np.concatenate([rows.labels for rows, _ in reader])
    np.testing.assert_array_equal(codes, np.where(np.arange(60_000) % 3, -1, 0))
    assert len(pickle.dumps(reader.label_codes)) < 2**10
    assert reader.counts.unseen_labels == 40_000


def test_whole_numbers_that_were_rounded_are_no_labels(tmp_path: Path) -> None:
    """JSON lines are read with whole numbers as float64, of which two may be one."""
    (tmp_path / "t.jsonl").write_text('{"y": 9007199254740993, "n": 1}\n{"y": 9007199254740992, "n": 2}\n')
    with pytest.raises(InputError, match=r"row 1: .* 9007199254740992 may have been rounded; .* as text"):
        convert([tmp_path / "t.jsonl"], tmp_path / "a.zarr", label="y")
    lines = ['{"y": 9007199254740991, "n": 1}', '{"y": null, "n": 2}', '{"y": 7, "n": 2}']
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    convert([tmp_path / "t.jsonl"], tmp_path / "a.zarr", label="y", shuffle=False)
    assert labels_of(tmp_path / "a.zarr") == ["9007199254740991", "7"]


def test_labels_of_more_than_64_kib_are_refused(tmp_path: Path) -> None:
    texts = ["a", "b" * 65_536, "c" * 65_537]
    (tmp_path / "t.libsvm").write_text("".join(f"{text} 1:1\n" for text in texts))
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"1,{text}\n" for text in texts))
    pq.write_table(pa.table({"x": [1.0] * 3, "y": texts}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"x": [[1.0]] * 3, "y": texts}), tmp_path / "l.parquet")
    for name, place in ("t.libsvm", "line 3"), ("t.csv", "row 3"), ("t.parquet", "row 3"), ("l.parquet", "y"):
        label = None if place == "line 3" else "y"
        with pytest.raises(InputError, match=f"{name}, .*{place}.* cannot be a label: it has 65,537 char"):
            convert([tmp_path / name], tmp_path / "out.zarr", label=label)
