"""Search for C, and for other settings, by the accuracy on rows that are held out.

All values of C are one training: each begins with the weights and duals of the one before, which are scaled
to be feasible and best for the new C. What is compared is the averaged model of the last pass of each C: the
last iterate, and the progressive accuracy, would prefer a smaller C.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import numbers
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamsvm.api import check_of_matrix, check_of_store, not_of_matrix, taken_out, without_tables
from streamsvm.base.progress import Progress, Report, shown
from streamsvm.base.text import as_paths
from streamsvm.base.threads import count_workers
from streamsvm.converted import converted
from streamsvm.data.arrays import label_column
from streamsvm.errors import (
    Call,
    InputError,
    Option,
    Remedy,
    SettingsError,
    StreamsvmWarning,
    warn,
    wrong_setting,
)
from streamsvm.inputs.matrix import begins_with_text
from streamsvm.losses import get_loss
from streamsvm.model.model import Model
from streamsvm.model.results import FitResult, TuneResult
from streamsvm.run.directory import RunDir, replacing
from streamsvm.settings.field import declared
from streamsvm.settings.fit import AUTO, TO_TUNE, Interval, Settings
from streamsvm.settings.reading import ReadingSettings
from streamsvm.settings.signature import takes
from streamsvm.training import fit_arrays
from streamsvm.training.parallel.splits import check_splits
from streamsvm.training.trainer import Callbacks
from streamsvm.transforms import parse_transforms
from streamsvm.tuning.trials import StoreSearch, Trial

_AUTO_FACTORS = tuple(2.0**power for power in range(-4, 6))
_HOLD_OUT = "1/10"
_SUGGESTED_VALUES = 4  # of C, to go on with
_OF_FILES = ("label", "labels", "weights", "valid", "valid_labels")  # settings that conversions change


@takes(TO_TUNE | declared(ReadingSettings), after="force")
def tune(
    data: Any,
    y: Any = None,
    *,
    groups: Any = None,
    out: str | os.PathLike[str] | None = None,
    C: Any = AUTO,
    loss: str | Sequence[str] = "ww",
    margin: float | Sequence[float] | None = None,
    transform: str | Sequence[str | None] | None = None,
    folds: int | None = None,
    hold_out: str | None = None,
    valid: str | os.PathLike[str] | None = None,
    passes_each: int = 2,
    passes: int = 3,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    checkpoint_every: str | float = "60s",
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Any = None,
    force: bool = False,
    **settings: Any,
) -> TuneResult:
    """Choose C, and a loss, margin and transforms if several are given, and train with the best.

    Trainings on a store have run directories in the folder ``tune`` of `out`, which is deleted before the
    best model is trained in `out`. After an interruption, the same call goes on.

    Parameters
    ----------
    data, y, groups
        As for `streamsvm.fit`; texts in memory are to be in a file.
    out : path, optional
        Run directory to create; needed for files.
    C : "auto", str or sequence of float
        Values to try: numbers, or a range such as "2^-6:2^3", by factors of its base; "0.01:10" goes by
        factors of 2. auto: 10 values by factors of 2 around the C of `fit` for the rows that are trained on;
        the table and the best training have that of all rows.
    loss, margin, transform
        As in `streamsvm.fit`, or a list of them, all combinations of which are tried. A list of transforms
        has texts such as ``"df=-0.25,l2"``, and ``"none"``; None stands for the default of the data.
    folds : int, optional
        Measure on each of so many parts, with as many trainings on the others; the mean counts.
    hold_out : str, optional
        Part of the rows to hold out, such as "1/10", the default.
    valid : path, optional
        Store, text or table to measure on instead of rows that are held out.
    passes_each : int
        Passes for each value of C.
    passes : int
        Passes of the training with the best, on all rows.
    workers, cluster, checkpoint_every, report, progress, stop
        As in `streamsvm.fit`. `report` gets each setting that was tried, also before an interruption, as
        ``{"event": "tried", ...}``, and of a store how many trainings there are, before them, as
        ``{"event": "search", ...}``; events of these have the name of their training as ``trial``.
    force : bool
        Replace an existing run.
    **settings
        As `Settings` declares them, the same for all; for files that are converted, those of reading, too.

    Returns
    -------
    TuneResult

    Raises
    ------
    SettingsError, StoreError, PlanError, InputError, RunError, Interrupted
        As in `streamsvm.fit`.
    """
    y, settings["label"] = label_column(y, settings.get("label"))
    reading = taken_out(settings, ReadingSettings)
    paths = as_paths(data)
    if y is not None and begins_with_text(data):
        raise InputError(
            "texts in memory are not tuned on", remedy=Remedy("write them to a table, and give its path")
        )
    tables = without_tables(settings)
    if paths is None:
        instead = "a matrix is trained on in memory", "of a matrix a part of the rows is held out"
        for name, value in (("out", out), ("cluster", cluster), ("valid", valid)):
            if value is not None:
                raise wrong_setting(name, f"is for a store; {instead[name == 'valid']}")
        check_of_matrix(settings)
        for name in reading.given():
            raise not_of_matrix(name, "give a file")
    else:
        check_of_store(out, y, groups, tables)
    settings = {name: value for name, value in settings.items() if value is not None}
    grid = parse_grid(C)
    if not isinstance(passes_each, numbers.Integral) or passes_each < 1:
        raise wrong_setting("passes_each", f"must be a whole number of 1 or more, not {passes_each!r}")
    parts = _parts(folds, hold_out, valid)
    common: dict[str, Any] = {**settings, "valid": valid, "seed": settings.get("seed", 0)}
    lists = {"loss": _listed(loss), "margin": _listed(margin), "transform": _listed(transform)}
    candidates = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]

    def list_trials() -> list[list[Trial]]:
        return [
            _trials(number, grid, passes_each, parts, {**common, **candidate})
            for number, candidate in enumerate(candidates, 1)
        ]

    trials = list_trials()  # which checks all of them before the first
    for each in lists["transform"]:
        parse_transforms(each)
    chosen = Settings(**{**common, **candidates[0]}, passes=passes)  # checks passes
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(shown(progress))
        count_workers(workers)  # checks it
        callbacks = Callbacks.of(report, progress, stop)
        if paths is None:
            if y is None and settings.get("label") is None:
                raise wrong_setting("y", "is missing: give one label for each row")
            search: _Search = _ArraySearch((data, y, groups), callbacks, tables, count_workers(workers))
        else:
            assert out is not None
            run = stack.enter_context(replacing(RunDir(out), [*paths, valid], force=force))
            if cluster is not None:  # one for all trainings
                from streamsvm.cluster.local_workers import running_cluster

                check_splits(chosen.splits)
                cluster, workers = stack.enter_context(running_cluster(cluster, workers, chosen.splits))
            every = Interval(checkpoint_every)
            # Groups are read if one of the losses needs them.
            first = max((some[0].settings for some in trials), key=lambda each: each.trained_loss.sequences)
            made = converted(
                paths, first, reading, run, force=force, resume=not force, keep=True, by_tune=True,
                workers=None if cluster else workers, callbacks=callbacks, on_cluster=cluster is not None,
            )  # fmt: skip
            paths = made.paths
            common |= {name: getattr(made.settings, name) for name in _OF_FILES}
            trials = list_trials()
            search = StoreSearch(paths, run, every, callbacks, tables, workers, cluster, made.record)
            search.begin(list(itertools.chain.from_iterable(trials)), passes=chosen.passes, force=force)
        rows = search.known()
        for row in rows:
            callbacks.report({"event": "tried", **row})
        n_known = len(rows) // len(grid.factors)
        results = search.results(list(itertools.chain.from_iterable(trials[n_known:])))
        for candidate, own in zip(candidates[n_known:], trials[n_known:], strict=True):
            found: list[list[dict[str, Any]]] = [[] for _ in parts]
            for trial in own:
                found[trial.part] += _measured(next(results))
            differing = {name: candidate[name] for name in lists if len(lists[name]) > 1}
            base = grid.C
            if base == AUTO:  # of all rows, as that of the model will be
                base = search.automatic_c(dataclasses.replace(own[0].settings, hold_out=None))
            new = [
                _mean(each, differing, base * factor)
                for *each, factor in zip(*found, grid.factors, strict=True)
            ]
            rows += new
            search.save(rows, own)
            for row in new:
                callbacks.report({"event": "tried", **row})
        # Of equal ones the first: the smallest C.
        best = max(range(len(rows)), key=lambda at: rows[at]["valid_accuracy"])
        candidate, step = divmod(best, len(grid.factors))
        _warn_of_end(rows[candidate * len(grid.factors) :][: len(grid.factors)], step, paths, out)
        on_path = get_loss(str({**common, **candidates[candidate]}["loss"])).linear_duals
        chosen = Settings(**{**common, **candidates[candidate]}, C=rows[best]["C"], passes=passes)
        result, model = search.train(chosen)
        return TuneResult(
            C=rows[best]["C"], settings=rows[best]["settings"],
            valid_accuracy=rows[best]["valid_accuracy"],
            valid_passes=passes_each * (step + 1 if on_path else 1),
            tried=rows, result=result, model=model,
        )  # fmt: skip


def _warn_of_end(
    tried: Sequence[Mapping[str, Any]], best: int, paths: Sequence[str] | None, out: Any
) -> None:
    """Warn if the best of several values of C is the smallest or the largest; say how to go on in `out`-2."""
    if len(tried) == 1 or best not in (0, len(tried) - 1):
        return
    C = tried[best]["C"]
    step = C / tried[1 if best == 0 else -2]["C"]
    further = ",".join(f"{value:.4g}" for value in sorted(C * step**n for n in range(_SUGGESTED_VALUES)))
    problem = f"the best C, {C:.4g}, is the {'smallest' if best == 0 else 'largest'} that was tried"
    options = (Option("C", further), *([] if out is None else [Option("out", f"{out}-2")]))
    data = paths[0] if paths and len(paths) == 1 else None
    warn(StreamsvmWarning(problem, remedy=Remedy("{} goes on", Call("tune", data, options))))


@dataclasses.dataclass(frozen=True)
class Grid:
    """Values of C to try, ascending: `factors` times `C`, which may be "auto"."""

    C: Any
    factors: tuple[float, ...]


def parse_grid(values: Any) -> Grid:
    """Parse the values of C as `tune` describes them; raise `SettingsError` if that is impossible."""
    if isinstance(values, str) and values == AUTO:
        return Grid(AUTO, _AUTO_FACTORS)
    found: list[float] = []
    try:
        if isinstance(values, str) and ":" in values:
            (first, base), (last, _) = map(_power, values.split(":"))
            steps = math.floor(math.log(last / first, base) + 1e-6)
            found = [first * base**step for step in range(steps + 1)]
        else:
            given = values.split(",") if isinstance(values, str) else np.atleast_1d(values).tolist()
            found = [_power(str(value))[0] for value in given]
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        found = []
    found = sorted(set(found))
    if not found or not all(0 < value < math.inf for value in found):
        wanted = "auto, numbers above 0 with commas between, or a range such as 2^-6:2^3"
        raise wrong_setting("C", f"must be {wanted}, not {values!r}")
    return Grid(1.0, tuple(found))


def _power(text: str) -> tuple[float, float]:
    """Parse a number, perhaps written as a power; return it and the base of the power, or 2."""
    base, is_power, exponent = text.strip().partition("^")
    if not is_power:
        return float(base), 2.0
    return float(base) ** float(exponent), float(base)


def _listed(value: Any) -> list[Any]:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return list(value) if isinstance(value, list | tuple) else [value]


def _parts(folds: int | None, hold_out: str | None, valid: Any) -> list[str | None]:
    """List the parts of the rows to hold out, each in a training of its own."""
    given = [name for name, value in (("folds", folds), ("hold_out", hold_out), ("valid", valid)) if value]
    if len(given) > 1:
        raise SettingsError(f"{' and '.join(given)} exclude one another", setting=given[0])
    if valid is not None:
        return [None]
    if folds is None:
        return [hold_out or _HOLD_OUT]
    if not isinstance(folds, numbers.Integral) or not 2 <= folds <= 100:
        raise wrong_setting("folds", f"must be a whole number from 2 to 100, not {folds!r}")
    return [f"{part}/{folds}" for part in range(1, folds + 1)]


def _trials(
    candidate: int, grid: Grid, passes_each: int, parts: Sequence[str | None], common: Mapping[str, Any]
) -> list[Trial]:
    """List the trainings of a candidate: one path for each part, or one for each C if the loss has none."""
    paths = list(map(repr, grid.factors))
    if get_loss(str(common["loss"])).linear_duals:
        paths = [",".join(paths)]
    passes, trials = passes_each * len(grid.factors) // len(paths), []
    for at, part in enumerate(parts):
        for number, path in enumerate(paths, 1):
            settings = Settings(**common, C=grid.C, C_path=path, passes=passes, hold_out=part, gap="none")
            name = f"{candidate}-{at + 1}" + (f"-{number}" if len(paths) > 1 else "")
            trials.append(Trial(name, at, settings))
    return trials


def _measured(result: FitResult) -> Iterator[dict[str, Any]]:
    """Yield the results for each C of a path."""
    passes, seconds = 0, 0.0
    for record in result.history:
        passes, seconds = passes + 1, seconds + record["seconds"]
        if "valid_accuracy" in record:
            yield {"valid_accuracy": record["valid_accuracy"], "passes": passes, "seconds": seconds}
            passes, seconds = 0, 0.0


def _mean(folds: Sequence[Mapping[str, Any]], shown: Mapping[str, Any], C: float) -> dict[str, Any]:
    """Average the results for one setting over all folds."""
    return {
        "C": C,
        "settings": dict(shown),
        "valid_accuracy": float(np.mean([each["valid_accuracy"] for each in folds])),
        "passes": sum(each["passes"] for each in folds),
        "seconds": sum(each["seconds"] for each in folds),
    }


@dataclasses.dataclass
class _ArraySearch:
    """Trainings on a matrix, with the methods of `StoreSearch`."""

    data: tuple[Any, Any, Any]  # X, y and groups
    callbacks: Callbacks
    tables: Mapping[str, Any]
    workers: int

    def known(self) -> list[dict[str, Any]]:
        return []

    def save(self, rows: Sequence[Mapping[str, Any]], trials: Sequence[Trial]) -> None:
        pass

    def results(self, trials: Sequence[Trial]) -> Iterator[FitResult]:
        for trial in trials:
            result = self._fit(trial.settings).result
            assert result is not None
            yield result

    def automatic_c(self, settings: Settings) -> float:
        return fit_arrays.automatic_c(*self.data, settings, self.tables, self.callbacks)

    def train(self, settings: Settings) -> tuple[FitResult, Model | None]:
        model = self._fit(settings, tuned=True)
        assert model.result is not None
        return model.result, model

    def _fit(self, settings: Settings, *, tuned: bool = False) -> Model:
        return fit_arrays.fit_matrix(
            *self.data, settings, callbacks=self.callbacks, given=self.tables, workers=self.workers,
            tuned=tuned,
        )  # fmt: skip


_Search = _ArraySearch | StoreSearch
