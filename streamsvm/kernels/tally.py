"""Sums that the kernels accumulate, by position in a float64 array of shape (N_TALLIES,).

DUAL_SUM
    Linear and concave terms of the dual objective, which is DUAL_SUM - ½‖W‖².
LOSS_SUM
    Losses of the rows, each times the row's cost. The primal objective is ½‖W‖² + LOSS_SUM.
CORRECT, VISITED, EMPTY, UNWEIGHTED
    Counts of correctly predicted rows, all rows, rows with norm zero or unknown label, and rows with cost
    zero. The last two kinds do not enter the objective. Rows with cost zero do not enter the accuracy.
CLOCK
    Block steps since the average began, including inner passes.
DUAL_DELTA
    Like ``Weights.average_delta``: the DUAL_SUM of the average is DUAL_SUM - average_scale * DUAL_DELTA.

Entries before CLOCK belong to the pass in progress, the other entries to the whole run.
"""

from __future__ import annotations

DUAL_SUM, LOSS_SUM, CORRECT, VISITED, EMPTY, UNWEIGHTED, CLOCK, DUAL_DELTA = range(8)
N_TALLIES = 8
