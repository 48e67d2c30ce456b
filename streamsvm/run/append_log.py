"""Checksummed, append-only logs, to which commits append and from which runs resume.

A log is a sequence of parts. A part is a header (see `streamsvm.base.format.LOG_HEADER`) and arrays, each
padded to 8 bytes, whose meaning the owner of the log defines. Nothing is ever overwritten: a commit records
the length of the log (`LogEnd`), and what follows is cut off when the run resumes.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from streamsvm.base import durable
from streamsvm.base.format import LOG_CRC, LOG_HEADER
from streamsvm.errors import RunError

_READ_BYTES = 2**20  # bytes read at a time while a log is checked


class LogEnd(NamedTuple):
    """End of the committed part of a log.

    Attributes
    ----------
    length : int
        Bytes; 0 for a log that does not exist yet.
    digest : str
        Digest of the parts before the end, in hexadecimal: the SHA-256 of the digest before the last part and
        its header. A header holds the checksums of its payload and of itself, so the digest stands for the
        whole log.
    """

    length: int = 0
    digest: str = ""

    def then(self, header: bytes, size: int) -> LogEnd:
        """Return the end of the log with one more part, of `size` bytes."""
        digest = hashlib.sha256(bytes.fromhex(self.digest) + header).hexdigest()
        return LogEnd(self.length + size, digest)


class Part(NamedTuple):
    """Header of a part of the log at `path`."""

    path: Path
    numbers: tuple[int, int, int]  # for the owner of the log
    at: int  # offset of the payload in the file
    size: int  # bytes of the payload
    crc: int
    header: bytes

    def offsets(self, *sizes: int) -> list[int]:
        """Return the offsets in the file of arrays of these sizes in bytes, which must fill the payload."""
        *begins, end = itertools.accumulate(map(padded, sizes), initial=self.at)
        if min(sizes) < 0 or end != self.at + self.size:
            raise self.damaged("impossible sizes")
        return begins

    def check(self, content: np.ndarray) -> None:
        """Raise `RunError` unless the payload in a `mapped` log matches its checksum."""
        if zlib.crc32(content[self.at : self.at + self.size].data) != self.crc:
            raise self.damaged("wrong checksum")

    def damaged(self, fault: str) -> RunError:
        """Return the error for a fault of the part."""
        return RunError(f"{self.path} is damaged: {fault} in the part at byte {self.at}")


class AppendLog:
    """Log that is open for appending; a context manager that closes it.

    Parameters
    ----------
    path : Path
    end : LogEnd
        Committed end, behind which the log is cut off. A length of 0 begins a new log.

    Attributes
    ----------
    path : Path
    end : LogEnd
        End after all parts appended so far.
    """

    def __init__(self, path: Path, end: LogEnd) -> None:
        self.path = path
        self.end = end
        self._file = durable.open_file(path, "r+b" if end.length else "wb")
        self._file.truncate(end.length)
        self._file.seek(end.length)

    def append(self, magic: bytes, numbers: tuple[int, int, int], arrays: Sequence[np.ndarray]) -> None:
        """Append contiguous arrays as one part."""
        pieces: list[Any] = []
        for array in arrays:
            pieces += [array.data, bytes(padded(array.nbytes) - array.nbytes)]
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        size = sum(padded(array.nbytes) for array in arrays)
        header = LOG_HEADER.pack(magic, size, *numbers, crc, 0)[: -LOG_CRC.size]
        header += LOG_CRC.pack(zlib.crc32(header))
        for piece in (header, *pieces):
            self._file.write(piece)
        self.end = self.end.then(header, len(header) + size)

    def flush(self) -> None:
        """Pass all parts to the operating system, which has not yet made them durable."""
        self._file.flush()

    def sync(self) -> None:
        """Make all parts durable."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def padded(size: int) -> int:
    """Return the bytes that an array of `size` bytes takes in a log."""
    return -(-size // 8) * 8


def scan(path: Path, length: int) -> Iterator[Part]:
    """Yield the headers in the first `length` bytes of a log; `RunError` if one is damaged."""
    at = 0
    with durable.named(path), durable.open_file(path) as file:
        while at < length:
            file.seek(at)
            header = file.read(LOG_HEADER.size)
            if len(header) == LOG_HEADER.size:
                _, size, a, b, c, crc, header_crc = LOG_HEADER.unpack(header)
                begin = at + LOG_HEADER.size
                sound = header_crc == zlib.crc32(header[: -LOG_CRC.size])
                if sound and size % 8 == 0 and 0 <= size <= length - begin:
                    yield Part(path, (a, b, c), begin, size, crc, header)
                    at = begin + size
                    continue
            raise RunError(f"{path} is damaged: no whole part at byte {at}")


def check(path: Path, length: int) -> LogEnd:
    """Read the first `length` bytes of a log, and return their end.

    Raises
    ------
    RunError
        If the log is shorter, or a checksum does not match.
    OSError
        If it cannot be read.
    """
    if (size := durable.size(path)) < length:
        raise RunError(f"{path} is cut short: {size:,} of {length:,} bytes")
    end = LogEnd()
    buffer = memoryview(bytearray(min(_READ_BYTES, length)))
    with durable.named(path), durable.open_file(path) as file:
        for part in scan(path, length):
            file.seek(part.at)
            crc, left = 0, part.size
            while left and (n := file.readinto(buffer[: min(left, len(buffer))])):  # type: ignore[attr-defined]
                crc, left = zlib.crc32(buffer[:n], crc), left - n
            if crc != part.crc:
                raise part.damaged("wrong checksum")
            end = end.then(part.header, len(part.header) + part.size)
    return end


def mapped(path: Path, length: int) -> np.ndarray:
    """Map the first `length` bytes of a log, read-only."""
    if length == 0:
        return np.frombuffer(b"", np.uint8)
    with durable.open_file(path) as file:
        return np.asarray(np.memmap(file, np.uint8, "r", shape=(length,)))
