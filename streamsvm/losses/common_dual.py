"""Weston-Watkins for very many classes: weights are sparse, and most wrong classes of a row share one dual.

The losses and their solutions are those of `streamsvm.losses.weston_watkins`. If all weights are 0, so are
all scores. A row would then get equal duals for all wrong classes, and its features would get weights for all
classes. But only differences between scores matter, so the weights can be stored as a sparse matrix V, with

    w_j = v_j + g,    g = -(1/k) Σ_c v_c.

The vector g is not stored, because it is determined by Σ_j w_j = 0. All classes with v_jᵀx = 0 have the same
score, and so the same dual b_0 in the row's block problem. A row stores this *common dual* of its unlisted
wrong classes under the id k, and lists all other duals. A step moves

    v_j by -M (Δb_j - Δb_0) x for the listed wrong classes, and v_y by M (Σ_j Δb_j + Δb_0) x.

This moves g by -MΔb_0 x, so each w_j moves correctly, and unlisted classes get no weights. In the equation
for γ in `weston_watkins`, the n_0 unlisted classes contribute the term n_0 clip(v_0 - γ, 0, U). The norm is

    ‖W‖² = Σ_j ‖v_j‖² - k‖g‖².

In the first pass, absolute scores up to `Problem.near` count as 0. Otherwise, a row with a positive common
dual would create weights for every class with a non-zero score. Only the later passes are exact.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.duals import clip_duals, close_row, has_room
from streamsvm.kernels.fetch import fetch_duals, fetch_rows
from streamsvm.kernels.frame import Kernels
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.row_steps import is_idle
from streamsvm.kernels.score import subtract_scores
from streamsvm.kernels.scratch import clear_lanes, mark_class
from streamsvm.kernels.simd import (
    LANES,
    LOG_LANES,
    cast,
    lanes,
    load,
    load_like,
    lowest_bit,
    max_lanes,
    maximum,
    multiply_add,
    not_below,
    store,
    sum_lanes,
    zeros,
    zeros_like,
)
from streamsvm.kernels.sparse_rows import (
    AVERAGE_DELTA,
    WEIGHT,
    entries,
    fetch_extents,
    fetch_lists,
    has_sparse_room,
    score_by_sparse_rows,
    update_sparse_rows,
    value_at,
)
from streamsvm.kernels.tally import CLOCK, CORRECT, DUAL_DELTA, DUAL_SUM, LOSS_SUM
from streamsvm.kernels.weights import AVERAGE_POWER
from streamsvm.losses.hinges import HINGE, SMOOTH_HINGE, SQUARED_HINGE, Hinge
from streamsvm.losses.threshold import UNBOUNDED, threshold_newton

_VECTORS_PER_SUM = 64  # number of vectors of losses added in the dtype of the scores, before a sum in float64
_TINY = 1e-37  # positive in float32


# Candidates are the `m` classes ``scratch.ids[:m]`` that may get a listed dual. Their old duals are in
# ``before``, and their new duals in ``v``.


@inlined
def _add(c, dual, scratch, m, n_vectors):
    """Append class `c` with the old dual `dual` to the `m` candidates; return the number of vectors."""
    scratch.ids[m] = c
    scratch.before[m] = dual
    return mark_class(c, scratch, n_vectors)


@inlined
def _add_listed(old, i, k, scratch, n_vectors):
    """Append the listed classes; return their number, the number of vectors, the sum of duals, and b_0."""
    m, total, common = 0, 0.0, 0.0
    for r in range(np.int64(old.counts[i])):
        c = np.int64(old.ids[old.at[i] + r])
        value = old.scale * np.float64(old.values[old.at[i] + r])
        if c == k:
            common = value
        else:
            n_vectors = _add(c, value, scratch, m, n_vectors)
            total += value
            m += 1
    return m, n_vectors, total, common


@inlined
def _add_unlisted(min_score, absolute, common, n_classes, scratch, m, n_vectors):
    """Append the unlisted classes whose score is at least `min_score` or NaN, with the old dual `common`.

    If `absolute` is true, compare absolute scores. Return the number of candidates and that of vectors.
    """
    like = cast(zeros(), scratch.scores)
    for first in range(0, n_classes, LANES):  # the padding has no weights
        scores = load_like(scratch.scores, first, like)
        hits = not_below(scores, min_score)
        if absolute:
            hits |= not_below(like - scores, min_score)
        hits &= ~scratch.lanes[first >> LOG_LANES]
        while hits != 0:
            n_vectors = _add(first + lowest_bit(hits), common, scratch, m, n_vectors)
            hits &= hits - 1
            m += 1
    return m, n_vectors


@inlined
def _best_wrong_class(y, n_classes, scores):
    """Return the first wrong class whose score is the largest or NaN, or `y` if there is no wrong class."""
    L = lanes(scores)
    own, lowest = scores[y], scores.dtype.type(-np.inf)
    scores[y] = lowest
    n_whole = n_classes // L * L
    best = zeros_like(scores) - np.inf
    for first in range(0, n_whole, L):
        best = maximum(load(scores, first), best)
    top = max_lanes(best)
    for c in range(n_whole, n_classes):  # without the padding
        top = max(top, scores[c])
    best_class = np.int64(y == 0)
    for first in range(0, n_classes, L):
        hits = not_below(load(scores, first), top)
        if hits != 0:
            best_class = min(first + lowest_bit(hits), n_classes - 1)
            break
    scores[y] = own
    return best_class


@inlined
def _is_right(y, best, scores):
    """Return True if class `y` is predicted rather than `best`; ties go to the class with the lower code."""
    return best == y or not ((scores[best] > scores[y]) | ((scores[best] == scores[y]) & (best < y)))


@kernel
def norm2_of_centred(weights, average_scale, sparse_rows, problem, sums):
    """Like `streamsvm.kernels.weights.sum_of_squares`, for W, which is V minus its mean over the classes."""
    n_classes, total = problem.n_classes, 0.0
    for f in range(len(sparse_rows.extents)):
        begin, size, distance = entries(sparse_rows, f)
        size = min(size, n_classes)  # without the padding
        mean = 0.0
        for e in range(begin, begin + size):
            mean += value_at(sparse_rows, e, distance, average_scale)
        mean /= n_classes
        part = (n_classes - size) * mean * mean
        for e in range(begin, begin + size):
            w = value_at(sparse_rows, e, distance, average_scale) - mean
            part += w * w
        total += part
    sums[0] += total


def _make(name: str, hinge: Hinge) -> Kernels:
    value, curve, upper_of = hinge
    curvature, terms = curve.curvature, curve.terms(f"{name}_common")

    def losses(y, problem, scores):
        best = _best_wrong_class(y, problem.n_classes, scores)
        own = np.float64(scores[y])
        loss, c = 0.0, 0
        if not 1.0 - problem.margin * (own - scores[best]) <= 0.0:
            L, kind = lanes(scores), scores.dtype.type
            margin, shift = kind(problem.margin), kind(1.0 - problem.margin * own)
            while c + L <= problem.n_classes:
                stop, part = min(c + _VECTORS_PER_SUM * L, problem.n_classes - L + 1), zeros_like(scores)
                while c < stop:
                    part = part + value(multiply_add(margin, load(scores, c), shift), problem)
                    c += L
                loss += sum_lanes(part)
            while c < problem.n_classes:
                loss += value(1.0 - problem.margin * (own - scores[c]), problem)
                c += 1
            loss -= value(1.0, problem)  # the true class, whose slack is 1
        return loss, best

    losses = inlined(losses, name=f"{name}_common_losses")

    def add_terms(y, inverse, shrink, problem, old_sum, scratch, begin, end):
        scores, ids, before, v = scratch.scores, scratch.ids, scratch.before, scratch.v
        own = np.float64(scores[y])
        for r in range(begin, end):
            slack = 1.0 - problem.margin * (own - scores[ids[r]])
            v[r] = (slack * inverse + (before[r] + old_sum)) * shrink

    add_terms = inlined(add_terms, name=f"{name}_common_add_terms")

    def solve(y, best, norm2, C, problem, n_old, old_sum, common, n_vectors, scratch):
        """Solve the block problem of a row whose best wrong class is `best`; write duals to ``scratch.v``.

        Return the number of candidates, the number of vectors, and the new common dual. The problem is first
        solved for the listed classes and `best`. Their γ determines which other classes can get a dual.
        """
        scores, v, k, margin = scratch.scores, scratch.v, problem.n_classes, problem.margin
        inverse = 1.0 / (margin * margin * norm2)
        slope = 1.0 + curvature(C, problem) * inverse
        shrink, upper = 1.0 / slope, upper_of(C)
        m = n_old
        is_listed = (scratch.lanes[best >> LOG_LANES] >> (best & (LANES - 1))) & 1 != 0
        if best != y and not scores[best] <= problem.near and not is_listed:
            n_vectors = _add(best, common, scratch, m, n_vectors)
            m += 1
        add_terms(y, inverse, shrink, problem, old_sum, scratch, 0, m)
        gamma = threshold_newton(
            v, m, upper, UNBOUNDED, slope, 0.0, 0.0, upper * m * shrink, old_sum * shrink
        )
        # Score at which v equals γ for an unlisted class.
        limit = np.float64(scores[y]) + ((slope * gamma - (old_sum + common)) / inverse - 1.0) / margin
        n = m
        near = max(problem.near, _TINY)
        m, n_vectors = _add_unlisted(max(limit, near), False, common, k, scratch, n, n_vectors)
        gamma = solve_more(y, inverse, slope, C, problem, old_sum, n, m, gamma, scratch)
        top = ((1.0 - margin * np.float64(scores[y])) * inverse + (common + old_sum)) * shrink
        new_common = 0.0
        if not top <= gamma:  # classes with a score of 0 have a dual
            n = m
            m, n_vectors = _add_unlisted(near, True, common, k, scratch, n, n_vectors)
            gamma = solve_more(y, inverse, slope, C, problem, old_sum, n, m, gamma, scratch)
            n_same = k - 1 - m
            if n_same > 0 and top > gamma:
                # Between 0 and U, the common dual is linear in γ, so its terms are moved to the right side.
                steeper = slope + n_same
                gamma = threshold_newton(
                    v, m, upper, UNBOUNDED, steeper, -n_same * top / steeper, gamma, top, top
                )
                new_common = top - gamma
                if new_common > upper:
                    new_common = upper
                    gamma = threshold_newton(
                        v, m, upper, UNBOUNDED, slope, -n_same * upper * shrink, 0.0,
                        upper * (m + n_same) * shrink, gamma,
                    )  # fmt: skip
        clip_duals(v, m, gamma, upper)
        return m, n_vectors, new_common

    def solve_more(y, inverse, slope, C, problem, old_sum, n, m, gamma, scratch):
        """Return the γ of `m` candidates, starting from the γ of the first `n` candidates."""
        add_terms(y, inverse, 1.0 / slope, problem, old_sum, scratch, n, m)
        if m > n:
            upper = upper_of(C)
            gamma = threshold_newton(
                scratch.v, m, upper, UNBOUNDED, slope, 0.0, 0.0, upper * m / slope, gamma
            )
        return gamma

    solve_more = inlined(solve_more, name=f"{name}_common_solve_more")
    solve = inlined(solve, name=f"{name}_common_solve")

    def set_duals(y, C, problem, n_old, m, common, new_common, scratch, buffer, at):
        """Round the new duals, write them to the buffer, and set ``delta``.

        Return the number of duals written, the old dual terms, their change, and whether any dual changed.
        """
        delta, v, before, keep = scratch.delta, scratch.v, scratch.before, len(buffer.ids) > 0
        kind, margin, k = delta.dtype.type, problem.margin, problem.n_classes
        rounded = kind(new_common)
        common_step = np.float64(rounded) - common
        kept, listed, sum_of_steps, changed = 0, 0, 0.0, common_step != 0
        old_terms, new_terms = 0.0, 0.0
        for r in range(m):
            b, c = kind(v[r]), scratch.ids[r]
            if r >= n_old and b == rounded and before[r] == common:
                continue  # still has the common dual
            listed += 1
            step = np.float64(b) - before[r]
            delta[c] = -margin * (step - common_step)
            sum_of_steps += step
            old_terms += terms(before[r], C, problem)
            new_terms += terms(np.float64(b), C, problem)
            changed |= step != 0
            if keep and b != rounded:
                buffer.ids[at + kept] = c
                buffer.values[at + kept] = b
                kept += 1
        n_same = k - 1 - listed
        sum_of_steps += n_same * common_step
        old_terms += n_same * terms(common, C, problem)
        new_terms += n_same * terms(np.float64(rounded), C, problem)
        if keep and rounded != 0:
            buffer.ids[at + kept] = k
            buffer.values[at + kept] = rounded
            kept += 1
        if changed:
            delta[y] = margin * (sum_of_steps + common_step)
        return kept, old_terms, new_terms - old_terms, changed

    set_duals = inlined(set_duals, name=f"{name}_common_set_duals")

    def visit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets):
        old, new, k = duals.old, duals.new, problem.n_classes
        for t in range(begin, end):
            i = order[t]
            if not has_room(new, k) or not has_sparse_room(sparse_rows, rows, i, len(scratch.scores)):
                return t
            fetch_rows(rows, order, t, end, None)
            fetch_duals(old, order, t, end)
            if t + 3 < end:
                fetch_extents(sparse_rows, rows, order[t + 3])
            if t + 1 < end:
                fetch_lists(sparse_rows, rows, order[t + 1])
            y = np.int64(rows.labels[i])
            if is_idle(rows, i, y, False, tally):
                continue
            C = rows.cost[i]
            n_vectors = mark_class(y, scratch, 0)
            n_old, n_vectors, old_sum, common = _add_listed(old, i, k, scratch, n_vectors)
            old_sum += (k - 1 - n_old) * common
            score_by_sparse_rows(scratch.scores, sparse_rows, rows, i, WEIGHT)  # without gᵀx
            loss, best = losses(y, problem, scratch.scores)
            m, n_vectors, new_common = solve(
                y, best, rows.norm2[i], C, problem, n_old, old_sum, common, n_vectors, scratch
            )
            tally[LOSS_SUM] += C * loss
            tally[CORRECT] += _is_right(y, best, scratch.scores)
            tally[CLOCK] += 1
            n_duals, old_terms, term_change, changed = set_duals(
                y, C, problem, n_old, m, common, new_common, scratch, new, new.used[0]
            )
            time_factor = (tally[CLOCK] / weights.time_unit) ** AVERAGE_POWER
            if changed:
                rate = scratch.delta.dtype.type(time_factor)
                update_sparse_rows(sparse_rows, rows, i, scratch.delta, scratch.vectors, n_vectors, rate)
                for q in range(n_vectors):
                    store(scratch.delta, scratch.vectors[q], zeros())
            clear_lanes(scratch, n_vectors)
            tally[DUAL_SUM] += old_terms + term_change
            tally[DUAL_DELTA] += time_factor * term_change
            close_row(i, n_duals, new)
        return end

    def loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets):
        for i in range(len(rows.labels)):
            y = np.int64(rows.labels[i])
            for kind in range(len(tallies)):
                tally = tallies[kind]
                if is_idle(rows, i, y, False, tally):
                    continue
                if kind == 0:
                    score_by_sparse_rows(scratch.scores, sparse_rows, rows, i, WEIGHT)
                else:
                    score_by_sparse_rows(scratch.delta, sparse_rows, rows, i, AVERAGE_DELTA)
                    subtract_scores(scratch.scores, scratch.delta, average_scale)
                loss, best = losses(y, problem, scratch.scores)
                tally[LOSS_SUM] += rows.cost[i] * loss
                tally[CORRECT] += _is_right(y, best, scratch.scores)

    return Kernels(
        kernel(visit, name=f"{name}_common_visit"),
        None,
        kernel(loss_rows, name=f"{name}_common_loss_rows"),
        norm2_of_centred,
    )


KERNELS = {"ww": _make("ww", HINGE), "ww2": _make("ww2", SQUARED_HINGE), "wws": _make("wws", SMOOTH_HINGE)}
