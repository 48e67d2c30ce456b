"""Search for C and other settings by accuracy on held-out rows.

If the loss allows it, one trial run tries all values of C: each value starts from the weights and duals of
the previous value, multiplied by the best feasible factor. Otherwise, each value has its own trial run. The
averages of the last pass for each C are compared, because the last iterates favour a smaller C.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamsvm.api import OF_ROWS, check_of_matrix, check_of_store, divided, taken_out, without_tables
from streamsvm.base.progress import Progress, Report, shown
from streamsvm.base.text import as_paths
from streamsvm.base.threads import count_workers
from streamsvm.converted import converted
from streamsvm.data.arrays import label_column
from streamsvm.errors import Call, Option, Remedy, StreamsvmWarning, warn, wrong_setting
from streamsvm.losses import get_loss
from streamsvm.model.results import FitResult, TuneResult
from streamsvm.run.directory import RunDir, replacing
from streamsvm.settings.field import declared
from streamsvm.settings.fit import AUTO, TO_TUNE, Interval, Settings
from streamsvm.settings.reading import COLUMN_SETTINGS, ReadingSettings
from streamsvm.settings.search import SearchSettings
from streamsvm.settings.signature import takes
from streamsvm.training.parallel.splits import check_splits
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import Execution
from streamsvm.transforms import parse_transforms
from streamsvm.tuning.trials import ArraySearch, StoreSearch, Trial

_AUTO_POWERS = range(-4, 6)  # powers of 2
_SUGGESTED_VALUES = 4
# Settings that change when files are converted.
_FILE_SETTINGS = ("label", "labels", "weights", "hold_out_by", "valid", "valid_labels")


@takes(declared(SearchSettings) | TO_TUNE | declared(ReadingSettings), after="out")
def tune(
    data: Any,
    y: Any = None,
    *,
    groups: Any = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    checkpoint_every: str | float | None = None,
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Any = None,
    force: bool = False,
    **settings: Any,
) -> TuneResult:
    """Choose C, and optionally loss, margin and transforms; then train with the best settings.

    Trial runs on a store have run directories in the folder ``tune`` of `out`. The folder is deleted after
    the best model is trained in `out`. After an interruption, repeat the same call to continue.

    Parameters
    ----------
    data, y, groups
        As for `streamsvm.fit`, except that text documents must be in a file.
    out : path, optional
        Run directory to create; required for files.
    **settings
        Fields of `SearchSettings`, fields of `Settings` that apply to all trial runs, and settings for
        reading files that are converted.
    workers, cluster, checkpoint_every, report, progress, stop
        As in `streamsvm.fit`. `report` receives ``{"event": "tried", ...}`` for each combination of settings
        tried. For a store, it first receives the number of trial runs as ``{"event": "search", ...}``, and
        each event of a trial run has the run's name as ``trial``.
    force : bool
        Whether to replace an existing run.

    Returns
    -------
    TuneResult

    Raises
    ------
    SettingsError, StoreError, PlanError, InputError, RunError, Interrupted
        As in `streamsvm.fit`.
    """
    y, settings["label"] = label_column(y, settings.get("label"))
    reading, space = taken_out(settings, ReadingSettings), taken_out(settings, SearchSettings)
    paths: Sequence[str | os.PathLike[str]] | None = as_paths(data)
    tables = without_tables(settings)
    common = {**settings, "valid": space.valid}
    if paths is None:
        tables["columns"], of_files = divided(reading, COLUMN_SETTINGS if hasattr(data, "columns") else set())
        check_of_matrix(common, **of_files, out=out, cluster=cluster, force=force)
    else:
        check_of_store(out, y=y, groups=groups, **{name: tables.get(name) for name in OF_ROWS})
    C, factors = parse_grid(space.C)
    trials = _trials(space, C, factors, common)  # checks all settings before the first trial run
    if (is_auto := any(AUTO in each for each in space.compared.values())) and len(space.candidates) > 1:
        raise wrong_setting("transform", "and loss cannot be auto in a comparison; list values instead")
    for each in space.compared["transform"]:
        if each != AUTO:
            parse_transforms(each)
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(shown(progress))
        n_threads = count_workers(workers)
        callbacks = Callbacks.of(report, progress, stop)
        if paths is None:
            how = Execution(callbacks, workers=n_threads)
            search: ArraySearch | StoreSearch = ArraySearch((data, y, groups), how, tables)
        else:
            assert out is not None
            run = stack.enter_context(replacing(RunDir(out), [*paths, space.valid], force=force))
            if cluster is not None:
                from streamsvm.cluster.client import running_cluster

                splits = trials[0][0].settings.splits
                check_splits(splits)
                cluster, workers = stack.enter_context(running_cluster(cluster, workers, splits))
            how = Execution(callbacks, Interval(checkpoint_every), workers, cluster)
            # Read groups if any loss needs them.
            first = max((runs[0].settings for runs in trials), key=lambda each: each.trained_loss.sequences)
            paths, read, made = converted(
                paths, first, reading, run, how, force=force, resume=not force, keep=True, by_tune=True
            )
            common |= {name: getattr(read, name) for name in _FILE_SETTINGS}
            search = StoreSearch(paths, run, how, tables, made)
        if is_auto:
            held_out = space.parts[0] if space.folds is None else None
            chosen = search.chosen(Settings(**common, **space.candidates[0], hold_out=held_out))
            space = dataclasses.replace(space, loss=(chosen.loss,), transform=(chosen.transform,))
        trials = _trials(space, C, factors, common)
        if isinstance(search, StoreSearch):
            search.begin(list(itertools.chain.from_iterable(trials)), force=force)
        rows = search.known() if isinstance(search, StoreSearch) else []
        for row in rows:
            callbacks.report({"event": "tried", **row})
        for candidate, runs in zip(space.candidates, trials, strict=True) if not rows else ():
            results: list[list[dict[str, Any]]] = [[] for _ in space.parts]
            for trial in runs:
                results[trial.part] += _measured(search.fit(trial))
            differing = {name: candidate[name] for name, each in space.compared.items() if len(each) > 1}
            base = C
            if base == AUTO:  # C depends on all rows, as in the final fit
                base = search.automatic_c(dataclasses.replace(runs[0].settings, hold_out=None))
            for *each, factor in zip(*results, factors, strict=True):
                rows.append(_mean(each, differing, base * factor))
                callbacks.report({"event": "tried", **rows[-1]})
            if isinstance(search, StoreSearch):
                search.save(rows)
        # If there is a tie, the first C, which is the smallest, is chosen.
        best = max(range(len(rows)), key=lambda at: rows[at]["valid_accuracy"])
        number, step = divmod(best, len(factors))
        arguments = {**space.given(), "label": settings.get("label")}
        _warn_of_end(rows[number * len(factors) :][: len(factors)], step, paths, out, arguments)
        chosen = Settings(**common, **space.candidates[number], C=rows[best]["C"], passes=space.passes)
        result, model = search.train(chosen)
        return TuneResult(
            C=rows[best]["C"], settings=rows[best]["settings"],
            valid_accuracy=rows[best]["valid_accuracy"],
            valid_passes=space.passes_each * (step + 1 if get_loss(chosen.loss).linear_duals else 1),
            tried=rows, result=result, model=model,
        )  # fmt: skip


def _warn_of_end(
    tried: Sequence[Mapping[str, Any]],
    best: int,
    paths: Sequence[str | os.PathLike[str]] | None,
    out: Any,
    arguments: Mapping[str, Any],
) -> None:
    """Warn if the best C is the smallest or largest value tried, and suggest a further search."""
    if len(tried) == 1 or best not in (0, len(tried) - 1):
        return
    C = tried[best]["C"]
    step = C / tried[1 if best == 0 else -2]["C"]
    further = ",".join(f"{value:.4g}" for value in sorted(C * step**n for n in range(_SUGGESTED_VALUES)))
    problem = f"the best C, {C:.4g}, is the {'smallest' if best == 0 else 'largest'} value tried"
    changed = {**arguments, "C": further, "out": None if out is None else f"{out}-2"}
    options = tuple(Option(*each) for each in changed.items() if isinstance(each[1], str | int | float))
    data = paths[0] if paths and len(paths) == 1 else None
    warn(StreamsvmWarning(problem, remedy=Remedy("continue the search with {}", Call("tune", data, options))))


def parse_grid(values: Any) -> tuple[Any, list[float]]:
    """Parse `C` into a base, either 1 or "auto", and ascending factors; raise `SettingsError` if invalid."""
    text = ",".join(map(str, values))
    if text == AUTO:
        return AUTO, [2.0**power for power in _AUTO_POWERS]
    factors: list[float] = []
    try:
        if ":" in text:
            (first, base), (last, _) = map(_power, text.split(":"))
            steps = math.floor(math.log(last / first, base) + 1e-6)
            factors = [first * base**step for step in range(steps + 1)]
        else:
            factors = [_power(each)[0] for each in text.split(",")]
    except (ValueError, ZeroDivisionError, OverflowError):
        factors = []
    factors = sorted(set(factors))
    if not factors or not all(0 < value < math.inf for value in factors):
        expected = "auto, numbers above 0 separated by commas, or a range such as 2^-6:2^3"
        raise wrong_setting("C", f"must be {expected}, not {text!r}")
    return 1.0, factors


def _power(text: str) -> tuple[float, float]:
    """Parse a number or a power such as 2^-6. Return the value and its base, 2 for a plain number."""
    base, is_power, exponent = text.strip().partition("^")
    if not is_power:
        return float(base), 2.0
    return float(base) ** float(exponent), float(base)


def _trials(
    space: SearchSettings, C: Any, factors: Sequence[float], common: Mapping[str, Any]
) -> list[list[Trial]]:
    """Return the trial runs of each candidate: for each held-out part, one for all C or one for each C."""
    trials = []
    for candidate, chosen in enumerate(space.candidates, 1):
        paths = [(factor,) * space.passes_each for factor in factors]
        if get_loss(str(chosen["loss"])).linear_duals:
            paths = [tuple(itertools.chain.from_iterable(paths))]
        changes = {**common, **chosen, "passes": len(paths[0])}
        runs = []
        for part_number, part in enumerate(space.parts):
            for number, path in enumerate(paths, 1):
                settings = Settings(**changes, C=C, C_factors=path, hold_out=part, gap="none")
                name = f"{candidate}-{part_number + 1}" + (f"-{number}" if len(paths) > 1 else "")
                runs.append(Trial(name, part_number, settings))
        trials.append(runs)
    return trials


def _measured(result: FitResult) -> Iterator[dict[str, Any]]:
    passes, seconds = 0, 0.0
    for record in result.history:
        passes, seconds = passes + 1, seconds + record["seconds"]
        if "valid_accuracy" in record:
            yield {"valid_accuracy": record["valid_accuracy"], "passes": passes, "seconds": seconds}
            passes, seconds = 0, 0.0


def _mean(folds: Sequence[Mapping[str, Any]], shown: Mapping[str, Any], C: float) -> dict[str, Any]:
    accuracies = [each["valid_accuracy"] for each in folds]
    return {
        "C": C,
        "settings": dict(shown),
        "valid_accuracy": float(np.mean(accuracies)),
        **({"valid_accuracy_std": float(np.std(accuracies))} if len(folds) > 1 else {}),
        "passes": sum(each["passes"] for each in folds),
        "seconds": sum(each["seconds"] for each in folds),
    }
