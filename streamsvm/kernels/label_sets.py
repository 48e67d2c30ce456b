"""Rows with several labels: all of them are the row's own classes, and the rest are wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.candidates import mark_class
from streamsvm.kernels.jit import inlined


class LabelSets(NamedTuple):
    """The labels of all rows: those of row i are ``codes[indptr[i]:indptr[i + 1]]``."""

    codes: np.ndarray  # (n_labels,) int32
    indptr: np.ndarray  # (n_rows + 1,) int64


class OwnClasses(NamedTuple):
    """The labels of one row, ``codes[begin:end]``."""

    codes: np.ndarray
    begin: int
    end: int


@inlined
def own_classes(sets, i):
    """The labels of row `i`."""
    return OwnClasses(sets.codes, sets.indptr[i], sets.indptr[i + 1])


@inlined
def is_own(c, own):
    """Whether class `c` is one of a row's."""
    found = False
    for p in range(own.begin, own.end):
        found |= own.codes[p] == c
    return found


@inlined
def mark_own_classes(own, scratch, n_vectors):
    """Set the bits of a row's own classes, so that they do not become candidates by their scores."""
    for p in range(own.begin, own.end):
        n_vectors = mark_class(np.int64(own.codes[p]), scratch, n_vectors)
    return n_vectors


@inlined
def best_is_wrong(own, n_classes, scores):
    """Whether the class with the largest score, the first of equals, is not one of a row's."""
    best = 0
    for c in range(1, n_classes):
        if scores[c] > scores[best]:
            best = c
    return not is_own(best, own)


@inlined
def average_own_scores(y, own, scores):
    """Make the score of class `y` the mean of the own classes', and hide the others of them."""
    total = 0.0
    for p in range(own.begin, own.end):
        total += np.float64(scores[own.codes[p]])
    for p in range(own.begin, own.end):
        scores[own.codes[p]] = -np.inf
    scores[y] = total / (own.end - own.begin)
