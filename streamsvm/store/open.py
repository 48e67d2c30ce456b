"""Open a store: choose the container's library, and check what the store says of itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import format
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.anndata import open_anndata
from streamsvm.store.container import DAMAGED, Container, StoredArray, array_metadata
from streamsvm.store.reader import Store
from streamsvm.text import check_local


def open_store(path: str | os.PathLike[str], *, label: str | None = None, labelled: bool = True) -> Store:
    """Open a store for reading.

    Parameters
    ----------
    path : path-like
        A ``.zarr`` folder, or an ``.h5``, ``.hdf5`` or ``.h5ad`` file.
    label : str, optional
        The categorical column of ``obs`` that holds the classes, for AnnData that streamsvm did not write.
        A store that streamsvm wrote has only one, ``"label"``.
    labelled : bool
        Whether the labels of such AnnData are read. If not, it needs no label column: the store has no
        classes, and all label codes are -1.

    Returns
    -------
    Store

    Raises
    ------
    StoreError
        If there is no store, or it is incomplete, damaged, altered or of a newer version; or if AnnData
        does not contain what training needs. The message says what is wrong, where, and what to do.
    """
    path = Path(path)
    check_local(path, StoreError)
    if not path.exists():
        raise StoreError(
            f"{path}: nothing is there; check the path, or make a store with `streamsvm convert`"
        )
    if path.suffix.lower() not in layout.SUFFIXES:
        raise StoreError(
            f"{path} is not a store: its name must end in {', '.join(layout.SUFFIXES)}; make one with "
            "`streamsvm convert`"
        )
    kind = layout.store_kind(path)
    if path.is_dir() != (kind == "zarr"):
        expected = "a folder, as a Zarr store is" if kind == "zarr" else "a file, as an HDF5 store is"
        raise StoreError(f"{path}: not {expected}; check the path and its suffix")
    container = open_container(path, kind)
    try:
        record = container.record(format.STORE_ATTR)
        if record is not None:
            return _open_native(container, record, label if labelled else None)
        if container.attr("", "encoding-type") != "anndata":
            raise StoreError(
                f"{path}: neither a streamsvm store nor AnnData, by the attributes of its root; "
                "an interrupted conversion leaves such a container: convert again"
            )
        return open_anndata(container, label, labelled)
    except BaseException:
        container.close()
        raise


def open_container(path: Path, kind: str, *, write: bool = False) -> Container:
    """Open a container of the given kind; its library is imported here and not before."""
    if kind == "zarr":
        from streamsvm.store.zarr_backend import ZarrContainer

        return ZarrContainer(path, write=write)
    from streamsvm.store.hdf5_backend import Hdf5Container

    return Hdf5Container(path, write=write)


def _open_native(container: Container, record: Any, label: str | None) -> Store:
    """Open a store that streamsvm wrote: its record must be intact, and must describe the arrays."""
    path = container.path
    if not isinstance(record, dict):
        raise StoreError(f"{path}: the store's record is not a JSON object ({DAMAGED})")
    version = record.get("version")
    if isinstance(version, int) and version > format.STORE_VERSION:
        raise StoreError(
            f"{path}: written by a newer streamsvm (store format {version}; this one reads "
            f"{format.STORE_VERSION}); update streamsvm"
        )
    if record.get("complete") is False:
        raise StoreError(f"{path}: incomplete: its conversion did not finish; convert again")
    if not format.is_sealed(record):
        raise StoreError(f"{path}: the store's record was altered: its checksum does not match ({DAMAGED})")
    if label not in (None, layout.LABEL):
        raise StoreError(
            f"{path}: a store that streamsvm wrote has one label column, {layout.LABEL!r}; omit {label!r}"
        )

    n, d, nnz, k = (_count(path, record, key) for key in ("n", "d", "nnz", "n_classes"))
    listed, checksums = record.get("arrays"), record.get("chunk_checksums", {})
    if (
        version != format.STORE_VERSION
        or record.get("complete") is not True
        or record.get("dtype") not in ("float32", "float64")
        or record.get("index_base") not in (None, 0, 1)
        or not 1 <= _count(path, record, "chunk_nnz") <= layout.MAX_CHUNK
        or not isinstance(checksums, dict)
    ):
        raise StoreError(f"{path}: the store's record is invalid ({DAMAGED})")
    dtype = np.dtype(record["dtype"])
    specs = layout.array_specs(n, d, nnz, k, dtype)
    if not isinstance(listed, dict) or listed.keys() != specs.keys():
        raise StoreError(f"{path}: the store's record does not list the arrays of a store ({DAMAGED})")
    if container.attr("X", "shape") != [n, d]:
        raise StoreError(f"{path}: the shape of X is not the recorded {n} x {d} ({DAMAGED})")

    arrays: dict[str, StoredArray] = {}
    digests: dict[str, str] = {}
    for name, spec in specs.items():
        array = container.array(name)
        digests[name] = str(listed[name].get("sha256")) if isinstance(listed[name], dict) else ""
        found = {**array_metadata(array), "sha256": digests[name]}
        if found != listed[name] or (array.length, array.dtype) != (spec.length, spec.dtype):
            raise StoreError(f"{path}: array {name} has other metadata than the store recorded ({DAMAGED})")
        if array.chunk > min(max(1, array.length), layout.MAX_CHUNK):
            raise StoreError(
                f"{path}: array {name} has chunks of more than 2**27 elements, or longer than itself "
                f"({DAMAGED})"
            )
        array.check_claimed_size()
        array.check_chunks()
        if name in checksums:
            array.load_checksums(str(checksums[name]))
        arrays[name] = array
    texts = arrays[layout.CATEGORIES]
    classes: list[str] = []
    for start in range(0, k, texts.chunk):
        classes += texts.read(start, min(start + texts.chunk, k)).tolist()
    if layout.text_digest(classes) != digests[layout.CATEGORIES]:
        raise arrays[layout.CATEGORIES].damage(0, "the class names are not those on record")
    if layout.fingerprint(n, d, dtype, classes, digests) != record.get("fingerprint"):
        raise StoreError(f"{path}: the recorded fingerprint is not that of the recorded arrays ({DAMAGED})")
    meta = {
        key: value for key, value in record.items() if key not in ("arrays", "chunk_checksums", "checksum")
    }
    store = Store(
        container,
        arrays,
        n_rows=n,
        n_features=d,
        nnz=nnz,
        classes=classes,
        dtype=dtype,
        meta=meta,
        digests=digests,
    )
    store.check_row_pointer_ends()
    return store


def _count(path: Path, record: dict[str, Any], key: str) -> int:
    value = record.get(key)
    if type(value) is not int or not 0 <= value < 2**62:
        raise StoreError(f"{path}: the store's record has no valid {key!r} ({DAMAGED})")
    return value
