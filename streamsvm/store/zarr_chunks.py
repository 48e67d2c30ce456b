"""Chunk files of the Zarr arrays that streamsvm writes: read, decoded and written without zarr.

Zarr can read and write all of them, but uses as much processor time for its own bookkeeping as for the
chunks. Reading one takes three steps, which mostly run without Python's lock: read its file, compare the
checksum, undo the codec. (The same for HDF5 gained nothing: docs/store.md.) Files are read and not
memory-mapped: the bytes that were checked must be the ones that are used, and a mapped file may change, or
shrink, after the check.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs.blosc
import numpy as np

from streamsvm.durable import open_descriptor
from streamsvm.page_cache import dont_need, will_need
from streamsvm.store.container import SLACK
from streamsvm.store.layout import ArraySpec
from streamsvm.store.zarr_metadata import known_layout

# One thread waits for the disk while another decodes; more gain little, and take cores from training.
THREADS = min(4, os.cpu_count() or 1)
READ_AHEAD = 8  # chunks that the system is asked to load before they are read, so that the disk is never idle

CHECKSUM = 4  # bytes of crc32c at the end of a chunk
BLOSC_HEADER = 16  # bytes; also the most by which a Blosc chunk exceeds its content
MAX_TEXT_COMPRESSION = 2**10
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}

Decoder = Callable[[np.ndarray, np.ndarray], None]  # (bytes of a chunk as stored, elements to fill)


class ChunkFiles:
    """The chunk files of one array.

    Attributes
    ----------
    folder : Path
        Has one file per chunk, named by the chunk's number.
    dtype : dtype
    chunk : int
        Elements per chunk; the last chunk is stored in full length, too.
    decode : callable
        Checks and decodes a chunk; raises ValueError if it is damaged.
    checksums : ndarray of uint32, shape (n_chunks,), or None
        The crc32c of each chunk when it was written. A chunk that ends with another one may be intact, but
        belongs to another place or store.
    """

    def __init__(self, folder: Path, dtype: np.dtype, chunk: int, decode: Decoder) -> None:
        self.folder, self.dtype, self.chunk, self.decode = folder, dtype, chunk, decode
        self.checksums: np.ndarray | None = None

    @property
    def max_bytes(self) -> int:
        """The largest size that a chunk file can have."""
        return self.chunk * self.dtype.itemsize + BLOSC_HEADER + CHECKSUM


class ChunkReader:
    """Threads that read chunk files; they start when they are first needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._local = threading.local()

    def read(self, files: ChunkFiles, start: int, stop: int, *, drop_cache: bool = False) -> np.ndarray:
        """Return the elements ``start:stop`` of an array in a new array.

        With `drop_cache` the system drops the files from the page cache once they are read.

        Raises
        ------
        OSError, ValueError
            If a chunk is missing, truncated, too long or damaged.
        """
        out = np.empty(stop - start, files.dtype)
        chunk = files.chunk
        first, end = start // chunk, -(-stop // chunk)

        def read_chunk(number: int) -> None:
            if number + READ_AHEAD < end:
                will_need(files.folder / str(number + READ_AHEAD))
            payload = self._read_file(files, number, drop_cache)
            low, high = number * chunk, (number + 1) * chunk
            if start <= low and high <= stop:
                files.decode(payload, out[low - start : high - start])
            else:
                whole = np.empty(chunk, files.dtype)
                files.decode(payload, whole)
                begin, finish = max(low, start), min(high, stop)
                out[begin - start : finish - start] = whole[begin - low : finish - low]

        for number in range(first, min(first + READ_AHEAD, end)):
            will_need(files.folder / str(number))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="streamsvm-chunk")
        jobs = [self._pool.submit(read_chunk, number) for number in range(first, end)]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            for job in jobs:
                job.cancel()
            wait(jobs)
            raise
        return out

    def _read_file(self, files: ChunkFiles, number: int, drop_cache: bool) -> np.ndarray:
        """Return the bytes of a chunk, which stay valid until this thread reads its next chunk."""
        try:
            descriptor = open_descriptor(files.folder / str(number), os.O_RDONLY, follow=True)
        except FileNotFoundError:
            raise ValueError("the chunk is missing") from None
        try:
            size = os.fstat(descriptor).st_size
            if size > files.max_bytes:
                raise ValueError(f"the chunk has {size} bytes, and at most {files.max_bytes} were written")
            buffer = getattr(self._local, "buffer", None)
            if buffer is None or len(buffer) < size:
                buffer = self._local.buffer = np.empty(size, np.uint8)
            payload, done = buffer[:size], 0
            while done < size:
                n_read = os.preadv(descriptor, [payload.data[done:]], done)
                if not n_read:
                    raise ValueError("the chunk is truncated")
                done += n_read
            if drop_cache:
                dont_need(descriptor)
        finally:
            os.close(descriptor)
        checksums = files.checksums
        if checksums is not None and payload[-CHECKSUM:].tobytes() != checksums[number].tobytes():
            raise ValueError("the chunk is damaged, or not the one that was written here")
        return payload

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


# -- decoding --------------------------------------------------------------------------------------


def find_decoder(metadata: dict[str, Any]) -> Decoder | None:
    """Return the decoder for an array laid out as streamsvm does it; None for any other array.

    `metadata` is the content of the array's ``zarr.json``.
    """
    known = known_layout(metadata)
    if known is None or known[2].hasobject:
        return None
    return _decode_blosc if len(metadata["codecs"]) == 3 else _decode_plain


def _decode_plain(payload: np.ndarray, out: np.ndarray) -> None:
    content = _checked_content(payload)
    if len(content) != out.nbytes:
        raise ValueError(f"the chunk has {len(content)} bytes instead of {out.nbytes}")
    out.view(np.uint8)[:] = content


def _decode_blosc(payload: np.ndarray, out: np.ndarray) -> None:
    content = _checked_content(payload)
    if _blosc_size(content) != out.nbytes:
        raise ValueError("the compressed chunk has other sizes than it should")
    numcodecs.blosc.decompress(content, out)


def decode_text(payload: bytes, n: int) -> np.ndarray:
    """The `n` strings of a chunk of text; raises ValueError if it is damaged, or claims to have many more."""
    content = _checked_content(np.frombuffer(payload, np.uint8))
    claimed = _blosc_size(content)
    if claimed > MAX_TEXT_COMPRESSION * len(content) + SLACK:
        raise ValueError(f"{len(content)} bytes claim to be {claimed}")
    text = numcodecs.blosc.decompress(content)
    found = int.from_bytes(text[:4], "little")
    if 4 * (found + 1) > len(text):
        raise ValueError(f"{len(text)} bytes claim to be {found} strings")
    if found != n:
        raise ValueError(f"the chunk has {found} strings instead of {n}")
    return numcodecs.VLenUTF8().decode(text)


def _blosc_size(content: np.ndarray) -> int:
    """The bytes that a Blosc chunk decodes to; raises ValueError if its own length is other than it says."""
    # Blosc's header: four bytes of versions and flags, then three sizes: decoded, of a block, encoded.
    sizes = content[4:BLOSC_HEADER].view("<u4").tolist() if len(content) >= BLOSC_HEADER else []
    if not sizes or sizes[2] != len(content):
        raise ValueError("the compressed chunk has other sizes than it should")
    return int(sizes[0])


def _checked_content(payload: np.ndarray) -> np.ndarray:
    """Return a chunk's bytes without the checksum at their end, which is compared."""
    content, stored = payload[:-CHECKSUM], payload[-CHECKSUM:].tobytes()
    if len(stored) < CHECKSUM or google_crc32c.value(content) != int.from_bytes(stored, "little"):
        raise ValueError("the checksum does not match")
    return content


# -- writing ---------------------------------------------------------------------------------------


def _blosc(codec: dict[str, Any]) -> numcodecs.blosc.Blosc:
    return numcodecs.blosc.Blosc(codec["cname"], codec["clevel"], SHUFFLES[codec["shuffle"]])


def encode_text(texts: Sequence[str], codec: dict[str, Any]) -> bytes:
    """The chunk of an array of text."""
    content = _blosc(codec).encode(numcodecs.VLenUTF8().encode(np.array(texts, object)))
    return content + google_crc32c.value(content).to_bytes(CHECKSUM, "little")


class ChunkWriter:
    """Writes the chunk files of one array of numbers; zarr takes three times as long for the same files.

    Chunks may be written in any order, and by several threads.

    Attributes
    ----------
    checksums : ndarray of uint32, shape (n_chunks,)
        The crc32c of each chunk written so far.
    """

    def __init__(self, folder: Path, spec: ArraySpec, chunk: int, codec: dict[str, Any]) -> None:
        assert spec.dtype is not None
        self._folder, self._spec, self._chunk = folder, spec, chunk
        self.checksums = np.zeros(-(-spec.length // chunk), "<u4")
        self._blosc = _blosc(codec) if codec else None

    def write(self, start: int, values: np.ndarray) -> None:
        """Write the chunk that begins at element `start`; only the last chunk may be short."""
        number, rest = divmod(start, self._chunk)
        if rest or (len(values) < self._chunk and start + len(values) != self._spec.length):
            raise ValueError(f"elements {start} to {start + len(values)} are not a whole chunk")
        dtype = np.dtype(self._spec.dtype).newbyteorder("<")
        whole = np.ascontiguousarray(values, dtype)
        if len(values) < self._chunk:
            whole = np.full(self._chunk, self._spec.fill, dtype)
            whole[: len(values)] = values
        payload: Any = whole.view(np.uint8) if self._blosc is None else self._blosc.encode(whole)
        with open(self._folder / str(number), "wb") as file:
            file.write(payload)
            self.checksums[number] = google_crc32c.value(bytes(payload))
            file.write(self.checksums[number].tobytes())
