"""Columns by which rows are held out together, read as labels are."""

from __future__ import annotations

import os

import numpy as np

from streamsvm.base.text import absolute
from streamsvm.data.groups import check_hashes, group_hashes
from streamsvm.errors import StoreError
from streamsvm.store.container import Container
from streamsvm.store.label_file import FileLabels, open_labels
from streamsvm.store.obs_columns import DataFrameColumn, LabelColumn, column_names, listed
from streamsvm.store.ranges import Ranges, number_at
from streamsvm.store.store import Columns


class GroupColumn:
    """The hashes of a column of values, or of a file with one a line.

    Parameters
    ----------
    values : LabelColumn or FileLabels
        The values, as labels.
    name : str
        Name of the column, or path of the file.
    where : str
        Their place in messages.

    Attributes
    ----------
    nbytes : int
    """

    def __init__(self, values: LabelColumn | FileLabels, name: str, where: str) -> None:
        self.name = name
        self._values, self._where = values, where
        self._hashes = np.append(group_hashes(values.classes), -1)  # the last one serves code -1
        self.nbytes = self._hashes.nbytes + (values.nbytes if isinstance(values, FileLabels) else 0)

    def columns(self, ranges: Ranges) -> Columns:
        """Return `hold_out_by` of ranges of rows; raises `InputError` if a value is missing."""
        hashes = self._hashes[self._values.columns(ranges)["labels"]]
        check_hashes(hashes, lambda row: f"{self._where}: row {number_at(ranges, row) + 1}")
        return {"hold_out_by": hashes}


def open_groups(container: Container, name: str | None, n_rows: int) -> GroupColumn | None:
    """Open a column of ``obs``; of a matrix, a file with one value a line, or what is stored beside it."""
    if name is None:
        return None
    if container.is_matrix:
        if os.path.isfile(name):
            name = absolute(name)  # a run goes on from any folder
            values = open_labels(container, n_rows, None, name, {"labels_as": "text"})
            return GroupColumn(values, name, name)
        values = open_labels(container, n_rows, name, None, {})
        return GroupColumn(values, name, f"{container.path}, {name!r}")
    columns = column_names(container, "obs")
    if name not in columns:
        what = f"obs has no column {name!r} to hold out by; it has {listed(columns)}"
        raise StoreError(f"{container.path}: {what}")
    column = LabelColumn(DataFrameColumn(container, "obs", name, n_rows), n_rows)
    return GroupColumn(column, name, f"{container.path}, obs column {name!r}")
