"""Read the rows to score from stores, other files, blocks of rows and matrices."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from streamsvm.base.converters import converters
from streamsvm.base.label_values import NO_LABEL
from streamsvm.base.prefetch import Prefetcher
from streamsvm.base.threads import count_workers
from streamsvm.chains.viterbi import piece_bounds
from streamsvm.data.arrays import check_is_matrix, label_column, labels_of, with_layer, without_label
from streamsvm.data.checks import first_false, first_outside, row_of
from streamsvm.data.names import warn_of_unknown_features
from streamsvm.data.rows import Rows, kept_rows, row_span
from streamsvm.data.value_kinds import SAMPLE_VALUES, warn_of_difference
from streamsvm.errors import ModelError, part_of_memory, warn, wrong_setting
from streamsvm.inputs.blocks import blocks_to_score
from streamsvm.inputs.schema import schema_of_model
from streamsvm.model.matrix import MAX_FEATURES, begins_with_text, matrix_parts, names_of_rows, rows_of_matrix
from streamsvm.model.model import Model
from streamsvm.settings.scoring import ScoringSettings
from streamsvm.store import Store, open_store
from streamsvm.store.kinds import is_read_in_place, kind_of
from streamsvm.transforms import apply, dense_after
from streamsvm.transforms.fitting import first_rows
from streamsvm.transforms.store import transformed

# Warnings about rows that the reader of a file changed, by the name of the reader's count.
_CHANGES = {
    "skipped": "left out invalid rows",
    "repaired": "sorted the indices of rows, or summed duplicate indices",
    "unseen_features": "left out values of features unknown to the model",
    "unseen_values": "left out values of categories unknown to the model",
    "missing_values": "replaced missing numbers as in the training data",
    "unseen_labels": "left out labels unknown to the model",
}

Read = Iterator[tuple[Rows, np.ndarray]]


@dataclasses.dataclass
class RowsToScore:
    """Reader of rows and their names from data of any kind; the rows are transformed for the model.

    If `labelled` is True, a store must have labels that the model knows, and a matrix needs `y` or `label`.
    By default, `label` is the column that the model was trained on.

    Reading sets three attributes. `n_rows` is the number of rows, or None if unknown. `unlabelled` is the
    number of rows left out because they have no label; for a file, it is set at the end. `texts` contains the
    documents of the rows that were yielded last if their n-grams are hashed, and is None or empty otherwise.
    """

    model: Model
    settings: ScoringSettings = ScoringSettings()  # noqa: RUF009
    memory: int = 2**28
    labelled: bool = True
    named: bool = False  # whether to read the row names of a store; otherwise rows are numbered from 1
    workers: int | None = None
    n_rows: int | None = dataclasses.field(default=None, init=False)
    unlabelled: int = dataclasses.field(default=0, init=False)
    texts: Sequence[str] | None = dataclasses.field(default=None, init=False)

    def read(self, data: Any, y: Any = None, groups: Any = None, where: str = "the data") -> Read:
        """Yield the rows of `data` in batches, in order, with their names, int64 or str objects.

        `data`, `y` and `groups` are as for `streamsvm.evaluate`. In messages, `where` names blocks of rows.
        """
        y, label = label_column(y, self.settings.label)
        is_path = isinstance(data, str | os.PathLike)
        # A list of blocks contains rows, or pairs of rows and their names.
        is_list = isinstance(data, list) and all(
            isinstance(x[0] if type(x) is tuple else x, Rows) for x in data
        )
        has_labels = is_path or is_list or isinstance(data, Store | Rows | Iterator)
        if self.settings.labels is not None and not is_path:
            raise wrong_setting("labels", "applies only to the path of a matrix; pass y")
        for name, values, content in (("y", y, "labels"), ("groups", groups, "groups")):
            if has_labels and values is not None:
                raise wrong_setting(name, f"applies only to a matrix; use the {content} in the data")
        if is_path and not is_read_in_place(data):
            yield from self._read_file(data, label)
            return
        self.settings.refuse_of_files()
        if is_path:
            options = self.settings.of_store | {"label": label, "labelled": self.labelled}
            with open_store(data, **options, like=self.model.record) as store:
                yield from self._read_store(store)
        elif not has_labels:
            yield from self._read_matrix(data, y, groups, label)
        else:
            with_layer(data, self.settings.layer, self.settings.raw, self.settings.obsm)
            yield from self._read_store(data) if isinstance(data, Store) else self._read_blocks(data, where)

    def _read_store(self, store: Store) -> Read:
        model, like = self.model, schema_of_model(self.model)
        self.n_rows, self.unlabelled, shift = store.n_rows, store.unlabelled, 0
        if model.takes_any_feature:
            if store.index_base is None:
                raise ModelError(
                    "the model hashes the feature numbers of LIBSVM text, but the features of "
                    f"{store.path} have no numbers; pass LIBSVM text, or a store made from it"
                )
            shift = store.index_base
            like = dataclasses.replace(like, n_features=store.n_features, index_base=shift)
        elif (like.index_base, store.index_base) == (0, 1):  # the store lacks the model's feature 0
            shift = 1
            like = dataclasses.replace(like, n_features=like.n_features - 1, index_base=1)
        with part_of_memory(2):
            blocks = blocks_to_score(
                store, like, model.dtype, self.memory // 2, labelled=self.labelled,
                transformed=lambda matched: transformed(matched, model.transforms, shift),
            )  # fmt: skip
        sample = first_rows(store, 0, min(store.n_rows, SAMPLE_VALUES), SAMPLE_VALUES)
        blocks.match.warn(sample, str(store.path))
        warn_of_difference(sample.data, model.record, model.transforms, str(store.path))

        def read(block: int) -> tuple[Rows, np.ndarray]:
            begin, end = map(int, blocks.starts[block : block + 2])
            names = store.names(begin, end) if self.named else np.arange(begin, end)
            return blocks.read(block), names + 1 if names.dtype.kind == "i" else names

        with Prefetcher(map(read, range(len(blocks))), is_single=len(blocks) == 1) as prefetched:
            yield from prefetched

    def _read_file(self, path: Any, label: str | None) -> Read:
        model, labelled = self.model, self.labelled
        options = vars(self.settings) | {"label": label, "memory": self.memory // 2, "labelled": labelled}
        if kind_of(path, options["format"]) == "libsvm":
            if model.record["index_base"] is None:
                raise ModelError(
                    f"{path} is LIBSVM text, but the features of the model have no numbers; pass data of the "
                    "same kind as the training data"
                )
            options["groups"] = model.transitions_ is not None and "whole"
            options["multilabel"] |= model.multilabel or not labelled  # rows may have several labels
            options["labels_as"] = None if labelled else "text"
        reader = converters().open_reader(
            [path], **options, dtype=model.record["dtype"], unseen_label="keep", like=schema_of_model(model),
            threads=count_workers(self.workers),
        )  # fmt: skip
        with part_of_memory(2):
            blocks = ((rows, numbers + 1) for rows, numbers in reader)
            for rows, numbers in self._read_blocks(blocks, str(path)):
                self.texts = reader.texts
                yield rows, numbers
        counts = reader.counts
        self.unlabelled = getattr(counts, "unlabelled", 0)
        for note in reader.notes:
            warn(note)
        n_unknown = counts.unseen_features + getattr(counts, "unseen_values", 0)
        warn_of_unknown_features(counts.nnz, n_unknown, str(path))
        for name, change in _CHANGES.items():
            # `evaluate` warns of unknown labels itself if rows have one label.
            is_reported = name != "unseen_labels" or (labelled and options["multilabel"])
            if is_reported and (n := getattr(counts, name, 0)):
                first = f", first error: {counts.first_errors[0]}" if name == "skipped" else ""
                warn(f"{path}: {change} ({n:,} in total{first})")

    def _read_blocks(self, data: Rows | Iterable[Any], where: str) -> Read:
        first = 0
        for block in [data] if isinstance(data, Rows) else cast(Iterable[Any], data):
            rows, names = (block, None) if isinstance(block, Rows) else block
            if names is None:
                names = np.arange(first + 1, first + 1 + rows.n_rows)
            rows = _checked(self.model, rows, first, where)
            step = max(rows.n_rows, 1)
            if dense_after(self.model.transforms, False):  # rows may become far larger
                step = max(1, self.memory // (4 * self.model.n_features * self.model.dtype.itemsize))
            for begin, end in piece_bounds(rows, step, by_group=True):
                part = row_span(rows, begin, end)
                yield apply(self.model.transforms, part, where=where, first=first + begin), names[begin:end]
            first += rows.n_rows

    def _read_matrix(self, X: Any, y: Any, groups: Any, label: str | None) -> Read:
        model, options = self.model, self.settings
        if not (model.takes_texts and begins_with_text(X)) and not getattr(X, "isbacked", False):
            check_is_matrix(X, ModelError)
        self.texts = list(X) if model.takes_texts and begins_with_text(X) else None
        trained_on = model.record.get("label")
        if y is None and label is None and (hasattr(X, "obs") or trained_on in getattr(X, "columns", ())):
            label = trained_on
        parts = matrix_parts(
            X, y, groups, memory=self.memory // 2, layer=options.layer, raw=options.raw, obsm=options.obsm
        )
        for first, part in parts:
            labels = labels_of(part, y, label) if self.labelled else None
            rows = rows_of_matrix(model, without_label(part, label), labels, groups, first=first)
            names, has_label = names_of_rows(part, rows.n_rows), rows.labels != NO_LABEL
            if not has_label.all():
                rows, names = kept_rows(rows, has_label), names[has_label]
            self.unlabelled += int(np.count_nonzero(~has_label))
            self.n_rows = getattr(X, "n_obs", len(has_label)) - self.unlabelled
            yield rows, names


def _checked(model: Model, rows: Rows, first: int, where: str) -> Rows:
    """Check rows from a caller, and convert them to the model's dtype; the first row has number `first`.

    Without these checks, kernels might read out of bounds, or skip a value that is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        data = rows.data.astype(model.dtype, copy=False)
    if (at := first_false(np.isfinite(data))) is not None:
        problem = f"the value {rows.data[at]} is not finite in {model.dtype}; drop or replace it"
        raise ModelError(f"row {first + row_of(rows.indptr, at) + 1} of {where}: {problem}")
    n_features = MAX_FEATURES if model.takes_any_feature else model.n_features_in_
    if rows.indices is None:
        width = rows.matrix.shape[1]
        if rows.n_rows and not model.takes_any_feature and width != n_features:
            raise ModelError(f"{where} has {width} features, but the model has {n_features}")
    elif (at := first_outside(rows.indices, n_features)) is not None:
        raise ModelError(
            f"row {first + row_of(rows.indptr, at) + 1} of {where} has the feature {rows.indices[at]}, but "
            f"the features of the model are 0 to {n_features - 1:,}"
        )
    return rows._replace(data=data)
