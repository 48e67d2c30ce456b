"""Checks that the settings of `fit` go together."""

from __future__ import annotations

from typing import Any

from streamsvm.errors import SettingsError, wrong_setting
from streamsvm.losses import LOSSES, get_loss


def check_combinations(settings: Any) -> None:
    """Raise `SettingsError` if settings, a `Settings`, are valid by themselves but do not go together."""
    _check_pairs(settings)
    _check_split(settings)
    if settings.hold_out is not None and settings.valid is not None:
        raise SettingsError(
            "valid and hold_out both give rows to measure; leave one of them out", setting="hold_out"
        )
    if settings.passes > 1 and not settings.keep_duals:
        raise wrong_setting(
            "keep_duals", "must be on with more than one pass: each starts from the duals of the last"
        )
    if settings.tol is not None and settings.gap != "pass":
        raise wrong_setting(
            "gap",
            f"must be pass with a tolerance, which needs the exact gap after each pass, not {settings.gap}",
        )


def _check_split(settings: Any) -> None:
    """Raise `SettingsError` if the training cannot be split as the settings ask."""
    loss = get_loss(settings.loss)
    if settings.splits > 1 and loss.sequences:
        settings.refuse("splits", f"1 with the loss {settings.loss}, whose sequences are solved as a whole")
    if settings.splits == 1 or settings.split != "classes":
        return
    if not loss.class_splits:
        able = ", ".join(name for name, other in LOSSES.items() if other.class_splits)
        settings.refuse(
            "split", f"rows with the loss {settings.loss}; the losses {able} can be split by classes"
        )
    if not settings.can_split_classes:
        settings.refuse(
            "split",
            "rows with costs, a tree, class weights in one-vs-rest, or a solver other than the default",
        )


def _check_pairs(settings: Any) -> None:
    """Raise `SettingsError` unless the settings have one source of margins at most, and the loss takes it."""
    check_one_table(settings.costs, settings.tree)
    if settings.has_pair_margins and not get_loss(settings.loss).pair_margins:
        able = ", ".join(name for name, other in LOSSES.items() if other.pair_margins)
        raise SettingsError(
            f"the loss {settings.loss} cannot have margins for each pair of classes; choose one of {able}",
            setting="loss",
        )


def check_one_table(costs: Any, tree: Any) -> None:
    """Raise `SettingsError` if there are costs and a tree."""
    if costs is not None and tree is not None:
        raise SettingsError("costs and tree are both a table of costs; leave one of them out", setting="tree")
