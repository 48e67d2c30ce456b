"""Evidence for predictions: the features that put the predicted class of a row ahead of the next class."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from streamsvm.base.converters import converters
from streamsvm.base.format import index_dtype
from streamsvm.data.rows import Rows, row_span, sparse_rows
from streamsvm.model.model import Model
from streamsvm.model.strongest import feature_namer
from streamsvm.prediction.files import Batch, Pairs


def with_evidence(
    batch: Batch, model: Model, rows: Rows, begin: int, scores: np.ndarray, most: int, texts: Any
) -> Batch:
    """Return the predictions with the features that contribute most to the margin of each row.

    The share of a feature is its contribution to the score of the first label, minus its contribution to the
    largest other score. The shares of all features and of the constant of ``bias`` sum to the margin. Each
    row gets up to `most` features with positive shares; the first features win ties.

    `rows` are transformed; `batch` and `scores` belong to the rows from `begin` on. `texts` are the texts of
    all rows, if any. Features of texts are named by the n-grams of the row, joined if hashed to one feature.
    """
    name, found, own = feature_namer(model), [], (texts or ())[begin : begin + len(scores)]
    ngrams = converters().ngrams_by_feature(own, model.record["encoding"]) if own else itertools.repeat({})
    each_row = zip(batch.codes[:, 0], scores.copy(), ngrams, strict=False)
    for at, (code, others, hashed) in enumerate(each_row, begin):
        others[code] = -np.inf
        second = [others.argmax()] if len(others) > 1 else []
        row = sparse_rows(row_span(rows, at, at + 1), index_dtype(model.n_features))
        n = np.arange(len(row.data) + 1)
        # One row per feature, to score each feature alone.
        values = row._replace(indptr=n, labels=n[1:], norm2=n[1:], numbers=n[1:], qid=n[1:])
        pieces = (each[:, code] - each[:, second].sum(axis=1) for _, each in model.scores(values))
        shares = np.concatenate([np.zeros(0), *pieces])
        shares[len(shares) - (model.bias is not None) :] = 0
        best = np.argsort(-shares, kind="stable")[: min(most, np.count_nonzero(shares > 0))]
        pairs: Pairs = list(zip(map(name, row.features[best].tolist()), shares[best].tolist(), strict=True))
        pairs = [(" + ".join(hashed[x]) if x in hashed else x, share) for x, share in pairs]
        found.append(pairs)
    return batch._replace(evidence=found)
