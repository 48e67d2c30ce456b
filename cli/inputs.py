"""What `predict` and `evaluate` take as data: a store, or LIBSVM text, which is read as it is scored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm_cli.console import Console
from streamsvm_cli.wording import count

from streamsvm.errors import InputError, ModelError, SettingsError, part_of_memory
from streamsvm.text import check_local

if TYPE_CHECKING:
    import numpy as np

    from streamsvm import Model, Rows

_STDIN = "-"
_HDF5 = b"\x89HDF\r\n\x1a\n"


def data_to_score(
    console: Console,
    model: Model,
    path: Path,
    memory: int,
    *,
    labelled: bool = True,
    multilabel: bool = False,
) -> Path | Iterator[tuple[Rows, np.ndarray]]:
    """The path of a store, or the rows of text and their names, in half of `memory`, for a model.

    Commas in text separate labels if `multilabel`, or if the labels do not matter.
    """
    if not _is_store(path):
        return _rows_of_text(console, model, path, memory, labelled, multilabel or not labelled)
    if multilabel:
        raise SettingsError("multilabel is for text; a store says itself", setting="multilabel")
    return path


def _is_store(path: Path) -> bool:
    """Return True for a folder and for a file that begins as HDF5 does."""
    if str(path) == _STDIN:
        return False
    check_local(path, InputError)
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_HDF5)) == _HDF5
    except OSError as error:
        from streamsvm.durable import reason

        raise InputError(f"{path}: {reason(error)}") from None


def _rows_of_text(
    console: Console, model: Model, path: Path, memory: int, labelled: bool, multilabel: bool
) -> Iterator[tuple[Rows, np.ndarray]]:
    from streamsvm_converters import read_rows

    if model.record["index_base"] is None:
        raise ModelError(
            "the model was trained on AnnData, whose features have no numbers in LIBSVM text; "
            "predict on AnnData"
        )
    text = read_rows(
        [str(path)],
        classes=model.record["classes"],
        n_features=None if model.takes_any_feature else model.n_features,
        index_base=model.record["index_base"],
        dtype=model.record["dtype"],
        memory=memory // 2,
        multilabel=multilabel,
        groups=model.transitions_ is not None,
    )
    with part_of_memory(2):
        for rows, names in text:
            yield model.transformed(rows), names
    counts = text.counts
    if counts.unseen_features:
        console.warn(f"dropped {count(counts.unseen_features, 'value')} of features unknown to the model")
    if labelled and counts.unseen_labels:
        if multilabel:
            labels = count(counts.unseen_labels, "label")
            console.warn(f"left out {labels} unknown to the model")
        else:
            rows_of_them = count(counts.unseen_labels, "row")
            console.warn(f"{rows_of_them} with labels unknown to the model, counted as wrong")
