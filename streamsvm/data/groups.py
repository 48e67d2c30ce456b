"""Groups of rows: sequences of adjacent rows with one ``qid``, and rows that are held out together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from streamsvm.base.label_values import class_name, is_missing
from streamsvm.data.checks import first_false
from streamsvm.data.names import column_of
from streamsvm.errors import Call, InputError, Option, Remedy, StreamsvmError

# Remedy when a loss or model of sequences gets rows without groups.
GIVE_GROUPS = Remedy(
    "convert LIBSVM text with {}, or, in Python, give groups for a matrix or AnnData in memory",
    Call("convert", options=(Option("groups"),)),
)


def group_starts(qid: np.ndarray) -> np.ndarray:
    """Return the first row of each group, followed by the number of rows."""
    return np.concatenate([np.flatnonzero(np.diff(qid, prepend=qid[:1] - 1)), [len(qid)]])


def in_group_order(qid: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return all row numbers with the groups in `order`; rows keep their order within a group."""
    starts = group_starts(qid)
    sizes = np.diff(starts)[order]
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts[:-1][order] - before, sizes) + np.arange(len(qid))


def codes_of_groups(groups: Any, n_rows: int, error: type[StreamsvmError]) -> np.ndarray:
    """Convert one group value per row to ``qid``: 0, 1, ... in row order.

    Raises `error` if the number of values is wrong, a value is missing, or the rows of a group are not
    adjacent.
    """
    names = np.asarray(groups)
    if names.shape != (n_rows,):
        raise error(f"groups has the shape {names.shape}; give one group for each of the {n_rows:,} rows")
    try:
        missing = names != names
        if np.any(missing):
            raise error(f"groups[{int(np.argmax(missing))}] is missing; give one group for each row")
        _, first, qid = np.unique(names, return_index=True, return_inverse=True)
    except TypeError:
        raise error("groups has values that cannot be compared; give numbers or texts alone") from None
    starts = group_starts(qid)
    if len(starts) - 1 > len(first):
        again = next(at for at in starts[:-1].tolist() if at != first[qid[at]])
        raise error(
            f"group {names[again]} comes twice, as groups[{first[qid[again]]}] and groups[{again}]: the rows "
            "of a group must stand together"
        )
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def group_hash(value: Any) -> int:
    """Hash the text of a value to 0..2**63 - 1; return -1 for a missing value.

    Equal values in different files or of different types have equal hashes.
    """
    if is_missing(value) or value == "":
        return -1
    text = class_name(value).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def group_hashes(values: Iterable[Any]) -> np.ndarray:
    return np.array(list(map(group_hash, values)), np.int64)


def check_hashes(hashes: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
    """Return the hashes; raise `InputError` at the `place` of the first row whose hash is -1."""
    if (row := first_false(hashes >= 0)) is not None:
        raise InputError(f"{place(row)} has no text or number to hold out by; give it one, or leave it out")
    return hashes


def row_hashes(X: Any, values: Any, n_rows: int) -> np.ndarray:
    """Return the hash of the hold-out value of each row.

    `values` may name a column of a DataFrame, or of ``obs`` of AnnData.
    """
    found = np.asarray(column_of(X, values, of_frame=True))
    if found.shape != (n_rows,):
        raise InputError(f"hold_out_by has the shape {found.shape}, and X has {n_rows:,} rows")
    return check_hashes(group_hashes(found.tolist()), lambda row: f"X: row {row + 1}")
