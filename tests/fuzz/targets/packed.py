"""Compressed text: whatever `Input` hands out, piece by piece, is what it holds when decoded at once.

The first byte chooses the size of the pieces that are asked for; the rest is the file.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import zstandard
from fuzz.workplace import allowed, folder
from streamsvm_converters.libsvm.inputs import Input

from streamsvm.errors import InputError

MAX_BYTES = 600
MOST_TEXT = 2**24
DECODERS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    b"\x28\xb5\x2f\xfd": lambda: zstandard.ZstdDecompressor().decompressobj(),
}
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
    """All at once: streams may follow one another, and zero bytes each of them."""
    new = next((new for magic, new in DECODERS.items() if data.startswith(magic)), None)
    if new is None:
        return data
    text = b""
    while data:
        decoder = new()
        text += decoder.decompress(data)
        assert decoder.eof, "a truncated stream was taken for whole"
        data = decoder.unused_data.lstrip(b"\0")
    return text


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
