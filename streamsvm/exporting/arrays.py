"""Export of a model's coefficients as arrays in NumPy's ``.npz``."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from streamsvm.exporting.folding import fold, linear_only
from streamsvm.model.model import Model


def write_npz(model: Model, file: BinaryIO, *, prune: float) -> None:
    """Write ``classes, intercept``, the coefficients and, where they have any, ``feature_names``.

    Scores of x are ``x @ coef + intercept``, with coefficients of shape (n_features_in, n_classes). If that
    is smaller they are sparse: ``scipy.sparse.load_npz`` then reads them from the same file; else they are
    the array ``coef``.
    """
    folded = linear_only(fold(model, prune), "npz")
    coef, dtype = folded.coef, model.dtype
    arrays: dict[str, Any] = {
        "classes": model.class_names if model.classes_.dtype == object else model.classes_,
        "intercept": folded.intercept.astype(dtype),
    }
    if model.feature_names_in_ is not None:
        arrays["feature_names"] = np.array(model.feature_names_in_.tolist(), dtype=str)
    if model.record.get("index_base") is not None:
        arrays["index_base"] = np.array(model.record["index_base"])
    if is_sparse(coef, dtype):
        arrays |= {"data": coef.data.astype(dtype), "indices": coef.indices, "indptr": coef.indptr}
        arrays |= {"shape": np.array(coef.shape), "format": np.array(b"csr"), "_is_array": np.array(True)}
    else:
        arrays["coef"] = coef.toarray().astype(dtype)
    np.savez(file, **arrays)


def is_sparse(coef: Any, dtype: np.dtype) -> bool:
    """Return True if a CSR matrix takes fewer bytes than the dense one."""
    n_rows, n_columns = coef.shape
    sparse = coef.nnz * (dtype.itemsize + coef.indices.itemsize) + coef.indptr.nbytes
    return bool(sparse < n_rows * n_columns * dtype.itemsize)
