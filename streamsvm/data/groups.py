"""Find groups of rows: sequences of adjacent rows with the same ``qid``, and rows to hold out together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from streamsvm.base.label_values import class_name, is_missing
from streamsvm.data.checks import first_false
from streamsvm.data.names import column_of
from streamsvm.errors import Call, InputError, Option, Remedy, StreamsvmError

# Remedy if rows without groups are passed to a loss or model for sequences.
GIVE_GROUPS = Remedy(
    "convert LIBSVM text with {}, or, in Python, pass groups with a matrix or AnnData in memory",
    Call("convert", options=(Option("groups"),)),
)


def group_starts(qid: np.ndarray) -> np.ndarray:
    """Return the first row of each group, followed by the number of rows."""
    return np.concatenate([np.flatnonzero(np.diff(qid, prepend=qid[:1] - 1)), [len(qid)]])


def in_group_order(qid: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return all row numbers, with the groups arranged in `order`; rows keep their order within a group."""
    starts = group_starts(qid)
    sizes = np.diff(starts)[order]
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts[:-1][order] - before, sizes) + np.arange(len(qid))


def codes_of_groups(groups: Any, n_rows: int, error: type[StreamsvmError]) -> np.ndarray:
    """Convert the group of each row to its ``qid``; groups are numbered 0, 1, ... in row order.

    Raises `error` if the shape is wrong, a value is missing, or the rows of a group are not adjacent.
    """
    names = np.asarray(groups)
    if names.shape != (n_rows,):
        raise error(f"groups has the shape {names.shape}; pass one group for each of the {n_rows:,} rows")
    try:
        missing = names != names
        if np.any(missing):
            raise error(f"groups[{int(np.argmax(missing))}] is missing; pass one group for each row")
        _, first, qid = np.unique(names, return_index=True, return_inverse=True)
    except TypeError:
        raise error("groups has values that cannot be compared; use only strings or only numbers") from None
    starts = group_starts(qid)
    if len(starts) - 1 > len(first):
        again = next(at for at in starts[:-1].tolist() if at != first[qid[at]])
        raise error(
            f"group {names[again]} occurs twice, at groups[{first[qid[again]]}] and groups[{again}]; the "
            "rows of a group must be adjacent"
        )
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def group_hash(value: Any) -> int:
    """Hash a value, as text, to a number from 0 to 2**63 - 1; return -1 for a missing value.

    Equal values have equal hashes, even if they have different types or are in different files.
    """
    if is_missing(value) or value == "":
        return -1
    text = class_name(value).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def group_hashes(values: Iterable[Any]) -> np.ndarray:
    return np.array(list(map(group_hash, values)), np.int64)


def check_hashes(hashes: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
    """Return `hashes`; raise `InputError` if a hash is -1. ``place(row)`` describes a row in the message."""
    if (row := first_false(hashes >= 0)) is not None:
        raise InputError(f"{place(row)} has no value in the hold-out column; add a value, or remove the row")
    return hashes


def row_hashes(X: Any, values: Any, n_rows: int) -> np.ndarray:
    """Return a hash of each row's hold-out value; `values` may name a column of a DataFrame or of ``obs``."""
    column = np.asarray(column_of(X, values, of_frame=True))
    if column.shape != (n_rows,):
        raise InputError(f"hold_out_by has the shape {column.shape}; pass one value per row ({n_rows:,})")
    return check_hashes(group_hashes(column.tolist()), lambda row: f"X: row {row + 1}")
