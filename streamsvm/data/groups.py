"""Groups of rows: sequences, whose rows stand together and have one ``qid``; and rows held out together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from streamsvm.base.label_values import class_name, is_missing
from streamsvm.data.checks import first_false
from streamsvm.data.names import column_of
from streamsvm.errors import Call, InputError, Option, Remedy, StreamsvmError

# What helps where a loss or model of sequences gets rows without groups.
GIVE_GROUPS = Remedy(
    "convert LIBSVM text with {}, or, in Python, give groups for a matrix or AnnData in memory",
    Call("convert", options=(Option("groups"),)),
)


def group_starts(qid: np.ndarray) -> np.ndarray:
    """Return the first row of each group, followed by the number of rows."""
    return np.concatenate([np.flatnonzero(np.diff(qid, prepend=qid[:1] - 1)), [len(qid)]])


def in_group_order(qid: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return all row numbers with the groups in `order`; the rows of each group keep their order."""
    starts = group_starts(qid)
    sizes = np.diff(starts)[order]
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts[:-1][order] - before, sizes) + np.arange(len(qid))


def codes_of_groups(groups: Any, n_rows: int, error: type[StreamsvmError]) -> np.ndarray:
    """Return given groups, one value for each row, as ``qid``: 0, 1, ... in the order of the rows.

    Raises `error` if there is not one for each row, one is missing, or the rows of a group do not stand
    together.
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
    """Return a hash of the text of a value, from 0 to 2**63 - 1; -1 for a missing value.

    Equal values of several files, or of several types, have equal hashes.
    """
    if is_missing(value) or value == "":
        return -1
    text = class_name(value).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def group_hashes(values: Iterable[Any]) -> np.ndarray:
    """Return the hash of each value, int64."""
    return np.array(list(map(group_hash, values)), np.int64)


def check_hashes(hashes: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
    """Return hashes of rows; raise `InputError`, which names the `place` of the row, if one is -1."""
    if (row := first_false(hashes >= 0)) is not None:
        raise InputError(f"{place(row)} has no text or number to hold out by; give it one, or leave it out")
    return hashes


def row_hashes(X: Any, values: Any, n_rows: int) -> np.ndarray:
    """Return the hashes of the values by which the rows of a matrix are held out.

    `values` may be the name of a column of a DataFrame, or of the ``obs`` of AnnData.
    """
    found = np.asarray(column_of(X, values, of_frame=True))
    if found.shape != (n_rows,):
        raise InputError(f"hold_out_by has the shape {found.shape}, and X has {n_rows:,} rows")
    return check_hashes(group_hashes(found.tolist()), lambda row: f"X: row {row + 1}")
