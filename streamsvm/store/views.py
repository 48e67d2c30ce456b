"""Stores made of another one: with a model's features, without unlabelled rows."""

from __future__ import annotations

import functools
import hashlib

import numpy as np

from streamsvm import format
from streamsvm.data.csr_checks import row_norms
from streamsvm.data.feature_names import FeatureMatch, move_columns
from streamsvm.data.rows import Rows, kept_rows
from streamsvm.store.reader import Progress, Store

_PIECE = 2**16  # rows whose labels are read at a time


class StoreView(Store):
    """A store whose rows are those of another one, but for what a subclass changes.

    A subclass overrides the methods whose results it changes, and sets the attributes: `rows` must always
    agree with `indptr`, `labels`, `weights`, `groups`, `label_sets` and `names`. Row pointers may count more
    non-zeros than the rows have: they serve to plan memory.

    Attributes
    ----------
    inner : Store
    """

    _COPIED = (
        "path", "kind", "native", "n_rows", "n_features", "nnz", "classes", "n_classes", "dtype",
        "index_dtype", "index_base", "shuffled", "chunk_nnz", "meta", "weighted", "grouped", "multilabel",
        "n_labels", "unlabelled", "arrays", "held_bytes", "extra_nnz_bytes",
    )  # fmt: skip

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        for name in self._COPIED:
            setattr(self, name, getattr(inner, name))

    @property
    def bytes_read(self) -> int:  # type: ignore[override]
        return self.inner.bytes_read

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def class_counts(self) -> np.ndarray:
        return self.inner.class_counts

    def rows(self, start: int, stop: int) -> Rows:
        return self.inner.rows(start, stop)

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return self.inner.indptr(start, stop)

    def labels(self, start: int, stop: int) -> np.ndarray:
        return self.inner.labels(start, stop)

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

    def verify(self, progress: Progress | None = None) -> None:
        self.inner.verify(progress)

    def check_row_pointer_ends(self) -> None:
        self.inner.check_row_pointer_ends()

    def close(self) -> None:
        self.inner.close()


class MatchedStore(StoreView):
    """A store with the features of a model, found by name.

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

    def rows(self, start: int, stop: int) -> Rows:
        rows = self.inner.rows(start, stop)
        data, indices, indptr = move_columns(
            rows.data, rows.indices, rows.indptr, self._columns, self.n_features
        )
        return rows._replace(data=data, indices=indices, indptr=indptr, norm2=row_norms(data, indptr))

    def norms(self, start: int, stop: int) -> np.ndarray:
        return self.rows(start, stop).norm2

    def feature_names(self) -> list[str] | None:
        return self._names


class LabelledStore(StoreView):
    """The rows of a store that have a label; `unlabelled` counts the others.

    Memory does not grow with the rows but by 8 bytes for each 65,536 of them.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        counts = [
            int(np.count_nonzero(inner.labels(begin, min(begin + _PIECE, inner.n_rows)) >= 0))
            for begin in range(0, inner.n_rows, _PIECE)
        ]
        self._before = np.concatenate([[0], np.cumsum(counts)]).astype(
            np.int64
        )  # labelled rows before a piece
        self.n_rows = int(self._before[-1])
        self.unlabelled = inner.n_rows - self.n_rows

    @functools.cached_property
    def _fingerprint(self) -> str:
        return hashlib.sha256(f"labelled {self.inner.fingerprint}".encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def _span(self, start: int, stop: int) -> tuple[int, int, np.ndarray]:
        """The rows of `inner` from the first to the last of the labelled ones, and which of them have labels."""
        self._check_range(start, stop)
        if start == stop:
            return 0, 0, np.zeros(0, bool)
        ends = []
        for row in (start, stop - 1):
            piece = int(np.searchsorted(self._before, row, "right")) - 1
            begin = piece * _PIECE
            labels = self.inner.labels(begin, min(begin + _PIECE, self.inner.n_rows))
            ends.append(begin + int(np.flatnonzero(labels >= 0)[row - self._before[piece]]))
        first, last = ends
        return first, last + 1, self.inner.labels(first, last + 1) >= 0

    def rows(self, start: int, stop: int) -> Rows:
        first, end, kept = self._span(start, stop)
        rows = self.inner.rows(first, end)
        return rows if kept.all() else kept_rows(rows, kept)

    def indptr(self, start: int, stop: int) -> np.ndarray:
        first, end, kept = self._span(start, stop)
        offsets = self.inner.indptr(first, end)
        return np.concatenate([offsets[:-1][kept], offsets[-1:]])

    def labels(self, start: int, stop: int) -> np.ndarray:
        first, end, kept = self._span(start, stop)
        return self.inner.labels(first, end)[kept]

    def weights(self, start: int, stop: int) -> np.ndarray:
        first, end, kept = self._span(start, stop)
        return self.inner.weights(first, end)[kept]

    def norms(self, start: int, stop: int) -> np.ndarray:
        first, end, kept = self._span(start, stop)
        return self.inner.norms(first, end)[kept]

    def names(self, start: int, stop: int) -> np.ndarray:
        first, end, kept = self._span(start, stop)
        return self.inner.names(first, end)[kept]
