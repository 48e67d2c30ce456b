"""Name features, and match the columns of data with the features of a model."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.data.rows import Rows, kept_values, with_matrix
from streamsvm.data.value_kinds import SAMPLE_VALUES
from streamsvm.errors import FeatureError, InputError, Message, Remedy, StreamsvmWarning, warn

_MIN_KNOWN = 0.1  # minimum fraction of the non-zeros in known features
_SHOWN_NAMES = 3  # names listed in a message


def feature_names(labels: Iterable[Any], where: str) -> list[str] | None:
    """Return column labels as strings, or None if they are just 0, 1, 2, ...

    Repeated names get the suffixes -1, -2, ..., as in ``AnnData.var_names_make_unique``, and a
    `StreamsvmWarning` that begins with `where` is issued.
    """
    names = [label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label) for label in labels]
    if all(name == str(column) for column, name in enumerate(names)):
        return None
    taken = set(names)
    if len(taken) < len(names):
        names, repeated = _numbered(names, taken)
        warn(
            f"{where}: feature names are repeated ({examples(repeated)}); suffixes number "
            "them in the order of the file, so data in a different order may be matched wrongly",
            remedy=Remedy("give each feature a distinct name, such as a gene ID"),
        )
    return names


def _numbered(names: list[str], taken: set[str]) -> tuple[list[str], list[str]]:
    """Return the names, made distinct by suffixes, and the repeated names; update `taken`."""
    result, times = [], Counter[str]()
    seen: set[str] = set()
    for name in names:
        new = name
        while name in seen and new in taken:
            times[name] += 1
            new = f"{name}-{times[name]}"
        seen.add(name)
        taken.add(new)
        result.append(new)
    return result, list(times)


@dataclasses.dataclass(frozen=True)
class FeatureMatch:
    """Match between the features of the data and those of a model.

    Attributes
    ----------
    columns : ndarray of int32 or int64, shape (n_features,), or None
        Model column of each data column, or -1 if the model does not have it. None stands for the identity.
    message : Message or None
        One-line warning about the match, if any.
    """

    columns: np.ndarray | None = None
    message: Message | None = None

    def warn(self, sample: Any, where: str) -> None:
        """Issue `message` as a warning; also warn if `sample`, rows or a matrix, has few known features."""
        if self.message is not None:
            warn(StreamsvmWarning(self.message))
        if self.columns is not None:
            data, width = sample.data[:SAMPLE_VALUES], len(self.columns)
            features = np.arange(len(data)) % width if sample.indices is None else sample.indices[: len(data)]
            known = self.columns[features[data != 0]] >= 0
            warn_of_unknown_features(int(known.sum()), int((~known).sum()), where)


def warn_of_unknown_features(n_known: int, n_unknown: int, where: str) -> None:
    """Warn if fewer than a tenth of the non-zeros are in features that the model knows."""
    if (fraction := n_known / max(n_known + n_unknown, 1)) < _MIN_KNOWN and n_unknown:
        of_known = f"only {fraction:.2%} of the non-zeros are in features of the model"
        warn(f"{where}: {of_known}, so predictions may be unreliable; pass data with the model's features")


def match_features(
    names: Sequence[str] | None,
    model_names: Sequence[str] | None,
    where: str,
    *,
    model: str = "the model",
    encoding: Mapping[str, Any] | None = None,
) -> FeatureMatch:
    """Match data features with model features, by name if both have names, and by position otherwise.

    Names must be distinct. `where` and `model` describe the data and the model in messages, and `encoding` is
    the record of how table columns became features of the model. Raises `FeatureError` if data and model have
    no name in common, or if the data lacks a table column that the model needs.
    """
    if names is None and model_names is None:
        return FeatureMatch()
    if names is None or model_names is None:
        nameless, named = (where, model) if names is None else (model, where)
        return FeatureMatch(
            message=Message(
                f"{nameless} does not name its features, but {named} does, so the columns of {where} are "
                f"matched with the features of {model} by position"
            )
        )
    if list(names) == list(model_names):
        return FeatureMatch()
    column = {name: at for at, name in enumerate(model_names)}
    columns = np.array([column.get(name, -1) for name in names], format.index_dtype(len(column)))
    unknown = [name for name, at in zip(names, columns.tolist(), strict=True) if at < 0]
    present = set(names)
    missing = [name for name in model_names if name not in present]
    matched = len(column) - len(missing)
    parts = []
    if missing:
        parts.append(f"{len(missing):,} are missing and count as 0 ({examples(missing)})")
    if unknown:
        parts.append(f"{len(unknown):,} data features unknown to {model} are ignored ({examples(unknown)})")
    if not matched:
        raise FeatureError(
            f"{where} has none of the {len(column):,} features of {model}: the model has names such as "
            f"{examples(model_names)}, but the data has names such as {examples(names)}; use data with the "
            "same kind of names, such as gene IDs"
        )
    available = present.union(name.partition("=")[0] for name in names)  # includes columns of categories
    for each in (encoding or {}).get("columns", ()):
        if each["name"] not in available:
            raise FeatureError(f"{where} has no column {each['name']!r}, which {model} needs; add it")
    message = None
    if parts:
        rare = 2 * matched < len(column)
        message = Message(
            f"{where}: {'only ' * rare}{matched:,} of the {len(column):,} features of {model} are found by "
            "name; " + " and ".join(parts) + "; the predictions may be unreliable" * rare
        )
    return FeatureMatch(columns, message)


def encoded_names(column: Mapping[str, Any]) -> list[str]:
    """Return the names of the features that a table column became, from its record (docs/formats.md)."""
    name, values = column["name"], column.get("values")
    names = [name + " (year)" * (column.get("date") == "years")]
    names = names if values is None else [f"{name}={value}" for value in values]
    return names + [f"{name}=missing"] * bool(column.get("indicator"))


def with_columns(rows: Rows, columns: np.ndarray, n_features: int) -> Rows:
    """Return rows with column j moved to ``columns[j]``, or dropped if that is negative; keep the norms.

    `columns` is int32 or int64 of shape (n_old_features,), and its non-negative entries are distinct. The
    result has `n_features` features and new arrays with the index dtype of `columns`. Other features are 0.
    """
    if rows.dense:
        known = np.flatnonzero(columns >= 0)
        sources = np.full(n_features, -1)
        sources[columns[known]] = known
        matrix = np.empty((rows.n_rows, n_features), rows.data.dtype)
        old = rows.data.reshape(rows.n_rows, len(columns))
        np.take(old, sources.clip(min=0), axis=1, out=matrix, mode="clip")  # avoids a buffered copy
        matrix[:, sources < 0] = 0
        return with_matrix(rows, matrix)
    moved = rows._replace(indices=columns[rows.features])
    moved = kept_values(moved, moved.features >= 0)
    data, indices = sort_rows(moved.data, moved.features, moved.indptr, n_features)
    return moved._replace(data=data, indices=indices)


def sort_rows(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_features: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return `data` and `indices`, sorted by index within each row; the arguments may be modified."""
    import scipy.sparse

    matrix = scipy.sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_features))
    matrix.has_sorted_indices = False
    matrix.sort_indices()
    return matrix.data, matrix.indices.astype(indices.dtype, copy=False)


def examples(names: Sequence[str]) -> str:
    """Return the first few names, in quotes, as text for a message."""
    more = ", ..." if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(repr, names[:_SHOWN_NAMES])) + more


def column_of(X: Any, values: Any, *, of_frame: bool = False) -> Any:
    """Return `values`, or the column that it names: of ``obs`` or, if `of_frame` is True, of a DataFrame."""
    if not isinstance(values, str):
        return values
    is_frame = of_frame and not hasattr(X, "obsm")
    table: Any = X if is_frame else getattr(X, "obs", None)
    columns = getattr(table, "columns", ())
    if values not in columns:
        where, available = "X" if is_frame else "X: obs", examples(list(map(str, columns))) or "none"
        raise InputError(f"{where} has no column {values!r}; it has {available}")
    return table[values]
