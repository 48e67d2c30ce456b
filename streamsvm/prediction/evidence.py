"""Find evidence for predictions: the features that put the predicted class ahead of the next class."""

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
    batch: Batch, model: Model, rows: Rows, begin: int, scores: np.ndarray, max_features: int, texts: Any
) -> Batch:
    """Add the features that contribute most to each row's margin over the next class; return the new batch.

    The share of a feature is its contribution to the score of the first label minus its contribution to the
    largest other score. The shares of all features and of the ``bias`` constant add up to the margin. Each
    row gets at most `max_features` features with positive shares; the first feature wins a tie.

    `rows` must be transformed. `batch` and `scores` are for consecutive rows, starting at row `begin`.
    `texts` contains the documents of all rows, if there are any. Features of documents are named after
    the n-grams of the row; n-grams whose hashes collide are joined.
    """
    name, evidence, docs = feature_namer(model), [], (texts or ())[begin : begin + len(scores)]
    ngrams = converters().ngrams_by_feature(docs, model.record["encoding"]) if docs else itertools.repeat({})
    each_row = zip(batch.codes[:, 0], scores.copy(), ngrams, strict=False)
    for number, (code, row_scores, hashed) in enumerate(each_row, begin):
        row_scores[code] = -np.inf
        runner_up = [row_scores.argmax()] if len(row_scores) > 1 else []
        row = sparse_rows(row_span(rows, number, number + 1), index_dtype(model.n_features))
        n = np.arange(len(row.data) + 1)
        values = row._replace(indptr=n, labels=n[1:], norm2=n[1:], numbers=n[1:], qid=n[1:])
        pieces = (each[:, code] - each[:, runner_up].sum(axis=1) for _, each in model.scores(values))
        shares = np.concatenate([np.zeros(0), *pieces])
        shares[len(shares) - (model.bias is not None) :] = 0
        best = np.argsort(-shares, kind="stable")[: min(max_features, np.count_nonzero(shares > 0))]
        pairs: Pairs = list(zip(map(name, row.features[best].tolist()), shares[best].tolist(), strict=True))
        pairs = [(" + ".join(hashed[x]) if x in hashed else x, share) for x, share in pairs]
        evidence.append(pairs)
    return batch._replace(evidence=evidence)
