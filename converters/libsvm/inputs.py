"""Read plain or compressed files and standard input as streams of text, and hash them along the way."""

from __future__ import annotations

import bz2
import hashlib
import io
import lzma
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm_converters.libsvm.position import InputFile

from streamsvm.base.durable import os_errors_as
from streamsvm.base.text import check_local, format_size
from streamsvm.errors import InputError, warn
from streamsvm.store.kinds import MAGIC_SIZE, STDIN, compression_of

# Compressed text is decoded in bounded pieces, because 500 bytes can expand to gigabytes.
_MAX_DECODED = 2**20  # bytes decoded at a time, if the decoder supports a limit
_READ_SIZE = 4096
_MAX_WINDOW = 2**27  # maximum size of a decoder's window in bytes
_POLL_SECONDS = 0.2


class Compression(NamedTuple):
    """Compression format, with a function that makes a decoder."""

    name: str
    decoder: Callable[[], Any]
    piece: int = _READ_SIZE  # number of bytes passed to the decoder at a time


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()


_DECODERS = {
    "gzip": Compression("gzip", lambda: zlib.decompressobj(wbits=31)),  # a piece expands to at most 4 MB
    "bz2": Compression("bzip2", bz2.BZ2Decompressor),
    "xz": Compression("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_WINDOW)),
    "zstd": Compression("zstd", _zstd, 512),  # a block has at least 4 bytes and expands to 128 KB
}


class Input(io.RawIOBase):
    """File object with the text of one input, which is read once from beginning to end.

    `size` is the number of bytes read so far, before decompression. Raises `InputError` if the input cannot
    be read, or if compressed data is truncated or damaged.

    Parameters
    ----------
    path : str or Path
        File with text that is plain or compressed with gzip, bzip2, xz or zstd; "-" for standard input.
    hashes_text : bool
        Whether this object hashes plain text; if not, the consumer must hash it (see `record`).
    waiting : callable, optional
        Function called while a pipe is silent. It can end the wait by raising an exception. A signal alone
        does not end the wait, because Python retries the read.
    """

    def __init__(
        self, path: str | Path, *, hashes_text: bool = True, waiting: Callable[[], None] | None = None
    ) -> None:
        self.name = "standard input" if str(path) == STDIN else str(path)
        self.size = 0
        self._file: Any = None
        self._waiting = waiting
        self._base = STDIN if str(path) == STDIN else Path(path).name
        self._sha256: Any = hashlib.sha256()
        self._pending = memoryview(b"")
        self._decoded: Iterator[bytes] | None = None
        check_local(path, InputError)
        try:
            with os_errors_as(InputError, self.name, "read"):
                # Standard input stays open. Unbuffered reads return the data of a pipe at once.
                source = sys.stdin.fileno() if str(path) == STDIN else path
                self._file = open(source, "rb", buffering=0, closefd=source is path)  # noqa: SIM115
        except ValueError as error:  # standard input is closed
            raise InputError(f"{self.name} cannot be read: {error}") from None
        head = b""
        try:
            status = os.fstat(self._file.fileno())
            ends = self._file.isatty() or status.st_rdev == os.stat(os.devnull).st_rdev
            if stat.S_ISBLK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and not ends):
                raise InputError(f"{self.name} is a device, which may never end; use a file or a pipe")
            if stat.S_ISREG(status.st_mode):
                self._waiting = None
            # A pipe may pause after a short line, so MAGIC_SIZE must not exceed the length of such a line.
            while len(head) < MAGIC_SIZE and (more := self._read_stored(MAGIC_SIZE - len(head))):
                head += more
        except BaseException:
            self.close()
            raise
        compression = compression_of(head)
        if compression is None:
            self._pending = memoryview(head)
            if not hashes_text:
                self._sha256 = None
        else:
            self._decoded = self._decode(_DECODERS[compression], head)

    def close(self) -> None:
        super().close()
        if self._file is not None:
            self._file.close()

    def readable(self) -> bool:
        return True

    def readinto(self, space: Any) -> int:
        """Write text to the beginning of `space`; return the number of bytes written, or 0 at the end."""
        if self._decoded is None and not self._pending:
            return self._stored_into(space)
        while not self._pending and (text := next(self._decoded or iter(()), None)) is not None:
            self._pending = memoryview(text)
        count = min(len(self._pending), len(space))
        space[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def would_wait(self) -> bool:
        """Return True if the next read would wait for the writer of a pipe; always False for a file."""
        return not self._pending and not select.select([self._file], [], [], 0)[0]

    def record(self, sha256: Any = None) -> InputFile:
        """Return the record of the whole input. If only the caller hashes the text, pass its `sha256`."""
        return InputFile(self._base, self.size, (self._sha256 or sha256).hexdigest())

    def _decode(self, format: Compression, stored: bytes) -> Iterator[bytes]:
        """Yield the text in bounded pieces. Compressed streams may be concatenated and padded with zeros."""
        while stored:
            decoder = format.decoder()
            while not decoder.eof:
                piece = b""
                if getattr(decoder, "needs_input", True):
                    stored = stored or self._read_stored(_READ_SIZE)
                    if not stored:
                        raise InputError(
                            f"{self.name}: the {format.name} data is truncated; download the file again"
                        )
                    piece, stored = stored[: format.piece], stored[format.piece :]
                yield self._decompress(decoder, piece, format.name)
            stored = (decoder.unused_data + stored).lstrip(b"\0")
            while not stored and (more := self._read_stored(_READ_SIZE)):
                stored = more.lstrip(b"\0")

    def _decompress(self, decoder: Any, piece: bytes, name: str) -> bytes:
        limit = (_MAX_DECODED,) if hasattr(decoder, "needs_input") else ()
        try:
            return decoder.decompress(piece, *limit)
        except MemoryError:
            raise
        except Exception as error:  # the decoders raise errors without a common base class
            problem = f"the {name} data is damaged ({error}); download the file again"
            if "memory" in str(error).lower():
                problem = (
                    f"decompressing this {name} data needs more than {format_size(_MAX_WINDOW)} of memory; "
                    "decompress it first, or compress it with a smaller window"
                )
            raise InputError(f"{self.name}: {problem}") from None

    def _read_stored(self, count: int) -> bytes:
        piece = bytearray(count)
        return bytes(piece[: self._stored_into(memoryview(piece))])

    def _stored_into(self, space: memoryview) -> int:
        while self._waiting is not None and not select.select([self._file], [], [], _POLL_SECONDS)[0]:
            self._waiting()
        with os_errors_as(InputError, self.name, "read"):
            count = self._file.readinto(space) or 0
        if self._sha256 is not None:
            self._sha256.update(space[:count])
        self.size += count
        return count


def total_size(paths: list[str | Path]) -> int | None:
    """Return the total size of all inputs in bytes, or None if one, such as a pipe, is not a regular file.

    Warns about each empty file unless all files are empty. Raises `InputError` if a file cannot be accessed.
    """
    total, empty = 0, []
    for path in paths:
        if str(path) == STDIN:
            return None
        check_local(path, InputError)
        with os_errors_as(InputError, path, "read"):
            status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
        empty += [path] * (not status.st_size)
    for path in empty if total else ():
        warn(f"{path} is empty")
    return total
