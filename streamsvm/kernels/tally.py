"""Positions of the sums that the kernels accumulate in a float64 array of shape (N_TALLIES,).

DUAL_SUM
    Sum of the dual terms. The dual objective is DUAL_SUM - ½‖W‖².
LOSS_SUM
    Sum of the row losses, each multiplied by the cost of its row. The primal objective is ½‖W‖² + LOSS_SUM.
CORRECT, VISITED, EMPTY, UNWEIGHTED
    Numbers of correctly predicted rows, of visited rows, of rows with norm zero or an unknown label, and of
    rows with cost zero. The objective excludes the last two kinds, and the accuracy excludes the last one.
CLOCK
    Number of block steps since averaging began, including those of inner passes.
DUAL_DELTA
    Like ``Weights.average_delta``: the DUAL_SUM of the average is DUAL_SUM - average_scale * DUAL_DELTA.

The entries before CLOCK are reset after each pass, and the other entries when averaging begins.
"""

from __future__ import annotations

DUAL_SUM, LOSS_SUM, CORRECT, VISITED, EMPTY, UNWEIGHTED, CLOCK, DUAL_DELTA = range(8)
N_TALLIES = 8
