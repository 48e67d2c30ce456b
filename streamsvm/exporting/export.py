"""Export models to other programs."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Literal, get_args

from streamsvm.base import durable
from streamsvm.base.text import check_local
from streamsvm.errors import ModelError, Remedy, wrong_setting
from streamsvm.exporting.estimator import write_estimator
from streamsvm.exporting.liblinear_export import LABELS_SUFFIX, write_liblinear
from streamsvm.exporting.onnx_graph import write_onnx
from streamsvm.model.model import Model, load_model
from streamsvm.settings import checks

Format = Literal["liblinear", "sklearn", "onnx", "streamsvm"]
_FORMATS: tuple[str, ...] = get_args(Format)
_WRITERS: dict[str, Any] = {"liblinear": write_liblinear, "sklearn": write_estimator, "onnx": write_onnx}
_SUFFIXES = {".joblib": "sklearn", ".onnx": "onnx", ".txt": "liblinear", ".model": "liblinear"}
_ONE_LABEL = {"liblinear": "LIBLINEAR", "sklearn": "LinearSVC"}  # programs that predict one label per row


@dataclasses.dataclass(frozen=True)
class Exported:
    """Result of `export_model`.

    Attributes
    ----------
    path : str
    format : str
    bytes : int
        Total size of the written files in bytes.
    numbers : dict of str to int, or None
        Number written for each class if LIBLINEAR's format cannot represent the labels; otherwise None.
    """

    path: str
    format: str
    bytes: int
    numbers: dict[str, int] | None = None


def export_model(
    model: Model | str | os.PathLike[str],
    path: str | os.PathLike[str],
    format: Format | None = None,
    *,
    prune: float = 0.0,
    dtype: Literal["float16", "float32"] | None = None,
    force: bool = False,
) -> Exported:
    """Write a model in the format of another program, or a smaller copy for streamsvm.

    Parameters
    ----------
    model : Model, or path of a model folder or run directory
    path : path
        File to write; a folder for the format ``"streamsvm"``.
    format : str, optional
        Output format; by default determined by the suffix of `path`.

        ``"liblinear"`` (.txt, .model)
            Text for LIBLINEAR's ``predict``, with the feature numbers of the training text. If a label is not
            a whole number, the classes are numbered, with a warning, and listed in a second file.
        ``"sklearn"`` (.joblib)
            Fitted scikit-learn ``LinearSVC``, or ``Pipeline`` that ends with one. ``joblib.load`` can load it
            without streamsvm. If the model was trained on a table, the pipeline takes a pandas DataFrame with
            the table's columns in any order. If it was trained on one text column, the pipeline takes
            strings.
        ``"onnx"`` (.onnx)
            Graph that takes dense rows ``X`` and returns ``label`` (int64 if the classes are integers,
            otherwise text), ``scores`` and, if the model has them, ``probabilities``. If rows may have
            several labels, it returns only ``scores``. If the model was trained on a table, the graph takes,
            instead of ``X``, one input of shape (n, 1) named after each column: float64 with NaN for missing
            numbers, or strings with "" for missing categories. Categories that are whole numbers must be
            written without a decimal point.
        ``"streamsvm"``
            Model folder, as written by ``Model.save``.
    prune, dtype
        As for ``Model.save``; `dtype` applies only to ``"streamsvm"``.
    force : bool
        Whether to replace the file or folder at `path`.

    Raises
    ------
    SettingsError
        If a parameter is invalid or does not apply to the format.
    ModelError
        If the model cannot be loaded, if the format cannot represent its transforms or columns, several
        labels per row, or sequences, or if a file cannot be written, or exists and `force` is False.

    Warns
    -----
    StreamsvmWarning
        If the file numbers the classes or features differently from the training data.

    Notes
    -----
    The transforms ``center``, ``scale``, ``idf``, ``df``, ``select`` and ``bias`` become part of the
    coefficients and intercepts. ``l2``, ``log1p``, ``normalize``, ``binarize`` and ``fourier`` can be
    exported to ``"sklearn"`` and ``"onnx"``, ``clip`` only to ``"onnx"``. The transform ``counts``, which
    checks that rows contain counts, is left out.

    Categories that did not occur in training are ignored. If all categories of a column are numbers, the
    scikit-learn pipeline compares them as numbers and rejects other text.

    Other programs may sum in an order or precision different from that of streamsvm, so they may rank nearly
    equal scores differently.
    """
    kind = format or _SUFFIXES.get(Path(path).suffix.lower())
    if kind not in _FORMATS:
        formats, suffixes = ", ".join(_FORMATS), " or ".join(_SUFFIXES)
        raise wrong_setting("format", f"must be one of {formats}, or {path} must end in {suffixes}")
    if dtype is not None and kind != "streamsvm":
        raise wrong_setting("dtype", f"applies only to the format streamsvm, not to {kind}; leave it out")
    prune = checks.NOT_NEGATIVE.checked("prune", prune)
    check_local(path, ModelError)
    target = Path(path)
    durable.check_replaceable(target, ModelError, force=force, folder=kind == "streamsvm")
    label_file = target.with_name(target.name + LABELS_SUFFIX)
    if kind == "liblinear":
        durable.check_replaceable(label_file, ModelError, force=force)
    loaded = model if isinstance(model, Model) else load_model(Path(model))
    if kind == "streamsvm":
        loaded.save(target, prune=prune, dtype=dtype)
        size = sum(file.stat().st_size for file in target.iterdir())
        return Exported(str(target), kind, size)
    if loaded.multilabel and kind in _ONE_LABEL:
        raise ModelError(
            f"the model was trained on rows with several labels, but {_ONE_LABEL[kind]} predicts only one",
            remedy=Remedy("export to onnx, which returns the scores, or to streamsvm"),
        )
    with durable.os_errors_as(ModelError, target, "written"), durable.replacing(target) as aside:
        numbered = _WRITERS[kind](loaded, aside, prune=prune)
    size = target.stat().st_size
    if kind == "liblinear" and numbered is None:
        durable.remove(label_file)
    if numbered is not None:
        with durable.os_errors_as(ModelError, label_file, "written"), durable.replacing(label_file) as aside:
            size += aside.write_bytes("".join(f"{n}\t{label}\n" for label, n in numbered.items()).encode())
    return Exported(str(target), kind, size, numbered)
