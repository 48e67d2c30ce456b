"""Join several stores: concatenate their rows, and match their features by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import INTEGER, TEXT
from streamsvm.data.names import examples, match_features
from streamsvm.data.rows import Rows, joined_rows, sparse_rows
from streamsvm.errors import Option, Remedy, SettingsError, StoreError, warn
from streamsvm.store.ranges import Ranges, span, split_ranges
from streamsvm.store.store import Columns, RowSizes, Store, Whole
from streamsvm.store.views import matched, recoded

Result = TypeVar("Result")
_SPARSE_BYTES = 2 * 8  # bytes per value that the conversion of dense rows to CSR needs


class JoinedStore(Store):
    """Store that concatenates the rows of stores with equal features and classes; `close` closes them.

    Dense rows become CSR unless all stores have dense rows.
    """

    def __init__(self, stores: list[Store]) -> None:
        self.stores = stores
        self._starts = np.concatenate([[0], np.cumsum([store.n_rows for store in stores])])
        every = [store.facts for store in stores]
        dense = [facts.dense_rows for facts in every]
        extra = max(facts.extra_nnz_bytes for facts in every)
        extra += _SPARSE_BYTES * (any(dense) and not all(dense))
        self.facts = dataclasses.replace(
            every[0],
            n_rows=int(self._starts[-1]),
            nnz=sum(facts.nnz for facts in every),
            n_labels=sum(facts.n_labels for facts in every),
            unlabelled=sum(facts.unlabelled for facts in every),
            native=False,
            shuffled=False,
            dense=any(facts.dense for facts in every),
            units=None,
            parts_of={},
            dense_rows=all(dense),
            extra_nnz_bytes=extra,
            held_bytes=sum(facts.held_bytes for facts in every),
            dtype=np.result_type(*(facts.dtype for facts in every)),
            chunk_nnz=max(facts.chunk_nnz for facts in every),
            chunk_rows=max(facts.chunk_rows for facts in every),
            stored=frozenset.intersection(*(facts.stored for facts in every)),
        )

    @property
    def members(self) -> list[Store]:
        return [member for store in self.stores for member in store.members]

    def whole(self, what: Whole) -> Any:
        if what == "fingerprint":
            prints = [store.fingerprint for store in self.stores]
            return format.json_digest({"joined": prints, "features": self.feature_names()})
        if what == "class_counts":
            return sum(store.class_counts for store in self.stores)
        return None if what == "statistics" else self.stores[0].whole(what)

    def _each(self, ranges: Ranges, read: Callable[[Store, Ranges], Result]) -> Iterator[tuple[int, Result]]:
        """For successive ranges in the same store, yield (first row of the store, result of `read`)."""
        parts, divided = split_ranges(ranges, self._starts)
        if not len(parts):
            parts, divided = np.zeros(1, np.int64), span(0, 0)
        for part, places in groupby(range(len(parts)), lambda at: int(parts[at])):
            local = divided[list(places)] - self._starts[part]
            yield int(self._starts[part]), read(self.stores[part], local)

    def sizes(self, ranges: Ranges) -> RowSizes:
        parts = [sizes for _, sizes in self._each(ranges, lambda store, local: store.sizes(local))]
        return RowSizes(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def columns(self, ranges: Ranges, wanted: Set[str]) -> Columns:
        wanted = wanted & self.facts.stored
        parts = []
        for start, columns in self._each(ranges, lambda store, local: store.columns(local, wanted)):
            if "numbers" in columns:
                columns["numbers"] = columns["numbers"] + start
            parts.append(columns)
        joined = {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
        if "label_indptr" in joined:
            counts = [np.diff(each["label_indptr"]) for each in parts]
            joined["label_indptr"] = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        return joined

    def read(self, ranges: Ranges) -> Rows:
        parts = self._each(ranges, self._read_part)
        rows = joined_rows([each._replace(numbers=each.numbers + start) for start, each in parts])
        return rows._replace(data=rows.data.astype(self.dtype, copy=False))

    def _read_part(self, store: Store, ranges: Ranges) -> Rows:
        rows = store.read(ranges)
        return rows if self.dense_rows else sparse_rows(rows, self.index_dtype)


def join_stores(stores: list[Store], join: str = "inner") -> Store:
    """Join stores that differ only in rows, classes and features.

    Features are joined by `_common_features`; a feature that a store lacks is 0 in the rows of that store.
    The classes are the union, ordered by `all_classes`. Raises StoreError if features cannot be joined, or
    are numbered from 0 in one store and from 1 in another; if rows are in groups; if stores hash text
    differently; or if only some stores have weights, several labels per row or a hold-out column.
    """
    first, *others = stores
    for other in others:
        for name, what in _SHARED_FACTS.items():
            if getattr(first, name) != getattr(other, name):
                raise StoreError(f"{first.path} and {other.path} cannot be joined: only one of them {what}")
        texts = ((store.meta.get("encoding") or {}).get("text") or {} for store in (first, other))
        if len({str({**each, "columns": None}) for each in texts}) > 1:
            raise StoreError(f"{first.path} and {other.path} hash text differently; use the same settings")
    if first.grouped:
        raise StoreError(f"{first.path}: groups of rows cannot be joined; convert all data at once")
    names = [store.feature_names() for store in stores]
    joined = _common_features(stores, names, join)
    if joined is not None:
        stores = [
            matched(store, match_features(own, joined, str(store.path), model="the joined data"), joined)
            for store, own in zip(stores, names, strict=True)
        ]
    integers = all(store.label_dtype == INTEGER for store in stores)  # else text
    classes = all_classes([store.classes for store in stores], are_numbers=integers)
    return JoinedStore([recoded(store, classes, INTEGER if integers else TEXT) for store in stores])


def all_classes(lists: Sequence[Sequence[str]], *, are_numbers: bool) -> list[str]:
    """Return the union of lists of classes: in the order of the first list if it is complete, else sorted."""
    every = set().union(*lists)
    return list(lists[0]) if len(every) == len(lists[0]) else sorted(every, key=int if are_numbers else None)


_SHARED_FACTS = {
    "weighted": "has row weights",
    "multilabel": "has several labels per row",
    "grouped": "has groups of rows",
    "held_out_by": "has a hold-out column",
    "index_base": "numbers its features from 1",
}


def _common_features(stores: list[Store], names: Sequence[list[str] | None], join: str) -> list[str] | None:
    """Return the names of the joined features, or None if no store has feature names.

    "inner" keeps the features that all stores have, in the order of the first store; "outer" keeps all
    features, in order of appearance. A warning states how many features some stores lack. Raises StoreError
    if only some stores have names, if the numbers of unnamed features differ, or if no feature is left.
    """
    if join not in ("inner", "outer"):
        raise SettingsError(f"join must be inner or outer, not {join!r}", setting="join")
    known = [own_names for own_names in names if own_names is not None]
    if len(known) < len(stores):
        for store, own_names in zip(stores, names, strict=True):
            if known and own_names is None:
                raise StoreError(f"{store.path} has no feature names, but other stores to join have them")
            if not known and store.n_features != stores[0].n_features:
                raise StoreError(
                    f"{stores[0].path} has {stores[0].n_features:,} features, {store.path} has "
                    f"{store.n_features:,}, and neither has feature names to join them by"
                )
        return None
    common = set(known[0]).intersection(*known[1:])
    every = list(dict.fromkeys(name for own_names in known for name in own_names))
    if join == "inner" and not common:
        remedy = "use files with the same kind of feature names, or use {}"
        raise StoreError(
            f"no feature occurs in all of {', '.join(str(store.path) for store in stores)}",
            remedy=Remedy(remedy, Option("join", "outer")),
        )
    partial = [name for name in every if name not in common]
    if partial:
        fate = "left out" if join == "inner" else "0 in the other files"
        warn(
            f"features missing from some files: {len(partial):,} of {len(every):,}, {fate} "
            f"({examples(partial)})"
        )
    return every if join == "outer" else [name for name in known[0] if name in common]
