"""Time visits against scoring each row, which is the least that any visit must do.

Passes of a learner over rows in memory, in float32 and random order, without inner passes and average, each
followed by the bare score kernel, which scores every row in storage order, with the same weights.
Times are those of the processor, and minima of the passes; FOLDER and C as for compare.py.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import Data, Sets, choose, print_table, start
from tasks import Stores, usual_C

from streamsvm.data.memory_plan import Plan
from streamsvm.data.rows import Rows, row_span
from streamsvm.kernels.jit import compiler, kernel
from streamsvm.kernels.random import permutation
from streamsvm.kernels.score import score_row
from streamsvm.run.files import RunFiles
from streamsvm.run.manifest import RunPosition
from streamsvm.settings.fit import Settings
from streamsvm.training.build import new_storage
from streamsvm.training.learner import Learner
from streamsvm.training.plain_visits import PlainVisits
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import VisitPlan

BUFFER = 2**24  # new duals that fit in one call
STEADY = 3  # the first pass to be timed: before it most rows change many classes


class VisitTimes(NamedTuple):
    """Seconds of passes: medians over the steady ones, their least, and the first."""

    full: float
    bare: float
    ratio: float  # the median of the passes' ratios
    least_full: float
    least_bare: float
    first: float


@kernel
def score_all(rows, weights, scores):
    for i in range(len(rows.labels)):
        score_row(scores, rows, i, weights, 0, len(scores))


def time_visits(rows: Rows, n_features: int, n_classes: int, C: float, *, passes: int = 7) -> VisitTimes:
    """Time passes over rows in memory, each followed by scoring all of them."""
    n = rows.n_rows
    settings = Settings(C=C, passes=passes, inner_passes=0, average=False, gap="none")
    spec = Spec(settings, n, n_features, rows.class_counts(n_classes))
    entries = max(n_classes, min(n * n_classes, BUFFER))
    storage = new_storage(spec, Plan(weights_in_memory=True), None)
    visits = PlainVisits(VisitPlan(spec, None, entries, n, dual_matrix=spec.dual_matrix_bytes > 0))
    learner = Learner(spec, storage, visits)
    run, position = RunFiles(spec.dual_format()), RunPosition()
    rows = rows._replace(cost=np.full(n, C))
    learner.compile(row_span(rows, 0, 0), run.old_duals(position, 0).segment(0, 0))
    full, bare, scores = [], [], np.zeros(spec.columns, spec.dtype)
    for this_pass in range(1, passes + 1):
        block = TrainingBlock(this_pass, 0, rows, permutation(n, 0, this_pass, 0, 0))
        old, new = run.old_duals(position, this_pass - 1), run.new_duals(position, this_pass)
        begin = time.process_time()
        duals = learner.read_duals(old, 0, rows)
        for _ in learner.learn(block, duals, new, lambda visited: n + 1):
            pass
        full.append(time.process_time() - begin)
        learner.end_pass()
        begin = time.process_time()
        score_all(rows, storage.weights.current, scores)
        bare.append(time.process_time() - begin)
    steady = slice(STEADY - 1, None)
    ratios = [a / b for a, b in zip(full[steady], bare[steady], strict=True)]
    medians = map(statistics.median, (full[steady], bare[steady], ratios))
    return VisitTimes(*medians, min(full[steady]), min(bare), full[0])


def main(data: Data, sets: Sets = "", passes: int = 12) -> None:
    table = []
    for pair in choose(data, sets):
        with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
            stores = Stores.create(pair, Path(folder))
        rows, k = stores.rows, stores.n_classes
        each = time_visits(rows, stores.n_features, k, usual_C(pair, k), passes=passes)
        seconds = each.least_full, each.first, each.least_bare
        ratios = each.least_full / each.least_bare, each.first / each.least_bare
        table.append([pair.name, k, *(round(1e9 * each / rows.n_rows) for each in seconds), *ratios])
    print_table(
        f"nanoseconds of the processor a row, float32, {compiler()['processor']}",
        ["", "classes", "visit", "first pass", "bare scores", "visit / scores", "first / scores"],
        table,
    )


if __name__ == "__main__":
    start(main, __doc__)
