"""The grammar of LIBSVM text, and the rows of the store made from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.plain_parser import is_control
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from streamsvm_converters import convert

from streamsvm.errors import InputError, PlanError, SettingsError
from streamsvm.store import open_store

ODD_BUT_VALID = (
    b"\xef\xbb\xbf# a header\r\n"
    b"\r\n"
    b"   \t \n"
    b"+1 qid:7 1:0.5\t3:2 # trailing: comment 9:9\r\n"
    b"\t-1   2:1e-1  \n"
    b"+1\n"
    b"spam#1:1\n"
    b"+1 1:0 2:0.0 007:5.\n"
    b"-1 1:1e-60 2:.5#9:9\n"
    b"# only a comment\x00\xff\n"
    b"+1 qid:-3 qid:4"
)


def test_odd_but_valid(
    write: Callable[..., Path], tmp_path: Path, lines_of: Callable[[Path], list[str]]
) -> None:
    report = convert([write(ODD_BUT_VALID)], tmp_path / "a.h5", shuffle=False)
    assert lines_of(tmp_path / "a.h5") == [
        "1 1:0.5 3:2.0", "-1 2:0.1", "1", "spam", "1 7:5.0", "-1 2:0.5", "1",
    ]  # fmt: skip
    assert (report.n, report.d, report.nnz, report.n_classes, report.index_base) == (7, 7, 5, 3, 1)
    assert (report.explicit_zeros, report.qids, report.empty_rows, report.skipped) == (3, 3, 3, 0)
    with open_store(tmp_path / "a.h5") as store:
        assert store.names(0, 7).tolist() == list(range(7))


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ("10 9 -1 2.5 1e1 +9", ["-1", "2.5", "9", "10"]),
        ("10 9 b", ["10", "9", "b"]),
        ("10 9 nan", ["10", "9", "nan"]),
        ("10 9 1e999", ["10", "1e999", "9"]),
        ("10 9 1_0", ["10", "1_0", "9"]),
        ("b a Z é \U0001f600 \ue000", ["Z", "a", "b", "é", "\ue000", "\U0001f600"]),
    ],
)
def test_order_of_classes(
    write: Callable[..., Path], tmp_path: Path, labels: str, classes: list[str]
) -> None:
    convert([write("".join(f"{label} 1:1\n" for label in labels.split()))], tmp_path / "a.h5")
    with open_store(tmp_path / "a.h5") as store:
        assert list(store.classes) == classes


@pytest.mark.parametrize(
    ("text", "options", "base", "width"),
    [
        ("a 1:1 3:1\n", {}, 1, 3),
        ("a 1:1 3:1\n", {"index_base": 0}, 0, 4),
        ("a 2:1\nb 5:1\na 0:1\n", {}, 0, 6),
        ("a 2:1\nb 0:0\n", {}, 0, 3),  # an explicit zero is dropped, but says how the file counts
        ("a 2:1\nb 9:0\n", {}, 1, 9),
        ("a 2:1\nb 0:x\n", {"on_error": "skip"}, 1, 2),  # a dropped row says nothing
        ("a 2:1\n", {"n_features": 10}, 1, 10),
        ("a\nb\n", {"n_features": 10}, 1, 10),
        (f"a {2**40}:1\n", {}, 1, 2**40),
        (f"a 0:1 {2**62 - 2}:1\n", {}, 0, 2**62 - 1),
    ],
)
def test_index_base_and_width(
    write: Callable[..., Path], tmp_path: Path, text: str, options: dict[str, Any], base: int, width: int
) -> None:
    report = convert([write(text)], tmp_path / "a.h5", **options)
    assert (report.index_base, report.d) == (base, width)
    with open_store(tmp_path / "a.h5") as store:
        assert (store.index_base, store.n_features) == (base, width)


def test_nothing_to_store(write: Callable[..., Path], tmp_path: Path) -> None:
    as_csv, narrow = (
        "if .* is a table, give format='csv'",
        "line 2 has index 8, .* more than n_features=7",
    )
    for text, options, message in [
        ("", {}, "{path}: the input has no rows"),
        ("\n# nothing\n", {}, "{path}: the input has no rows"),
        ("1 x\n", {"on_error": "skip"}, "{path}: .* no rows; all 1 were skipped: .*line 1, column 3"),
        ("1\n2\n", {}, "no row of the input has a feature; if that is intended"),
        ("x;y\n1;a\n2;b\n", {}, "no row of the input has a feature; if it is a table, give format='csv'"),
        ("x;y\n1;a\n", {"label": "y"}, f"does not apply to LIBSVM text; {as_csv}"),
        ("1 1:1\n1 1:1 8:1\n", {"n_features": 7}, narrow),
    ]:
        path = write(text)
        with pytest.raises((InputError, SettingsError), match=message.replace("{path}", f"^{path}")):
            convert([path], tmp_path / "a.h5", **options)


def test_fix(write: Callable[..., Path], tmp_path: Path, lines_of: Callable[[Path], list[str]]) -> None:
    text = "a 3:1 1:2 3:.5 2:4\nb 1:1\nc 1:x\nd 2:1 2:-1\ne 5:1 4:1 3:1 2:1 1:1 0:0\n"
    report = convert([write(text)], tmp_path / "a.h5", on_error="fix", shuffle=False)
    assert lines_of(tmp_path / "a.h5") == [
        "a 1:2.0 2:4.0 3:1.5",
        "b 1:1.0",
        "d",
        "e 1:1.0 2:1.0 3:1.0 4:1.0 5:1.0",
    ]
    assert (report.n, report.repaired, report.skipped, report.explicit_zeros) == (4, 3, 1, 2)


def test_duplicates_are_summed_before_rounding(
    write: Callable[..., Path], values_of: Callable[..., list[tuple[list[int], list[float]]]]
) -> None:
    """In float64, in the order written."""
    generator = np.random.default_rng(0)
    indices, values = generator.integers(0, 40, 1000), generator.normal(size=1000)
    pairs = zip(indices.tolist(), values.tolist(), strict=True)
    expected = np.zeros(40)
    np.add.at(expected, indices, values)
    path = write("a " + " ".join(f"{index}:{value!r}" for index, value in pairs))
    [(found, sums)] = values_of([path], on_error="fix", dtype="float32")
    assert found == list(range(40))
    np.testing.assert_array_equal(sums, expected.astype(np.float32))


def test_skip_reports_the_first_five(write: Callable[..., Path], tmp_path: Path) -> None:
    text = "".join(f"1 {'x' if row % 2 else '1:1'}\n" for row in range(40))
    report = convert([write(text)], tmp_path / "a.h5", on_error="skip", shuffle=False)
    assert (report.n, report.skipped, len(report.first_errors)) == (20, 20, 5)
    assert [f"line {2 * row + 2}," in report.first_errors[row] for row in range(5)] == [True] * 5
    with open_store(tmp_path / "a.h5") as store:
        assert store.names(0, 20).tolist() == list(range(0, 40, 2))


# -- against scikit-learn --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("memory", [2**14, 2**30])
def test_scikit_learn_reads_the_same(
    write: Callable[..., Path],
    values_of: Callable[..., list[tuple[list[int], list[float]]]],
    tmp_path: Path,
    dtype: str,
    memory: int,
) -> None:
    """In blocks of 256 bytes, where lines and tokens straddle every edge, and in one."""
    generator = np.random.default_rng(3)
    matrix = sparse.random(400, 60, 0.1, "csr", np.float64, rng=generator)
    matrix.data = generator.normal(size=matrix.nnz) * 10.0 ** generator.integers(-9, 9, matrix.nnz)
    lines = []
    for row in range(400):
        span = slice(matrix.indptr[row], matrix.indptr[row + 1])
        pairs = zip(matrix.indices[span].tolist(), matrix.data[span].tolist(), strict=True)
        lines.append(" ".join([str(row % 5), *(f"{index + 1}:{value!r}" for index, value in sorted(pairs))]))
    path = write("\n".join(lines))
    reference, labels = load_svmlight_file(str(path), n_features=60, zero_based=False, dtype=dtype)
    report = convert(
        [path], tmp_path / "a.zarr", n_features=60, dtype=dtype, shuffle=False, memory=memory, chunk_nnz=64
    )
    assert report.bytes_read == path.stat().st_size
    with open_store(tmp_path / "a.zarr") as store:
        rows = store.rows(0, 400)
        assert [float(store.classes[code]) for code in rows.labels] == labels.tolist()
    np.testing.assert_array_equal(rows.data, reference.data)
    np.testing.assert_array_equal(rows.indices, reference.indices)
    np.testing.assert_array_equal(rows.indptr, reference.indptr)


# -- round trips and blocks ------------------------------------------------------------------------

LABELS = st.text(
    st.characters(codec="utf-8", exclude_characters=" #:,\x7f\ufeff", min_codepoint=33),
    min_size=1,
    max_size=9,
).filter(lambda label: not any(map(is_control, label)))
VALUES = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda value: value != 0)
ROWS = st.lists(
    st.tuples(LABELS, st.dictionaries(st.integers(1, 2**40), VALUES, max_size=6)), min_size=1, max_size=12
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_text_to_store_to_text(
    write: Callable[..., Path],
    tmp_path: Path,
    lines_of: Callable[[Path], list[str]],
    rows: list[tuple[str, dict[int, float]]],
) -> None:
    lines = [
        " ".join([label, *(f"{index}:{np.float32(value)!s}" for index, value in sorted(pairs.items()))])
        for label, pairs in rows
    ]
    report = convert(
        [write("\n".join(lines))],
        tmp_path / "a.zarr",
        index_base=1,
        n_features=2**40,
        labels_as="text",
        shuffle=False,
        force=True,
    )
    assert lines_of(tmp_path / "a.zarr") == lines
    assert report.empty_rows == sum(not pairs for _, pairs in rows)


def test_a_long_line_is_read_or_names_the_memory_it_needs(
    write: Callable[..., Path], values_of: Callable[..., list[tuple[list[int], list[float]]]]
) -> None:
    pairs = " ".join(f"{index}:1" for index in range(9000))
    path = write(f"a 1:1\nb {pairs}\nc 2:1\n")
    with pytest.raises(PlanError, match=r"line 2 has \d+ bytes.*memory=[\d_]+") as caught:
        values_of([path], memory=2**20)
    enough = caught.value.needed_memory
    assert enough is not None
    assert [len(values) for _, values in values_of([path], memory=enough)] == [1, 9000, 1]
    with pytest.raises(PlanError):
        values_of([path], memory=enough - 24)


def test_many_labels(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write("".join(f"L{row % 50_000} 1:1\n" for row in range(60_000)))
    assert convert([path], tmp_path / "a.h5").n_classes == 50_000
    with open_store(tmp_path / "a.h5") as store:
        rows, names = store.rows(0, 60_000), store.names(0, 60_000)
        assert [store.classes[code] for code in rows.labels] == [f"L{name % 50_000}" for name in names]
    with pytest.raises(PlanError, match="different labels so far, too many for the memory limit"):
        convert([path], tmp_path / "b.h5", memory=2**22, chunk_nnz=1024)
