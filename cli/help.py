"""Format help as plain text with groups of options; Rich would take 0.14 s more processor time."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from typer.core import TyperCommand

_HEADINGS = (
    "Arguments", "Most used", "Run", "Model", "Training", "Weights and costs", "Labels", "Features",
    "Text columns", "Rows", "Computing", "Several cores", "Fine tuning", "Options",
)  # fmt: skip
# Most used options of commands with many options, in their order in the help. -h lists the others by name.
_FIRST = {
    "convert": "out label labels weights like shuffle text n_features on_error memory force",
    "fit": "out valid passes tol C hold_out hold_out_by label text drop memory force loss transform",
    "tune": "out C hold_out hold_out_by folds valid passes_each passes label memory force loss transform",
    "online": "out C label labels like classes transform on_error memory checkpoint_every force loss",
    "predict": "out top_k threshold unknown scores proba explain label memory force",
    "evaluate": "top_k costs tree multilabel label labels memory",
}
_MAX_NAME_WIDTH = 30  # the text of an option with a longer name starts on the next line


class Command(TyperCommand):
    """Command that groups its options in the help; if `short`, the help only names less used options."""

    short = False

    def format_options(self, ctx: Any, formatter: Any) -> None:
        first = _FIRST.get(ctx.info_name, "").split()
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _HEADINGS}
        for each in sorted(self.get_params(ctx), key=lambda each: [*first, each.name].index(each.name)):
            name, words = each.get_help_record(ctx) or ("", "")
            heading = getattr(each, "rich_help_panel", None) if first else None
            if each.param_type_name == "argument":
                name, heading = name.partition(" <")[0], "Arguments"
            elif each.name in first:
                heading = "Most used"
            sections[heading or "Options"].append((name, words))
        others = _HEADINGS[2:] if first and self.short else ()
        shown = {heading: rows for heading, rows in sections.items() if rows and heading not in others}
        width = min(max(len(name) for rows in shown.values() for name, _ in rows), _MAX_NAME_WIDTH)
        for heading, rows in shown.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), words) for name, words in rows])
        if others:
            names = [re.findall(r"--[\w-]+", name)[0] for heading in others for name, _ in sections[heading]]
            lines = textwrap.wrap(" ".join(names), formatter.width - 2, break_on_hyphens=False)
            formatter.write("\n  ".join(["\nDescribed by --help:", *lines]) + "\n")
