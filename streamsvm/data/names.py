"""Names of features, and matching of the columns of data with those of a model."""

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

_LEAST_KNOWN = 0.1  # of the non-zeros
_SHOWN_NAMES = 3  # names that an error lists


def feature_names(labels: Iterable[Any], where: str) -> list[str] | None:
    """Return the column labels of a table as text; None if they only count the columns: 0, 1, 2, ...

    A name that occurs again is followed by -1, -2, ..., as ``AnnData.var_names_make_unique`` numbers it. A
    `StreamsvmWarning`, which begins with `where`, says how many are.
    """
    names = [label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label) for label in labels]
    if all(name == str(column) for column, name in enumerate(names)):
        return None
    taken = set(names)
    if len(taken) < len(names):
        names, repeated = _numbered(names, taken)
        warn(
            f"{where}: names that several features share: {len(repeated):,} ({examples(repeated)}); they are "
            "numbered in the order of the file, so data in another order may be matched wrongly",
            remedy=Remedy("give each feature a name of its own, such as the ID of a gene"),
        )
    return names


def _numbered(names: list[str], taken: set[str]) -> tuple[list[str], list[str]]:
    """Return the names made distinct, and those that were repeated; the new names are added to `taken`."""
    found, times = [], Counter[str]()
    seen: set[str] = set()
    for name in names:
        new = name
        while name in seen and new in taken:
            times[name] += 1
            new = f"{name}-{times[name]}"
        seen.add(name)
        taken.add(new)
        found.append(new)
    return found, list(times)


@dataclasses.dataclass(frozen=True)
class FeatureMatch:
    """Match of the features of the data with those of a model.

    Attributes
    ----------
    columns : ndarray of int32 or int64, shape (n_features,), or None
        The model's column of each column of the data, -1 for those that the model does not know; None if
        each column is the model's column of the same number.
    message : Message or None
        Warning about the match, on one line; None if nothing is worth one.
    """

    columns: np.ndarray | None = None
    message: Message | None = None

    def warn(self, sample: Any, where: str) -> None:
        """Issue the message, if there is one, as a `StreamsvmWarning`, and `warn_of_unknown_features`.

        `sample` is rows or a matrix of the data before matching, and `where` names the data.
        """
        if self.message is not None:
            warn(StreamsvmWarning(self.message))
        if self.columns is not None:
            data, width = sample.data[:SAMPLE_VALUES], len(self.columns)
            features = np.arange(len(data)) % width if sample.indices is None else sample.indices[: len(data)]
            known = self.columns[features[data != 0]] >= 0
            warn_of_unknown_features(int(known.sum()), int((~known).sum()), where)


def warn_of_unknown_features(n_known: int, n_unknown: int, where: str) -> None:
    """Warn if fewer than a tenth of the non-zeros of data are in features that the model knows."""
    if (share := n_known / max(n_known + n_unknown, 1)) < _LEAST_KNOWN and n_unknown:
        of_known = f"only {share:.2%} of the non-zeros are in features that the model knows"
        warn(f"{where}: {of_known}; the predictions may be worth little")


def match_features(
    names: Sequence[str] | None,
    model_names: Sequence[str] | None,
    where: str,
    *,
    model: str = "the model",
    encoding: Mapping[str, Any] | None = None,
) -> FeatureMatch:
    """Find the features of the data among those of a model.

    They are matched by name if both sides have names, whatever their order, and by position otherwise.

    Parameters
    ----------
    names, model_names : sequence of str, or None
        Without duplicates; None if features have no names.
    where, model : str
        Names of the data and the model in messages.
    encoding : mapping, optional
        Record of how columns of a table became the features of the model.

    Returns
    -------
    FeatureMatch

    Raises
    ------
    FeatureError
        If both sides have names, and no name in common, or the data has no feature of a column of the table.
    """
    if names is None and model_names is None:
        return FeatureMatch()
    if names is None or model_names is None:
        nameless, named = (where, model) if names is None else (model, where)
        return FeatureMatch(
            message=Message(
                f"{nameless} does not name its features, and {named} does: each column of {where} is taken "
                f"for the column of {model} with the same number"
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
        parts.append(f"{len(missing):,} are missing and taken as 0 ({examples(missing)})")
    if unknown:
        parts.append(f"{len(unknown):,} are unknown to it and left out ({examples(unknown)})")
    if not matched:
        raise FeatureError(
            f"{where} has none of the {len(column):,} features of {model} (those have names such as "
            f"{examples(model_names)}; the data's are {examples(names)}); give data with names of the same "
            "kind, such as IDs of genes where the model has IDs"
        )
    there = present.union(name.partition("=")[0] for name in names)  # columns of categories, too
    for each in (encoding or {}).get("columns", ()):
        if each["name"] not in there:
            raise FeatureError(f"{where} has no column {each['name']!r}, which {model} needs; add it")
    message = None
    if parts:
        rare = 2 * matched < len(column)
        message = Message(
            f"{where}: {'only ' * rare}{matched:,} of the {len(column):,} features of {model} found by name; "
            + "; ".join(parts)
            + "; the predictions may be worth little" * rare
        )
    return FeatureMatch(columns, message)


def encoded_names(column: Mapping[str, Any]) -> list[str]:
    """Return the names of the features of a column of a table, by its record (docs/formats.md)."""
    name, values = column["name"], column.get("values")
    own = [name + " (year)" * (column.get("date") == "years")]
    own = own if values is None else [f"{name}={value}" for value in values]
    return own + [f"{name}=missing"] * bool(column.get("indicator"))


def with_columns(rows: Rows, columns: np.ndarray, n_features: int) -> Rows:
    """Return rows with column j moved to ``columns[j]``, or left out if that is below 0; norms stay as given.

    The arrays of values are new. Indices increase within each row, in the dtype of `columns`.

    Parameters
    ----------
    rows : Rows
    columns : ndarray of int32 or int64, shape (n_old_features,)
        Distinct but for those below 0.
    n_features : int
        Features of the result; those that no column is moved to are 0.
    """
    if rows.dense:
        known = np.flatnonzero(columns >= 0)
        sources = np.full(n_features, -1)
        sources[columns[known]] = known
        matrix = np.empty((rows.n_rows, n_features), rows.data.dtype)
        old = rows.data.reshape(rows.n_rows, len(columns))
        np.take(old, sources.clip(min=0), axis=1, out=matrix, mode="clip")  # which needs no copy
        matrix[:, sources < 0] = 0
        return with_matrix(rows, matrix)
    moved = rows._replace(indices=columns[rows.features])
    moved = kept_values(moved, moved.features >= 0)
    data, indices = sort_rows(moved.data, moved.features, moved.indptr, n_features)
    return moved._replace(data=data, indices=indices)


def sort_rows(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_features: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return `data` and `indices` with indices increasing within each row; may modify its arguments."""
    import scipy.sparse

    matrix = scipy.sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_features))
    matrix.has_sorted_indices = False
    matrix.sort_indices()
    return matrix.data, matrix.indices.astype(indices.dtype, copy=False)


def examples(names: Sequence[str]) -> str:
    """Return the first few names, quoted."""
    more = ", ..." if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(repr, names[:_SHOWN_NAMES])) + more


def column_of(X: Any, values: Any, *, of_frame: bool = False) -> Any:
    """Return values; of a text, the column of ``obs`` with this name, or of a DataFrame if `of_frame`."""
    if not isinstance(values, str):
        return values
    is_frame = of_frame and not hasattr(X, "obsm")
    table: Any = X if is_frame else getattr(X, "obs", None)
    columns = getattr(table, "columns", ())
    if values not in columns:
        where, there = "X" if is_frame else "X: obs", examples(list(map(str, columns))) or "none"
        raise InputError(f"{where} has no column {values!r}; it has {there}")
    return table[values]
