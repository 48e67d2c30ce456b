"""Open Zarr folders (format 2 or 3) written by other programs, using zarr.

zarr needs at least twice the codec's processor time per chunk, and decodes a chunk again for every range.
Therefore one-dimensional numeric arrays without a codec, or with only Blosc or zstd as anndata writes them,
are decoded without zarr, as in streamsvm stores. zarr reads all other arrays.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streamsvm.errors import StoreError
from streamsvm.store.chunk_reader import copy_bytes
from streamsvm.store.container import StoredArray
from streamsvm.store.zarr_backend import ZarrFolder
from streamsvm.store.zarr_chunks import ChunkFiles, Decoder, undo_blosc, undo_zstd
from streamsvm.store.zarr_metadata import METADATA

# Arrays of format 2 may name any numcodecs codec, including pickle, which can execute code in the data.
SAFE_V2_CODECS = {
    *("blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma", "shuffle", "delta", "vlen-utf8"),
    *("fletcher32", "crc32", "crc32c", "adler32"),
}
_DECODERS: dict[tuple[str, ...], Decoder] = {(): copy_bytes, ("Blosc",): undo_blosc, ("Zstd",): undo_zstd}
# Chunks per zarr task. Reading is 20 % faster with 2 to 8 chunks than with 1.
_BATCH = {"codec_pipeline.batch_size": 4}


class ForeignZarr(ZarrFolder):
    """Zarr folder from another program."""

    def __init__(self, path: Path) -> None:
        roots = [name for name in (METADATA, ".zgroup", ".zarray") if (path / name).is_file()]
        if not roots:
            raise StoreError(f"{path} is not a Zarr store, because it has no zarr.json; check the path")
        super().__init__(path, roots[0])
        self.is_matrix = roots[0] == ".zarray" or self._json("", roots[0]).get("node_type") == "array"
        with self.wrapped(""):
            self._root: Any = None
            if not self.is_matrix:
                self._root = zarr.open_group(path, mode="r", use_consolidated=False)

    def _node(self, path: str) -> Any:
        if self.is_matrix:
            return zarr.open_array(self.path, mode="r") if path in ("", "X") else None
        return self._root.get(path) if path else self._root

    def attrs(self, group: str) -> dict[str, Any]:
        with self.wrapped(group):
            return dict(self._node(group).attrs)

    def node(self, path: str) -> str | None:
        with self.wrapped(path):
            node = self._node(path)
            return None if node is None else "array" if isinstance(node, zarr.Array) else "group"

    def children(self, group: str) -> list[str]:
        with self.wrapped(group):
            node = self._node(group)
            return sorted(node) if isinstance(node, zarr.Group) else []

    def _array(self, path: str, axes: int) -> ForeignArray:
        with zarr.config.set(_BATCH):
            return ForeignArray(self, path, self._node(path), axes)


class ForeignArray(StoredArray):
    container: ForeignZarr
    decodes_whole_chunks = True

    def __init__(self, container: ForeignZarr, name: str, array: zarr.Array, axes: int) -> None:
        self.container = container
        self.name = name
        codecs = [*array.filters, *array.compressors]
        if unknown := {getattr(codec, "codec_id", "crc32") for codec in codecs} - SAFE_V2_CODECS:
            raise self.error(f" uses the unsupported codecs {sorted(unknown)}; write it with Blosc or zstd")
        dtype = np.dtype(array.dtype)
        self._set_layout(array.shape, array.chunks, dtype, axes, text=dtype.kind in "OTUS")
        self._check_chunk_size()
        self._array, self._folder = array, container.path / array.path
        self._chunks = self._direct_chunks() if axes == 1 else None

    def _direct_chunks(self) -> ChunkFiles | None:
        array, dtype = self._array, self.dtype
        is_big = str(getattr(array.serializer, "endian", "")).endswith("big")
        names = tuple(type(codec).__name__.removesuffix("Codec") for codec in array.compressors)
        decode = _DECODERS.get(names)
        if decode is None or array.filters or array.shards or is_big or dtype is None:
            return None
        if dtype.kind not in "fiub" or not dtype.isnative:
            return None
        return ChunkFiles(self, self._folder, decode, self._key, array.fill_value or 0)

    def _key(self, *place: int) -> str:
        return self._array.metadata.encode_chunk_key(place)

    def stored_bytes(self) -> int:
        with self.container.wrapped(self.name):
            return self._array.nbytes_stored()

    def _read(self, start: int, stop: int, *columns: slice) -> np.ndarray:
        array, chosen = self._array, (slice(start, stop), *columns)
        spans = [
            (*each.indices(n)[:2],) for each, n in zip((*chosen, slice(None)), array.shape, strict=False)
        ]
        files = zip(spans, array.shards or array.chunks, strict=True)
        for place in itertools.product(*(range(a // size, -(-b // size)) for (a, b), size in files)):
            if not (self._folder / self._key(*place)).is_file():
                self.note_absent()
        values = np.asarray(array[chosen])
        return values if self.dtype is not None else values.astype(object)
