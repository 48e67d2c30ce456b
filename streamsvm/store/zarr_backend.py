"""Containers that are Zarr folders: format 3 is written, formats 2 and 3 are read.

Zarr itself, which takes a quarter of a second to import, reads the arrays that other programs wrote.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streamsvm.base import durable
from streamsvm.errors import StoreError
from streamsvm.store.chunk_presence import ChunkPresence
from streamsvm.store.chunk_reader import ChunkReader
from streamsvm.store.container import DAMAGED, SLACK, Container, changed_error
from streamsvm.store.layout import ArraySpec
from streamsvm.store.zarr_chunks import (
    CHECKSUM_FILE,
    CLAIMED_SIZE,
    HEADER_BYTES,
    ChunkedArray,
    ChunkWriter,
    chunk_files,
    chunks_of_shard,
    encode_text,
    sharding_of,
)
from streamsvm.store.zarr_metadata import (
    METADATA,
    array_document,
    encoded,
    group_document,
    known_layout,
)

if TYPE_CHECKING:
    import zarr

NON_CHUNK_FILES = {METADATA, ".zarray", ".zattrs", ".zgroup", ".zmetadata", CHECKSUM_FILE}

# Format 2 may name any codec of numcodecs, and one of these is pickle, which executes what it reads.
SAFE_V2_CODECS = {
    *("blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma", "shuffle", "delta", "vlen-utf8"),
    *("fletcher32", "crc32", "crc32c", "adler32"),
}

# Chunks that one task of zarr fetches and decodes: a fifth faster than one by one; 2 to 8 are alike.
BATCH_CHUNKS = 4

# Configurations of Blosc, or none. docs/measurements/store.md has the measurements behind the choice.
CODECS: dict[str, dict[str, Any]] = {
    "fast": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"},
    "small": {"cname": "zstd", "clevel": 5, "shuffle": "shuffle"},
    "none": {},
}


class ZarrArray(ChunkedArray):
    """Array of a Zarr folder."""

    container: ZarrContainer
    presence: ChunkPresence

    def __init__(self, container: ZarrContainer, name: str, metadata: dict[str, Any], axes: int) -> None:
        self.container = container
        self.name = name or "X"  # of an array without a group around it
        self._folder = container.path / name
        self.metadata = metadata
        known = known_layout(metadata)
        shape, chunks, dtype = known or (self._array.shape, self._array.chunks, np.dtype(self._array.dtype))
        self._set_layout(shape, chunks, dtype, axes, text=dtype.kind in "OTUS")
        self._has_texts = dtype.kind in "OT"  # of variable length
        self._is_known = known is not None
        self.direct = chunk_files(metadata, self._folder) if axes == 1 or known else None
        self.presence = ChunkPresence() if self.direct is None else self.direct.presence
        self.file_rows = self.chunk if self.direct is not None or self._is_known else max(1, self._grid[0])
        codecs = [codec["name"] for codec in metadata.get("codecs") or []]  # of format 3; else:
        codecs = codecs or [codec["id"] for codec in [metadata.get("compressor")] if codec]
        self._compressor = next((name for name in reversed(codecs) if name != "crc32c"), "")

    @functools.cached_property
    def _array(self) -> zarr.Array:
        return self.container.open_with_zarr(self._folder)

    @property
    def _grid(self) -> tuple[int, ...]:
        """Shape of the part of the array in one file: a chunk, or a shard."""
        return self._array.shards or self._array.chunks

    def _read_part(self, start: int, stop: int, first: int, end: int) -> np.ndarray:
        spans = [(start, stop), (first, end)][: self._array.ndim]
        grid = zip(spans, self._grid, strict=True)
        for place in itertools.product(*(range(a // size, -(-b // size)) for (a, b), size in grid)):
            if (file := self._file_at(place)) is not None:
                self._check_claim(file)
        part = (slice(start, stop), slice(first, end))
        return np.asarray(self._array[part[: self._array.ndim]])

    def _read(self, start: int, stop: int) -> np.ndarray:
        if self._has_texts:
            return self._read_texts(start, stop)
        values = self._read_part(start, stop, 0, self.columns or 1)
        return values if self.dtype is not None else values.astype(object)

    def _text_chunks(self, number: int) -> list[bytes | None]:
        n = self.file_rows // self.chunk
        if (file := self._file_at((number,))) is None:
            return [None] * n
        with durable.open_file(file, follow=True) as opened:
            content = opened.read()
        sharding = sharding_of(self.metadata)
        return [content] if sharding is None else chunks_of_shard(content, sharding, n)

    def _file_at(self, place: tuple[int, ...]) -> Path | None:
        """Return the file of a chunk or shard; None if it is not there, of which note is taken."""
        is_known_text = self._is_known and self._has_texts  # then zarr is not asked
        key = f"c/{place[0]}" if is_known_text else self._array.metadata.encode_chunk_key(place)
        file = self._folder / key
        self.presence.note(place, file.is_file())
        return None if place in self.presence.absent else file

    def _check_claim(self, file: Path) -> None:
        """Refuse a chunk whose first bytes claim that it decodes to much more than a chunk has.

        Its codec would allocate that, and even fill it: a kilobyte of zstd can become 32 MB of zeros.
        """
        claim = CLAIMED_SIZE.get(self._compressor)
        if claim is None:
            return
        with durable.open_file(file, follow=True) as opened:
            claimed = claim(opened.read(HEADER_BYTES))
        limit = math.prod(self._array.chunks) * np.dtype(self._array.dtype).itemsize
        if claimed > limit + SLACK:
            raise ValueError(
                f"{file.stat().st_size} bytes claim to be {claimed}; a chunk has at most {limit}"
            )

    def _file_sizes(self) -> Iterator[int]:
        """Yield the size of each chunk file (or shard); zarr would wait forever for a pipe in its place."""
        for folder, _, names in os.walk(self._folder):
            for name in names:
                if name not in NON_CHUNK_FILES:
                    file = os.path.join(folder, name)
                    found = os.stat(file)
                    if not stat.S_ISREG(found.st_mode):
                        raise durable.UnfitFile(file, "not a regular file")
                    yield found.st_size

    def stored_bytes(self) -> int:
        with self.container.wrapped(self.name):
            return sum(self._file_sizes())

    def check_chunks(self) -> None:
        with self.container.wrapped(self.name):
            if sum(1 for _ in self._file_sizes()) >= self.n_chunks:
                return
            for chunk in range(self.n_chunks):
                name = f"c/{chunk}" if self.direct is None else self.direct.name_of(chunk)
                if not (self._folder / name).is_file():
                    raise self.damage(chunk * self.chunk, "the chunk is missing")

    def load_checksums(self, digest: str | None) -> None:
        super().load_checksums(digest)
        if self.direct is not None:
            del self.container.watched[self.name]  # each of its chunks has a checksum on record


class ZarrContainer(Container):
    """Container that is a Zarr folder."""

    kind = "zarr"

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self.path = path
        self.writes = write
        self.reader = ChunkReader()
        self._writers: dict[str, ChunkWriter] = {}
        self._version: Literal[2, 3] = 3
        self._opened: tuple[int, ...] | None = None  # the root's file; None if it is not watched
        self.watched: dict[str, list[tuple[int, ...] | None]] = {}  # arrays whose chunks have no checksums
        if write:
            with self.wrapped(""):
                path.mkdir(parents=True)
                _write(path, group_document({}))
        elif not (path / METADATA).is_file():
            if not any((path / name).is_file() for name in (".zgroup", ".zarray")):
                raise StoreError(f"{path}: not a Zarr store (no zarr.json in the folder); check the path")
            self._version = 2
        if not write:
            self.is_matrix = self.node("") == "array"
            self._opened = durable.file_identity(self._root)
            self._content = self._root_content()

    def _json(self, path: str, name: str) -> dict[str, Any]:
        with self.wrapped(path):
            content = durable.read_record(self.path / path / name, follow=True)
            if not isinstance(content, dict):
                raise StoreError(f"{self.path}: {path or 'root'}: {name} is not a JSON object ({DAMAGED})")
            return content

    def attrs(self, group: str) -> dict[str, Any]:
        if self._version == 3:
            attributes = self._json(group, METADATA).get("attributes", {})
            return attributes if isinstance(attributes, dict) else {}
        return self._json(group, ".zattrs") if (self.path / group / ".zattrs").exists() else {}

    def node(self, path: str) -> str | None:
        if self.is_matrix:
            return "array" if path == "X" else None
        with self.wrapped(path):
            folder = self.path / path
            if self._version == 2:
                kinds = {".zarray": "array", ".zgroup": "group"}
                return next((kinds[name] for name in kinds if (folder / name).is_file()), None)
            if not (folder / METADATA).is_file():
                return None
            kind = self._json(path, METADATA).get("node_type")
            return kind if kind in ("array", "group") else None

    def children(self, group: str) -> list[str]:
        with self.wrapped(group):
            folder = self.path / group
            names = sorted(os.listdir(folder)) if self.node(group) == "group" else []
            return [name for name in names if self.node(f"{group}/{name}" if group else name) is not None]

    def content(self, name: str, most: int) -> bytes:
        """Return the first bytes of a file, one more than `most`; `FileNotFoundError` if there is none."""
        with durable.open_file(self.path / name, follow=True) as file:
            return file.read(most + 1)

    def _array(self, path: str, axes: int) -> ZarrArray:
        path = "" if self.is_matrix else path
        metadata = self._json(path, METADATA if self._version == 3 else ".zarray")
        if self._version == 2:
            self.attrs(path)  # zarr reads them, too: they must be a file of a plausible size
            codecs = [*(metadata.get("filters") or []), metadata.get("compressor")]
            if unknown := {str(codec.get("id")) for codec in codecs if codec} - SAFE_V2_CODECS:
                raise StoreError(f"{self.path}: array {path} uses {sorted(unknown)}, which is not read")
        array = ZarrArray(self, path, metadata, axes)
        self.watched[path] = self._folders(path)
        return array

    def open_with_zarr(self, folder: Path) -> zarr.Array:
        import zarr

        with zarr.config.set({"codec_pipeline.batch_size": BATCH_CHUNKS}):
            return zarr.open_array(folder, mode="r", zarr_format=self._version)

    def create_group(self, path: str, attrs: dict[str, Any]) -> None:
        with self.wrapped(path):
            (self.path / path).mkdir(exist_ok=True)
            _write(self.path / path, group_document(attrs))

    def create_array(
        self, path: str, spec: ArraySpec, *, chunk: int, codec: str, attrs: dict[str, Any]
    ) -> None:
        with self.wrapped(path):
            folder = self.path / path
            folder.mkdir()
            _write(folder, array_document(spec, chunk, CODECS[codec], attrs))
            if spec.columns is None:
                (folder / "c").mkdir()
            self._writers[path] = ChunkWriter(folder, spec, chunk, CODECS[codec])

    def create_text(self, path: str, texts: Sequence[str], *, attrs: dict[str, Any]) -> None:
        with self.wrapped(path):
            folder, chunk = self.path / path, max(1, len(texts))
            folder.mkdir()
            _write(folder, array_document(ArraySpec(len(texts), None, ""), chunk, CODECS["small"], attrs))
            if texts:
                (folder / "c").mkdir()
                (folder / "c/0").write_bytes(encode_text(texts, CODECS["small"]))

    def write(self, path: str, start: int, values: np.ndarray) -> None:
        with self.wrapped(path):
            self._writers[path].write(start, values)

    def write_checksums(self) -> dict[str, str]:
        digests = {}
        for path, writer in self._writers.items():
            content = writer.checksums.tobytes()
            with self.wrapped(path), open(self.path / path / CHECKSUM_FILE, "wb") as file:
                file.write(content)
            digests[path] = hashlib.sha256(content).hexdigest()
        return digests

    @property
    def _root(self) -> Path:
        return self.path / (METADATA if self._version == 3 else ".zarray" if self.is_matrix else ".zgroup")

    def _root_content(self) -> dict[str, Any]:
        """Return the root's metadata without the consolidated part, which columns added to obs change."""
        return {**self._json("", self._root.name), "consolidated_metadata": None}

    def _folders(self, path: str) -> list[tuple[int, ...] | None]:
        """Return the identities of the folders of an array, which change when chunks are replaced."""
        return [durable.file_identity(self.path / path / name) for name in ("", "c")]

    def check_unchanged(self) -> None:
        before = self._opened
        if before is None:
            return
        with self.wrapped(""):
            found = durable.file_identity(self._root)
            if found is None:
                raise changed_error(self.path, "the store was removed or replaced")
            if (found != before and self._root_content() != self._content) or any(
                self._folders(path) != opened for path, opened in self.watched.items()
            ):
                what = "written to" if found[:2] == before[:2] else "replaced by another"
                raise changed_error(self.path, f"the store was {what}")
            self._opened = found

    def set_record(self, name: str, value: dict[str, Any]) -> None:
        with self.wrapped(""):
            durable.write_atomic(self._root, encoded(group_document({**self.attrs(""), name: value})))

    def sync(self) -> None:
        with self.wrapped(""):
            durable.sync_tree(self.path)
            durable.sync_dir(self.path.parent)

    def close(self) -> None:
        self.is_closed = True
        self.reader.close()
        self._opened = None


def _write(folder: Path, document: dict[str, Any]) -> None:
    """Write the metadata of the group or array in `folder`."""
    (folder / METADATA).write_bytes(encoded(document))
