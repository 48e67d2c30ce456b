"""Training: the one loop that streams blocks through a loss and commits, reports and stops."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import durable, format
from streamsvm.data.blocks import Blocks, ReadAhead, blocks_to_score, open_like
from streamsvm.data.memory_plan import Plan, cut_blocks, dual_id_dtype, private_memory
from streamsvm.data.rows import Rows
from streamsvm.errors import Interrupted, RunError, StoreError
from streamsvm.kernels.random import permutation
from streamsvm.kernels.steps import (
    AVERAGE_POWER,
    CLOCK,
    CORRECT,
    DUAL_LAG,
    DUAL_SUM,
    EMPTY,
    LOSS_SUM,
    N_TALLIES,
    VISITED,
    OldDuals,
    Scratch,
    Weights,
    clear_lag_of_lists,
    is_compiled,
    padded_classes,
    sum_of_squares,
)
from streamsvm.losses import get_loss
from streamsvm.model import check_room, save_model
from streamsvm.run.checkpoint import Position, check_finite, commit, prune, recover
from streamsvm.run.directory import RunDir, claimed, locked
from streamsvm.run.dual_log import DualLog, make_pool, map_array
from streamsvm.run.hybrid_weights import RareFeatures, SplitRows, Spread, find_rare
from streamsvm.run.weight_log import mark_known, restore
from streamsvm.settings import Interval, Settings
from streamsvm.store import Store, open_store
from streamsvm.training.auto_c import choose_c
from streamsvm.training.fit_plan import choices, describe_fit, plan_fit
from streamsvm.training.inner_passes import InnerPasses
from streamsvm.training.objective import Scoring, gap_record, is_within, score_blocks, warn_of_rounding

# Bytes of weights in memory that commits write as a whole: to mark what changes in them would take a tenth
# of the training where classes are few.
_UNMARKED = 2**26
_NEAR = 1.1  # times a tolerance: a pass that is expected to come so near has an average
_BLOCK_ORDER = -1  # stands where a block's number stands, to draw the order of the blocks

Report = Callable[[dict[str, Any]], None]
Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class FitResult:
    """How a fit ended, and the evidence.

    Attributes
    ----------
    status : {"done", "converged"}
        Whether all passes were made, or the relative gap reached ``tol`` before.
    passes : int
        Passes over the data.
    C : float
        That was asked for, or chosen from the data.
    dual, primal, gap, relative_gap : float or None
        Exact, after the last pass; None if ``gap="none"``. The gap bounds how far the primal is
        from its minimum, up to the rounding of the weights' dtype.
    gap_decay : float or None
        Gap divided by the gap after the first pass.
    accuracy : float or None
        Of the training rows, with the final weights.
    valid_accuracy : float or None
    average : dict or None
        Of the average of the last pass, as far as they were measured: dual, primal, gap, relative_gap,
        accuracy and valid_accuracy. What stands above is that of the last iterate.
    averaged : bool
        Whether the model is that average, and not the last iterate.
    progressive_accuracy : float or None
        Of the first pass, each row predicted before it was learned from; None where the order of the
        labels makes it no estimate, as a warning says.
    rows_per_second : float
        In the training of all passes.
    waited_fraction : float
        Of the training time, what was spent waiting for the store.
    seconds : float
        Spent in this process and, before it was interrupted, in earlier ones up to their last commit.
    peak_memory_bytes : int
        Largest private memory seen, memory-mapped files not counted.
    checkpoints : int
        Commits made by this process, which took `checkpoint_seconds` together; 0 if nothing was left
        to do.
    checkpoint_bytes : int
        Bytes of weights that they wrote.
    empty_rows : int
        Rows of norm zero, which nothing can be learned from; left out of the objective.
    model : str
        Folder of the model.
    settings : dict
        The settings of the run, with the defaults filled in.
    history : list of dict
        The report of each pass.
    warnings : list of str
        What went wrong and was repaired, such as a damaged commit passed over on resuming, and what
        makes a worse model than there could be, such as rows sorted by label.
    """

    status: str
    passes: int
    C: float
    dual: float | None
    primal: float | None
    gap: float | None
    relative_gap: float | None
    gap_decay: float | None
    accuracy: float | None
    valid_accuracy: float | None
    average: dict[str, float] | None
    averaged: bool
    progressive_accuracy: float | None
    rows_per_second: float
    waited_fraction: float
    seconds: float
    peak_memory_bytes: int
    checkpoints: int
    checkpoint_seconds: float
    checkpoint_bytes: int
    empty_rows: int
    model: str
    settings: dict[str, Any]
    history: list[dict[str, Any]]
    warnings: list[str]


def fit(
    store: str | Path,
    out: str | Path,
    *,
    checkpoint_every: str | float = "60s",
    force: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> FitResult:
    """Train a linear multi-class SVM on a store by exact dual block-coordinate descent.

    Each pass streams the store once, block by block in a seeded random order, rows in a seeded
    random order within the block, and solves every row's dual block exactly (Wang & Scott 2021,
    Algorithm 1). State lives in the run directory `out`, from which `resume` continues after any
    interruption to the same bits.

    Parameters
    ----------
    store : path
        A store made by `streamsvm convert`, or an AnnData file with CSR ``X`` (then give ``label``).
    out : path
        Run directory to create.
    checkpoint_every : str or float
        A time ("0.5s", "60s", "5m"), a number of seconds, or of blocks as text ("8 blocks").
    force : bool
        Replace a run that is there.
    report : callable, optional
        Called with a dict for each line of ``metrics.jsonl``; before the first, with the plan, with
        ``{"event": "compile"}`` if kernels must be compiled, and with "ready" when they are loaded.
    progress : callable, optional
        Called with a stage ("pass 1", "gap 1", "valid 1"), rows done, and rows in all.
    stop : callable, optional
        Asked after each block; if true, the run commits and raises `Interrupted`.
    **settings
        ``passes=3, C="auto", loss="ww", dtype="float32", seed=0, memory=2**31, tol=None,
        valid=None, ...``: the fields of `streamsvm.Settings`, which explains them all.

    Returns
    -------
    FitResult

    Raises
    ------
    SettingsError
        If a setting is not valid.
    PlanError
        If the memory budget cannot work (says which would).
    StoreError
        If the store cannot be read, is damaged, or is not fit to train on.
    RunError
        If `out` is there already, cannot be written, or another process uses it.
    Interrupted
        If `stop` asked for it.
    """
    asked = Settings(**settings)
    every = Interval(checkpoint_every)
    run = RunDir(out)
    with open_store(store, label=asked.label) as opened:
        asked, chosen = choose_c(opened, asked)
        plan, starts = plan_fit(opened, asked)
        valid_fingerprint = _check_valid(opened, asked, plan)
        record = {
            "version": format.RUN_VERSION,
            "settings": dataclasses.asdict(asked),
            "store": {
                "path": os.path.abspath(store),
                "fingerprint": opened.fingerprint,
                "n_features": opened.n_features,
                "n_classes": opened.n_classes,
            },
            "plan": dataclasses.asdict(plan),
            "C_auto": chosen,
            "valid_fingerprint": valid_fingerprint,
        }
        with claimed(run, force=force):
            check_room(run.path, opened.n_features, opened.n_classes, np.dtype(asked.dtype).itemsize)
            run.write_settings(record)
            training = _Training(run, opened, record, starts, every, report, progress, stop)
            training.find_position()
            return training.run_to_end()


def plan(store: str | Path, **settings: Any) -> dict[str, Any]:
    """What `fit` would hold in memory and on disk, without training.

    Parameters
    ----------
    store : path
    **settings
        As for `fit`.

    Returns
    -------
    dict
        rows, features, classes, nnz, blocks; budget, which is ``memory`` or what the process may have,
        if that is less, and planned_bytes; weights_bytes (as a matrix, with the average), of them
        mapped_bytes in files, and weights_in_memory; lists, whether rare features have lists instead,
        and lists_bytes, what these take of planned_bytes; log_bytes, which weights and their log of
        changes take on disk at most; warning, None or what is slow about it; order_warning, None or what
        is wrong with the order of the labels; and the settings.
    """
    asked = Settings(**settings)
    with open_store(store, label=asked.label) as opened:
        asked, chosen = choose_c(opened, asked)
        return {**describe_fit(opened, asked, *plan_fit(opened, asked)), "C_auto": chosen}


def resume(
    run: str | Path,
    *,
    passes: int | None = None,
    tol: float | None = None,
    store: str | Path | None = None,
    valid: str | Path | None = None,
    checkpoint_every: str | float = "60s",
    report: Report | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> FitResult:
    """Continue an interrupted run from its last commit, or extend a finished one.

    The result is byte for byte that of a run never interrupted, on the same machine and versions. Where
    all passes are made, or the tolerance is met, it is what the run has already come to.

    Parameters
    ----------
    run : path
        Run directory made by `fit`.
    passes : int, optional
        New total number of passes.
    tol : float, optional
        New tolerance, such as a smaller one for a run that has converged. The exact gap is measured
        after each pass from here on.
    store : path, optional
        Where the run's store is now, if it was moved; it must be the same store.
    valid : path, optional
        Another store to measure the accuracy on from here, or where it is now.
    checkpoint_every, report, progress, stop
        As for `fit`.

    Raises
    ------
    RunError
        If there is no run, its format is another, the store has changed, every commit is damaged or
        one cannot be read, or passes cannot be added because the run kept no duals.
    SettingsError
        If `tol` is below 0.
    """
    every = Interval(checkpoint_every)
    directory = RunDir(run)
    directory.read_settings()  # before the lock file is made, so that a wrong path stays clean
    with locked(directory):
        record = directory.read_settings()
        if record.get("kind") == format.ONLINE:
            raise RunError(f"{directory.path} learns from a stream; `streamsvm resume` continues it")
        settings = Settings(**record["settings"])
        path = record["store"]["path"] if store is None else os.path.abspath(store)
        _check_there(path, "--store")
        with open_store(path, label=settings.label) as opened:
            if opened.fingerprint != record["store"]["fingerprint"]:
                raise RunError(
                    f"the store {path} has changed since {directory.path} was begun (its content "
                    "fingerprint differs); bring the old store back, or fit again"
                )
            plan = Plan(**record["plan"])
            if plan not in choices(opened, settings, plan.memory):
                raise RunError(
                    f"{directory.settings} holds another memory plan than this program makes; "
                    "use the version of streamsvm that made it, or fit again"
                )
            starts = cut_blocks(opened, plan)
            if passes is not None and passes != settings.passes:
                record = _extended(directory, record, passes)
            if tol is not None:
                record["settings"] |= {"tol": tol, "gap": "pass"}
            if valid is not None:
                record["settings"]["valid"] = os.path.abspath(valid)
            if record["settings"]["valid"] is not None:
                _check_there(record["settings"]["valid"], "--valid")
            settings = Settings(**record["settings"])
            record["settings"] = dataclasses.asdict(settings)  # numbers of other libraries as Python's
            found = _check_valid(opened, settings, plan)
            if valid is None and found != record.get("valid_fingerprint"):
                raise RunError(_other_valid(record["settings"]["valid"]))
            record["valid_fingerprint"] = found
            record["store"]["path"] = path
            training = _Training(directory, opened, record, starts, every, report, progress, stop)
            training.find_position()
            directory.write_settings(record)
            return training.run_to_end()


def _check_there(path: str, option: str) -> None:
    if not Path(path).exists():
        raise StoreError(f"{path}: nothing is there; bring it back, or say where it is now with {option}")


def _check_valid(store: Store, settings: Settings, plan: Plan) -> str | None:
    """The fingerprint of the validation store; raise now, not after a pass, if it cannot be used."""
    if settings.valid is None:
        return None
    with open_like(settings.valid, settings.label) as held_out:
        _blocks_to_score(held_out, store, settings, plan)
        return held_out.fingerprint


def _other_valid(path: str) -> str:
    return (
        f"the validation store {path} has changed since the run was begun (its content fingerprint differs): "
        "accuracies before and after would not compare; bring the old store back, or resume with --valid to "
        "measure on this one"
    )


def _blocks_to_score(held_out: Store, store: Store, settings: Settings, plan: Plan) -> Blocks:
    """The blocks of a validation store, in what weights, duals and rows that are kept leave of the plan."""
    kept = plan.largest_block if plan.largest_block <= plan.block_bytes else 0
    return blocks_to_score(
        held_out,
        classes=store.classes,
        n_features=store.n_features,
        index_base=store.index_base,
        dtype=np.dtype(settings.dtype),
        memory=plan.memory - (plan.fixed - plan.decode_bytes) - plan.pool_bytes - kept,
        feature_names=store.feature_names(),
        model="the training data",
    )


def _extended(run: RunDir, record: dict[str, Any], passes: int) -> dict[str, Any]:
    """The record of a run that shall go on to `passes` in all."""
    settings = Settings(**record["settings"])
    if passes < settings.passes:
        raise RunError(
            f"{run.path} was asked for {settings.passes} passes; it can be extended, not shortened"
        )
    if not settings.keep_duals:
        raise RunError(f"{run.path} kept no duals to start another pass from; fit again with --keep-duals")
    return {**record, "settings": {**record["settings"], "passes": passes}}


class _Training:
    """A fit in progress: its files, its position, and the loop."""

    def __init__(
        self,
        run: RunDir,
        store: Store,
        record: dict[str, Any],
        starts: np.ndarray,
        every: Interval,
        report: Report | None,
        progress: Progress | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self.run = run
        self.store = store
        self.settings = Settings(**record["settings"])
        self.plan = Plan(**record["plan"])
        self.C_auto = record["C_auto"]
        self.valid_fingerprint = record.get("valid_fingerprint")
        self.every = every
        self.report = report or (lambda event: None)
        self.progress = progress or (lambda stage, done, total: None)
        self.stop = stop or (lambda: False)
        self.loss = get_loss(self.settings.loss)
        self.solver = self.loss.SOLVERS.index(self.settings.solver)
        self.dtype = np.dtype(self.settings.dtype)
        self.ids_dtype = dual_id_dtype(store.n_classes)
        self.blocks = Blocks(store, starts, self.dtype)
        self.shape = (store.n_features, padded_classes(store.n_classes, self.dtype))
        self.rare: RareFeatures | None = None
        self.peak = private_memory()
        described = describe_fit(store, self.settings, self.plan, starts)
        self.order_warning: str | None = described["order_warning"]
        self.report({**described, "C_auto": self.C_auto})
        if self.plan.lists:
            self.rare = RareFeatures(
                run.rare,
                find_rare(run.rare_features, self.blocks, self._counted),
                store.n_classes,
                self.dtype,
                average=self.settings.average,
            )
            self.shape = (self.rare.n_frequent, self.shape[1])
        largest = int(np.diff(self.blocks.starts).max())
        self.pool = make_pool(self.plan.pool_entries, largest, self.dtype, self.ids_dtype)
        self.scratch = Scratch.create(self.shape[1], self.dtype)
        self.inner = InnerPasses(self.loss, self.settings, self.pool, self.scratch)
        self.bytes_before = store.bytes_read
        self.checkpoints = 0
        self.checkpoint_seconds = 0.0
        self.checkpoint_bytes = 0
        self.warnings: list[str] = []

    # -- the loop ----------------------------------------------------------------------------------

    def find_position(self) -> None:
        """Go to the last commit, or to the beginning; raise `RunError` if there is no telling which."""
        position, self.warnings = recover(
            self.run, self.shape, self.dtype, self.ids_dtype, self.settings.average
        )
        if position is None:
            if self.run.model.exists():  # of a run that ended, so it had commits
                self.warnings.append(f"the commits of {self.run.path} are gone; it began anew")
            durable.remove(self.run.metrics)
        else:
            self._check(position)
        self.position = position or Position(0, 0, [0.0] * N_TALLIES, {}, [])

    def run_to_end(self) -> FitResult:
        self.weights = self._map()
        self._compile()
        self.every.restart()
        while self.position.passes_done < self.settings.passes and not self._converged():
            self._train_pass()
            self._end_pass()
        self._save_model()
        return self._result()

    def _counted(self, block: int) -> None:
        """Report a block whose features were counted; nothing is lost yet if the run stops here."""
        self.peak = max(self.peak, private_memory())
        self.progress("count", int(self.blocks.starts[block + 1]), self.store.n_rows)
        if self.stop():
            raise Interrupted(f"stopped before pass 1; `streamsvm resume {self.run.path}` begins it")

    def _save_model(self) -> None:
        now: Any = self.weights.now
        lag: Any = self.weights.lag if self._is_average() else None
        if self.rare is not None:
            now = Spread(self.rare, now, 1, self.store.n_features)
            lag = None if lag is None else Spread(self.rare, lag, 2, self.store.n_features)
        marks = self.weights.marks if self.rare is None and len(self.weights.marks) else None
        save_model(
            self.run.model, now, self._model_record(), lag=lag, lagging=self._lagging(), marks=marks,
            names=self.store.feature_names(),
        )  # fmt: skip
        self.run.remove_weights()

    def _map(self) -> Weights:
        """The weights as of the last commit, in memory or over new files."""
        in_memory = self.plan.weights_in_memory
        now = map_array(None if in_memory else self.run.weights, self.shape, self.dtype)
        lag = self._map_lag() if self.settings.average else np.zeros((0, self.shape[1]), self.dtype)
        small = in_memory and now.nbytes + lag.nbytes <= _UNMARKED
        marks_file = None if in_memory else self.run.marks
        marks = map_array(marks_file, (0 if small else self.shape[0], 2), np.dtype(np.uint64))
        weights = Weights.create(now, lag, float(self.store.n_rows), marks)
        if self.rare is not None:
            weights = self.rare.with_room(weights)
        position = self.position
        if position.changes_number:
            log = self.run.changes(position.changes_number)
            weights = restore(log, position.changes_length, weights, self.rare)
        return weights

    def _map_lag(self) -> np.ndarray:
        """What the average lags behind, which is nothing yet."""
        return map_array(None if self.plan.average_in_memory else self.run.lag, self.shape, self.dtype)

    def _lagging(self) -> float:
        """The multiple of ``lag`` by which the average is behind, at this point of the run."""
        return (self.weights.horizon / max(self.position.tally[CLOCK], 1.0)) ** AVERAGE_POWER

    def _wants_average(self, this_pass: int) -> bool:
        """Whether the average of a pass is wanted, as the model or to be measured.

        An average is of the second half of its pass alone, so the next one does not depend on it.
        """
        settings, history = self.settings, self.position.history
        if not settings.average:
            return False
        if this_pass == settings.passes or settings.valid is not None:
            return True
        if settings.tol is None:
            return settings.gap == "pass"
        gaps = [record.get("relative_gap") or np.inf for record in history[: this_pass - 1][-2:]]
        if len(gaps) < 2:
            return False
        return gaps[1] * min(gaps[1] / gaps[0], 1.0) <= _NEAR * settings.tol  # what the next one will be

    def _is_average(self) -> bool:
        """Whether the model is the average: if there is one, and it does not miss a tolerance that is met."""
        tol, last = self.settings.tol, self.position.history[-1]
        if tol is None or "relative_gap" not in last:
            return self.position.average_pass == self.position.passes_done
        average = last.get("average_relative_gap")
        return average is not None and (is_within(average, tol) or not is_within(last["relative_gap"], tol))

    def _begin_average(self, this_pass: int, tally: np.ndarray) -> None:
        """Let the average begin here: it lags behind by nothing, after no visit."""
        self.position.average_pass = this_pass
        tally[CLOCK] = tally[DUAL_LAG] = 0.0
        self.weights = self.weights._replace(lag=self._map_lag())
        mark_known(self.weights.marks)  # for the log holds the lag of an earlier pass
        if self.rare is not None:
            clear_lag_of_lists(self.weights.rare)

    def _check(self, position: Position) -> None:
        """Raise `RunError` unless a position is one of this run, with the duals that it needs."""
        done, blocks = position.passes_done, position.blocks_done
        needed = {done} if done else set()
        needed |= {done + 1} if blocks else set()
        if (
            done > self.settings.passes
            or blocks > len(self.blocks)
            or (self.settings.keep_duals and set(position.log_lengths) != needed)
            or not all(self._is_report(record) for record in position.history)
        ):
            raise RunError(f"the newest commit of {self.run.path} is not one of this run; fit again")

    def _is_report(self, record: dict[str, Any]) -> bool:
        """Whether `record` could be what `_end_pass` made: numbers, and those that are used later."""
        used = {"waited_seconds", "peak_memory_bytes"}
        numbers = {name for name, value in record.items() if isinstance(value, int | float)}
        return (
            used <= numbers
            and all(abs(record[name]) < 2.0**1023 for name in numbers)
            and all(record[name] is None for name in record.keys() - numbers - {"event"})
        )

    def _compile(self) -> None:
        """Compile or load the kernels on no rows, so that neither counts as training."""
        begin = time.perf_counter()
        if not is_compiled(self.loss.visit):
            self.report({"event": "compile"})
        rows = self.blocks.empty()
        if self.rare is not None:
            rows, self.weights = self.rare.split(rows).enter(self.weights)
        old = DualLog(self.run.duals(0), self.dtype, self.ids_dtype, self.store.n_classes, write=False)
        order = np.zeros(0, np.int64)
        self._visit(rows, order, 0, 0, old.segment(0, 0), np.zeros(N_TALLIES), self.weights)
        self.loss.loss_rows(rows, self.weights, 0.0, 1, 1.0, self.scratch, np.zeros((1, N_TALLIES)))
        self.inner.compile(rows, self.weights, np.zeros(N_TALLIES))
        self.report({"event": "ready", "seconds": time.perf_counter() - begin})

    def _visit(
        self,
        rows: Rows,
        order: np.ndarray,
        begin: int,
        end: int,
        old: OldDuals,
        tally: np.ndarray,
        weights: Weights,
    ) -> int:
        settings = self.settings
        return self.loss.visit(
            rows, order, begin, end, weights, self.store.n_classes, settings.C,
            settings.margin, self.solver, old, self.pool, self.scratch, tally,
        )  # fmt: skip

    def _train_pass(self) -> None:
        position, settings = self.position, self.settings
        this_pass = position.passes_done + 1
        tally = np.array(position.tally)
        order = permutation(len(self.blocks), settings.seed, this_pass, _BLOCK_ORDER, 0)
        total = self.store.n_rows
        old = self._open_log(this_pass - 1, write=False)
        new = self._open_log(this_pass, write=True) if settings.keep_duals else None
        if new is not None:
            position.log_lengths.setdefault(this_pass, 0)
        begin, before = time.perf_counter(), position.pass_seconds
        read_ahead = ReadAhead()
        todo = order[position.blocks_done :].tolist()
        try:
            for block, rows in zip(todo, read_ahead(self._read, todo), strict=True):
                self._train_block(this_pass, block, rows, old, new, tally)
                self.peak = max(self.peak, private_memory())
                position.blocks_done += 1
                position.tally = tally.tolist()
                position.pass_seconds = before + max(time.perf_counter() - begin, 0.0)
                if new is not None:
                    position.log_lengths[this_pass] = new.length
                    position.log_digests[this_pass] = new.digest
                self.progress(f"pass {this_pass}", int(tally[VISITED]), total)
                stopping = self.stop()
                if self.every.due(1) or stopping:
                    self._commit(new)
                if stopping:
                    self._interrupt()
        finally:
            for log in (old, new):
                if log is not None:
                    log.close()
        self.waited = read_ahead.waited

    def _moved(self, averaged: bool) -> Weights:
        """The weights as a visit shall move them: with their average, or alone."""
        if averaged:
            return self.weights
        return self.weights._replace(lag=self.weights.lag[:0], horizon=np.inf)

    def _read(self, block: int) -> Rows | SplitRows:
        rows = self.blocks.read_to_train(block)
        return rows if self.rare is None else self.rare.split(rows)

    def _train_block(
        self,
        this_pass: int,
        block: int,
        rows: Rows | SplitRows,
        old: DualLog,
        new: DualLog | None,
        tally: np.ndarray,
    ) -> None:
        if isinstance(rows, SplitRows):
            rows, self.weights = rows.enter(self.weights)
        order = permutation(rows.n_rows, self.settings.seed, this_pass, block, 0)
        duals = old.segment(block, rows.n_rows)
        half = self.store.n_rows // 2
        at = 0
        while at < rows.n_rows:
            end, visited = rows.n_rows, int(tally[VISITED])
            if this_pass == 1:  # pause where the number of rows doubles, to report
                end = min(end, at + (1 << visited.bit_length()) - visited)
            if visited < half:
                end = min(end, at + half - visited)
            elif visited == half and self._wants_average(this_pass):
                self._begin_average(this_pass, tally)
            averaged = self.position.average_pass == this_pass
            reached = self._visit(rows, order, at, end, duals, tally, self._moved(averaged))
            check_finite(self.run, tally.tolist())
            full = reached < end
            if self.rare is not None:
                full &= self.pool.used[0] + self.store.n_classes > len(self.pool.ids)
                self.weights = self.rare.with_room(self.weights)  # for want of which the visit may have ended
            if full or reached == rows.n_rows:
                self.inner(rows, self._moved(averaged), (this_pass, block), tally)
                if new is not None:
                    new.append(block, self.pool)
                self.pool.used[:] = 0
            at = reached
            if this_pass == 1 and reached == end and int(tally[VISITED]).bit_count() == 1:
                self._log({"event": "rows", "pass": 1, "block": block, **self._progressive(tally)})

    def _end_pass(self) -> None:
        """Measure, report and commit a pass whose blocks are all trained."""
        if self.rare is not None:
            self.weights = self.rare.without_rows(self.weights)
        position, settings = self.position, self.settings
        this_pass = position.passes_done + 1
        tally = np.array(position.tally)
        norm2 = float(sum_of_squares(self.weights, 0.0))
        last = this_pass == settings.passes
        record: dict[str, Any] = {"event": "pass", "pass": this_pass}
        if this_pass == 1:
            record |= self._progressive(tally)
        record["rows"] = self.store.n_rows
        record["dual"] = float(tally[DUAL_SUM]) - 0.5 * norm2
        record["primal_estimate"] = 0.5 * norm2 + settings.C * float(tally[LOSS_SUM])
        estimate = gap_record(float(tally[DUAL_SUM]), float(tally[LOSS_SUM]), norm2, settings.C)
        record["relative_gap_estimate"] = estimate["relative_gap"]
        if settings.gap == "pass" or (settings.gap == "end" and last):
            scoring, *average = self._score(self.blocks, f"gap {this_pass}")
            record |= gap_record(float(tally[DUAL_SUM]), scoring.loss_sum, norm2, settings.C)
            record["accuracy"] = scoring.accuracy
            first = position.history[0].get("gap") if position.history else record["gap"]
            record["gap_decay"] = record["gap"] / first if first else None
            if average:
                lagging = self._lagging()
                dual_sum = float(tally[DUAL_SUM] - lagging * tally[DUAL_LAG])
                norm2 = float(sum_of_squares(self.weights, lagging))
                of_average = gap_record(dual_sum, average[0].loss_sum, norm2, settings.C)
                of_average["accuracy"] = average[0].accuracy
                record |= {f"average_{name}": value for name, value in of_average.items()}
        if settings.valid is not None:
            scoring, *average = self._score_valid(settings.valid, this_pass)
            record["valid_accuracy"] = scoring.accuracy
            if average:
                record["average_valid_accuracy"] = average[0].accuracy
        position.seconds += position.pass_seconds
        record |= {
            "rows_per_second": self.store.n_rows / max(position.pass_seconds, 1e-9),
            "seconds": position.pass_seconds,
            "waited_seconds": self.waited,
            "waited_fraction": self.waited / max(position.pass_seconds, 1e-9),
            "bytes_read": self.store.bytes_read - self.bytes_before,
            "peak_memory_bytes": self.peak,
        }
        self.bytes_before = self.store.bytes_read
        self._log(record)
        position.history.append(record)
        position.passes_done, position.blocks_done = this_pass, 0
        position.tally[:CLOCK], position.pass_seconds = [0.0] * CLOCK, 0.0
        position.log_lengths.pop(this_pass - 1, None)
        if last or self._converged() or self.every.due(0):
            self._commit(None)
        else:
            prune(self.run, position.log_lengths)

    def _score(self, blocks: Blocks, stage: str) -> list[Scoring]:
        """Score the blocks by the last iterate and, if there is one, by the average."""
        total = blocks.store.n_rows

        def step(block: int) -> None:
            self.progress(stage, int(blocks.starts[block + 1]), total)
            self.peak = max(self.peak, private_memory())
            if self.stop():
                self._commit(None)
                self._interrupt()

        settings = self.settings
        averaged = self.position.average_pass == self.position.passes_done + 1
        lagging = self._lagging() if averaged else None
        split = None if self.rare is None else self.rare.split
        return score_blocks(
            blocks, self.weights, lagging, self.loss, settings.margin, self.store.n_classes, step, split
        )

    def _score_valid(self, valid: str | os.PathLike, this_pass: int) -> list[Scoring]:
        with open_like(valid, self.settings.label) as store:
            if store.fingerprint != self.valid_fingerprint:
                raise RunError(_other_valid(str(valid)))
            blocks = _blocks_to_score(store, self.store, self.settings, self.plan)
            return self._score(blocks, f"valid {this_pass}")

    def _converged(self) -> bool:
        tol, history = self.settings.tol, self.position.history
        if tol is None or not history:
            return False
        gaps = (history[-1].get(name) for name in ("relative_gap", "average_relative_gap"))
        return any(gap is not None and is_within(gap, tol) for gap in gaps)

    # -- files -------------------------------------------------------------------------------------

    def _open_log(self, pass_number: int, *, write: bool) -> DualLog:
        return DualLog(
            self.run.duals(pass_number),
            self.dtype,
            self.ids_dtype,
            self.store.n_classes,
            length=self.position.log_lengths.get(pass_number, 0),
            digest=self.position.log_digests.get(pass_number, ""),
            write=write,
        )

    def _commit(self, log: DualLog | None) -> None:
        begin = time.perf_counter()
        if log is not None:
            log.flush()
        for pass_number in self.position.log_lengths:
            durable.sync_tree(self.run.duals(pass_number))
        if self.run.metrics.exists():
            durable.sync_tree(self.run.metrics)
        self.checkpoint_bytes += commit(self.run, self.position, self.weights)
        self.checkpoints += 1
        self.checkpoint_seconds += max(time.perf_counter() - begin, 0.0)
        self.every.restart()

    def _interrupt(self) -> None:
        position = self.position
        raise Interrupted(
            f"stopped in pass {position.passes_done + 1} after {position.blocks_done} of "
            f"{len(self.blocks)} blocks; `streamsvm resume {self.run.path}` continues"
        )

    def _log(self, record: dict[str, Any]) -> None:
        """Report `record`, and append it to the metrics."""
        check_finite(self.run, record)
        with durable.open_file(self.run.metrics, "ab") as file:
            file.write(json.dumps(record).encode() + b"\n")
            self.position.metrics_length = file.tell()
        self.report(record)

    # -- records -----------------------------------------------------------------------------------

    def _progressive(self, tally: np.ndarray) -> dict[str, Any]:
        visited = int(tally[VISITED])
        return {
            "rows": visited,
            "progressive_accuracy": None if self.order_warning else float(tally[CORRECT]) / max(visited, 1),
            "empty_rows": int(tally[EMPTY]),
        }

    def _model_record(self) -> dict[str, Any]:
        """What the model says of itself: nothing that differs between equal trainings."""
        names = (
            *("loss", "C", "margin", "solver", "inner_passes"),
            *("seed", "dtype", "memory", "block_rows"),
        )
        return {
            "classes": list(self.store.classes),
            "n_features": self.store.n_features,
            "index_base": self.store.index_base,
            **{name: getattr(self.settings, name) for name in names},
            "C_auto": self.C_auto,
            "average": self._is_average(),
            "passes": self.position.passes_done,
            "store_fingerprint": self.store.fingerprint,
        }

    def _of_average(self, record: dict[str, Any]) -> dict[str, float]:
        prefix = "average_"
        return {name.removeprefix(prefix): value for name, value in record.items() if name.startswith(prefix)}

    def _result(self) -> FitResult:
        history = self.position.history
        last, first = history[-1], history[0]
        seconds = self.position.seconds
        exact = ("dual", "primal", "gap", "relative_gap") if "gap" in last else ()
        return FitResult(
            status="converged" if self._converged() else "done",
            passes=self.position.passes_done,
            C=self.settings.C,
            **{
                name: last.get(name) if name in exact else None
                for name in ("dual", "primal", "gap", "relative_gap")
            },
            gap_decay=last.get("gap_decay"),
            accuracy=last.get("accuracy"),
            valid_accuracy=last.get("valid_accuracy"),
            average=self._of_average(last) or None,
            averaged=self._is_average(),
            progressive_accuracy=first.get("progressive_accuracy"),
            rows_per_second=self.store.n_rows * len(history) / max(seconds, 1e-9),
            waited_fraction=sum(r["waited_seconds"] for r in history) / max(seconds, 1e-9),
            seconds=seconds,
            peak_memory_bytes=max(self.peak, *(r["peak_memory_bytes"] for r in history)),
            checkpoints=self.checkpoints,
            checkpoint_seconds=self.checkpoint_seconds,
            checkpoint_bytes=self.checkpoint_bytes,
            empty_rows=first.get("empty_rows", 0),
            model=str(self.run.model),
            settings=dataclasses.asdict(self.settings),
            history=history,
            warnings=[
                *self.warnings,
                *([self.order_warning] if self.order_warning else []),
                *warn_of_rounding(last, self.dtype),
            ],
        )
