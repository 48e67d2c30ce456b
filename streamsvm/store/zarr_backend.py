"""The store's container as a Zarr folder: format 3 written, formats 2 and 3 read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import google_crc32c
import numcodecs
import numcodecs.blosc
import numpy as np
import zarr
import zstandard
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import LocalStore

from streamsvm import durable, format
from streamsvm.errors import StoreError
from streamsvm.store.container import REMEDY, SMALL, Container, StoredArray, changed, one_line
from streamsvm.store.layout import ArraySpec
from streamsvm.store.zarr_chunks import CHECKSUM, Decode, Readers

CHECKSUMS = "crc32c"  # a file beside an array's chunks: their checksums in order, as uint32
NO_CHUNKS = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata", CHECKSUMS}

# Format 2 names its codecs freely, and one of numcodecs' is pickle, which executes what it reads.
SAFE_V2_CODECS = {
    *("blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma", "shuffle", "delta", "vlen-utf8"),
    *("fletcher32", "crc32", "crc32c", "adler32"),
}

# Chunks that one task of zarr's fetches and decodes: a fifth faster than one by one, 2 to 8 are alike.
BATCH = 4

# How many bytes a compressed chunk says that it holds; -1 where zstd leaves it open.
CLAIMS: dict[str, Callable[[bytes], int]] = {
    "blosc": lambda head: int.from_bytes(head[4:8], "little"),
    "zstd": zstandard.frame_content_size,
}
CLAIM_BYTES = 32  # enough of a chunk to tell
MAX_TEXT_RATIO = 2**10

# What anndata, or we, pass text through; all are decoded without being told how they were set.
TEXT_CODECS = {"zstd", "blosc", "gzip", "zlib", "crc32c"}

# docs/store.md has the measurements behind the choice.
CODECS: dict[str, list[BloscCodec]] = {
    "fast": [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")],
    "small": [BloscCodec(cname="zstd", clevel=5, shuffle="shuffle")],
    "none": [],
}

BLOSC_HEADER = 16  # also what Blosc takes more than its input, at most


class ZarrArray(StoredArray):
    def __init__(self, container: ZarrContainer, name: str, array: zarr.Array, raw: dict[str, Any]) -> None:
        if len(array.shape) != 1:
            raise StoreError(f"{container.path}: array {name} has shape {array.shape}, expected one axis")
        self.container: ZarrContainer = container
        self.name = name
        self.length = array.shape[0]
        self.chunk = max(1, array.chunks[0])
        dtype = np.dtype(array.dtype)
        self.dtype = None if dtype.kind in "OTUS" else dtype
        self.width = dtype.itemsize
        self._array = array
        self._raw = raw
        self._decode = _decoder_of_ours(raw)
        self._checksums: np.ndarray | None = None
        codecs = [codec["name"] for codec in raw.get("codecs") or []]  # of format 3; else:
        codecs = codecs or [codec["id"] for codec in [raw.get("compressor")] if codec]
        self._compressor = next((name for name in reversed(codecs) if name != "crc32c"), "")

    def _read(self, start: int, stop: int) -> np.ndarray:
        if self._decode is not None:
            out = np.empty(stop - start, self.dtype)
            most = self.chunk * out.itemsize + BLOSC_HEADER + CHECKSUM
            folder = self.container.path / self.name / "c"
            self.container.readers.fill(
                out, start, self.chunk, folder, self._decode, most, self.outgrows, self._checksums
            )
            return out
        for chunk in range(start // self.chunk, -(-stop // self.chunk)):
            self._check_claim(chunk)
        if self.dtype is not None:
            return np.asarray(self._array[start:stop])
        if np.dtype(self._array.dtype).kind in "OT":
            for chunk in range(start // self.chunk, -(-stop // self.chunk)):
                self._check_text(chunk)
        return np.asarray(self._array[start:stop]).astype(object)

    def _chunk_file(self, chunk: int) -> Path:
        return self.container.path / self.name / self._array.metadata.encode_chunk_key((chunk,))

    def _check_claim(self, chunk: int) -> None:
        """Refuse a chunk whose first bytes claim that it decodes to much more than a chunk has.

        Its codec would make room for that, or even fill it: a kilobyte of zstd can be 32 MB of zeros.
        """
        claim = CLAIMS.get(self._compressor)
        file = self._chunk_file(chunk)
        if claim is None or not file.is_file():
            return
        with durable.open_file(file, follow=True) as opened:
            claimed = claim(opened.read(CLAIM_BYTES))
        if self.dtype is not None:
            most = self.chunk * self.dtype.itemsize
        else:
            most = MAX_TEXT_RATIO * file.stat().st_size
        if claimed > most + SMALL:
            raise ValueError(f"{file.stat().st_size} bytes claim to be {claimed}, a chunk has {most} at most")

    def _check_text(self, chunk: int) -> None:
        """Refuse a text chunk that claims more strings than its bytes can hold.

        The text codec makes room for the claimed number before it looks, up to 2**32 strings.
        """
        file = self._chunk_file(chunk)
        if not file.is_file():
            return
        with durable.open_file(file, follow=True) as opened:
            payload = opened.read()
        for codec in reversed(self._byte_codecs()):
            payload = (
                payload[:-4] if codec == "crc32c" else numcodecs.get_codec({"id": codec}).decode(payload)
            )
        count = int.from_bytes(payload[:4], "little")
        if 4 * (count + 1) > len(payload):
            raise ValueError(f"{len(payload)} bytes claim to be {count} strings")

    def _byte_codecs(self) -> list[str]:
        """What a text chunk went through after it became bytes, by the names of numcodecs."""
        if "codecs" in self._raw:
            first, *others = [codec["name"] for codec in self._raw["codecs"]]
        else:
            first, *others = [codec["id"] for codec in self._raw["filters"] or [{"id": "no filter"}]]
            others += [self._raw["compressor"]["id"]] if self._raw["compressor"] else []
        if first != "vlen-utf8" or not {*others} <= TEXT_CODECS:
            raise ValueError(f"text encoded by {', '.join([first, *others])} is not read")
        return others

    def _files(self) -> Iterator[int]:
        """The size of each chunk file (or shard); zarr would wait for ever for a pipe in its place."""
        for folder, _, names in os.walk(self.container.path / self.name):
            for name in names:
                if name not in NO_CHUNKS:
                    file = os.path.join(folder, name)
                    found = os.stat(file)
                    if not stat.S_ISREG(found.st_mode):
                        raise durable.UnfitFile(file, "not a regular file")
                    yield found.st_size

    def stored_bytes(self) -> int:
        with self.container.wrapped(self.name):
            return sum(self._files())

    def check_chunks(self) -> None:
        with self.container.wrapped(self.name):
            if sum(1 for _ in self._files()) >= self.n_chunks:
                return
            folder = self.container.path / self.name / "c"
            for chunk in range(self.n_chunks):
                if not (folder / str(chunk)).is_file():
                    raise self.fault(chunk * self.chunk, "the chunk is missing")

    def expect_chunks(self, digest: str) -> None:
        file = self.container.path / self.name / CHECKSUMS
        size = 4 * self.n_chunks
        with self.container.wrapped(self.name):
            try:
                with durable.open_file(file, follow=True) as opened:
                    content = opened.read(size) if os.fstat(opened.fileno()).st_size == size else b""
            except FileNotFoundError:
                raise StoreError(f"{file}: the checksums of the chunks are missing ({REMEDY})") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise StoreError(f"{file}: not the checksums that the store's record speaks of ({REMEDY})")
        self._checksums = np.frombuffer(content, "<u4")
        self.container.unwatch(self.name)

    def layout(self) -> str:
        # From the file and not from zarr's objects, whose representation may change between versions.
        keys = ("shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs")
        return format.json_digest({key: self._raw.get(key) for key in keys})


def _decoder_of_ours(raw: dict[str, Any]) -> Decode | None:
    """How to decode the chunks of an array laid out as `create_array` does it; None for any other."""
    codecs = [codec["name"] for codec in raw.get("codecs", [])]
    if (
        sys.byteorder != "little"
        or raw.get("data_type") not in ("float32", "float64", "int32", "int64")
        or raw["codecs"][0].get("configuration") != {"endian": "little"}
        or raw["chunk_grid"]["name"] != "regular"
        or raw["chunk_key_encoding"] != {"name": "default", "configuration": {"separator": "/"}}
        or raw.get("storage_transformers")
    ):
        return None
    return {("bytes", "crc32c"): _decode_plain, ("bytes", "blosc", "crc32c"): _decode_blosc}.get((*codecs,))


def _decode_plain(payload: np.ndarray, out: np.ndarray) -> None:
    content = _checked(payload)
    if len(content) != out.nbytes:
        raise ValueError(f"{len(content)} bytes where {out.nbytes} belong")
    out.view(np.uint8)[:] = content


def _decode_blosc(payload: np.ndarray, out: np.ndarray) -> None:
    content = _checked(payload)
    # Blosc's header: four bytes of versions and flags, then the sizes before, of a block, and after.
    sizes = content[4:BLOSC_HEADER].view("<u4").tolist() if len(content) >= BLOSC_HEADER else []
    if not sizes or (sizes[0], sizes[2]) != (out.nbytes, len(content)):
        raise ValueError("the compressed chunk has other sizes than it should")
    numcodecs.blosc.decompress(content, out)


def _checked(payload: np.ndarray) -> np.ndarray:
    """What the checksum at the end vouches for."""
    content, found = payload[:-CHECKSUM], payload[-CHECKSUM:].tobytes()
    if len(found) < CHECKSUM or google_crc32c.value(content) != int.from_bytes(found, "little"):
        raise ValueError("the checksum does not fit")
    return content


class _ChunkWriter:
    """Writes whole chunks of an array of numbers, as zarr would: it takes three times as long.

    Chunks may be written in any order, and by several threads.
    """

    def __init__(self, folder: Path, spec: ArraySpec, chunk: int, codecs: list[BloscCodec]) -> None:
        assert spec.dtype is not None
        self._folder, self._spec, self._chunk = folder, spec, chunk
        self.checksums = np.zeros(-(-spec.length // chunk), "<u4")
        self._blosc = None
        for codec in codecs:
            shuffle = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}[codec.shuffle.value]
            self._blosc = numcodecs.blosc.Blosc(codec.cname.value, codec.clevel, shuffle, codec.blocksize)

    def write(self, start: int, values: np.ndarray) -> None:
        """Write the chunk that begins at element `start`; only the last may be short."""
        number, rest = divmod(start, self._chunk)
        if rest or (len(values) < self._chunk and start + len(values) != self._spec.length):
            raise ValueError(f"elements {start} to {start + len(values)} are no whole chunk")
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


class ZarrContainer(Container):
    kind = "zarr"

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self.path = path
        self._remedy = "could not be written: remove it and try again" if write else REMEDY
        self._store = LocalStore(path, read_only=not write)
        self._open: dict[str, _ChunkWriter] = {}
        self.readers = Readers()
        self._version: Literal[2, 3] = 3
        self._held: int | None = None  # the root's metadata: while it is open, its inode is not used again
        self._watched: dict[Path, tuple[int, ...] | None] = {}
        if write:
            with self.wrapped(""):
                zarr.create_group(self._store, zarr_format=3, overwrite=False)
        elif not (path / "zarr.json").is_file():
            if not (path / ".zgroup").is_file():
                raise StoreError(f"{path}: not a Zarr store (no zarr.json in the folder); check the path")
            self._version = 2
        if not write:
            with self.wrapped(""):
                self._held = durable.open_descriptor(self._root, os.O_RDONLY, follow=True)
                self._opened = os.fstat(self._held)

    @contextlib.contextmanager
    def wrapped(self, node: str) -> Iterator[None]:
        """Turn whatever zarr, its codecs or the file system raise into a StoreError."""
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"{self.path}: {node or 'root'}: {one_line(error)}") from error
        except Exception as error:
            raise StoreError(f"{self.path}: {node or 'root'}: {one_line(error)} ({self._remedy})") from error

    def _json(self, path: str, name: str) -> dict[str, Any]:
        with self.wrapped(path):
            content = durable.read_record(self.path / path / name, follow=True)
            if not isinstance(content, dict):
                raise StoreError(f"{self.path}: {path or 'root'}: {name} is no JSON object ({REMEDY})")
            return content

    def attrs(self, group: str) -> dict[str, Any]:
        if self._version == 3:
            attributes = self._json(group, "zarr.json").get("attributes", {})
            return attributes if isinstance(attributes, dict) else {}
        return self._json(group, ".zattrs") if (self.path / group / ".zattrs").exists() else {}

    def attr(self, group: str, name: str) -> Any:
        return self.attrs(group).get(name)

    def record(self, name: str) -> Any:
        return self.attr("", name)

    def node(self, path: str) -> str | None:
        with self.wrapped(path):
            folder = self.path / path
            if self._version == 2:
                kinds = {".zarray": "array", ".zgroup": "group"}
                return next((kinds[name] for name in kinds if (folder / name).is_file()), None)
            if not (folder / "zarr.json").is_file():
                return None
            kind = self._json(path, "zarr.json").get("node_type")
            return kind if kind in ("array", "group") else None

    def array(self, path: str) -> ZarrArray:
        if self.node(path) != "array":
            raise StoreError(f"{self.path}: there is no array {path} ({REMEDY})")
        raw = self._json(path, "zarr.json" if self._version == 3 else ".zarray")
        with self.wrapped(path):
            if self._version == 2:
                self.attrs(path)  # which zarr reads, too: it must be a file, and of a sensible size
                used = [*(raw.get("filters") or []), *([raw["compressor"]] if raw.get("compressor") else [])]
                if unknown := {str(codec.get("id")) for codec in used} - SAFE_V2_CODECS:
                    raise StoreError(f"{self.path}: array {path} uses {sorted(unknown)}, which is not read")
            with zarr.config.set({"codec_pipeline.batch_size": BATCH}):
                array = zarr.open_array(self._store, path=path, mode="r", zarr_format=self._version)
            self._watch(path)
            return ZarrArray(self, path, array, raw)

    def create_group(self, path: str, attrs: dict[str, Any]) -> None:
        with self.wrapped(path):
            if path:
                zarr.create_group(self._store, path=path, zarr_format=3, attributes=attrs)
            else:
                zarr.open_group(self._store, mode="r+", zarr_format=3).attrs.update(attrs)

    def create_array(
        self, path: str, spec: ArraySpec, *, chunk: int, codec: str, attrs: dict[str, Any]
    ) -> None:
        with self.wrapped(path):
            zarr.create_array(
                self._store,
                name=path,
                shape=(spec.length,),
                dtype=spec.dtype,
                chunks=(chunk,),
                compressors=[*CODECS[codec], Crc32cCodec()],
                fill_value=spec.fill,
                attributes=attrs,
                zarr_format=3,
            )
            folder = self.path / path / "c"
            folder.mkdir()
            self._open[path] = _ChunkWriter(folder, spec, chunk, CODECS[codec])

    def create_text(self, path: str, texts: Sequence[str], *, attrs: dict[str, Any]) -> None:
        with self.wrapped(path):
            array = zarr.create_array(
                self._store,
                name=path,
                shape=(len(texts),),
                dtype=str,
                chunks=(max(1, len(texts)),),
                compressors=[*CODECS["small"], Crc32cCodec()],
                fill_value="",
                attributes=attrs,
                zarr_format=3,
                config={"write_empty_chunks": True},
            )
            if texts:
                array[:] = np.array(texts, dtype=object)

    def write(self, path: str, start: int, values: np.ndarray) -> None:
        if len(values):
            with self.wrapped(path):
                self._open[path].write(start, values)

    def write_checksums(self) -> dict[str, str]:
        digests = {}
        for path, writer in self._open.items():
            content = writer.checksums.tobytes()
            with self.wrapped(path), open(self.path / path / CHECKSUMS, "wb") as file:
                file.write(content)
            digests[path] = hashlib.sha256(content).hexdigest()
        return digests

    @property
    def _root(self) -> Path:
        return self.path / ("zarr.json" if self._version == 3 else ".zgroup")

    def _watch(self, path: str) -> None:
        """Notice if chunks of the array `path` are exchanged: that changes their folder."""
        for folder in (self.path / path, self.path / path / "c"):
            self._watched[folder] = durable.mark(folder)

    def unwatch(self, path: str) -> None:
        """Each chunk is checked by itself."""
        for folder in (self.path / path, self.path / path / "c"):
            del self._watched[folder]

    def check_unchanged(self) -> None:
        if self._held is None:
            return
        with self.wrapped(""):
            try:
                found = os.stat(self._root)
            except (FileNotFoundError, NotADirectoryError):
                raise changed(self.path, "the store was removed or replaced") from None
            if not os.path.samestat(found, self._opened):
                raise changed(self.path, "the store was replaced by another")
            held = os.fstat(self._held)
            if (held.st_size, held.st_mtime_ns) != (self._opened.st_size, self._opened.st_mtime_ns) or any(
                durable.mark(folder) != before for folder, before in self._watched.items()
            ):
                raise changed(self.path, "the store was written to")

    def set_record(self, name: str, value: dict[str, Any]) -> None:
        with self.wrapped(""):
            zarr.open_group(self._store, mode="r+", zarr_format=3).attrs[name] = value
            durable.sync_tree(self.path / "zarr.json")
            durable.sync_dir(self.path)

    def sync(self) -> None:
        with self.wrapped(""):
            durable.sync_tree(self.path)
            durable.sync_dir(self.path.parent)

    def close(self) -> None:
        self.readers.close()
        if self._held is not None:
            os.close(self._held)
            self._held = None
        self._store.close()
