"""Detect rows that are not shuffled, because successive rows have similar labels.

Training on unshuffled rows makes the model worse. It also makes the progressive accuracy too high, because
the model has just learned from similar rows when it predicts a row.

The measure is Cramér's V between the label of a row and its group of successive rows, with a correction for
the bias of small groups (Bergsma 2013). It is about 0 if the order is random, and 1 if the group determines
the label. If a fraction V of the rows is sorted and all other rows are in random order, the measure is about
V. If the measure is above 0.2, the progressive accuracy is several percentage points too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.rows import PIECE_ROWS
from streamsvm.errors import Call, Message, Option, Remedy

if TYPE_CHECKING:
    from streamsvm.store import Store

STREAM_WARNING = Message(
    "successive rows have similar labels, so the model may be much worse than a model trained on shuffled "
    "rows; the progressive accuracy is omitted because it would be misleading",
    Remedy("shuffle the input first, or train on a store that {} has shuffled", Call("convert")),
)
_MIN_ASSOCIATION = 0.2
_MIN_DEVIATIONS = 15  # significance threshold in standard deviations, for small data
# Defaults for streams.
_GROUP_ROWS = 32  # because short runs of a label are harmless
_MIN_GROUPS = 8  # because fewer rows are not enough for a warning


class LabelGroups:
    """Label counts in groups of `size` successive rows. The memory is proportional to the number of classes.

    An incomplete last group is ignored. If there are fewer than `fewest` groups, the association is 0. A
    saved `state` can be passed to continue counting.

    Attributes
    ----------
    state : ndarray of float64, shape (3, n_classes)
        For each class, the sum of its squared counts in the complete groups, the sum of these counts, and its
        count in the current group.
    """

    def __init__(self, state: Any = (), size: int = _GROUP_ROWS, fewest: int = _MIN_GROUPS) -> None:
        self.size = size
        self.fewest = fewest
        self.state = np.array(state, np.float64).reshape(3, -1)

    def add(self, labels: np.ndarray) -> None:
        """Count the class codes of the next rows; negative codes are ignored."""
        labels = labels[labels >= 0].astype(np.int64)
        if len(labels) == 0:
            return
        n_classes = max(self.state.shape[1], int(labels.max()) + 1)
        self.state = np.pad(self.state, ((0, 0), (0, n_classes - self.state.shape[1])))
        missing = self.size - int(self.state[2].sum())
        self._add_to_current(labels[:missing])
        labels = labels[missing:]
        whole = len(labels) // self.size * self.size
        group = np.arange(whole) // self.size
        pairs, times = np.unique(group * n_classes + labels[:whole], return_counts=True)
        self.state[0] += np.bincount(pairs % n_classes, times.astype(float) ** 2, n_classes)
        self.state[1] += np.bincount(labels[:whole], minlength=n_classes)
        self._add_to_current(labels[whole:])

    def _add_to_current(self, labels: np.ndarray) -> None:
        squares, counts, current = self.state
        current += np.bincount(labels, minlength=len(current))
        if current.sum() == self.size:
            squares += current**2
            counts += current
            current[:] = 0

    @property
    def association(self) -> float:
        """Cramér's V between label and group; 0 if it is not significant."""
        squares, counts, _ = self.state[:, self.state[1] > 0]
        n, k = counts.sum(), len(counts)
        n_groups = n // self.size
        if k < 2 or n_groups < self.fewest:
            return 0.0
        freedom = (k - 1) * (n_groups - 1)
        excess = (squares / counts).sum() / self.size - 1 - freedom / (n - 1)  # chi-squared excess / n
        if excess * n < _MIN_DEVIATIONS * np.sqrt(2 * freedom):
            return 0.0
        largest = min(size - (size - 1) ** 2 / (n - 1) for size in (k, n_groups)) - 1
        return float(np.sqrt(excess / largest))

    @property
    def alike(self) -> bool:
        """Whether successive rows have similar labels."""
        return self.association >= _MIN_ASSOCIATION


def block_warning(store: Store, n_blocks: int) -> str | None:
    """Return a warning if the labels differ between the blocks of a store, or None. Reads all labels."""
    if store.shuffled or n_blocks < 2:
        return None
    # The groups have equal sizes, because a short last block would get too much weight.
    groups = LabelGroups(size=store.n_rows // n_blocks, fewest=2)
    for start in range(0, store.n_rows, PIECE_ROWS):
        groups.add(store.labels(start, min(start + PIECE_ROWS, store.n_rows)))
    if not groups.alike:
        return None
    return Message(
        f"the rows of {store.path} are not shuffled, and the labels differ between its {n_blocks:,} blocks "
        f"(Cramér's V is {groups.association:.2f} instead of 0), so the model may be much worse than a model "
        "trained on shuffled rows; the progressive accuracy is omitted because it would be misleading",
        Remedy(
            "shuffle the rows with {}, raise the memory budget with {}, or read shorter slices with {}",
            Call("convert"),
            Option("memory"),
            Option("slice_rows"),
        ),
    )
