"""Write the HTML report of a run: a page with results, curves, classes and settings."""

from __future__ import annotations

import functools
import html
import io
import os
import re
import string
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import plot
from streamsvm.base import durable
from streamsvm.base.repr import html_table
from streamsvm.base.text import shortened
from streamsvm.errors import ModelError, RunError, StreamsvmError
from streamsvm.info import inspect
from streamsvm.prediction.class_counts import MEASURES, records_of
from streamsvm.prediction.evaluation import Evaluation, evaluate
from streamsvm.prediction.label_set_evaluation import LabelSetEvaluation
from streamsvm.reporting.history import History, read_history
from streamsvm.run.directory import RunDir
from streamsvm.settings.fit import Settings
from streamsvm.settings.scoring import TO_EVALUATE
from streamsvm.settings.signature import takes
from streamsvm.training.validation import open_validation

_MAX_ROWS = 30
_CURVES: dict[str, Callable[..., Any]] = {
    "Relative gap": plot.convergence,
    "Objective": functools.partial(plot.convergence, of="objective"),
    "Accuracy": plot.accuracy,
    "Progressive accuracy": plot.progressive,
}
_COLUMNS = (
    "pass", "rows", "C", "primal", "primal_estimate", "dual", "relative_gap", "relative_gap_estimate",
    "average_relative_gap", "train_accuracy", "valid_accuracy", "last_iterate_valid_accuracy",
    "progressive_accuracy", "recent_accuracy", "seconds",
)  # fmt: skip
_SETTINGS = {"passes": "maximum passes"}  # in other tables, passes are completed passes
_Evaluation = Evaluation | LabelSetEvaluation


@takes(TO_EVALUATE, after="memory")
def report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    data: Any = None,
    memory: int | str = 2**28,
    force: bool = False,
    **settings: Any,
) -> Path:
    """Write a report of a run as one self-contained HTML page; return the path of the file.

    The page shows figures for the model and for each pass, curves of the gap, objective and accuracy, and the
    settings. With held-out data, it also shows the classes with the lowest F1, the accuracy of the rows with
    the largest probabilities, and the confusion matrix. The run may be unfinished. Reports of the same run
    are identical, byte for byte.

    Parameters
    ----------
    run : path of a run directory
    out : path, optional
        Output file. By default, ``report.html`` in the run directory is written or replaced.
    data : as for `streamsvm.evaluate`, optional
        Held-out data; by default the validation store of the run.
    memory : as for `streamsvm.evaluate`
    **settings
        See `ScoringSettings`.
    force : bool
        Whether to replace an existing file `out`.

    Raises
    ------
    RunError
        If there is no run, if ``run.json`` is damaged, or if `out` cannot be written or may not be replaced.
    ModelError, FeatureError, StoreError, InputError
        If `data` is passed, but there is no model, or if the data cannot be read or does not fit the model.
    StreamsvmError
        If matplotlib is not installed.
    """
    if out is not None:
        durable.check_replaceable(Path(out), RunError, force=force)
    plot.check_matplotlib()
    directory = RunDir(Path(run))
    history, state = read_history(directory.path), inspect(directory.path)
    history.notes.extend(state["damage"])
    evaluation = _evaluate(directory, history, data, {**settings, "memory": memory})
    content = _page(directory.path.resolve().name, history, state, evaluation).encode()
    target = directory.report if out is None else Path(out)
    with durable.os_errors_as(RunError, target, "written"):
        if out is None:
            durable.write_atomic(target, content)
        else:
            with durable.replacing(target) as temporary:
                temporary.write_bytes(content)
    return target


def _evaluate(run: RunDir, history: History, data: Any, options: dict[str, Any]) -> _Evaluation | None:
    if data is not None:
        return evaluate(run.path, data, **options)
    if not run.model.exists() or (path := history.settings.get("valid")) is None:
        return None
    try:
        with open_validation(Settings(**history.settings)) as store:
            if store.fingerprint != run.read_settings().get("valid_fingerprint"):
                history.notes.append(f"the validation store {path} has changed since the run began")
            return evaluate(run.path, store, memory=options["memory"])
    except StreamsvmError as error:
        history.notes.append(f"the model cannot be evaluated on {path}: {error.message.problem}")
    return None


def _page(name: str, history: History, state: dict[str, Any], evaluation: _Evaluation | None) -> str:
    status = "finished, with a model" if state["model"] else "in progress or interrupted, without a model"
    data = state["files"].get("data") or state.get("store") or state["input"].get("inputs")
    about = {"status": status, "data": data}
    about |= {"loss": history.settings["loss"], "C": state["C"], **state["result"]}
    return string.Template(Path(__file__).with_name("page.html").read_text()).substitute(
        name=_text(name),
        notes="\n".join(f'<p class="note">{_text(note)}</p>' for note in dict.fromkeys(history.notes)),
        result=_facts(about, "Result"),
        evaluation="" if evaluation is None else evaluation._repr_html_(),
        answered=_svg("Answered rows", plot.answered, evaluation),
        curves="\n".join(_svg(title, draw, history) for title, draw in _CURVES.items()),
        reports=_reports(history.passes or history.rows),
        classes=_classes(evaluation),
        settings=_facts({_SETTINGS.get(name, name): value for name, value in history.settings.items()}),
    )


def _text(text: object) -> str:
    return html.escape(shortened(text, 2000))


def _facts(facts: dict[str, Any], title: str = "") -> str:
    known = [(name.replace("_", " "), value) for name, value in facts.items() if value is not None]
    return html_table(known, title=title)


def _reports(records: list[dict[str, Any]]) -> str:
    names = [name for name in _COLUMNS if any(each.get(name) is not None for each in records)]
    shown = records if len(records) <= _MAX_ROWS else records[:10] + records[10 - _MAX_ROWS :]
    rows = [[each.get(name) for name in names] for each in shown]
    headings = [name.replace("_", " ") for name in names]
    return html_table(rows, title=f"{len(shown)} of {len(records):,} reports", headings=headings)


def _classes(evaluation: _Evaluation | None) -> str:
    if evaluation is None or (counts := evaluation.counts) is None:
        return (
            "<p>The table of classes needs a model that predicts labels, and held-out data: either the "
            "validation store of the run, or data passed to the report.</p>"
        )
    worst = counts.worst()
    shown = worst[:_MAX_ROWS]
    confused = {}  # read in reverse, so the most frequent pair is kept
    for true, predicted, count in counts.pairs[np.isin(counts.pairs[:, 0], shown)][::-1].tolist():
        confused[true] = f"{counts.names[predicted]} ({count:,})"
    records = records_of(counts.table(shown))
    rows = [[*each.values(), confused.get(code)] for code, each in zip(shown.tolist(), records, strict=True)]
    title = f"{len(shown)} of {len(worst):,} classes, lowest F1 first"
    table = html_table(rows, title=title, headings=["class", *MEASURES, "most often predicted as"])
    if isinstance(evaluation, LabelSetEvaluation):
        return table
    size = plot.matrix_size(len(counts.names))
    return table + _svg("Confusion matrix", plot.confusion, evaluation, size)


def _svg(title: str, draw: Callable[..., Any], of: Any, size: tuple[float, float] = (3.9, 2.9)) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # browsers have these glyphs
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": title})
        figure = Figure(figsize=size, layout="constrained")
        try:
            draw(of, figure.add_subplot()).set_title(title)
        except (RunError, ModelError):
            return ""
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    return re.sub('<g id="[^"]*"', "<g", svg[svg.index("<svg") :])  # ids must be unique on a page
