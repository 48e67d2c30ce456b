"""Views of stores: with a model's features, without unlabelled rows."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator

import numpy as np

from streamsvm.base import format
from streamsvm.data.checks import row_norms
from streamsvm.data.names import FeatureMatch, move_columns
from streamsvm.data.rows import Rows, kept_rows
from streamsvm.data.statistics import Statistics
from streamsvm.store.chunk_reader import Ranges
from streamsvm.store.reader import Progress, Store

_PIECE_ROWS = 2**16  # rows whose labels are read at a time
_MAX_GAP_ROWS = 64  # rows without a label that are not read


class StoreView(Store):
    """Base class of views: delegates to another store; subclasses override what they change.

    A subclass overrides the methods whose results it changes, and sets the attributes: `rows_of` and `rows`
    must always agree with `indptr`, `labels`, `weights`, `groups`, `label_sets` and `names`. Row pointers may
    count more non-zeros than the rows have, from any origin: they serve to plan memory.

    Attributes
    ----------
    inner : Store
    """

    _COPIED_ATTRIBUTES = (
        "path", "kind", "native", "n_rows", "n_features", "nnz", "classes", "n_classes", "label_dtype",
        "dtype", "index_dtype", "index_base", "shuffled", "chunk_nnz", "meta", "weighted", "grouped",
        "multilabel", "n_labels", "unlabelled", "arrays", "held_bytes", "extra_nnz_bytes",
    )  # fmt: skip

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        for name in self._COPIED_ATTRIBUTES:
            setattr(self, name, getattr(inner, name))

    @property
    def bytes_read(self) -> int:  # type: ignore[override]
        return self.inner.bytes_read

    @property
    def members(self) -> list[Store]:
        return self.inner.members

    @property
    def chunk_rows(self) -> float:
        return self.inner.chunk_rows

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def class_counts(self) -> np.ndarray:
        return self.inner.class_counts

    def rows(self, start: int, stop: int) -> Rows:
        return self.rows_of([(start, stop)])

    def rows_of(self, ranges: Ranges) -> Rows:
        return self.inner.rows_of(ranges)

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return self.inner.indptr(start, stop)

    def labels(self, start: int, stop: int) -> np.ndarray:
        return self.inner.labels(start, stop)

    def labels_of(self, ranges: Ranges) -> np.ndarray:
        return self.inner.labels_of(ranges)

    def label_indptr(self, start: int, stop: int) -> np.ndarray:
        return self.inner.label_indptr(start, stop)

    def label_sets(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return self.inner.label_sets(start, stop)

    def weights(self, start: int, stop: int) -> np.ndarray:
        return self.inner.weights(start, stop)

    def groups(self, start: int, stop: int) -> np.ndarray:
        return self.inner.groups(start, stop)

    def norms(self, start: int, stop: int) -> np.ndarray:
        return self.inner.norms(start, stop)

    def names(self, start: int, stop: int) -> np.ndarray:
        return self.inner.names(start, stop)

    def feature_names(self) -> list[str] | None:
        return self.inner.feature_names()

    def statistics(self) -> Statistics | None:
        """Return None: the statistics of `inner` are those of other rows or features."""
        return None

    def verify(self, progress: Progress | None = None) -> None:
        self.inner.verify(progress)

    def check_row_pointer_ends(self) -> None:
        self.inner.check_row_pointer_ends()

    def close(self) -> None:
        self.inner.close()


class RearrangedStore(StoreView):
    """Base class of views whose rows are some rows of one or more stores, in another order."""

    def _each(self, read: Callable[[Store, int, int], np.ndarray], start: int, stop: int) -> np.ndarray:
        """Return what ``read(store, first, end)`` returns for the rows ``start:stop``, in their order."""
        raise NotImplementedError

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Return row pointers that begin with 0."""
        lengths = self._each(lambda store, *ends: np.diff(store.indptr(*ends)), start, stop)
        return np.concatenate([[0], np.cumsum(lengths)])

    def label_indptr(self, start: int, stop: int) -> np.ndarray:
        lengths = self._each(lambda store, *ends: np.diff(store.label_indptr(*ends)), start, stop)
        return np.concatenate([[0], np.cumsum(lengths)])

    def weights(self, start: int, stop: int) -> np.ndarray:
        return self._each(lambda store, *ends: store.weights(*ends), start, stop)

    def norms(self, start: int, stop: int) -> np.ndarray:
        return self._each(lambda store, *ends: store.norms(*ends), start, stop)

    def names(self, start: int, stop: int) -> np.ndarray:
        return self._each(lambda store, *ends: store.names(*ends), start, stop)


class MatchedStore(StoreView):
    """View of a store with the features of a model, matched by name.

    Parameters
    ----------
    inner : Store
    match : FeatureMatch
        With `columns`.
    names : sequence of str
        The model's features.
    """

    def __init__(self, inner: Store, match: FeatureMatch, names: list[str]) -> None:
        super().__init__(inner)
        assert match.columns is not None
        self._columns = match.columns
        self._names = names
        self.n_features = len(names)
        self.index_dtype = format.index_dtype(self.n_features)
        self.held_bytes += match.columns.nbytes

    def rows_of(self, ranges: Ranges) -> Rows:
        rows = self.inner.rows_of(ranges)
        data, indices, indptr = move_columns(
            rows.data, rows.indices, rows.indptr, self._columns, self.n_features
        )
        return rows._replace(data=data, indices=indices, indptr=indptr, norm2=row_norms(data, indptr))

    def norms(self, start: int, stop: int) -> np.ndarray:
        return self.rows(start, stop).norm2

    def feature_names(self) -> list[str] | None:
        return self._names


def with_labels(store: Store) -> Store:
    """Return a view of the rows that have a label; the store itself if all have one or more."""
    if store.multilabel:
        return store
    view = LabelledStore(store)
    return view if view.unlabelled else store


class LabelledStore(RearrangedStore):
    """View of the rows of a store that have a label; `unlabelled` counts the others.

    Memory: a bit for each row of the other one.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        counts, bits = [], []
        for begin in range(0, inner.n_rows, _PIECE_ROWS):
            labelled = inner.labels(begin, min(begin + _PIECE_ROWS, inner.n_rows)) >= 0
            counts.append(int(np.count_nonzero(labelled)))
            bits.append(np.packbits(labelled))
        self._bits = bits
        self._before = np.array([0, *np.cumsum(counts)], np.int64)  # labelled rows before each piece
        self.n_rows = int(self._before[-1])
        self.unlabelled = inner.n_rows - self.n_rows
        self.held_bytes += inner.n_rows // 8

    @functools.cached_property
    def _fingerprint(self) -> str:
        return hashlib.sha256(f"labelled {self.inner.fingerprint}".encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def _runs(self, start: int, stop: int) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield ranges of rows of `inner` with the labelled ones ``start:stop``, and which rows those are.

        Long ranges of rows without a label are left out.
        """
        self._check_range(start, stop)
        while start < stop:
            piece = int(np.searchsorted(self._before, start, "right")) - 1
            begin, before = piece * _PIECE_ROWS, int(self._before[piece])
            places = np.flatnonzero(np.unpackbits(self._bits[piece]))
            labelled = begin + places[start - before : stop - before]
            for run in np.split(labelled, np.flatnonzero(np.diff(labelled) > _MAX_GAP_ROWS) + 1):
                first, end = int(run[0]), int(run[-1]) + 1
                kept = np.zeros(end - first, bool)
                kept[run - first] = True
                yield first, end, kept
            start += len(labelled)

    def _each(self, read: Callable[[Store, int, int], np.ndarray], start: int, stop: int) -> np.ndarray:
        parts = [read(self.inner, first, end)[kept] for first, end, kept in self._runs(start, stop)]
        return np.concatenate(parts) if parts else read(self.inner, 0, 0)

    def rows_of(self, ranges: Ranges) -> Rows:
        runs = [run for each in ranges for run in self._runs(*each)]
        if not runs:
            return self.inner.rows(0, 0)
        rows = self.inner.rows_of([(first, end) for first, end, _ in runs])
        kept = np.concatenate([kept for *_, kept in runs])
        return rows if kept.all() else kept_rows(rows, kept)

    def labels(self, start: int, stop: int) -> np.ndarray:
        return self.labels_of([(start, stop)])

    def labels_of(self, ranges: Ranges) -> np.ndarray:
        runs = [run for each in ranges for run in self._runs(*each)]
        labels = self.inner.labels_of([(first, end) for first, end, _ in runs])
        return labels[np.concatenate([kept for *_, kept in runs])] if runs else labels

    def norms(self, start: int, stop: int) -> np.ndarray:
        return self.rows(start, stop).norm2
