"""Count the predictions of each class and, in bounded memory, the confused pairs of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.base.repr import Readable
from streamsvm.errors import ModelError, SettingsError, extra, warn

MEASURES = ("precision", "recall", "f1", "rows")
MAX_PAIRS = 2**20  # maximum number of pairs of classes in memory: 16 MB
_BUFFERED_ERRORS = 2**16


class ClassCounts:
    """Counts for each class: int64 arrays of shape (n_classes,).

    `rows` counts labelled rows, `correct` counts correct predictions, and `predicted` counts all predictions,
    including those for rows whose label the model does not know.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.rows, self.predicted, self.correct = (np.zeros(len(names), np.int64) for _ in range(3))
        self._pairs = PairCounts()

    def add(self, labels: np.ndarray, predicted: np.ndarray) -> None:
        """Count rows with one label each; labels that the model does not know are -1."""
        k = len(self.names)
        known, is_correct = labels >= 0, labels == predicted
        self.rows += np.bincount(labels[known], minlength=k)
        self.predicted += np.bincount(predicted, minlength=k)
        self.correct += np.bincount(predicted[is_correct], minlength=k)
        wrong = known & ~is_correct
        self._pairs.add(labels[wrong].astype(np.int64) * k + predicted[wrong])

    def add_sets(self, labels: np.ndarray, predicted: np.ndarray) -> None:
        self.rows += labels.sum(axis=0)
        self.predicted += predicted.sum(axis=0)
        self.correct += (labels & predicted).sum(axis=0)

    @property
    def pairs(self) -> np.ndarray:
        """True class, predicted class and number of errors, most frequent first: int64 of shape (n, 3)."""
        codes, counts = self._pairs.most_frequent()
        return np.stack([*np.divmod(codes, len(self.names)), counts], axis=1)

    @property
    def too_low(self) -> int:
        """Largest amount by which a pair's count may be too low; 0 unless there are very many pairs."""
        return self._pairs.too_low

    @property
    def precision(self) -> np.ndarray:
        """Precision of each class; NaN for classes that are never predicted."""
        return _ratio(self.correct, self.predicted)

    @property
    def recall(self) -> np.ndarray:
        """Recall of each class; NaN for classes without rows."""
        return _ratio(self.correct, self.rows)

    @property
    def f1(self) -> np.ndarray:
        """F1 of each class; NaN for classes that occur in neither labels nor predictions."""
        return _ratio(2 * self.correct, self.rows + self.predicted)

    def worst(self) -> np.ndarray:
        """Return the classes that have rows, by ascending F1 and then by descending number of rows."""
        occurs = np.flatnonzero(self.rows)
        return occurs[np.lexsort((-self.rows[occurs], self.f1[occurs]))]

    def table(self, codes: np.ndarray | None = None) -> dict[str, Any]:
        """Return the measures of the classes `codes`, by default all in labels or predictions, as columns."""
        if codes is None:
            codes = np.flatnonzero(self.rows + self.predicted)
        names = np.array(self.names, object)[codes]
        return {"class": names, **{measure: getattr(self, measure)[codes] for measure in MEASURES}}

    def confusion(self) -> dict[str, Any]:
        """Return the confusion matrix as columns, with the errors last; warn if counts may be too low."""
        if self.too_low:
            problem = f"counts of errors may be up to {self.too_low:,} too low, and rare pairs are left out"
            warn(f"more than {MAX_PAIRS:,} pairs of classes are confused, so {problem}")
        right = np.flatnonzero(self.correct)
        right = np.stack([right, right, self.correct[right]], axis=1)
        true, predicted, counts = np.concatenate([right, self.pairs]).T
        name = np.array(self.names, object)
        return {"true": name[true], "predicted": name[predicted], "rows": counts}


def records_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    rows = zip(*(each.tolist() for each in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def data_frame(columns: dict[str, Any]) -> Any:
    """Return columns as a DataFrame; raise `ModelError` if pandas is not installed."""
    with extra(ModelError, "tables of classes need pandas, which is not installed", "pandas"):
        import pandas
    return pandas.DataFrame(columns)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.divide(numerator, denominator, out=np.full(len(denominator), np.nan), where=denominator > 0)


class ReadableByClass(Readable):
    """Mixin that adds the table of classes to an evaluation."""

    counts: ClassCounts | None

    @property
    def classes(self) -> Any:
        """Precision, recall, F1 and number of rows of each class that occurs, as a DataFrame."""
        if self.counts is None:
            raise SettingsError("no label sets were predicted; call evaluate with threshold or n_labels")
        return data_frame(self.counts.table()).set_index("class")

    def _facts(self) -> dict[str, Any]:
        hidden = {"counts", "unknown", "answered"}
        return {name: value for name, value in vars(self).items() if name not in hidden}


class PairCounts:
    """Approximate counts of pairs in bounded memory (Misra & Gries 1982).

    No count is too low by more than `too_low`, which is at most 2 / `MAX_PAIRS` times the number added.
    """

    def __init__(self) -> None:
        self._too_low = 0
        self._codes = self._counts = np.zeros(0, np.int64)
        self._added: list[np.ndarray] = []
        self._n_added = 0

    def add(self, codes: np.ndarray) -> None:
        if len(codes):
            self._added.append(codes)
            self._n_added += len(codes)
        if self._n_added >= _BUFFERED_ERRORS:
            self._merge()

    @property
    def too_low(self) -> int:
        self._merge()
        return self._too_low

    def most_frequent(self) -> tuple[np.ndarray, np.ndarray]:
        self._merge()
        order = np.lexsort((self._codes, -self._counts))
        return self._codes[order], self._counts[order]

    def _merge(self) -> None:
        codes, inverse = np.unique(np.concatenate([self._codes, *self._added]), return_inverse=True)
        weights = np.ones(len(inverse), np.int64)
        weights[: len(self._counts)] = self._counts
        counts = np.zeros(len(codes), np.int64)
        np.add.at(counts, inverse, weights)
        self._added, self._n_added = [], 0
        if len(codes) > MAX_PAIRS:  # keep half, and subtract the largest dropped count
            half = len(codes) - MAX_PAIRS // 2
            dropped = int(np.partition(counts, half - 1)[half - 1])
            self._too_low += dropped
            kept = counts > dropped
            codes, counts = codes[kept], counts[kept] - dropped
        self._codes, self._counts = codes, counts
