"""How the training of a run is split, and the learner that trains it so."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.errors import Option, Remedy, SettingsError
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.losses import get_loss
from streamsvm.settings import AUTO, CLASSES, ROWS, Settings
from streamsvm.training.parallel.class_groups import ClassGroups, group_classes
from streamsvm.workers import Threads

if TYPE_CHECKING:
    from streamsvm.training.parallel.cluster import Cluster
    from streamsvm.training.training_data import TrainingData

_ENOUGH_CLASSES = 4  # for each split: with fewer, pairs of groups solve too little of a row at once


def settle_split(settings: Settings, n_classes: int, *, multilabel: bool) -> Settings:
    """Settings in which ``split`` is no longer "auto".

    Raises
    ------
    SettingsError
        If the data cannot be split so: too few classes, or several labels a row.
    """
    if settings.splits == 1:
        return settings
    splits = settings.splits
    if settings.split == AUTO:
        by_rows = _why_rows(settings, n_classes, multilabel=multilabel)
        return dataclasses.replace(settings, split=ROWS if by_rows else CLASSES)
    if settings.split == CLASSES and multilabel:
        raise SettingsError(
            "split classes is for rows of one label each",
            remedy=Remedy("give {}", Option("split", ROWS)),
            setting="split",
        )
    if settings.split == CLASSES and n_classes < 2 * splits:
        raise SettingsError(
            f"{splits} splits of the classes need {2 * splits} classes or more, and there are {n_classes}",
            remedy=Remedy("give {} or fewer, or {}", Option("splits", n_classes // 2), Option("split", ROWS)),
            setting="splits",
        )
    return settings


def _why_rows(settings: Settings, n_classes: int, *, multilabel: bool) -> str | None:
    """Why rows are better split than classes; None if they are not."""
    if not get_loss(settings.loss).class_splits:
        return f"the loss {settings.loss} cannot be split by classes"
    if multilabel or not settings.can_split_classes:
        return "several labels a row, costs, a tree or another solver cannot be split by classes"
    if n_classes < _ENOUGH_CLASSES * settings.splits:
        return f"{n_classes:,} classes are fewer than {_ENOUGH_CLASSES} for each split"
    return None


def why_split(settings: Settings, n_classes: int, *, multilabel: bool) -> str | None:
    """The reason for how the training is split; None if it is not."""
    if settings.splits == 1:
        return None
    by_rows = _why_rows(settings, n_classes, multilabel=multilabel)
    if (by_rows is None) != (settings.split == CLASSES):
        return "as asked for"
    return by_rows or f"{n_classes:,} classes are {_ENOUGH_CLASSES} or more for each split"


def groups_of(settings: Settings, class_counts: np.ndarray) -> ClassGroups | None:
    """The groups of the classes, if these are split."""
    if settings.splits == 1 or settings.split != CLASSES:
        return None
    return group_classes(class_counts, 2 * settings.splits, np.dtype(settings.dtype))


def find_workers(
    settings: Settings, wanted: int | None, cluster: str | os.PathLike[str] | None = None
) -> Threads | Cluster:
    """As many threads as there are splits or, unless `wanted` says how many, processors; or a cluster."""
    if wanted is not None and wanted < 1:
        raise SettingsError(f"workers must be 1 or more, not {wanted}", setting="workers")
    if cluster is not None:
        from streamsvm.training.parallel.cluster import find_cluster

        return find_cluster(cluster, wanted, settings.splits)
    if wanted is None:
        wanted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Threads(min(wanted, settings.splits))


def new_learner(
    settings: Settings,
    storage: Any,
    class_counts: np.ndarray,
    *,
    workers: Threads | Cluster,
    dual_entries: int,
    block_rows: int,
    ids_dtype: np.dtype,
    bytes_of_bits: int,
    pairs: ClassPairs | None,
    common_dual: bool,
    data: TrainingData | None = None,
) -> Any:
    """The learner of a run.

    Parameters
    ----------
    settings : Settings
        With the split settled.
    storage : WeightStorage
        With the columns of `groups_of`, if there are groups.
    class_counts : ndarray, shape (n_classes,)
        Rows of each class.
    workers : Threads or Cluster
    dual_entries : int
        New duals that may be held before they are stored.
    block_rows : int
        Rows of the largest block.
    ids_dtype, bytes_of_bits
        Of the duals.
    pairs, common_dual
        As for `Learner`.
    data : TrainingData, optional
        What the workers of a cluster read.
    """
    from streamsvm.training.learner import Learner, new_buffer
    from streamsvm.training.parallel.class_learner import ClassSplitLearner
    from streamsvm.training.parallel.row_learner import RowSplitLearner

    k, groups = len(class_counts), groups_of(settings, class_counts)
    each = dual_entries // settings.splits
    if not isinstance(workers, Threads):
        from streamsvm.training.parallel.cluster_learners import ClusterClassLearner, ClusterRowLearner

        assert data is not None
        if groups is not None:
            return ClusterClassLearner(settings, storage, k, groups, workers, data, each, block_rows)
        return ClusterRowLearner(
            settings, storage, k, pairs, workers, data, each, block_rows, ids_dtype, bytes_of_bits
        )
    if groups is not None:
        return ClassSplitLearner(settings, storage, k, groups, workers, each, block_rows)
    if settings.splits > 1:
        return RowSplitLearner(
            settings, storage, k, pairs, workers, each, block_rows, ids_dtype, bytes_of_bits
        )
    buffer = new_buffer(dual_entries, block_rows, np.dtype(settings.dtype), ids_dtype, bytes_of_bits)
    return Learner(settings, storage, buffer, k, pairs, common_dual=common_dual)
