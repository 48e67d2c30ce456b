"""Sections of a report on classes: which are confused, how accurate each is, and their strongest features."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm import plot
from streamsvm.model import Model
from streamsvm.reporting import html
from streamsvm.reporting.features import top_features
from streamsvm.reporting.names import shown
from streamsvm.reporting.outcomes import Outcomes
from streamsvm.reporting.svg import Pictures
from streamsvm.reporting.words import first_of

_MOST_ROWS = 30  # of a table
_MOST_CLASSES = 9  # whose features are shown
_MOST_FEATURES = 8  # of each
_MOST_PAIRS = 15  # of confused classes


def classes(outcomes: Outcomes | None, why_not: str, pictures: Pictures) -> Iterator[str]:
    """The section on predictions for held-out rows by class, or, without them, on `why_not`."""
    yield html.heading("Classes")
    if outcomes is None:
        yield html.paragraph(f"Confused classes and accuracies of classes are left out: {why_not}.")
        return
    occurs = np.flatnonzero(outcomes.rows)
    yield html.paragraph(_of_outcomes(outcomes, len(occurs)))
    n_pairs = min(len(outcomes.pairs), _MOST_PAIRS)
    figures = []
    if n_pairs:
        covered = outcomes.pairs[:n_pairs, 2].sum() / outcomes.errors
        caption = f"True class → predicted class, and the share of the true class's rows. These {n_pairs} of "
        caption += f"{len(outcomes.pairs):,} pairs are {covered:.0%} of the errors.".replace("%", " %")
        if outcomes.too_low:
            caption += (
                f" There were too many pairs to count: counts may be up to {outcomes.too_low:,} too low."
            )
        figures += pictures.card(
            "Most confused classes",
            lambda ax: plot.confusion(outcomes, ax=ax, n=_MOST_PAIRS),
            caption,
            height=0.9 + 0.24 * n_pairs,
        )
    figures += pictures.card(
        "Accuracy of classes by frequency", lambda ax: plot.class_accuracy(outcomes, ax=ax)
    )
    yield html.cards(figures)
    yield _table_of_classes(outcomes, occurs)


def features(model: Model, outcomes: Outcomes | None, pictures: Pictures) -> Iterator[str]:
    """The section on the largest coefficients of some classes."""
    yield html.heading("Features")
    names = model.record["classes"]
    k = len(names)
    which = "each class"
    if k <= _MOST_CLASSES:
        codes = np.arange(k)
    elif outcomes is not None:
        codes = np.argsort(-outcomes.rows, kind="stable")[:_MOST_CLASSES]
        which = f"the {_MOST_CLASSES} classes, of {k:,}, with the most held-out rows"
    else:
        codes = np.unique(np.linspace(0, k - 1, _MOST_CLASSES).round().astype(int))
        which = f"{_MOST_CLASSES} of the {k:,} classes, evenly spaced"
    after = " The coefficients are of features after the transforms." if model.transforms else ""
    yield html.paragraph(f"The features with the largest coefficients of {which}.{after}")
    figures = []
    for code, largest in zip(codes, top_features(model, codes.tolist(), _MOST_FEATURES), strict=True):
        if largest:
            figures += pictures.card(
                shown(names[code]),
                lambda ax, code=code, largest=largest: plot.draw_features(names[code], largest, ax),  # type: ignore[misc]
                height=0.8 + 0.24 * len(largest),
            )
    yield (html.cards(figures) if figures else html.paragraph("No coefficient of these classes is above 0."))


def _table_of_classes(outcomes: Outcomes, occurs: np.ndarray) -> str:
    share = outcomes.correct[occurs] / outcomes.rows[occurs]
    worst = occurs[np.lexsort((-outcomes.rows[occurs], share))][:_MOST_ROWS]
    instead: dict[int, str] = {}
    wanted = set(worst.tolist())
    for true, predicted, count in outcomes.pairs.tolist():  # the most frequent first
        if true in wanted and true not in instead:
            instead[true] = f"{shown(outcomes.classes[predicted])} ({count:,})"
            if len(instead) == len(wanted):
                break
    return html.table(
        ["class", "most often taken for", "rows", "right", "accuracy"],
        [
            (
                shown(outcomes.classes[c]), instead.get(c, "-"), f"{outcomes.rows[c]:,}",
                f"{outcomes.correct[c]:,}", f"{outcomes.correct[c] / outcomes.rows[c]:.4f}",
            )
            for c in worst.tolist()
        ],
        texts=2,
        caption=first_of(_MOST_ROWS, len(occurs), "classes, the least accurate first"),
    )  # fmt: skip


def _of_outcomes(outcomes: Outcomes, n_classes: int) -> str:
    evaluation = outcomes.evaluation
    text = f"{evaluation.n:,} held-out rows of {n_classes:,} classes"
    if outcomes.several:
        return (
            f"{text}, with several labels each. For a row as many of the best classes are predicted as it "
            f"has labels: {outcomes.errors:,} of {int(outcomes.rows.sum()):,} labels are not among them."
        )
    unknown = evaluation.n - int(outcomes.rows.sum())
    text += f"; {outcomes.errors:,} are predicted wrongly"
    return text + (f", and {unknown:,} have labels that the model does not know." if unknown else ".")
