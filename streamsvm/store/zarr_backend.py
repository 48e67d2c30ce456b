"""Read and write Zarr folders of streamsvm stores without zarr, because importing it takes 0.25 seconds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import durable
from streamsvm.errors import StoreError
from streamsvm.store.chunk_reader import ChunkReader, copy_bytes
from streamsvm.store.container import DAMAGED, Container, StoredArray, changed_error
from streamsvm.store.layout import ArraySpec
from streamsvm.store.zarr_chunks import ChunkFiles, ChunkWriter, checked, decode_text, encode_text, undo_blosc
from streamsvm.store.zarr_metadata import METADATA, TEXT, array_document, encoded, group_document

# Blosc configurations by codec name; docs/measurements/store.md has the measurements behind them.
CODECS: dict[str, dict[str, Any]] = {
    "fast": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"},
    "small": {"cname": "zstd", "clevel": 5, "shuffle": "shuffle"},
    "none": {},
}


class ZarrFolder(Container):
    """Zarr folder opened for reading; changes to its root metadata file `root` are detected."""

    kind = "zarr"

    def __init__(self, path: Path, root: str) -> None:
        self.path = path
        self.reader = ChunkReader()
        self._root_file = root
        self._opened = durable.file_identity(path / root)  # None: changes are not detected

    def _json(self, path: str, name: str) -> dict[str, Any]:
        with self.wrapped(path):
            content = durable.read_record(self.path / path / name, follow=True)
            if not isinstance(content, dict):
                raise StoreError(f"{self.path}: {path or 'root'}: {name} is not a JSON object ({DAMAGED})")
            return content

    def check_unchanged(self) -> None:
        before = self._opened
        if before is None:
            return
        with self.wrapped(""):
            found = durable.file_identity(self.path / self._root_file)
        if found is None:
            raise changed_error(self.path, "the store was removed or replaced")
        if found != before:
            what = "written to" if found[:2] == before[:2] else "replaced by another"
            raise changed_error(self.path, f"the store was {what}")

    def close(self) -> None:
        self.is_closed = True
        self.reader.close()
        self._opened = None


class ZarrArray(StoredArray):
    """Array of a streamsvm store, in chunks of whole rows with checksums, optionally compressed by Blosc."""

    container: ZarrContainer

    def __init__(self, container: ZarrContainer, name: str, metadata: dict[str, Any], axes: int) -> None:
        self.container = container
        self.name = name
        is_text = metadata["data_type"] == TEXT
        dtype = np.dtype(object if is_text else metadata["data_type"])
        chunks = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        self._set_layout(metadata["shape"], chunks, dtype, axes, text=is_text)
        self._check_chunk_size()
        self._folder = container.path / name
        if self.dtype is not None:
            undo = checked(undo_blosc if len(metadata["codecs"]) == 3 else copy_bytes)
            name_of = "c/{}".format if axes == 1 else "c.{}.0".format
            self._chunks = ChunkFiles(self, self._folder, undo, name_of)

    def _read(self, start: int, stop: int, *columns: slice) -> np.ndarray:
        file = self._folder / "c/0"  # text arrays have one chunk
        if not file.is_file():
            self.note_absent()
        return decode_text(file.read_bytes(), self.length)[start:stop]

    def stored_bytes(self) -> int:
        with self.container.wrapped(self.name):
            folder = self._folder / "c" if self.columns is None else self._folder
            return sum(entry.stat().st_size for entry in os.scandir(folder)) if folder.is_dir() else 0


class ZarrContainer(ZarrFolder):
    """Zarr folder (format 3) written by streamsvm, opened for reading or writing."""

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self._writers: dict[str, ChunkWriter] = {}
        self.writes = write
        self.path = path
        if write:
            with self.wrapped(""):
                path.mkdir(parents=True)
                _write(path, group_document({}))
        super().__init__(path, METADATA)
        if write:
            self._opened = None

    def attrs(self, group: str) -> dict[str, Any]:
        attributes = self._json(group, METADATA).get("attributes", {})
        return attributes if isinstance(attributes, dict) else {}

    def node(self, path: str) -> str | None:
        with self.wrapped(path):
            if not (self.path / path / METADATA).is_file():
                return None
            kind = self._json(path, METADATA).get("node_type")
            return kind if kind in ("array", "group") else None

    def _array(self, path: str, axes: int) -> ZarrArray:
        return ZarrArray(self, path, self._json(path, METADATA), axes)

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

    def set_record(self, name: str, value: dict[str, Any]) -> None:
        with self.wrapped(""):
            document = encoded(group_document({**self.attrs(""), name: value}))
            durable.write_atomic(self.path / METADATA, document)

    def sync(self) -> None:
        with self.wrapped(""):
            durable.sync_tree(self.path)
            durable.sync_dir(self.path.parent)


def _write(folder: Path, document: dict[str, Any]) -> None:
    (folder / METADATA).write_bytes(encoded(document))
