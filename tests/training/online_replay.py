"""The online pass in plain NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import reference
import scipy.sparse as sp


class OnlineReplay:
    """Each row predicted, then learned from, in float64; and the average of the iterates as it is defined.

    Parameters
    ----------
    X : array or sparse array, shape (n, d)
    labels : iterable of str
    C : float, optional
        By default one over the mean squared norm of the first rows up to the present one.
    loss, margin : str, float
    classes : sequence of str
        Known before the first row.
    first : int
        Rows from which C is chosen.
    **parameters
        Of the loss, as `reference.LOSSES` take them.

    Attributes
    ----------
    names : list of str
        Classes in the order of their columns.
    average : ndarray, shape (d, n_classes)
    correct : ndarray of bool, shape (n,)
        Whether each row was predicted correctly before it was learned from.
    """

    def __init__(
        self,
        X: np.ndarray | sp.csr_array,
        labels: Iterable[str],
        C: float | None = None,
        loss: str = "ww",
        margin: float = 1.0,
        classes: Sequence[str] = (),
        first: int = 1000,
        **parameters: float,
    ) -> None:
        dense = X.toarray().astype(float) if sp.issparse(X) else np.asarray(X, float)
        labels, self.names = list(labels), list(classes)
        n_classes = len({*self.names, *labels})
        W = np.zeros((dense.shape[1], n_classes))
        iterates, correct, norms = [], [], []
        own_dual = reference.LOSSES[loss](margin, **parameters).own_dual
        for i, (x, label) in enumerate(zip(dense, labels, strict=True)):
            if i < first and x.any():
                norms.append(x @ x)
            is_new = label not in self.names
            if is_new:
                self.names.append(label)
            y, k = self.names.index(label), len(self.names)
            scores = (x @ W)[:k].round(12)  # BLAS may round equal ones differently; then the first wins
            correct.append(not is_new and int(np.argmax(scores)) == y)
            if not x.any():
                continue
            iterates.append(W)
            if k > 1 or own_dual:  # else there is no class to have a dual
                W = W.copy()
                cost = 1 / np.mean(norms) if C is None else C
                W[:, :k], _ = reference.one_visit(
                    W[:, :k], np.zeros(k), x, y, cost, loss, margin, **parameters
                )
        T = len(iterates)
        # The average is of the iterates before each row: the last one has no weight yet.
        self.average = sum((2 * t + 1) / T**2 * iterate for t, iterate in enumerate(iterates))
        self.correct = np.array(correct)
