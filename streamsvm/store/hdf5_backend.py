"""Read and write HDF5 files as containers."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from streamsvm.base import durable
from streamsvm.errors import StoreError
from streamsvm.store.chunk_reader import ChunkReader
from streamsvm.store.container import Container, StoredArray
from streamsvm.store.hdf5_chunks import complete_rows, compressed_chunks
from streamsvm.store.layout import ArraySpec

# File format 1.10 has checksums of all structures, even of chunk indexes, which have none in 1.8. It also
# allows attributes of more than 64 KB.
LIBVER = ("v110", "v110")
CHUNK_CACHE = 4 * 2**20  # more than CHUNK_NNZ float64 values, so reads that share a chunk decode it once

_PIECE = 2**18  # elements per read of a dataset without chunks

# HDF5 without plugins has no fast codec: reading is three times slower with lzf than without a codec
# (docs/measurements/store.md).
CODECS: dict[str, dict[str, Any]] = {
    "fast": {},
    "small": {"compression": "gzip", "compression_opts": 4, "shuffle": True},
    "none": {},
}


class Hdf5Array(StoredArray):
    def __init__(self, container: Hdf5Container, name: str, dataset: h5py.Dataset, axes: int) -> None:
        in_other_file = dataset.file.filename != str(container.path)
        self.container: Hdf5Container = container
        self.name = name
        if dataset.is_virtual or dataset.external or in_other_file:
            raise self.error(" is stored in another file, which is unsupported; copy it into this file")
        text = h5py.check_string_dtype(dataset.dtype) is not None
        chunks = dataset.chunks
        if not chunks and dataset.shape:  # contiguous, so nothing is decoded
            length, *columns = dataset.shape
            chunks = (min(length, _PIECE // max(1, *columns, 1)), *columns)
        self._set_layout(dataset.shape, chunks, dataset.dtype, axes, text=text)
        self._check_chunk_size()
        self._dataset = dataset
        self._source = dataset.asstr() if text else dataset
        self._chunks = compressed_chunks(dataset, self._has_chunks) if axes == 1 else None

    @functools.cached_property
    def _complete(self) -> np.ndarray | None:
        return complete_rows(self._dataset)

    def _has_chunks(self, first: int, end: int) -> bool:
        """Return whether rows ``first:end`` of the chunk grid are complete; if not, call `note_absent`."""
        exist = self._complete is None or bool(self._complete[first:end].all())
        if not exist:
            self.note_absent()
        return exist

    def _read(self, start: int, stop: int, *columns: slice) -> np.ndarray:
        self._has_chunks(start // self.chunk, -(-stop // self.chunk))
        return np.asarray(self._source[(slice(start, stop), *columns)])

    def stored_bytes(self) -> int:
        with self.container.wrapped(self.name):
            # A damaged file may overstate its storage size.
            return min(self._dataset.id.get_storage_size(), self.container.size)


class Hdf5Container(Container):
    """HDF5 file opened for reading or writing."""

    kind = "hdf5"

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self.path = path
        self.writes = write
        self.reader = ChunkReader()
        self.size = 0  # file size in bytes when opened for reading
        self._file: h5py.File | None = None
        self._writing = threading.Lock()
        self._failed: Exception | None = None  # error of the first failed write
        with self.wrapped(""):
            if write:
                self._file = h5py.File(path, "x", libver=LIBVER, locking="best-effort")
            else:
                if not path.is_file():
                    raise StoreError(f"{path} is not a regular file; check the path")
                self._file = h5py.File(path, "r", rdcc_nbytes=CHUNK_CACHE, locking="best-effort")
                self._opened = os.fstat(self.descriptor)
                self.size = self._opened.st_size

    @property
    def descriptor(self) -> int:
        assert self._file is not None
        return int(self._file.id.get_vfd_handle())

    def _node(self, path: str) -> Any:
        if self._file is None:
            raise StoreError(f"{self.path}: the store is closed")
        return self._file[path or "/"]

    def attrs(self, group: str) -> dict[str, Any]:
        with self.wrapped(group):
            attrs = self._node(group).attrs
            return {name: _plain(value) for name, value in attrs.items()}

    def record(self, name: str) -> Any:
        text = self.attr("", name)
        with self.wrapped(""):
            return None if text is None else json.loads(text)

    def node(self, path: str) -> str | None:
        with self.wrapped(path):
            if path and path not in self._node(""):
                return None
            return "array" if isinstance(self._node(path), h5py.Dataset) else "group"

    def children(self, group: str) -> list[str]:
        with self.wrapped(group):
            return sorted(self._node(group)) if self.node(group) == "group" else []

    def _array(self, path: str, axes: int) -> Hdf5Array:
        return Hdf5Array(self, path, self._node(path), axes)

    def create_group(self, path: str, attrs: dict[str, Any]) -> None:
        with self.wrapped(path):
            _set_attrs(self._node("").require_group(path or "/"), attrs)

    def create_array(
        self, path: str, spec: ArraySpec, *, chunk: int, codec: str, attrs: dict[str, Any]
    ) -> None:
        with self.wrapped(path):
            shape, chunks = tuple(spec.shape(spec.length)), tuple(spec.shape(chunk))
            # HDF5 does not allow chunks in an empty dataset.
            options = {"chunks": chunks, "fletcher32": True, **CODECS[codec]} if spec.length else {}
            root = self._node("")
            dataset = root.create_dataset(path, shape, spec.dtype, fillvalue=spec.fill, **options)
            _set_attrs(dataset, attrs)

    def create_text(self, path: str, texts: Sequence[str], *, attrs: dict[str, Any]) -> None:
        with self.wrapped(path):
            encoded = [text.encode() for text in texts]
            width = max(map(len, encoded), default=1) or 1
            # Strings have fixed length, because HDF5 keeps variable-length strings in a global heap without
            # checksums, and libhdf5 may hang on a damaged heap.
            dtype = h5py.string_dtype("utf-8", width)
            chunk = max(1, min(len(texts), 2**22 // width))
            spec = ArraySpec(len(texts), dtype, None)
            self.create_array(path, spec, chunk=chunk, codec="small", attrs=attrs)
            for start in range(0, len(texts), chunk):
                self.write(path, start, np.array(encoded[start : start + chunk], dtype=dtype))

    def write(self, path: str, start: int, values: np.ndarray) -> None:
        with self.wrapped(path), self._writing:
            if self._failed is not None:  # libhdf5's next error would hide the cause
                raise self._failed
            try:
                _put(self._node(path), start, values)
            except Exception as error:
                self._failed = error
                raise

    def set_record(self, name: str, value: dict[str, Any]) -> None:
        with self.wrapped(""):
            text = json.dumps(value, allow_nan=False).encode()
            # A string of fixed length lies in the object header, which has a checksum: see `create_text`.
            dtype = h5py.string_dtype("utf-8", len(text))
            self._node("").attrs.create(name, np.bytes_(text), dtype=dtype)
        self.sync()

    def sync(self) -> None:
        with self.wrapped(""):
            assert self._file is not None
            self._file.flush()
            durable.sync_tree(self.path)
            durable.sync_dir(self.path.parent)

    def close(self) -> None:
        self.is_closed = True
        self.reader.close()
        if self._file is not None:
            with self.wrapped(""), _kept_open(self._file):
                self._file.close()
                if self.writes:  # closing clears the flag "open for writing" in the file's first bytes
                    durable.sync_tree(self.path)
            self._file = self._opened = None


@contextlib.contextmanager
def _kept_open(node: Any) -> Iterator[None]:
    """Keep a node open after an error, because h5py would close it, fail again and print the second error."""
    try:
        yield
    except Exception:
        node.id.locked = True
        raise


def _put(dataset: h5py.Dataset, start: int, values: np.ndarray) -> None:
    with _kept_open(dataset):
        if dataset.ndim == 2:
            start, values = start // dataset.shape[1], values.reshape(-1, dataset.shape[1])
        dataset[start : start + len(values)] = values
        dataset.flush()  # closing the dataset would flush, too, but ignore errors


def _set_attrs(node: Any, attrs: dict[str, Any]) -> None:
    for name, value in attrs.items():
        if isinstance(value, list):
            text = all(isinstance(item, str) for item in value)
            value = np.array(value, dtype=h5py.string_dtype() if text else np.int64)
        node.attrs[name] = value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
