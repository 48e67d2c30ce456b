"""Encode text columns as sparse rows, by hashing their n-grams with scikit-learn in several processes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from streamsvm_converters.tables.encoding import Encoding, TextEncoding, read_encoding

from streamsvm.errors import InputError, extra

Item = TypeVar("Item")


def hashed_texts(
    batches: Iterable[tuple[list[str], Item]], encoding: TextEncoding, dtype: str, processes: int
) -> Iterator[tuple[Any, Item]]:
    """Yield (matrix, item) for each batch of strings, in order.

    The matrix contains the hashed n-grams of the strings. It is CSR, with sorted indices and no explicit
    zeros.
    """
    vectorizer = _vectorizer(encoding, dtype)
    import joblib

    items: deque[Item] = deque()

    def tasks() -> Iterator[Any]:
        for texts, item in batches:
            items.append(item)
            yield joblib.delayed(_hash)(texts, vectorizer)

    parallel = joblib.Parallel(processes, return_as="generator", pre_dispatch=processes + 1, max_nbytes=None)
    for matrix in parallel(tasks()):
        yield matrix, items.popleft()


def _vectorizer(encoding: TextEncoding, dtype: str) -> Any:
    with extra(InputError, "text columns need scikit-learn, which is not installed", "text"):
        from sklearn.feature_extraction.text import HashingVectorizer
    return HashingVectorizer(
        n_features=2**encoding.bits, analyzer=encoding.analyzer, ngram_range=encoding.ngrams,
        norm=encoding.norm, alternate_sign=encoding.norm is not None, dtype=np.dtype(dtype).type,
    )  # fmt: skip


def ngrams_by_feature(texts: Iterable[str], record: Mapping[str, Any]) -> Iterator[dict[int, list[str]]]:
    """Yield the distinct n-grams of each string as a dict from hashed feature to n-grams."""
    from sklearn.feature_extraction import FeatureHasher

    encoding = read_encoding(record, "the model").text
    assert encoding is not None
    analyze = _vectorizer(encoding, "float64").build_analyzer()
    hasher = FeatureHasher(2**encoding.bits, input_type="string")
    for text in texts:
        ngrams = list(dict.fromkeys(analyze(text)))
        by_feature: dict[int, list[str]] = defaultdict(list)
        rows = [[each] for each in ngrams] or [[]]  # scikit-learn needs at least one row
        for feature, ngram in zip(hasher.transform(rows).indices, ngrams, strict=True):
            by_feature[feature].append(ngram)
        yield by_feature


def with_n_grams(
    parts: Iterable[tuple[Any, list[str], Item]], encoding: Encoding, dtype: str, processes: int
) -> Iterator[tuple[Any, Item]]:
    """Yield (matrix, item) for each part, with the hashed n-grams of its strings as the last features."""
    if encoding.text is None:
        yield from ((matrix, item) for matrix, _, item in parts)
        return
    import scipy.sparse

    texts = ((row_texts, (matrix, item)) for matrix, row_texts, item in parts)
    for hashed, (matrix, item) in hashed_texts(texts, encoding.text, dtype, processes):
        yield scipy.sparse.hstack([matrix, hashed], format="csr") if matrix.shape[1] else hashed, item


def hashed_matrix(texts: list[str], record: Mapping[str, Any], dtype: str) -> Any:
    """Return the hashed n-grams of strings as a CSR matrix; `record` is the encoding of the model."""
    encoding = read_encoding(record, "the model").text
    assert encoding is not None
    [(matrix, _)] = hashed_texts([(texts, None)], encoding, dtype, 1)
    return matrix


def _hash(texts: Sequence[str], vectorizer: Any) -> Any:
    matrix = vectorizer.transform(texts)
    matrix.eliminate_zeros()  # counts with opposite signs may cancel
    matrix.sort_indices()
    return matrix


def joined_texts(batch: Any, encoding: Encoding) -> list[str]:
    """Return the text of each row in a record batch: its text columns, joined by line feeds."""
    names = [] if encoding.text is None else encoding.text.columns
    values = [batch.column(name).to_pylist() for name in names]
    columns = [["" if value is None else str(value) for value in column] for column in values]
    return columns[0] if len(columns) == 1 else ["\n".join(parts) for parts in zip(*columns, strict=True)]
