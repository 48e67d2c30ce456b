"""Writing of columns into the ``obs`` of AnnData in a Zarr folder, of format 2 or 3.

The arrays of a column are written beside the folder, and then moved into ``obs``, where no reader knows of
them. Then ``column-order`` is replaced, in the attributes of ``obs`` and last in the metadata that the root
repeats for all groups (consolidated): each is one renamed file. Columns of the same names are taken out in
the same way before, as a folder cannot be exchanged for another in one step: a crash in between leaves
neither the old nor the new ones, and all others.
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamsvm.base import durable
from streamsvm.errors import StoreError
from streamsvm.store.layout import ARRAY_ATTRS, CATEGORICAL_ATTRS, TEXT_ATTRS
from streamsvm.store.zarr_metadata import METADATA, encoded

_CHUNK_ROWS = 2**18
Column = np.ndarray | tuple[np.ndarray, list[str]]  # or codes and categories
_FORMAT_2_METADATA = (".zgroup", ".zarray", ".zattrs")


def save_columns(
    path: Path,
    work: Path,
    columns: Mapping[str, Column],
    removed: Sequence[str],
) -> None:
    """Write columns, replace those of the same names, and remove others.

    Parameters
    ----------
    path : Path
    work : Path
        A folder on the same file system, which no other process changes; see `durable.working_folder`.
    columns : mapping of str to ndarray, or to a tuple of codes and categories
    removed : sequence of str

    Raises
    ------
    StoreError
        If ``obs``, or one of these columns, is a link or a file, which may lead out of `path`.
    """
    import zarr

    for folder in (path / "obs", *(path / "obs" / name for name in (*columns, *removed))):
        if os.path.lexists(folder) and not stat.S_ISDIR(folder.lstat().st_mode):
            raise StoreError(f"{folder} is a link or a file, which is not written to; copy what it leads to")

    version: Literal[2, 3] = 3 if (path / METADATA).is_file() else 2
    durable.remove(work / "obs")  # which a crash left
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr: text is not part of its format 3
        create_columns(zarr.create_group(work / "obs", zarr_format=version), columns, _create)
    durable.sync_tree(work / "obs")
    former = [name for name in (*columns, *removed) if (path / "obs" / name).exists()]  # or left by a crash
    if former:  # first nobody knows them any more
        _set_order(path, version, [], former)
    for name in former:
        durable.remove(path / "obs" / name)
    for name in columns:
        os.rename(work / "obs" / name, path / "obs" / name)
    durable.sync_dir(path / "obs")
    _set_order(path, version, list(columns), list(columns))


def create_columns(obs: Any, columns: Mapping[str, Column], create: Callable[..., None]) -> None:
    """Create columns in a group of zarr or h5py, where `create` makes an array."""
    for name, values in columns.items():
        if isinstance(values, tuple):
            group = obs.create_group(name)
            group.attrs.update(CATEGORICAL_ATTRS)
            create(group, "codes", values[0], ARRAY_ATTRS)
            create(group, "categories", np.array(values[1], object), TEXT_ATTRS)
        else:
            create(obs, name, values, ARRAY_ATTRS)


def _create(group: Any, name: str, values: np.ndarray, attrs: dict[str, Any]) -> None:
    dtype: Any = str if values.dtype == object else values.dtype
    chunk = max(1, min(len(values), _CHUNK_ROWS))
    array = group.create_array(name, shape=values.shape, dtype=dtype, chunks=(chunk,), attributes=attrs)
    if len(values):
        array[:] = values


def _set_order(path: Path, version: int, added: list[str], changed: list[str]) -> None:
    """Replace ``column-order``: without `changed` columns, of which `added` then come last.

    Consolidated metadata has the changed columns no more, or as they are now.
    """
    file = path / "obs" / (METADATA if version == 3 else ".zattrs")
    document = durable.read_record(file, follow=True)
    attrs = document["attributes"] if version == 3 else document
    attrs["column-order"] = [*(name for name in attrs["column-order"] if name not in changed), *added]
    durable.write_atomic(file, encoded(document))
    root = path / (METADATA if version == 3 else ".zmetadata")
    whole = durable.read_record(root, follow=True) if root.is_file() else {}
    part = whole.get("consolidated_metadata") if version == 3 else whole
    if not part:
        return
    known = part["metadata"]
    for key in [key for key in known if any(f"{key}/".startswith(f"obs/{name}/") for name in changed)]:
        del known[key]
    if version == 3:
        known["obs"]["attributes"] = attrs
    else:
        known["obs/.zattrs"] = attrs
    for name in added:
        known.update(_documents(path, version, f"obs/{name}"))
    # zarr wants all nodes of a group one after the other, and groups before what is below them.
    part["metadata"] = dict(sorted(known.items(), key=lambda entry: (entry[0].count("/"), entry[0])))
    durable.write_atomic(root, json.dumps(whole, indent=4).encode())


def _documents(path: Path, version: int, node: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys and metadata of a column and its members, as in consolidated metadata."""
    for folder in (path / node, *(entry for entry in sorted((path / node).iterdir()) if entry.is_dir())):
        key = folder.relative_to(path).as_posix()
        if version == 3 and (folder / METADATA).is_file():
            yield key, _as_repeated(durable.read_record(folder / METADATA))
        for name in _FORMAT_2_METADATA if version == 2 else ():
            if (folder / name).is_file():
                document = durable.read_record(folder / name)
                yield f"{key}/{name}", _as_repeated(document) if name == ".zgroup" else document


def _as_repeated(document: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a node as zarr consolidates it: a group states that it consolidates nothing."""
    if document.get("node_type", "group") == "group":
        nothing = {"kind": "inline", "must_understand": False, "metadata": {}}
        return {**document, "consolidated_metadata": nothing}
    return document
