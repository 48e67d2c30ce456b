"""What MkDocs calls while it builds the site: the help of the commands, and the table of losses."""

from __future__ import annotations

import re
from typing import Any

PAGE = "reference/commands.md"
WIDTH = 100


def help_of(*words: str) -> str:
    """What `streamsvm WORDS --help` prints."""
    from streamsvm_cli.commands import app
    from typer.testing import CliRunner

    env = {"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH), "NO_COLOR": "1"}
    shown = CliRunner().invoke(
        app, [*words, "--help"], prog_name="streamsvm", env=env, terminal_width=WIDTH, max_content_width=WIDTH
    )
    if shown.exit_code != 0:
        raise RuntimeError(f"streamsvm {' '.join(words)} --help: {shown.output}")
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.output).strip("\n")


def table_of_losses() -> str:
    """Return the table of losses as Markdown."""
    from streamsvm.losses import LOSSES

    rows = [
        "| `--loss` | formulation | `--solver` | own options | several labels | costs, tree | splits by |"
    ]
    rows.append("|---|---|---|---|---|---|---|")
    for loss in LOSSES.values():
        options = [*["margin"] * (len(loss.margins) > 1), *loss.parameters]
        splits = [] if loss.sequences else [*["classes"] * loss.class_splits, "rows"]
        cells = [
            f"`{loss.name}`", loss.title, ", ".join(f"`{each}`" for each in loss.solvers),
            ", ".join(f"`--{each}`" for each in options), "yes" if loss.label_sets else "",
            "yes" if loss.pair_margins else "", ", ".join(splits),
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Add the help of each command to the page of the commands, and the table to the page of losses."""
    if page.file.src_uri == "losses.md":
        return re.sub(
            "^The site has the table of losses here.*$", table_of_losses(), markdown, flags=re.MULTILINE
        )
    if page.file.src_uri != PAGE:
        return markdown
    from streamsvm_cli.commands import app
    from typer.main import get_command

    parts = [markdown, f"```text\n{help_of()}\n```"]
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        parts.append(f"## {name}\n\n```text\n{help_of(name)}\n```")
    return "\n\n".join(parts)
