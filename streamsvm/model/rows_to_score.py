"""Rows of everything that a model can score: stores and other files, blocks of rows, matrices."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np

from streamsvm.base.converters import converters
from streamsvm.base.label_values import NO_LABEL
from streamsvm.base.threads import count_workers
from streamsvm.data.arrays import check_is_matrix, label_column, labels_of, with_layer
from streamsvm.data.checks import first_false, first_outside, row_of
from streamsvm.data.rows import Rows, kept_rows
from streamsvm.errors import ModelError, SettingsError, part_of_memory, warn
from streamsvm.model.inputs import MAX_FEATURES, begins_with_text, blocks_of_store
from streamsvm.model.model import Model
from streamsvm.model.schema import schema_of_model
from streamsvm.settings.scoring import ScoringSettings
from streamsvm.store import Store, open_store
from streamsvm.store.kinds import is_read_in_place, kind_of

# Changes of rows of files, by the names of their counts.
_CHANGES = {
    "skipped": "left out rows that are invalid",
    "repaired": "sorted rows, or summed duplicate indices of them",
    "unseen_features": "left out values of features unknown to the model",
    "unseen_values": "values of categories unknown to the model have no feature",
    "missing_values": "replaced missing numbers as in the training data",
    "unseen_labels": "left out labels unknown to the model",
}


@dataclasses.dataclass
class RowCounts:
    """Numbers of rows of data, filled in when the data has been opened.

    Attributes
    ----------
    n_rows : int or None
        None for rows that a caller gives.
    unlabelled : int
        Rows that are left out because they have no label.
    """

    n_rows: int | None = None
    unlabelled: int = 0


def rows_to_score(
    model: Model,
    data: Any,
    y: Any = None,
    *,
    memory: int,
    settings: ScoringSettings = ScoringSettings(),  # noqa: B008
    labelled: bool = True,
    groups: Any = None,
    named: bool = False,
    where: str = "the data",
    counts: RowCounts | None = None,
    workers: int | None = None,
) -> Iterator[tuple[Rows, np.ndarray]]:
    """Yield the rows of `data`, in its order, after the model's transforms, with the names of the rows.

    The rows of a store or file take half of `memory` (bytes). `data` and `groups` are as for `predict`;
    errors call rows that a caller gives `where`. If `labelled`, a store must have labels that the model
    knows, and a matrix needs `y`, or `label` if it is AnnData; the default is the column that the model was
    trained on. Names are int64 or str objects: those of a store if `named`, those given in pairs of rows and
    names, and otherwise the numbers from 0. `counts` is filled in when the data has been opened; for a file
    that is no store when all is read. `workers` threads read files.
    """
    counts = RowCounts() if counts is None else counts
    y, label = label_column(y, settings.label)
    is_path = isinstance(data, str | os.PathLike)
    # A list has rows, or pairs of rows and their names.
    is_list = isinstance(data, list) and all(isinstance(x[0] if type(x) is tuple else x, Rows) for x in data)
    has_labels = is_path or is_list or isinstance(data, Store | Rows | Iterator)
    if settings.labels is not None and not is_path:
        raise SettingsError("labels is for the path of a matrix; give y", setting="labels")
    for name, given, what in (("y", y, "labels"), ("groups", groups, "rows")):
        if has_labels and given is not None:
            raise SettingsError(f"{name} is for the {what} of a matrix; this data has its own", setting=name)
    if not is_path:
        data = with_layer(data, settings.layer, settings.raw, settings.obsm)
    of_file = is_path and not is_read_in_place(data)
    if not of_file:
        settings.refuse_of_files()
    if of_file:
        options = vars(settings) | {"label": label, "memory": memory // 2, "labelled": labelled}
        rows_of = _rows_of_file(model, data, options, counts, count_workers(workers))
        yield from rows_to_score(model, rows_of, memory=memory, where=str(data))
    elif is_path:
        options = settings.of_store | {"label": label}
        with open_store(data, **options, like=model.record, labelled=labelled) as store:
            yield from rows_to_score(
                model, store, memory=memory, labelled=labelled, named=named, counts=counts
            )
    elif isinstance(data, Store):
        counts.n_rows, counts.unlabelled = data.n_rows, data.unlabelled
        with part_of_memory(2):
            yield from blocks_of_store(data, model, memory=memory // 2, labelled=labelled, named=named)
    elif has_labels:
        first = 0
        for each in [data] if isinstance(data, Rows) else cast(Iterable[Any], data):
            rows, names = (each, None) if isinstance(each, Rows) else each
            if names is None:
                names = np.arange(first, first + rows.n_rows)
            yield model.transformed(_fitting(model, rows, first, where), where=where, first=first), names
            first += rows.n_rows
    else:
        if not (model.takes_texts and begins_with_text(data)):
            check_is_matrix(data, ModelError)
        if y is None and label is None and hasattr(data, "obs"):
            label = model.record.get("label")  # that it was trained on
        rows = model.rows(data, labels_of(data, y, label) if labelled else None, groups)
        names, kept = _names_of(data, rows.n_rows), rows.labels != NO_LABEL
        if not kept.all():
            rows, names = kept_rows(rows, kept), names[kept]
        counts.n_rows, counts.unlabelled = rows.n_rows, len(kept) - rows.n_rows
        yield rows, names


def _rows_of_file(
    model: Model, path: Any, options: dict[str, Any], counts: RowCounts, threads: int
) -> Iterator[tuple[Rows, np.ndarray]]:
    """Yield the rows of a file of any kind that `convert` takes, before the transforms, and their numbers.

    When all is read, `counts` has the rows without a label, and warnings say what was dropped or replaced.
    """
    labelled = options["labelled"]
    if kind_of(path, options["format"]) == "libsvm":
        if model.record["index_base"] is None:
            raise ModelError(
                f"{path} is LIBSVM text, in which the features of the model have no numbers; give data of "
                "the kind that it was trained on"
            )
        options["groups"] = model.transitions_ is not None and "whole"
        options["multilabel"] |= model.multilabel or not labelled  # commas separate labels that do not matter
        options["labels_as"] = None if labelled else "text"
    reader = converters().open_reader(
        [path], **options, dtype=model.record["dtype"], unseen_label="keep", threads=threads,
        like=schema_of_model(model, "the model"),
    )  # fmt: skip
    with part_of_memory(2):
        yield from reader
    found = reader.counts
    counts.unlabelled = getattr(found, "unlabelled", 0)
    for note in reader.notes:
        warn(note)
    for name, change in _CHANGES.items():
        # `evaluate` warns of unknown labels of rows with one label.
        told = name != "unseen_labels" or (labelled and options["multilabel"])
        if told and (n := getattr(found, name, 0)):
            first = f", the first: {found.first_errors[0]}" if name == "skipped" else ""
            warn(f"{path}: {change} ({n:,} in all{first})")


def _names_of(X: Any, n_rows: int) -> np.ndarray:
    """Return the names of the rows of a matrix: the index of AnnData and DataFrames, else numbers."""
    index = X.obs_names if hasattr(X, "obs_names") else getattr(X, "index", None)
    if index is None or callable(index):
        return np.arange(n_rows)
    names = np.asarray(index)
    if names.dtype.kind in "iu" and names.shape == (n_rows,):
        return names.astype(np.int64)
    return np.array([str(name) for name in index], dtype=object)


def _fitting(model: Model, rows: Rows, first: int, where: str) -> Rows:
    """Check rows from number `first` on that a caller made, and return them in the model's dtype.

    An index beyond the model would read memory that is not its own, and a value that is not finite might meet
    no coefficient.
    """
    with np.errstate(over="ignore"):
        data = rows.data.astype(model.dtype, copy=False)
    if (at := first_false(np.isfinite(data))) is not None:
        what = f"the value {rows.data[at]} is not finite in {model.dtype}; drop or replace it"
        raise ModelError(f"row {first + row_of(rows.indptr, at)} of {where}: {what}")
    n_features = MAX_FEATURES if model.takes_any_feature else model.n_features_in_
    if rows.indices is None:
        width = rows.matrix.shape[1]
        if rows.n_rows and not model.takes_any_feature and width != n_features:
            raise ModelError(f"{where} has {width} features, the model {n_features}")
    elif (at := first_outside(rows.indices, n_features)) is not None:
        raise ModelError(
            f"row {first + row_of(rows.indptr, at)} of {where} has the feature {rows.indices[at]}, and those "
            f"of the model are from 0 to {n_features - 1:,}"
        )
    return rows._replace(data=data)
