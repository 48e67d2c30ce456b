"""Columns of predictions that are added to the ``obs`` of an AnnData file, in place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import durable, format
from streamsvm.errors import Option, Remedy, SettingsError, StoreError
from streamsvm.store import layout
from streamsvm.store.added_to_zarr import create_columns, save_columns
from streamsvm.store.container import one_line
from streamsvm.store.journal import editing, locked, recover
from streamsvm.store.obs_columns import index_column, index_length, table_attrs
from streamsvm.store.open import open_container
from streamsvm.store.ranges import spans

_PIECE_ROWS = 2**18  # names read at a time


class ObsColumns:
    """Collector of predictions (12 to 20 bytes a row), which `save` adds to the file.

    Parameters
    ----------
    path : Path
        AnnData, ``.h5ad`` or ``.zarr``, that streamsvm did not write.
    key : str
        Prefix of the names of the columns.
    classes : ndarray of str
    until : ExitStack
        Holds the lock on a Zarr folder until it is closed.
    force : bool
        True to replace columns of these names.

    Raises
    ------
    StoreError
        If there is no such file, it has such columns, or another process is using it.
    SettingsError
        If `key` cannot be part of a column's name.
    """

    def __init__(self, path: Path, key: str, classes: np.ndarray, until: ExitStack, *, force: bool) -> None:
        if not key or "/" in key or key in (".", "..") or any(ord(c) < 32 for c in key):
            raise SettingsError(f"key must be a name without slashes, not {key!r}", setting="key")
        self.path, self.key, self._classes, self._force = path, key, classes, force
        kind = layout.SUFFIXES.get(path.suffix.lower())
        if kind is None:
            raise StoreError(f"{path}: columns are added to AnnData, whose name ends in .h5ad or .zarr")
        self._kind = kind
        if not path.exists():
            raise StoreError(f"{path}: nothing is there; check the path")
        if path.is_dir() != (kind == "zarr"):
            raise StoreError(f"{path}: not AnnData, as its name says; check the path")
        for place in (path, path.resolve().parent):  # where what a crash needs is kept
            if not os.access(place, os.W_OK):
                raise StoreError(f"{place} cannot be written; change its permissions")
        if kind == "hdf5":
            recover(path)
            with locked(path.resolve()):  # now, and not when all is predicted
                pass
        else:
            self._work = until.enter_context(durable.working_folder(path.resolve(), StoreError))
        self._opened = self._identity()
        self._check()
        self._hashes: list[np.ndarray] = []
        self._columns: dict[str, list[np.ndarray]] = {}

    def _identity(self) -> Any:
        """Return a value that changes if the data is replaced; added columns of a Zarr folder do not."""
        if self._kind == "hdf5":
            return durable.file_identity(self.path)
        folders = (each for name in ("X", "layers", "raw", "var") for each in (self.path / name).glob("**/"))
        return {folder: durable.file_identity(folder) for folder in folders}

    def _check(self) -> None:
        """Raise `StoreError` unless columns can be added to ``obs``; read its columns and length."""
        with closing(open_container(self.path, self._kind)) as container:
            if container.attr("", format.STORE_ATTR) is not None:
                raise StoreError(f"{self.path} was written by convert: its record allows no other columns")
            self._order = [str(name) for name in table_attrs(container, "obs", "0.2.0")["column-order"]]
            self.n_rows = index_length(container, "obs")
        there = [name for name in self._names() if name in self._order]
        if there and not self._force:
            raise StoreError(
                f"{self.path}: obs has a column {there[0]!r} already",
                remedy=Remedy(
                    "choose another {}, or replace it with {}", Option("key"), Option("force", True)
                ),
            )

    def _names(self) -> list[str]:
        return [f"{self.key}_{part}" for part in ("label", "score", "margin", "probability")]

    def write(self, batch: Any) -> None:
        """Add a `streamsvm.prediction.outputs.Batch`."""
        codes = batch.codes[:, 0].astype(np.min_scalar_type(len(self._classes)))
        new = {"label": codes, "score": batch.scores[:, 0].astype(np.float32)}
        new["margin"] = batch.margins.astype(np.float32)
        if batch.probabilities is not None:
            new["probability"] = batch.probabilities[:, 0].astype(np.float32)
        for name, values in new.items():
            self._columns.setdefault(name, []).append(values)
        self._hashes.append(_hashes(batch.names))

    def save(self) -> None:
        """Add the columns; rows are matched by their names if they come in another order."""
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        if not columns:  # no rows
            columns = {"label": np.zeros(0, np.int64)}
            columns |= {name: np.zeros(0, np.float32) for name in ("score", "margin")}
        self._columns.clear()
        try:
            self._check()  # another program may have added columns meanwhile
            order = self._rows(np.concatenate([np.zeros(0, np.int64), *self._hashes]))
            new: dict[str, Any] = {f"{self.key}_{name}": each[order] for name, each in columns.items()}
            new[f"{self.key}_label"] = self._categorical(new[f"{self.key}_label"])
            removed = [name for name in self._names() if name in self._order and name not in new]
            with editing(self.path) if self._kind == "hdf5" else nullcontext() as file:
                if self._identity() != self._opened:
                    raise StoreError(f"{self.path} was changed while it was in use; predict again")
                if file is None:
                    save_columns(self.path, self._work, new, removed)
                else:
                    self._save(file, new, removed)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"{error.filename or self.path}: {durable.reason(error)}") from error
        except Exception as error:  # h5py and zarr raise types of their own
            raise StoreError(f"{self.path}: columns cannot be added: {one_line(error)}") from error

    def _rows(self, found: np.ndarray) -> Any:
        """Return the number of the predicted row of each row of the file."""
        with closing(open_container(self.path, self._kind)) as container:
            names = index_column(container, "obs", self.n_rows)
            parts = [_hashes(names.texts(ranges)) for ranges in spans(self.n_rows, _PIECE_ROWS)]
        wanted = np.concatenate([np.zeros(0, np.int64), *parts])
        if np.array_equal(found, wanted):
            return slice(None)
        known = np.isin(wanted, found)
        if not known.all() or len(found) != len(wanted):
            raise StoreError(
                f"{self.path}: the rows are not those that were predicted: {len(wanted):,} rows there, "
                f"{len(found):,} predicted, and {int(known.sum()):,} names in common"
            )
        if len(np.unique(wanted)) < len(wanted):
            raise StoreError(
                f"{self.path}: rows in another order are matched by name, and some rows share a name; "
                "give each a name of its own, in Python: adata.obs_names_make_unique()"
            )
        sorted_rows = np.argsort(found, kind="stable")
        return sorted_rows[np.searchsorted(found, wanted, sorter=sorted_rows)]

    def _save(self, file: Any, columns: dict[str, Any], removed: list[str]) -> None:
        import h5py

        text = h5py.string_dtype()

        def create(group: Any, name: str, values: np.ndarray, attrs: dict[str, Any]) -> None:
            dtype = text if values.dtype == object else values.dtype
            group.create_dataset(name, data=values, dtype=dtype).attrs.update(attrs)

        with h5py.File(file, "r+") as opened:
            if not isinstance(opened.get("obs", getlink=True), h5py.HardLink):
                raise StoreError(f"{self.path}: obs is a link, which is not followed to write")
            obs = opened["obs"]
            for name in (*columns, *removed):
                if name in obs:
                    del obs[name]
            create_columns(obs, columns, create)
            kept = [name for name in self._order if name not in columns and name not in removed]
            obs.attrs["column-order"] = np.array([*kept, *columns], dtype=text)

    def _categorical(self, codes: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """Return codes and categories; the categories are the classes that occur."""
        used = np.unique(codes)
        place = np.zeros(len(self._classes), np.int64)
        place[used] = np.arange(len(used))
        dtype = next(t for t in (np.int8, np.int16, np.int32) if len(used) <= np.iinfo(t).max)
        return place[codes].astype(dtype), self._classes[used].tolist()


@contextmanager
def adding_columns(path: Path, key: str, classes: np.ndarray, *, force: bool) -> Iterator[ObsColumns]:
    """Yield `ObsColumns`, and save them at the end."""
    with ExitStack() as until:
        try:
            columns = ObsColumns(path, key, classes, until, force=force)
        except OSError as error:
            raise StoreError(f"{error.filename or path}: {durable.reason(error)}") from error
        yield columns
        columns.save()


def _hashes(names: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each name as text."""
    texts = names.astype(str).tolist() if names.dtype.kind in "iu" else names.tolist()
    return np.fromiter(map(hash, texts), np.int64, len(texts))
