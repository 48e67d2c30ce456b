"""Form batches of whole groups of rows (`qid:`), and detect groups that begin twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.data.rows import Rows, joined_rows, row_span
from streamsvm.errors import InputError, Option, PlanError, Remedy

_LINE_BITS = 40  # low bits for the line, in an integer that combines input and line
_BYTES_PER_GROUP = 64  # number, line, and temporary arrays of `check`


class GroupStarts:
    """Record of the first line of each group, to detect groups that begin twice; `memory` limits its size."""

    def __init__(self, memory: int) -> None:
        self.count = 0
        self._memory = memory
        self._last = -1
        self._groups: list[np.ndarray] = []
        self._places: list[np.ndarray] = []

    def add(self, qid: np.ndarray, source: int, lines: np.ndarray) -> None:
        """Add the group numbers `qid` of the next rows, which are on the given `lines` of input `source`."""
        first = np.flatnonzero(np.diff(qid, prepend=self._last))
        if len(first) == 0:
            return
        self._last = int(qid[-1])
        self.count += len(first)
        self._groups.append(qid[first])
        self._places.append((np.int64(source) << _LINE_BITS) + lines[first])
        if self.count * _BYTES_PER_GROUP > self._memory:
            raise PlanError(
                f"there are already {self.count:,} groups of rows, too many for the memory limit",
                needed_memory=2 * self.count * _BYTES_PER_GROUP,
            )

    def check(self, inputs: list[str]) -> None:
        """Raise `InputError` if a group begins twice; `inputs` are the names of the inputs."""
        if self.count == 0:
            return
        groups, places = np.concatenate(self._groups), np.concatenate(self._places)
        repeated = np.setdiff1d(np.arange(self.count), np.unique(groups, return_index=True)[1])
        if len(repeated) == 0:
            return
        group = groups[repeated[0]]
        place, first_place = places[repeated[0]], places[np.argmax(groups == group)]
        where = [f"{inputs[at >> _LINE_BITS]}, line {at % 2**_LINE_BITS}" for at in (place, first_place)]
        raise InputError(
            f"{where[0]}: the group qid:{group} begins again after other rows, but it already began in "
            f"{where[1]}; put the rows of each group together"
        )


def whole_groups(batches: Iterator[Rows], memory: int) -> Iterator[Rows]:
    """Yield batches of whole groups. The rows of a group are held back until the next group begins.

    Raises `PlanError` if the rows held back come from several batches and take more than `memory` / 2 bytes.
    """
    waiting: list[Rows] = []
    size = 0
    for rows in batches:
        qid = rows.qid
        if waiting and qid[0] != waiting[-1].qid[-1]:
            yield joined(waiting)
            waiting, size = [], 0
        begins = np.flatnonzero(qid[1:] != qid[:-1]) + 1
        if len(begins):
            last = int(begins[-1])
            yield joined([*waiting, row_span(rows, 0, last)])
            rows = row_span(rows, last, rows.n_rows)
            waiting, size = [], 0
        waiting.append(rows)
        size += rows.nbytes
        if 2 * size > memory and len(waiting) > 1:
            raise PlanError(
                f"the group qid:{rows.qid[0]} already has {sum(batch.n_rows for batch in waiting):,} rows, "
                "too many for the memory limit",
                remedy=Remedy("check that qid names groups of rows and, if so, raise {}", Option("memory")),
            )
    if waiting:
        yield joined(waiting)


def joined(parts: list[Rows]) -> Rows:
    """Join batches into one, and empty the list `parts` along the way to save memory."""
    return parts.pop() if len(parts) == 1 else joined_rows(parts.pop(0) for _ in range(len(parts)))
