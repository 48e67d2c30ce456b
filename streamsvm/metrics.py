"""How good a model is on labelled rows: accuracy, top-k accuracy, macro and micro F1."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.model import Model


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Fractions of `n` rows; a label that training did not know counts as wrong.

    Attributes
    ----------
    accuracy : float
        Fraction of rows whose highest-scoring class is their own.
    top_k : dict of int to float
        Fraction of rows whose own class is among the k highest-scoring.
    macro_f1 : float
        Mean F1 of the classes that occur among labels or predictions.
    micro_f1 : float
        F1 over all decisions: the accuracy, as each row has one label and one prediction.
    """

    n: int
    accuracy: float
    top_k: dict[int, float]
    macro_f1: float
    micro_f1: float


def evaluate(
    model: Model, batches: Iterable[Rows], top_k: Iterable[int] = (1, 5), memory: int = 2**26
) -> Evaluation:
    """Stream `batches` through `model` and compare with their labels.

    Scores take at most `memory` bytes, beside the batches.
    """
    n_classes = len(model.classes_)
    wanted = sorted(set(top_k))
    hits = np.zeros(len(wanted), np.int64)
    true, predicted, both = (np.zeros(n_classes, np.int64) for _ in range(3))
    n = 0
    for rows in batches:
        n += rows.n_rows
        for begin, scores in model.scores(rows, memory // 8):  # and as much again several times, to rank them
            labels = rows.labels[begin : begin + len(scores)]
            best = scores.argmax(axis=1)
            known = np.flatnonzero(labels >= 0)
            true += np.bincount(labels[known], minlength=n_classes)
            predicted += np.bincount(best, minlength=n_classes)
            both += np.bincount(best[best == labels], minlength=n_classes)
            own = scores[known, labels[known]]
            # Rank as argmax sees it: among equal scores the first class comes first.
            columns = np.arange(n_classes)
            ahead = (scores[known] > own[:, None]) | (
                (scores[known] == own[:, None]) & (columns < labels[known, None])
            )
            rank = ahead.sum(axis=1)
            hits += [(rank < k).sum() for k in wanted]
    occurs = (true + predicted) > 0
    f1 = 2 * both[occurs] / (true + predicted)[occurs]
    return Evaluation(
        n=n,
        accuracy=float(both.sum() / max(n, 1)),
        top_k={k: float(h / max(n, 1)) for k, h in zip(wanted, hits, strict=True)},
        macro_f1=float(f1.mean()) if len(f1) else 0.0,
        micro_f1=float(both.sum() / max(n, 1)),
    )
