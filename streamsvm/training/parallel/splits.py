"""Decide how to split training: by classes or by rows."""

from __future__ import annotations

import dataclasses

import numpy as np

from streamsvm.errors import Option, Remedy, SettingsError, wrong_setting
from streamsvm.kernels.weights import padded_classes
from streamsvm.losses import get_loss
from streamsvm.settings.fit import AUTO, CLASSES, ROWS, Settings
from streamsvm.training.parallel.class_groups import group_classes


def settle_split(settings: Settings, class_counts: np.ndarray, *, multilabel: bool) -> Settings:
    """Resolve an automatic split, and return the settings; raise `SettingsError` if a split is impossible."""
    if settings.splits == 1:
        return settings
    if settings.split == AUTO:
        by_rows, _ = _by_rows(settings, class_counts, multilabel=multilabel)
        return dataclasses.replace(settings, split=ROWS if by_rows else CLASSES)
    obstacle = _obstacle(settings, len(class_counts), multilabel=multilabel)
    if settings.split == CLASSES and obstacle:
        raise SettingsError(obstacle, remedy=Remedy("use {}", Option("split", ROWS)), setting="split")
    return settings


def _obstacle(settings: Settings, n_classes: int, *, multilabel: bool) -> str | None:
    """Return the reason why classes cannot be split, or None if they can."""
    if not get_loss(settings.loss).class_splits:
        return f"training with the loss {settings.loss} cannot be split by classes"
    if multilabel or not settings.can_split_classes:
        return "several labels, pair costs, one-vs-rest class weights or the solver rule out splits by class"
    if n_classes < 2 * settings.splits:
        return f"{n_classes:,} classes are too few for {2 * settings.splits} groups, two for each split"
    return None


def _by_rows(settings: Settings, class_counts: np.ndarray, *, multilabel: bool) -> tuple[bool, str]:
    """Return whether splitting rows is better than splitting classes, and the reason."""
    splits, k = settings.splits, len(class_counts)
    if (obstacle := _obstacle(settings, k, multilabel=multilabel)) is not None:
        return True, obstacle
    if settings.trained_loss.extra_columns or settings.trained_loss.centred:
        return True, "a split by classes is slow, because rounds do not update the mean over all classes"
    # In each of the 2 S - 1 rounds for S splits, a worker visits 1/S of the rows over 1/S of the columns.
    dtype = np.dtype(settings.dtype)
    columns = group_classes(class_counts, 2 * splits, dtype).n_columns
    work = (2 * splits - 1) / splits**2 * columns / padded_classes(k, dtype)
    reason = f"with {k:,} classes in {2 * splits} groups, each worker does {work:.2f} of one core's work"
    return work >= 1, reason


def why_split(settings: Settings, class_counts: np.ndarray, *, multilabel: bool) -> str:
    by_rows, reason = _by_rows(settings, class_counts, multilabel=multilabel)
    return reason if by_rows == (settings.split == ROWS) else "as requested"


def check_splits(splits: int) -> None:
    """Raise `SettingsError` if there is only one split, which a cluster cannot distribute."""
    if splits == 1:
        remedy = Remedy("set {} to 2 or more", Option("splits"))
        raise wrong_setting("cluster", "has nothing to distribute in a run with one split", remedy)
