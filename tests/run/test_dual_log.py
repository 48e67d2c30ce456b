"""The log of duals: round trips, what damage does, and what a hostile log may not do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import dense_duals
from run_files import flip

from streamsvm.base.format import DUALS_MAGIC
from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.errors import RunError
from streamsvm.kernels.duals import RowDuals
from streamsvm.run.append_log import LogEnd
from streamsvm.run.dual_log import DualFormat, DualLog, DualWriter

K = 300
VALUES, IDS = np.dtype(np.float32), dual_id_dtype(K)


def open_log(path: Path, end: LogEnd) -> DualLog:
    return DualLog(path, end.length, DualFormat(VALUES, IDS, K, K - 1))


def fill(buffer, rows: np.ndarray, duals: np.ndarray) -> None:
    """What a kernel would leave in the buffer after visiting `rows`."""
    buffer.used[:] = 0
    for row in rows:
        ids = np.flatnonzero(duals[row])
        at, r = buffer.used
        buffer.ids[at : at + len(ids)], buffer.values[at : at + len(ids)] = ids, duals[row, ids]
        buffer.rows[r], buffer.counts[r] = row, len(ids)
        buffer.used[:] = at + len(ids), r + 1


def write_log(path: Path, blocks: int = 3, n_rows: int = 20) -> tuple[list[np.ndarray], LogEnd]:
    """A log with blocks in random order, each in two parts; returns the duals of each block, and its end."""
    rng = np.random.default_rng(0)
    log = DualWriter(path, LogEnd())
    buffer = DualFormat(VALUES, IDS).new_buffer(n_rows * K, n_rows)
    duals = [
        (rng.random((n_rows, K)) * (rng.random((n_rows, K)) < 0.02)).astype(VALUES) for _ in range(blocks)
    ]
    for block in rng.permutation(blocks):
        order = rng.permutation(n_rows)
        for part in (order[: n_rows // 3], order[n_rows // 3 :]):
            fill(buffer, part, duals[block])
            log.append_duals(int(block), RowDuals.of_buffer(buffer))
    log.close()
    return duals, log.end


def read_block(log: DualLog, block: int) -> np.ndarray:
    return dense_duals(log.segment(block, 20), K)


def test_duals_come_back(tmp_path: Path) -> None:
    path = tmp_path / "duals-1.bin"
    duals, end = write_log(path)
    log = open_log(path, end)
    for block, expected in enumerate(duals):
        np.testing.assert_array_equal(read_block(log, block), expected)
    assert not read_block(log, 99).any()


def test_a_log_that_goes_on_holds_the_duals_of_before(tmp_path: Path) -> None:
    path = tmp_path / "duals-1.bin"
    duals, end = write_log(path)
    buffer = DualFormat(VALUES, IDS).new_buffer(20 * K, 20)
    fill(buffer, np.arange(20), duals[0])
    with DualWriter(path, end) as log:
        log.append_duals(3, RowDuals.of_buffer(buffer))
    again = open_log(path, log.end)
    np.testing.assert_array_equal(read_block(again, 3), duals[0])
    np.testing.assert_array_equal(read_block(again, 2), duals[2])


def test_damage_is_found_when_a_block_is_read(tmp_path: Path) -> None:
    path = tmp_path / "duals-1.bin"
    _, end = write_log(path)
    flip(path)
    log = open_log(path, end)
    with pytest.raises(RunError, match=r"duals-1\.bin is damaged: wrong checksum"):
        [log.segment(block, 20) for block in range(3)]


def write_part(path: Path, rows: list[int], counts: list[int], ids: list[int]) -> LogEnd:
    """A log of one part with these numbers, sealed."""
    values = np.full(len(ids), 0.5, VALUES)
    duals = RowDuals(np.array(rows, np.int32), np.array(counts, np.int32), np.array(ids, IDS), values)
    with DualWriter(path, LogEnd()) as log:
        log.append_duals(0, duals)
    return log.end


IMPOSSIBLE = [  # rows, counts and ids
    ([-1], [1], [0]),
    ([20], [1], [0]),
    ([0], [-1], [0]),
    ([0, 1], [2, 1], [0, 1]),
    ([0], [1], [K]),
    ([0, 1], [2, 2], [0, 1, 1, 1]),  # a class twice in a row
    ([0], [K], list(range(K))),  # more duals than kernels have room for
]


def test_impossible_numbers_are_refused(tmp_path: Path) -> None:
    """All checksums match: kernels rely on the numbers."""
    path = tmp_path / "log"
    for part in IMPOSSIBLE:
        end = write_part(path, *part)
        with pytest.raises(RunError, match=r"log is damaged: (impossible numbers|two duals of one class)"):
            open_log(path, end).segment(0, 20)
    for part in (([0, 1], [2, 2], [0, 1, 1, 0]), ([0], [K - 1], list(range(K - 1)))):
        end = write_part(path, *part)
        assert open_log(path, end).segment(0, 2).counts[: len(part[1])].tolist() == part[1]
    for n_rows, n_entries in (2**60, 1), (1, 2**60), (-1, 1), (1, -5), (2**62, 2**62):
        with DualWriter(path, LogEnd()) as log:
            log.append(DUALS_MAGIC, (0, n_rows, n_entries), [np.zeros(8)])
        with pytest.raises(RunError, match="log is damaged: impossible sizes"):
            open_log(path, log.end).segment(0, 20)
