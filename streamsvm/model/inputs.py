"""Conversion of stores and matrices to rows with the features and classes of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.converters import converters
from streamsvm.base.label_values import codes_among
from streamsvm.base.prefetch import read_ahead
from streamsvm.data.arrays import as_matrix, one_row, row_groups
from streamsvm.data.label_sets import known_codes, with_label_sets
from streamsvm.data.names import match_features, with_columns
from streamsvm.data.rows import Rows
from streamsvm.data.value_kinds import SAMPLE_VALUES, trained_values, warn_of_difference
from streamsvm.errors import ModelError, StreamsvmError

if TYPE_CHECKING:
    from streamsvm.store import Store

MAX_FEATURES = 2**62  # limit of feature numbers for a model that hashes them


def blocks_of_store(
    store: Store, model: Any, *, memory: int, labelled: bool = True, named: bool = False
) -> Iterator[tuple[Rows, np.ndarray]]:
    """Yield the rows of a store as `Model.batches` describes it, and their names: see `Store.names`.

    Unless `named`, names are not read, and the numbers from 0 take their place.
    """
    from streamsvm.store.blocks_to_score import blocks_to_score
    from streamsvm.transforms.fitting import first_rows
    from streamsvm.transforms.store import transformed

    base, n_features, shift = model.record.get("index_base"), model.n_features_in_, 0
    if model.takes_any_feature:
        if store.index_base is None:
            raise ModelError(
                f"the model hashes the feature numbers of LIBSVM text, and the features of {store.path} have "
                "none"
            )
        base, n_features, shift = store.index_base, store.n_features, store.index_base
    elif (base, store.index_base) == (0, 1):  # the model has a feature 0, which the store left out
        base, n_features, shift = 1, n_features - 1, 1
    blocks = blocks_to_score(
        store,
        classes=model.record["classes"],
        n_features=n_features,
        index_base=base,
        dtype=model.dtype,
        memory=memory,
        labelled=labelled,
        feature_names=model.feature_names_in_,
        transformed=lambda matched: transformed(matched, model.transforms, shift),
    )
    blocks.match.warn()
    sample = first_rows(store, 0, min(store.n_rows, SAMPLE_VALUES), SAMPLE_VALUES)
    warn_of_difference([sample.data], trained_values(model.record, model.transforms), str(store.path))

    def read(block: int) -> tuple[Rows, np.ndarray]:
        begin, end = map(int, blocks.starts[block : block + 2])
        return blocks.read(block), store.names(begin, end) if named else np.arange(begin, end)

    with read_ahead(read, len(blocks)) as found:
        yield from found


def rows_of_matrix(X: Any, y: Any, groups: Any, model: Any) -> Rows:
    """Convert a matrix to rows, before the transforms, as `Model.rows` describes it."""
    n_features = None if model.takes_any_feature else model.n_features_in_
    feature_names, dtype, classes = model.feature_names_in_, model.dtype, model.classes_
    if model.takes_texts and begins_with_text(X):
        X = hashed(X, model.record["encoding"], model.record["dtype"], ModelError)
    if isinstance(X, tuple) and len(X) == 2 and _are_indices_and_values(*X):
        matrix = one_row(*X, MAX_FEATURES if n_features is None else n_features, dtype, ModelError)
    else:
        matrix = as_matrix(X, dtype, ModelError, model.record.get("encoding") or {})
    match = match_features(matrix.names, None if feature_names is None else feature_names.tolist(), "X")
    match.warn()
    warn_of_difference([matrix.data[:SAMPLE_VALUES]], trained_values(model.record, model.transforms), "X")
    if match.columns is None and n_features not in (None, matrix.n_features):
        raise ModelError(f"the data has {matrix.n_features} features, the model {n_features}")
    n = len(matrix.indptr) - 1
    sets = None if y is None else known_codes(y, n, classes)
    labels = _codes(None if sets else y, n, classes)
    rows = matrix.rows(labels, np.zeros(n))
    if match.columns is not None:
        rows = with_columns(rows, match.columns, len(feature_names))
    if groups is not None:
        rows = rows._replace(qid=row_groups(X, groups, n, ModelError))
    return rows if sets is None else with_label_sets(rows, *sets)


def begins_with_text(X: Any) -> bool:
    """Return True for a list, tuple, array or Series whose first element is text."""
    is_column = isinstance(X, list | tuple | np.ndarray) or type(X).__name__ == "Series"
    return is_column and isinstance(next(iter(X), None), str)


def hashed(texts: Any, encoding: Mapping[str, Any], dtype: str, error: type[StreamsvmError]) -> Any:
    """Return the n-grams of texts as a sparse matrix.

    Raises `error` for what is no text.
    """
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise error(f"X, row {row}: {text!r:.40} is no text")
    found: tuple[Any, dict[str, Any]] = converters().hashed_matrix(list(texts), encoding, dtype)
    return found


def _are_indices_and_values(indices: Any, values: Any) -> bool:
    arrays = isinstance(indices, np.ndarray) and isinstance(values, np.ndarray)
    return arrays and indices.ndim == 1 and indices.dtype.kind in "iu"


def _codes(y: Any, n: int, classes: np.ndarray) -> np.ndarray:
    """Return the class codes of labels, as `codes_among` does; without labels the code of unknown ones."""
    if y is None:
        return np.full(n, format.UNSEEN_LABEL, format.LABEL_DTYPE)
    if len(y) != n:
        raise ModelError(f"X has {n:,} rows, and y {len(y):,} labels")
    return codes_among(y, classes)
