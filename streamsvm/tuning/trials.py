"""Trial runs of a search: in memory, or on a store with run directories in the folder ``tune``."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from streamsvm.base import durable, format
from streamsvm.errors import Option, PlanError, Remedy, RunError
from streamsvm.model.model import Model
from streamsvm.model.results import FitResult
from streamsvm.run.directory import RunDir, claimed
from streamsvm.settings.fit import Settings
from streamsvm.training.choose import choose
from streamsvm.training.create import create, fit_store, fit_to_store, open_matrix
from streamsvm.training.train import train
from streamsvm.training.training import Execution, open_to_train
from streamsvm.training.validation import open_validation
from streamsvm.transforms.defaults import with_transform
from streamsvm.transforms.fitting import FittedTransforms


class Trial(NamedTuple):
    """Trial run of a search."""

    name: str  # name of its run directory, also in reports
    part: int  # index of the held-out part
    settings: Settings


@dataclasses.dataclass
class StoreSearch:
    """Trial runs on a store, which start or resume like `streamsvm.fit` with ``resume_or_start``."""

    paths: Sequence[str | os.PathLike[str]]
    run: RunDir  # run directory of the final fit with the best settings
    how: Execution
    tables: Mapping[str, Any]  # values of ``costs`` or ``tree`` that are not files
    made: Mapping[str, Any]  # entries of ``run.json`` about stores converted from files

    def begin(self, trials: Sequence[Trial], *, force: bool) -> None:
        """Create a search's folder, or check that an existing search has the same trial runs and files."""
        run = self.run
        # Held-out parts whose transforms are fitted in one reading; None holds out nothing.
        self._parts = list(dict.fromkeys([None, *(trial.settings.hold_out for trial in trials)]))
        self._transforms: dict[tuple[str | None, str | None], FittedTransforms] = {}
        trainings = {trial.name: dataclasses.asdict(trial.settings) for trial in trials}
        expected = json.loads(json.dumps({"trainings": trainings, **self.made}))
        has_begun = run.settings.exists() or any(run.trials.glob("*"))
        if run.tuning.exists() and has_begun and not force:
            recorded = run.read_tuning()
            if {**recorded, **expected} != recorded:
                problem = f"{run.path} was started by tune with other settings or files"
                remedy = "choose a new folder with {}, or replace the run with {}"
                raise RunError(problem, remedy=Remedy(remedy, Option("out"), Option("force", True)))
        else:
            first = trials[0].settings
            self._fitted(first)  # raises an error if the data is unreadable, before the folder is created
            if first.valid is not None:
                with open_to_train(self.paths, first) as store:
                    label = first.label or store.meta.get("label")
                open_validation(dataclasses.replace(first, label=label)).close()
            with claimed(run, force=force, by_tune=True, kept=run.stores() if self.made else ()):
                durable.remove(run.tuned)
                durable.make_dir(run.trials)
                durable.write_atomic(run.tuning, json.dumps(format.sealed(expected), indent=1).encode())
        if not run.model.exists():
            self.how.callbacks.report({"event": "search", "trainings": len(trials)})

    def known(self) -> list[dict[str, Any]]:
        """Return the results of a completed search, or an empty list if the search is not complete."""
        if not self.run.model.exists():
            return []
        try:
            rows = [json.loads(line) for line in self.run.tuned.read_text().splitlines()]
            for row in rows:
                if not all(math.isfinite(row[name]) for name in ("C", "valid_accuracy", "seconds", "passes")):
                    raise ValueError(row)
                dict(row["settings"])
            return rows
        except (OSError, ValueError, TypeError, KeyError):
            remedy = Remedy("use {} to start a new search", Option("force", True))
            raise RunError(f"{self.run.tuned} is damaged", remedy=remedy) from None

    def save(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the results so far to a file, for reports."""
        durable.write_atomic(self.run.tuned, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def fit(self, trial: Trial) -> FitResult:
        def report(event: dict[str, Any]) -> None:
            self.how.callbacks.report({**event, "trial": trial.name})

        callbacks = dataclasses.replace(self.how.callbacks, report=report)
        folder, how = self.run.trials / trial.name, dataclasses.replace(self.how, callbacks=callbacks)
        fitted = self._fitted(trial.settings)
        result = fit_store(self.paths, folder, trial.settings, how, self.tables, resume=True, fitted=fitted)
        durable.remove(folder / format.MODEL)  # frees space; the last commit can restore the model
        return result

    def train(self, settings: Settings) -> tuple[FitResult, None]:
        result = fit_store(
            self.paths, self.run, settings, self.how, self.tables, resume=True, fitted=self._fitted(settings),
            tuned=True, made=self.made,
        )  # fmt: skip
        return result, None

    def chosen(self, settings: Settings) -> Settings:
        """Return the settings with automatic transforms and loss replaced by the best on a sample."""
        with open_to_train(self.paths, settings) as raw:
            create_trial = functools.partial(create, tables=self.tables)
            settings, choice = choose(raw, settings, self.how.callbacks, create_trial)
        self.made = {**self.made, "choice": choice}
        return settings

    def automatic_c(self, settings: Settings) -> float:
        with open_to_train(self.paths, settings) as raw:
            fitted = self._fitted(settings)
            opened = create(raw, settings, self.how, self.tables, paths=self.paths, fitted=fitted)
            return opened.training.spec.settings.C

    def _fitted(self, settings: Settings) -> FittedTransforms:
        """Fit the transforms of the settings to the rows to train on.

        The rows are read once to fit the transforms for all held-out parts. If the statistics of all parts do
        not fit into memory, the rows are read once for each part.
        """
        key = settings.transform, settings.hold_out
        if key not in self._transforms:
            with open_to_train(self.paths, settings) as store:
                resolved = with_transform(settings, store)
                fit = functools.partial(fit_to_store, store, resolved, self.how)
                try:
                    fitted = fit(self._parts)
                except PlanError:
                    self._parts = []
                if not self._parts:
                    self._transforms.clear()
                    fitted = fit([settings.hold_out])
                for part, each in zip(self._parts or [settings.hold_out], fitted, strict=True):
                    self._transforms[settings.transform, part] = each
        return self._transforms[key]


@dataclasses.dataclass
class ArraySearch:
    """Trial runs on a matrix. No intermediate results are saved."""

    data: tuple[Any, Any, Any]
    how: Execution
    tables: Mapping[str, Any]

    def fit(self, trial: Trial) -> FitResult:
        return self.train(trial.settings)[0]

    def train(self, settings: Settings) -> tuple[FitResult, Model | None]:
        return train(open_matrix(self.data, settings, self.how, self.tables, tuned=True), self.how)

    def chosen(self, settings: Settings) -> Settings:
        return open_matrix(self.data, settings, self.how, self.tables).training.spec.settings

    def automatic_c(self, settings: Settings) -> float:
        return open_matrix(self.data, settings, self.how, self.tables).training.spec.settings.C
