"""`streamsvm tune`: search for C and other settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, EventTable, stop_on_signals
from streamsvm_cli.conversion import print_report
from streamsvm_cli.fit import finish
from streamsvm_cli.options import FORCE, RUN, TRAINING, command
from streamsvm_cli.wording import count

from streamsvm.settings.field import declared
from streamsvm.settings.fit import TO_TUNE
from streamsvm.settings.reading import ReadingSettings
from streamsvm.settings.search import SearchSettings


@command(
    declared(SearchSettings), TO_TUNE, declared(ReadingSettings), {"out": RUN}, TRAINING, {"force": FORCE}
)
def tune(
    console: Console,
    data: Annotated[
        list[Path], typer.Argument(metavar="DATA", help="LIBSVM text, a table, a matrix, AnnData or a store.")
    ],
    **settings: Any,
) -> None:
    """Choose C and other settings, and train with the best.

    Example: streamsvm tune train.txt --out run --C 2^-6:2^3

    Each run tries all values of C and, if the loss allows it, starts each from the solution for the previous
    one. Accuracy is measured on held-out rows. After an interruption, repeat the command to continue.
    """
    import streamsvm

    with stop_on_signals() as stop:
        result: Any = streamsvm.tune(
            data, report=TuneReporter(console), progress=console.progress, stop=stop, **settings
        )
    chosen = ", ".join(filter(None, (f"C {result.C:.4g}", differing({"settings": result.settings}))))
    console.say(f"chosen as the best of {count(len(result.tried), 'candidate')}: {chosen}")
    tried, made = (count(n, "pass") for n in (result.valid_passes, result.result.passes))
    console.say(
        f"accuracy {result.valid_accuracy:.4f} was measured after {tried}, including those with smaller C"
        f"{'' if settings['valid'] else ', on held-out rows'}; the model took {made} over all rows:"
    )
    finish(console, result.result, is_end=False)
    console.result(dataclasses.asdict(dataclasses.replace(result, model=None)))


class TuneReporter(EventTable):
    """Print a line for each combination of settings, or, if the search is a single run, for each pass."""

    COLUMNS = (
        ("C", 11, "C", ".4g"),
        ("accuracy", 8, "valid_accuracy", ".4f"),
        ("+-", 6, "valid_accuracy_std", ".4f"),
        ("seconds", 8, "seconds", ".2f"),
    )
    LAST = "settings"

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._by_pass = False
        self._shown: set[int] = set()
        self._printed: set[str] = set()
        self._tried = 0  # number of passes for the settings tried

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "convert":
            print_report(self.console, event["report"])
        elif event["event"] == "search":
            self.console.say(count(event["trainings"], "training run"))
            self._by_pass = event["trainings"] == 1 and not self._headed  # no setting was tried before
            if self._by_pass:  # these columns would describe single passes
                self.left_out |= {"seconds", "valid_accuracy_std"}
        elif event["event"] == "plan" and event["held_out"] and event["held_out"] not in self._printed:
            self._printed.add(event["held_out"])
            self.console.say(event["held_out"])
        elif event["event"] == "pass" and self._by_pass and {"trial", "valid_accuracy"} <= event.keys():
            self._shown.add(event["pass"])
            self.line(event)
        elif event["event"] == "tried":
            self._tried += event["passes"]
            self.left_out |= {"valid_accuracy_std"} - event.keys()
            if self._tried not in self._shown:  # already shown, unless an earlier process made these passes
                self.line(event, differing(event))


def differing(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value or 'default'}" for name, value in row.get("settings", {}).items())
