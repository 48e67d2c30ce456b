"""Open stores, and check their records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.errors import Call, Option, Remedy, SettingsError, StoreError
from streamsvm.store import layout
from streamsvm.store.addresses import local
from streamsvm.store.anndata import open_anndata, open_array
from streamsvm.store.array_file import ArrayFile, PackedFile
from streamsvm.store.container import DAMAGED, Container, StoredArray
from streamsvm.store.joined import join_stores
from streamsvm.store.kinds import MATRICES, TITLES, is_packed, kind_of
from streamsvm.store.list_file import ListFile
from streamsvm.store.matrices import check_ends
from streamsvm.store.reader import STORED, ContainerStore
from streamsvm.store.record import decode_record
from streamsvm.store.store import Facts, Store
from streamsvm.store.views import with_labels


def open_store(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    like: Mapping[str, Any] | None = None,
    labelled: bool = True,
    sample_weight: str | None = None,
    layer: str | None = None,
    raw: bool = False,
    obsm: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weights: str | os.PathLike[str] | None = None,
    memory: int | None = None,
    every_row: bool = False,
    hold_out_by: str | None = None,
) -> Store:
    """Open a store for reading.

    Parameters
    ----------
    path : path-like
        Path or address of a ``.zarr`` folder, of an ``.h5``, ``.hdf5`` or ``.h5ad`` file, or of a matrix: an
        ``.npy`` file, an ``.npz`` archive, a ``.zarr`` folder that is a single array, or a Parquet or Arrow
        file with a column of lists of numbers.
    label : str, optional
        For AnnData from other programs, the column of ``obs`` with the classes, as categories, strings,
        integers or booleans; rows without a label are omitted and counted in `Store.unlabelled`. For rows
        with several labels, the 0/1 matrix in ``obsm`` with a column for each class: CSR, dense, or a
        dataframe, whose columns name the classes (otherwise classes are numbered from 0). For a matrix, an
        array in its archive or a column in its table. For a streamsvm store, ``"label"`` or the name of
        the label column in the source data.
    like : mapping, optional
        Record of a model. Its label column is the default for `label`, and its classes determine how lines of
        text in `labels` are read.
    labelled : bool
        Whether to read the labels of AnnData from other programs, or of a matrix. If False, the store has no
        classes, and all label codes are -1.
    sample_weight : str, optional
        Numeric column of ``obs`` with the row weights. In a streamsvm store, this can only be ``"weight"``,
        which is also read by default. For AnnData from other programs, the default is no weights.
    layer : str, optional
        Entry of ``layers`` to read instead of ``X``, in AnnData from other programs.
    raw : bool
        Whether to read ``raw.X`` instead of ``X``; their features may be different.
    obsm : str, optional
        Entry of ``obsm`` to read instead of ``X``, such as an embedding. Its columns are the features, which
        have names only if the entry is a dataframe.
    labels : path, optional
        Labels of a matrix: ``.npy``, or text with one label per line.
    weights : path, optional
        Row weights of a matrix: ``.npy``, or text with one weight per line.
    memory : int, optional
        Memory limit, in bytes, for loading a matrix that cannot be read by rows: CSC, or a sparse or
        compressed ``.npz`` archive. By default, such matrices are refused. If 0, a CSC matrix is opened only
        for its sizes and types and cannot be read.
    every_row : bool
        Whether to keep rows without a label, with label code -1.
    hold_out_by : str, optional
        Column of ``obs``; rows with equal values are held out together. For a matrix, a file with one value
        per line, or an array or column stored with the matrix. If a streamsvm store has a hold-out column, it
        is read by default.

    Returns
    -------
    Store

    Raises
    ------
    StoreError
        If the store is missing, incomplete, damaged, altered or of a newer version, or if AnnData lacks
        something that training needs.
    """
    container = open_existing(path, memory)
    matrix = {"layer": layer, "raw": raw, "obsm": obsm}
    default_label = (like or {}).get("label")
    try:
        if not container.is_matrix:
            files = {"labels": labels, "weights": weights}
            _refuse(path, "a store has its own labels and weights", files)
        record = container.record(format.STORE_ATTR)
        if record is not None:
            _refuse(path, "a store written by streamsvm has only one matrix", matrix)
            store = _open_native(container, record, label if labelled else None, sample_weight)
            if hold_out_by not in (None, store.meta.get("hold_out_by")):
                again = Remedy("convert its data again with {}", Option("hold_out_by", hold_out_by))
                raise StoreError(f"{path} has no hold-out column {hold_out_by!r}", remedy=again)
            return store
        if container.is_matrix:
            _refuse(
                path, "a matrix file has no layers, obsm or obs", matrix | {"sample_weight": sample_weight}
            )
            label = default_label if label is None and labels is None else label
            found = open_array(container, label, labels, weights, like or {}, labelled, hold_out_by)
            return with_labels(found) if labelled and not every_row else found
        if container.attr("", "encoding-type") != "anndata":
            raise StoreError(
                f"{path}: the root attributes describe neither a streamsvm store nor AnnData; "
                "if a conversion was interrupted, convert again"
            )
        label = (default_label if label is None else label) if labelled else None
        store = open_anndata(container, label, labelled, sample_weight, layer, raw, obsm, memory, hold_out_by)
        return with_labels(store) if labelled and not every_row else store
    except BaseException:
        container.close()
        raise


def _refuse(path: str | os.PathLike[str], why: str, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value:
            is_column = name == "labels" and not os.path.exists(value)
            column = Remedy("name the label column with {}", Option("label", os.path.basename(value)))
            remedy = column if is_column else Remedy("omit {}", Option(name, value))
            raise StoreError(f"{path}: {why}", remedy=remedy)


def open_existing(path: str | os.PathLike[str], memory: int | None = None) -> Container:
    """Detect the kind of the container at a path, and open it; see `open_store`."""
    path = Path(local(path))
    if not path.exists():
        remedy = Remedy("check the path, or create a store with {}", Call("convert"))
        raise StoreError(f"{path} does not exist", remedy=remedy)
    if path.is_dir():
        return open_folder(path)
    kind = kind_of(path)
    if kind == "anndata":
        from streamsvm.store.hdf5_backend import Hdf5Container

        return Hdf5Container(path)
    if kind in ("lists", "parquet"):
        return ListFile(path)
    if kind in MATRICES:
        if kind != "npz" or not is_packed(path):
            return ArrayFile(path)
        if memory is not None:
            return PackedFile(path, memory)
    what = TITLES[kind] + (" that is compressed or sparse" if kind == "npz" else "")
    raise StoreError(f"{path} is {what}, not a store", remedy=Remedy("convert it with {}", Call("convert")))


def open_stores(paths: Sequence[str | os.PathLike[str]], *, join: str = "inner", **options: Any) -> Store:
    """Open one store, or join several; options and errors are as for `open_store` and `join_stores`."""
    for name in ("labels", "weights", "hold_out_by"):
        value = options.get(name)
        if len(paths) > 1 and value is not None and (name != "hold_out_by" or os.path.isfile(value)):
            raise SettingsError(
                f"{name} applies to one matrix, but there are several; convert each of them", setting=name
            )
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(open_store(path, **options)) for path in paths]
        joined = join_stores(stores, join) if len(stores) > 1 else stores[0]
        stack.pop_all()
        return joined


def open_validation_store(
    path: str | os.PathLike[str],
    label: str | None,
    layer: str | None = None,
    raw: bool = False,
    obsm: str | None = None,
    labels: str | None = None,
) -> Store:
    """Open a validation store with the training store's options, ignoring options that do not apply."""
    with contextlib.closing(open_existing(path)) as container:
        is_array = container.is_matrix
        is_ours = container.record(format.STORE_ATTR) is not None
    if is_array and label is None and labels is None:
        options = Option("valid_labels"), Call("convert", path)
        remedy = Remedy("specify the labels with {}, or create a store with {}", *options)
        raise StoreError(f"{path} is a matrix without labels", remedy=remedy)
    if is_ours:
        return open_store(path, labels=labels)
    if is_array:
        return open_store(path, labels=labels, label=label if labels is None else None)
    return open_store(path, labels=labels, label=label, layer=layer, raw=raw, obsm=obsm)


def open_folder(path: Path) -> Container:
    """Open a Zarr folder; zarr is imported only if streamsvm did not write the folder."""
    from streamsvm.store.zarr_backend import METADATA, ZarrContainer

    if (path / METADATA).is_file():
        container = ZarrContainer(path)
        if container.record(format.STORE_ATTR) is not None:
            return container
    from streamsvm.store.zarr_foreign import ForeignZarr

    return ForeignZarr(path)


def _open_native(container: Container, content: Any, label: str | None, sample_weight: str | None) -> Store:
    path = container.path
    record = decode_record(path, content)
    source_label = content.get("label") or layout.LABEL  # name of the label column in the source data
    if label not in (None, layout.LABEL, source_label):
        remedy = Remedy("omit {}", Option("label", label))
        raise StoreError(f"{path}: the only label column is {source_label!r}", remedy=remedy)
    if sample_weight is not None and {sample_weight} != {layout.WEIGHTS} & set(record.columns):
        remedy = Remedy(
            "convert the text again with {}, or omit {}", Option("weights"), Option("sample_weight")
        )
        raise StoreError(f"{path} has no weight column {sample_weight!r}", remedy=remedy)
    specs = record.specs()
    if record.arrays.keys() != specs.keys():
        raise StoreError(f"{path}: the store's record does not list the expected arrays ({DAMAGED})")
    arrays: dict[str, StoredArray] = {}
    for name, spec in specs.items():
        array = container.array(name, axes=2 if name == layout.MATRIX else 1)
        expected = spec.dtype, spec.shape(spec.length), spec.columns
        found = array.dtype, array.shape, array.column_chunk
        if found != expected or array.chunk > max(array.length, 1):
            raise array.error(f" has a dtype, shape or chunks that contradict the store's record ({DAMAGED})")
        array.check_claimed_size()
        arrays[name] = array
    classes = arrays[layout.CATEGORIES].read(0, record.n_classes).tolist()
    if layout.text_digest(classes) != record.arrays[layout.CATEGORIES]:
        raise arrays[layout.CATEGORIES].damage(0, "the class names differ from the store's record")
    chunk_nnz = arrays[layout.MATRIX].chunk * record.d if record.dense else record.chunk_nnz
    facts = Facts(
        path=path,
        kind=container.kind,
        native=True,
        n_rows=record.n,
        n_features=record.d,
        nnz=record.nnz,
        n_labels=record.n_labels,
        classes=tuple(classes),
        label_dtype=record.label_dtype,
        dtype=np.result_type(record.dtype, np.float32),
        index_base=record.index_base,
        shuffled=content.get("shuffle_seed") is not None,
        chunk_nnz=chunk_nnz,
        chunk_rows=chunk_nnz * record.n / max(record.nnz, 1),
        dense=record.dense,
        dense_rows=record.dense,
        stored=frozenset(["numbers", *(name for name, (array, _) in STORED.items() if array in arrays)])
        | ({"label_codes"} if layout.LABELS_CODES in arrays else set()),
        meta={key: value for key, value in content.items() if key not in ("arrays", "checksum")},
    )
    for name, end in [(layout.INDPTR, record.nnz), (layout.LABELS_INDPTR, record.n_labels)]:
        if name in arrays:
            check_ends(arrays[name], record.n, end)
    return ContainerStore(container, arrays, facts, record)
