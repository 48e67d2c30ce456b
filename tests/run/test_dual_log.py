"""The log of duals: round trips, what damage does, and what a hostile log may not do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.errors import RunError
from streamsvm.run.dual_log import DualLog, check_log, make_pool, map_array, scan_log

K = 300
VALUES, IDS = np.dtype(np.float32), dual_id_dtype(K)


def open_log(path: Path, **options) -> DualLog:
    return DualLog(path, VALUES, IDS, K, **{"write": False, **options})


def fill(pool, rows: np.ndarray, duals: np.ndarray) -> None:
    """What a kernel would leave in the pool after visiting `rows`."""
    pool.used[:] = 0
    for row in rows:
        ids = np.flatnonzero(duals[row])
        at, r = pool.used
        pool.ids[at : at + len(ids)], pool.values[at : at + len(ids)] = ids, duals[row, ids]
        pool.rows[r], pool.counts[r] = row, len(ids)
        pool.used[:] = at + len(ids), r + 1


def write_log(path: Path, *, blocks: int = 3, n_rows: int = 20, seed: int = 0) -> list[np.ndarray]:
    """A log with blocks in random order, each in two parts; returns the duals of each block."""
    rng = np.random.default_rng(seed)
    log = open_log(path, write=True)
    pool = make_pool(n_rows * K, n_rows, VALUES, IDS)
    duals = [
        (rng.random((n_rows, K)) * (rng.random((n_rows, K)) < 0.02)).astype(VALUES) for _ in range(blocks)
    ]
    for block in rng.permutation(blocks):
        order = rng.permutation(n_rows)
        for part in (order[: n_rows // 3], order[n_rows // 3 :]):
            fill(pool, part, duals[block])
            log.append(int(block), pool)
            assert not pool.used.any()
    log.flush()
    log.close()
    return duals


def read_block(log: DualLog, block: int, n_rows: int = 20) -> np.ndarray:
    old = log.segment(block, n_rows)
    found = np.zeros((n_rows, K), VALUES)
    for row in range(n_rows):
        ids = old.ids[old.ids_at[row] : old.ids_at[row] + old.counts[row]]
        found[row, ids] = old.values[old.values_at[row] : old.values_at[row] + old.counts[row]]
    return found


def test_segments_come_back(tmp_path: Path) -> None:
    path = tmp_path / "duals-1.bin"
    duals = write_log(path)
    log = open_log(path, length=path.stat().st_size)
    for block, expected in enumerate(duals):
        np.testing.assert_array_equal(read_block(log, block), expected)
    assert not read_block(log, 99).any()


def test_what_follows_the_committed_length_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "duals-1.bin"
    duals = write_log(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b"half a segment")
    log = open_log(path, length=len(whole), write=True)
    assert path.stat().st_size == len(whole)
    pool = make_pool(20 * K, 20, VALUES, IDS)
    fill(pool, np.arange(20), duals[0])
    log.append(3, pool)
    log.close()
    assert path.read_bytes()[: len(whole)] == whole
    assert log.length == path.stat().st_size
    again = open_log(path, length=log.length)
    np.testing.assert_array_equal(read_block(again, 3), duals[0])


def test_any_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "duals-1.bin"
    write_log(path)
    whole = path.read_bytes()
    check_log(path, len(whole), VALUES, IDS)
    rng = np.random.default_rng(1)
    for at in rng.integers(len(whole), size=200):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"duals-1\.bin"):
            check_log(path, len(whole), VALUES, IDS)
    path.write_bytes(whole[:-1])
    with pytest.raises(RunError, match="cut short"):
        check_log(path, len(whole), VALUES, IDS)


@pytest.mark.parametrize(
    ("rows", "counts", "ids"),
    [
        ([-1], [1], [0]),
        ([20], [1], [0]),
        ([0], [-1], [0]),
        ([0, 1], [2, 1], [0, 1]),
        ([0], [1], [K]),
    ],
)
def test_a_log_that_was_never_ours_is_refused(tmp_path: Path, rows, counts, ids) -> None:
    """Checksums hold, numbers are outside: compiled code must not see them."""
    path = tmp_path / "duals-1.bin"
    log = open_log(path, write=True)
    pool = make_pool(8, 8, VALUES, IDS)
    pool.rows[: len(rows)], pool.counts[: len(rows)], pool.ids[: len(ids)] = rows, counts, ids
    pool.values[:] = 1
    pool.used[:] = len(ids), len(rows)
    log.append(0, pool)
    log.close()
    with pytest.raises(RunError, match="block 0"):
        open_log(path, length=log.length).segment(0, 20)


@pytest.mark.parametrize(("n_rows", "n_entries"), [(2**60, 1), (1, 2**60), (-1, 1), (1, -5), (2**62, 2**62)])
def test_a_header_of_impossible_size_is_refused(tmp_path: Path, n_rows: int, n_entries: int) -> None:
    import zlib

    from streamsvm.run.dual_log import _HEADER

    path = tmp_path / "duals-1.bin"
    header = _HEADER.pack(b"SSVMDUAL", 0, n_rows, n_entries, 0, 0)[:-4]
    path.write_bytes(header + zlib.crc32(header).to_bytes(4, "little") + bytes(64))
    with pytest.raises(RunError, match="no whole segment"):
        list(scan_log(path, path.stat().st_size, VALUES, IDS))


def test_new_arrays_are_zero_and_take_no_disk(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"left over")
    fresh = map_array(path, (2**33, 16), np.dtype(np.float32))  # half a terabyte
    assert type(fresh) is np.ndarray
    assert fresh[0, 0] == fresh[2**32, 3] == 0
    assert path.stat().st_blocks * 512 < 2**20
    fresh[2**32, 3] = 1.5
    assert np.memmap(path, np.float32, "r")[2**36 + 3] == 1.5


def test_a_row_with_more_duals_than_other_classes_is_refused(tmp_path: Path) -> None:
    """Compiled code has room for one dual a class: a log that says more, though sealed, is not ours."""
    log = open_log(tmp_path / "duals.bin", write=True)
    pool = make_pool(K, 1, VALUES, IDS)
    pool.ids[:], pool.values[:], pool.rows[0], pool.counts[0] = np.arange(K), 1, 0, K
    pool.used[:] = K, 1
    log.append(0, pool)
    log.flush()
    log.close()
    with pytest.raises(RunError, match="does not belong to this run"):
        open_log(tmp_path / "duals.bin", length=log.length, write=False).segment(0, 1)


def test_a_log_with_a_class_twice_in_a_row_is_refused(tmp_path: Path) -> None:
    """A row's candidates would outgrow the scratch: the repeated ones and all other classes."""
    log = open_log(tmp_path / "duals.bin", write=True)
    pool = make_pool(4, 2, VALUES, IDS)
    pool.ids[:], pool.values[:], pool.rows[:], pool.counts[:], pool.used[:] = [0, 1, 1, 0], 0.5, [0, 1], 2, 4
    pool.used[1] = 2
    log.append(0, pool)  # class 1 in two rows
    pool.ids[:], pool.used[:] = [0, 1, 1, 1], (4, 2)
    log.append(1, pool)
    log.flush()
    log.close()
    log = open_log(tmp_path / "duals.bin", length=log.length, write=False)
    assert log.segment(0, 2).counts.tolist() == [2, 2]
    with pytest.raises(RunError, match="block 1 does not belong to this run"):
        log.segment(1, 2)
