"""Lee-Lin-Wahba whose classes are split: the mean of the weights stands still while groups of classes meet.

The dual objective of `streamsvm.losses.lee_lin_wahba`, Σ terms - ½‖W̃‖² + ‖g‖²/2k, is coupled between the
classes by g alone, and ‖g‖²/2k is convex: its tangent at the present g is below it. With the tangent in its
place each class is a problem of its own, and what raises this lower bound raises the objective (Alber et al.
2017 wait for the mean as well). Its block problem has the solution, ρ being the curvature of φ divided by
‖x‖²:

    b_j = clip((b_j + (1 + s_j) / ‖x‖²) / (1 + ρ), 0, U)

The weights are kept as W itself, without a column of the sum: the learner subtracts the mean of all classes
where they have moved (see `streamsvm.kernels.centre`) before it next looks at them.
"""

from __future__ import annotations

from streamsvm.kernels.candidates import add_candidates_above, beats
from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import inlined
from streamsvm.losses.hinges import HINGE, SQUARED_HINGE, Hinge


@inlined
def _own_step(y, problem, sum_of_steps, delta):
    """The own class's weights do not move."""
    return 0.0


def _make(name: str, hinge: Hinge) -> Kernels:
    value, curvature, upper = hinge.value, hinge.curvature, hinge.upper

    def add_terms(y, inverse, C, problem, scratch, n_old, n_vectors):
        """Add the classes with a loss, and those that beat `y`, to the old ones; write unclipped duals."""
        scores, ids = scratch.scores, scratch.ids
        m, n_vectors = add_candidates_above(min(scores[y], -1.0), problem, scratch, n_old, n_vectors)
        shrink = 1.0 / (1.0 + curvature(C, problem) * inverse)
        loss, is_wrong = 0.0, False
        for r in range(m):
            slack = 1.0 + scores[ids[r]]
            scratch.v[r] = (scratch.before[r] + slack * inverse) * shrink
            loss += value(slack, problem)
            is_wrong |= beats(ids[r], y, scores)
        return m, n_vectors, loss, is_wrong

    add_terms = inlined(add_terms, name=f"{name}_add_terms")

    def solve(y, norm2, C, problem, pairs, own, n_old, old_sum, n_vectors, scratch):
        m, n_vectors, loss, is_wrong = add_terms(y, 1.0 / norm2, C, problem, scratch, n_old, n_vectors)
        clip_duals(scratch.v, m, 0.0, upper(C))
        return m, n_vectors, loss, is_wrong

    def add_losses(y, problem, pairs, own, n_vectors, scratch):
        _, n_vectors, loss, is_wrong = add_terms(y, 1.0, 1.0, problem, scratch, 0, n_vectors)
        return n_vectors, loss, is_wrong

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        solve_restricted=None,  # most classes of a row have duals: a visit over these alone is not cheaper
        add_losses=inlined(add_losses, name=f"{name}_add_losses"),
        own_step=_own_step,
        dual_term=hinge.dual_term,
    )


KERNELS = {"llw": _make("llw_by_classes", HINGE), "llw2": _make("llw2_by_classes", SQUARED_HINGE)}
