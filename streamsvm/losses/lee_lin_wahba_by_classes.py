"""Lee-Lin-Wahba whose classes are split: the mean of the weights stands still while groups of classes meet.

The dual objective of `streamsvm.losses.lee_lin_wahba`, Σ terms - ½‖W̃‖² + ‖g‖²/2k, is coupled between the
classes by g alone, and ‖g‖²/2k is convex: its tangent at the present g is below it. With the tangent in its
place each class is a problem of its own, and what raises this lower bound raises the objective (Alber et al.
2017 wait for the mean as well). Its block problem has the solution of `streamsvm.losses.one_vs_rest`, of the
wrong classes alone:

    b_j = clip((b_j + (1 + s_j) / ‖x‖²) / (1 + ρ), 0, U)

The weights are kept as W itself, without a column of the sum: the learner subtracts the mean of all classes
where they have moved (see `streamsvm.kernels.centre`) before it next looks at them.
"""

from __future__ import annotations

from streamsvm.losses.hinges import HINGE, SQUARED_HINGE
from streamsvm.losses.one_vs_rest import make

KERNELS = {
    "llw": make("llw_by_classes", HINGE, own_dual=False),
    "llw2": make("llw2_by_classes", SQUARED_HINGE, own_dual=False),
}
