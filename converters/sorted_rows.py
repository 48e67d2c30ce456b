"""External sort of the values of a matrix by row and column, in bounded memory.

Values go to files by ranges of rows that each fit into memory; each file is then sorted. The ranges follow
from the number of values of each row, which are counted before. So CSC and COO matrices are read as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.base.format import index_dtype

_MIN_RANGE_VALUES = 2**14  # values of a range at least: fewer would make many small files


class MatrixEntries(NamedTuple):
    """Values of a matrix, with the row and the column of each."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


class CsrRows(NamedTuple):
    """Consecutive rows of a matrix in CSR, from `start` on; dense ones have no indices."""

    start: int
    data: np.ndarray
    indices: np.ndarray | None
    indptr: np.ndarray


def sorted_rows(
    pieces: Callable[[], Iterator[MatrixEntries]],
    shape: tuple[int, int],
    dtype: np.typing.DTypeLike,
    folder: Path,
    limit: int,
    *,
    row_pieces: Callable[[], Iterator[np.ndarray]] | None = None,
) -> Iterator[CsrRows]:
    """Yield all rows of a matrix whose values come in any order; values of one place are summed in float64.

    Parameters
    ----------
    pieces : callable
        Returns the values in pieces, of which each may take as much memory as `limit`.
    shape : tuple of int
        Rows and columns, of which all rows and columns of the pieces are.
    dtype : dtype
        Of the values that are yielded.
    folder : Path
        Folder for temporary files, which take as many bytes as the values, rows and columns.
    limit : int
        Bytes of memory for a range of rows, about; a row is never divided. Beside it, 8 bytes a row.
    row_pieces : callable, optional
        Returns the rows of `pieces` alone, to be counted first.

    Yields
    ------
    CsrRows
        In their order, rows without values included; columns increase along a row.
    """
    dtype = np.dtype(dtype)
    counts = np.zeros(shape[0], np.int64)
    for rows in (piece.rows for piece in pieces()) if row_pieces is None else row_pieces():
        counts += np.bincount(rows, minlength=shape[0])
    record = np.dtype([("row", index_dtype(shape[0])), ("column", index_dtype(shape[1])), ("value", dtype)])
    most = max(_MIN_RANGE_VALUES, limit // (4 * record.itemsize))  # the file, its order, and the sorted copy
    ends = np.cumsum(counts)
    starts = [0]
    while starts[-1] < shape[0]:
        before = ends[starts[-1] - 1] if starts[-1] else 0
        starts.append(max(starts[-1] + 1, int(np.searchsorted(ends, before + most, "right"))))
    files = [folder / f"range-{number:06d}" for number in range(len(starts) - 1)]
    for piece in pieces():
        _spread(piece, np.array(starts), files, record)
    for number, path in enumerate(files):
        first, stop = starts[number : number + 2]
        found = np.fromfile(path, record) if path.exists() else np.empty(0, record)
        yield _part(found, first, stop, dtype)
        path.unlink(missing_ok=True)


def _spread(piece: MatrixEntries, starts: np.ndarray, files: list[Path], record: np.dtype) -> None:
    """Append the values of a piece to the files of their ranges."""
    number = np.searchsorted(starts, piece.rows, "right") - 1
    order = np.argsort(number, kind="stable")
    taken = np.empty(len(order), record)
    taken["row"], taken["value"] = piece.rows[order], piece.values[order]
    taken["column"] = piece.columns[order]
    found, begins = np.unique(number[order], return_index=True)
    for each, begin, end in zip(found.tolist(), begins, [*begins[1:], len(order)], strict=True):
        with files[each].open("ab") as file:  # opened anew: there may be more than a process can have open
            taken[begin:end].tofile(file)


def _part(found: np.ndarray, first: int, stop: int, dtype: np.dtype) -> CsrRows:
    """Sort the values of the rows ``first:stop`` and sum those of one place."""
    order = np.lexsort((found["column"], found["row"]))
    rows, columns, values = found["row"][order], found["column"][order], found["value"][order]
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    if not new.all():
        values = np.add.reduceat(values.astype(np.float64), np.flatnonzero(new)).astype(dtype)
        rows, columns = rows[new], columns[new]
    lengths = np.bincount(rows - first, minlength=stop - first)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return CsrRows(first, values, columns, indptr)
