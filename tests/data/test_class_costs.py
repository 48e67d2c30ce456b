"""Tables of costs and trees of classes: read exactly, or refused with a line that says what and where."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamsvm.data.class_costs import ClassTree, read_costs, read_tree
from streamsvm.errors import InputError

CLASSES = ["b", "a", "c"]
TABLE = np.array([[0, 1, 2.5], [3, 0, 1e-3], [0, 4, 0]])


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_table_of_numbers_is_in_the_order_of_the_classes(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.csv", "0,1,2.5\n3, 0,0.001\n\n0,4,0\n")
    np.save(tmp_path / "t.npy", TABLE)
    for source in (plain, str(plain), tmp_path / "t.npy", TABLE, TABLE.tolist()):
        found = read_costs(source, CLASSES)
        np.testing.assert_array_equal(found, TABLE)
        assert found.dtype == np.float64
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert found is not TABLE


def test_named_rows_and_columns_come_in_any_order(tmp_path: Path) -> None:
    frame = pd.DataFrame(TABLE, index=CLASSES, columns=CLASSES).loc[["c", "b", "a"], ["a", "c", "b"]]
    frame.to_csv(tmp_path / "named.csv")
    np.testing.assert_array_equal(read_costs(frame, CLASSES), TABLE)
    np.testing.assert_array_equal(read_costs(tmp_path / "named.csv", CLASSES), TABLE)
    numbers = pd.DataFrame(TABLE, index=[1, 2, 10], columns=[1, 2, 10])
    numbers.to_csv(tmp_path / "numbers.csv")
    order = [2, 0, 1]
    for source in (numbers, tmp_path / "numbers.csv"):
        np.testing.assert_array_equal(read_costs(source, ["10", "1", "2"]), TABLE[np.ix_(order, order)])


def test_a_name_may_contain_a_comma(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", 'true,"a, b",c\nc,2,0\n"a, b",0,1\n')
    np.testing.assert_array_equal(read_costs(path, ["a, b", "c"]), [[0, 1], [2, 0]])


BAD_TABLES = [
    ("0,1\n1,0\n", "the table of costs is 2 x 2, and 3 classes need 3 x 3"),
    ("0,1,1\n1,0,1\n", "the table of costs is 2 x 3, and 3 classes need 3 x 3"),
    ("0,1,1\n1,0\n1,1,0\n", "line 2: 2 fields, where the first row has 3"),
    ("0,1,1\n1,0,-2\n1,1,0\n", "line 2, column 3: the cost -2 is negative"),
    ("0,1,1\n\n1,0,nan\n1,1,0\n", "line 3, column 3: the cost nan is not finite"),
    ("0,inf,1\n1,0,1\n1,1,0\n", "line 1, column 2: the cost inf is not finite"),
    ("0,1,1\n1,0.5,1\n1,1,0\n", "line 2, column 2: predicting the own class 'a' costs 0.5, and must"),
    ("0,1,1\n1,0,x\n1,1,0\n", "line 2, column 3: 'x' is not a number"),
    ("0,1,1\n1,0,\n1,1,0\n", "line 2, column 3: '' is not a number"),
    ("0,1,1\n1,0,1_0\n1,1,0\n", "line 2, column 3: '1_0' is not a number"),
    (",a,b,d\na,0,1,1\nb,1,0,1\nd,1,1,0\n", "line 1: 'd' is none of the 3 classes"),
    (",a,b,a\na,0,1,1\nb,1,0,1\nc,1,1,0\n", "line 1: the class 'a' comes twice"),
    (",a,b\na,0,1\nb,1,0\n", "line 1: the class 'c' is missing"),
    (",a,b,c\na,0,1,1\nb,1,0,1\n", "the first column: the class 'c' is missing"),
    (",a,b,c\na,0,1,1\nb,1,0,1\nb,1,1,0\n", "the first column: the class 'b' comes twice"),
    (",c,a,b\na,1,-1,1\nb,1,1,0\nc,0,1,1\n", "line 2, column 3: the cost -1 is negative"),
    (",c,a,b\na,1,0,1\nb,1,1,0\nc,0,-7,1\n", "line 4, column 3: the cost -7 is negative"),
    (",a,b,c\n", "the first column: the class 'b' is missing"),
    ("", "the table is empty"),
    ("\x00\n", r"is none of the 3 classes|is missing|line contains NUL"),
]


def test_a_bad_table_is_refused(tmp_path: Path) -> None:
    for text, message in BAD_TABLES:
        path = write(tmp_path / "t.csv", text)
        with pytest.raises(InputError, match=message) as caught:
            read_costs(path, CLASSES)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_bad_arrays_are_refused(tmp_path: Path) -> None:
    for table, message in (
        (np.ones((2, 3)), "the table of costs is 2 x 3"),
        (np.zeros(3), "the table of costs is 3, and 3 classes"),
        (5.0, "a single number"),
        ([[0, 1], [1]], "not a table of numbers"),
        (TABLE.astype(str), "the values are of type"),
        (-TABLE, "row 1, column 2: the cost -1 is negative"),
        (pd.DataFrame(TABLE), "costs: the index: '0' is none of the 3 classes"),
    ):
        with pytest.raises(InputError, match=message):
            read_costs(table, CLASSES)
    with pytest.raises(InputError, match=r"t\.npy: No such file"):
        read_costs(tmp_path / "t.npy", CLASSES)
    np.save(tmp_path / "o.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(InputError, match=r"o\.npy: "):
        read_costs(tmp_path / "o.npy", CLASSES)
    header = b"{'descr': f8}\n"
    malformed = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    for content in (b"", b"nonsense", b"\x93NUMPY\x01\x00", b"PK\x03\x04", malformed):
        (tmp_path / "n.npy").write_bytes(content)
        with pytest.raises(InputError, match=r"n\.npy: not numbers as NumPy saves them, or cut short$"):
            read_costs(tmp_path / "n.npy", CLASSES)
    (tmp_path / "latin.csv").write_bytes(b"\xff\xfe,0")
    with pytest.raises(InputError, match=r"latin\.csv: not UTF-8"):
        read_costs(tmp_path / "latin.csv", CLASSES)


# -- trees -----------------------------------------------------------------------------------------


def random_tree(rng: np.random.Generator, n: int, k: int) -> tuple[dict[str, str], list[str]]:
    """Parents of random nodes, in random order, and k of the nodes as classes."""
    parents = {f"n{v}": f"n{rng.integers(max(0, v - 1 - int(rng.integers(5))), v)}" for v in range(1, n)}
    items = list(parents.items())
    rng.shuffle(items)
    return dict(map(tuple, items)), [f"n{v}" for v in rng.permutation(n)[:k]]


def by_breadth_first_search(parents: dict[str, str], classes: list[str]) -> np.ndarray:
    edges: dict[str, list[str]] = {}
    for child, parent in parents.items():
        edges.setdefault(child, []).append(parent)
        edges.setdefault(parent, []).append(child)
    table = np.empty((len(classes), len(classes)), np.int64)
    for y, start in enumerate(classes):
        found, queue = {start: 0}, deque([start])
        while queue:
            node = queue.popleft()
            for other in edges[node]:
                if other not in found:
                    found[other] = found[node] + 1
                    queue.append(other)
        table[y] = [found[name] for name in classes]
    return table


def test_distances_are_those_of_a_search() -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 60))
        parents, classes = random_tree(rng, n, int(rng.integers(1, n + 1)))
        tree = ClassTree(parents, classes)
        codes = np.arange(len(classes))
        expected = by_breadth_first_search(parents, classes)
        np.testing.assert_array_equal(tree.distance(codes[:, None], codes[None, :]), expected)


def test_a_path_of_many_nodes() -> None:
    n = 20_000
    tree = ClassTree({str(v): str(v - 1) for v in range(1, n)}, [str(v) for v in range(0, n, 3)])
    a, b = np.random.default_rng(0).integers(len(tree.order), size=(2, 1000))
    np.testing.assert_array_equal(tree.distance(a, b), 3 * np.abs(a - b))
    assert ClassTree.from_record(tree.to_record(), [str(v) for v in range(0, n, 3)]) == tree


def test_a_record_gives_the_same_tree() -> None:
    parents, classes = random_tree(np.random.default_rng(3), 30, 20)
    tree = ClassTree(parents, classes)
    again = ClassTree.from_record(json.loads(json.dumps(tree.to_record())), classes)
    assert again == tree
    assert again.to_record() == tree.to_record()
    np.testing.assert_array_equal(again.order, tree.order)
    record = {"nodes": ["r", "a", "b"], "parents": [-1, 0, 0]}
    ClassTree.from_record(record, ["a", "b"])
    bad: list[Any] = [
        [], {}, {**record, "parents": [-1, 0]}, {**record, "parents": [-1, 1, 0]},
        {**record, "parents": [-1, 0, 2]}, {**record, "parents": [0, 0, 0]},
        {**record, "parents": [-1, 0, True]}, {**record, "nodes": ["r", "a", "a"]},
        {**record, "nodes": ["r", "a", 1]}, {"nodes": ["r"], "parents": [-1]}, {"nodes": [], "parents": []},
    ]  # fmt: skip
    for each in bad:
        with pytest.raises(InputError, match="not the record of a tree"):
            ClassTree.from_record(each, ["a", "b"])
    with pytest.raises(InputError, match="the class 'x' is not in the tree"):
        ClassTree.from_record(record, ["a", "x"])


def test_a_file_has_a_child_and_its_parent_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "tree", "# a comment\na  animal\n\nb animal\r\nanimal\troot\nc# root\na animal\n")
    tree = read_tree(path, ["a", "b", "c#"])
    assert tree == read_tree(str(path), ["a", "b", "c#"])
    assert tree == read_tree({"a": "animal", "b": "animal", "animal": "root", "c#": "root"}, ["a", "b", "c#"])
    np.testing.assert_array_equal(tree.distance([0, 0, 1], [1, 2, 1]), [2, 3, 0])
    blanks = write(tmp_path / "blanks", "T cell\timmune cell\nB cell\timmune cell\n")
    np.testing.assert_array_equal(
        read_tree(blanks, ["T cell", "B cell", "immune cell"]).distance(0, [1, 2]), [2, 1]
    )


BAD_TREES = [
    ("a r\nb r\n\na q\n", ", line 4: 'a' has the parent 'q', and in line 1 the parent 'r'"),
    ("a r\nb r\nr a\n", ", line 1: the parents of 'a' form a circle: 'a' -> 'r' -> 'a'"),
    ("a r\nb r\nc d\nd e\ne f\nf c\n", r", line 3: .* a circle: 'c' -> 'd' -> 'e' -> \.\.\."),
    ("a r\nb r\nc c\n", ", line 3: the parents of 'c' form a circle: 'c' -> 'c'"),
    ("a r\nb s\n", ": the nodes 'r' and 's' have no parent; give all but one"),
    ("a r\nc r\n", ": the class 'b' is not in the tree; add a line"),
    ("a r\nb\n", ", line 2: 1 names, where a child and its parent"),
    ("a r\nb cell r\n", ", line 2: 3 names, .* by one tab if names contain blanks"),
    ("a r\nb\t\tr\n", ", line 2: 3 names"),
    ("# nothing\n", ": the tree is empty"),
]


def test_a_bad_tree_is_refused(tmp_path: Path) -> None:
    for text, message in BAD_TREES:
        path = write(tmp_path / "tree", text)
        with pytest.raises(InputError, match=message) as caught:
            read_tree(path, ["a", "b"])
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_a_tree_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_tree(tmp_path / "none", ["a"])
    with pytest.raises(InputError, match="Is a directory"):
        read_tree(tmp_path, ["a"])
    with pytest.raises(InputError, match="tree: the nodes 'r' and 's' have no parent"):
        read_tree({"a": "r", "b": "s"}, ["a", "b"])
