"""What the kernels add up, by position in a float64 array of shape (N_TALLIES,).

DUAL_SUM
    The linear and concave terms of the dual objective: the dual is DUAL_SUM - ½‖W‖².
LOSS_SUM
    The rows' losses, each times the row's cost: the primal is ½‖W‖² + LOSS_SUM.
CORRECT, VISITED, EMPTY, UNWEIGHTED
    Rows classified correctly, all rows, rows of norm zero or of unknown label, and rows whose cost is zero:
    the last two kinds do not enter the objective, and the last does not enter the accuracy.
CLOCK
    Block steps since the average began, those of inner passes included.
DUAL_DELTA
    What DUAL_SUM of the average lacks, as `streamsvm.kernels.weights.Weights.average_delta` for the weights.

Those before CLOCK belong to the pass in progress, the others to the whole run.
"""

from __future__ import annotations

DUAL_SUM, LOSS_SUM, CORRECT, VISITED, EMPTY, UNWEIGHTED, CLOCK, DUAL_DELTA = range(8)
N_TALLIES = 8
