"""Rows of files that are no stores, such as text and tables, as a model reads them; nothing is converted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.base.converters import converters
from streamsvm.base.threads import count_workers
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError, part_of_memory, warn
from streamsvm.model.model import Model
from streamsvm.model.schema import schema_of_model
from streamsvm.settings.scoring import ScoringSettings
from streamsvm.store.kinds import kind_of


def rows_of_file(
    model: Model,
    path: str | os.PathLike[str],
    counts: Any,
    *,
    memory: int,
    settings: ScoringSettings,
    labelled: bool = True,
    workers: int | None = None,
) -> Iterator[tuple[Rows, np.ndarray]]:
    """Yield the rows of a file of any kind that `convert` takes, before the transforms, and their numbers.

    Reading takes half of `memory` (bytes), and `workers` threads. When all is read, `counts` has the rows
    without a label, and a `StreamsvmWarning` each says what was dropped or replaced.
    """
    reading = dict(vars(settings))
    if kind_of(path, settings.format) == "libsvm":
        if model.record["index_base"] is None:
            raise ModelError(
                f"{path} is LIBSVM text, in which the features of the model have no numbers; give data of "
                "the kind that it was trained on"
            )
        reading["groups"] = model.transitions_ is not None and "whole"
        reading["multilabel"] |= model.multilabel or not labelled  # commas separate labels that do not matter
        reading["labels_as"] = None if labelled else "text"
    reader = converters().open_reader(
        [path], **reading, dtype=model.record["dtype"], memory=memory // 2, unseen_label="keep",
        like=schema_of_model(model, "the model"), labelled=labelled, threads=count_workers(workers),
    )  # fmt: skip
    with part_of_memory(2):
        yield from reader
    found = reader.counts
    counts.unlabelled = getattr(found, "unlabelled", 0)
    for note in reader.notes:
        warn(note)
    changes = {
        "skipped": "left out rows that are invalid",
        "repaired": "sorted rows, or summed duplicate indices of them",
        "unseen_features": "left out values of features unknown to the model",
        "unseen_values": "values of categories unknown to the model have no feature",
        "missing_values": "replaced missing numbers as in the training data",
    }
    if labelled and reading["multilabel"]:  # of rows with one label `evaluate` warns
        changes["unseen_labels"] = "left out labels unknown to the model"
    for name, change in changes.items():
        if n := getattr(found, name, 0):
            first = f", the first: {found.first_errors[0]}" if name == "skipped" else ""
            warn(f"{path}: {change} ({n:,} in all{first})")
