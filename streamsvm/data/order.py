"""Detection of rows that are not shuffled: successive rows with similar labels.

Training on such rows gives a worse model than training on shuffled rows. Progressive accuracy is then too
high, because each row is predicted after similar rows.

The measure is Cramér's V between the label of a row and its group of successive rows, corrected for the bias
of small groups (Bergsma 2013). It is about 0 in random order, and 1 if the group determines the label. If a
fraction V of the rows is sorted and the rest is random, it is about V. From 0.2 on, progressive accuracy is
several points too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.rows import PIECE_ROWS
from streamsvm.errors import Call, Message, Option, Remedy

if TYPE_CHECKING:
    from streamsvm.store import Store

STREAM_WARNING = Message(
    "the rows come in groups of alike labels: the model may be much worse than one of shuffled rows, and "
    "there is no progressive accuracy, as it would say nothing of new data",
    Remedy("shuffle the input first, or fit a store that {} has shuffled", Call("convert")),
)
_MIN_ASSOCIATION = 0.2
_MIN_DEVIATIONS = 15  # significance threshold in standard deviations, for small data
# Defaults for streams: short runs of a label are harmless, and the first rows are too few for a warning.
_GROUP_ROWS = 32
_MIN_GROUPS = 8


class LabelGroups:
    """Label counts per group of successive rows, in memory proportional to the number of classes.

    Groups have `size` rows; an incomplete last group is ignored. With fewer than `fewest` groups, the
    association is 0. A saved `state` can be continued.

    Attributes
    ----------
    state : ndarray of float64, shape (3, n_classes)
        Per class: sum over groups of squared counts, total count in complete groups, and count in the current
        group.
    """

    def __init__(self, state: Any = (), size: int = _GROUP_ROWS, fewest: int = _MIN_GROUPS) -> None:
        self.size = size
        self.fewest = fewest
        self.state = np.array(state, np.float64).reshape(3, -1)

    def add(self, labels: np.ndarray) -> None:
        """Add the class codes of the next rows, without negative codes."""
        labels = labels[labels >= 0].astype(np.int64)
        if len(labels) == 0:
            return
        n_classes = max(self.state.shape[1], int(labels.max()) + 1)
        self.state = np.pad(self.state, ((0, 0), (0, n_classes - self.state.shape[1])))
        missing = self.size - int(self.state[2].sum())
        self._add_to_begun(labels[:missing])
        labels = labels[missing:]
        whole = len(labels) // self.size * self.size
        group = np.arange(whole) // self.size
        pairs, times = np.unique(group * n_classes + labels[:whole], return_counts=True)
        self.state[0] += np.bincount(pairs % n_classes, times.astype(float) ** 2, n_classes)
        self.state[1] += np.bincount(labels[:whole], minlength=n_classes)
        self._add_to_begun(labels[whole:])

    def _add_to_begun(self, labels: np.ndarray) -> None:
        squares, counts, begun = self.state
        begun += np.bincount(labels, minlength=len(begun))
        if begun.sum() == self.size:
            squares += begun**2
            counts += begun
            begun[:] = 0

    @property
    def association(self) -> float:
        """Cramér's V of label and group; 0 if not significant."""
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
        """True if successive rows have similar labels."""
        return self.association >= _MIN_ASSOCIATION


def block_warning(store: Store, n_blocks: int) -> str | None:
    """Return a warning if the blocks of a store have different labels, else None; reads all labels."""
    if store.shuffled or n_blocks < 2:
        return None
    # Groups of equal size, because a short last block would get too much weight.
    groups = LabelGroups(size=store.n_rows // n_blocks, fewest=2)
    for start in range(0, store.n_rows, PIECE_ROWS):
        groups.add(store.labels(start, min(start + PIECE_ROWS, store.n_rows)))
    if not groups.alike:
        return None
    return Message(
        f"the rows of {store.path} are not shuffled, and its {n_blocks:,} blocks hold different labels "
        f"(Cramér's V is {groups.association:.2f}, in random order 0): the model may be much worse than one "
        "of shuffled rows, and there is no progressive accuracy, as it would say nothing of new data",
        Remedy(
            "shuffle the rows ({} does), or give more {}, or read shorter slices with {}",
            Call("convert"),
            Option("memory"),
            Option("slice_rows"),
        ),
    )
