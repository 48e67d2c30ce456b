"""Divide the classes into groups with separate weight columns, and schedule pairs of groups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.weights import padded_classes


class ClassGroups(NamedTuple):
    """Groups of consecutive classes. The weight columns of each group start at a cache line.

    Therefore, threads that update different groups never write to the same cache line.
    """

    # (n_groups, 3) int64: first column of each group, end of its classes, end of its padding
    ranges: np.ndarray
    columns: np.ndarray  # (n_classes,) int64: column of each class
    groups: np.ndarray  # (n_columns,) int64: group of each column

    @property
    def n_columns(self) -> int:
        return len(self.groups)


def group_classes(counts: np.ndarray, n_groups: int, dtype: np.dtype) -> ClassGroups:
    """Divide the classes into groups of about equal cost; `counts` is the number of rows of each class.

    For a pair of groups, the rows of its classes are visited over the columns of its classes. The cost of a
    class is therefore its fraction of all rows plus its fraction of all classes.
    """
    k = len(counts)
    cost = counts / max(counts.sum(), 1) + 1.0 / k
    middle = np.cumsum(cost) - cost / 2
    bounds = np.searchsorted(middle, cost.sum() * np.arange(n_groups + 1) / n_groups)
    for g in range(1, n_groups):
        bounds[g] = min(max(bounds[g], bounds[g - 1] + 1), k - (n_groups - g))
    sizes = np.diff(bounds)
    widths = np.array([padded_classes(int(size), dtype) for size in sizes])
    first = np.cumsum(widths) - widths
    return ClassGroups(
        np.stack([first, first + sizes, first + widths], axis=1).astype(np.int64),
        np.concatenate([begin + np.arange(size) for begin, size in zip(first, sizes, strict=True)]),
        np.repeat(np.arange(n_groups), widths),
    )


def in_columns(rows: Rows, groups: ClassGroups) -> Rows:
    """Return the rows with their labels replaced by weight columns."""
    labels = np.append(groups.columns, -1)[rows.labels].astype(rows.labels.dtype)
    return rows._replace(labels=labels)


def tournament_rounds(n_groups: int) -> list[list[tuple[int, int]]]:
    """Return the rounds of a tournament of an even number of groups, in which each pair meets once.

    This is the circle method. Algorithm 5 of Alber et al. 2017 omits some pairs and repeats others.
    """
    circle = list(range(n_groups))
    rounds = []
    for _ in range(n_groups - 1):
        matches = zip(circle[: n_groups // 2], reversed(circle[n_groups // 2 :]), strict=True)
        rounds.append([(min(pair), max(pair)) for pair in matches])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds
