"""Rows with several labels: all of them are the row's own classes, and the rest are wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class LabelSets(NamedTuple):
    """The labels of all rows: those of row i are ``codes[indptr[i]:indptr[i + 1]]``."""

    codes: np.ndarray  # (n_labels,) int32
    indptr: np.ndarray  # (n_rows + 1,) int64
