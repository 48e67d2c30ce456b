"""`streamsvm evaluate`: measure a model on labelled data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.options import Label, Labels, Layer, Memory, Multilabel, Obsm, Raw, ScoringThreads
from streamsvm_cli.wording import count


def evaluate(
    console: Console,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Run directory or model folder.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Store, or a file of any kind that convert takes.")
    ],
    top_k: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Also measure the accuracy of the best k labels (default: 5), or, if rows have several, "
            "their precision (default: 3 and 5).",
        ),
    ] = None,
    multilabel: Multilabel = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="If rows have several labels: predict those with scores above this (default: 0 for ovr and "
            "ovr2)."
        ),
    ] = None,
    n_labels: Annotated[
        int | None, typer.Option(min=1, help="If rows have several labels: predict this many of the best.")
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(
            help="Also measure the mean cost, from this table: CSV or .npy, a row for each true class."
        ),
    ] = None,
    tree: Annotated[
        Path | None,
        typer.Option(help="Also measure the mean distance in this tree: a class and its parent a line."),
    ] = None,
    workers: ScoringThreads = None,
    memory: Memory = "256M",  # type: ignore[assignment]
    label: Label = None,
    labels: Labels = None,
    layer: Layer = None,
    raw: Raw = False,
    obsm: Obsm = None,
) -> None:
    """Measure a model on labelled data.

    Prints accuracy, top-k accuracy, macro and micro F1; unknown labels count as wrong. If the model has
    probabilities, also their log loss and expected calibration error, and if it was trained with costs or a
    tree of classes, the mean cost or distance, over the rows with known labels.

    If rows have several labels each: precision of the best k labels, ranking loss, and of the predicted sets
    macro and micro F1 and subset accuracy; unknown labels are left out.
    """
    import streamsvm

    result = streamsvm.evaluate(
        model, data, top_k=None if top_k is None else (1, top_k), threshold=threshold, n_labels=n_labels,
        costs=costs, tree=tree, memory=memory, workers=workers, label=label, layer=layer, raw=raw, obsm=obsm,
        labels=labels, multilabel=multilabel, progress=console.bar,
    )  # fmt: skip
    numbers: dict[str, float | None]
    f1 = {"macro F1": result.macro_f1, "micro F1": result.micro_f1}
    unlabelled = 0
    if isinstance(result, streamsvm.LabelSetEvaluation):
        numbers = {f"precision@{k}": value for k, value in result.precision.items()}
        numbers |= {"ranking loss": result.ranking_loss, **f1, "subset acc.": result.subset_accuracy}
        if result.warning is not None:
            console.warn(result.warning)
    else:
        numbers = {"accuracy": result.accuracy}
        numbers |= {f"top-{k}": value for k, value in result.top_k.items() if k > 1} | f1
        numbers |= {"log loss": result.log_loss, "calib. error": result.calibration_error}
        numbers |= {"sequences": result.sequence_accuracy}
        numbers |= {"mean cost": result.mean_cost, "mean dist.": result.mean_distance}
        unlabelled = result.unlabelled
    console.say(f"{'rows':>12}  {result.n:,}")
    if unlabelled:
        console.say(f"{'':>12}  {count(unlabelled, 'row')} without a label left out")
    for name, value in numbers.items():
        if value is not None:
            console.say(f"{name:>12}  {value:.4f}")
    console.result(dataclasses.asdict(result))
