"""What a store holds, for tests of converters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from streamsvm.store import open_store


def stored(path: str | Path) -> tuple[np.ndarray, list[str], list[str] | None]:
    """The matrix, labels and feature names of a store, in its order."""
    with open_store(path) as store:
        store.verify()
        rows = store.rows(0, store.n_rows)
        labels = ["?" if code < 0 else store.classes[code] for code in rows.labels]
        if rows.dense:
            return rows.matrix, labels, store.feature_names()
        matrix = sp.csr_array((rows.data, rows.indices, rows.indptr), (store.n_rows, store.n_features))
        return matrix.toarray(), labels, store.feature_names()


def labels_of(path: Path) -> list[str]:
    return stored(path)[1]


def lines_of(path: Path) -> list[str]:
    """A store as lines of LIBSVM text, each value in its shortest form."""
    with open_store(path) as store:
        rows, base = store.rows(0, store.n_rows), store.index_base
        lines = []
        for row in range(rows.n_rows):
            span = slice(rows.indptr[row], rows.indptr[row + 1])
            pairs = zip(rows.indices[span].tolist(), rows.data[span], strict=True)
            code = rows.labels[row]
            label = "?" if code < 0 else store.classes[code]
            lines.append(" ".join([label, *(f"{index + base}:{value!s}" for index, value in pairs)]))
        return lines
