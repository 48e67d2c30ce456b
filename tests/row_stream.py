"""A stream over rows in memory, and a problem whose classes and features appear late."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from helpers import as_rows, make_problem

from streamsvm.data.rows import Rows

N, D, K = 150, 13, 5  # rows, features and classes of `late_problem`


def late_problem() -> tuple[sp.csr_array, list[str]]:
    """Rows in which classes and features appear late, and one has no values; and their labels.

    The first rows are all of one class.
    """
    X, codes = make_problem(N, D, K, noise=1.5, empty=1)
    stage = 1 + (codes > 2)  # two classes only come in the second half
    stage[np.flatnonzero((codes == 0) & (np.diff(X.indptr) > 0))[:4]] = 0
    order = np.argsort(stage, kind="stable")
    X, codes = X[order].tolil(), codes[order]
    X[:40, 9:] = 0
    return sp.csr_array(X.tocsr()), [f"c{code}" for code in codes]


class RowStream:
    """A stream of rows, in batches that end at `cuts`.

    Parameters
    ----------
    X : sparse array, shape (n, d)
    labels : iterable of str
        Label of each row.
    cuts : iterable of int
        Rows before which a new batch begins.
    classes : list of str, optional
        All classes; rows of others have no known label.
    n_features : int, optional
    resumable : bool
    at_end : callable, optional
        Called behind the last batch.

    Attributes
    ----------
    read : list of int
        First row of each batch that was read.
    """

    index_base = 0
    feature_names = None
    dense_rows = False
    label_dtype = "str"

    def __init__(
        self,
        X: sp.csr_array,
        labels: Iterable[str],
        cuts: Iterable[int] = (),
        *,
        classes: list[str] | None = None,
        n_features: int | None = None,
        resumable: bool = True,
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self.X, self.labels = sp.csr_array(X), list(labels)
        self.cuts = [0, *cuts, self.X.shape[0]]
        self.classes, self.n_features, self.resumable = classes, n_features, resumable
        self.at_end = at_end
        self.read: list[int] = []

    def batches(
        self, place: dict[str, Any] | None, classes: Sequence[str]
    ) -> Iterator[tuple[Rows, list[str], dict[str, Any]]]:
        known = list(classes)
        for begin, end in itertools.pairwise(self.cuts):
            if begin < (place["row"] if place else 0):
                continue
            self.read.append(begin)
            labels, n_known = self.labels[begin:end], len(known)
            if self.classes is None:
                known += dict.fromkeys(label for label in labels if label not in known)
            codes = np.array([known.index(label) if label in known else -1 for label in labels])
            part = self.X[begin:end]
            rows = as_rows(part, codes)._replace(indices=part.indices.astype(np.int64))
            yield rows, known[n_known:], {"row": end}
        self.at_end()

    def record(self) -> dict[str, Any]:
        return {"resumable": self.resumable}

    def sources(self, place: dict[str, Any] | None) -> list[dict[str, Any]]:
        return [{"name": "rows", "size": place["row"], "sha256": ""}]

    def summary(self, place: dict[str, Any] | None) -> dict[str, Any]:
        return {"rows": place["row"]}
