"""A log of duals: `check`, then `DualLog`, whose numbers kernels rely on.

The first bytes choose the number of classes and which checksums are made right again; the rest is the log.
"""

from __future__ import annotations

import functools

import numpy as np
from fuzz import logs
from fuzz.workplace import allowed, folder

from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.errors import RunError
from streamsvm.kernels.duals import RowDuals
from streamsvm.run.append_log import LogEnd, check
from streamsvm.run.dual_log import MAGICS, DualFormat, DualLog, DualWriter

HEADER, CLASSES = 1, (2, 3, 5, 16, 17, 200, 300, 70_000)
N_ROWS, N_BLOCKS = 6, 3
MAX_BYTES = 1000
TOKENS = (
    *(b"SSVMDUAL", bytes(8), b"\x01" + bytes(7), b"\xff" * 8, b"\xff\xff\xff\x7f", b"\xff" * 7 + b"\x7f"),
    *(b"\x02\0\0\0", b"\x05\0\0\0", b"\x0f\0\0\0", bytes(4), b"\0\0\x80?", b"\0\0\0\0\0\0\xf0?"),
)


def run(data: bytes) -> None:
    if len(data) < 2:
        return
    flags, k, log = data[0], CLASSES[data[1] % len(CLASSES)], data[2:]
    dtype, ids_dtype = np.dtype("f4" if flags & 4 else "f8"), dual_id_dtype(k)
    if flags & HEADER:
        log = logs.with_checksums(log)
    path = folder("duals") / "duals-1.bin"
    path.write_bytes(log)
    length = len(log) + (1 if flags & 8 else 0)
    with allowed(RunError):
        check(path, length, MAGICS)
        read = DualLog(path, length, DualFormat(dtype, ids_dtype, 0, k, k - 1))
        for block in range(N_BLOCKS):
            _check_segment(read.segment(block, N_ROWS), k)


def _check_segment(old, k: int) -> None:
    """What a kernel relies on: everything inside its array, and in a row each class once at most."""
    for row in range(N_ROWS):
        count, ids_at, values_at = int(old.counts[row]), int(old.ids_at[row]), int(old.values_at[row])
        assert 0 <= count < k
        if count:
            assert 0 <= ids_at <= ids_at + count <= len(old.ids)
            assert 0 <= values_at <= values_at + count <= len(old.values)
            ids = old.ids[ids_at : ids_at + count].tolist()
            assert max(ids) < k
            assert len(set(ids)) == count, f"row {row} has a class twice: {ids}"


@functools.cache
def seeds() -> list[bytes]:
    found = []
    for flags in (0, 1, 4, 5):
        for choice, k in enumerate(CLASSES):
            dtype, ids_dtype = np.dtype("f4" if flags & 4 else "f8"), dual_id_dtype(k)
            path = folder("duals-seeds") / "duals-1.bin"
            log = DualWriter(path, LogEnd())
            for block, counts in ((1, (1, 0, min(k - 1, 8))), (0, (1, 1)), (1, (0,))):
                n = sum(counts)
                ids = np.concatenate([np.arange(count) for count in counts]).astype(ids_dtype)
                rows = np.arange(5, 5 - len(counts), -1, np.int32)
                values = np.full(n, 0.5, dtype)
                counted = np.array(counts, np.int32)
                log.append_duals(
                    block, RowDuals(rows, counted, ids, values, np.zeros((len(rows), 0), np.uint8))
                )
            log.close()
            found.append(bytes([flags, choice]) + path.read_bytes())
    return found
