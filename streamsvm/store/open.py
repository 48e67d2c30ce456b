"""Opening of stores: chooses the container's library, and checks the store's record."""

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
        A ``.zarr`` folder, or an ``.h5``, ``.hdf5`` or ``.h5ad`` file, or its address; or a dense
        matrix in an ``.npy`` file, uncompressed in an ``.npz`` archive, or in a ``.zarr`` folder that is one
        array of Zarr; or the column of lists of numbers of a Parquet or Arrow file.
    label : str, optional
        For AnnData that streamsvm did not write: the column of ``obs`` that holds the classes, as categories,
        texts, integers or booleans; rows without one are left out, and `Store.unlabelled` counts them. Or,
        where rows have several labels, the matrix of zeros and ones in ``obsm`` with a column for each
        class: CSR, or dense, or a dataframe, whose columns name the classes (else they are numbers from 0).
        A store that streamsvm wrote has only one, ``"label"``, which also has the name that it was made from.
    like : mapping, optional
        The record of a model, whose data's labels these are read like: where `label` is not given they are in
        the column that it was trained on, and lines of text in `labels` are spelled as it spells them.
    labelled : bool
        Whether the labels of such AnnData are read. If not, it needs no label column: the store has no
        classes, and all label codes are -1.
    sample_weight : str, optional
        The numeric column of ``obs`` that holds the weights of the rows. A store that streamsvm wrote can
        have one, ``"weight"``, which is read by default; of other AnnData none is.
    layer : str, optional
        The entry of ``layers`` to read instead of ``X``, in AnnData that streamsvm did not write.
    raw : bool
        Whether ``raw.X`` is read instead, with its own features.
    obsm : str, optional
        The entry of ``obsm`` to read instead, such as an embedding: its columns are the features, which only
        a dataframe names.
    labels : path, optional
        The labels of such a matrix: ``.npy``, or text with one a line. Else `label` names an array of the
        archive, or a column of the table.
    weights : path, optional
        The weights of the rows of such a matrix: ``.npy``, or text with one a line.
    memory : int, optional
        Bytes of memory into which a matrix that cannot be read by rows may be loaded: CSC, and a sparse or
        compressed ``.npz`` archive. Such matrices are refused by default. If it is 0, CSC is opened for its
        sizes and types alone, and cannot be read.
    every_row : bool
        Whether rows without a label are kept, with label code -1.
    hold_out_by : str, optional
        The column of ``obs`` whose equal values are held out together; of such a matrix, a file with one
        value a line, or an array or column beside it. A store that streamsvm wrote may have one, which is
        read by default.

    Returns
    -------
    Store

    Raises
    ------
    StoreError
        If there is no store, or it is incomplete, damaged, altered or of a newer version; or if AnnData
        does not contain what training needs. The message says what is wrong, where, and what to do.
    """
    container = open_existing(path, memory)
    matrix = {"layer": layer, "raw": raw, "obsm": obsm}
    default_label = (like or {}).get("label")
    try:
        if not container.is_matrix:
            files = {"labels": labels, "weights": weights}
            _refuse(path, "its labels and weights are in it, and those of a matrix in files", files)
        record = container.record(format.STORE_ATTR)
        if record is not None:
            _refuse(path, "a store that streamsvm wrote has one matrix", matrix)
            store = _open_native(container, record, label if labelled else None, sample_weight)
            if hold_out_by not in (None, store.meta.get("hold_out_by")):
                again = Remedy("convert its data again with {}", Option("hold_out_by", hold_out_by))
                raise StoreError(f"{path} has no column {hold_out_by!r} to hold out by", remedy=again)
            return store
        if container.is_matrix:
            _refuse(path, "a matrix has nothing beside it", matrix | {"sample_weight": sample_weight})
            label = default_label if label is None and labels is None else label
            found = open_array(container, label, labels, weights, like or {}, labelled, hold_out_by)
            return with_labels(found) if labelled and not every_row else found
        if container.attr("", "encoding-type") != "anndata":
            raise StoreError(
                f"{path}: neither a streamsvm store nor AnnData, by the attributes of its root; "
                "an interrupted conversion leaves such a container: convert again"
            )
        label = (default_label if label is None else label) if labelled else None
        store = open_anndata(container, label, labelled, sample_weight, layer, raw, obsm, memory, hold_out_by)
        return with_labels(store) if labelled and not every_row else store
    except BaseException:
        container.close()
        raise


def _refuse(path: str | os.PathLike[str], why: str, options: Mapping[str, Any]) -> None:
    """Raise StoreError if one of the options is given."""
    for name, given in options.items():
        if given:
            is_column = name == "labels" and not os.path.exists(given)
            column = Remedy("name their column with {}", Option("label", os.path.basename(given)))
            remedy = column if is_column else Remedy("omit {}", Option(name, given))
            raise StoreError(f"{path}: {why}", remedy=remedy)


def open_existing(path: str | os.PathLike[str], memory: int | None = None) -> Container:
    """Open a container after checks of its kind: see `open_store`."""
    path = Path(local(path))
    if not path.exists():
        remedy = Remedy("check the path, or make a store with {}", Call("convert"))
        raise StoreError(f"{path}: nothing is there", remedy=remedy)
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
    raise StoreError(f"{path} is {what}", remedy=Remedy("make a store with {}", Call("convert")))


def open_stores(paths: Sequence[str | os.PathLike[str]], *, join: str = "inner", **options: Any) -> Store:
    """Open one store, or several as one; options and errors are those of `open_store` and `join_stores`."""
    for name in ("labels", "weights", "hold_out_by"):
        given = options.get(name)
        if len(paths) > 1 and given is not None and (name != "hold_out_by" or os.path.isfile(given)):
            raise SettingsError(
                f"{name} is for one matrix, and there are several; convert each", setting=name
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
    """Open a store as `open_store` does; one that streamsvm wrote is opened whatever the options are.

    They are those of the store that is trained on, which may be AnnData of other origin.
    """
    with contextlib.closing(open_existing(path)) as container:
        is_array = container.is_matrix
        is_ours = container.record(format.STORE_ATTR) is not None
    if is_array and label is None and labels is None:
        others = Option("valid_labels"), Call("convert", path)
        remedy = Remedy("give them with {}, or make a store with {}", *others)
        raise StoreError(f"{path} is a matrix, and its labels are missing", remedy=remedy)
    if is_ours:
        return open_store(path, labels=labels)
    if is_array:
        return open_store(path, labels=labels, label=label if labels is None else None)
    return open_store(path, labels=labels, label=label, layer=layer, raw=raw, obsm=obsm)


def open_folder(path: Path) -> Container:
    """Open a Zarr folder; zarr is imported if streamsvm did not write it."""
    from streamsvm.store.zarr_backend import METADATA, ZarrContainer

    if (path / METADATA).is_file():
        container = ZarrContainer(path)
        if container.record(format.STORE_ATTR) is not None:
            return container
    from streamsvm.store.zarr_foreign import ForeignZarr

    return ForeignZarr(path)


def _open_native(container: Container, content: Any, label: str | None, sample_weight: str | None) -> Store:
    """Open a store that streamsvm wrote: its record must be intact, and must describe the arrays."""
    path = container.path
    record = decode_record(path, content)
    own = content.get("label") or layout.LABEL  # its name in the data that the store was made of
    if label not in (None, layout.LABEL, own):
        remedy = Remedy("omit {}", Option("label", label))
        raise StoreError(f"{path}: its only label column is {own!r}", remedy=remedy)
    if sample_weight is not None and {sample_weight} != {layout.WEIGHTS} & set(record.columns):
        remedy = Remedy(
            "convert the text again with {}, or omit {}", Option("weights"), Option("sample_weight")
        )
        raise StoreError(f"{path}: it has no column of weights {sample_weight!r}", remedy=remedy)
    specs = record.specs()
    if record.arrays.keys() != specs.keys():
        raise StoreError(f"{path}: the store's record does not list the arrays of a store ({DAMAGED})")
    arrays: dict[str, StoredArray] = {}
    for name, spec in specs.items():
        array = container.array(name, axes=2 if name == layout.MATRIX else 1)
        expected = spec.dtype, spec.shape(spec.length), spec.columns
        found = array.dtype, array.shape, array.column_chunk
        if found != expected or array.chunk > max(array.length, 1):
            raise array.error(f" has another type, shape or chunks than the store recorded ({DAMAGED})")
        array.check_claimed_size()
        arrays[name] = array
    classes = arrays[layout.CATEGORIES].read(0, record.n_classes).tolist()
    if layout.text_digest(classes) != record.arrays[layout.CATEGORIES]:
        raise arrays[layout.CATEGORIES].damage(0, "the class names are not those on record")
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
