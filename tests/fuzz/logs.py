"""Logs made of hostile bytes: their parts, with the checksums and digests that fit them."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator

HEADER = 48


def parts(log: bytes) -> Iterator[tuple[int, int]]:
    """Where parts begin and end: each begins where the one before says that it ends."""
    at = 0
    while at + HEADER <= len(log):
        (size,) = struct.unpack_from("<q", log, at + 8)
        end = at + HEADER + size
        yield at, end
        if not at < end < 2**40:
            break
        at = end


def with_checksums(log: bytes) -> bytes:
    """The log with the checksums that fit."""
    found = bytearray(log)
    for at, end in parts(log):
        struct.pack_into("<I", found, at + 40, zlib.crc32(found[at + HEADER : max(end, at + HEADER)]))
        struct.pack_into("<I", found, at + 44, zlib.crc32(found[at : at + 44]))
    return bytes(found)


def digest(log: bytes, length: int) -> str:
    """The digest in a manifest of the first `length` bytes of a log."""
    found = b""
    for at, _ in parts(log):
        if at < length:
            found = hashlib.sha256(found + log[at : at + HEADER]).digest()
    return found.hex()
