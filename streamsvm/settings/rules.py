"""Check that the settings of `fit` are valid in combination."""

from __future__ import annotations

from typing import Any

from streamsvm.losses import get_loss, losses_with

ONE_TABLE = "left out with costs, because both define a table of costs"


def check_combinations(settings: Any) -> None:
    """Raise `SettingsError` if the values in `settings`, a `Settings`, cannot be combined."""
    loss, name = get_loss(settings.loss), settings.loss
    by_classes = settings.splits > 1 and settings.split == "classes"
    not_taken = settings.of_loss.keys() - {"margin", "solver", *settings.parameters}
    refused = (
        (settings.margin not in loss.margins, "margin",
         f"{' or '.join(map(str, loss.margins))} for the loss {name}"),
        (name == "auto" and (settings.margin, settings.solver) != (loss.margins[0], loss.solvers[0]), "loss",
         "the name of a loss if margin or solver is set"),
        (settings.solver not in loss.solvers, "solver", f"{' or '.join(loss.solvers)} for the loss {name}"),
        *((True, each, f"left out with the loss {name} and the solver {settings.solver}")
          for each in sorted(not_taken)),
        (not loss.has_inner_passes and settings.inner_passes not in (0, "auto"), "inner_passes",
         f"0 or auto with the loss {name}, where revisiting a row costs as much as the first visit"),
        (None not in (settings.costs, settings.tree), "tree", ONE_TABLE),
        (settings.has_pair_margins and not loss.pair_margins, "loss",
         f"one of {losses_with('pair_margins')} with margins for each pair of classes"),
        (settings.splits > 1 and loss.sequences, "splits",
         f"1 with the loss {name}, whose sequences are solved as a whole"),
        (by_classes and not loss.class_splits, "split",
         f"rows with the loss {name}; the losses {losses_with('class_splits')} can be split by classes"),
        (by_classes and not settings.can_split_classes, "split",
         "rows with costs, a tree, class weights in one-vs-rest, or a solver other than the default"),
        (settings.from_ is not None and (loss.sequences or name == "auto"), "from_",
         f"left out with the loss {name}, which cannot continue from a model"),
        (loss.sequences and settings.transform == "auto", "transform",
         f"named with the loss {name}, because auto uses a sample, which has no sequences"),
        (None not in (settings.from_, settings.transform), "transform",
         "left out when a model is continued, because its transforms are applied"),
        (None not in (settings.hold_out, settings.valid), "hold_out",
         "left out with valid, because both define the rows for the accuracy"),
        (settings.passes > 1 and not settings.keep_duals, "keep_duals",
         "on with more than one pass, because each pass starts from the duals of the previous one"),
        (settings.tol is not None and settings.gap != "pass", "gap",
         "pass if tol is set, which needs the exact gap after each pass"),
    )  # fmt: skip
    for is_wrong, setting, wanted in refused:
        if is_wrong:
            settings.refuse(setting, wanted)
