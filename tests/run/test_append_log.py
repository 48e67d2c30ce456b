"""The append-only log: parts come back, damage is found, and only what is committed counts."""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from streamsvm.base.format import LOG_HEADER
from streamsvm.errors import RunError
from streamsvm.run.append_log import AppendLog, LogEnd, check, mapped, scan

MAGIC = b"SSVMTEST"
ARRAYS = [np.arange(5, dtype=np.int32), np.zeros(0, np.uint8), np.arange(3, dtype=np.float64) / 4]


def write(path: Path, parts: int = 4) -> list[LogEnd]:
    """A log of several parts; returns where each ends."""
    ends = []
    with AppendLog(path, LogEnd()) as log:
        for number in range(parts):
            log.append(MAGIC, (number, -number, 7), [array + number for array in ARRAYS])
            ends.append(log.end)
    return ends


def test_arrays_come_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    end = write(path)[-1]
    content = mapped(path, end.length)
    for number, part in enumerate(scan(path, end.length)):
        assert part.numbers == (number, -number, 7)
        begins = part.offsets(*(array.nbytes for array in ARRAYS))
        for begin, array in zip(begins, ARRAYS, strict=True):
            assert begin % 8 == 0
            found = content[begin : begin + array.nbytes].view(array.dtype)
            np.testing.assert_array_equal(found, array + number)
    assert number == 3


def test_the_digest_chains_the_headers(tmp_path: Path) -> None:
    """Computed from the file alone; a payload has neither magic number."""
    path = tmp_path / "log"
    ends = write(path)
    expected = b""
    headers = [MAGIC + piece[: LOG_HEADER.size - 8] for piece in path.read_bytes().split(MAGIC)[1:]]
    for header, end in zip(headers, ends, strict=True):
        expected = hashlib.sha256(expected + header).digest()
        assert end.digest == expected.hex()
        assert check(path, end.length) == end
    assert ends[-1].length == path.stat().st_size
    assert check(path, 0) == LogEnd()


def test_what_follows_the_committed_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    end = write(path)[1]
    committed = path.read_bytes()[: end.length]
    with path.open("ab") as file:
        file.write(b"half a part")
    with AppendLog(path, end) as log:
        assert path.stat().st_size == end.length
        log.append(MAGIC, (1, 2, 3), ARRAYS)
    assert path.read_bytes()[: end.length] == committed
    assert check(path, log.end.length) == log.end


def test_an_end_of_0_begins_a_new_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path)
    AppendLog(path, LogEnd()).close()
    assert path.stat().st_size == 0


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    end = write(path, 2)[-1]
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"log is damaged: (wrong checksum|no whole part)"):
            check(path, end.length)


def test_a_log_cut_short_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    ends = write(path)
    os.truncate(path, ends[-1].length - 1)
    with pytest.raises(RunError, match=rf"cut short: {ends[-1].length - 1} of {ends[-1].length} bytes"):
        check(path, ends[-1].length)
    for length in (ends[0].length + 1, ends[0].length + LOG_HEADER.size, ends[1].length - 8):
        with pytest.raises(RunError, match=f"no whole part at byte {ends[0].length}"):
            check(path, length)


@pytest.mark.parametrize("size", [-8, 4, 2**60, 2**63 - 8])
def test_an_impossible_size_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    header = LOG_HEADER.pack(MAGIC, size, 0, 0, 0, 0, 0)[:-4]
    path.write_bytes(header + zlib.crc32(header).to_bytes(4, "little") + bytes(64))
    with pytest.raises(RunError, match="no whole part at byte 0"):
        list(scan(path, path.stat().st_size))


def test_a_large_part_is_checked_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.run.append_log._READ_BYTES", 7)
    ends = write(tmp_path / "log")
    assert check(tmp_path / "log", ends[-1].length) == ends[-1]
