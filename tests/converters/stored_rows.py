"""What a store holds, for tests of converters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from streamsvm.store import open_store


def stored(path: Path) -> tuple[np.ndarray, list[str], list[str] | None]:
    """The matrix, labels and feature names of a store, in its order."""
    with open_store(path) as store:
        rows = store.rows(0, store.n_rows)
        matrix = sp.csr_array((rows.data, rows.indices, rows.indptr), (store.n_rows, store.n_features))
        labels = ["?" if code < 0 else store.classes[code] for code in rows.labels]
        return matrix.toarray(), labels, store.feature_names()
