"""The online pass in plain NumPy."""

from __future__ import annotations

import numpy as np
import reference
import scipy.sparse as sp


class OnlineReplay:
    """The same in NumPy, in float64: each row predicted, then learned from; the average as defined."""

    def __init__(self, X, labels, C=None, loss="ww", margin=1.0, classes=(), first=1000):
        X = X.toarray().astype(np.float64) if sp.issparse(X) else X
        known = list(classes)
        names = known + list(dict.fromkeys(label for label in labels if label not in known))
        W = np.zeros((X.shape[1], len(names)))
        iterates, right, norms = [], [], []
        for x, label in zip(X, labels, strict=True):
            norms += [x @ x] if len(right) < first and x.any() else []
            new = label not in known
            if new:
                known.append(label)
            y, k = known.index(label), len(known)
            right.append(not new and int(np.argmax((x @ W)[:k])) == y)
            if not x.any():
                continue
            iterates.append(W)
            if k > 1:
                W = W.copy()
                now = 1 / np.mean(norms) if C is None else C  # by default, of the first rows up to this one
                W[:, :k], _ = reference.one_visit(W[:, :k], np.zeros(k), x, y, now, loss, margin)
        T = len(iterates)
        weight = [(2 * s + 1) / T**2 for s in range(T)]
        # The last iterate has no weight yet; the average is of the iterates before each row.
        self.average = sum(w * W for w, W in zip(weight, iterates, strict=True))
        self.names, self.right, self.last = known, np.array(right), W
