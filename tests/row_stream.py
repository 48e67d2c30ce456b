"""A stream over rows in memory, for tests of the online pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from helpers import as_rows

from streamsvm.data.rows import Rows


class RowStream:
    """A stream over rows in memory: ``labels[i]`` is the label of row i, in batches that end at `cuts`."""

    def __init__(self, X, labels, cuts=(), *, classes=None, n_features=None, resumable=True, ended=None):
        self.X, self.labels = sp.csr_array(X), list(labels)
        self.cuts = [0, *cuts, self.X.shape[0]]
        self.classes, self.n_features, self.resumable = classes, n_features, resumable
        self.index_base = 0
        self.drawn: list[int] = []  # the first row of each batch
        self.ended = ended

    def batches(self, place, classes):
        known = list(classes)
        begin = place["row"] if place else 0
        for a, b in itertools.pairwise(self.cuts):
            if a < begin:
                continue
            self.drawn.append(a)
            before = len(known)
            if self.classes is None:
                known += dict.fromkeys(label for label in self.labels[a:b] if label not in known)
            codes = [known.index(label) if label in known else -1 for label in self.labels[a:b]]
            part = self.X[a:b]
            rows = as_rows(part, np.array(codes))._replace(indices=part.indices.astype(np.int64))
            yield rows, known[before:], {"row": b}
        if self.ended:
            self.ended()

    def record(self) -> dict[str, Any]:
        return {"resumable": self.resumable}

    def sources(self, place):
        return [{"name": "rows", "size": place["row"], "sha256": ""}]

    def summary(self, place):
        return {"rows": place["row"]}

    @staticmethod
    def in_order(classes):
        return np.argsort(classes)

    @staticmethod
    def warnings(classes):
        return []
