"""The chain-structured SVM by enumeration of all label sequences, for chains of a few tokens."""

from __future__ import annotations

import itertools

import numpy as np


def all_sequences(n: int, k: int) -> np.ndarray:
    """All label sequences of n tokens, shape (kⁿ, n), in the order of Python's tuples."""
    return np.array(list(itertools.product(range(k), repeat=n)))


def sequence_scores(scores: np.ndarray, transitions: np.ndarray) -> np.ndarray:
    """The scores of all sequences, from those of the tokens, shape (n, k)."""
    n, k = scores.shape
    sequences = all_sequences(n, k)
    of_tokens = scores[np.arange(n), sequences].sum(axis=1)
    return of_tokens + transitions[sequences[:, :-1], sequences[:, 1:]].sum(axis=1)


def groups_of(qid: np.ndarray) -> list[np.ndarray]:
    """The rows of each group."""
    return [np.flatnonzero(qid == group) for group in dict.fromkeys(qid.tolist())]


def predict(scores: np.ndarray, transitions: np.ndarray, qid: np.ndarray) -> np.ndarray:
    """The best sequences of all groups."""
    best = np.empty(len(scores), int)
    for rows in groups_of(qid):
        sequences = all_sequences(len(rows), scores.shape[1])
        best[rows] = sequences[sequence_scores(scores[rows], transitions).argmax()]
    return best


def loss(scores: np.ndarray, transitions: np.ndarray, own: np.ndarray) -> float:
    """max over y of (number of wrong labels + score(y)), minus the score of the own labels."""
    of_all = sequence_scores(scores, transitions)
    sequences = all_sequences(*scores.shape)
    own_score = of_all[(sequences == own).all(axis=1)][0]
    return float((of_all + (sequences != own).sum(axis=1)).max() - own_score)


def primal(
    W: np.ndarray, T: np.ndarray, X: np.ndarray, labels: np.ndarray, qid: np.ndarray, C: float
) -> float:
    total = sum(loss(X[rows] @ W, T, labels[rows]) for rows in groups_of(qid))
    return float(0.5 * (W**2).sum() + 0.5 * (T**2).sum() + C * total)


def optimum(X: np.ndarray, labels: np.ndarray, qid: np.ndarray, k: int, C: float) -> float:
    """The least primal objective, stated with all sequences and solved by an interior point method."""
    import cvxpy as cp

    W, T = cp.Variable((X.shape[1], k)), cp.Variable((k, k))
    total = 0
    for rows in groups_of(qid):
        sequences, own = all_sequences(len(rows), k), labels[rows]
        margins = []
        for sequence in sequences:
            difference = np.eye(k)[sequence] - np.eye(k)[own]
            margin = float((sequence != own).sum()) + cp.sum(cp.multiply(X[rows].T @ difference, W))
            pairs = np.zeros((k, k))
            np.add.at(pairs, (sequence[:-1], sequence[1:]), 1)
            np.add.at(pairs, (own[:-1], own[1:]), -1)
            margins.append(margin + cp.sum(cp.multiply(pairs, T)))
        total += cp.max(cp.hstack(margins))
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W) + 0.5 * cp.sum_squares(T) + C * total))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert problem.status == cp.OPTIMAL
    return float(problem.value)
