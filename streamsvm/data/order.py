"""Detection of rows in groups of alike labels: sorted by label, or by something related to it.

Rows learned from in such an order make a worse model than the same rows shuffled, and each is predicted
after others of its label, so that the progressive accuracy is no estimate of any accuracy on new data.

The measure is Cramér's V of the label of a row and the group of successive rows that it stands in, less
the bias that few rows a group give it (Bergsma 2013): about 0 in random order, 1 where the group tells the
label. Rows of which a part V stands sorted and the others anywhere have about this V. From 0.2 on the
progressive accuracy is several points too high.
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
_MIN_DEVIATIONS = 15  # standard deviations from random order: few rows may be so by chance
# In a stream, runs of a few alike labels do not matter, longer ones do; its first rows are no reason to warn.
_GROUP_ROWS = 32
_MIN_GROUPS = 8


class LabelGroups:
    """Counter of labels by groups of successive rows, in memory proportional to the classes.

    Parameters
    ----------
    state : array_like, shape (3, n_classes), optional
        To go on from.
    size : int
        Rows a group. The last ones count when they make a group.
    fewest : int
        With fewer groups, the association is 0.

    Attributes
    ----------
    state : ndarray of float64, shape (3, n_classes)
        The sum of the squares of what each group has of a class, the rows that all groups have of it,
        and those of the group begun.
    """

    def __init__(self, state: Any = (), size: int = _GROUP_ROWS, fewest: int = _MIN_GROUPS) -> None:
        self.size = size
        self.fewest = fewest
        self.state = np.array(state, np.float64).reshape(3, -1)

    def add(self, labels: np.ndarray) -> None:
        """Add the class codes of the next rows; those below 0 are left out."""
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
        """Cramér's V of label and group; 0 if it is not significant."""
        squares, counts, _ = self.state[:, self.state[1] > 0]
        n, k = counts.sum(), len(counts)
        n_groups = n // self.size
        if k < 2 or n_groups < self.fewest:
            return 0.0
        freedom = (k - 1) * (n_groups - 1)
        excess = (squares / counts).sum() / self.size - 1 - freedom / (n - 1)  # of chi-squared, over n
        if excess * n < _MIN_DEVIATIONS * np.sqrt(2 * freedom):
            return 0.0
        largest = min(size - (size - 1) ** 2 / (n - 1) for size in (k, n_groups)) - 1
        return float(np.sqrt(excess / largest))

    @property
    def alike(self) -> bool:
        """True if the rows come in groups of alike labels."""
        return self.association >= _MIN_ASSOCIATION


def block_warning(store: Store, n_blocks: int) -> str | None:
    """Return a warning if the blocks of a store hold different labels, else None; reads all labels."""
    if store.shuffled or n_blocks < 2:
        return None
    # Of one size, for a short last block would weigh too much.
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
