"""What the store asks of a container, Zarr or HDF5: the few calls that both answer alike."""

from __future__ import annotations

import functools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from streamsvm import durable
from streamsvm.errors import StoreError
from streamsvm.store.layout import ArraySpec
from streamsvm.store.page_cache import room

REMEDY = "damaged: convert again"

# No codec of ours, or of anndata's, packs constant bytes tighter than this (zstd: about 2^15).
MAX_RATIO = 2**17
SMALL = 2**20


class StoredArray(ABC):
    """One 1-d array in a container.

    Attributes
    ----------
    name : str
        Its path in the container, such as ``X/data``.
    length : int
    dtype : dtype or None
        None for text.
    width : int
        Bytes of an element in memory; of text, where its length is not fixed, those of a reference.
    chunk : int
        Elements a chunk.
    """

    name: str
    length: int
    dtype: np.dtype | None
    width: int
    chunk: int
    container: Container

    @property
    def n_chunks(self) -> int:
        return -(-self.length // self.chunk)

    @functools.cached_property
    def outgrows(self) -> bool:
        """Whether the system could not keep the array from one pass to the next, with all else that it keeps.

        There are two large arrays, and most of the memory is for the rest.
        """
        return self.stored_bytes() > room() // 8

    def read(self, start: int, stop: int) -> np.ndarray:
        """Elements ``start:stop``, freshly allocated; each chunk is decoded once.

        Raises StoreError naming array and chunk when the container cannot give them, or if it is no
        longer the one that was opened.
        """
        if start >= stop:
            return np.empty(0, self.dtype or object)
        try:
            values = self._read(start, stop)
        except Exception as error:  # codecs and containers raise types of their own
            self.container.check_unchanged()
            self._blame(start, stop, error)
        self.container.check_unchanged()
        return values

    def _blame(self, start: int, stop: int, error: Exception) -> NoReturn:
        """Name the first chunk of the range that fails by itself."""
        for chunk in range(start // self.chunk, -(-stop // self.chunk)):
            try:
                self._read(chunk * self.chunk, min((chunk + 1) * self.chunk, self.length))
            except Exception as cause:
                raise self._fault(chunk, cause) from cause
        if isinstance(error, MemoryError):  # chunk by chunk it fits
            raise StoreError(
                f"{self.container.path}: array {self.name}: not enough memory for {stop - start} elements; "
                "read fewer rows at a time"
            ) from error
        raise self._fault(start // self.chunk, error) from error

    def _fault(self, chunk: int, cause: Exception) -> StoreError:
        if system_error(cause) is None:
            return self.fault(chunk * self.chunk, one_line(cause))
        # What cannot be read need not be damaged.
        return StoreError(f"{self.container.path}: array {self.name}, chunk {chunk}: {one_line(cause)}")

    def fault(self, element: int, reason: str) -> StoreError:
        """An error that names this array and the chunk in which `element` lies."""
        chunk = element // self.chunk
        return StoreError(f"{self.container.path}: array {self.name}, chunk {chunk}: {reason} ({REMEDY})")

    def check_held(self) -> None:
        """Refuse a claimed length that the bytes on disk cannot hold, before anything allocates it."""
        claimed, stored = self.length * self.width, self.stored_bytes()
        if claimed > stored * MAX_RATIO + SMALL:
            raise StoreError(
                f"{self.container.path}: array {self.name} claims {self.length} elements, "
                f"but only {stored} bytes of it are there ({REMEDY})"
            )

    @abstractmethod
    def _read(self, start: int, stop: int) -> np.ndarray: ...

    @abstractmethod
    def stored_bytes(self) -> int:
        """Bytes of the array's chunks on disk."""

    @abstractmethod
    def check_chunks(self) -> None:
        """Raise StoreError naming the first chunk that was never written or is lost."""

    @abstractmethod
    def expect_chunks(self, digest: str) -> None:
        """From now on compare each chunk with the checksum that its writer put down for it.

        `digest` is what `Container.write_checksums` gave.
        """

    @abstractmethod
    def layout(self) -> str:
        """How chunks are encoded, in words that do not depend on the library's version."""


class Container(ABC):
    """A Zarr folder or an HDF5 file, open for reading or for writing.

    Every method raises `StoreError`, and nothing else, for what is or happens on disk.
    """

    path: Path
    kind: str

    @abstractmethod
    def attrs(self, group: str) -> dict[str, Any]:
        """Attributes of a group (``""`` is the root)."""

    @abstractmethod
    def attr(self, group: str, name: str) -> Any:
        """One attribute, or None."""

    @abstractmethod
    def record(self, name: str) -> Any:
        """Our JSON attribute at the root, or None."""

    @abstractmethod
    def node(self, path: str) -> str | None:
        """``"group"``, ``"array"``, or None when there is nothing."""

    @abstractmethod
    def array(self, path: str) -> StoredArray: ...

    @abstractmethod
    def create_group(self, path: str, attrs: dict[str, Any]) -> None: ...

    @abstractmethod
    def create_array(
        self, path: str, spec: ArraySpec, *, chunk: int, codec: str, attrs: dict[str, Any]
    ) -> None:
        """An array of numbers, to be filled by `write`."""

    @abstractmethod
    def create_text(self, path: str, texts: Sequence[str], *, attrs: dict[str, Any]) -> None:
        """An array of strings, written at once."""

    @abstractmethod
    def write(self, path: str, start: int, values: np.ndarray) -> None: ...

    @abstractmethod
    def set_record(self, name: str, value: dict[str, Any]) -> None:
        """Write our JSON attribute at the root, replacing an earlier one."""

    def write_checksums(self) -> dict[str, str]:
        """Put down the checksum of every chunk of every array of numbers, where chunks are files.

        Returns the SHA-256 of what was put down for each array, by its name.
        """
        return {}

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise StoreError if another store stands here than was opened, or this one was written to."""

    @abstractmethod
    def sync(self) -> None:
        """Make everything written so far durable."""

    @abstractmethod
    def close(self) -> None: ...


def changed(path: Path, what: str) -> StoreError:
    """The error of `check_unchanged`."""
    return StoreError(f"{path}: {what} while it was in use; bring the old one back, or begin anew")


def describe(array: StoredArray) -> dict[str, Any]:
    """An array's metadata as the record keeps it, to notice on opening that it was altered."""
    return {
        "shape": [array.length],
        "dtype": "text" if array.dtype is None else array.dtype.name,
        "chunk": array.chunk,
        "layout": array.layout(),
    }


def one_line(error: BaseException) -> str:
    """The first line of an error's message, or its type when it has none."""
    if (refused := system_error(error)) is not None:
        return durable.reason(refused)
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if "filter returned failure" in text:  # HDF5's words for what fletcher32 finds
        return "checksum or decompression failure"
    lines = text.strip().splitlines()
    return lines[0] if lines else type(error).__name__


def system_error(error: BaseException) -> OSError | None:
    """What the system refused, if that was the reason; HDF5 says it in the midst of its own words."""
    if isinstance(error, OSError) and error.errno and error.strerror in (os.strerror(error.errno), None):
        return error
    said = re.search(r"errno = (\d+)", str(error))
    return OSError(int(said[1]), os.strerror(int(said[1]))) if said else None


def open_container(path: Path, kind: str, *, write: bool = False) -> Container:
    """Open a container of the given kind; its library is imported here and not before."""
    if kind == "zarr":
        from streamsvm.store.zarr_backend import ZarrContainer

        return ZarrContainer(path, write=write)
    from streamsvm.store.hdf5_backend import Hdf5Container

    return Hdf5Container(path, write=write)
