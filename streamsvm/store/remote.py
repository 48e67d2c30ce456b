"""Stores at an address such as ``s3://bucket/atlas.h5ad``, read by fsspec in ranges, never as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from streamsvm.errors import StoreError
from streamsvm.store.container import Container, StoredArray, one_line, wrong_shape
from streamsvm.store.layout import ArraySpec

if TYPE_CHECKING:
    import zarr

_BLOCK = 2**20  # bytes fetched at once, and kept: as many as
_BLOCKS = 32
_INSTALL = "addresses need fsspec and a package for their protocol: pip install 'streamsvm[remote]' s3fs"
# Format 2 may name any codec of numcodecs, and one of these is pickle, which executes what it reads.
_EXECUTES = {"pickle", "json2", "msgpack2"}


class Url(str):
    """An address, with what is asked of paths."""

    @property
    def file(self) -> str:
        """The address without its query, such as ``?token=a``, which no suffix is part of."""
        return self.partition("?")[0].rstrip("/")

    @property
    def suffix(self) -> str:
        return os.path.splitext(self.file)[1]

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]

    def resolve(self) -> Url:
        return self


def open_remote(url: str, kind: str) -> Container:
    """Open a container at an address.

    Raises `StoreError` if there is none, or fsspec, or what it needs for such addresses, is not installed.
    """
    path = Url(url)
    try:
        import fsspec

        if kind == "zarr":
            return RemoteZarrContainer(path)
        from streamsvm.store.hdf5_backend import Hdf5Container

        file = fsspec.open(
            url, "rb", block_size=_BLOCK, cache_type="blockcache", cache_options={"maxblocks": _BLOCKS}
        ).open()
        return Hdf5Container(path, remote=file)  # type: ignore[arg-type]
    except ImportError as error:
        raise StoreError(f"{url}: {one_line(error)}; {_INSTALL}") from None
    except StoreError:
        raise
    except Exception as error:  # each protocol has errors of its own
        if "Protocol not known" in str(error):
            raise StoreError(f"{url}: fsspec knows no such protocol; {_INSTALL}") from None
        reason = f"{one_line(error)}; check the address, and whether you may read it"
        raise StoreError(f"{url}: {reason}") from error


class RemoteZarrContainer(Container):
    """A Zarr store at an address, which zarr itself reads."""

    kind = "zarr"
    writes = False

    def __init__(self, path: Url) -> None:
        import zarr
        from zarr.storage import FsspecStore

        self.path = path  # type: ignore[assignment]
        try:
            self._root = zarr.open_group(FsspecStore.from_url(str(path), read_only=True), mode="r")
        except FileNotFoundError:
            raise StoreError(f"{path}: nothing is there, or no Zarr store; check the address") from None

    def _node(self, path: str) -> Any:
        return self._root[path] if path else self._root

    def attrs(self, group: str) -> dict[str, Any]:
        with self.wrapped(group):
            return dict(self._node(group).attrs)

    def record(self, name: str) -> Any:
        return self.attr("", name)

    def node(self, path: str) -> str | None:
        import zarr

        with self.wrapped(path), contextlib.suppress(KeyError):
            return "array" if isinstance(self._node(path), zarr.Array) else "group"
        return None

    def children(self, group: str) -> list[str]:
        with self.wrapped(group):
            return sorted(self._node(group)) if self.node(group) == "group" else []

    def array(self, path: str, axes: int = 1) -> RemoteZarrArray:
        if self.node(path) != "array":
            raise StoreError(f"{self.path}: there is no array {path}")
        with self.wrapped(path):
            return RemoteZarrArray(self, path, self._node(path), axes)

    def check_unchanged(self) -> None:
        """Do nothing: an address has no identity that all protocols tell."""

    def close(self) -> None:
        self._root.store.close()

    def _refuse(self) -> NoReturn:
        raise StoreError(f"{self.path}: addresses are only read")

    def create_group(self, path: str, attrs: dict[str, Any]) -> None:
        self._refuse()

    def create_array(
        self, path: str, spec: ArraySpec, *, chunk: int, codec: str, attrs: dict[str, Any]
    ) -> None:
        self._refuse()

    def create_text(self, path: str, texts: Sequence[str], *, attrs: dict[str, Any]) -> None:
        self._refuse()

    def write(self, path: str, start: int, values: np.ndarray) -> None:
        self._refuse()

    def set_record(self, name: str, value: dict[str, Any]) -> None:
        self._refuse()

    def sync(self) -> None:
        self._refuse()


class RemoteZarrArray(StoredArray):
    """An array of a Zarr store at an address."""

    def __init__(self, container: RemoteZarrContainer, name: str, array: zarr.Array, axes: int) -> None:
        if len(array.shape) != axes:
            raise wrong_shape(container.path, name, array.shape, axes)
        codecs = [*(getattr(array, "filters", None) or ()), *(getattr(array, "compressors", None) or ())]
        if unfit := {getattr(codec, "codec_id", "") for codec in codecs} & _EXECUTES:
            raise StoreError(f"{container.path}: array {name} uses {sorted(unfit)}, which is not read")
        self.container = container
        self.name = name
        self.length = int(array.shape[0])
        self.chunk = max(1, int((array.shards or array.chunks)[0]))
        dtype = np.dtype(array.dtype)
        self.dtype = None if dtype.kind in "OTUS" else dtype
        self.columns = int(array.shape[1]) if axes == 2 else None
        self.width = dtype.itemsize * (1 if self.columns is None else self.columns)
        self._array = array

    def _read(self, start: int, stop: int) -> np.ndarray:
        values = np.asarray(self._array[start:stop])
        return values if self.dtype is not None else values.astype(object)

    def stored_bytes(self) -> int:
        """What is claimed, as not every protocol lists files."""
        return self.length * self.width

    def check_chunks(self) -> None:
        """Do nothing: not every protocol lists files."""

    def load_checksums(self, digest: str) -> None:
        """Do nothing: zarr compares each chunk with the checksum in it."""

    def layout(self) -> str:
        raise StoreError(
            f"{self.container.path}: a store that streamsvm wrote is read from a local disk; copy it first"
        )
