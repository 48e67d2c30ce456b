"""The block solver of Shark (Igel et al. 2008) for the Weston-Watkins hinge: greedy coordinate ascent."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import allocating

_MOST_STEPS = 10  # for each candidate


@allocating
def greedy_coordinates(y, curvature, C, problem, m, scratch):
    """Move, one at a time, the dual with the largest gain, and leave the new duals in ``scratch.v[:m]``.

    The gradient of the block's dual is g_j = 1 - M (s_y - s_j), its Hessian -H (I + 11ᵀ) with H = M²‖x‖²
    given as `curvature`: a step μ of the dual j gains μ (g_j - Hμ), and lowers g_j by 2Hμ and all others by
    Hμ. Stops when no gradient points out of place by ``problem.solver_tol`` or more, or after ten steps a
    candidate. The result is feasible, and not worse than the old duals.
    """
    v, g = scratch.v, np.empty(m)
    own = np.float64(scratch.scores[y])
    for r in range(m):
        v[r] = scratch.before[r]
        g[r] = 1.0 - problem.margin * (own - scratch.scores[scratch.ids[r]])
    for _ in range(_MOST_STEPS * m):
        best, step, most, violation = -1, 0.0, 0.0, 0.0
        for r in range(m):
            if (g[r] > 0.0 and v[r] < C) or (g[r] < 0.0 and v[r] > 0.0):
                violation = max(violation, abs(g[r]))
            mu = min(max(v[r] + 0.5 * g[r] / curvature, 0.0), C) - v[r]
            gain = mu * (g[r] - curvature * mu)
            if gain > most:
                best, step, most = r, mu, gain
        if best < 0 or violation < problem.solver_tol:
            break
        v[best] = min(max(v[best] + step, 0.0), C)
        for r in range(m):
            g[r] -= curvature * step
        g[best] -= curvature * step
