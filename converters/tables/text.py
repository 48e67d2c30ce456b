"""Encoding of columns of text as sparse rows: n-grams hashed by scikit-learn, in several processes."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from streamsvm_converters.tables.encoding import TextEncoding, read_encoding
from streamsvm_converters.tables.ngrams import NgramCounts

from streamsvm.base.decode import encode
from streamsvm.errors import InputError, extra

TEXTS_PER_BATCH = 4096  # hashed at a time

Item = TypeVar("Item")
Matrix = tuple[np.ndarray, np.ndarray, np.ndarray]


def hashed_texts(
    batches: Iterable[tuple[list[str], Item]],
    encoding: TextEncoding,
    dtype: str,
    processes: int,
    counts: NgramCounts,
) -> Iterator[tuple[Matrix, Item]]:
    """Yield the n-grams of each batch of texts as ``data, indices, indptr``, with the item of the batch.

    Several processes work a few batches ahead; the order stays the same. If the encoding names no features,
    the n-grams are added to `counts`.

    Raises
    ------
    InputError
        If scikit-learn is not installed.
    """
    options = {
        "n_features": 2**encoding.bits,
        "analyzer": encoding.analyzer,
        "ngram_range": encoding.ngrams,
        "dtype": np.dtype(dtype).type,
    }
    with extra(InputError, "text is read by scikit-learn", "text"):
        import joblib
        import sklearn  # noqa: F401
    items: deque[tuple[Item, list[int]]] = deque()

    def tasks() -> Iterator[Any]:
        for texts, item in batches:
            weights = counts.weights_of_next(len(texts)) if encoding.words is None else [0] * len(texts)
            items.append((item, weights))
            yield joblib.delayed(_hash)(texts, weights, options)

    parallel = joblib.Parallel(processes, return_as="generator", pre_dispatch=processes + 1, max_nbytes=None)
    for matrix, ngrams in parallel(tasks()):
        item, weights = items.popleft()
        counts.add(weights, ngrams)
        yield matrix, item


def with_words(encoding: TextEncoding, counts: NgramCounts) -> TextEncoding:
    """Return the encoding with names of features, if it has none."""
    if encoding.words is not None:
        return encoding
    return dataclasses.replace(encoding, words=counts.names(encoding.bits))


def hashed_matrix(texts: list[str], record: Mapping[str, Any], dtype: str) -> tuple[Any, dict[str, Any]]:
    """Return the n-grams of texts in memory as a CSR matrix, and their encoding's `record`, with words."""
    import scipy.sparse

    encoding, counts = read_encoding(record, "the model"), NgramCounts()
    assert isinstance(encoding, TextEncoding)
    batches = ((texts[i : i + TEXTS_PER_BATCH], None) for i in range(0, len(texts), TEXTS_PER_BATCH))
    parts = [
        scipy.sparse.csr_matrix(matrix, (len(matrix[2]) - 1, 2**encoding.bits))
        for matrix, _ in hashed_texts(batches, encoding, dtype, 1, counts)
    ]
    return scipy.sparse.vstack(parts, format="csr"), encode(with_words(encoding, counts))


def _hash(
    texts: Sequence[str], weights: Sequence[int], options: dict[str, Any]
) -> tuple[Matrix, list[set[str]]]:
    """Return the n-grams of some texts as CSR, and as sets for the texts with weights above 0.

    The CSR matrix has no zeros, and increasing indices.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    analyze = HashingVectorizer(**options).build_analyzer()
    kept, of_texts = [], iter(weights)

    def ngrams(text: str) -> list[str]:
        found = analyze(text)
        if next(of_texts):
            kept.append(set(found))
        return found

    matrix = HashingVectorizer(**options | {"analyzer": ngrams}).transform(texts)
    matrix.eliminate_zeros()  # signs may cancel
    matrix.sort_indices()
    return (matrix.data, matrix.indices, matrix.indptr.astype(np.int64)), kept


def joined_texts(batch: Any) -> list[str]:
    """Return the text of each row of a record batch: that of its columns, joined by line feeds."""
    columns = [["" if value is None else str(value) for value in column.to_pylist()] for column in batch]
    return columns[0] if len(columns) == 1 else ["\n".join(parts) for parts in zip(*columns, strict=True)]
