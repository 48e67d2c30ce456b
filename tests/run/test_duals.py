"""Files of duals: round trips, blocks of other sizes, damaged and hostile files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import dense_duals
from run_files import files_of_duals, kept_duals

from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.errors import RunError
from streamsvm.kernels.duals import RowDuals
from streamsvm.run.directory import RunDir
from streamsvm.run.duals import DualFile, DualFormat, PassDuals
from streamsvm.run.sums import write_summed

K, ROWS = 300, 20
VALUES, IDS = np.dtype(np.float32), dual_id_dtype(K)
FORMAT = DualFormat(VALUES, IDS, K, K - 1)


def listed(rows: np.ndarray, duals: np.ndarray) -> RowDuals:
    """The duals of some rows, as a visit leaves them."""
    at, ids = np.nonzero(duals[rows])
    counts = np.bincount(at, minlength=len(rows)).astype(np.int32)
    return RowDuals(rows.astype(np.int32), counts, ids.astype(IDS), duals[rows][at, ids])


def write(folder: Path, blocks: int = 3, **options) -> tuple[np.ndarray, PassDuals]:
    """Blocks in random order, each in two parts; returns the duals of all rows, and what holds them."""
    rng = np.random.default_rng(0)
    made = PassDuals(FORMAT, RunDir(folder), 1, **options)
    n = blocks * ROWS
    duals = (rng.random((n, K)) * (rng.random((n, K)) < 0.02)).astype(VALUES)
    for block in rng.permutation(blocks).tolist():
        order = rng.permutation(ROWS)
        for part in (order[:7], order[7:]):
            made.append_duals(block * ROWS, listed(part, duals[block * ROWS :]))
    return duals, made


@pytest.mark.parametrize(
    ("held", "n_files"), [(0, 6), (1000, 5), (10**9, 3)], ids=["files", "both", "memory"]
)
def test_duals_come_back_for_blocks_of_any_size(tmp_path: Path, held: int, n_files: int) -> None:
    duals, made = write(tmp_path, held_bytes=held)
    assert bool(files_of_duals(tmp_path, 1)) == (held < 10**9)

    def check(source: PassDuals) -> None:
        for begin, end in ((0, 20), (20, 40), (40, 60), (0, 60), (20, 60)):
            found = dense_duals(source.segment(begin, end - begin), K)
            np.testing.assert_array_equal(found, duals[begin:end])
        assert not source.segment(60, 20).counts.any()

    check(made)
    assert len(made.commit()) == len(files_of_duals(tmp_path, 1)) == n_files
    check(made)
    check(kept_duals(tmp_path, 1, FORMAT))


def test_memory_that_was_emptied_is_used_again(tmp_path: Path) -> None:
    part = listed(np.arange(ROWS), np.ones((ROWS, 2), VALUES))
    made = PassDuals(FORMAT, RunDir(tmp_path), 1, held_bytes=2 * sum(array.nbytes for array in part))
    for _ in range(6):  # two are in memory, and go to one file when the third does
        made.append_duals(0, part)
    assert len(files_of_duals(tmp_path, 1)) == len(made.files) == 4


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

    def read(sizes: list[int], rows: list[int], counts: list[int], ids: list[int]) -> np.ndarray:
        path = tmp_path / "duals-1-0-0.bin"
        arrays = (
            np.array(sizes), np.array(rows, np.int32), np.array(counts, np.int32),
            np.full(len(ids), 0.5, VALUES), np.array(ids, IDS),
        )  # fmt: skip
        file = DualFile(0, 0, write_summed(path, arrays))
        return PassDuals(FORMAT, RunDir(tmp_path), 1, (file,)).segment(0, 20).counts

    for rows, counts, ids in IMPOSSIBLE:
        with pytest.raises(RunError, match=r"damaged: (its numbers are not valid|a row contains a class)"):
            read([len(rows), len(ids)], rows, counts, ids)
    for rows, counts, ids in (([0, 1], [2, 2], [0, 1, 1, 0]), ([0], [K - 1], list(range(K - 1)))):
        assert read([len(rows), len(ids)], rows, counts, ids)[: len(rows)].tolist() == counts
    for sizes in ([2**60, 1], [1, 2**60], [-1, 1], [1, -5], [2**62, 2**62], [1]):
        with pytest.raises(RunError, match="is damaged: its sizes are not valid"):
            read(sizes, [], [], [])
