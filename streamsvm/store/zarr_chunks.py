"""Read and write chunk files of numeric Zarr arrays without zarr.

zarr spends as much processor time on bookkeeping as on the chunks. Files are read, not memory-mapped, because
a mapped file may change or shrink after its checksum was verified.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs.blosc
import numpy as np
import zstandard

from streamsvm.base.durable import open_descriptor
from streamsvm.base.page_cache import dont_need, will_need
from streamsvm.store.chunk_reader import copy_bytes, read_bytes
from streamsvm.store.container import SLACK, StoredArray
from streamsvm.store.layout import ArraySpec

CHECKSUM_BYTES = 4  # crc32c at the end of each chunk
BLOSC_HEADER = 16  # bytes
MAX_TEXT_COMPRESSION = 2**10
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}

Decoder = Callable[[np.ndarray, np.ndarray], None]  # (stored bytes of a chunk, elements to fill)


class ChunkFiles:
    """Chunk files of one array; the last chunk is padded to full length.

    `array` determines whether a chunk file may be missing, in which case its elements are `fill`. `decode`
    decodes one chunk. `name_of` maps a chunk number to the path of the chunk's file inside `folder`.
    """

    def __init__(
        self, array: StoredArray, folder: Path, decode: Decoder, name_of: Callable[[int], str], fill: Any = 0
    ) -> None:
        assert array.dtype is not None
        self.dtype, self.chunk = array.dtype, array.chunk * (array.columns or 1)
        self.decode, self.fill = decode, fill
        self._array, self._folder, self._name_of = array, folder, name_of

    def expect(self, number: int) -> None:
        will_need(self._folder / self._name_of(number))

    def fetch(self, number: int, local: threading.local) -> np.ndarray | None:
        try:
            descriptor = open_descriptor(self._folder / self._name_of(number), os.O_RDONLY, follow=True)
        except FileNotFoundError:
            self._array.note_absent()
            return None
        try:
            size = os.fstat(descriptor).st_size
            if size > (max_size := self.chunk * self.dtype.itemsize + SLACK):
                raise ValueError(f"the chunk has {size} bytes, but at most {max_size} were written")
            buffer = getattr(local, "buffer", None)
            if buffer is None or len(buffer) < size:
                buffer = local.buffer = np.empty(size, np.uint8)
            payload = buffer[:size]
            read_bytes(descriptor, payload)
            if self._array.exceeds_page_cache:
                dont_need(descriptor)
            return payload
        finally:
            os.close(descriptor)


# -- decoding --------------------------------------------------------------------------------------


def undo_blosc(content: np.ndarray, out: np.ndarray) -> None:
    if _blosc_size(content) != out.nbytes:
        raise ValueError("the compressed chunk states wrong sizes")
    numcodecs.blosc.decompress(content, out)


def undo_zstd(content: np.ndarray, out: np.ndarray) -> None:
    content_decoded = zstandard.ZstdDecompressor().decompress(content.data, max_output_size=out.nbytes)
    copy_bytes(content_decoded, out)


def checked(undo: Decoder) -> Decoder:
    """Return a decoder that first verifies the checksum at the end of the chunk."""
    return lambda payload, out: undo(_checked_content(payload), out)


def decode_text(payload: bytes, n: int) -> np.ndarray:
    """Decode a chunk of a text array; raise ValueError if it is damaged or claims an excessive size."""
    content = _checked_content(np.frombuffer(payload, np.uint8))
    if (claimed := _blosc_size(content)) > MAX_TEXT_COMPRESSION * len(content) + SLACK:
        raise ValueError(f"{len(content)} bytes claim to decompress to {claimed} bytes")
    texts = numcodecs.blosc.decompress(content)
    n_texts = int.from_bytes(texts[:4], "little")
    if n_texts != n:
        raise ValueError(f"the chunk has {n_texts} strings instead of {n}")
    return numcodecs.VLenUTF8().decode(texts)


def _blosc_size(content: np.ndarray) -> int:
    """Return the decoded size of a Blosc chunk; raise ValueError if its stated length is wrong."""
    # Blosc's header has four bytes of versions and flags, then decoded size, block size and encoded size.
    sizes = content[4:BLOSC_HEADER].view("<u4").tolist() if len(content) >= BLOSC_HEADER else []
    if not sizes or sizes[2] != len(content):
        raise ValueError("the compressed chunk states wrong sizes")
    return int(sizes[0])


def _checked_content(payload: np.ndarray) -> np.ndarray:
    content, stored = payload[:-CHECKSUM_BYTES], payload[-CHECKSUM_BYTES:].tobytes()
    if len(stored) < CHECKSUM_BYTES or google_crc32c.value(content) != int.from_bytes(stored, "little"):
        raise ValueError("the checksum does not match")
    return content


# -- writing ---------------------------------------------------------------------------------------


def _blosc(codec: dict[str, Any]) -> numcodecs.blosc.Blosc:
    return numcodecs.blosc.Blosc(codec["cname"], codec["clevel"], SHUFFLES[codec["shuffle"]])


def encode_text(texts: Sequence[str], codec: dict[str, Any]) -> bytes:
    """Encode the strings of a text array as one chunk."""
    content = _blosc(codec).encode(numcodecs.VLenUTF8().encode(np.array(texts, object)))
    return content + google_crc32c.value(content).to_bytes(CHECKSUM_BYTES, "little")


class ChunkWriter:
    """Writer of a numeric array's chunks, three times as fast as zarr. Threads may write in any order."""

    def __init__(self, folder: Path, spec: ArraySpec, chunk: int, codec: dict[str, Any]) -> None:
        assert spec.dtype is not None
        self._folder, self._spec, self._chunk = folder, spec, chunk
        self._blosc = _blosc(codec) if codec else None

    def write(self, start: int, values: np.ndarray) -> None:
        """Write the chunk that begins at element `start`; only the last chunk may be shorter."""
        number = start // self._chunk
        dtype = np.dtype(self._spec.dtype).newbyteorder("<")
        whole = np.ascontiguousarray(values, dtype)
        if len(values) < self._chunk:
            whole = np.full(self._chunk, self._spec.fill, dtype)
            whole[: len(values)] = values
        payload: Any = whole.view(np.uint8) if self._blosc is None else self._blosc.encode(whole)
        name = f"c/{number}" if self._spec.columns is None else f"c.{number}.0"
        with open(self._folder / name, "wb") as file:
            file.write(payload)
            file.write(google_crc32c.value(bytes(payload)).to_bytes(CHECKSUM_BYTES, "little"))
