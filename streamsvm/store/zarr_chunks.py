"""Chunk files of Zarr arrays, read, decoded and written without zarr.

Zarr can read and write all of them, but uses as much processor time for its own bookkeeping as for the
chunks. Files are read and not memory-mapped: the bytes that were checked must be the ones that are used, and
a mapped file may change, or shrink, after the check.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numcodecs.blosc
import numpy as np
import zstandard

from streamsvm.base.durable import open_descriptor
from streamsvm.base.page_cache import dont_need, will_need
from streamsvm.errors import StoreError
from streamsvm.store.chunk_presence import ChunkPresence
from streamsvm.store.chunk_reader import inflate
from streamsvm.store.container import DAMAGED, SLACK, StoredArray
from streamsvm.store.layout import ArraySpec
from streamsvm.store.ranges import Ranges
from streamsvm.store.zarr_metadata import LITTLE_ENDIAN, known_layout, layout_digest

HEADER_BYTES = 32  # of a chunk, enough to find how many bytes it claims to hold
CHECKSUM_BYTES = 4  # bytes of crc32c at the end of a chunk
CHECKSUM_FILE = "crc32c"  # a file beside an array's chunks: their checksums in order, as uint32
BLOSC_HEADER = 16  # bytes; also the most by which a Blosc chunk exceeds its content
MAX_TEXT_COMPRESSION = 2**10
# Codecs that anndata and streamsvm apply to text; decoding them needs no configuration.
TEXT_CODECS = {"zstd", "blosc", "gzip", "zlib", "crc32c"}
# How many bytes a compressed chunk claims to hold, by its first bytes; -1 where zstd does not say.
CLAIMED_SIZE: dict[str, Callable[[bytes], int]] = {
    "blosc": lambda head: int.from_bytes(head[4:8], "little"),
    "zstd": zstandard.frame_content_size,
}
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}

Decoder = Callable[[np.ndarray, np.ndarray], None]  # (bytes of a chunk as stored, elements to fill)


class ChunkFiles:
    """Chunk files of one array.

    Attributes
    ----------
    folder : Path
        Has one file per chunk.
    dtype : dtype
    chunk : int
        Elements per chunk; the last chunk is stored in full length, too.
    name_of : callable
        The path of a chunk's file in the folder, by its number.
    checksums : ndarray of uint32, shape (n_chunks,), or None
        The crc32c of each chunk when it was written. A chunk that ends with another one may be intact, but
        belongs to another place or store.
    fill : number or None
        Value of the elements of chunks without a file; None if each must have one.
    presence : ChunkPresence
        Records the chunks without a file, if there is a `fill`.
    drop_cache : bool
        True to drop the files from the page cache once they are read.
    """

    drop_cache = False

    def __init__(
        self,
        folder: Path,
        dtype: np.dtype,
        chunk: int,
        decode: Decoder,
        name_of: Callable[[int], str] = str,
        fill: Any = None,
    ) -> None:
        self.folder, self.dtype, self.chunk, self.decode = folder, dtype, chunk, decode
        self.name_of = name_of
        self.fill = fill
        self.presence = ChunkPresence()
        self.checksums: np.ndarray | None = None

    def expect(self, number: int) -> None:
        will_need(self.folder / self.name_of(number))

    def fetch(self, number: int, local: threading.local) -> np.ndarray | None:
        try:
            payload = self.content(number, local)
        except FileNotFoundError:
            if self.fill is None:
                raise ValueError("the chunk is missing") from None
            self.presence.note((number,), False)
            return None
        if self.fill is not None:
            self.presence.note((number,), True)
        written = None if self.checksums is None else self.checksums[number].tobytes()
        if written not in (None, payload[-CHECKSUM_BYTES:].tobytes()):
            raise ValueError("the chunk is damaged, or not the one that was written here")
        return payload

    def content(self, number: int, local: threading.local) -> np.ndarray:
        """Return the bytes of a chunk as stored; raise `FileNotFoundError` if there is none."""
        descriptor = open_descriptor(self.folder / self.name_of(number), os.O_RDONLY, follow=True)
        try:
            size = os.fstat(descriptor).st_size
            extra = BLOSC_HEADER + CHECKSUM_BYTES if self.fill is None else SLACK
            if size > (most := self.chunk * self.dtype.itemsize + extra):
                raise ValueError(f"the chunk has {size} bytes, and at most {most} were written")
            buffer = getattr(local, "buffer", None)
            if buffer is None or len(buffer) < size:
                buffer = local.buffer = np.empty(size, np.uint8)
            payload, done = buffer[:size], 0
            while done < size:
                n_read = os.preadv(descriptor, [payload.data[done:]], done)
                if not n_read:
                    raise ValueError("the chunk is truncated")
                done += n_read
            if self.drop_cache:
                dont_need(descriptor)
            return payload
        finally:
            os.close(descriptor)


class ChunkedArray(StoredArray):
    """Array of Zarr, on disk or at an address.

    Attributes
    ----------
    metadata : dict
        The content of ``zarr.json``, or of ``.zarray``.
    direct : ChunkFiles or None
        Chunks of numbers that are read without zarr. It may be set to None, to compare.
    """

    container: Any  # ZarrContainer or RemoteZarrContainer
    metadata: dict[str, Any]
    direct: ChunkFiles | None

    def _read_ranges(self, ranges: Ranges) -> np.ndarray:
        if self.direct is None:
            return super()._read_ranges(ranges)
        self.direct.drop_cache = self.exceeds_page_cache
        values: np.ndarray = self.container.reader.read(self.direct, ranges * (self.columns or 1))
        return values if self.columns is None else values.reshape(-1, self.columns)

    def _read_texts(self, start: int, stop: int) -> np.ndarray:
        """Return the strings ``start:stop``; no chunk is decoded that has none of them."""
        first, end, n = start // self.chunk, -(-stop // self.chunk), self.file_rows // self.chunk
        codecs, fill = text_codecs(self.metadata), str(self.metadata.get("fill_value") or "")
        whole = [
            np.full(self.chunk, fill, object) if payload is None else decode_text(payload, codecs, self.chunk)
            for file in range(first // n, -(-end // n))
            for payload in self._text_chunks(file)[max(first - file * n, 0) : end - file * n]
        ]
        return np.concatenate(whole)[start - first * self.chunk : stop - first * self.chunk]

    def _text_chunks(self, number: int) -> list[bytes | None]:
        """Return the stored chunks of text in a file; None for those that are not there."""
        raise NotImplementedError

    def load_checksums(self, digest: str | None) -> None:
        place = f"{self.container.path}/{self.name}/{CHECKSUM_FILE}"
        with self.container.wrapped(self.name):
            try:
                content = self.container.content(f"{self.name}/{CHECKSUM_FILE}", 4 * self.n_chunks)
            except FileNotFoundError:
                raise StoreError(f"{place}: the checksums of the chunks are missing ({DAMAGED})") from None
        if len(content) != 4 * self.n_chunks or hashlib.sha256(content).hexdigest() != digest:
            raise StoreError(f"{place}: not the checksums that the store's record names ({DAMAGED})")
        if self.direct is not None:
            self.direct.checksums = np.frombuffer(content, "<u4")

    def layout(self) -> str:
        return layout_digest(self.metadata)


# -- decoding --------------------------------------------------------------------------------------


def chunk_files(
    metadata: dict[str, Any], folder: Path, make: Callable[..., ChunkFiles] = ChunkFiles
) -> ChunkFiles | None:
    """Return the chunk files of an array; None if its layout is one that zarr must read.

    Read here are numbers of one axis, or of two with chunks of whole rows, without shards, plain or
    compressed by Blosc, zstd, gzip or zlib, of format 2 and 3.

    Parameters
    ----------
    metadata : dict
        The content of ``zarr.json``, or of ``.zarray``.
    folder : Path
        Of the array.
    make : callable
        Makes what is returned, of the arguments of `ChunkFiles`.
    """
    if sys.byteorder != "little":
        return None
    try:
        facts = _of_format_3(metadata) if "codecs" in metadata else _of_format_2(metadata)
        if facts is None or facts.dtype.kind not in "fiub" or facts.chunk < 1:
            return None
        is_ours = known_layout(metadata) is not None  # then no chunk is left out
        fill = None if is_ours else np.array(metadata["fill_value"] or 0, facts.dtype)[()]
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
    undo = _CODECS.get(facts.codec)
    if undo is None:
        return None

    def decode(payload: np.ndarray, out: np.ndarray) -> None:
        undo(_checked_content(payload) if facts.checksum else payload, out)

    return make(folder, facts.dtype, facts.chunk, decode, facts.name_of, fill)


class _Layout(NamedTuple):
    dtype: np.dtype
    chunk: int
    codec: str | None
    checksum: bool
    name_of: Callable[[int], str]


def _of_format_3(metadata: dict[str, Any]) -> _Layout | None:
    grid, keys = metadata["chunk_grid"], metadata["chunk_key_encoding"]
    chunk, *columns = grid["configuration"]["chunk_shape"]
    if columns != metadata["shape"][1:]:
        return None
    first, *others = metadata["codecs"]
    dtype = np.dtype(metadata["data_type"])
    if grid["name"] != "regular" or keys["name"] != "default" or metadata.get("storage_transformers"):
        return None
    little = first.get("configuration", {}).get("endian") == "little"
    if first["name"] != "bytes" or not (little or dtype.itemsize == 1):
        return None
    names = [codec["name"] for codec in others]
    checksum = names[-1:] == ["crc32c"]
    names = names[: len(names) - checksum]
    if len(names) > 1:
        return None
    separator = keys.get("configuration", {}).get("separator", "/")
    codec, last = names[0] if names else None, (separator + "0") * len(columns)
    return _Layout(
        dtype, chunk * math.prod(columns), codec, checksum, lambda number: f"c{separator}{number}{last}"
    )


def _of_format_2(metadata: dict[str, Any]) -> _Layout | None:
    [chunk] = metadata["chunks"]
    dtype = np.dtype(metadata["dtype"])
    if metadata.get("filters") or dtype.byteorder == ">":
        return None
    compressor = metadata["compressor"]
    return _Layout(dtype, chunk, compressor["id"] if compressor else None, False, str)


def sharding_of(metadata: dict[str, Any]) -> dict[str, Any] | None:
    """Return the configuration of an array's shards; None if it has none."""
    first = (metadata.get("codecs") or [{}])[0]
    return first["configuration"] if first.get("name") == "sharding_indexed" else None


def chunks_of_shard(shard: bytes, sharding: dict[str, Any], n: int) -> list[bytes | None]:
    """Return the stored chunks of a shard of `n`, None for those that it lacks.

    Raises ValueError for an index that is not supported.
    """
    first, *others = sharding["index_codecs"]
    size = 16 * n + CHECKSUM_BYTES
    if first != LITTLE_ENDIAN or [codec["name"] for codec in others] != ["crc32c"] or len(shard) < size:
        raise ValueError("the index of the shard is truncated, or encoded in a way that is not read")
    index = shard[-size:] if sharding.get("index_location", "end") == "end" else shard[:size]
    places = np.frombuffer(_checked_content(np.frombuffer(index, np.uint8)), "<u8").reshape(n, 2).tolist()
    return [shard[start : start + length] if start < len(shard) else None for start, length in places]


def _copy(content: np.ndarray, out: np.ndarray) -> None:
    if len(content) != out.nbytes:
        raise ValueError(f"the chunk has {len(content)} bytes instead of {out.nbytes}")
    out.view(np.uint8)[:] = content


def _undo_blosc(content: np.ndarray, out: np.ndarray) -> None:
    if _blosc_size(content) != out.nbytes:
        raise ValueError("the compressed chunk has other sizes than it should")
    numcodecs.blosc.decompress(content, out)


def _undo_zstd(content: np.ndarray, out: np.ndarray) -> None:
    claimed = CLAIMED_SIZE["zstd"](content[:HEADER_BYTES].tobytes())
    if claimed > out.nbytes:  # it would be allocated, whatever the most that is asked for
        raise ValueError(f"{len(content)} bytes claim to be {claimed}; a chunk has {out.nbytes}")
    found = zstandard.ZstdDecompressor().decompress(content.data, max_output_size=out.nbytes)
    _copy(np.frombuffer(found, np.uint8), out)


_CODECS: dict[str | None, Decoder] = {
    None: _copy,
    "blosc": _undo_blosc,
    "zstd": _undo_zstd,
    "gzip": functools.partial(inflate, wbits=31),
    "zlib": inflate,
}


def text_codecs(metadata: dict[str, Any]) -> list[str]:
    """Return the codecs that were applied to a chunk after its text became bytes, by numcodecs' names."""
    metadata = sharding_of(metadata) or metadata
    if "codecs" in metadata:
        first, *others = [codec["name"] for codec in metadata["codecs"]]
    else:
        first, *others = [codec["id"] for codec in metadata["filters"] or [{"id": "no filter"}]]
        others += [metadata["compressor"]["id"]] if metadata["compressor"] else []
    if first != "vlen-utf8" or not {*others} <= TEXT_CODECS:
        raise ValueError(f"text encoded by {', '.join([first, *others])} is not read")
    return others


def decode_text(payload: bytes, codecs: Sequence[str], n: int) -> np.ndarray:
    """Decode the `n` strings of a chunk; raise ValueError if it is damaged or claims to have many more."""
    content: Any = np.frombuffer(payload, np.uint8)
    for codec in reversed(codecs):
        if codec == "crc32c":
            content = _checked_content(content)
            continue
        if codec == "blosc":
            _blosc_size(content)
        claimed = CLAIMED_SIZE.get(codec, len)(content[:HEADER_BYTES].tobytes())
        if claimed > MAX_TEXT_COMPRESSION * len(content) + SLACK:
            raise ValueError(f"{len(content)} bytes claim to be {claimed}")
        content = np.frombuffer(numcodecs.get_codec({"id": codec}).decode(content), np.uint8)
    found = int.from_bytes(content[:4].tobytes(), "little")
    if 4 * (found + 1) > len(content):
        raise ValueError(f"{len(content)} bytes claim to be {found} strings")
    if found != n:
        raise ValueError(f"the chunk has {found} strings instead of {n}")
    return numcodecs.VLenUTF8().decode(content)


def _blosc_size(content: np.ndarray) -> int:
    """Return the decoded size of a Blosc chunk; raise ValueError if its own length is not the stated one."""
    # Blosc's header: four bytes of versions and flags, then three sizes: decoded, of a block, encoded.
    sizes = content[4:BLOSC_HEADER].view("<u4").tolist() if len(content) >= BLOSC_HEADER else []
    if not sizes or sizes[2] != len(content):
        raise ValueError("the compressed chunk has other sizes than it should")
    return int(sizes[0])


def _checked_content(payload: np.ndarray) -> np.ndarray:
    """Return a chunk's bytes without the checksum at their end, which is compared."""
    content, stored = payload[:-CHECKSUM_BYTES], payload[-CHECKSUM_BYTES:].tobytes()
    if len(stored) < CHECKSUM_BYTES or google_crc32c.value(content) != int.from_bytes(stored, "little"):
        raise ValueError("the checksum does not match")
    return content


# -- writing ---------------------------------------------------------------------------------------


def _blosc(codec: dict[str, Any]) -> numcodecs.blosc.Blosc:
    return numcodecs.blosc.Blosc(codec["cname"], codec["clevel"], SHUFFLES[codec["shuffle"]])


def encode_text(texts: Sequence[str], codec: dict[str, Any]) -> bytes:
    """Encode the chunk of an array of text."""
    content = _blosc(codec).encode(numcodecs.VLenUTF8().encode(np.array(texts, object)))
    return content + google_crc32c.value(content).to_bytes(CHECKSUM_BYTES, "little")


class ChunkWriter:
    """Writer of the chunk files of one array of numbers, three times as fast as zarr.

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
        name = f"c/{number}" if self._spec.columns is None else f"c.{number}.0"
        with open(self._folder / name, "wb") as file:
            file.write(payload)
            self.checksums[number] = google_crc32c.value(bytes(payload))
            file.write(self.checksums[number].tobytes())
