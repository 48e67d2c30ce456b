"""Metrics of a model on labelled data: accuracies, F1, costs, and how good its probabilities are."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base.label_values import warn_of_unknown
from streamsvm.base.progress import Progress, logger, shown
from streamsvm.base.text import parse_size
from streamsvm.base.threads import Threads, count_workers
from streamsvm.data.class_costs import read_costs, read_tree
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError, SettingsError
from streamsvm.inputs.rows import RowsToScore
from streamsvm.model.model import Model
from streamsvm.prediction.label_metrics import Evaluation, LabelMetrics
from streamsvm.prediction.label_set_metrics import LabelSetEvaluation, LabelSetMetrics
from streamsvm.prediction.predictions import as_model, checked_threshold, checked_top_k
from streamsvm.settings.scoring import TO_EVALUATE, ScoringSettings
from streamsvm.settings.signature import takes
from streamsvm.store.addresses import copy_address


@takes(TO_EVALUATE, after="memory")
def evaluate(
    model: Model | str | Path,
    data: Any,
    y: Any = None,
    *,
    top_k: int | Iterable[int] | None = None,
    threshold: float | None = None,
    n_labels: int | None = None,
    costs: Any = None,
    tree: Any = None,
    memory: int | str = 2**28,
    groups: Any = None,
    where: str | None = None,
    observe: Callable[[Rows, int, np.ndarray], object] | None = None,
    workers: int | None = None,
    progress: bool | Progress | None = None,
    **settings: Any,
) -> Evaluation | LabelSetEvaluation:
    """Compare the predictions for labelled data with its labels.

    Parameters
    ----------
    model : Model or path
        A model, or the run directory or model folder to load it from.
    data : path, Store, iterable of Rows, or matrix
        Labelled data: a store, AnnData, or a file of any kind that `convert` takes, which is read in blocks;
        blocks of rows with the features of the training data, as they were before the transforms, and codes
        of the model's classes, or pairs of such a block and its rows' names; or anything that `Model.predict`
        takes.
    y : array_like, shape (n,), or str, optional
        Labels of a matrix, which has none of its own. Or, for AnnData, what `label` is. For several labels a
        row: a list with a list of labels for each row; or an indicator matrix (array, sparse or DataFrame) of
        zeros and ones, whose classes are the numbers of its columns, or their names in a DataFrame.
    top_k : int or iterable of int, optional
        The numbers k of best classes to measure the top-k accuracy for, or, if rows have several labels,
        precision@k: 1 or more. By default 1 and, of more than 5 classes, 5; and 1, 3 and 5.
    threshold : float, optional
        For rows with several labels: classes with scores above it are predicted. By default 0 for models of
        ``ovr`` and ``ovr2``. Those of other losses only rank the classes.
    n_labels : int, optional
        For rows with several labels: predict this many of the best classes, and not those above a threshold.
    costs : path, DataFrame or array_like, shape (k, k), optional
        What predicting each class costs for rows of each class (in rows), in place of the costs of the
        model: see `streamsvm.data.class_costs.read_costs`.
    tree : path, mapping of str to str or ClassTree, optional
        A tree of the classes, in place of that of the model: see `streamsvm.data.class_costs.read_tree`.
    memory : int or str
        Memory budget in bytes, or as text such as 500M or 2G.
    **settings
        As `ScoringSettings` declares them.
    groups : array_like, shape (n,), or str, optional
        The group that each row of a matrix belongs to, for a model of sequences: see `streamsvm.fit`. A store
        has its own.
    where : str, optional
        What errors call the data; by default its path.
    observe : callable, optional
        Called with `Rows`, the number of the first one that was scored, and the scores, of shape (n,
        n_classes), of it and the next ones, for measures of one's own. The arrays are used again.
    workers : int, optional
        Threads that score, as for `streamsvm.predict`.
    progress : bool or callable, optional
        Whether there is a bar, or a function, as in `streamsvm.fit`; the stage is "evaluate".

    Returns
    -------
    Evaluation, or LabelSetEvaluation if rows may have several labels each

    Raises
    ------
    ModelError, FeatureError, StoreError
        If the model cannot be read, or the data cannot be read, does not fit the model, has no rows, or
        has no label that the model knows, or a score overflows.
    InputError
        If a file of text or a table is malformed; a matrix has no labels: neither `y`, `labels` nor, for
        AnnData, `label`; or `costs` or `tree` cannot be read or does not fit the classes.
    SettingsError
        If `top_k`, `threshold`, `n_labels` or `memory` is not valid, or `y`, `label`, `threshold`,
        `n_labels`, `costs` or `tree` does not apply to the data.
    PlanError
        If the memory budget cannot hold the longest row; `PlanError.needed_memory` is enough.

    Warns
    -----
    StreamsvmWarning
        If labels are unknown to the model; counts the rows, or, of several labels a row, the labels of a
        matrix or of text that are left out. If a file has features or categories that are.
    """
    model, memory = as_model(model), parse_size(memory)
    threshold, n_workers = checked_threshold(threshold), count_workers(workers)
    if n_labels is not None:
        n_labels = checked_top_k(n_labels, "n_labels")
    if threshold is not None and n_labels is not None:
        raise SettingsError("threshold and n_labels both say what is predicted; leave one of them out")
    if top_k is not None:
        top_k = sorted({checked_top_k(k) for k in (top_k if isinstance(top_k, Iterable) else [top_k])})
    classes = model.record["classes"]
    table = model.costs if costs is None else read_costs(costs, classes)
    class_tree = model.tree if tree is None else read_tree(tree, classes)
    for_one = {"costs": costs, "tree": tree}
    for_several: dict[str, Any] = {"threshold": threshold, "n_labels": n_labels}
    if where is None:
        where = str(data) if isinstance(data, str | os.PathLike) else "the data"
    if model.transitions_ is not None and top_k not in (None, [1]):
        raise SettingsError(
            "top_k does not apply to a model of sequences, which predicts one label for each row",
            setting="top_k",
        )
    metrics: LabelMetrics | LabelSetMetrics | None = None
    n, asked = 0, ScoringSettings(**settings)
    reader = RowsToScore(model, asked, memory, workers=n_workers)
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(shown(progress))
        threads = stack.enter_context(Threads(n_workers))
        data = copy_address(data, asked.cache, report)
        for rows, _ in reader.read(data, y, groups, where):  # in half of the memory
            several = bool(len(rows.label_indptr))
            if rows.n_rows and metrics is None:
                _check_apply(model, for_one if several else for_several, several=several)
                if several:
                    metrics = LabelSetMetrics(model, top_k or [1, 3, 5], **for_several)
                else:
                    default = [1, 5] if model.transitions_ is None and len(classes) > 5 else [1]
                    metrics = LabelMetrics(model, top_k or default, table, class_tree)
            if several and isinstance(metrics, LabelMetrics):
                raise ModelError(f"row {n} may have several labels, and the rows before have one each")
            # Ranking scores, and their probabilities, take several times as much as they do.
            for begin, scores in model.scores(rows, memory // 32, first=n, where=where, workers=threads):
                assert metrics is not None
                metrics.add(rows, begin, scores)
                if observe is not None:
                    observe(rows, begin, scores)
                report("evaluate", n + begin + len(scores), reader.n_rows)
            n += rows.n_rows
    if metrics is None:
        raise ModelError("the data has no rows with labels to evaluate the model on")
    if not metrics.has_labels:
        raise ModelError(f"none of the {n:,} rows has a label that the model knows")
    result = metrics.evaluation(n)
    if isinstance(metrics, LabelMetrics):
        warn_of_unknown(n - metrics.n_known, where)
    if isinstance(result, Evaluation):
        result = dataclasses.replace(result, unlabelled=reader.unlabelled)
    logger.info("%r", result)
    return result


def _check_apply(model: Model, others: dict[str, Any], *, several: bool) -> None:
    """Raise an error if rows with several labels each, or one, do not fit the model, or `others` are given.

    Those are the settings for rows of the other kind.
    """
    if several and model.transitions_ is not None:
        raise ModelError("the model predicts one label for each row of a sequence, and the data has several")
    they_have = "have" if several else "do not have"
    for name, value in others.items():
        if value is not None:
            raise SettingsError(
                f"{name} does not apply: the rows {they_have} several labels each", setting=name
            )
