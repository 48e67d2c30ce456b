"""Joined stores: the rows of several stores one after the other, with features matched by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import INTEGER, TEXT
from streamsvm.data.label_sets import recode
from streamsvm.data.names import examples, match_features
from streamsvm.data.rows import Rows, joined_rows
from streamsvm.errors import Option, Remedy, SettingsError, StoreError, StreamsvmWarning, warn
from streamsvm.store.chunk_reader import Ranges
from streamsvm.store.reader import Progress, Store
from streamsvm.store.views import MatchedStore, RearrangedStore


class JoinedStore(RearrangedStore):
    """View of the rows of several stores with the same features.

    Parameters
    ----------
    stores : list of Store
        Two or more, of the same features; they are closed with the view.
    classes : list of str
        All of their classes.
    """

    def __init__(self, stores: list[Store], classes: list[str]) -> None:
        super().__init__(stores[0])
        self.stores = stores
        self._starts = np.concatenate([[0], np.cumsum([store.n_rows for store in stores])])
        self.n_rows = int(self._starts[-1])
        self.nnz = sum(store.nnz for store in stores)
        self.n_labels = sum(store.n_labels for store in stores)
        self.unlabelled = sum(store.unlabelled for store in stores)
        self.native = self.shuffled = False
        self.held_bytes = sum(store.held_bytes for store in stores)
        self.dtype = np.result_type(*(store.dtype for store in stores))
        self.chunk_nnz = max(store.chunk_nnz for store in stores)
        self.classes = tuple(classes)
        self.n_classes = len(classes)
        self.label_dtype = _label_dtype(stores)
        code = {label: c for c, label in enumerate(classes)}
        self._codes = [
            np.array([*(code[label] for label in store.classes), format.UNSEEN_LABEL], format.LABEL_DTYPE)
            for store in stores
        ]

    @property
    def bytes_read(self) -> int:  # type: ignore[override]
        return sum(store.bytes_read for store in self.stores)

    @property
    def fingerprint(self) -> str:
        prints = [store.fingerprint for store in self.stores]
        return format.json_digest({"joined": prints, "features": self.feature_names()})

    @property
    def class_counts(self) -> np.ndarray:
        counts = np.zeros(self.n_classes, np.int64)
        for store, codes in zip(self.stores, self._codes, strict=True):
            counts[codes[:-1]] += store.class_counts
        return counts

    def _parts(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return the parts of the rows ``start:stop``: number of the store, and its rows."""
        self._check_range(start, stop)
        parts = []
        for number, (first, end) in enumerate(zip(self._starts[:-1], self._starts[1:], strict=True)):
            low, high = max(start, int(first)), min(stop, int(end))
            if low < high:
                parts.append((number, low - int(first), high - int(first)))
        return parts or [(0, 0, 0)]

    def _each(self, read: Callable[[Store, int, int], np.ndarray], start: int, stop: int) -> np.ndarray:
        return np.concatenate([read(self.stores[k], *ends) for k, *ends in self._parts(start, stop)])

    def rows_of(self, ranges: Ranges) -> Rows:
        found = []
        for number, parts in groupby((part for each in ranges for part in self._parts(*each)), itemgetter(0)):
            rows = self.stores[number].rows_of([(start, stop) for _, start, stop in parts])
            found.append(recode(rows, self._codes[number]))
        rows = joined_rows(found)
        return rows._replace(data=rows.data.astype(self.dtype, copy=False))

    @property
    def chunk_rows(self) -> float:
        return max(store.chunk_rows for store in self.stores)

    @property
    def members(self) -> list[Store]:
        return [member for store in self.stores for member in store.members]

    def labels_of(self, ranges: Ranges) -> np.ndarray:
        return np.concatenate([self.labels(*each) for each in ranges] or [self.labels(0, 0)])

    def labels(self, start: int, stop: int) -> np.ndarray:
        parts = self._parts(start, stop)
        return np.concatenate([self._codes[k][self.stores[k].labels(*ends)] for k, *ends in parts])

    def label_sets(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.rows(start, stop)
        return rows.label_codes, rows.label_indptr

    def verify(self, progress: Progress | None = None) -> None:
        for store in self.stores:
            store.verify(progress)

    def check_row_pointer_ends(self) -> None:
        for store in self.stores:
            store.check_row_pointer_ends()

    def close(self) -> None:
        for store in self.stores:
            store.close()


def join_stores(stores: list[Store], join: str = "inner") -> Store:
    """Join several stores that differ only in rows, classes and features.

    Features are as `common_features` says: a row is 0 where its store lacks one. Classes are all that any
    has: in the order of the first if the others have none that it lacks, else sorted.

    Raises
    ------
    StoreError
        If the features cannot be joined; or stores count features from other numbers; or only some of them
        have weights or several labels a row; or rows are in groups.
    """
    first, *others = stores
    for other in others:
        for name, what in _SHARED_FACTS.items():
            if getattr(first, name) != getattr(other, name):
                raise StoreError(f"{first.path} and {other.path} cannot be joined: only one of them {what}")
    if first.grouped:
        raise StoreError(f"{first.path}: data in groups of rows cannot be joined; convert all of it at once")
    names = [store.feature_names() for store in stores]
    joined = common_features(
        [store.path for store in stores], names, [store.n_features for store in stores], join
    )
    if joined is not None:
        matched = []
        for store, own in zip(stores, names, strict=True):
            match = match_features(own, joined, str(store.path), model="the joined data")
            matched.append(store if match.columns is None else MatchedStore(store, match, joined))
        stores = matched
    classes = list(first.classes)
    if any(set(store.classes) - set(classes) for store in stores):
        key = int if _label_dtype(stores) == INTEGER else None
        classes = sorted(set().union(*(store.classes for store in stores)), key=key)
    return JoinedStore(stores, classes)


def _label_dtype(stores: list[Store]) -> str:
    """Return the type of the labels of all: where they differ, text."""
    return INTEGER if all(store.label_dtype == INTEGER for store in stores) else TEXT


_SHARED_FACTS = {
    "weighted": "has weights of rows",
    "multilabel": "has several labels a row",
    "grouped": "has groups of rows",
    "index_base": "counts its features from 1",
}


def common_features(
    paths: Sequence[str | os.PathLike[str]],
    names: Sequence[Sequence[str] | None],
    n_features: Sequence[int],
    join: str = "inner",
) -> list[str] | None:
    """Return the names of the common features of several files.

    Parameters
    ----------
    paths : sequence of path
    names : sequence of (sequence of str, or None)
        Names of the features of each file, without duplicates; None if they have no names.
    n_features : sequence of int
        Of each file.
    join : {"inner", "outer"}
        Features that all files have, in the order of the first, or all that any has, in the order of their
        appearance.

    Returns
    -------
    list of str, or None
        None if they have no names, and are as many in each file.

    Raises
    ------
    StoreError
        If only some files name their features, or none does and their numbers differ, or no feature is in
        all of them, with ``"inner"``.
    SettingsError
        If `join` is another word.

    Warns
    -----
    StreamsvmWarning
        If some features are not in all files: how many are left out (``"inner"``), or are 0 where they are
        missing (``"outer"``).
    """
    if join not in ("inner", "outer"):
        raise SettingsError(f"join must be inner or outer, not {join!r}", setting="join")
    nameless = [path for path, own in zip(paths, names, strict=True) if own is None]
    if len(nameless) == len(paths):
        for path, number in zip(paths, n_features, strict=True):
            if number != n_features[0]:
                raise StoreError(
                    f"{paths[0]} has {n_features[0]:,} features and {path} {number:,}, and they have no "
                    "names by which they could be joined"
                )
        return None
    if nameless:
        raise StoreError(f"{nameless[0]} does not name its features, and others to be joined with it do")
    known = [own for own in names if own is not None]
    everywhere = set(known[0]).intersection(*known[1:])
    every = list(dict.fromkeys(name for own in known for name in own))
    if join == "inner" and not everywhere:
        raise StoreError(
            f"no feature is in all of {', '.join(map(str, paths))}",
            remedy=Remedy(
                "give files whose features have names of the same kind, or {}", Option("join", "outer")
            ),
        )
    partial = [name for name in every if name not in everywhere]
    if partial:
        fate = "left out" if join == "inner" else "taken as 0 where they are missing"
        be = "is" if len(partial) == 1 else "are"
        warn(
            StreamsvmWarning(
                f"{len(partial):,} of {len(every):,} features {be} not in all files and {fate} "
                f"({examples(partial)})"
            )
        )
    return every if join == "outer" else [name for name in known[0] if name in everywhere]
