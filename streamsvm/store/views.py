"""Views, which change the facts, sizes, columns and rows that an inner store returns."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.data.checks import first_labels, row_norms
from streamsvm.data.label_sets import distinct_sets
from streamsvm.data.names import FeatureMatch, with_columns
from streamsvm.data.rows import Rows, sparse_rows
from streamsvm.store.ranges import Ranges, lengths, numbers_in, split_ranges
from streamsvm.store.store import Columns, Facts, RowSizes, Store, Units, Whole, only

_PIECE_ROWS = 2**16  # rows of labels per read


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Base class of views, whose methods change nothing by default. Views are picklable and can be composed.

    Contract of all views, checked by `tests/store/test_view_contract.py`:

    - `read`, `columns`, `sizes` and `whole` describe the same rows: `read` and `columns` agree, class counts
      match the labels, and every feature has a name if any has. `sizes` may overestimate, because it is
      used only to plan memory.
    - The rows returned for a range do not depend on the other ranges that are requested with it.
    - `ranges` maps each row to one row of the inner store, so only requested rows are read. `columns` and
      `sizes` read no values.
    - Rows keep their original numbers, except in `Labelled`, which numbers only the labelled rows.
    - `facts` gives the numbers of rows and features, the classes, the available columns, and whether rows are
      dense. By default, statistics are omitted, because they describe the inner store's rows and features.
    - Dense rows have a value for every feature, which determines their sizes, `nnz` and `units`.
    - `fingerprint` differs from the inner store's if the rows or values do, unless the run itself records the
      difference (slices, features of a model).
    """

    def facts(self, inner: Facts) -> Facts:
        return inner

    def ranges(self, ranges: Ranges) -> Ranges:
        """Map ranges of the view's rows to ranges of the inner store's rows."""
        return ranges

    def sizes(self, sizes: RowSizes) -> RowSizes:
        return sizes

    def needs(self, wanted: Set[str]) -> Set[str]:
        """Return the inner store's columns that `columns` needs to compute the wanted columns."""
        return wanted

    def columns(self, columns: Columns, ranges: Ranges) -> Columns:
        """Compute the view's columns for `ranges` from the inner store's `columns`."""
        return columns

    def rows(self, rows: Rows) -> Rows:
        """Return rows with the view's values; `columns` has already been applied."""
        return rows

    def whole(self, what: Whole, inner: Store) -> Any:
        return None if what == "statistics" else inner.whole(what)


class ViewedStore(Store):
    """Store that applies a view to an inner store; `close` closes the inner store."""

    def __init__(self, inner: Store, view: View) -> None:
        self.inner = inner
        self.view = view
        self.facts = _with_sizes(view.facts(inner.facts))

    @property
    def members(self) -> list[Store]:
        return self.inner.members

    def sizes(self, ranges: Ranges) -> RowSizes:
        sizes = self.view.sizes(self.inner.sizes(self.view.ranges(ranges)))
        return sizes._replace(nnz=np.full_like(sizes.nnz, self.n_features)) if self.dense_rows else sizes

    def columns(self, ranges: Ranges, wanted: Set[str]) -> Columns:
        wanted = wanted & self.facts.stored
        columns = self.inner.columns(self.view.ranges(ranges), self.view.needs(wanted))
        return only(self.view.columns(columns, ranges), wanted)

    def read(self, ranges: Ranges) -> Rows:
        rows = self.inner.read(self.view.ranges(ranges))
        columns = self.view.columns(only(rows._asdict(), self.inner.facts.stored), ranges)
        return self.view.rows(rows._replace(**columns))

    def whole(self, what: Whole) -> Any:
        return self.view.whole(what, self.inner)


class Sparse(View):
    """View that converts dense rows to CSR rows."""

    def facts(self, inner: Facts) -> Facts:
        extra = inner.extra_nnz_bytes + 2 * 8  # int64 row and column of each value
        return dataclasses.replace(inner, dense_rows=False, extra_nnz_bytes=extra)

    def rows(self, rows: Rows) -> Rows:
        rows = sparse_rows(rows, format.index_dtype(rows.largest_feature + 1))
        return rows._replace(norm2=row_norms(rows.data, rows.indptr))  # omitting zeros may change rounding

    def whole(self, what: Whole, inner: Store) -> Any:
        return inner.whole(what)


def as_sparse(store: Store) -> Store:
    """Return a view with CSR rows, or the store itself if it has no dense rows."""
    return ViewedStore(store, Sparse()) if store.dense_rows else store


def _with_sizes(facts: Facts) -> Facts:
    """Return facts whose `nnz` and `units` count a value for every feature if the rows are dense."""
    if not facts.dense_rows:
        return facts
    rows = None if facts.units is None else facts.units.rows
    units = None if rows is None else Units(rows, rows * facts.n_features)
    return dataclasses.replace(facts, nnz=facts.n_rows * facts.n_features, units=units)


@dataclasses.dataclass(frozen=True, eq=False)
class Matched(View):
    """View with the features of a model, matched by name."""

    names: list[str] | None  # feature names of the model
    n_features: int  # number of features of the model
    columns_of: np.ndarray  # the model's feature for each feature of the store; negative if not in the model

    def facts(self, inner: Facts) -> Facts:
        return dataclasses.replace(
            inner,
            n_features=self.n_features,
            held_bytes=inner.held_bytes + self.columns_of.nbytes,
            stored=inner.stored - {"norm2"},
        )

    def rows(self, rows: Rows) -> Rows:
        rows = with_columns(rows, self.columns_of, self.n_features)
        return rows._replace(norm2=row_norms(rows.data, rows.indptr))

    def whole(self, what: Whole, inner: Store) -> Any:
        return self.names if what == "feature_names" else super().whole(what, inner)


def matched(store: Store, match: FeatureMatch, names: list[str] | None, width: int = 0) -> Store:
    """Return a view with a model's features, or the store itself if its features are the same.

    `width` is the number of features of the model, which is needed only if they have no `names`.
    """
    if match.columns is None:
        return store
    width = width if names is None else len(names)
    columns = match.columns.astype(format.index_dtype(width), copy=False)
    return ViewedStore(store, Matched(names, width, columns))


@dataclasses.dataclass(frozen=True, eq=False)
class Recoded(View):
    """View with other classes; labels that are not among these classes get code -1."""

    classes: tuple[str, ...]
    label_dtype: str
    code_of: np.ndarray  # int32: new code, or -1, for each class of the store; the last entry is for code -1

    def facts(self, inner: Facts) -> Facts:
        return dataclasses.replace(inner, classes=self.classes, label_dtype=self.label_dtype)

    def needs(self, wanted: Set[str]) -> Set[str]:
        return wanted | {"label_codes"} if "labels" in wanted else wanted

    def columns(self, columns: Columns, ranges: Ranges) -> Columns:
        columns = dict(columns)
        if "label_codes" in columns:
            codes, indptr = distinct_sets(self.code_of[columns["label_codes"]], columns["label_indptr"])
            columns |= {"label_codes": codes, "label_indptr": indptr, "labels": first_labels(codes, indptr)}
        elif "labels" in columns:
            columns["labels"] = self.code_of[columns["labels"]]
        return columns

    def whole(self, what: Whole, inner: Store) -> Any:
        if what != "class_counts":
            return super().whole(what, inner)
        counts = np.zeros(len(self.classes), np.int64)
        known = self.code_of[:-1] >= 0
        counts[self.code_of[:-1][known]] = inner.class_counts[known]
        return counts


def recoded(store: Store, classes: Sequence[str], label_dtype: str) -> Store:
    """Return a view whose label codes refer to `classes`; other labels get code -1."""
    code = {label: c for c, label in enumerate(classes)}
    codes = [*(code.get(label, format.UNSEEN_LABEL) for label in store.classes), format.UNSEEN_LABEL]
    return ViewedStore(store, Recoded(tuple(classes), label_dtype, np.array(codes, format.LABEL_DTYPE)))


@dataclasses.dataclass(frozen=True, eq=False)
class Labelled(View):
    """View of the rows that have a label; it needs one bit of memory per row of the store."""

    bits: list[np.ndarray]  # packed masks of the labelled rows, one for each 65,536 rows
    before: np.ndarray  # int64: number of labelled rows before each mask, and their total

    def facts(self, inner: Facts) -> Facts:
        n_rows = int(self.before[-1])
        unlabelled, held = inner.n_rows - n_rows, inner.held_bytes + inner.n_rows // 8
        new: dict[str, Any] = {"n_rows": n_rows, "unlabelled": unlabelled, "held_bytes": held, "parts_of": {}}
        return dataclasses.replace(inner, **new)

    def ranges(self, ranges: Ranges) -> Ranges:
        parts, divided = split_ranges(ranges, self.before)
        order = np.argsort(parts, kind="stable")
        pieces, firsts = np.unique(parts[order], return_index=True)
        result, origins = [np.empty((0, 2), np.int64)], [np.empty(0, np.int64)]
        for piece, in_piece in zip(pieces.tolist(), np.split(order, firsts[1:]), strict=False):
            local = divided[in_piece] - self.before[piece]
            places = np.flatnonzero(np.unpackbits(self.bits[piece]))
            rows = places[numbers_in(local)] + piece * _PIECE_ROWS
            starts = np.cumsum(lengths(local)) - lengths(local)
            begins = np.union1d(starts, np.flatnonzero(np.diff(rows) != 1) + 1)
            lasts = np.append(begins[1:], len(rows)) - 1
            result.append(np.column_stack([rows[begins], rows[lasts] + 1]))
            origins.append(in_piece[np.searchsorted(starts, begins, "right") - 1])
        return np.concatenate(result)[np.argsort(np.concatenate(origins), kind="stable")]

    def columns(self, columns: Columns, ranges: Ranges) -> Columns:
        return columns | {"numbers": numbers_in(ranges)}

    def whole(self, what: Whole, inner: Store) -> Any:
        if what == "fingerprint":
            return hashlib.sha256(f"labelled {inner.fingerprint}".encode()).hexdigest()
        return super().whole(what, inner)


def with_labels(store: Store) -> Store:
    """Return a view of the labelled rows; a `multilabel` or fully labelled store is returned unchanged."""
    if store.multilabel:
        return store
    counts, bits = [], []
    for begin in range(0, store.n_rows, _PIECE_ROWS):
        labelled = store.labels(begin, min(begin + _PIECE_ROWS, store.n_rows)) >= 0
        counts.append(int(np.count_nonzero(labelled)))
        bits.append(np.packbits(labelled))
    before = np.array([0, *np.cumsum(counts)], np.int64)
    return store if before[-1] == store.n_rows else ViewedStore(store, Labelled(bits, before))
