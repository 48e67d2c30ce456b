"""Weights, several labels a row and groups in text: read as plain Python reads them, or refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import read_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamsvm_converters import convert
from test_shuffle import reference_key

from streamsvm.errors import InputError, PlanError
from streamsvm.store import open_store

Write = Callable[..., Path]
LABELS = ["1", "5", "10", "7.5", "-2", "1e3"]  # in any order; all are numbers

rows_of_text = st.lists(
    st.tuples(
        st.lists(st.sampled_from(LABELS), max_size=4),
        st.lists(st.integers(1, 30), unique=True, max_size=4).map(sorted),
        st.floats(0, 1e6),
        st.sampled_from(["", "# a comment", " ", "\t"]),
    ),
    min_size=1,
    max_size=40,
)
groups_of_rows = st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(1, 5)), min_size=1, max_size=40)


def numbered_groups(drawn: list[tuple[int, int]], n: int) -> list[int]:
    """The group of each of `n` rows: each number once, for some successive rows."""
    sizes = dict(drawn)
    each = [group for group, size in sizes.items() for _ in range(size)]
    return (each + [max(each) - 1 if max(each) else 1] * n)[:n] if len(each) >= n else each


def text_line(labels: list[str], qid: int | None, indices: list[int], end: str) -> str:
    parts = [] if qid is None else [f"qid:{qid}"]
    parts += [f"{index}:{index / 2}" for index in indices]
    return f"{','.join(labels)} {' '.join(parts)}{end}\n"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows_of_text, groups_of_rows, st.booleans(), st.sampled_from(["h5", "zarr"]), st.integers(0, 3))
def test_a_store_has_what_plain_python_reads(tmp_path: Path, drawn, sizes, shuffle, suffix, seed) -> None:
    groups = numbered_groups(sizes, len(drawn))
    # A row without labels and features is a blank line, which is no row.
    drawn = [(labels, indices or [3], w, end) for labels, indices, w, end in drawn[: len(groups)]]
    text, weights = tmp_path / "a.svm", tmp_path / "a.weights"
    text.write_text("".join(text_line(row[0], q, row[1], row[3]) for row, q in zip(drawn, groups)))  # noqa: B905
    weights.write_text("".join(f"{row[2]!r}\n" for row in drawn))
    out = tmp_path / f"a.{suffix}"
    options = {"shuffle": shuffle, "seed": seed, "force": True, "dtype": "float64"}
    if not any(labels for labels, *_ in drawn):
        with pytest.raises(InputError, match="no row of the input has a label"):
            convert(text, out, multilabel=True, groups=True, **options)
        return
    report = convert(text, out, weights=weights, multilabel=True, groups=True, **options)
    order = list(range(len(drawn)))
    if shuffle:
        order.sort(key=lambda row: (reference_key(seed, groups[row]), row))
    numbers = sorted({float(label) for labels, *_ in drawn for label in labels})
    sets = [sorted({numbers.index(float(label)) for label in drawn[row][0]}) for row in order]
    assert report.n_labels == sum(map(len, sets))
    assert report.n_groups == len(set(groups))
    assert report.qids == 0
    with open_store(out) as store:
        assert (store.weighted, store.multilabel, store.grouped) == (True, True, True)
        assert list(map(float, store.classes)) == numbers
        rows = store.rows(0, store.n_rows)
        assert store.names(0, store.n_rows).tolist() == order
        assert rows.qid.tolist() == [groups[row] for row in order]
        assert rows.cost.tolist() == [drawn[row][2] for row in order]
        assert np.split(rows.label_codes, rows.label_indptr[1:-1])[0].tolist() == sets[0]
        assert rows.label_codes.tolist() == [code for each in sets for code in each]
        assert np.diff(rows.label_indptr).tolist() == list(map(len, sets))
        assert rows.labels.tolist() == [each[0] if each else -1 for each in sets]
        assert rows.indices.tolist() == [index - store.index_base for row in order for index in drawn[row][1]]
        counted = [sum(code in each for each in sets) for code in range(len(numbers))]
        assert store.class_counts.tolist() == counted
        store.verify()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows_of_text, groups_of_rows, st.integers(0, 300))
def test_no_batch_divides_a_group(tmp_path: Path, drawn, sizes, pushed) -> None:
    """Whatever blocks the text is read in."""
    groups = numbered_groups(sizes, len(drawn))
    drawn = [(labels, indices or [3], w, end) for labels, indices, w, end in drawn[: len(groups)]]
    text = tmp_path / "a.svm"
    lines = [text_line(row[0], q, row[1], row[3]) for row, q in zip(drawn, groups)]  # noqa: B905
    text.write_text("#" * pushed + "\n" + "".join(lines))
    options: dict[str, Any] = {"multilabel": True, "groups": "whole", "memory": 2**15}
    reader = read_rows(text, classes=["5", "1"], n_features=30, index_base=1, **options)
    found, sets, numbers, ends = [], [], [], []
    for rows, number in reader:
        found += rows.qid.tolist()
        ends.append(len(found))
        numbers += number.tolist()
        sets += [part.tolist() for part in np.split(rows.label_codes, rows.label_indptr[1:-1])]
    assert (found, numbers) == (groups, list(range(len(drawn))))
    assert all(at == len(groups) or groups[at - 1] != groups[at] for at in ends)
    assert sets == [sorted({["5", "1"].index(x) for x in row[0] if x in ("1", "5")}) for row in drawn]
    assert reader.counts.unseen_labels == sum(label not in ("1", "5") for row in drawn for label in row[0])


# -- groups ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Groups of very different sizes, one of which is larger than any bucket of the shuffle."""
    rng = np.random.default_rng(3)
    sizes = [*rng.integers(1, 12, 400).tolist(), 900]
    numbers = rng.choice(2**62, len(sizes), replace=False).tolist()
    groups = [number for number, size in zip(numbers, sizes, strict=True) for _ in range(size)]
    path = tmp_path_factory.mktemp("text") / "sequences.svm"
    path.write_text("".join(f"{row % 7} qid:{g} {1 + row % 9}:1\n" for row, g in enumerate(groups)))
    return path, groups


@pytest.mark.parametrize(("seed", "memory"), [(0, 2**30), (-1, 2**18), (0, 2**16)])
def test_shuffling_keeps_groups_together_and_in_order(sequences, tmp_path, seed, memory) -> None:
    """With buckets of 8 KB too, which cannot hold the largest group."""
    path, groups = sequences
    convert(path, tmp_path / "a.h5", seed=seed, memory=memory, chunk_nnz=256, groups=True, threads=1)
    with open_store(tmp_path / "a.h5") as store:
        names = store.names(0, store.n_rows).tolist()
    assert names == sorted(range(len(groups)), key=lambda row: (reference_key(seed, groups[row]), row))
    report = convert(path, tmp_path / "b.h5")  # without `groups`, they are counted
    assert (report.qids, report.n_groups, report.n_labels) == (len(groups), None, None)


def test_a_group_that_begins_twice_is_an_error(write: Write, tmp_path: Path) -> None:
    first = write("# sequences\n1 qid:7 1:1\n\n2 qid:8 1:1\n", "a.svm")
    second = write("1 qid:9 1:1\n1 qid:9 1:2\n1 qid:8 2:1\n1 qid:7 2:1\n", "b.svm")
    third = write("1 qid:8 1:1\n1 qid:9 1:2\n", "c.svm")  # goes on where the first file ended
    for shuffle in True, False:
        options: dict[str, Any] = {"groups": True, "shuffle": shuffle, "force": True}
        with pytest.raises(InputError) as error:
            convert([first, second], tmp_path / "s.h5", **options)
        assert str(error.value).startswith(f"{second}, line 3: the group qid:8 begins again")
        assert f"it already began in {first}, line 4" in str(error.value)
        assert convert([first, third], tmp_path / "s.h5", **options).n_groups == 3


def test_numbers_of_groups_at_the_edges(write: Write, tmp_path: Path) -> None:
    text = "1 qid:9223372036854775807 1:1\n1 qid:0 1:1\n2 qid:+0 2:1\n1 qid:-0 1:1\n1 1:1 qid:007\n"
    convert(write(text), tmp_path / "a.h5", groups=True, shuffle=False)
    with open_store(tmp_path / "a.h5") as store:
        assert store.groups(0, 5).tolist() == [2**63 - 1, 0, 0, 0, 7]


def test_groups_that_the_memory_cannot_hold_are_an_error(write: Write, tmp_path: Path) -> None:
    path = write("".join(f"1 qid:{row} 1:1\n" for row in range(2000)))
    with pytest.raises(PlanError, match="groups of rows, too many for the memory limit"):
        convert(path, tmp_path / "a.h5", groups=True, memory=2**17, chunk_nnz=64)
    path = write("1 qid:5 1:1 2:2 3:3\n" * 5000)
    reader = read_rows(path, classes=["1"], n_features=9, index_base=1, memory=2**16, groups="whole")
    with pytest.raises(PlanError, match=r"group qid:5 already has .* rows, too many for the memory limit"):
        list(reader)


# -- several labels a row ----------------------------------------------------------------------------


def test_like_drops_unseen_labels_from_the_set(write: Write, tmp_path: Path) -> None:
    convert(write("1,2 1:1\n3 2:1\n"), tmp_path / "train.h5", multilabel=True)
    test = write("9,3,1 1:1\n9 2:1\n 1:1\n", "test.svm")
    options: dict[str, Any] = {"like": tmp_path / "train.h5", "multilabel": True, "shuffle": False}
    with pytest.raises(InputError, match=r"line 1, column 1: label '9' is not among the 3 known classes"):
        convert(test, tmp_path / "test.h5", **options)
    late = write("1,33,2 1:1\n", "late.svm")
    with pytest.raises(InputError, match=r"line 1, column 3: label '33' is not among"):
        convert(late, tmp_path / "test.h5", **options)
    report = convert(test, tmp_path / "test.h5", unseen_label="keep", **options)
    assert (report.unseen_labels, report.n_labels) == (2, 2)
    with open_store(tmp_path / "test.h5") as store:
        rows = store.rows(0, 3)
        assert rows.label_codes.tolist() == [0, 2]
        assert rows.label_indptr.tolist() == [0, 2, 2, 2]


# -- weights -----------------------------------------------------------------------------------------


def test_weights_of_skipped_rows_are_skipped(write: Write, tmp_path: Path) -> None:
    """Also at the beginning and the end; comments and blank lines are no rows."""
    text = "x 1\n1 1:1\n# comment\n\n2 2:x\n1 3:1\n1 0:q\n"
    weights = write("9\n0.25\n8\n4\n7\n", "w")
    report = convert(write(text), tmp_path / "a.h5", weights=weights, on_error="skip", shuffle=False)
    assert (report.n, report.skipped) == (2, 3)
    with open_store(tmp_path / "a.h5") as store:
        assert store.weights(0, 2).tolist() == [0.25, 4]
        assert [source["name"] for source in store.meta["sources"]] == ["data.svm", "w"]


def test_weights_are_read_in_pieces(write: Write, tmp_path: Path) -> None:
    """More than one piece of text on each side, from a compressed file without a last newline."""
    rng = np.random.default_rng(0)
    values = rng.exponential(size=150_000)
    (tmp_path / "w.gz").write_bytes(gzip.compress("\r\n".join(map(repr, values.tolist())).encode()))
    path = write("1 1:1 2:2 3:3\n" * len(values))
    convert(path, tmp_path / "a.h5", weights=tmp_path / "w.gz", memory="40M")
    with open_store(tmp_path / "a.h5") as store:
        np.testing.assert_array_equal(store.weights(0, len(values)), values[store.names(0, len(values))])


def test_refused_weights(write: Write, tmp_path: Path) -> None:
    text = write("1 1:1\n2 1:1\n3 1:1\n")
    np.save(tmp_path / "w.npy", np.ones(3))
    for content, reason in [
        ("1\nx\n1\n", "line 2 is 'x'; the file must have one line for each row, with a weight, a number"),
        ("1\n-1\n1\n", "line 2 is '-1'; the file must have"),
        ("1\nnan\n1\n", "line 2 is 'nan'; the file must have"),
        ("1\n1\n-inf\n", "line 3 is '-inf'; the file must have"),
        ("1\n1_0\n1\n", "line 2 is '1_0'; the file must have"),
        ("1\n\n1\n1\n", "line 2 is ''; the file must have"),
        ("1\n1 1\n1\n", "line 2 is '1 1'; the file must have"),
        ("1 " * 2**20, "line 1 is '1 1 "),
        ("1\n1\n", "line 3 is missing; the file must have"),
        ("", "line 1 is missing"),
        ("1\n1\n1\n1\n", "line 4 comes after the last of the 3 rows; the file must have"),
        ("1\n1\n1\n\n", "line 4 comes after the last of the 3 rows"),
        (tmp_path / "missing", "missing cannot be read"),
        (tmp_path / "a.h5", "is both input and output"),
        (tmp_path / "w.npy", "line 1 is "),
    ]:
        weights = write(content, "w.txt") if isinstance(content, str) else content
        with pytest.raises(InputError) as error:
            convert(text, tmp_path / "a.h5", weights=weights)
        assert str(error.value).startswith(str(weights))
        assert reason in str(error.value)
        assert not (tmp_path / "a.h5").exists()
    with pytest.raises(InputError, match=r"standard input \(-\) is used twice"):
        convert("-", tmp_path / "a.h5", weights="-")
