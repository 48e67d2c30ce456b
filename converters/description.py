"""Describe text files and tables, which requires reading them completely."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.registry import open_reader

from streamsvm.base.label_values import class_order
from streamsvm.base.progress import Progress
from streamsvm.errors import InputError
from streamsvm.store.kinds import TABLES, TO_FILE


def describe(path: Path, kind: str, label: str | None, progress: Progress | None) -> dict[str, Any]:
    """Return the numbers of rows, features, values and classes in a text file or table, and the classes.

    For a table without `label`, return only `n`, the number of rows, and `columns`, the names of the columns.
    Raises `InputError` if the file is malformed or has no rows.
    """
    options = ReadOptions(label=label, multilabel=kind == "libsvm")
    if kind in TABLES and label is None:
        from streamsvm_converters.tables.batches import TableFile

        if not path.is_file():
            raise InputError(f"{path} is not a regular file", remedy=TO_FILE)
        table = TableFile(path, kind, options.memory, options.delimiter, options.decimal)
        n_rows = sum(batch.num_rows for batch in table.batches(list(table.columns), {}))
        return {"n": n_rows, "columns": list(table.columns)}
    reader = open_reader([path], options, progress=progress and partial(progress, "read"))
    for _ in reader:
        pass
    if not reader.counts.rows:
        raise InputError(f"{path}: the input has no usable rows")
    features, labels = reader.features(), reader.labels()
    return {
        "n": reader.counts.rows,
        "d": features.width,
        "nnz": reader.counts.nnz,
        "n_classes": len(labels),
        "classes": [labels[code] for code in class_order(labels)],
        "index_base": features.index_base,
        "qids": reader.counts.qids or None,
    }
