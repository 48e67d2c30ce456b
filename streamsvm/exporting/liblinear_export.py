"""Export a model as text for LIBLINEAR's ``predict`` (its README, "load_model and save_model")."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamsvm.base.label_values import as_number
from streamsvm.errors import ModelError, Remedy, warn
from streamsvm.exporting.folding import fold, two_class_difference
from streamsvm.model.model import Model

LABELS_SUFFIX = ".labels"  # suffix of the file that lists the number and label of each class
_PIECE_SIZE = 2**20


def write_liblinear(model: Model, path: Path, *, prune: float) -> dict[str, int] | None:
    """Write `model` as LIBLINEAR text, with the full precision of float64.

    Features keep the numbers that they have in the LIBSVM text. If the text numbers features from 0, the
    numbers increase by 1, because LIBLINEAR has no feature 0. Warns if features or classes are renumbered.

    Returns
    -------
    dict of str to int, or None
        Number written for each class; None if the labels are whole numbers in LIBLINEAR's notation.
    """
    folded = fold(model, prune)
    names = [step.name for step in folded.steps if not isinstance(step, np.ndarray)]
    if names:
        raise ModelError(
            f"LIBLINEAR's format cannot represent these transforms of the model: {', '.join(names)}",
            remedy=Remedy("export to sklearn, onnx or streamsvm"),
        )
    classes = [str(label) for label in model.record["classes"]]
    numbers = _numbers(classes)
    changed = [pair for pair in zip(classes, numbers, strict=True) if str(pair[1]) != pair[0]]
    if changed:
        label, number = changed[0]
        warn(
            f"LIBLINEAR's labels are whole numbers, so {label!r} becomes {number}; the file with the suffix "
            f"{LABELS_SUFFIX} lists the number and the label of each class"
        )
    if model.record.get("index_base") == 0:
        warn(
            "LIBLINEAR numbers features from 1, but the training text numbers them from 0, so feature j "
            "becomes j + 1; add 1 to the feature numbers of the text to predict"
        )
    coef, intercept, labels, solver = folded.coef, folded.intercept, numbers, "MCSVM_CS"
    if len(classes) == 2:  # LIBLINEAR then uses one column; a positive score means the first label
        coef, intercept = two_class_difference(folded)
        labels, solver = numbers[::-1], "L2R_L1LOSS_SVC_DUAL"
    bias = -1.0 if folded.bias is None else folded.bias
    step = max(1, _PIECE_SIZE // coef.shape[1])
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"solver_type {solver}\nnr_class {len(classes)}\n")
        file.write(f"label {' '.join(map(str, labels))}\n")
        file.write(f"nr_feature {coef.shape[0]}\nbias {bias:.17g}\nw\n")
        for begin in range(0, coef.shape[0], step):
            np.savetxt(file, coef[begin : begin + step].toarray(), "%.17g", newline=" \n")
        if folded.bias is not None:
            np.savetxt(file, intercept[None] / folded.bias + 0.0, "%.17g", newline=" \n")  # -0.0 becomes 0.0
    return dict(zip(classes, numbers, strict=True)) if changed else None


def _numbers(classes: list[str]) -> list[int]:
    """Return the labels as integers if they are distinct whole numbers, otherwise the class codes."""
    numbers = {as_number(label) for label in classes}
    whole = [x for x in numbers if x is not None and x.is_integer() and abs(x) < 2**31]
    if len(whole) == len(classes):
        return [int(float(label)) for label in classes]
    return list(range(len(classes)))
