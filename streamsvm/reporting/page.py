"""Report of a run: one HTML file with all that is known of the run."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import plot
from streamsvm.base import durable
from streamsvm.base.text import parse_size, shortened
from streamsvm.errors import ModelError, RunError, StreamsvmError, extra
from streamsvm.info import inspect
from streamsvm.model.model import Model, load_model
from streamsvm.prediction.class_counts import records_of
from streamsvm.prediction.label_metrics import Evaluation
from streamsvm.prediction.label_set_metrics import LabelSetEvaluation
from streamsvm.prediction.outcomes import Outcomes, count_outcomes
from streamsvm.reporting.history import History, achieved, number, read_history, with_seconds
from streamsvm.reporting.pictures import Pictures
from streamsvm.run.directory import RunDir
from streamsvm.settings.fit import Settings
from streamsvm.settings.scoring import TO_EVALUATE
from streamsvm.settings.signature import takes
from streamsvm.training.held_out import open_held_out

_PACKAGES = ("streamsvm", "numpy", "scipy", "numba", "h5py", "zarr", "matplotlib", "jinja2")
_MAX_ROWS = 30  # of a table
_MAX_CLASSES = 9  # whose features are shown
_MAX_FEATURES = 8  # of each class
_MAX_PAIRS = 15  # of confused classes
_MAX_MATRIX = 20  # classes of a matrix of confusions
_SHARE = ".2%"  # of all accuracies
_MAX_LETTERS = 2000  # of a text from data


@takes(TO_EVALUATE, after="memory")
def report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    data: Any = None,
    memory: int | str = 2**28,
    force: bool = False,
    where: str | None = None,
    **settings: Any,
) -> Path:
    """Write a report of a run: one HTML file that needs no other, with pictures and tables.

    First what was trained on what, and the accuracy on held-out data; then, of such data, the matrix of
    confusions or the most confused pairs of classes, and precision, recall and F1 of the worst; then the gap
    and the accuracies by pass, the path of `streamsvm tune`, the features that speak most for classes,
    settings and provenance. The run may be in progress, interrupted or finished; a sentence replaces each
    part that it does not have yet. The same run gives the same bytes.

    Parameters
    ----------
    run : path
        Run directory.
    out : path, optional
        The file to write; by default ``report.html`` in the run directory, which is replaced.
    data : as for `streamsvm.evaluate`, optional
        Held-out data. By default the validation store of the run.
    memory, where
        As for `streamsvm.evaluate`.
    **settings
        As `ScoringSettings` declares them.
    force : bool
        Replace what is at `out`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    RunError
        If there is no run, its ``run.json`` is damaged, or `out` is there, and `force` not given, or
        cannot be written.
    ModelError, FeatureError, StoreError, InputError
        If `data` is given, and the run has no model, or the data cannot be read or does not fit.
    StreamsvmError
        If matplotlib or Jinja2 is not installed.
    """
    if out is not None:
        durable.check_replaceable(Path(out), RunError, force=force)
    directory = RunDir(Path(run))
    history = read_history(directory.path)
    plot.check_matplotlib()
    with extra(StreamsvmError, "reports are written with Jinja2, which is not installed", "plot"):
        import jinja2  # noqa: F401
    options = {**settings, "where": where, "memory": parse_size(memory)}
    content = _Report(directory, history).page(data, options).encode()
    target = directory.report if out is None else Path(out)
    with durable.os_errors_as(RunError, target, "written"):
        if out is None:
            durable.write_atomic(target, content)
        else:
            with durable.replacing(target) as aside:
                aside.write_bytes(content)
    return target


class _Report:
    """All that is known of a run, and the page made of it."""

    def __init__(self, run: RunDir, history: History) -> None:
        self._run = run
        self._history = history
        self._notes = list(history.notes)
        self._record: dict[str, Any] = {}
        self._state: dict[str, Any] = {
            "model": False,
            "commits": [],
            "damage": [],
            "result": achieved(history, {}),
        }
        if run.settings.exists():
            self._record, self._state = run.read_settings(), inspect(run.path)
        self._notes += self._state["damage"]
        self._model: Model | None = None
        if self._state["model"]:
            try:
                self._model = load_model(run.path)
            except StreamsvmError as error:
                self._notes.append(error.message)
        self._pictures = Pictures()
        valid, part = (history.settings.get(name) for name in ("valid", "hold_out"))
        self._held_out = f"{part} held out" if part else os.path.basename(valid or "")

    def page(self, data: Any, options: dict[str, Any]) -> str:
        """Make the HTML. If `data` is None, the validation store is read, as far as possible."""
        import jinja2
        from markupsafe import Markup

        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(Path(__file__).parent),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=lambda each: each if isinstance(each, Markup) else shortened(each, _MAX_LETTERS),
        )
        environment.filters.update(shortened=shortened, number=_number_text, used=_used, share=_share)
        outcomes = self._outcomes(data, options)
        return environment.get_template("page.html").render(
            name=self._run.path.resolve().name,
            state=self._state,
            about=self._about() if self._history.settings else None,
            share_form=_SHARE,
            settings=self._history.settings,
            setting_text=_setting_text,
            facts=self._facts(outcomes),
            notes=self._notes,
            history=self._history,
            passes=with_seconds(self._history.passes),
            training=self._training(),
            tuning=self._tuning(),
            model=self._model,
            outcomes=outcomes,
            confusion=None if outcomes is None else self._confusion(outcomes),
            features=None if self._model is None else self._features(self._model, outcomes),
            provenance=self._provenance(),
            max_rows=_MAX_ROWS,
        )

    def _outcomes(self, data: Any, options: dict[str, Any]) -> Outcomes | None:
        """Count predictions on held-out data; return None, perhaps with a note, if there is none."""
        if data is not None:
            if self._model is None:
                raise ModelError(f"{self._run.path} has no model yet, to score data with; leave the data out")
            named = options["where"] or (data if isinstance(data, str | os.PathLike) else "the data given")
            self._held_out = os.path.basename(os.path.normpath(named))
            return count_outcomes(self._model, data, **options)
        path = self._history.settings.get("valid")
        if self._model is None or path is None:
            return None
        try:
            with open_held_out("valid", Settings.from_record(self._history.settings)) as store:
                if store.fingerprint != self._record.get("valid_fingerprint"):
                    self._notes.append(f"the validation store {path} has changed since the run was begun")
                return count_outcomes(self._model, store, memory=options["memory"], where=path)
        except StreamsvmError as error:
            self._notes.append(f"the validation store cannot be scored: {error.message.problem}")
        return None

    def _about(self) -> str:
        """Say what was trained, on what."""
        record, result, C = self._record, self._state["result"], self._state["C"]
        data = record.get("store", {}).get("path") or record.get("input", {}).get("inputs") or ["-"]
        names = os.path.basename(os.path.normpath(data[0]))
        names += f" and {len(data) - 1:,} more" if len(data) > 1 else ""
        sizes = {name: result[name] for name in ("rows", "features", "classes") if result[name] is not None}
        counts = ", ".join(f"{n:,.0f} {name}" for name, n in sizes.items())
        C = C if isinstance(C, str) else format(C, ".4g")
        return f"Loss {record['settings']['loss']}, C {C}, on {names}: {counts}"

    def _facts(self, outcomes: Outcomes | None) -> dict[str, str]:
        """Collect the figures in large letters, the answer first."""
        result, of = self._state["result"], self._held_out
        if outcomes is None:
            found = {f"accuracy on {of}": _number_text(result, "valid_accuracy", _SHARE)}
        else:
            found = _accuracies(outcomes.evaluation, f"{of}, {outcomes.evaluation.n:,} rows")
        for name, key in (("training", "train_accuracy"), ("progressive", "progressive_accuracy")):
            found[f"{name} accuracy"] = _number_text(result, key, _SHARE)
        estimated = result["relative_gap"] is None
        gap = "relative_gap_estimate" if estimated else "relative_gap"
        found["relative gap" + " (estimate)" * estimated] = _number_text(result, gap, ".3g")
        found["passes"] = _number_text(result, "passes", ",.0f")
        if not self._history.passes:
            found["rows learned from"] = _number_text(result, "rows", ",.0f")
        if (seconds := result["seconds"]) is not None:
            long = seconds >= 120
            found["training time"] = str(timedelta(seconds=round(seconds))) if long else f"{seconds:.2f} s"
        return {name: value for name, value in found.items() if value != "-"}

    def _training(self) -> list[Any]:
        history, draw = self._history, self._pictures.draw
        drawn = [draw("Relative gap by pass", plot.convergence, history)]
        measured = [each for each in history.passes if each.keys() & {"train_accuracy", "valid_accuracy"}]
        if len(measured) > 1:
            drawn.append(draw("Accuracy by pass", plot.accuracy, history))  # the table has the only one
        if len(history.passes) > 1:
            drawn.append(draw("Seconds of each pass", plot.pass_times, history))
        return [*drawn, draw("Progressive accuracy", plot.progressive, history)]

    def _tuning(self) -> dict[str, Any]:
        tried = [{**each, "with": plot.settings_text(each.get("settings"))} for each in self._history.tried]
        return {
            "pictures": [self._pictures.draw("Valid accuracy by C", plot.tune_path, self._history)],
            "tried": sorted(tried, key=lambda each: -(number(each, "valid_accuracy") or 0.0)),
            "left_out": max(len({each["with"] for each in tried}) - plot.MAX_PATHS, 0),
        }

    def _confusion(self, outcomes: Outcomes) -> dict[str, Any]:
        """Make the matrix of few classes, or draw the most confused ones; list the worst classes."""
        draw, names, k = self._pictures.draw, outcomes.names, len(outcomes.names)
        worst = outcomes.worst()
        pairs = outcomes.pairs[:_MAX_PAIRS]
        matrix, drawn = None, []
        if k <= _MAX_MATRIX and not outcomes.several:
            counts = np.diag(outcomes.correct)
            counts[outcomes.pairs[:, 0], outcomes.pairs[:, 1]] = outcomes.pairs[:, 2]
            shares = counts / np.maximum(outcomes.rows, 1)[:, None]
            matrix = [(names[c], list(zip(counts[c], shares[c], strict=True))) for c in range(k)]
        else:
            height = 0.9 + 0.24 * len(pairs)
            drawn.append(draw("Most confused classes", plot.confusion, outcomes, n=_MAX_PAIRS, height=height))
        if len(worst) > _MAX_ROWS:
            drawn.append(draw("Accuracy of classes by frequency", plot.class_accuracy, outcomes))
        instead: dict[int, str] = {}
        of_worst = outcomes.pairs[np.isin(outcomes.pairs[:, 0], worst[:_MAX_ROWS])]
        for true, predicted, count in of_worst[::-1].tolist():  # so the most frequent one stays
            instead[true] = f"{shortened(names[predicted])} ({count:,})"
        table = records_of(outcomes.table(worst[:_MAX_ROWS]))
        return {
            "matrix": matrix,
            "pictures": drawn,
            "drawn": len(pairs),
            "covered": pairs[:, 2].sum() / max(outcomes.errors, 1),
            "classes": len(worst),
            "worst": [
                (row, instead.get(code, "-")) for code, row in zip(worst.tolist(), table, strict=False)
            ],
        }

    def _features(self, model: Model, outcomes: Outcomes | None) -> dict[str, Any]:
        names = model.record["classes"]
        k = len(names)
        if k <= _MAX_CLASSES:
            codes = np.arange(k)
        elif outcomes is not None:
            codes = np.argsort(-outcomes.rows, kind="stable")[:_MAX_CLASSES]
        else:
            codes = np.unique(np.linspace(0, k - 1, _MAX_CLASSES).round().astype(int))
        drawn = [
            self._pictures.draw(names[code], plot.top_features, model, names[code], n=_MAX_FEATURES)
            for code in codes
        ]
        return {"pictures": drawn, "shown": len(codes), "classes": k}

    def _provenance(self) -> dict[str, Any]:
        record, model = self._record, self._model
        store = record.get("store", {})
        transforms = record.get("transforms") if model is None else model.record.get("transforms")
        found = {
            "run": self._run.path.resolve(),
            "run format": record.get("version"),
            "store": store.get("path"),
            "inputs": record.get("input", {}).get("inputs"),
            "fingerprint": store.get("fingerprint"),
            "validation fingerprint": record.get("valid_fingerprint"),
            "transforms": transforms,
            "C chosen from the data": record.get("C_auto"),
            "commits": self._state["commits"],
            "model": None if model is None else _model_text(model),
            "begun or resumed": _time_of_change(self._run.settings),
            "last report of the run": _time_of_change(self._run.metrics),
            "this page": [f"Python {platform.python_version()}", *(f"{p} {version(p)}" for p in _PACKAGES)],
        }
        return {name: value for name, value in found.items() if value not in (None, "", [])}


def _accuracies(evaluation: Evaluation | LabelSetEvaluation, of: str) -> dict[str, str]:
    found: dict[str, float | None]
    if isinstance(evaluation, LabelSetEvaluation):
        found = {f"precision@{k} on {of}": value for k, value in evaluation.precision.items()}
        found["micro F1"] = evaluation.micro_f1
    else:
        found = {f"accuracy on {of}": evaluation.accuracy, "macro F1": evaluation.macro_f1}
        found["whole sequences right"] = evaluation.sequence_accuracy
    return {name: f"{value:{_SHARE}}" for name, value in found.items() if value is not None}


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:{_SHARE}}"


def _number_text(record: dict[str, Any], name: str, form: str) -> str:
    """Format a number of a record; return a hyphen if the record has none under this name."""
    value = number(record, name)
    return "-" if value is None else f"{value:{form}}"


def _used(columns: dict[str, tuple[str, str]], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Select the columns of a table, names and formats by heading, for which any record has a number."""
    has = {name for name, _ in columns.values() if any(number(each, name) is not None for each in records)}
    return {heading: column for heading, column in columns.items() if column[0] in has}


def _setting_text(value: Any) -> str:
    """Write a setting as text; of long lists the first 20 values."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join([_setting_text(each) for each in value[:20]] + ["..."] * (len(value) > 20))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_setting_text(each)}" for key, each in value.items())
    return str(value)


def _model_text(model: Model) -> list[str]:
    record = model.record
    parts = [f"{model.n_features:,} features x {len(model.classes_):,} classes, {model.dtype}"]
    parts += ["average of the iterates"] * bool(record.get("average"))
    return parts + [f"{record[name]:,} {name}" for name in ("passes", "rows") if record.get(name)]


def _time_of_change(path: Path) -> str | None:
    try:
        return f"{datetime.fromtimestamp(path.stat().st_mtime).astimezone():%Y-%m-%d %H:%M:%S %z}"
    except OSError:
        return None
