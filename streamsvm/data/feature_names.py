"""Names of features: which column of a model each column of the data is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streamsvm import format
from streamsvm.errors import FeatureError

_FEW = 3  # names that an error lists


def feature_names(labels: Iterable[Any], where: str) -> list[str] | None:
    """The texts of a table's column labels; None where they only count the columns, as 0, 1, 2, ...

    Raises `FeatureError`, which begins with `where`, if a name occurs twice.
    """
    names = [label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label) for label in labels]
    if all(name == str(column) for column, name in enumerate(names)):
        return None
    if len(set(names)) < len(names):
        twice = [name for name, times in Counter(names).items() if times > 1]
        raise FeatureError(
            f"{where}: names that several features share: {len(twice):,} ({_first(twice)}); "
            "give each feature a name of its own, such as the ID of a gene instead of its symbol"
        )
    return names


def match_features(
    names: Sequence[str] | None,
    model_names: Sequence[str] | None,
    where: str,
    *,
    model: str = "the model",
) -> np.ndarray | None:
    """The model's column of each column of the data; None where they are the same.

    Features are matched by name, and by position only where neither side has names.

    Parameters
    ----------
    names, model_names : sequence of str, or None
        Without duplicates; None if features have no names.
    where, model : str
        What an error calls the data and the model.

    Returns
    -------
    ndarray of int32 or int64, shape (n_features,), or None
        A permutation.

    Raises
    ------
    FeatureError
        If only one side has names, or they are not the same names.
    """
    if names is None and model_names is None:
        return None
    if model_names is None:
        raise FeatureError(
            f"{where} names its features, those of {model} have no names, and nothing says that they are the "
            "same; if they are, in their order, drop the names, in Python: "
            "adata.var_names = [str(j) for j in range(adata.n_vars)]"
        )
    if names is None:
        raise FeatureError(
            f"{where} does not name its features, and those of {model} have names ({_first(model_names)}); "
            "give AnnData whose var_names are these names, in any order"
        )
    if list(names) == list(model_names):
        return None
    column = {name: at for at, name in enumerate(model_names)}
    unknown = [name for name in names if name not in column]
    missing = sorted(column.keys() - set(names), key=column.__getitem__)
    if missing or unknown:
        faults = []
        if missing:
            faults.append(f"{len(missing):,} of {len(column):,} are missing ({_first(missing)})")
        if unknown:
            faults.append(f"{len(unknown):,} are unknown ({_first(unknown)})")
        raise FeatureError(
            f"{where}: its features are not those of {model}: {' and '.join(faults)}; "
            "give it the features of the training data, in any order",
            missing=len(missing),
            unknown=len(unknown),
        )
    return np.array([column[name] for name in names], format.index_dtype(len(column)))


def sort_rows(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_features: int
) -> tuple[np.ndarray, np.ndarray]:
    """`data` and `indices` with the indices increasing within each row; the arrays given may be changed."""
    import scipy.sparse

    matrix = scipy.sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_features))
    matrix.has_sorted_indices = False
    matrix.sort_indices()
    return matrix.data, matrix.indices.astype(indices.dtype, copy=False)


def _first(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:_FEW]) + (", ..." if len(names) > _FEW else "")
