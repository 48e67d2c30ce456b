"""Convert matrices, strings and AnnData, in memory or file-backed, to rows that a model can score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.converters import converters
from streamsvm.base.label_values import codes_among
from streamsvm.data.arrays import as_matrix, one_matrix, one_row, row_groups, with_layer, without_label
from streamsvm.data.label_sets import known_codes, with_label_sets
from streamsvm.data.names import match_features, with_columns
from streamsvm.data.rows import Rows
from streamsvm.data.value_kinds import SAMPLE_VALUES, warn_of_difference
from streamsvm.errors import ModelError, Option, Remedy, StreamsvmError
from streamsvm.transforms import apply

MAX_FEATURES = 2**62
_VALUE_BYTES = 16


def rows_of_matrix(model: Any, X: Any, y: Any = None, groups: Any = None, *, first: int = 0) -> Rows:
    """Convert a matrix to rows with the features of a model, ready to score.

    `X` and `groups` are as for `Model.predict`; `y` contains labels or label sets, as for
    `streamsvm.evaluate`. Unknown labels get the code -1 and missing labels -2; both are removed from label
    sets. `first` is the number of the first row, for error messages. Warnings are issued only if it is 0.
    """
    if groups is not None and model.transitions_ is None:
        raise ModelError("groups applies only to sequence models, and this is not one; leave groups out")
    n_features = None if model.takes_any_feature else model.n_features_in_
    names, dtype, classes = model.feature_names_in_, model.dtype, model.classes_
    encoding = model.record.get("encoding") or {}
    if model.takes_texts and begins_with_text(X):
        X = hashed(X, encoding, model.record["dtype"], ModelError)
    if isinstance(X, tuple) and len(X) == 2 and _are_indices_and_values(*X):
        matrix = one_row(*X, MAX_FEATURES if n_features is None else n_features, dtype, ModelError)
    else:
        X = without_label(X, model.record.get("label"))
        matrix = as_matrix(X, dtype, ModelError, encoding, first)
    match = match_features(matrix.names, None if names is None else names.tolist(), "X", encoding=encoding)
    if first == 0:
        match.warn(matrix, "X")
        warn_of_difference(matrix.data[:SAMPLE_VALUES], model.record, model.transforms, "X")
    if match.columns is None and n_features not in (None, matrix.n_features):
        raise ModelError(f"the data has {matrix.n_features} features, but the model has {n_features}")
    n = len(matrix.indptr) - 1
    sets = None if y is None else known_codes(y, n, classes)
    rows = matrix.rows(label_codes(None if sets else y, n, classes), np.zeros(n))
    if match.columns is not None:
        rows = with_columns(rows, match.columns, len(names))
    if groups is not None:
        rows = rows._replace(qid=row_groups(X, groups, n, ModelError))
    rows = rows if sets is None else with_label_sets(rows, *sets)
    return apply(model.transforms, rows, where="X", first=first)


def matrix_parts(
    X: Any,
    *row_values: Any,
    memory: int = 2**27,
    layer: str | None = None,
    raw: bool = False,
    obsm: str | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield the number of the first row and the data, for each part of a matrix.

    A matrix in memory is a single part. File-backed AnnData is read in blocks, which include ``obs`` and
    ``obsm``, and take about `memory` bytes even if they are dense. Raises `InputError` and `SettingsError` as
    in `with_layer`, and `ModelError` if file-backed AnnData has no X, stores X by columns, or is combined
    with labels or groups (`row_values`).
    """
    if not getattr(X, "isbacked", False):
        yield 0, with_layer(X, layer, raw, obsm)
        return
    if any(values is not None for values in row_values):
        raise ModelError(
            "y and groups cannot be combined with file-backed AnnData",
            remedy=Remedy("name a column of obs with {}, or pass X.to_memory()", Option("label")),
        )
    parent, rows, columns = _viewed(X)
    name = one_matrix(layer, raw, obsm)
    stored = (raw and parent.raw) or parent
    try:
        by_columns = (name is None or stored is not parent) and getattr(stored.X, "format", "") == "csc"
    except KeyError:
        missing = "X is AnnData that has no matrix X"
        raise ModelError(missing, remedy=Remedy("name another matrix with {}", Option("layer"))) from None
    if by_columns:
        reason = "X is CSC, a matrix stored by columns, so its rows cannot be read in blocks"
        raise ModelError(reason, remedy=Remedy("pass X.to_memory()"))
    n_rows = max(1, memory // (_VALUE_BYTES * max(stored.n_vars, 1)))
    for begin in range(0, max(X.n_obs, 1), n_rows):
        selected = slice(begin, begin + n_rows) if rows is None else rows[begin : begin + n_rows]
        part = parent[selected, columns]
        selection = SimpleNamespace(
            X=parent[selected].X[:, columns] if name is None else None, layers=part.layers,
            raw=part.raw if raw else None, obsm=part.obsm, obs=part.obs, obs_names=part.obs_names,
            var_names=part.var_names,
        )  # fmt: skip
        yield begin, with_layer(selection, layer, raw, obsm)


def _viewed(X: Any) -> tuple[Any, np.ndarray | None, Any]:
    # anndata loads the whole matrix of a view, and cannot make a view of a view. So rows are read from the
    # parent, and columns are selected in memory. This needs private attributes of anndata.
    if not X.is_view:
        return X, None, slice(None)
    return X._adata_ref, np.arange(X._adata_ref.n_obs)[X._oidx], X._vidx


def names_of_rows(X: Any, n_rows: int) -> np.ndarray:
    """Return the row names of a matrix: the index of AnnData or a DataFrame, otherwise numbers from 1."""
    index = X.obs_names if hasattr(X, "obs_names") else getattr(X, "index", None)
    if index is None or callable(index):
        return np.arange(1, n_rows + 1)
    names = np.asarray(index)
    if names.dtype.kind in "iu" and names.shape == (n_rows,):
        return names.astype(np.int64)
    return np.array([str(name) for name in index], dtype=object)


def label_codes(y: Any, n: int, classes: np.ndarray) -> np.ndarray:
    if y is None:
        return np.full(n, format.UNSEEN_LABEL, format.LABEL_DTYPE)
    if len(y) != n:
        raise ModelError(f"X has {n:,} rows, but y has {len(y):,} labels; pass one label per row")
    return codes_among(y, classes)


def begins_with_text(X: Any) -> bool:
    is_column = isinstance(X, list | tuple | np.ndarray) or type(X).__name__ == "Series"
    return is_column and isinstance(next(iter(X), None), str)


def hashed(texts: Any, encoding: Mapping[str, Any], dtype: str, error: type[StreamsvmError]) -> Any:
    """Hash the n-grams of strings into a CSR matrix; raise `error` if an element is not a string."""
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise error(f"X[{row}]: {text!r:.40} is not a string; pass only strings")
    result: tuple[Any, dict[str, Any]] = converters().hashed_matrix(list(texts), encoding, dtype)
    return result


def _are_indices_and_values(indices: Any, values: Any) -> bool:
    arrays = isinstance(indices, np.ndarray) and isinstance(values, np.ndarray)
    return arrays and indices.ndim == 1 and indices.dtype.kind in "iu"
