"""Groups of rows, such as the tokens of a sequence: rows that stand together and have one ``qid``."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.errors import Call, Option, Remedy, StreamsvmError

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
