"""The grammar of LIBSVM text, and the rows of the store made from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.plain_parser import is_control
from helpers import read_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from stored_rows import lines_of
from streamsvm_converters import convert

from streamsvm.errors import InputError, PlanError, SettingsError
from streamsvm.store import open_store

# Text, options, and the index base and number of features of its store.
LAYOUTS: list[tuple[str, dict[str, Any], int, int]] = [
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
]


def test_index_base_and_width(write: Callable[..., Path], tmp_path: Path) -> None:
    for text, options, base, width in LAYOUTS:
        report = convert([write(text)], tmp_path / "a.h5", force=True, **options)
        assert (report.index_base, report.d) == (base, width), text
        with open_store(tmp_path / "a.h5") as store:
            assert (store.index_base, store.n_features) == (base, width), text


def test_nothing_to_store(write: Callable[..., Path], tmp_path: Path) -> None:
    as_csv, narrow = (
        "if .* is a table, use format='csv'",
        "line 2 has the largest index of the input, 8; .* more than n_features=7",
    )
    for text, options, message in [
        ("", {}, "{path}: the input has no usable rows"),
        ("\n# nothing\n", {}, "{path}: the input has no usable rows"),
        (
            "1 x\n",
            {"on_error": "skip"},
            "{path}: .* no usable rows; rows skipped: 1, first error: .*line 1, column 3",
        ),
        ("1\n2\n", {}, "no row of the input has a feature; if this is intended"),
        (
            "x;y\n1;a\n2;b\n",
            {},
            "no row of the input has a feature; if the input is a table, use format='csv'",
        ),
        ("x;y\n1;a\n", {"label": "y"}, f"does not apply to LIBSVM text; {as_csv}"),
        ("1 1:1\n1 1:1 8:1\n", {"n_features": 7}, narrow),
    ]:
        path = write(text)
        with pytest.raises((InputError, SettingsError), match=message.replace("{path}", f"^{path}")):
            convert([path], tmp_path / "a.h5", **options)


# -- against scikit-learn --------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "memory"), [("float32", 2**30), ("float64", 2**14)])
def test_scikit_learn_reads_the_same(tmp_path: Path, dtype: str, memory: int) -> None:
    """In blocks of 256 bytes, where lines and tokens straddle every edge, and in one."""
    generator = np.random.default_rng(3)
    matrix = sparse.random(400, 60, 0.1, "csr", np.float64, rng=generator)
    matrix.data = generator.normal(size=matrix.nnz) * 10.0 ** generator.integers(-9, 9, matrix.nnz)
    path = tmp_path / "a.svm"
    dump_svmlight_file(matrix, np.arange(400) % 5, str(path), zero_based=False)
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
    write: Callable[..., Path], tmp_path: Path, rows: list[tuple[str, dict[int, float]]]
) -> None:
    lines = [
        " ".join([label, *(f"{index}:{np.float32(value)!s}" for index, value in sorted(pairs.items()))])
        for label, pairs in rows
    ]
    options: dict[str, Any] = {"index_base": 1, "n_features": 2**40, "labels_as": "text", "shuffle": False}
    report = convert([write("\n".join(lines))], tmp_path / "a.zarr", force=True, **options)
    assert lines_of(tmp_path / "a.zarr") == lines
    assert report.empty_rows == sum(not pairs for _, pairs in rows)


def test_a_long_line_is_read_or_names_the_memory_it_needs(write: Callable[..., Path]) -> None:
    pairs = " ".join(f"{index}:1" for index in range(9000))
    path = write(f"a 1:1\nb {pairs}\nc 2:1\n")

    def sizes(memory: int) -> list[int]:
        read = read_rows([path], classes=(), n_features=9000, index_base=0, memory=memory)
        return [size for rows, _ in read for size in np.diff(rows.indptr).tolist()]

    with pytest.raises(PlanError, match=r"line 2 has \d+ bytes.*memory=[\d_]+") as caught:
        sizes(2**20)
    enough = caught.value.needed_memory
    assert sizes(enough) == [1, 9000, 1]
    with pytest.raises(PlanError):
        sizes(enough - 24)


def test_many_labels(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write("".join(f"L{row % 50_000} 1:1\n" for row in range(60_000)))
    assert convert([path], tmp_path / "a.h5").n_classes == 50_000
    with open_store(tmp_path / "a.h5") as store:
        rows, names = store.rows(0, 60_000), store.names(0, 60_000)
        assert [store.classes[code] for code in rows.labels] == [f"L{name % 50_000}" for name in names]
    with pytest.raises(PlanError, match="different labels, too many for the memory limit"):
        convert([path], tmp_path / "b.h5", memory=2**22, chunk_nnz=1024)
