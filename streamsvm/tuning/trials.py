"""Trainings of a search for settings on a store, in run directories below that of the best one."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.base import durable, format
from streamsvm.base.text import absolute
from streamsvm.errors import Call, Interrupted, Option, PlanError, Remedy, RunError
from streamsvm.model.results import FitResult
from streamsvm.run.directory import RunDir, check_place, claimed
from streamsvm.settings.fit import Interval, Settings
from streamsvm.training.costs import read_training_costs
from streamsvm.training.fit_store import fit_store
from streamsvm.training.held_out import open_held_out
from streamsvm.training.prepare import class_counts, fit_to_store, prepare
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import open_to_train
from streamsvm.transforms import parse_transforms
from streamsvm.transforms.defaults import with_transform
from streamsvm.transforms.fitting import FittedTransforms


class Trial(NamedTuple):
    """One training of a search.

    Attributes
    ----------
    name : str
        Of its run directory, and in reports.
    part : int
        Number, counted from 0, of the part of the rows that is held out.
    settings : Settings
    """

    name: str
    part: int
    settings: Settings


@dataclasses.dataclass
class StoreSearch:
    """Trainings on a store, one after the other.

    Parameters
    ----------
    paths : sequence of path
        The store.
    out : Path
        Run directory of the training with the best settings.
    every : Interval
    callbacks : Callbacks
    given : mapping
        Values of ``costs`` and ``tree`` that are not files, by name.
    workers : int, optional
        Threads of trainings that are split; or workers of the cluster to wait for.
    cluster : str or path, optional
    made : mapping
        Entries of ``run.json`` about stores that were made of files, if there are any.
    """

    paths: Sequence[str | os.PathLike[str]]
    run: RunDir
    every: Interval
    callbacks: Callbacks
    given: Mapping[str, Any]
    workers: int | None
    cluster: str | os.PathLike[str] | None
    made: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.paths = [absolute(path) for path in self.paths]
        self._parts: list[str | None] = []  # held out by trainings that share a reading; None for none
        self._transforms: dict[tuple[str | None, str | None], FittedTransforms] = {}

    def begin(self, trials: Sequence[Trial], *, passes: int, force: bool) -> None:
        """Make the folder of the search, or check that an earlier one has the same settings and data.

        `passes` is the number of passes of the training with the best settings.
        """
        run, settings = self.run, trials[0].settings
        check_place(run)
        with open_to_train(self.paths, settings) as store:
            prints = [store.fingerprint]
            weights = read_training_costs(settings, store.classes, class_counts(store, settings), self.given)
        if settings.valid is not None:
            with open_held_out("valid", settings) as store:
                prints.append(store.fingerprint)
        asked = {
            "trainings": {trial.name: dataclasses.asdict(trial.settings) for trial in trials},
            "passes": passes,
            "fingerprints": prints,
            "error_weights": weights.record(),
            **self.made,
        }
        asked = json.loads(json.dumps(asked))
        has_begun = run.tuned.exists() or run.settings.exists() or any(run.trials.glob("*"))
        if run.tuning.exists() and has_begun and not force:
            self._check_asked(asked)
            return
        with claimed(run, force=force, by_tune=True, kept=run.stores() if self.made else ()):
            for old in (run.tuned, run.trials):
                durable.remove(old)
            durable.make_dir(run.trials)
            durable.write_atomic(run.tuning, json.dumps(format.sealed(asked), indent=1).encode())

    def _check_asked(self, asked: Mapping[str, Any]) -> None:
        """Raise `RunError` unless the record of an earlier search is equal to `asked`."""
        run, found = self.run, self.run.read_tuning()
        if {**found, **asked} == found:
            return
        others = Remedy("give another {}, or {}", Option("out"), Option("force", True))
        passes = found.get("passes")
        if {**found, **asked, "passes": passes} == found:
            remedy = Remedy(f"give {{}}, or {others.words}", Option("passes", passes), *others.parts)
            raise RunError(
                f"{run.path} was begun by tune with passes {passes}, not {asked['passes']}", remedy=remedy
            )
        raise RunError(f"{run.path} was begun by tune with other settings or data", remedy=others)

    def known(self) -> list[dict[str, Any]]:
        """Read the results of an earlier search that was interrupted."""
        if not self.run.tuned.exists():
            return []
        try:
            rows = [json.loads(line) for line in self.run.tuned.read_text().splitlines()]
            for row in rows:
                if not all(math.isfinite(row[name]) for name in ("C", "valid_accuracy", "seconds", "passes")):
                    raise ValueError(row)
                dict(row["settings"])
            return rows
        except (ValueError, TypeError, KeyError):
            remedy = Remedy("{} begins anew", Option("force", True))
            raise RunError(f"{self.run.tuned} is damaged", remedy=remedy) from None

    def save(self, rows: Sequence[Mapping[str, Any]], trials: Sequence[Trial]) -> None:
        """Save the results, and delete the run directories of the finished `trials`."""
        durable.write_atomic(self.run.tuned, "".join(json.dumps(row) + "\n" for row in rows).encode())
        for trial in trials:
            durable.remove(self.run.trials / trial.name)

    def results(self, trials: Sequence[Trial]) -> Iterator[FitResult]:
        """Train each trial, and yield the results in their order."""
        if not trials:
            return
        self._parts = list(dict.fromkeys([None, *(trial.settings.hold_out for trial in trials)]))
        self.callbacks.report({"event": "search", "trainings": len(trials)})
        durable.make_dir(self.run.trials)
        for trial in trials:
            report = functools.partial(self._report, trial.name)
            callbacks = dataclasses.replace(self.callbacks, report=report)
            try:
                yield self._fit(self.run.trials / trial.name, trial.settings, callbacks)
            except Interrupted:
                goes_on = Remedy("{} goes on, with the same arguments", Call("tune"))
                raise Interrupted("stopped while settings were tried", remedy=goes_on) from None

    def _report(self, trial: str, event: dict[str, Any]) -> None:
        self.callbacks.report({**event, "trial": trial})

    def train(self, settings: Settings) -> tuple[FitResult, None]:
        """Train with the best settings, on all rows."""
        durable.remove(self.run.trials)
        return self._fit(self.run, settings, self.callbacks, tuned=True), None

    def _fit(
        self, folder: Path | RunDir, settings: Settings, callbacks: Callbacks, *, tuned: bool = False
    ) -> FitResult:
        return fit_store(
            self.paths, folder, settings, every=copy.copy(self.every), resume=True, callbacks=callbacks,
            given=self.given, fitted=self._fitted(settings), tuned=tuned, workers=self.workers,
            cluster=self.cluster, made=self.made if tuned else {},
        )  # fmt: skip

    def automatic_c(self, settings: Settings) -> float:
        """Return the C that a training with the settings would choose."""
        with open_to_train(self.paths, settings) as raw:
            fitted = self._fitted(settings)
            return prepare(raw, fitted, settings, self.given, self.callbacks).spec.settings.C

    def _fitted(self, settings: Settings) -> FittedTransforms:
        """Fit the transforms of the settings to the rows that are trained on.

        One reading serves all trainings with the same transforms, whatever part they hold out; if memory
        has no room for the statistics of all parts, each has a reading of its own.
        """
        wanted = settings.transform, settings.hold_out
        if wanted not in self._transforms:
            with open_to_train(self.paths, settings) as store:
                asked = parse_transforms(with_transform(settings, store.meta.get("encoding")).transform)
                fit = functools.partial(
                    fit_to_store, store, asked, settings, self.callbacks,
                    self.workers if self.cluster is None else None,
                )  # fmt: skip
                try:
                    fitted = fit(self._parts)
                except PlanError:
                    self._parts = []
                if not self._parts:
                    self._transforms.clear()
                    fitted = fit([settings.hold_out])
                for part, each in zip(self._parts or [settings.hold_out], fitted, strict=True):
                    self._transforms[settings.transform, part] = each
        return self._transforms[wanted]
