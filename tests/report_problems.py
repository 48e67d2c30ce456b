"""Stores of kinds that reports must cope with: very many classes, several labels a row, sequences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from helpers import as_rows, make_problem, write_rows

from streamsvm.data.label_sets import with_label_sets


def many_classes(k: int) -> tuple[sp.csr_array, np.ndarray]:
    """Two rows of each of `k` classes with two features each, of which neighbouring classes share one."""
    labels = np.repeat(np.arange(k, dtype=np.int32), 2)
    features = np.stack([labels % 997, 997 + labels % 1009], axis=1).ravel()
    data = np.ones(len(features), np.float32)
    X = sp.csr_array((data, features, np.arange(0, len(features) + 1, 2)), shape=(2 * k, 2006))
    return X, labels


def label_store(path: Path, n: int, d: int, k: int) -> tuple[Path, np.ndarray]:
    """A store whose rows have several labels, or none; and which row has which, bool, shape (n, k)."""
    X, labels = make_problem(n, d, k, noise=1.5)
    rng = np.random.default_rng(0)
    own = (np.arange(k) == labels[:, None]) | (rng.random((n, k)) < 0.3)
    own[3::9] = False
    indptr = np.concatenate([[0], np.cumsum(own.sum(axis=1))])
    rows = with_label_sets(as_rows(X, labels), np.nonzero(own)[1], indptr)
    return write_rows(path, rows, d, k), own


def sequence_store(path: Path) -> tuple[Path, np.ndarray]:
    """A store of 40 sequences of three rows, whose labels follow each other in a circle; its labels."""
    n, d, k = 120, 6, 3
    X, labels = make_problem(n, d, k, noise=1.5)
    labels = (np.repeat(labels[::3], 3) + np.arange(n) % 3) % k
    rows = as_rows(X, labels)._replace(qid=np.repeat(np.arange(n // 3), 3).astype(np.int64))
    return write_rows(path, rows, d, k), labels
