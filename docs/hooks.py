"""What MkDocs calls while it builds the site: the page of the commands is their own help."""

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


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Add the help of each command to the page of the commands."""
    if page.file.src_uri != PAGE:
        return markdown
    from streamsvm_cli.commands import app
    from typer.main import get_command

    parts = [markdown, f"```text\n{help_of()}\n```"]
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        parts.append(f"## {name}\n\n```text\n{help_of(name)}\n```")
    return "\n\n".join(parts)
