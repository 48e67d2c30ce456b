"""Costs of pairs of classes: a table, or a tree of classes whose path lengths are the costs."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamsvm.base import durable
from streamsvm.base.label_values import class_name
from streamsvm.base.text import printable
from streamsvm.errors import InputError, Remedy

_SHOWN_NAMES = 3  # names of a circle that a message repeats


def read_costs(source: Any, classes: Sequence[str]) -> np.ndarray:
    """Read the costs Δ(y, j) of predicting class j for a row of class y.

    Parameters
    ----------
    source : path, DataFrame or array_like, shape (k, k)
        Rows are true classes. An array, or a file ``.npy``, has them in the order of `classes`. So has a CSV
        file of numbers alone; one with a header, whose first cell is no number, has the names of the classes
        there and in the first column, in any order, as a DataFrame has in its columns and index.
    classes : sequence of str, length k

    Returns
    -------
    ndarray of float64, shape (k, k)
        In the order of `classes`, finite, not negative, and 0 on the diagonal.

    Raises
    ------
    InputError
        If the table cannot be read, is not k by k, does not name each class once, or a cost is negative, not
        finite, or not 0 on the diagonal.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return _read_npy(path, classes) if path.suffix == ".npy" else _read_csv(path, classes)
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        rows = _positions([class_name(name) for name in source.index], classes, "costs: the index")
        columns = _positions([class_name(name) for name in source.columns], classes, "costs: the columns")
        source = source.to_numpy()[np.ix_(rows, columns)]
    return _checked_array(source, classes, "costs")


def _read_npy(path: Path, classes: Sequence[str]) -> np.ndarray:
    try:
        with durable.open_file(path, follow=True):  # nothing but a regular file
            table = np.lib.format.open_memmap(path, mode="r")  # refuses objects, which would be pickles
    except Exception as error:  # NumPy's parser of headers raises whatever Python's own does
        found = isinstance(error, OSError) and durable.reason(error)
        raise InputError(f"{path}: {found or 'not numbers as NumPy saves them, or cut short'}") from None
    return _checked_array(table, classes, str(path))


def _checked_array(table: Any, classes: Sequence[str], where: str) -> np.ndarray:
    try:
        table = np.asarray(table)
    except ValueError:
        raise InputError(f"{where}: not a table of numbers") from None
    if table.dtype.kind not in "fiub":
        raise InputError(f"{where}: the values are of type {table.dtype}, not numbers")
    costs = np.array(table, np.float64, order="C")
    check_costs(costs, classes, where)
    return costs


def check_costs(costs: np.ndarray, classes: Sequence[str], where: str) -> None:
    """Raise `InputError` about `where` unless `costs` is what `read_costs` returns."""
    _check_shape(costs.shape, len(classes), where)
    _check_values(costs, lambda y, j: f"{where}: row {y + 1}, column {j + 1}", classes)


def _read_csv(path: Path, classes: Sequence[str]) -> np.ndarray:
    k = len(classes)
    table: list[np.ndarray] = []
    lines: list[int] = []
    names: list[str] = []
    header: list[str] | None = None  # its names of classes, if the first row has names
    width = 0  # of the first row
    try:
        with durable.open_file(path, follow=True) as binary:
            reader = csv.reader(io.TextIOWrapper(binary, "utf-8-sig", newline=""))
            for fields in reader:
                fields = [field.strip() for field in fields]
                if not any(fields):
                    continue
                line, where = reader.line_num, f"{path}, line {reader.line_num}"
                if not width:
                    width = len(fields)
                    if not _is_number(fields[0]):
                        header = fields[1:]
                        columns = _positions(header, classes, where)
                        continue
                if len(fields) != width:
                    raise InputError(f"{where}: {len(fields)} fields, where the first row has {width}")
                if header is not None:
                    names.append(fields.pop(0))
                if len(table) < k:  # more are counted
                    table.append(_numbers(fields, where, 1 + (header is not None)))
                lines.append(line)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {_reason(error)}") from None
    if not width:
        raise InputError(f"{path}: the table is empty")
    if header is None:
        _check_shape((len(lines), width), k, str(path))
        order = columns = np.arange(k)
    else:
        order = _positions(names, classes, f"{path}: the first column")
    costs = np.array(table)[np.ix_(order, columns)]
    first = 1 + (header is not None)
    _check_values(costs, lambda y, j: f"{path}, line {lines[order[y]]}, column {columns[j] + first}", classes)
    return costs


def _numbers(fields: list[str], where: str, first_column: int) -> np.ndarray:
    """Parse the numbers of a line; the first one is in column `first_column`."""
    for column, field in enumerate(fields, first_column):
        if not _is_number(field):
            raise InputError(f"{where}, column {column}: {printable(field)!r:.40} is not a number")
    return np.array(fields, np.float64)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field


def _check_shape(shape: tuple[int, ...], k: int, where: str) -> None:
    if shape != (k, k):
        found = " x ".join(f"{length:,}" for length in shape) or "a single number"
        raise InputError(f"{where}: the table of costs is {found}, and {k:,} classes need {k:,} x {k:,}")


def _positions(names: Sequence[str], classes: Sequence[str], where: str) -> np.ndarray:
    """Return the position of each class in `names`, which must name each class once."""
    at: dict[str, int] = {}
    known = set(classes)
    for position, name in enumerate(names):
        if name not in known:
            raise InputError(f"{where}: {printable(name)!r:.60} is none of the {len(classes):,} classes")
        if name in at:
            raise InputError(f"{where}: the class {printable(name)!r:.60} comes twice")
        at[name] = position
    for name in classes:
        if name not in at:
            raise InputError(f"{where}: the class {printable(name)!r:.60} is missing")
    return np.array([at[name] for name in classes], np.int64)


def _check_values(costs: np.ndarray, where: Callable[[int, int], str], classes: Sequence[str]) -> None:
    bad = ~(np.isfinite(costs) & (costs >= 0))
    np.fill_diagonal(bad, np.diagonal(bad) | (np.diagonal(costs) != 0))
    if not bad.any():
        return
    y, j = (int(at) for at in np.unravel_index(int(np.argmax(bad)), bad.shape))
    cost = costs[y, j]
    if not np.isfinite(cost):
        raise InputError(f"{where(y, j)}: the cost {cost} is not finite")
    if cost < 0:
        raise InputError(f"{where(y, j)}: the cost {cost:g} is negative")
    name = printable(classes[y])
    raise InputError(f"{where(y, j)}: predicting the own class {name!r:.60} costs {cost:g}, and must cost 0")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return durable.reason(error)
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    return (str(error).splitlines() or [type(error).__name__])[0]


class ClassTree:
    """Tree of named nodes, among them all classes; inner nodes may be classes too.

    The distance of two classes is the number of edges on the path between them; a table of k x k is never
    made. Nodes are numbered in preorder, so that a parent comes before its children, and the nodes below one
    follow it directly.

    Parameters
    ----------
    parents : mapping of str to str
        The parent of each node but the root.
    classes : sequence of str, length k
    where : str
        What errors call the tree.
    lines : mapping of str to int, optional
        The line of the file that each child is in.

    Attributes
    ----------
    nodes : list of str
        Names, in preorder; children in the order of `parents`.
    parent : ndarray of int32, shape (n_nodes,)
        -1 for the root, which is node 0.
    depth : ndarray of int32, shape (n_nodes,)
        Edges to the root.
    node_of_class : ndarray of int32, shape (k,)
    order : ndarray of int32, shape (k,)
        The codes of the classes in preorder.
    begin, end : ndarray of int32, shape (n_nodes,)
        ``order[begin[v]:end[v]]`` are the classes at the node v and below it.

    Raises
    ------
    InputError
        If the tree has a circle or two roots, or lacks a class.
    """

    def __init__(
        self,
        parents: Mapping[str, str],
        classes: Sequence[str],
        *,
        where: str = "tree",
        lines: Mapping[str, int] | None = None,
    ) -> None:
        if not parents:
            raise InputError(f"{where}: the tree is empty; give a child and its parent in each line")
        number: dict[str, int] = {}
        for child, parent in parents.items():
            number.setdefault(child, len(number))
            number.setdefault(parent, len(number))
        names = list(number)
        numbers = [number[parents[name]] if name in parents else -1 for name in names]
        order = _preorder(names, numbers, where, lines or {})
        rank = np.empty(len(names), np.int64)
        rank[order] = np.arange(len(names))
        above = np.array(numbers)[order]
        self.nodes = [names[v] for v in order]
        self.parent = np.where(above < 0, -1, rank[above]).astype(np.int32)
        depth, size = [0] * len(names), [1] * len(names)
        up = self.parent.tolist()
        for v in range(1, len(names)):
            depth[v] = depth[up[v]] + 1
        for v in range(len(names) - 1, 0, -1):
            size[up[v]] += size[v]
        self.depth = np.array(depth, np.int32)
        node = {name: v for v, name in enumerate(self.nodes)}
        for name in classes:
            if name not in node:
                raise InputError(
                    f"{where}: the class {printable(name)!r:.60} is not in the tree",
                    remedy=Remedy("add a line with it and its parent"),
                )
        self.node_of_class = np.array([node[name] for name in classes], np.int32)
        self.order = np.argsort(self.node_of_class, kind="stable").astype(np.int32)
        first = np.arange(len(names))
        nodes_in_order = self.node_of_class[self.order]
        self.begin = np.searchsorted(nodes_in_order, first).astype(np.int32)
        self.end = np.searchsorted(nodes_in_order, first + np.array(size)).astype(np.int32)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ClassTree)
            and self.to_record() == other.to_record()
            and np.array_equal(self.node_of_class, other.node_of_class)
        )

    __hash__ = None  # type: ignore[assignment]

    def distance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the number of edges between the classes `a` and `b` (codes, which broadcast), int64.

        The deeper end of each path goes up by one edge at a time, until the ends meet: as many steps as the
        longest path has edges.
        """
        p, q = (self.node_of_class[codes].astype(np.int64) for codes in np.broadcast_arrays(a, b))
        shape, p, q = p.shape, p.ravel(), q.ravel()
        edges = np.zeros(len(p), np.int64)
        apart = np.flatnonzero(p != q)
        while len(apart):
            first, second = p[apart], q[apart]
            first_goes = self.depth[first] >= self.depth[second]
            p[apart] = np.where(first_goes, self.parent[first], first)
            q[apart] = np.where(first_goes, second, self.parent[second])
            edges[apart] += 1
            apart = apart[p[apart] != q[apart]]
        return edges.reshape(shape)

    def to_record(self) -> dict[str, Any]:
        """Return the tree as JSON: ``nodes``, and ``parents`` as numbers of nodes."""
        return {"nodes": self.nodes, "parents": self.parent.tolist()}

    @classmethod
    def from_record(cls, record: Any, classes: Sequence[str], *, where: str = "tree") -> Self:
        """Return the tree of a record; raise `InputError` unless `to_record` can have made it."""
        nodes, parents = (
            (record.get("nodes"), record.get("parents")) if isinstance(record, dict) else (None, None)
        )
        if not (
            isinstance(nodes, list)
            and isinstance(parents, list)
            and len(nodes) == len(parents) > 1
            and all(type(name) is str for name in nodes)
            and len(set(nodes)) == len(nodes)
            and parents[0] == -1
            and all(type(p) is int and 0 <= p < v for v, p in enumerate(parents[1:], 1))
        ):
            raise InputError(f"{where}: not the record of a tree")
        named = {nodes[v]: nodes[p] for v, p in enumerate(parents) if v}
        return cls(named, classes, where=where)


def read_tree(source: Any, classes: Sequence[str]) -> ClassTree:
    """Read a tree of classes.

    Parameters
    ----------
    source : path, mapping of str to str, or ClassTree
        The parent of each node but the root: a mapping, or a text file with a child and its parent a line,
        separated by white space, or by a tab if names contain blanks. Lines that begin with ``#`` are
        comments.
    classes : sequence of str

    Raises
    ------
    InputError
        If the file cannot be read, a line has not two names, a node has two parents, or as in `ClassTree`.
    """
    if isinstance(source, ClassTree):
        return ClassTree.from_record(source.to_record(), classes)
    if isinstance(source, Mapping):
        return ClassTree({class_name(child): class_name(parent) for child, parent in source.items()}, classes)
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"tree: {source!r:.40} is neither a file nor a mapping of the nodes to their parents"
        )
    path = Path(source)
    try:
        with durable.open_file(path, follow=True) as file:
            text = file.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {_reason(error)}") from None
    parents: dict[str, str] = {}
    lines: dict[str, int] = {}
    for line, content in enumerate(text.split("\n"), 1):
        content = content.strip()
        if not content or content.startswith("#"):
            continue
        names = [name.strip() for name in content.split("\t")] if "\t" in content else content.split()
        if len(names) != 2 or "" in names:
            raise InputError(
                f"{path}, line {line}: {len(names)} names, where a child and its parent are expected",
                remedy=Remedy("separate them by one tab if names contain blanks"),
            )
        child, parent = names
        if parents.get(child, parent) != parent:
            first, second = (f"{printable(name)!r:.60}" for name in (parents[child], parent))
            raise InputError(
                f"{path}, line {line}: {printable(child)!r:.60} has the parent {second}, and in line "
                f"{lines[child]} the parent {first}"
            )
        parents[child] = parent
        lines.setdefault(child, line)
    return ClassTree(parents, classes, where=str(path), lines=lines)


def _preorder(names: list[str], parents: list[int], where: str, lines: Mapping[str, int]) -> list[int]:
    """Return the nodes in preorder; raise `InputError` unless they are one tree."""
    roots = [v for v, parent in enumerate(parents) if parent < 0]
    if len(roots) > 1:
        first, second = (f"{printable(names[v])!r:.60}" for v in roots[:2])
        raise InputError(
            f"{where}: the nodes {first} and {second} have no parent",
            remedy=Remedy("give all but one of such nodes a parent"),
        )
    children: list[list[int]] = [[] for _ in names]
    for v, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(v)
    order, stack = [], roots
    while stack:
        v = stack.pop()
        order.append(v)
        stack.extend(reversed(children[v]))
    if len(order) < len(names):  # the ancestors of a node that the root does not reach end in a circle
        reached = set(order)
        v = next(v for v in range(len(names)) if v not in reached)
        seen: set[int] = set()
        while v not in seen:
            seen.add(v)
            v = parents[v]
        circle = [v]
        while parents[circle[-1]] != v and len(circle) < _SHOWN_NAMES:
            circle.append(parents[circle[-1]])
        line = f", line {lines[names[v]]}" if names[v] in lines else ""
        shown = " -> ".join(f"{printable(names[node])!r:.60}" for node in circle)
        end = f"{printable(names[v])!r:.60}" if parents[circle[-1]] == v else "..."
        raise InputError(
            f"{where}{line}: the parents of {printable(names[v])!r:.60} form a circle: {shown} -> {end}"
        )
    return order
