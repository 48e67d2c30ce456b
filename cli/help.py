"""Layout of `--help`: options in groups, as plain text, which is there in a tenth of a second.

Rich, with which Typer would draw the groups as panels, takes as long to import as everything else together.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

from typer.core import TyperCommand

from streamsvm.settings.field import declared
from streamsvm.settings.fit import Settings
from streamsvm.settings.online import OnlineSettings
from streamsvm.settings.reading import ReadingSettings

# Headings in the order of the help, and the names of parameters under each beside settings, which name their
# heading themselves. All others stand under the last one.
_GROUPS: dict[str, tuple[str, ...]] = {
    "Run": ("out", "into", "key", "resume_or_start", "keep_data", "force", "checkpoint_every", "dry_run"),
    "Model": (),
    "Training": ("passes_each", "folds"),
    "Weights and costs": ("weights",),
    "Labels": ("labels", "groups", "classes", "unseen_label"),
    "Features": (),
    "Text columns": (),
    "What is predicted": ("top_k", "threshold", "n_labels", "scores", "proba", "confusion"),
    "Rows": ("shuffle",),
    "Store": ("codec", "chunk_nnz"),
    "Computing": ("threads",),
    "Several cores": ("workers", "cluster"),
    "Fine tuning": (),
    "Other options": (),
}
# Options that most people need, of commands with many, in the order of the help.
_FIRST = {
    "convert": "out label labels weights like shuffle text n_features on_error memory force",
    "fit": "out valid passes tol C hold_out label text drop memory force loss transform",
    "tune": "out C hold_out folds valid passes_each passes label class_weight memory force loss transform",
    "online": "out C label labels like classes hash_bits on_error memory checkpoint_every force loss",
    "predict": "out into key top_k threshold scores proba label memory force",
    "evaluate": "top_k costs tree multilabel label labels memory",
}
_SETTINGS = declared(Settings) | declared(OnlineSettings) | declared(ReadingSettings)
_GROUP_OF = {name: each.group for name, each in _SETTINGS.items()}
_GROUP_OF |= {name: heading for heading, names in _GROUPS.items() for name in names}
_MAX_UNGROUPED = 9  # options that need no groups
_MAX_NAME_WIDTH = 30  # of an option, beside which there is text; all groups have the same columns


class Command(TyperCommand):
    """Command whose options are printed in groups.

    Attributes
    ----------
    names_others : bool
        Whether, if there are many options, those that few people need are only named.
    """

    names_others = False

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        first = _FIRST.get(ctx.info_name, "").split()
        grouped = sum(each.param_type_name == "option" for each in parameters) > _MAX_UNGROUPED
        headings = ["Arguments", "Most used", *(_GROUPS if grouped else ["Options"])]
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in headings}
        parameters.sort(key=lambda each: [*first, each.name].index(each.name))
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            record = record[0], record[1].replace("\\[", "[")  # as old versions write it, for Rich
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((record[0].partition(" <")[0], record[1]))
            else:
                heading = _GROUP_OF.get(parameter.name, headings[-1]) if grouped else headings[-1]
                heading = "Most used" if parameter.name in first else heading
                sections[heading].append(record)
        named = list(_GROUPS) if self.names_others and first else []
        shown = {
            heading: records for heading, records in sections.items() if records and heading not in named
        }
        width = min(max(len(name) for records in shown.values() for name, _ in records), _MAX_NAME_WIDTH)
        for heading, records in shown.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), words) for name, words in records])
        if named:
            formatter.write("\nDescribed by --help:\n")
        width = max(map(len, named), default=0)
        for heading in named:
            names = " ".join(re.findall(r"--[\w-]+", name)[0] for name, _ in sections[heading])
            for line in textwrap.wrap(names, formatter.width - width - 4, break_on_hyphens=False):
                formatter.write(f"  {heading:<{width}}  {line}\n")
                heading = ""
