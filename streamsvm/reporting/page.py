"""The report of a run: one HTML file with all that is known of it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import durable
from streamsvm.errors import ModelError, RunError, StreamsvmError
from streamsvm.info import inspect
from streamsvm.label_set_metrics import LabelSetEvaluation
from streamsvm.model import Model, load_model
from streamsvm.reporting import class_sections, html, training_sections
from streamsvm.reporting.drawing import check_matplotlib
from streamsvm.reporting.history import History, number, read_history, with_seconds
from streamsvm.reporting.outcomes import Outcomes, count_outcomes
from streamsvm.reporting.svg import Pictures
from streamsvm.reporting.words import (
    duration,
    model_text,
    number_text,
    percent,
    setting_text,
    time_of_change,
    time_text,
    version_of,
)
from streamsvm.run.directory import RunDir
from streamsvm.settings import Settings
from streamsvm.text import parse_size
from streamsvm.training.held_out import open_held_out

_PACKAGES = ("numpy", "scipy", "numba", "h5py", "zarr", "matplotlib")


def report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    data: Any = None,
    label: str | None = None,
    layer: str | None = None,
    raw: bool = False,
    memory: int | str = 2**28,
    force: bool = False,
    where: str | None = None,
) -> Path:
    """Write a report of a run: one HTML file that needs no other, with pictures and tables.

    It has the objective and the gap by pass and by second, progressive and held-out accuracies, the path of
    `streamsvm tune`, the features that speak most for classes, settings and provenance; with held-out data
    also the most confused pairs of classes, and the accuracy of each class against its frequency. The run may
    be in progress, interrupted or finished; what it does not have yet is left out, with a sentence.

    Parameters
    ----------
    run : path
        Run directory.
    out : path, optional
        The file to write; by default ``report.html`` in the run directory, which is replaced.
    data : as for `streamsvm.evaluate`, optional
        Held-out data. By default the validation store of the run.
    label, layer, raw, memory, where
        As for `streamsvm.evaluate`.
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
        If matplotlib is not installed.
    """
    check_matplotlib()
    if out is not None:
        durable.check_replaceable(Path(out), RunError, force=force)
    directory = RunDir(Path(run))
    options = {"label": label, "layer": layer, "raw": raw, "memory": parse_size(memory), "where": where}
    text = _Report(directory, read_history(directory.path)).text(data, options)
    target = directory.report if out is None else Path(out)
    try:
        if out is None:
            durable.write_atomic(target, text.encode())
        else:
            with durable.replacing(target) as aside:
                aside.write_bytes(text.encode())
    except OSError as error:
        raise RunError(f"{target} cannot be written: {durable.reason(error)}") from None
    return target


class _Report:
    """What is known of a run, and the page that says it."""

    def __init__(self, run: RunDir, history: History) -> None:
        self._run = run
        self._history = history
        self._notes = list(history.notes)
        self._record: dict[str, Any] = {}
        self._state: dict[str, Any] = {"model": False, "commits": [], "damage": []}
        if run.settings.exists():
            self._record, self._state = run.read_settings(), inspect(run.path)
        self._notes += self._state["damage"]
        self._model = self._load_model()

    def _load_model(self) -> Model | None:
        if not self._state["model"]:
            return None
        try:
            return load_model(self._run.path)
        except StreamsvmError as error:
            self._notes.append(error.message)
            return None

    def text(self, data: Any, options: dict[str, Any]) -> str:
        """The page. If `data` is None, the validation store is read, as far as it can be."""
        outcomes = self._outcomes(data, options)
        name = self._run.path.resolve().name
        body = [
            f"<h1>{html.escaped(name)}</h1>",
            html.paragraph(self._summary(), "muted"),
            html.facts(self._facts(outcomes)),
            *(html.paragraph(note, "note") for note in self._notes),
            *self._sections(outcomes),
        ]
        return html.page(f"{name} - streamsvm report", body)

    def _sections(self, outcomes: Outcomes | None) -> Iterator[str]:
        pictures = Pictures()
        if self._record:
            yield from training_sections.training(self._history, pictures)
        yield from training_sections.tuning(self._history, pictures)
        if self._record:
            why_not = "the run has no model yet"
            if self._model is not None:
                why_not = "they need held-out data, from a validation store or given to the report"
            yield from class_sections.classes(outcomes, why_not, pictures)
        if self._model is not None:
            yield from class_sections.features(self._model, outcomes, pictures)
        yield from self._provenance()

    def _outcomes(self, data: Any, options: dict[str, Any]) -> Outcomes | None:
        """Counts on held-out data; None, with a note, if there are none and the caller gave no data."""
        if data is not None:
            if self._model is None:
                raise ModelError(f"{self._run.path} has no model yet, to score data with; leave the data out")
            return count_outcomes(self._model, data, **options)
        path = self._history.settings.get("valid")
        if self._model is None or path is None:
            return None
        try:
            with open_held_out(path, Settings.from_record(self._history.settings)) as store:
                if store.fingerprint != self._record.get("valid_fingerprint"):
                    self._notes.append(f"the validation store {path} has changed since the run was begun")
                return count_outcomes(self._model, store, memory=options["memory"], where=path)
        except StreamsvmError as error:
            self._notes.append(f"the validation store cannot be scored: {error.message.problem}")
        return None

    def _summary(self) -> str:
        state, settings = self._state, self._history.settings
        if not self._record:
            return "settings were tried; there is no run yet"
        C = settings["C"]
        what = f"loss {settings['loss']}, C {C if isinstance(C, str) else format(C, '.6g')}"
        if state["model"]:
            return f"{what}: finished, with a model"
        commit = f"last commit: {state['commits'][0]}" if state["commits"] else "no commit yet"
        return f"{what}: in progress or interrupted, without a model; {commit}"

    def _facts(self, outcomes: Outcomes | None) -> dict[str, str]:
        """The figures in large letters, of the model where it has them."""
        passes, rows = self._history.passes, self._history.rows
        last = passes[-1] if passes else rows[-1] if rows else {}
        averaged = self._model is None or bool(self._model.record.get("average"))
        found: dict[str, str | None] = {}
        if passes:
            found["passes"] = number_text(last["pass"], ",")
            found["relative gap"] = number_text(_of_model(last, "relative_gap", averaged), ".3g")
        else:
            found["rows learned from"] = number_text(number(last, "rows"), ",.0f")
            found["progressive accuracy"] = percent(number(last, "progressive_accuracy"))
        found |= _accuracies(outcomes) or {"valid accuracy": percent(number(last, "valid_accuracy"))}
        seconds = with_seconds(passes)[-1]["trained_seconds"] if passes else number(last, "seconds")
        found["training time"] = None if seconds is None or np.isnan(seconds) else duration(seconds)
        store, model = self._record.get("store", {}), self._model
        classes = store.get("n_classes") or (len(model.classes_) if model else number(last, "classes"))
        features = store.get("n_features") or (model.n_features_in_ if model else number(last, "features"))
        found |= {"classes": number_text(classes, ",.0f"), "features": number_text(features, ",.0f")}
        return {name: value for name, value in found.items() if value is not None}

    def _provenance(self) -> Iterator[str]:
        record, settings = self._record, self._history.settings
        if settings:
            yield html.heading("Settings")
            yield html.pairs(
                {name: setting_text(each) for name, each in settings.items() if each is not None}
            )
        yield html.heading("Provenance")
        store, stream, model = record.get("store", {}), record.get("input", {}), self._model
        versions = {name: version_of(name) for name in _PACKAGES}
        found: dict[str, Any] = {
            "run": self._run.path.resolve(),
            "run format": record.get("version"),
            "store": setting_text(store.get("path")),
            "inputs": setting_text(stream.get("inputs")),
            "fingerprint": store.get("fingerprint"),
            "validation fingerprint": record.get("valid_fingerprint"),
            "transforms": setting_text(
                record.get("transforms") if model is None else model.record.get("transforms")
            ),
            "C chosen from the data": setting_text(record.get("C_auto")),
            "commits": "; ".join(self._state["commits"]),
            "model": None if model is None else model_text(model),
            "begun or resumed": time_of_change(self._run.settings),
            "last report of the run": time_of_change(self._run.metrics),
            "this page": f"{time_text(datetime.now())}, streamsvm {version_of('streamsvm')}, Python "
            f"{platform.python_version()}, {', '.join(f'{name} {each}' for name, each in versions.items())}",
        }
        yield html.pairs({name: value for name, value in found.items() if value not in (None, "")})


def _of_model(record: dict[str, Any], name: str, averaged: bool) -> float | None:
    """A figure of the average or of the last iterate, whichever is the model; else of the other one."""
    average, last = number(record, f"average_{name}"), number(record, name)
    first, second = (average, last) if averaged else (last, average)
    return second if first is None else first


def _accuracies(outcomes: Outcomes | None) -> dict[str, str | None]:
    if outcomes is None:
        return {}
    evaluation = outcomes.evaluation
    if isinstance(evaluation, LabelSetEvaluation):
        of_best = {f"precision@{k}": percent(value) for k, value in evaluation.precision.items()}
        return {**of_best, "micro F1": percent(evaluation.micro_f1)}
    return {
        "accuracy": percent(evaluation.accuracy),
        "macro F1": percent(evaluation.macro_f1),
        "whole sequences right": percent(evaluation.sequence_accuracy),
    }
