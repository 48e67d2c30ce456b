"""Tables of costs and trees of classes: read exactly, or refused with a line that says what and where."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from reference import path_lengths

from streamsvm.data.class_costs import read_costs, read_tree
from streamsvm.errors import InputError

CLASSES = ["b", "a", "c, d"]
TABLE = np.array([[0, 1, 2.5], [3, 0, 1e-3], [0, 4, 0]])
CSV = '\ufefftrue, a,"c, d",b\n"c, d",4,0,0\n\nb, 1,2.5,0\na,0,0.001,3\n'  # in another order


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_table_is_read_from_arrays_and_files_and_by_its_names() -> None:
    Path("t.csv").write_text(CSV, encoding="utf-8")
    np.save("t.npy", TABLE)
    frame = pd.DataFrame(TABLE, index=CLASSES, columns=CLASSES).loc[["c, d", "b", "a"], ["a", "c, d", "b"]]
    for source in ("t.csv", Path("t.npy"), TABLE, TABLE.tolist(), frame):
        found = read_costs(source, CLASSES)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, TABLE.astype(np.float32))
    numbers = pd.DataFrame(TABLE, index=[1, 2, 10], columns=[1, 2, 10])
    expected = TABLE[np.ix_([2, 0, 1], [2, 0, 1])].astype(np.float32)
    np.testing.assert_array_equal(read_costs(numbers, ["10", "1", "2"]), expected)


HEADER = b"{'descr': f8}\n"
np.save(PICKLED := io.BytesIO(), np.array([[object()]]), allow_pickle=True)
BAD_TABLES: list[tuple[Any, str]] = [
    (np.ones((2, 3)), "costs: the table of costs is 2 x 3, but 3 classes need 3 x 3"),
    (np.zeros(3), "costs: the table of costs is 3, but 3 classes"),
    (5.0, "costs: the table of costs is a single number"),
    ([[0, 1], [1]], "costs: the costs are not a numeric table"),
    (-TABLE, "costs: predicting 'a' for a row of 'b' costs -1; use costs from 0 to 1e30, and 0 for the"),
    (TABLE * 1e60, "costs: predicting 'a' for a row of 'b' costs inf"),
    (np.eye(3), "costs: predicting 'b' for a row of 'b' costs 1"),
    (pd.DataFrame(TABLE), "costs: the class '0' is unknown"),
    (b",b,a\nb,0,1\na,1,0\n", "t.csv: the table of costs is 2 x 2"),
    (b',b,a,"c, d"\nb,0,1,1\na,1,0\n', "t.csv, line 3: expected a name and 3 costs, one per name in line 1"),
    (b',b,a,"c, d"\nb,0,1,1\na,1,0,x\n', "t.csv, line 3: expected a name and 3 costs"),
    (b',b,a,"c, d"\nb,0,1,1\na,1,0,nan\n"c, d",1,1,0\n', "t.csv: predicting 'c, d' for a row of 'a'"),
    (b",b,a,e\nb,0,1,1\na,1,0,1\ne,1,1,0\n", "t.csv: the class 'e' is unknown"),
    (b',b,a,"c, d"\nb,0,1,1\na,1,0,1\na,1,1,0\n', "t.csv: the class 'c, d' is missing"),
    (b"", "t.csv: the table of costs is 0"),
    (b"\xff\xfe,0", "t.csv: the file is not UTF-8"),
    (Path("none.csv"), "none.csv cannot be read: No such file"),
    (Path("none.npy"), "none.npy: No such file"),
    *((content, "t.npy: the file is truncated or not a numeric NumPy array") for content in (
        b"nonsense", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"\x93NUMPY\x01\x00\x0e\x00" + HEADER,
        PICKLED.getvalue(),
    )),
]  # fmt: skip


# -- trees -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_the_costs_of_a_tree_are_lengths_of_paths(seed: int) -> None:
    """Of random nodes, in random order, some are classes, also inner ones."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    parents = {f"n{v}": f"n{rng.integers(max(0, v - 1 - int(rng.integers(5))), v)}" for v in range(1, n)}
    classes = [f"n{v}" for v in rng.permutation(n)[: rng.integers(1, n + 1)]]
    items = list(parents.items())
    rng.shuffle(items)
    found = read_tree(dict(map(tuple, items)), classes)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, path_lengths(parents, classes))


def test_a_file_has_a_child_and_its_parent_a_line() -> None:
    Path("t").write_text("# a comment\na  animal\n\nb animal\r\nanimal\troot\nc# root\na animal\n")
    for source in ("t", Path("t"), {"a": "animal", "b": "animal", "animal": "root", "c#": "root"}):
        np.testing.assert_array_equal(read_tree(source, ["a", "b", "c#"]), [[0, 2, 3], [2, 0, 3], [3, 3, 0]])
    Path("t").write_text("T cell\timmune cell\nB cell\timmune cell\n")
    np.testing.assert_array_equal(read_tree("t", ["T cell", "immune cell"]), [[0, 1], [1, 0]])


BAD_TREES: list[tuple[Any, str]] = [
    (b"a r\nb r\n\na q\n", "t, line 4: 'a' has two parents, 'r' and 'q'"),
    (b"b r\na c\nc a\n", "t: the parents of 'a' form a cycle"),
    (b"b b\na b\n", "t: the parents of 'b' form a cycle"),
    (b"a r\nb s\n", "t: the nodes 'r' and 's' have no parent; add a parent for every node"),
    (b"a r\nc r\n", "t: the nodes 'r' and 'b' have no parent"),
    (b"a r\nb\n", "t, line 2: expected a child and its parent, but found 1"),
    (b"a r\nb cell r\n", "t, line 2: expected a child and its parent, but found 3 names; separate"),
    (b"a r\nb\t\tr\n", "t, line 2: expected a child and its parent, but found 3 names"),
    (b"# nothing\n", "t: the nodes 'a' and 'b' have no parent"),
    (Path("none"), "none cannot be read: No such file"),
    (Path(), ". cannot be read: Is a directory"),
    ({"a": "r", "b": "s"}, "tree: the nodes 'r' and 's' have no parent"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "classes", "refused"), [(read_costs, CLASSES, BAD_TABLES), (read_tree, ["a", "b"], BAD_TREES)]
)
def test_bad_tables_and_trees_are_refused(read: Any, classes: list[str], refused: list[Any]) -> None:
    for source, message in refused:
        if isinstance(source, bytes):
            path = Path(message.partition(":")[0].partition(",")[0])
            path.write_bytes(source)
            source = path
        with pytest.raises(InputError) as caught:
            read(source, classes)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)
