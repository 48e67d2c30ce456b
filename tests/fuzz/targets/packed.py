"""Compressed text: whatever `Input` hands out is what the decoders of others make of the same bytes.

The first byte chooses the size of the pieces that are asked for; the rest is the file.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import lzma

import zstandard
from fuzz.workplace import allowed, folder
from streamsvm_converters.inputs import Input

from streamsvm.errors import InputError

MAX_BYTES = 600
MOST_TEXT = 2**24
TOKENS = (
    b"\x1f\x8b\x08",
    b"BZh9",
    b"1AY&SY",
    b"\xfd7zXZ\0",
    b"YZ",
    b"\x28\xb5\x2f\xfd",
    bytes(4),
    b"\xff" * 8,
)


def run(data: bytes) -> None:
    if not data:
        return
    path = folder("packed") / "data"
    path.write_bytes(data[1:])
    piece = bytearray(1 + 37 * data[0])
    text = bytearray()
    ended = False
    with allowed(InputError), Input(path) as source:
        while (count := source.readinto(memoryview(piece))) and len(text) < MOST_TEXT:
            text += piece[:count]
        ended = count == 0
        assert source.size == len(data) - 1 or not ended
    if ended:
        assert text == _unpacked(data[1:])


def _unpacked(data: bytes) -> bytes:
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"BZh"):
        return bz2.decompress(data.rstrip(b"\0"))
    if data.startswith(b"\xfd7zXZ\0"):
        return lzma.decompress(data.rstrip(b"\0"), lzma.FORMAT_XZ)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return _unpacked_zstd(data)
    return data


def _unpacked_zstd(data: bytes) -> bytes:
    """Without the zero bytes that pad it, of which some may belong to its checksum."""
    padding = len(data) - len(data.rstrip(b"\0"))
    for end in range(len(data), len(data) - padding - 1, -1):
        source = io.BytesIO(data[:end])
        with (
            contextlib.suppress(zstandard.ZstdError),
            zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True) as reader,
        ):
            return reader.read()
    raise AssertionError("no zstd data")


@functools.cache
def seeds() -> list[bytes]:
    text = b"".join(b"%d 1:%d 2:0.5\n" % (n % 3, n) for n in range(40))
    found = [text]
    for pack in (
        gzip.compress,
        bz2.compress,
        lzma.compress,
        zstandard.ZstdCompressor(write_checksum=True).compress,
        zstandard.ZstdCompressor(write_content_size=False).compress,
    ):
        whole = pack(text)
        found += [whole, whole[: len(whole) // 2], whole + pack(b"1 1:1\n"), whole + bytes(8), whole + b"x"]
    return [bytes([size]) + content for content in found for size in (0, 1, 200)]
