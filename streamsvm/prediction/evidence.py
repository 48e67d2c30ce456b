"""Evidence for predicted labels: the features that put the best class of a row ahead of its second."""

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
    """Return the predictions with the features that speak most for the first label of each row.

    The share of a feature is what its value, after the transforms, adds to the score of the label, less what
    it adds to the largest of the other scores. The shares of all features and of the constant of ``bias`` add
    up to the margin. The constant is left out, as are shares that are not above 0.

    Parameters
    ----------
    batch : Batch
    model : Model
    rows : Rows
        After the transforms.
    begin : int
        The first of the rows that `batch` is of.
    scores : ndarray, shape (n, n_classes)
        Of these rows.
    most : int
        Largest number of features of a row; of equal shares the first features are taken.
    texts : sequence of str, or None
        The texts of all `rows`, if they are of text; their n-grams name the features. A name has all n-grams
        of the text that are hashed to the feature, joined by " + ".
    """
    name, found, own = feature_namer(model), [], (texts or ())[begin : begin + len(scores)]
    ngrams = converters().ngrams_by_feature(own, model.record["encoding"]) if own else itertools.repeat({})
    each_row = zip(batch.codes[:, 0], scores.copy(), ngrams, strict=False)
    for at, (code, others, hashed) in enumerate(each_row, begin):
        others[code] = -np.inf
        second = [others.argmax()] if len(others) > 1 else []
        row = sparse_rows(row_span(rows, at, at + 1), index_dtype(model.n_features))
        n = np.arange(len(row.data) + 1)
        values = row._replace(indptr=n, labels=n[1:], norm2=n[1:], numbers=n[1:], qid=n[1:])  # a row for each
        pieces = (each[:, code] - each[:, second].sum(axis=1) for _, each in model.scores(values))
        shares = np.concatenate([np.zeros(0), *pieces])
        shares[len(shares) - (model.bias is not None) :] = 0
        best = np.argsort(-shares, kind="stable")[: min(most, np.count_nonzero(shares > 0))]
        pairs: Pairs = list(zip(map(name, row.features[best].tolist()), shares[best].tolist(), strict=True))
        pairs = [(" + ".join(hashed[x]) if x in hashed else x, share) for x, share in pairs]
        found.append(pairs)
    return batch._replace(evidence=found)
