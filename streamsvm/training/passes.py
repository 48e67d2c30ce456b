"""Trainer that makes several passes over blocks, and measures the model after each pass."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NoReturn

import numpy as np

from streamsvm.base.prefetch import Prefetcher
from streamsvm.base.progress import AVERAGE_PREFIX, LAST_ITERATE_PREFIX, of_model
from streamsvm.data.blocks import Blocks
from streamsvm.errors import InputError, Interrupted, Remedy
from streamsvm.kernels.tally import DUAL_DELTA, DUAL_SUM, EMPTY, LOSS_SUM, UNWEIGHTED
from streamsvm.model.results import FitResult
from streamsvm.training.class_means import begin_at_means
from streamsvm.training.convergence import average_saves_passes, gap_messages, zero_warning
from streamsvm.training.objective import (
    Scoring,
    accuracy_of,
    gap_record,
    is_within,
    score_blocks,
    warn_of_rounding,
)
from streamsvm.training.opened import OpenTraining
from streamsvm.training.sources import ShuffledSource, TrainingBlock
from streamsvm.training.trainer import Trainer

_OBJECTIVE = ("dual", "primal", "gap", "relative_gap")


@dataclasses.dataclass(eq=False)
class Fit(Trainer):
    """Trainer that makes passes over blocks until a tolerance or the number of passes is reached."""

    source: ShuffledSource
    opened: OpenTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        self._norm2 = math.inf
        self._bytes_before = self.source.data_blocks.store.bytes_read

    def run(self) -> FitResult:
        """Make the remaining passes, and save the model."""
        with self.compiled(self.source.data_blocks.empty()):
            while self.position.passes_done < self.settings.passes and not self._has_converged():
                self._make_pass(self.position.passes_done + 1)
        learner, opened = self.learner, self.opened
        coefficients = learner.coefficients(np.arange(learner.n_classes), average=self._is_average())
        model = self.files.save_model(
            coefficients, self._model_record(), opened.raw.feature_names(),
            costs=opened.costs.costs, transforms=opened.training.transforms,
        )  # fmt: skip
        return self._result(model)

    # -- the passes --------------------------------------------------------------------------------

    def _make_pass(self, this_pass: int) -> None:
        self.begin_pass(this_pass)
        self._prepare_weights(this_pass)
        blocks = self.source.blocks(this_pass, self.position.blocks_done)
        with Prefetcher(blocks, is_single=len(self.source.starts(this_pass)) == 2) as read:
            stage = f"pass {this_pass} of {self.settings.passes}"
            finished = self.learn(read, stage, self._report_rows, averages=self._averages(this_pass))
        self.waited = read.waited
        if not finished:
            self._stopped()
        self._end_pass(this_pass)

    def _prepare_weights(self, this_pass: int) -> None:
        """Set the starting point of pass 1; if C grows, scale weights and duals by the best factor."""
        if not self.position.blocks_done:
            scale, start = self._grow(this_pass), self.position.start
            if this_pass == 1 and self.learner.spec.starts_at_means:
                start = self._begin_at_means()
            self.position = dataclasses.replace(self.position, dual_scale=scale, start=start)
        # If a row has no stored duals, each of its duals equals this fraction of the row's cost.
        start = self.position.start if this_pass == 1 else 0.0
        self.learner.problem = self.learner.problem._replace(start=start)

    def _begin_at_means(self) -> float:
        def progress(n_rows: int) -> None:
            self.progress("class means", n_rows, self.n_rows)
            if self.stop():
                raise Interrupted("stopped before the first pass began", remedy=self._continue())

        learner, share = self.learner, self.settings.share_of_C(1)
        data_blocks, margin = self.source.data_blocks, self.settings.margin
        return begin_at_means(data_blocks, share, learner.storage, learner.n_classes, margin, progress)

    def _grow(self, this_pass: int) -> float:
        growth = self.settings.share_of_C(this_pass) / self.settings.share_of_C(this_pass - 1)
        if growth <= 1:
            return 1.0
        best = self.position.history[-1].get("best_growth", 1.0)
        scale = float(self.learner.spec.dtype.type(max(min(growth, best), 1.0)))
        self.learner.storage.scale(scale)
        return scale

    def _report_rows(self, block: TrainingBlock, at: int) -> None:
        self.log({"event": "rows", "pass": 1, "block": block.number, **self._progressive()})

    def _averages(self, this_pass: int) -> bool:
        """Return True if a pass needs the average of its iterates, as the model or for a measurement."""
        settings = self.settings
        if not self.learner.spec.settings.average:
            return False
        needed = this_pass == settings.passes
        needed |= settings.is_measured(this_pass)
        if settings.tol is None:
            needed |= settings.gap == "pass"
        else:
            needed |= average_saves_passes(settings.tol, self.position.history)
        return needed

    def _end_pass(self, this_pass: int) -> None:
        if self.learner.tally[UNWEIGHTED] == self.n_rows:
            excluded = f" outside the held-out part {part}" if (part := self.settings.hold_out) else ""
            raise InputError(
                f"all rows{excluded} have weight 0; set weights above 0 for some rows and their classes"
            )
        settings, position = self.settings, self.position
        is_last = this_pass == settings.passes
        record = {"event": "pass", "pass": this_pass, **self._measure(this_pass, is_last=is_last)}
        seconds = position.pass_seconds
        waited = min(self.waited, seconds)  # `seconds` excludes the time to compile, but `waited` does not
        bytes_read = self.source.data_blocks.store.bytes_read
        record |= {
            "rows_per_second": self.n_rows / max(seconds, 1e-9),
            "seconds": seconds,
            "waited_seconds": waited,
            "waited_fraction": waited / max(seconds, 1e-9),
            "bytes_read": bytes_read - self._bytes_before,
            "peak_memory_bytes": self.peak,
            **self.learner.storage.work,
        }
        self._bytes_before = bytes_read
        self.log(record)
        self.learner.end_pass()
        duals = {p: end for p, end in position.duals.items() if p != this_pass - 1}
        if is_last and settings.is_search:
            duals = {}  # a trial run of a search gets no further passes
        self.position = dataclasses.replace(
            self.position,
            history=(*position.history, record),
            passes_done=this_pass,
            blocks_done=0,
            tally=tuple(self.learner.tally.tolist()),
            seconds=position.seconds + seconds,
            pass_seconds=0.0,
            duals=duals,
        )
        if is_last or self._has_converged() or self.files.every.due(0):
            self.commit()
        else:
            self.files.prune(self.position)

    def _stopped(self) -> NoReturn:
        position = self.position
        raise Interrupted(
            f"stopped in pass {position.passes_done + 1} after {position.blocks_done} of "
            f"{len(self.source.starts(position.passes_done + 1)) - 1} blocks",
            remedy=self._continue(),
        )

    def _continue(self) -> Remedy | None:
        run = self.files.run
        return None if run is None else run.continues()

    # -- measuring ---------------------------------------------------------------------------------

    def _measure(self, this_pass: int, *, is_last: bool) -> dict[str, Any]:
        """Return estimates of the objectives and, if requested, the exact gap and accuracies."""
        settings, tally = self.settings, self.learner.tally
        norms = self.learner.norms()
        self._norm2 = norm2 = norms[0]
        share = settings.share_of_C(this_pass)
        grows = settings.share_of_C(this_pass + 1) > share
        # Measure with the C of the pass or, if there is a tolerance, with the final C.
        cost_factor = share if settings.tol is None else 1.0
        loss_sum = float(tally[LOSS_SUM]) / share * cost_factor
        estimate = gap_record(float(tally[DUAL_SUM]), loss_sum, *norms)
        record: dict[str, Any] = self._progressive() if this_pass == 1 else {}
        record |= {
            "rows": self.n_rows,
            "C": settings.C * share,
            **({"best_growth": float(tally[DUAL_SUM]) / norm2} if grows and norm2 > 0 else {}),
            "dual": estimate["dual"],
            "primal_estimate": estimate["primal"] if self.learner.visits.progressive else None,
            "relative_gap_estimate": estimate["relative_gap"] if self.learner.visits.progressive else None,
        }
        if settings.gap == "pass" or (settings.gap == "end" and is_last):
            scorings = self._score(self.source.data_blocks, f"gap {this_pass}")
            record |= gap_record(float(tally[DUAL_SUM]), scorings[0].loss_sum * cost_factor, *norms)
            history = self.position.history
            first = history[0].get("gap") if history else record["gap"]
            record["gap_decay"] = record["gap"] / first if first else None
            if len(scorings) > 1:
                record |= self._measure_average(scorings[1], cost_factor)
            record |= _accuracies("train_accuracy", scorings)
        if settings.is_measured(this_pass):
            with self.opened.measured_blocks() as blocks:
                scorings = self._score(blocks, f"valid {this_pass}")
            if settings.hold_out is not None and not scorings[0].rows:
                raise InputError(
                    f"the held-out part {settings.hold_out} has no rows with weight above 0",
                    remedy=Remedy("hold out a larger part"),
                )
            record |= _accuracies("valid_accuracy", scorings)
        return record

    def _measure_average(self, scoring: Scoring, cost_factor: float) -> dict[str, float]:
        learner = self.learner
        dual_sum = float(learner.tally[DUAL_SUM] - learner.average_scale * learner.tally[DUAL_DELTA])
        record = gap_record(dual_sum, scoring.loss_sum * cost_factor, *learner.norms(average=True))
        return {f"{AVERAGE_PREFIX}{name}": value for name, value in record.items()}

    def _score(self, blocks: Blocks, stage: str) -> list[Scoring]:
        def step(done: int) -> None:
            self.progress(stage, done, int(blocks.starts[-1]))
            self.note_memory()
            if self.stop():
                self.commit()
                self._stopped()

        scale = self.learner.average_scale if self.learner.averaging else None
        return score_blocks(blocks, self.learner, scale, step)

    def _has_converged(self) -> bool:
        tol, history = self.settings.tol, self.position.history
        if tol is None or not history:
            return False
        gap = of_model(history[-1]).get("relative_gap")
        return gap is not None and is_within(gap, tol)

    def _is_average(self) -> bool:
        """Return True if the last pass computed an average, which is then the model."""
        return self.position.average_pass == self.position.passes_done

    # -- records -----------------------------------------------------------------------------------

    def _progressive(self) -> dict[str, Any]:
        visited, tally = self.learner.visited, self.learner.tally
        begins_blank = not self.position.start  # class means depend on the labels of all rows
        is_meaningful = self.learner.visits.progressive and begins_blank and not self.opened.order_warning
        return {
            "rows": visited,
            "progressive_accuracy": accuracy_of(tally) if is_meaningful else None,
            "empty_rows": int(tally[EMPTY]),
            "unweighted_rows": int(tally[UNWEIGHTED]),
        }

    def _model_record(self) -> dict[str, Any]:
        names, weights = ["loss", "C", "inner_passes", "seed", "dtype"], self.opened.costs.class_weights
        if self.settings.splits > 1:
            names += ["split", "splits"]
        return {
            **{name: getattr(self.settings, name) for name in names},
            "C": self._last_C,
            **self.settings.of_loss,
            **self.opened.record,
            **({} if weights is None else {"class_weights": weights.tolist()}),
            "average": self._is_average(),
            "passes": self.position.passes_done,
        }

    @property
    def _last_C(self) -> float:
        """C of the last planned pass, even if training converges earlier."""
        return self.settings.C * self.settings.share_of_C(self.settings.passes)

    def _result(self, model: str) -> FitResult:
        history = self.position.history
        last, first = history[-1], history[0]
        seconds = self.position.seconds
        averaged, is_measured = self._is_average(), "gap" in last
        last_measures: dict[str, Any] = {name: last[name] if is_measured else None for name in _OBJECTIVE}
        measured = {name: of_model(last)[name] if is_measured else None for name in _OBJECTIVE}
        warnings = [*self.files.warnings, *filter(None, [self.opened.order_warning])]
        learned = self.n_rows > first.get("empty_rows", 0) and self.learner.origin is None
        zero = zero_warning(self._norm2) if learned else []
        warnings += zero
        hint = None
        if not (zero or self._has_converged()):
            run, chosen = self.files.path, self.opened.record["C_auto"]
            further, hint = gap_messages(measured, self.settings, history, run, chosen=chosen)
            warnings += further
        return FitResult(
            status="converged" if self._has_converged() else "done",
            passes=self.position.passes_done,
            C=self._last_C,
            **measured,
            gap_decay=last.get("gap_decay"),
            train_accuracy=last.get("train_accuracy"),
            valid_accuracy=last.get("valid_accuracy"),
            last_iterate=last_measures if averaged and is_measured else None,
            averaged=averaged,
            progressive_accuracy=first.get("progressive_accuracy"),
            rows_per_second=self.n_rows * len(history) / max(seconds, 1e-9),
            waited_fraction=sum(r["waited_seconds"] for r in history) / max(seconds, 1e-9),
            seconds=seconds,
            peak_memory_bytes=max(self.peak, *(r["peak_memory_bytes"] for r in history)),
            checkpoints=self.files.checkpoints,
            checkpoint_seconds=self.files.checkpoint_seconds,
            checkpoint_bytes=self.files.checkpoint_bytes,
            empty_rows=first.get("empty_rows", 0),
            unweighted_rows=first.get("unweighted_rows", 0),
            model=model,
            settings=dataclasses.asdict(self.settings),
            history=list(history),
            warnings=[*warnings, *warn_of_rounding(last, self.learner.spec.dtype)],
            hint=hint,
        )


def _accuracies(name: str, scorings: list[Scoring]) -> dict[str, float]:
    last, *average = (scoring.accuracy for scoring in scorings)
    return {name: average[0], f"{LAST_ITERATE_PREFIX}{name}": last} if average else {name: last}
