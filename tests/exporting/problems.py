"""Models to export: trained on small problems, with transforms that other programs can follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from helpers import make_problem, plain_fit

import streamsvm

D = 30


def trained(
    k: int = 4, *, d: int = D, labels: list[Any] | None = None, density: float = 0.4, **settings
) -> tuple[streamsvm.Model, sp.csr_array]:
    """A model of k classes, called 1 to k or as `labels` says, and other rows to predict."""
    X, codes = make_problem(150, d, k, noise=1.5, density=density)
    X.data = np.abs(X.data)  # which all transforms take
    names = np.array([str(c + 1) for c in range(k)] if labels is None else labels)
    rows = X[:100].toarray() if "center" in (settings.get("transform") or "") else X[:100]
    model = plain_fit(rows, names[codes[:100]], passes=2, **settings)
    model.record["index_base"] = 1
    return model, X[100:]


def trained_on_label_sets(k: int = 3, **settings) -> tuple[streamsvm.Model, sp.csr_array]:
    """A model whose training rows had up to two labels each, and its rows."""
    X, codes = make_problem(100, D, k, noise=1.5)
    labels = [sorted({str(c + 1), "1"}) if i % 5 else [] for i, c in enumerate(codes.tolist())]
    return plain_fit(X, labels, passes=2, dtype="float64", **settings), X


def write_text(path: Path, X: sp.csr_array, base: int = 1) -> Path:
    """The rows as LIBSVM text without meaningful labels, with all digits."""
    lines = []
    for i in range(X.shape[0]):
        part = slice(*X.indptr[i : i + 2])
        pairs = zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True)
        lines.append("0 " + " ".join(f"{j + base}:{value!r}" for j, value in pairs))
    path.write_text("\n".join(lines) + "\n")
    return path


def clear_rows(model: streamsvm.Model, X: sp.csr_array) -> np.ndarray:
    """Rows whose two largest scores are not equal but for rounding."""
    best = np.sort(model.decision_function(X), axis=1)
    clear: np.ndarray = best[:, -1] - best[:, -2] > 1e-4 * np.abs(best).max()
    assert clear.mean() > 0.9
    return clear
