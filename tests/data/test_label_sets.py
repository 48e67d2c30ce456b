"""Lists of labels and indicator matrices become codes; plain labels stay what they are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import as_rows, make_problem

from streamsvm.data.arrays import labelled_rows
from streamsvm.data.label_sets import recode, with_label_sets
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError

X = make_problem(4, 5, 2)[0]
FLOAT = np.dtype(np.float64)


def sets_of(rows: Rows, classes: list[str]) -> list[list[str]]:
    ends = rows.label_indptr
    assert rows.label_codes.dtype == np.int32
    assert ends.dtype == np.int64
    return [[classes[c] for c in rows.label_codes[a:b]] for a, b in itertools.pairwise(ends)]


def test_lists_of_labels() -> None:
    for kind in (list, tuple, set, np.array):
        y = [kind(each) for each in ([10, 2], [], [7], [2, 7, 10])]
        rows, labels, _ = labelled_rows(X, y, FLOAT)
        classes = labels["classes"]
        assert classes == ["2", "7", "10"]
        assert sets_of(rows, classes) == [["2", "10"], [], ["7"], ["2", "7", "10"]]
        assert rows.labels.tolist() == [0, -1, 1, 0]


def test_an_indicator_matrix_has_its_columns_as_classes() -> None:
    own = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]])
    named = pd.DataFrame(own, columns=["d", "c", "b", "a"])
    explicit = sp.csr_array(own + 1)
    explicit.data -= 1  # zeros that are stored
    kinds = [own.astype(dtype) for dtype in (int, bool, np.float32)]
    for y in [*kinds, sp.csc_matrix(own), sp.coo_array(own), explicit, named]:
        rows, labels, _ = labelled_rows(X, y, FLOAT)
        classes = labels["classes"]
        assert classes == (["d", "c", "b", "a"] if y is named else ["0", "1", "2", "3"])
        assert sets_of(rows, ["0", "1", "2", "3"]) == [["0", "3"], [], ["0", "2"], ["3"]]
    assert explicit.nnz == 16


@pytest.mark.parametrize("plain", [["b", "a", "b", "c"], [10, 2, 2, 7], [2.0, 0.0, 2.0, 0.0]])
def test_one_label_a_row_as_a_list_is_plain(plain: list[Any]) -> None:
    expected, classes, _ = labelled_rows(X, plain, FLOAT)
    rows, found, _ = labelled_rows(X, [[label] for label in plain], FLOAT)
    assert found == classes
    for a, b in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    indicator = np.eye(len(classes["classes"]))[expected.labels]
    np.testing.assert_array_equal(labelled_rows(X, indicator, FLOAT)[0].labels, expected.labels)
    assert len(labelled_rows(X, indicator, FLOAT)[0].label_indptr) == 0


BAD: list[tuple[Any, str]] = [
    ([["a"], ["b"], ["c"]], "X has 4 rows, but y has labels for 3"),
    ([["a"], ["b", None], ["c"], []], r"y\[1\] has a label that is missing"),
    ([["a"], ["b"], ["c"], [float("nan"), 1.0]], r"y\[\d\] has a label that is missing"),
    ([["a"], ["b"], "c", []], r"y\[2\] is 'c', but other rows have lists of labels"),
    ([[0, 1], [1, 0], [0, 0], [1, 1]], r"y\[2\] repeats a label; .*pass an indicator matrix as an array"),
    ([[0, 1], [1, 0], [0, 1], [1, 0]], "every row has all 2 labels; pass an indicator matrix as an array"),
    ([[], [], [], []], "y has no label; training needs at least two classes"),
    ([["a", "b\n"], [], [], []], "contains a control character"),
    (np.ones((4, 1)), r"y has the shape \(4, 1\); pass one label per row"),
    (5, "y has the shape"),
]


def test_bad_labels_are_refused() -> None:
    for y, message in BAD:
        with pytest.raises(InputError, match=message):
            labelled_rows(X, y, FLOAT)


def test_codes_in_another_order_of_classes() -> None:
    rows = with_label_sets(as_rows(X, np.zeros(4)), np.array([0, 2, 1, 0, 1, 2]), np.array([0, 2, 2, 3, 6]))
    found = recode(rows, np.array([2, -1, 0, -1], np.int32))  # of class 1 nothing is known
    assert sets_of(found, ["0", "1", "2"]) == [["0", "2"], [], [], ["0", "2"]]
    assert found.labels.tolist() == [0, -1, -1, 0]
    one = recode(as_rows(X, np.array([0, 2, 1, -1])), np.array([2, -1, 0, -1], np.int32))
    assert one.labels.tolist() == [2, 0, -1, -1]
    assert len(one.label_indptr) == 0
