"""Stores at an address such as ``s3://bucket/atlas.h5ad``, read by fsspec in ranges or chunks."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.errors import StoreError
from streamsvm.store.chunk_reader import ChunkReader
from streamsvm.store.container import Container, ServerError, StoredArray, one_line
from streamsvm.store.remote_files import file_options, open_file

if TYPE_CHECKING:
    import zarr

_FETCH_THREADS = 16  # that fetch chunks: each mostly waits
_INSTALL_HINT = "addresses need fsspec and a package for their protocol: pip install 'streamsvm[remote]' s3fs"
# Format 2 may name any codec of numcodecs, and one of these is pickle, which executes what it reads.
_UNSAFE_CODECS = {"pickle", "json2", "msgpack2"}


class Url(str):
    """URL with the attributes of paths that stores use."""

    @property
    def file(self) -> str:
        """URL without its query, such as ``?token=a``."""
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
        if kind == "zarr":
            return RemoteZarrContainer(path)
        from streamsvm.store.hdf5_backend import Hdf5Container

        return Hdf5Container(path, remote=open_file(url))  # type: ignore[arg-type]
    except ImportError as error:
        raise StoreError(f"{url}: {one_line(error)}; {_INSTALL_HINT}") from None
    except StoreError:
        raise
    except ServerError as error:
        raise StoreError(f"{url}: {error}") from error
    except Exception as error:  # each protocol has errors of its own
        if "Protocol not known" in str(error):
            raise StoreError(f"{url}: fsspec knows no such protocol; {_INSTALL_HINT}") from None
        what = "nothing is there" if isinstance(error, FileNotFoundError) else one_line(error)
        raise StoreError(f"{url}: {what}; check the address, and whether you may read it") from error


class RemoteZarrContainer(Container):
    """Zarr store at a URL, which zarr reads."""

    kind = "zarr"
    is_remote = True

    def __init__(self, path: Url) -> None:
        import fsspec
        import zarr

        from streamsvm.store.remote_zarr import RetryingStore

        self.path = path  # type: ignore[assignment]
        self.reader = ChunkReader(_FETCH_THREADS)
        options = file_options(path)
        self._files, self._folder = fsspec.core.url_to_fs(path.file, **options)
        store = RetryingStore.from_url(str(path), options, read_only=True)
        try:
            self._root = zarr.open_group(store, mode="r")
        except FileNotFoundError:
            raise StoreError(f"{path}: nothing is there, or no Zarr store; check the address") from None

    def _node(self, path: str) -> Any:
        return self._root[path] if path else self._root

    def attrs(self, group: str) -> dict[str, Any]:
        with self.wrapped(group):
            return dict(self._node(group).attrs)

    def node(self, path: str) -> str | None:
        import zarr

        with self.wrapped(path), contextlib.suppress(KeyError):
            return "array" if isinstance(self._node(path), zarr.Array) else "group"
        return None

    def children(self, group: str) -> list[str]:
        with self.wrapped(group):
            return sorted(self._node(group)) if self.node(group) == "group" else []

    def _array(self, path: str, axes: int) -> StoredArray:
        return RemoteZarrArray(self, path, self._node(path), axes)

    def check_unchanged(self) -> None:
        """Do nothing: not all protocols tell if a file has changed."""

    def close(self) -> None:
        self.is_closed = True
        self.reader.close()
        self._root.store.close()


class RemoteZarrArray(StoredArray):
    """Array of a Zarr store at a URL, read by zarr; not every protocol lists its files."""

    def __init__(self, container: RemoteZarrContainer, name: str, array: zarr.Array, axes: int) -> None:
        codecs = [*(getattr(array, "filters", None) or ()), *(getattr(array, "compressors", None) or ())]
        if unfit := {getattr(codec, "codec_id", "") for codec in codecs} & _UNSAFE_CODECS:
            raise StoreError(f"{container.path}: array {name} uses {sorted(unfit)}, which is not read")
        self.container = container
        self.name = name
        dtype = np.dtype(array.dtype)
        self._set_layout(array.shape, array.chunks, dtype, axes, text=dtype.kind in "OTUS")
        self._array = array

    def _read(self, start: int, stop: int) -> np.ndarray:
        values = np.asarray(self._array[start:stop])
        return values if self.dtype is not None else values.astype(object)
