"""`streamsvm report`: a run as one HTML file, with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.options import Force, Memory, with_settings

from streamsvm.settings.scoring import TO_EVALUATE


@with_settings(TO_EVALUATE)
def report(
    console: Console,
    run: Annotated[Path, typer.Argument(help="Run directory; the run may be in progress.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="Held-out data, a store or a file of any kind that convert takes: by default the --valid of "
            "the run."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="HTML", help="File to write (default: report.html in RUN)."),
    ] = None,
    memory: Memory = "256M",  # type: ignore[assignment]
    force: Force = False,
    **settings: Any,
) -> None:
    """Write a report of a run: one HTML file to look at or send.

    Pictures of convergence, accuracies and tuning, the most confused classes, the accuracy of each class by
    its frequency, the strongest features, settings and provenance. Needs the extra
    plot: pip install 'streamsvm[plot]'.
    """
    import streamsvm

    written = streamsvm.report(run, out, data=data, memory=memory, force=force, **settings)
    console.say(f"wrote {written}")
    console.result({"out": str(written)})
