"""`streamsvm report`: write a report of a run with plots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.options import FORCE, MEMORY, Option, command

from streamsvm.settings import checks
from streamsvm.settings.scoring import TO_EVALUATE

_OPTIONS = {
    "data": Option(
        checks.PATH, None,
        "Held-out data: a store, or a file of any kind that convert reads. The default is the --valid "
        "data of the run.",
    ),
    "out": Option(
        checks.PATH._replace(metavar="HTML"), None, "File to write (default: report.html in RUN).",
        letter="o",
    ),
    "memory": MEMORY,
    "force": FORCE,
}  # fmt: skip


@command(_OPTIONS, TO_EVALUATE)
def report(
    console: Console,
    run: Annotated[Path, typer.Argument(help="Run directory; the run may be in progress.")],
    **settings: Any,
) -> None:
    """Write a report of a run as one HTML file.

    The report contains the measurements of each pass, plots of gap, objective and accuracy, and the settings.
    With held-out data, it also contains the accuracy of each class and the confusion matrix. The command
    needs the extra plot: pip install 'streamsvm[plot]'.
    """
    import streamsvm

    written = streamsvm.report(run, **settings)
    console.say(f"wrote {written}")
    console.result({"out": str(written)})
