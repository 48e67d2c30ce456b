"""Choice of the split of a training, of its workers, and of the learner."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.base.threads import Threads, count_workers
from streamsvm.errors import Option, Remedy, SettingsError
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.weights import padded_classes
from streamsvm.losses import get_loss
from streamsvm.settings.fit import AUTO, CLASSES, ROWS, Settings
from streamsvm.training.parallel.class_groups import ClassGroups, group_classes

if TYPE_CHECKING:
    from streamsvm.cluster.client import Cluster
    from streamsvm.training.learner import Learner
    from streamsvm.training.training_data import TrainingData


def settle_split(settings: Settings, class_counts: np.ndarray, *, multilabel: bool) -> Settings:
    """Return settings in which ``split`` is no longer "auto".

    Raises
    ------
    SettingsError
        If the data cannot be split so: too few classes, or several labels a row.
    """
    if settings.splits == 1:
        return settings
    splits, n_classes = settings.splits, len(class_counts)
    if settings.split == AUTO:
        by_rows, _ = _by_rows(settings, class_counts, multilabel=multilabel)
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


def _by_rows(settings: Settings, class_counts: np.ndarray, *, multilabel: bool) -> tuple[bool, str]:
    """Return True if rows are better split than classes, and the reason."""
    if not get_loss(settings.loss).class_splits:
        return True, f"the loss {settings.loss} cannot be split by classes"
    if multilabel or not settings.can_split_classes:
        return True, "several labels a row, costs of pairs, or another solver cannot be split by classes"
    if settings.trained_loss.extra_columns or settings.trained_loss.centred:
        return True, "the mean over all classes stands still while groups of classes meet, which is slow"
    splits, k = settings.splits, len(class_counts)
    if k < 2 * splits:
        return True, f"{k:,} classes do not make {2 * splits} groups"
    # In each of 2S - 1 rounds a worker visits 1/S of the rows, over 1/S of the columns.
    dtype = np.dtype(settings.dtype)
    columns = group_classes(class_counts, 2 * splits, dtype).n_columns
    share = (2 * splits - 1) / splits**2 * columns / padded_classes(k, dtype)
    reason = f"with {k:,} classes in {2 * splits} groups each worker does {share:.2f} of one core's work"
    return share >= 1, reason


def why_split(settings: Settings, class_counts: np.ndarray, *, multilabel: bool) -> str:
    """Return the reason for the kind of split."""
    by_rows, reason = _by_rows(settings, class_counts, multilabel=multilabel)
    return reason if by_rows == (settings.split == ROWS) else "as asked for"


def groups_of(settings: Settings, class_counts: np.ndarray) -> ClassGroups | None:
    """Return the groups of the classes, or None if these are not split."""
    if settings.splits == 1 or settings.split != CLASSES:
        return None
    return group_classes(class_counts, 2 * settings.splits, np.dtype(settings.dtype))


def find_workers(
    settings: Settings, wanted: int | None, cluster: str | os.PathLike[str] | None = None
) -> Threads | Cluster:
    """Return the workers: a cluster if there is one, else threads.

    There are `wanted` threads, by default one a processor, but at most as many as splits.
    """
    number = count_workers(wanted)
    if cluster is not None:
        from streamsvm.cluster.client import Cluster, check_splits

        check_splits(settings.splits)
        return Cluster(cluster, wanted, settings.splits)
    return Threads(min(number, settings.splits))


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
    dual_matrix: bool = False,
    data: TrainingData | None = None,
    folder: Path | None = None,
) -> Learner:
    """Make the learner of a run.

    Parameters
    ----------
    settings : Settings
        Settings after `settle_split`.
    storage : WeightStorage
        Weights, with the columns of `groups_of` if there are groups.
    class_counts : ndarray, shape (n_classes,)
        Rows of each class.
    workers : Threads or Cluster
    dual_entries : int
        New duals that may be held before they are stored.
    block_rows : int
        Rows of the largest block.
    ids_dtype, bytes_of_bits
        Type of the duals' ids, and bytes of a row's bits.
    pairs, common_dual, dual_matrix
        As for `Learner`; only a training that is not split has a matrix of duals.
    data : TrainingData, optional
        Description of the data, for the workers of a cluster.
    folder : Path, optional
        The run directory, where they write duals and weights.
    """
    from streamsvm.training.learner import Learner, new_buffer
    from streamsvm.training.parallel.class_learner import ClassSplitLearner
    from streamsvm.training.parallel.row_learner import RowSplitLearner

    k, groups = len(class_counts), groups_of(settings, class_counts)
    each = -(-dual_entries // settings.splits)  # not 0: duals would not be kept
    threads = workers if isinstance(workers, Threads) else workers.threads
    for_classes: tuple[Any, ...] = settings, storage, k, groups, threads, each, block_rows
    for_rows = settings, storage, k, pairs, threads, each, block_rows, ids_dtype, bytes_of_bits
    if not isinstance(workers, Threads):
        from streamsvm.cluster.learners import ClusterClassLearner, ClusterRowLearner

        assert data is not None
        assert folder is not None
        learner = ClusterRowLearner(*for_rows) if groups is None else ClusterClassLearner(*for_classes)
        return learner.use(workers, data, folder, groups, ids_dtype, bytes_of_bits)
    if groups is not None:
        return ClassSplitLearner(*for_classes)
    if settings.splits > 1:
        return RowSplitLearner(*for_rows)
    buffer = new_buffer(dual_entries, block_rows, np.dtype(settings.dtype), ids_dtype, bytes_of_bits)
    return Learner(settings, storage, buffer, k, pairs, common_dual=common_dual, dual_matrix=dual_matrix)
