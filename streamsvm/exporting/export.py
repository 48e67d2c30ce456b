"""Export of models to other programs: `export_model`."""

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
_ONE_LABEL = {"liblinear": "LIBLINEAR", "sklearn": "LinearSVC"}  # which predict one label a row


@dataclasses.dataclass(frozen=True)
class Exported:
    """Result of `export_model`.

    Attributes
    ----------
    path : str
    format : str
    bytes : int
        Size of all files.
    numbers : dict of str to int, or None
        The number that stands for each class, if LIBLINEAR could not have its label.
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
    """Write a model for another program, or a smaller one for this.

    Parameters
    ----------
    model : Model or path
        A path of a model folder or a run.
    path : path
        File to write; of the format ``"streamsvm"`` a folder.
    format : str, optional
        By default by the suffix of `path`.

        ``"liblinear"`` (.txt, .model)
            Text that LIBLINEAR's ``predict`` reads, with the features numbered as in the text that was
            trained on. Labels that are no whole numbers are numbered, with a warning, and listed in a file
            beside it.
        ``"sklearn"`` (.joblib)
            A fitted ``LinearSVC`` of scikit-learn, or a ``Pipeline`` that ends in one, for ``joblib.load``;
            it does not need streamsvm. For a model of a table the pipeline takes a DataFrame of pandas with
            its columns, in any order and among others; for a model of one column of text it takes texts.
        ``"onnx"`` (.onnx)
            A graph from dense rows ``X`` to ``label`` (int64 if the classes are integers, else text) and
            ``scores``, and to ``probabilities`` if the model has any. To ``scores`` alone if the rows of the
            training had several labels. For a model of a table the graph has, instead of ``X``, an input of
            shape (n, 1) for each column, with its name: float64, NaN where a number is missing; or strings,
            empty where a category is missing. Whole numbers that are categories have no point.
        ``"streamsvm"``
            A model folder, as ``Model.save`` writes it.
    prune : float
        As for ``Model.save``.
    dtype : {"float16", "float32"}, optional
        Of ``"streamsvm"``: as for ``Model.save``.
    force : bool
        Replace the file or folder at `path`.

    Returns
    -------
    Exported

    Raises
    ------
    SettingsError
        If a parameter is not valid, or does not apply to the format.
    ModelError
        If the model cannot be loaded, the format cannot hold its transforms, its columns or several labels a
        row, it is one of sequences, a file is there and `force` is not given, or it cannot be written.

    Warns
    -----
    StreamsvmWarning
        If the numbers of classes or features are not those of the data.

    Notes
    -----
    The transforms ``center``, ``scale``, ``idf``, ``df``, ``select`` and ``bias`` become part of the
    coefficients and intercepts.
    ``l2``, ``log1p``, ``normalize``, ``binarize`` and ``fourier`` can be exported to ``"sklearn"`` and
    ``"onnx"``, ``clip`` to ``"onnx"``. No other program checks that rows are counts, as the transform
    ``counts`` does.

    Values of categories that the training data lacked become no feature. If all values of a category are
    numbers, scikit-learn's pipeline compares numbers, and text that is none is an error.

    Scores of other programs are sums in another order or in another precision: labels are the same unless
    two scores are equal but for rounding.
    """
    kind = format or _SUFFIXES.get(Path(path).suffix.lower())
    if kind not in _FORMATS:
        formats, suffixes = ", ".join(_FORMATS), ", ".join(_SUFFIXES)
        raise wrong_setting("format", f"must be one of {formats}, or the suffix of {path} one of {suffixes}")
    if dtype is not None and kind != "streamsvm":
        raise wrong_setting("dtype", f"is for the format streamsvm, and this is {kind}")
    prune = checks.NOT_NEGATIVE.checked("prune", prune)
    check_local(path, ModelError)
    target = Path(path)
    durable.check_replaceable(target, ModelError, force=force, folder=kind == "streamsvm")
    beside = target.with_name(target.name + LABELS_SUFFIX)
    if kind == "liblinear":
        durable.check_replaceable(beside, ModelError, force=force)
    loaded = model if isinstance(model, Model) else load_model(Path(model))
    if kind == "streamsvm":
        loaded.save(target, prune=prune, dtype=dtype)
        size = sum(file.stat().st_size for file in target.iterdir())
        return Exported(str(target), kind, size)
    if loaded.multilabel and kind in _ONE_LABEL:
        raise ModelError(
            f"the model was trained on rows with several labels, and {_ONE_LABEL[kind]} predicts one",
            remedy=Remedy("export to onnx, which gives scores, or to streamsvm"),
        )
    with durable.os_errors_as(ModelError, target, "written"), durable.replacing(target) as aside:
        numbered = _WRITERS[kind](loaded, aside, prune=prune)
    size = target.stat().st_size
    if kind == "liblinear" and numbered is None:
        durable.remove(beside)  # of a model that was here before
    if numbered is not None:
        with durable.os_errors_as(ModelError, beside, "written"), durable.replacing(beside) as aside:
            size += aside.write_bytes("".join(f"{n}\t{label}\n" for label, n in numbered.items()).encode())
    return Exported(str(target), kind, size, numbered)
