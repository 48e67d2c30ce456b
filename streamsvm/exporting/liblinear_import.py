"""Models of LIBLINEAR, read from the text that its ``train`` writes."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from streamsvm import durable
from streamsvm.coefficients import SparseCoef
from streamsvm.errors import ModelError
from streamsvm.exporting.arrays import is_sparse
from streamsvm.label_values import dtype_of_names
from streamsvm.model import Model
from streamsvm.text import check_classes, check_local, printable
from streamsvm.transforms import Transform

# Solvers, and the loss of streamsvm with the same terms, if there is one.
_SOLVERS = {
    "L2R_LR": None, "L2R_L2LOSS_SVC_DUAL": "ovr2", "L2R_L2LOSS_SVC": "ovr2", "L2R_L1LOSS_SVC_DUAL": "ovr",
    "MCSVM_CS": "cs", "L1R_L2LOSS_SVC": None, "L1R_LR": None, "L2R_LR_DUAL": None,
}  # fmt: skip
_OTHERS = {
    "L2R_L2LOSS_SVR": "regression", "L2R_L2LOSS_SVR_DUAL": "regression", "L2R_L1LOSS_SVR_DUAL": "regression",
    "ONECLASS_SVM": "outlier detection",
}  # fmt: skip
_HEADER = {"solver_type", "nr_class", "label", "nr_feature", "bias"}
_LONGEST = 2**27  # bytes of a line: of a million classes with all digits
_PIECE = 2**24  # bytes that are parsed at a time
_MOST_FEATURES, _MOST_CLASSES = 2**31 - 2, 2**24  # LIBLINEAR counts them in C's int


def import_liblinear(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    labels: str | os.PathLike[str] | None = None,
) -> Model:
    """The model in LIBLINEAR's text, with float64 coefficients; it predicts the labels that LIBLINEAR does.

    Parameters
    ----------
    path : path
        What LIBLINEAR's ``train`` wrote, with any solver for classification.
    out : path, optional
        Model folder to write.
    labels : path, optional
        Text with a line "number, tab, label" for each class, as `streamsvm.export_model` writes beside a
        model whose labels are no numbers; by default labels are the numbers.

    Returns
    -------
    Model
        Column j is the feature j + 1 of the text.

    Raises
    ------
    ModelError
        If it is no such text, one of regression or outlier detection, or not whole; names the line. If `out`
        holds anything but a model, or cannot be written.

    Notes
    -----
    Of two classes LIBLINEAR has one column of weights, and takes the first label where the score is above 0,
    even if the solver is Crammer and Singer's. The classes here are then the second label and the first one,
    with minus half of the weights and half of them.
    """
    check_local(path, ModelError)
    try:
        with durable.open_file(Path(path), follow=True) as file:
            model = _read(file, Path(path), None if labels is None else _read_labels(Path(labels)))
    except OSError as error:
        raise ModelError(f"{error.filename or path} cannot be read: {durable.reason(error)}") from None
    if out is not None:
        model.save(out)
    return model


class _Lines:
    """Lines of a file, counted."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self.path, self.number = file, path, 0

    def next(self) -> bytes:
        line = self._file.readline(_LONGEST)
        if not line:
            raise ModelError(f"{self.path} ends after line {self.number}: it is not whole")
        self.number += 1
        return line

    def error(self, problem: str) -> ModelError:
        return ModelError(f"{self.path}, line {self.number}: {problem}")


def _read(file: BinaryIO, path: Path, labels: dict[str, str] | None) -> Model:
    lines = _Lines(file, path)
    header = _read_header(lines)
    solver, classes, n_features, bias = header
    two = len(classes) == 2
    n_columns = 1 if two and solver != "MCSVM_CS" else len(classes)
    weights = _read_weights(lines, n_features + (bias >= 0), n_columns)
    if two:
        weights = weights[:, [0]]
        weights, classes = _side_by_side(weights * -0.5, weights * 0.5), classes[::-1]
    transforms: list[Transform] = []
    if bias > 0:
        from streamsvm.transforms.bias import Bias

        transforms = [Bias(bias, n_features)]
    else:
        weights = weights[:n_features]
    if labels is not None:
        missing = [label for label in classes if label not in labels]
        if missing:
            raise ModelError(f"{path} has the label {missing[0]}, and the file of labels does not")
        classes = [labels[label] for label in classes]
    check_classes(classes, path, ModelError)
    if len(set(classes)) < len(classes):
        raise ModelError(f"{path}: two classes have the same label")
    record: dict[str, Any] = {
        "classes": classes,
        "label_dtype": dtype_of_names(classes),
        "n_features": weights.shape[0],
        "index_base": 1,
        "dtype": "float64",
        "imported": {"from": "LIBLINEAR", "solver_type": solver},
        "transforms": [{"name": step.name, **step.record()} for step in transforms],
    }
    if transforms:
        record["n_features_in"] = n_features
    if _SOLVERS[solver] is not None:
        record["loss"] = _SOLVERS[solver]
    coef: Any = weights.toarray()
    if is_sparse(weights, weights.dtype):
        weights.sort_indices()
        indptr = weights.indptr.astype(np.int64)
        coef = SparseCoef(weights.data, weights.indices.astype(np.int32), indptr, len(classes))
    return Model(coef, record, transforms=transforms)


def _side_by_side(first: Any, second: Any) -> Any:
    import scipy.sparse

    return scipy.sparse.csr_array(scipy.sparse.hstack([first, second]))


def _read_header(lines: _Lines) -> tuple[str, list[str], int, float]:
    """Solver, labels, number of features, and the value of the bias."""
    found: dict[str, list[str]] = {}
    while True:
        words = lines.next()[:_LONGEST].decode("latin-1").split()
        if words == ["w"]:
            break
        if not words or words[0] not in _HEADER | {"rho"} or words[0] in found:
            what = printable(words[0][:40]) if words else "an empty line"
            raise lines.error(f"{what} is not what a model of LIBLINEAR has here")
        found[words[0]] = words[1:]
        if words[0] == "solver_type":
            name = words[1] if len(words) == 2 else ""
            if name in _OTHERS:
                raise lines.error(f"{name} is a model of {_OTHERS[name]}, and not of classes")
            if name not in _SOLVERS:
                raise lines.error(f"there is no solver {printable(name[:40])}")
        elif words[0] == "nr_class":
            _whole(lines, words[1:], 2, _MOST_CLASSES, "classes")
        elif words[0] == "nr_feature":
            _whole(lines, words[1:], 0, _MOST_FEATURES, "features")
        elif words[0] == "bias":
            _bias(lines, words[1:])
    missing = _HEADER - set(found)
    if missing:
        raise lines.error(f"the weights begin, and {sorted(missing)[0]} is missing before them")
    classes, n = found["label"], int(found["nr_class"][0])
    if len(classes) != n:
        raise lines.error(f"there are {len(classes):,} labels of {n:,} classes")
    return found["solver_type"][0], classes, int(found["nr_feature"][0]), _bias(lines, found["bias"])


def _whole(lines: _Lines, words: list[str], least: int, most: int, what: str) -> int:
    if len(words) == 1 and words[0].isascii() and words[0].isdecimal() and len(words[0]) < 18:
        number = int(words[0])
        if least <= number <= most:
            return number
    raise lines.error(f"the number of {what} must be from {least} to {most:,}")


def _bias(lines: _Lines, words: list[str]) -> float:
    try:
        (word,) = words
        bias = float(word)
    except ValueError:
        bias = math.nan
    if not math.isfinite(bias):
        raise lines.error("the bias must be a number")
    return bias


def _read_weights(lines: _Lines, n_rows: int, n_columns: int) -> Any:
    """The weights, as a CSR matrix: a line for each feature."""
    import scipy.sparse

    data, indices, sizes = [np.zeros(0)], [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    done = 0
    while done < n_rows:
        texts: list[bytes] = []
        first, size = lines.number + 1, 0
        while done + len(texts) < n_rows and size < _PIECE:
            texts.append(lines.next())
            size += len(texts[-1])
        piece = _numbers(texts, n_columns, lines, first)
        rows, columns = np.nonzero(piece)
        data.append(piece[rows, columns])
        indices.append(columns.astype(np.int32))
        sizes.append(np.bincount(rows, minlength=len(piece)))
        done += len(texts)
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    found = np.concatenate(data), np.concatenate(indices), indptr
    return scipy.sparse.csr_array(found, shape=(n_rows, n_columns))


def _numbers(texts: list[bytes], n_columns: int, lines: _Lines, first: int) -> np.ndarray:
    """The numbers of some lines, shape (len(texts), n_columns); the first line has the number `first`."""
    # Each number is followed by a space, as `train` writes them: counting these takes no time.
    whole = all(text.count(b" ") == n_columns or len(text.split()) == n_columns for text in texts)
    found = _parsed(b"".join(texts)) if whole else None
    if found is None or len(found) != len(texts) * n_columns or not np.isfinite(found).all():
        for number, text in enumerate(texts, first):
            row = _parsed(text)
            if row is None or len(row) != n_columns or not np.isfinite(row).all():
                lines.number = number
                raise lines.error(f"there must be {n_columns:,} finite weights, one of each class")
    assert found is not None
    return found.reshape(len(texts), n_columns)


def _parsed(text: bytes) -> np.ndarray | None:
    """The numbers in a text; None if something else is in it."""
    if not text.strip():
        return np.zeros(0)  # which NumPy would call a number
    with warnings.catch_warnings(action="error"):
        try:
            return np.fromstring(text, np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return None


def _read_labels(path: Path) -> dict[str, str]:
    """The label of each number, from lines "number, tab, label"."""
    check_local(path, ModelError)
    try:
        text = durable.read_bounded(path, follow=True).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelError(f"{path} is not text in UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        key, tab, label = line.partition("\t")
        if not line and not key:
            continue
        if not tab or key in found:
            raise ModelError(f"{path}, line {number}: a number, a tab and a label must stand here, each once")
        found[key] = label.rstrip("\r")
    return found
