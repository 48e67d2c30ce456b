"""Inputs as streams of text: plain or compressed files and standard input, hashed as they are read."""

from __future__ import annotations

import bz2
import contextlib
import hashlib
import lzma
import os
import select
import stat
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamsvm.errors import InputError
from streamsvm.files import reason

STDIN = "-"

# Compressed input is fed in pieces so small that even a hostile one expands within memory.
_PIECE = 4096


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj()


# By the first bytes, not by the name: a download's suffix is often wrong.
_DECODERS: dict[bytes, tuple[str, Callable[[], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(wbits=31)),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
    b"\xfd7zXZ\x00": ("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)),
    b"\x28\xb5\x2f\xfd": ("zstd", _zstd),
}
_MAGIC = max(map(len, _DECODERS))


class Input:
    """One input, read once from start to end; a context manager.

    Parameters
    ----------
    path : str or Path
        A file, or "-" for standard input, in plain text or compressed by gzip, bzip2, xz or zstd.
    hashes_text : bool
        Whether plain text is hashed here, or by who reads it: see `record`.

    Attributes
    ----------
    name : str
        How messages call it.
    size : int
        Bytes read so far, as stored (compressed bytes if it is compressed).
    decoding : float
        Seconds spent decompressing.

    Raises
    ------
    InputError
        If it is missing, cannot be read, or is compressed and truncated or damaged.
    """

    def __init__(self, path: str | Path, *, hashes_text: bool = True) -> None:
        self.name = "standard input" if str(path) == STDIN else str(path)
        self.size = 0
        self.decoding = 0.0
        self._base = STDIN if str(path) == STDIN else Path(path).name
        self._sha256: Any = hashlib.sha256()
        self._held = b""  # read or decoded, and not yet handed out
        self._decoder: Any = None
        try:
            if str(path) == STDIN:
                # Not ours to close. Unbuffered, so that a pipe's data arrives when it is there.
                self._file: Any = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115
            else:
                self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{self.name} cannot be read: {reason(error)}") from None
        except ValueError as error:  # of a standard input that was closed
            raise InputError(f"{self.name} cannot be read: {error}") from None
        try:
            while len(self._held) < _MAGIC and (more := self._read(_MAGIC - len(self._held))):
                self._held += more
        except BaseException:
            self.close()
            raise
        for magic, (self._format, self._new_decoder) in _DECODERS.items():
            if self._held.startswith(magic):
                self._decoder = self._new_decoder()
                self._held = self._decode(self._held)
                break
        if self._decoder is None and not hashes_text:
            self._sha256 = None

    def __enter__(self) -> Input:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def readinto(self, space: memoryview) -> int:
        """Fill the front of `space` with text; returns the bytes written, 0 at the end."""
        if not self._held and self._decoder is None:
            return self._readinto(space)
        while not self._held and (piece := self._next_piece()):
            self._held = self._decode(piece)
        count = min(len(self._held), len(space))
        space[:count] = self._held[:count]
        self._held = self._held[count:]
        return count

    def is_dry(self) -> bool:
        """Whether there is no text now, and whoever waits for more may wait for long: never of a file."""
        return not self._held and not select.select([self._file], [], [], 0)[0]

    def record(self, sha256: Any = None) -> dict[str, Any]:
        """What the store keeps of a source that was read to its end: its name, size and hash.

        `sha256` is a hash object of its text, for plain text that was not hashed here.
        """
        return {"name": self._base, "size": self.size, "sha256": (self._sha256 or sha256).hexdigest()}

    def _next_piece(self) -> bytes:
        """Compressed bytes to decode next; none at the end, which must be the end of a stream."""
        if not self._decoder.eof:
            if piece := self._read(_PIECE):
                return piece
            raise InputError(f"{self.name}: the {self._format} data is truncated; fetch the file again")
        piece = self._decoder.unused_data or self._read(_PIECE)
        # Streams may follow one another, and zero bytes may pad them.
        while piece and not (piece := piece.lstrip(b"\0")):
            piece = self._read(_PIECE)
        if piece:
            self._decoder = self._new_decoder()
        return piece

    def _decode(self, piece: bytes) -> bytes:
        begin = time.perf_counter()
        try:
            return self._decoder.decompress(piece)
        except Exception as error:  # each library has its own, and none of them a common base
            raise InputError(
                f"{self.name}: the {self._format} data is damaged ({error}); fetch the file again"
            ) from None
        finally:
            self.decoding += time.perf_counter() - begin

    def _read(self, count: int) -> bytes:
        piece = bytearray(count)
        return bytes(piece[: self._readinto(memoryview(piece))])

    def _readinto(self, space: memoryview) -> int:
        try:
            count = self._file.readinto(space) or 0
        except OSError as error:
            raise InputError(f"{self.name} cannot be read: {reason(error)}") from None
        if self._sha256 is not None:
            self._sha256.update(space[:count])
        self.size += count
        return count


def total_size(paths: list[str | Path]) -> int | None:
    """Bytes of all inputs together, None if one has no size beforehand (standard input, a pipe)."""
    total = 0
    for path in paths:
        if str(path) == STDIN:
            return None
        try:
            status = os.stat(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {reason(error)}") from None
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path} is a folder; give the files in it")
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


def plain_size(paths: list[str | Path]) -> int | None:
    """Bytes of text of all inputs together, None if that is not known beforehand."""
    total = total_size(paths)
    if total is not None:
        for path in paths:
            with contextlib.suppress(OSError), open(path, "rb") as file:
                if file.read(_MAGIC).startswith(tuple(_DECODERS)):
                    return None
    return total
