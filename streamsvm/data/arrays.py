"""Convert matrices in memory (NumPy, SciPy sparse, DataFrame, AnnData) to rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from streamsvm.base.converters import converters
from streamsvm.base.format import LABEL_DTYPE, index_dtype
from streamsvm.base.label_values import class_record, is_missing
from streamsvm.base.text import as_paths, check_classes
from streamsvm.data.checks import first_false, first_no_amount, first_outside, row_norms, row_of
from streamsvm.data.groups import codes_of_groups
from streamsvm.data.label_sets import LabelLists, canonical_csr, label_lists, with_label_sets
from streamsvm.data.names import column_of, feature_names
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import is_mostly_filled
from streamsvm.errors import Call, InputError, Option, Remedy, SettingsError, StreamsvmError, wrong_setting

_PASS_MATRIX = Remedy("pass a numeric matrix with one row per sample")


class Matrix(NamedTuple):
    """Dense or canonical CSR matrix, whose arrays may be the caller's."""

    data: np.ndarray  # (nnz,) float32 or float64, finite
    indices: np.ndarray | None  # (nnz,) int32 or int64; None if dense
    indptr: np.ndarray  # (n_rows + 1,) int64
    n_features: int
    names: list[str] | None
    encoding: dict[str, Any] | None = None  # how the named columns of a DataFrame become features
    dense: bool = False  # whether the input was a dense array

    def rows(self, labels: np.ndarray, norm2: np.ndarray) -> Rows:
        indices = self.indices
        if indices is not None:
            indices = np.ascontiguousarray(indices, index_dtype(self.n_features))
        return Rows(self.data, indices, self.indptr, labels, norm2)


def as_matrix(
    X: Any,
    dtype: np.dtype,
    error: type[StreamsvmError] = InputError,
    encoding: Mapping[str, Any] | None = None,
    first: int = 0,
    columns: Mapping[str, Any] | None = None,
) -> Matrix:
    """Convert an array, sparse matrix, DataFrame or AnnData, shape (n, n_features), to a matrix of `dtype`.

    A dense input stays dense if at least half of the values in a sample of its rows are non-zero. Otherwise
    the result is CSR. Raises `error` if `X` is not a numeric matrix, or if a value is not finite in `dtype`.

    Parameters
    ----------
    encoding : mapping, optional
        A model's record of how DataFrame columns become features; empty if the model has none. By default,
        text columns become categories.
    first : int
        Number of the first row in error messages.
    columns : mapping, optional
        Column settings of `streamsvm.convert`, for a DataFrame if `encoding` is None.
    """
    import scipy.sparse

    check_is_matrix(X, error)
    matrix, names, record = X, None, None
    if hasattr(X, "var_names") and hasattr(X, "X"):
        matrix, names = X.X, feature_names(X.var_names, "X")
    elif hasattr(X, "columns") and hasattr(X, "to_numpy"):
        if _is_encoded(X, encoding, columns):
            frames = converters(".tables.frames")
            matrix, names, record = frames.encoded_frame(X, encoding, columns or {}, dtype.name, error, first)
        else:
            matrix, names = X.to_numpy(), feature_names(X.columns, "X")
            if names is not None:
                record = {"columns": [{"name": name, "type": "number"} for name in names]}
    if not scipy.sparse.issparse(matrix):
        try:
            matrix = np.asarray(matrix)
        except ValueError:
            raise error("X has rows of different lengths", remedy=_PASS_MATRIX) from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        problem = f"X has {matrix.ndim} dimensions and the dtype {matrix.dtype}"
        raise error(problem, remedy=_PASS_MATRIX)
    if matrix.dtype == np.float16:  # SciPy does not support float16
        matrix = matrix.astype(np.float32)
    indices = None
    if isinstance(matrix, np.ndarray) and is_mostly_filled(matrix.shape, lambda a, b: [matrix[a:b]]):
        values, indptr = matrix.ravel(), np.arange(len(matrix) + 1) * matrix.shape[1]
    elif isinstance(matrix, np.ndarray) and len(matrix) == 1:  # faster than SciPy
        indices = np.flatnonzero(matrix[0])
        values, indptr = matrix[0][indices], np.array([0, len(indices)])
    else:
        csr = canonical_csr(matrix, error)
        values, indices, indptr = csr.data, csr.indices, csr.indptr.astype(np.int64)
    data = _finite(values, indices, indptr, dtype, error, names, first)
    return Matrix(data, indices, indptr, matrix.shape[1], names, record, isinstance(matrix, np.ndarray))


def _is_encoded(X: Any, encoding: Mapping[str, Any] | None, settings: Mapping[str, Any] | None) -> bool:
    """Return True if the columns of a DataFrame need an encoding, False if they are the features."""
    if not hasattr(X, "items") or encoding == {}:
        return False
    record = {} if encoding is None else encoding
    names = set(map(str, X.columns))
    known = [each.keys() <= {"name", "type"} for each in record.get("columns", ()) if each["name"] in names]
    are_numbers = all(isinstance(dtype, np.dtype) and dtype.kind in "fiub" for dtype in X.dtypes)
    return bool(settings or record.get("text")) or not are_numbers or not all(known)


def one_row(
    indices: np.ndarray, values: np.ndarray, n_features: int, dtype: np.dtype, error: type[StreamsvmError]
) -> Matrix:
    """Return a matrix with one row, given its feature indices, in any order, and its values.

    Raises `error` if an index is repeated or out of range, or if a value is missing or not finite.
    """
    if indices.ndim != 1 or indices.shape != values.shape or values.dtype.kind not in "fiub":
        raise error(
            f"X is a pair of arrays with the shapes {indices.shape} and {values.shape}",
            remedy=Remedy("pass one value for each feature index of one row"),
        )
    order = np.argsort(indices, kind="stable")
    indices, values = indices[order], values[order]
    if (at := first_false(np.diff(indices) != 0)) is not None:
        raise error(f"X repeats the index {indices[at]}; use each index once")
    if (at := first_outside(indices, n_features)) is not None:
        raise error(f"X has the index {indices[at]}, but the model has the features 0 to {n_features - 1}")
    indptr = np.array([0, len(indices)])
    return Matrix(_finite(values, indices, indptr, dtype, error), indices, indptr, n_features, None)


def _finite(
    values: np.ndarray,
    indices: np.ndarray | None,
    indptr: np.ndarray,
    dtype: np.dtype,
    error: type[StreamsvmError],
    names: Sequence[str] | None = None,
    first: int = 0,
) -> np.ndarray:
    """Convert values to `dtype`; raise `error` with the row and column if a value is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        data = np.ascontiguousarray(values, dtype)
    if (at := first_false(np.isfinite(data))) is not None:
        row = row_of(indptr, at)
        column = int(at - indptr[row] if indices is None else indices[at])
        named = f" ({names[column]!r})" if names is not None else ""
        raise error(
            f"X[{first + row}, {column}]{named}: {values[at]} is not finite as {data.dtype}",
            remedy=Remedy("drop or replace values that are not finite"),
        )
    return data


def check_is_matrix(X: Any, error: type[StreamsvmError] = InputError) -> None:
    """Raise `error` if `X` is None, a path, a store, a masked array or file-backed AnnData."""
    is_store = hasattr(X, "fingerprint") and hasattr(X, "path")  # duck typing avoids an import cycle
    if X is None or is_store or as_paths(X) is not None:
        raise error(
            f"X is {X!r:.80}, which is not a matrix",
            remedy=Remedy("pass a matrix, or call streamsvm.fit, predict or evaluate with a path or store"),
        )
    if np.ma.isMaskedArray(X):
        raise error(
            "X is a masked array, and its masked values would be used as data",
            remedy=Remedy("fill the masked values, for example with X.filled(0)"),
        )
    if getattr(X, "isbacked", False):
        by_path = Call("fit", X.filename, (Option("label"), Option("out")))
        raise error(
            f"X is AnnData backed by the file {X.filename}, not in memory",
            remedy=Remedy(
                "pass the path, as in {}, to read the file in blocks, or pass X.to_memory()", by_path
            ),
        )


def with_layer(X: Any, layer: str | None, raw: bool, obsm: str | None = None) -> Any:
    """Return `X`, with its matrix replaced by the layer, ``raw`` or the ``obsm`` entry that is named, if any.

    Raises `InputError` if `X` does not contain the named matrix. Raises `SettingsError` if several are named,
    or if `X` is not AnnData.
    """
    name = one_matrix(layer, raw, obsm)
    if name is None:
        return X
    if not hasattr(X, "layers"):
        raise wrong_setting(name, "is for AnnData, but X is not AnnData", Remedy("leave it out"))
    check_is_matrix(X)
    if obsm is not None:
        matrix = X.obsm.get(obsm)
        names = getattr(matrix, "columns", range(np.shape(matrix)[-1] if np.ndim(matrix) else 0))
    elif raw:
        matrix, names = getattr(X.raw, "X", None), getattr(X.raw, "var_names", None)
    else:
        matrix, names = X.layers.get(layer), X.var_names
    if matrix is None:
        what = "raw" if raw else f"{name} {layer or obsm!r}"
        kind, available = ("obsm", X.obsm) if name == "obsm" else ("layers", X.layers)
        listed = ", ".join(repr(key) for key in available if key)  # anndata lists X as the layer None
        raise InputError(f"X has no {what}; available {kind}: {listed or 'none'}")
    return SimpleNamespace(X=matrix, var_names=names, obs=X.obs, obsm=X.obsm, obs_names=X.obs_names)


def one_matrix(layer: str | None, raw: bool, obsm: str | None) -> str | None:
    """Return the setting that names a matrix of AnnData, or None; raise `SettingsError` if several do."""
    settings = {"layer": layer, "raw": raw or None, "obsm": obsm}
    names = [name for name, value in settings.items() if value is not None]
    if len(names) > 1:
        raise wrong_setting(names[0], f"and {names[1]} both name a matrix; leave one of them out")
    return names[0] if names else None


def label_column(y: Any, label: str | None) -> tuple[Any, str | None]:
    """Return (y, label); if `y` is a string, it names the label column and is returned as `label`."""
    return (None, y) if isinstance(y, str) and label is None else (y, label)


def labels_of(X: Any, y: Any, label: str | None) -> Any:
    """Return `y`, or the column of a DataFrame or of ``obs``, or the entry of ``obsm``, that `label` names.

    Raises `InputError` if neither is given or there is no such column, and `SettingsError` if both are given.
    """
    if label is None and y is None:
        remedy = "pass one label per row, or set label to the name of a column of the DataFrame or of obs"
        raise InputError(f"y is missing; {remedy}")
    if label is None:
        return y
    if y is not None:
        raise SettingsError("y and label both define the labels; leave one of them out", setting="label")
    if label in getattr(X, "obsm", ()) and label not in X.obs:
        return X.obsm[label]
    return column_of(X, label, of_frame=True)


def without_label(X: Any, label: str | None) -> Any:
    """Return a DataFrame without its label column; return other matrices unchanged."""
    return X.drop(columns=label) if label in getattr(X, "columns", ()) and hasattr(X, "drop") else X


def row_weights(X: Any, weights: Any, n_rows: int, where: str = "sample_weight") -> np.ndarray:
    """Return the row weights as float64.

    `weights` contains numbers, or names a column of ``obs`` of AnnData. Raises `InputError`, with a message
    that begins with `where`, unless there is one finite number >= 0 per row.
    """
    weights = column_of(X, weights)
    try:
        result = np.asarray(weights).astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{where} has values that are not numbers; use numbers >= 0") from None
    if result.shape != (n_rows,):
        raise InputError(f"{where} has the shape {result.shape}; pass one weight per row ({n_rows:,})")
    if (row := first_no_amount(result)) is not None:
        raise InputError(f"{where}, row {row + 1}: the weight {result[row]} is invalid; use numbers >= 0")
    return result


def row_groups(X: Any, groups: Any, n_rows: int, error: type[StreamsvmError]) -> np.ndarray:
    """Return the ``qid`` of each row; `groups` has one value per row, or names a column of ``obs``."""
    return codes_of_groups(column_of(X, groups), n_rows, error)


def labelled_rows(
    X: Any, y: Any, dtype: np.dtype, columns: Mapping[str, Any] | None = None
) -> tuple[Rows, dict[str, Any], Matrix]:
    """Convert `X` and `y` to training rows, and return (rows, entries of `class_record`, matrix of `X`).

    The parameters are as for `as_matrix`; `label_lists` describes a `y` with several labels per row. The
    classes are the sorted labels, or the columns of an indicator matrix. If `y` allows several labels but
    each row has exactly one, single-label rows are returned.

    Raises `InputError` if `X` is not a finite numeric matrix, if `y` has the wrong length or missing labels,
    if a row repeats a label, if all rows have all labels, or if there are fewer than two classes.
    """
    matrix = as_matrix(X, dtype, columns=columns)
    n_rows = len(matrix.indptr) - 1
    sets = label_lists(y, n_rows)
    codes, labels = _encode(y, n_rows, sets)
    classes = labels["classes"]
    norm2 = row_norms(matrix.data, matrix.indptr)
    if (row := first_false(np.isfinite(norm2))) is not None:
        raise InputError(
            f"X[{row}]: the squared norm is not finite", remedy=Remedy("rescale the data to about 1")
        )
    if sets is None:
        return matrix.rows(codes, norm2), labels, matrix
    rows = matrix.rows(np.empty(n_rows, LABEL_DTYPE), norm2)
    multilabel_rows = with_label_sets(rows, codes, sets.indptr)
    if (np.diff(multilabel_rows.label_indptr) == len(classes)).all():
        raise InputError(
            f"y: every row has all {len(classes)} labels",
            remedy=Remedy("pass an indicator matrix as an array, not as nested lists"),
        )
    if (np.diff(multilabel_rows.label_indptr) == 1).all():
        return rows._replace(labels=multilabel_rows.labels), labels, matrix
    return multilabel_rows, labels, matrix


def _encode(y: Any, n_rows: int, sets: LabelLists | None) -> tuple[np.ndarray, dict[str, Any]]:
    if sets is not None and sets.columns is not None:
        return sets.labels.astype(LABEL_DTYPE), _checked(class_record(sets.columns))
    y = y if sets is None else sets.labels
    labels = np.asarray(y)
    if sets is None and labels.shape != (n_rows,):
        raise InputError(f"X has {n_rows:,} rows, but y has the shape {labels.shape}; pass one label per row")
    candidates = () if labels.dtype.kind in "iub" else y if isinstance(y, list) else labels.tolist()
    missing = next((i for i, label in enumerate(candidates) if is_missing(label)), None)
    if missing is not None:
        row, has = (missing, "is") if sets is None else (row_of(sets.indptr, missing), "has a label that is")
        raise InputError(f"y[{row}] {has} missing; drop rows without a label")
    try:
        if labels.dtype.kind == "U" and isinstance(y, list | tuple):
            "".join(y)  # TypeError for mixed types, which NumPy would convert to text
        values, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        raise InputError(
            "y has labels of types that cannot be compared; use only strings or only numbers"
        ) from None
    return codes.astype(LABEL_DTYPE), _checked(class_record(values))


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    classes = record["classes"]
    check_classes(classes, "y", InputError)
    if len(set(classes)) < len(classes):
        raise InputError("y has different labels with the same text; use only strings or only numbers")
    if len(classes) < 2:
        raise InputError(
            f"y has {'one class' if classes else 'no label'}; training needs at least two classes"
        )
    return record
