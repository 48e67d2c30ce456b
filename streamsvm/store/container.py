"""Base classes of containers (Zarr folders, HDF5 files and matrix files) and of the arrays in them."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from streamsvm.base import durable
from streamsvm.base.page_cache import dont_need, memory_limit
from streamsvm.errors import InputError, Option, Remedy, StoreError, warn
from streamsvm.store.chunk_reader import ChunkReader, Chunks
from streamsvm.store.ranges import Ranges, copy_ranges, lengths, span

DAMAGED = "damaged: convert again"
_MAX_GAP = 2**16  # maximum bytes between two ranges that are read together
_WINDOW = 2**20  # ranges read together begin in the same window of about this many bytes (whole chunks)
UNWRITTEN = "could not be written: remove it and try again"
COPY_AGAIN = "copy the whole store again"
WRITE_ALL = ", or write it with zarr.config.set({'array.write_empty_chunks': True})"

# No codec that streamsvm or anndata uses compresses constant bytes by a larger ratio (zstd: about 2**15).
MAX_COMPRESSION = 2**17
SLACK = 2**20  # bytes that an array may claim beyond this ratio
MAX_CHUNK_BYTES = 2**30  # maximum size of a decoded chunk


class MissingChunk(ValueError):
    """Raised if a required chunk does not exist."""


class StoredArray:
    """One- or two-dimensional array in a container. In two dimensions, an element is a row.

    `absent_chunks` determines what happens if a chunk is missing. Other Zarr writers omit chunks that contain
    only the fill value.
    """

    name: str  # path in the container, such as "X/data"
    length: int
    dtype: np.dtype | None  # None for text
    width: int  # size of an element in memory, in bytes; for variable-length strings, of a reference
    columns: int | None  # number of columns; None, like `column_chunk`, for a one-dimensional array
    chunk: int  # elements per chunk, the unit of decoding or reading
    column_chunk: int | None = None  # columns per chunk
    container: Container
    absent_chunks: Literal["refuse", "warn", "allow"] = "refuse"
    decodes_whole_chunks = False  # whether ranges that share a chunk are read together
    _chunks: Chunks | None = None  # set if chunks are decoded without the container's library

    def _set_layout(
        self, shape: Sequence[int] | None, chunks: Sequence[int], dtype: np.dtype, axes: int, *, text: bool
    ) -> None:
        """Set the attributes that depend on the shape; raise StoreError unless it has `axes` dimensions."""
        if shape is None or len(shape) != axes:
            expected = "one dimension" if axes == 1 else "two dimensions"
            raise self.error(f" has shape {shape}; it must have {expected}")
        self.length = int(shape[0])
        self.columns = int(shape[1]) if axes == 2 else None
        self.chunk = max(1, int(chunks[0]))
        self.column_chunk = int(chunks[1]) if axes == 2 else None
        self.dtype = None if text else dtype
        self.width = dtype.itemsize * (1 if self.columns is None else self.columns)

    def _check_chunk_size(self) -> None:
        """Raise StoreError, before anything is decoded, if a decoded chunk would exceed 1 GiB."""
        size = self.width // (self.columns or 1) * self.chunk * (self.column_chunk or 1)
        if size > MAX_CHUNK_BYTES:
            raise self.error(f" has chunks of {size:,} bytes, but at most {MAX_CHUNK_BYTES:,} are supported")

    @property
    def shape(self) -> list[int]:
        return [self.length] if self.columns is None else [self.length, self.columns]

    @functools.cached_property
    def exceeds_page_cache(self) -> bool:
        """Whether the array is too large to stay in the page cache from one pass to the next.

        The limit is 1/8 of the memory, because a store has two large arrays, and most of the memory is needed
        for weights and duals.
        """
        return self.stored_bytes() > memory_limit() // 8

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the elements ``start:stop`` in a new array; each chunk is decoded once.

        Raises StoreError, naming array and chunk, if an element cannot be read or the container has changed.
        """
        return self.read_ranges(span(start, stop))

    def read_ranges(self, ranges: Ranges) -> np.ndarray:
        """Return the elements in ranges, concatenated in a new array; errors are as for `read`."""
        filled = ranges[lengths(ranges) > 0]
        if not len(filled):
            return np.empty(0 if self.columns is None else (0, self.columns), self.dtype or object)
        try:
            values = self._read_ranges(filled)
        except Exception as error:  # codecs and libraries raise many types
            self.container.check_unchanged()
            for start, stop in filled.tolist():
                self._raise_for_chunk(start, stop)
            if isinstance(error, MemoryError):  # each chunk by itself fits
                what = f": not enough memory for {stop - start} elements; read fewer rows at a time"
                raise self.error(what) from error
            raise self._read_error(start // self.chunk, error) from error
        self._after_read()
        return values

    def read_part(self, start: int, stop: int, first: int, end: int) -> np.ndarray:
        """Return rows ``start:stop`` and columns ``first:end`` of a two-dimensional array, in a new array."""
        try:
            values = self._read(start, stop, slice(first, end))
        except Exception as error:
            self.container.check_unchanged()
            raise self._read_error(start // self.chunk, error) from error
        self._after_read()
        return values

    def _after_read(self) -> None:
        descriptor = self.container.descriptor
        if descriptor is not None and self.exceeds_page_cache:
            dont_need(descriptor)
        self.container.check_read()

    def _read_ranges(self, ranges: Ranges) -> np.ndarray:
        if self._chunks is not None:
            values = self.container.reader.read(self._chunks, ranges * (self.columns or 1))
            return values if self.columns is None else values.reshape(-1, self.columns)
        if len(ranges) == 1:
            return self._read(*ranges[0].tolist())
        sizes = lengths(ranges)
        places = np.cumsum(sizes) - sizes
        order = np.argsort(ranges[:, 0], kind="stable")  # order on disk
        begins, furthest = ranges[order, 0], np.maximum.accumulate(ranges[order, 1])
        is_border = (begins[1:] - furthest[:-1]) * self.width > _MAX_GAP
        if self.columns is not None or self.decodes_whole_chunks:  # decode no chunk twice
            is_border &= begins[1:] // self.chunk > (furthest[:-1] - 1) // self.chunk
        window = -(-_WINDOW // (self.chunk * max(self.width, 1))) * self.chunk
        is_border |= np.diff(begins // window) > 0
        out: np.ndarray | None = None
        for group in np.split(order, np.flatnonzero(is_border) + 1):
            first = int(ranges[group[0], 0])
            values = self._read(first, int(ranges[group, 1].max()))
            if out is None:
                out = np.empty((int(sizes.sum()), *values.shape[1:]), values.dtype)
            to = np.column_stack([places[group], places[group] + sizes[group]])
            copy_ranges(out, to, values, ranges[group] - first)
        assert out is not None
        return out

    def _raise_for_chunk(self, start: int, stop: int) -> None:
        """Raise an error for the first chunk of the range that cannot be read, if any."""
        for chunk in range(start // self.chunk, -(-stop // self.chunk)):
            try:
                self._read_ranges(span(chunk * self.chunk, min((chunk + 1) * self.chunk, self.length)))
            except Exception as cause:
                raise self._read_error(chunk, cause) from cause

    def _read_error(self, chunk: int, cause: Exception) -> StoreError:
        if self.container.is_closed:
            return StoreError(f"{self.container.path}: the store is closed")
        if isinstance(cause, MissingChunk):
            remedy = COPY_AGAIN + (WRITE_ALL if self.container.kind == "zarr" else "")
            return self.error(f", chunk {chunk}: {cause}; {remedy}")
        if system_error(cause) is None:
            return self.damage(chunk * self.chunk, one_line(cause))
        # A chunk that the system cannot read is not necessarily damaged.
        return self.error(f", chunk {chunk}: {one_line(cause)}")

    def error(self, what: str) -> StoreError:
        """Return an error that begins with the container's path and the array's name."""
        return StoreError(f"{self.container.path}: array {self.name}{what}")

    def damage(self, element: int, reason: str) -> StoreError:
        """Return an error that names the array and the chunk that contains `element`."""
        return self.error(f", chunk {element // self.chunk}: {reason} ({DAMAGED})")

    def note_absent(self) -> None:
        """If `absent_chunks` is "refuse", raise MissingChunk; if "warn", record the array. Thread-safe."""
        if self.absent_chunks == "refuse":
            raise MissingChunk("the chunk is missing")
        if self.absent_chunks == "warn":
            self.container.gaps |= {self.name}

    def check_claimed_size(self) -> None:
        """Raise StoreError, before allocating anything, if the stored bytes are too few for the length."""
        claimed, stored = self.length * self.width, self.stored_bytes()
        if claimed > stored * MAX_COMPRESSION + SLACK:
            raise self.error(f" claims {claimed:,} bytes, but only {stored} bytes are stored ({DAMAGED})")

    def check_length(self, expected: int) -> None:
        if self.length != expected:
            raise self.error(f" has {self.length} elements instead of {expected}")

    def check_integers(self) -> None:
        if self.dtype is None or self.dtype.kind not in "iu":
            raise self.error(" does not hold integers")

    def _read(self, start: int, stop: int, *columns: slice) -> np.ndarray:
        """Return the elements ``start:stop``, or some `columns` of them; called only if `_chunks` is None."""
        raise NotImplementedError

    def stored_bytes(self) -> int:
        """Return the total size of all chunks on disk in bytes, or the claimed size if it is unknown."""
        return self.length * self.width


class Container(ABC):
    """Zarr folder, HDF5 file or matrix file, opened for reading or, if streamsvm creates it, for writing.

    Errors of the file system, the file format's library and its codecs are raised as `StoreError`.
    """

    gaps: frozenset[str] = frozenset()  # names of arrays with missing chunks

    path: Path
    kind: str
    reader: ChunkReader
    writes = False
    is_matrix = False  # whether there is only a matrix ``X``, without labels or names
    is_closed = False
    _opened: Any = None  # file status at opening
    has_gaps = False  # whether the warning about missing chunks was issued

    @property
    def descriptor(self) -> int | None:
        """File descriptor; None for a folder."""
        return None

    @contextlib.contextmanager
    def wrapped(self, node: str) -> Iterator[None]:
        """Convert errors of the library, its codecs and the file system to a StoreError."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            refused = system_error(error) is not None or isinstance(error, durable.UnfitFile)
            fault = UNWRITTEN if self.writes else DAMAGED
            remedy = "" if refused else f" ({fault})"
            raise StoreError(f"{self.path}: {node or 'root'}: {one_line(error)}{remedy}") from error

    def attrs(self, group: str) -> dict[str, Any]:
        """Return the attributes of a group; ``""`` is the root."""
        return {}

    def attr(self, group: str, name: str) -> Any:
        """Return one attribute of a group, or None."""
        return self.attrs(group).get(name)

    def record(self, name: str) -> Any:
        """Return a JSON attribute of the root, or None."""
        return self.attr("", name)

    @abstractmethod
    def node(self, path: str) -> str | None:
        """Return ``"group"``, ``"array"``, or None if the node does not exist."""

    def children(self, group: str) -> list[str]:
        """Return the sorted names in an AnnData group; an empty list if the group does not exist."""
        return []

    def labels(self, name: str) -> tuple[Any, np.ndarray | None]:
        """Return the labels that are stored with a matrix under `name`; raise `InputError` if there are none.

        Returns either the array of labels and None, or a list of distinct labels and an array with the
        position of each row's label in that list.
        """
        raise InputError(
            f"{self.path} is a single array, which has no labels {name!r}",
            remedy=Remedy("specify a file of labels with {}", Option("labels")),
        )

    def array(self, path: str, axes: int = 1) -> StoredArray:
        """Open an array; raise StoreError if it does not exist or does not have `axes` dimensions."""
        if self.node(path) != "array":
            raise StoreError(f"{self.path}: there is no array {path} ({DAMAGED})")
        with self.wrapped(path):
            return self._array(path, axes)

    @abstractmethod
    def _array(self, path: str, axes: int) -> StoredArray: ...

    def check_unchanged(self) -> None:
        """Raise StoreError if the open file has changed. A new file at the same path is not a change."""
        if self._opened is not None:
            with self.wrapped(""):
                status = os.fstat(cast(int, self.descriptor))
            if (status.st_size, status.st_mtime_ns) != (self._opened.st_size, self._opened.st_mtime_ns):
                raise changed_error(self.path, "the file was written to")

    def check_read(self) -> None:
        """Check for changes after a read, and warn about the first missing chunk."""
        self.check_unchanged()
        if self.gaps and not self.has_gaps:
            self.has_gaps = True
            what = f"{self.path}: array {min(self.gaps)} lacks chunks, which are read as zeros"
            warn(what, remedy=Remedy("copy the store again if the copy is not complete"))

    @abstractmethod
    def close(self) -> None: ...


def changed_error(path: Path, what: str) -> StoreError:
    return StoreError(f"{path}: {what} while it was in use; restore the old store, or start again")


# Phrases in libhdf5's messages, with their meanings.
_HDF5_PHRASES = {
    "filter returned failure": "checksum or decompression failure",  # the fletcher32 checksum is a filter
    "truncated file": "the file is truncated: it is shorter than its header says",
    "signature not found": "not an HDF5 file",
    "already open for write": "the file is incomplete: its writer has not finished, or was killed",
}


def one_line(error: BaseException) -> str:
    """Return one line about an error: its known meaning, the first line of its message, or its type."""
    if (refused := system_error(error)) is not None:
        return durable.reason(refused)
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    for phrase, meaning in _HDF5_PHRASES.items():
        if phrase in text:
            return meaning
    lines = text.strip().splitlines()
    return lines[0] if lines else type(error).__name__


def system_error(error: BaseException) -> OSError | None:
    """Return the operating system's error behind `error`, or None. HDF5 quotes its number in the message."""
    if isinstance(error, OSError) and error.errno and error.strerror in (os.strerror(error.errno), None):
        return error
    quoted = re.search(r"errno = (\d+)", str(error))
    return OSError(int(quoted[1]), os.strerror(int(quoted[1]))) if quoted else None
