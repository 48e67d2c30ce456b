"""Data of `predict`, `evaluate` and `report`: a store, or any file that `convert` takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm_cli.console import Console
from streamsvm_cli.wording import count

from streamsvm.base.text import as_url
from streamsvm.base.threads import count_workers
from streamsvm.errors import ModelError, SettingsError, part_of_memory

if TYPE_CHECKING:
    import numpy as np

    from streamsvm import Model, Rows


def data_to_score(
    console: Console,
    model: Model,
    path: Path,
    memory: int,
    *,
    labelled: bool = True,
    multilabel: bool = False,
    label: str | None = None,
    labels: Path | None = None,
) -> Path | Iterator[tuple[Rows, np.ndarray]]:
    """Return the path of a store, or the rows of a file and their numbers, read in half of `memory`.

    Commas in text separate labels if `multilabel`, if the model was trained so, or if the labels do not
    matter. `label` and `labels` are as for `convert`.
    """
    from streamsvm_converters import kind_of

    from streamsvm.store.list_file import holds_lists

    if as_url(path) is None and holds_lists(path):
        return path
    kind = "anndata" if path.is_dir() or as_url(path) else kind_of(path)
    if multilabel and kind != "libsvm":
        raise SettingsError("multilabel is for text; a store says itself", setting="multilabel")
    if labels is not None and kind not in ("npz", "npy"):
        raise SettingsError("labels is for arrays; other data has its own", setting="labels")
    if kind == "anndata":
        return path
    if kind == "libsvm":
        several = multilabel or model.multilabel or not labelled
        return _rows_of_text(console, model, path, memory, labelled, several)
    return _rows_of_file(console, model, path, memory, labelled=labelled, label=label, labels=labels)


def _rows_of_text(
    console: Console, model: Model, path: Path, memory: int, labelled: bool, multilabel: bool
) -> Iterator[tuple[Rows, np.ndarray]]:
    from streamsvm_converters import read_rows

    if model.record["index_base"] is None:
        raise ModelError(
            "the features of the model have no numbers in LIBSVM text; give data of the kind that it was "
            "trained on"
        )
    text = read_rows(
        [str(path)],
        classes=model.record["classes"],
        n_features=None if model.takes_any_feature else model.n_features_in_,
        index_base=model.record["index_base"],
        labels_as=model.record.get("labels_as", "numbers") if labelled else "text",
        dtype=model.record["dtype"],
        memory=memory // 2,
        multilabel=multilabel,
        groups=model.transitions_ is not None,
    )
    with part_of_memory(2):
        yield from text
    _warn(console, text.counts, labelled, "label" if multilabel else "row")


def _rows_of_file(
    console: Console, model: Model, path: Path, memory: int, **options: Any
) -> Iterator[tuple[Rows, np.ndarray]]:
    from streamsvm_converters import open_reader

    from streamsvm.model.schema import schema_of_model

    threads = count_workers(None)
    reader = open_reader(
        [path], like=schema_of_model(model, "the model"), dtype=model.record["dtype"],
        memory=memory // 2, threads=threads, unseen_label="keep", **options,
    )  # fmt: skip
    with part_of_memory(2):
        yield from reader
    for note in reader.notes:
        console.warn(note)
    _warn(console, reader.counts, options["labelled"], "row")


def _warn(console: Console, counts: Any, labelled: bool, noun: str) -> None:
    """Warn about values and labels that the model does not know, and about rows left out."""
    if counts.unseen_features:
        console.warn(f"dropped {count(counts.unseen_features, 'value')} of features unknown to the model")
    if getattr(counts, "unseen_values", None):
        console.warn(f"{count(counts.unseen_values, 'value')} of categories unknown to the model: no feature")
    if getattr(counts, "missing_values", None):
        console.warn(f"replaced {count(counts.missing_values, 'missing number')} as in the training data")
    if labelled and getattr(counts, "unlabelled", None):
        console.warn(f"left out {count(counts.unlabelled, 'row')} without a label")
    if noun == "label" and labelled and counts.unseen_labels:  # `evaluate` warns of rows of one label
        console.warn(f"left out {count(counts.unseen_labels, 'label')} unknown to the model")
