"""Predictions for data of any size: stores are read in blocks, and labels may go to a file."""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

from streamsvm import durable
from streamsvm.data.arrays import labels_of
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError, SettingsError, part_of_memory
from streamsvm.model import Model, load_model
from streamsvm.store import Store, open_store
from streamsvm.text import parse_size


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The best classes of each row, best first; of equal scores the first class wins.

    With a threshold rows have different numbers of them, and there is an array of shape (n_labels,) for each.

    Attributes
    ----------
    n : int
        Number of rows.
    labels : ndarray of str, shape (n, top_k), or list of n arrays, or None
        None if they were written to a file.
    scores : ndarray, shape (n, top_k), or list of n arrays, or None
        Of these labels, in the model's dtype; their probabilities, in float64, if these were asked for; None
        if they were written to a file.
    out : Path or None
        The file.
    """

    n: int
    labels: np.ndarray | list[np.ndarray] | None = None
    scores: np.ndarray | list[np.ndarray] | None = None
    out: Path | None = None


def predict(
    model: Model | str | Path,
    data: Any,
    out: str | Path | TextIO | None = None,
    *,
    top_k: int | None = None,
    threshold: float | None = None,
    scores: bool = False,
    proba: bool = False,
    memory: int | str = 2**28,
    label: str | None = None,
    groups: Any = None,
) -> Predictions:
    """Predict the best classes of each row, in the order of the data.

    Parameters
    ----------
    model : Model or path
        A model, or the run directory or model folder to load it from.
    data : path, Store, iterable of Rows, or matrix
        What to score: a store or AnnData file, which is read in blocks; blocks of rows with the model's
        features; or anything that `Model.predict` takes. Labels in it are not used.
    out : path or text file, optional
        Where to write the labels, one line a row, separated by tabs. A path is replaced when all is written.
    top_k : int, optional
        How many of the best classes, at most: 1 or more. By default 1, or with `threshold` all.
    threshold : float, optional
        Give only classes whose score, or with `proba` probability, is above it: none, one or several for each
        row. The line of a row with none is empty.
    scores : bool
        Whether each label in `out` is followed by its score.
    proba : bool
        Give probabilities in the place of scores, in `out` too; see `Model.predict_proba`.
    memory : int or str
        Memory budget in bytes, or as text such as 500M or 2G.
    label : str, optional
        Column of ``obs`` with the labels of AnnData; it is not needed.
    groups : array_like, shape (n,), or str, optional
        The group that each row of a matrix belongs to, for a model of sequences: see `streamsvm.fit`. A store
        has its own.

    Returns
    -------
    Predictions

    Raises
    ------
    ModelError, FeatureError, StoreError
        If the model cannot be read, or has no probabilities and these are asked for, or the data cannot be
        read or does not fit it, or a score overflows.
    SettingsError
        If `top_k`, `threshold` or `memory` is not valid, or both scores and probabilities are asked for.
    PlanError
        If the memory budget cannot hold the longest row; `PlanError.needed_memory` is enough.
    """
    if scores and proba:
        raise SettingsError("proba gives probabilities in the place of scores; leave one of them out")
    model, memory, threshold = as_model(model), parse_size(memory), checked_threshold(threshold)
    if top_k is None:
        top_k = 1 if threshold is None else len(model.classes_)
    top_k = checked_top_k(top_k)
    if proba:
        model.check_probabilities()
    if model.transitions_ is not None and (top_k > 1 or threshold is not None):
        name = "top_k" if threshold is None else "threshold"
        raise SettingsError(
            f"{name} does not apply to a model of sequences, which predicts one label for each row",
            setting=name,
        )
    count = 0
    labels: list[np.ndarray] = []
    best: list[np.ndarray] = []
    with ExitStack() as stack:
        file = None
        if isinstance(out, str | os.PathLike):
            file = stack.enter_context(_replacing(Path(out)))
        elif out is not None:
            file = out
        for rows in rows_to_score(model, data, memory=memory, label=label, labelled=False, groups=groups):
            for begin, piece in model.finite_scores(rows, memory // 32, first=count):  # half is for the rows
                columns = (
                    model.best_classes(rows, begin, piece)[:, None] if top_k == 1 else _best(piece, top_k)
                )
                values = np.exp(model.log_probabilities(piece)) if proba else piece
                of_columns = np.take_along_axis(values, columns, axis=1)
                count += len(piece)
                above = None if threshold is None else (of_columns > threshold).sum(axis=1).tolist()
                if above is not None:  # names take more memory than scores
                    columns = columns[:, : max(above, default=0)]
                names = model.classes_[columns]
                if file is not None:
                    file.writelines(_lines(names, of_columns if scores or proba else None, above))
                elif above is None:
                    labels.append(names)
                    best.append(of_columns)
                else:  # sorted, so that the first ones are above the threshold
                    labels.extend(row[:n].copy() for row, n in zip(names, above, strict=True))
                    best.extend(row[:n].copy() for row, n in zip(of_columns, above, strict=True))
    if file is not None:
        return Predictions(count, out=None if file is out else Path(cast(str, out)))
    if threshold is not None:
        return Predictions(count, labels, best)
    none = np.zeros((0, min(top_k, len(model.classes_))))
    return Predictions(
        count,
        np.concatenate([none.astype(model.classes_.dtype), *labels]),
        np.concatenate([none if proba else none.astype(model.dtype), *best]),
    )


def rows_to_score(
    model: Model,
    data: Any,
    y: Any = None,
    *,
    memory: int,
    label: str | None = None,
    labelled: bool = True,
    groups: Any = None,
) -> Iterator[Rows]:
    """The rows of `data`, in its order, with the model's features; they take half of `memory` (bytes).

    `data` and `groups` are as for `predict`. If `labelled`, a store must have labels that the model knows,
    and a matrix needs `y`, or `label` if it is AnnData.
    """
    has_labels = isinstance(data, str | os.PathLike | Store | Rows | Iterator) or (
        isinstance(data, list) and all(isinstance(x, Rows) for x in data)
    )
    if has_labels and y is not None:
        raise SettingsError("y is for the labels of a matrix; this data has its own", setting="y")
    if has_labels and groups is not None:
        raise SettingsError("groups is for the rows of a matrix; this data has its own", setting="groups")
    if isinstance(data, str | os.PathLike):
        with open_store(data, label=label, labelled=labelled) as store:
            yield from rows_to_score(model, store, memory=memory, labelled=labelled)
    elif isinstance(data, Store):
        with part_of_memory(2):
            yield from model.batches(data, memory // 2, labelled=labelled)
    elif isinstance(data, Rows):
        yield _fitting(model, data)
    elif has_labels:
        for each in cast(Iterable[Any], data):  # rows, or pairs of rows and their names
            yield _fitting(model, each if isinstance(each, Rows) else each[0])
    else:
        yield model.rows(data, labels_of(data, y, label) if labelled else None, groups)


def checked_top_k(top_k: Any, name: str = "top_k") -> int:
    """A number of best classes as int; raises `SettingsError` if it is none, or below 1."""
    try:
        number = operator.index(top_k)
    except TypeError:
        number = 0
    if isinstance(top_k, bool) or number < 1:
        raise SettingsError(f"{name} must be a whole number, 1 or more, not {top_k!r}", setting=name)
    return number


def checked_threshold(threshold: Any) -> float | None:
    """A threshold of scores as float, or None; raises `SettingsError` if it is not a finite number."""
    if threshold is None:
        return None
    if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real) or not math.isfinite(threshold):
        raise SettingsError(f"threshold must be a finite number, not {threshold!r}", setting="threshold")
    return float(threshold)


def as_model(model: Model | str | Path) -> Model:
    """The model, loaded if it is given by its path."""
    return model if isinstance(model, Model) else load_model(model)


def _fitting(model: Model, rows: Rows) -> Rows:
    """Rows that a caller made; an index beyond the model would read memory that is not its own."""
    if len(rows.indices) and not 0 <= int(rows.indices.min()) <= int(rows.indices.max()) < model.n_features:
        raise ModelError(f"a row has a feature outside the model's {model.n_features:,}")
    return rows


def _best(scores: np.ndarray, top_k: int) -> np.ndarray:
    """Columns of the highest scores of each row, best first, shape (n, top_k)."""
    best: np.ndarray = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]  # stable: as argmax
    return best


def _lines(labels: np.ndarray, scores: np.ndarray | None, above: list[int] | None) -> Iterator[str]:
    """Lines of the labels of each row, all or the number in `above`, each followed by its score if given."""
    rows = labels.tolist() if above is None else [r[:n].tolist() for r, n in zip(labels, above, strict=True)]
    if scores is None:
        yield from ("\t".join(row) + "\n" for row in rows)
        return
    for row, values in zip(rows, scores.tolist(), strict=True):
        yield "\t".join(f"{name}\t{value:.9g}" for name, value in zip(row, values, strict=False)) + "\n"


@contextmanager
def _replacing(out: Path) -> Iterator[TextIO]:
    """A text file that takes the place of `out` when all is written; a device is written to as it is."""
    if out.exists() and not out.is_file():
        with out.open("w", encoding="utf-8") as file:
            yield file
        return
    out = out.resolve()  # a link goes on pointing to what is replaced
    aside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with aside.open("w", encoding="utf-8") as file:
            yield file
        durable.sync_tree(aside)
        os.replace(aside, out)
        durable.sync_dir(out.parent)
    except OSError as error:
        if error.filename in (None, str(aside)):
            error.filename = str(out)
        raise
    finally:
        aside.unlink(missing_ok=True)
