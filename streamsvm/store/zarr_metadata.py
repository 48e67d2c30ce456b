"""Create metadata documents of Zarr format 3."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from streamsvm.store.layout import ArraySpec

METADATA = "zarr.json"

TEXT = "string"
_LITTLE_ENDIAN = {"name": "bytes", "configuration": {"endian": "little"}}
_BYTES = {"name": "bytes"}  # one-byte numbers have no byte order
# All chunk files of an array lie in one folder, because every additional folder would have to be synced.
_KEYS = {axes: {"name": "default", "configuration": {"separator": "/."[axes - 1]}} for axes in (1, 2)}


def encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode()


def group_document(attrs: dict[str, Any]) -> dict[str, Any]:
    return {"attributes": attrs, "zarr_format": 3, "node_type": "group"}


def array_document(
    spec: ArraySpec, chunk: int, blosc: dict[str, Any] | None, attrs: dict[str, Any]
) -> dict[str, Any]:
    """Return the metadata of an array with `chunk` values per chunk, compressed unless `blosc` is empty."""
    dtype, fill, shape = spec.dtype, spec.fill, spec.shape(spec.length)
    number = None if dtype is None else np.dtype(dtype)
    codecs: list[dict[str, Any]] = [_BYTES if number is not None and number.itemsize == 1 else _LITTLE_ENDIAN]
    if number is None:
        codecs = [{"name": "vlen-utf8", "configuration": {}}]
    if blosc:
        size = 1 if number is None else number.itemsize
        codecs.append({"name": "blosc", "configuration": {"typesize": size, **blosc, "blocksize": 0}})
    return {
        "shape": shape,
        "data_type": TEXT if number is None else number.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": spec.shape(chunk)}},
        "chunk_key_encoding": _KEYS[len(shape)],
        "fill_value": "NaN" if isinstance(fill, float) and math.isnan(fill) else fill,
        "codecs": [*codecs, {"name": "crc32c"}],
        "attributes": attrs,
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
