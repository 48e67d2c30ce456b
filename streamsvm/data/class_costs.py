"""Read tables of misclassification costs, where Δ(y, j) is the cost of predicting class j for class y.

A table is a float32 array of shape (k, k) for k classes, with one row per true class. Costs are from 0 to
1e30, and 0 on the diagonal.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from streamsvm.base import durable
from streamsvm.base.label_values import class_name
from streamsvm.base.text import printable
from streamsvm.errors import InputError, Remedy

_LARGEST = 1e30  # far from overflow in float32


def read_costs(source: Any, classes: Sequence[str]) -> np.ndarray:
    """Read a cost table, float32 of shape (k, k), for k classes.

    Arrays and ``.npy`` files must follow the order of `classes`. Other files are read as CSV, with class
    names, in any order, in the first line and column. In a DataFrame, they are the index and the columns.

    Raises `InputError` if the table cannot be read or is not k by k, if it does not name each class once, or
    if a cost is invalid.
    """
    where, k = "costs", len(classes)
    names: list[list[str]] = []
    if isinstance(source, str | os.PathLike):
        where = str(source)
        if where.endswith(".npy"):
            source = _open_npy(where)
        else:
            source, *names = _read_csv(where)
    elif hasattr(source, "columns") and hasattr(source, "to_numpy"):
        names = [[class_name(name) for name in axis] for axis in (source.index, source.columns)]
    try:
        with np.errstate(over="ignore"):
            costs = np.array(source, np.float32, order="C")
    except (TypeError, ValueError):
        raise InputError(f"{where}: the costs are not a numeric table; use {k:,} x {k:,} numbers") from None
    if costs.shape != (k, k):
        size = " x ".join(f"{length:,}" for length in costs.shape) or "a single number"
        raise InputError(f"{where}: the table of costs is {size}, but {k:,} classes need {k:,} x {k:,}")
    if names:
        costs = costs[np.ix_(*(_positions(each, classes, where) for each in names))]
    check_costs(costs, classes, where)
    return costs


def check_costs(costs: np.ndarray, classes: Sequence[str], where: str) -> None:
    """Raise `InputError` unless `costs`, shape (k, k), is a valid table; the message begins with `where`."""
    bad = ~((costs >= 0) & (costs <= _LARGEST))
    np.fill_diagonal(bad, np.diagonal(costs) != 0)
    if bad.any():
        y, j = divmod(int(np.argmax(bad)), len(bad))
        predicted, true = (f"{printable(classes[c])!r:.60}" for c in (j, y))
        raise InputError(
            f"{where}: predicting {predicted} for a row of {true} costs {costs[y, j]:g}",
            remedy=Remedy("use costs from 0 to 1e30, and 0 for the correct class"),
        )


def _open_npy(path: str) -> np.ndarray:
    try:
        with durable.open_file(path, follow=True):  # only regular files
            return np.lib.format.open_memmap(path, mode="r")  # rejects object arrays, which are pickled
    except Exception as error:  # NumPy's header parser can raise any error
        cause = isinstance(error, OSError) and durable.reason(error)
        raise InputError(f"{path}: {cause or 'the file is truncated or not a numeric NumPy array'}") from None


def _read_csv(path: str) -> tuple[list[np.ndarray], list[str], list[str]]:
    """Return the values, the row names and the column names."""
    rows, names = [], []
    with _opened_text(path) as file:
        lines = csv.reader(file)
        columns = [name.strip() for name in next(lines, [])[1:]]
        for name, *fields in filter(None, lines):
            try:
                rows.append(np.array(fields, np.float32).reshape(len(columns)))
            except ValueError:
                where, n = f"{path}, line {lines.line_num}", f"{len(columns):,}"
                raise InputError(f"{where}: expected a name and {n} costs, one per name in line 1") from None
            names.append(name.strip())
    return rows, names, columns


def _positions(names: Sequence[str], classes: Sequence[str], where: str) -> list[int]:
    at = {name: position for position, name in enumerate(names)}
    for problem, wrong in ("is unknown", at.keys() - set(classes)), ("is missing", set(classes) - at.keys()):
        if wrong:
            raise InputError(f"{where}: the class {printable(min(wrong))!r:.60} {problem}")
    return [at[name] for name in classes]


@contextlib.contextmanager
def _opened_text(path: str | Path) -> Iterator[TextIO]:
    try:
        with durable.os_errors_as(InputError, path, "read"), durable.open_file(path, follow=True) as file:
            yield io.TextIOWrapper(file, "utf-8-sig", newline="")
    except UnicodeDecodeError:
        raise InputError(f"{path}: the file is not UTF-8 text") from None
    except csv.Error as error:
        raise InputError(f"{path}: {error}") from None


def lines_of(path: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """Yield (place for messages, stripped line) for each line of a file that is not blank or a comment."""
    with _opened_text(Path(path)) as file:
        for number, line in enumerate(file.read().split("\n"), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                yield f"{path}, line {number}", line.strip()


# -- trees -----------------------------------------------------------------------------------------


def read_tree(source: Any, classes: Sequence[str]) -> np.ndarray:
    """Compute a cost table from a class tree, where costs are the lengths of the paths between classes.

    `source` maps each node except the root to its parent, or is the path of a file. Each line of the file
    contains a child and its parent, separated by whitespace, or by a tab if names contain spaces. Inner
    nodes may be classes. Raises `InputError` if the file cannot be read, if a node has two parents, or if the
    classes are not in one tree.
    """
    if isinstance(source, Mapping):
        where, edges = "tree", [("tree", list(map(class_name, edge))) for edge in source.items()]
    else:
        where = str(source)
        edges = [
            (place, [name.strip() for name in line.split("\t" if "\t" in line else None)])
            for place, line in lines_of(where)
        ]
    parents: dict[str, str] = {}
    for place, names in edges:
        if len(names) != 2 or "" in names:
            raise InputError(
                f"{place}: expected a child and its parent, but found {len(names)} names",
                remedy=Remedy("separate child and parent by one tab if names contain spaces"),
            )
        child, parent = names
        if parents.setdefault(child, parent) != parent:
            first, second = (f"{printable(name)!r:.60}" for name in (parents[child], parent))
            raise InputError(f"{place}: {printable(child)!r:.60} has two parents, {first} and {second}")
    paths: list[list[str]] = []  # path from the root to each class
    for name in classes:
        path = [name]
        while path[0] in parents:
            path.insert(0, parents[path[0]])
            if len(path) > len(parents) + 1:
                raise InputError(f"{where}: the parents of {printable(path[0])!r:.60} form a cycle")
        paths.append(path)
        if path[0] != paths[0][0]:
            first, second = (f"{printable(each[0])!r:.60}" for each in (paths[0], path))
            raise InputError(
                f"{where}: the nodes {first} and {second} have no parent",
                remedy=Remedy("add a parent for every node except the root"),
            )
    lengths = np.array([len(path) for path in paths], np.float32)
    costs: np.ndarray = lengths[:, None] + lengths
    numbers: dict[str, int] = {}
    for level in range(int(lengths.max())):
        at = [
            numbers.setdefault(path[level], len(numbers)) if level < len(path) else -1 - c
            for c, path in enumerate(paths)
        ]
        np.subtract(costs, 2, out=costs, where=np.equal.outer(at, at))
    np.fill_diagonal(costs, 0.0)
    return costs
