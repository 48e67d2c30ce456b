"""Chain-structured SVM, which predicts all labels of a sequence of tokens jointly.

Successive rows with equal ``qid`` form a chain of tokens x_1 ... x_n with true labels y*. In addition to the
weights w_c, there is a score T_ab for each transition from label a to b. A label sequence y has the score

    score(y) = Σ_t w_{y_t}ᵀx_t + Σ_t T[y_t, y_{t+1}].

The loss of a chain is max_y gain(y) with gain(y) = Δ(y) + score(y) - score(y*), where Δ(y) is the number of
wrong labels. With the mean cost C_g of the rows of chain g, the training problem is

    min ½‖W‖² + ½‖T‖² + Σ_g C_g loss_g

(Taskar, Guestrin & Koller 2003; Mohapatra et al. 2016, section 4.3). The loss of a chain with one token is
the Crammer-Singer loss (``cs``) of its row. The rows of T are stored as the last k weight rows.

The duals of a chain are weights α_y >= 0 on its kⁿ label sequences, which sum to C_g. The dual objective is
Σ_g Σ_y α_y Δ(y) - ½‖W‖² - ½‖T‖². It depends only on the marginals of α, which are the total weights of each
label of each token, and of each pair of labels of successive tokens. A visit finds the best sequence by the
Viterbi algorithm, and takes a step in the duals with one of four solvers:

``cached``
    keeps a few sequences with positive weight, and takes exact steps that move weight between two of them.
``bcfw``
    takes a Frank-Wolfe step towards the best sequence (Lacoste-Julien et al. 2013), and keeps the non-zero
    marginals.
``bcpl``
    takes a step of block-coordinate partial linearization towards the distribution ∝ α_y exp(gain(y) / τ),
    whose marginals are computed by forward-backward, and keeps all marginals. Initially, all weight is on y*.
    Marginals below 1e-12 C are raised to this value first, because the exponential cannot increase zeros.
``oeg``
    takes a step of online exponentiated gradient, which is like ``bcpl`` with a full step.

Let d_t and D_t be the changes in the marginals of the label of token t, and of its pair with the next label.
A step changes the weights by -Σ_t x_t d_tᵀ and the transitions by -Σ_t D_t. So the curvature of the dual is
Σ_tu x_tᵀx_u d_tᵀd_u + ‖Σ_t D_t‖², which needs the inner products of n² / 2 pairs of sparse rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.chains.kernels import best_sequence, group_end, longest_group, sequence_score
from streamsvm.chains.marginals import step_in_marginals
from streamsvm.chains.sequences import kept_sequences, max_sequences, step_among_sequences
from streamsvm.kernels.frame import Kernels
from streamsvm.kernels.jit import allocating, kernel
from streamsvm.kernels.score import score_row, subtract_scores
from streamsvm.kernels.scratch import clear_lanes, mark_class
from streamsvm.kernels.tally import CLOCK, CORRECT, DUAL_DELTA, DUAL_SUM, EMPTY, LOSS_SUM, UNWEIGHTED, VISITED
from streamsvm.kernels.update import update_weights
from streamsvm.kernels.weights import AVERAGE_POWER
from streamsvm.losses.base import ON_CHAINS

CACHED, BCFW = ON_CHAINS.index("cached"), ON_CHAINS.index("bcfw")


class Chain(NamedTuple):
    """Scratch arrays for chains of up to n tokens."""

    scores: np.ndarray  # (n, k) float64: scores, plus 1 for wrong classes
    transitions: np.ndarray  # (k, k) float64
    own: np.ndarray  # (n,) int64: true labels
    best: np.ndarray  # (n,) int64: label sequence with the largest score plus loss
    # Changes of the marginals, called marginal steps; zero between visits.
    node_steps: np.ndarray  # (n, k) float64
    pair_steps: np.ndarray  # (k, k) float64: sum over the tokens


class TransitionRows(NamedTuple):
    """One CSR row per label, which selects a transition row of the weights for `update_weights`."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray


@allocating
def _transition_rows(weights, k):
    first = len(weights) - k
    return TransitionRows(np.ones(k, weights.dtype), first + np.arange(k), np.arange(k + 1))


@allocating
def new_chain(n, k):
    return Chain(
        np.empty((n, k)),
        np.empty((k, k)),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.zeros((n, k)),
        np.zeros((k, k)),
    )


@kernel
def _score_chain(rows, i, n, weights, average_scale, scratch, chain):
    """Score the chain of `n` rows starting at row `i`, with averaged weights unless `average_scale` is 0."""
    k = len(chain.transitions)
    first = len(weights.current) - k
    for t in range(n):
        chain.own[t] = rows.labels[i + t]
        score_row(scratch.scores, rows, i + t, weights.current, 0, len(scratch.scores))
        if average_scale != 0.0:
            score_row(scratch.delta, rows, i + t, weights.average_delta, 0, len(scratch.delta))
            subtract_scores(scratch.scores, scratch.delta, average_scale)
        for c in range(k):
            chain.scores[t, c] = scratch.scores[c]
    for a in range(k):
        for b in range(k):
            chain.transitions[a, b] = weights.current[first + a, b]
            if average_scale != 0.0:
                chain.transitions[a, b] -= average_scale * weights.average_delta[first + a, b]


@kernel
def _is_idle(rows, i, n, C, tally):
    """Count the `n` tokens of the chain at row `i`; return True if the objective excludes the chain.

    It does so if the cost is 0, if a label is unknown, or if the only token has norm zero (as for ``cs``).
    """
    tally[VISITED] += n
    if C == 0.0:
        tally[UNWEIGHTED] += n
        return True
    idle = n == 1 and rows.norm2[i] == 0.0
    if idle:
        tally[CORRECT] += rows.labels[i] == 0
    for t in range(n):
        idle |= rows.labels[i + t] < 0
    if idle:
        tally[EMPTY] += n
    return idle


@kernel
def _mean_cost(rows, i, n):
    """Return the mean cost of the rows of a chain, which is exact if all costs are equal."""
    total, are_equal = 0.0, True
    for t in range(n):
        total += rows.cost[i + t]
        are_equal &= rows.cost[i + t] == rows.cost[i]
    return rows.cost[i] if are_equal else total / n


@kernel
def _count_correct(n, chain):
    correct = 0
    for t in range(n):
        correct += chain.best[t] == chain.own[t]
    return correct


@allocating
def _largest_gain(n, chain):
    """Add 1 to scores of wrong classes; set `chain.best` to the sequence of largest gain; return the loss."""
    own_score = sequence_score(chain.scores, chain.transitions, chain.own, n)
    for t in range(n):
        for c in range(len(chain.transitions)):
            chain.scores[t, c] += c != chain.own[t]
    return max(best_sequence(chain.scores, chain.transitions, n, chain.best) - own_score, 0.0)


@kernel
def _has_room(i, n, k, solver, old, new):
    if len(new.ids) == 0:
        return True
    max_duals = (n - 1) * k * k + k
    if solver == CACHED:
        max_duals = n * max_sequences(kept_sequences(i, n, old))
    elif solver == BCFW:  # one more dual for each token
        max_duals = n + old.counts[i : i + n].sum()
    return new.used[0] + max_duals <= len(new.ids)


@kernel
def _move_row(rows, i, steps, weights, scratch, time_factor):
    """Subtract x_i stepsᵀ from the weights, and set `steps`, shape (k,), to zero."""
    n_vectors = 0
    for c in range(len(steps)):
        if steps[c] != 0.0:
            scratch.delta[c] = -steps[c]
            steps[c] = 0.0
            n_vectors = mark_class(c, scratch, n_vectors)
    if n_vectors > 0:
        update_weights(rows, i, weights, None, scratch.delta, scratch.vectors, n_vectors, time_factor, None)
        clear_lanes(scratch, n_vectors)


def _make_visit(name, step):
    """Make the visit kernel from a function that takes a step in the duals of one chain.

    ``step(problem, rows, i, n, C, gain, old, new, chain)`` handles the chain of `n` rows starting at row `i`,
    where `gain` is the largest gain of a sequence. It writes the new duals to `new` and the marginal steps to
    `chain`. It returns the expected Hamming loss before the step, times C, and the change of this product.
    """

    def visit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets):
        """Take a step for each chain that begins in ``order[begin:end]``; rows of a chain are adjacent."""
        old, new, k = duals.old, duals.new, problem.n_classes
        chain = new_chain(longest_group(rows.qid), k)
        transitions = _transition_rows(weights.current, k)
        at = begin
        while at < end:
            i = order[at]
            n = group_end(rows.qid, i) - i
            if not _has_room(i, n, k, problem.solver, old, new):
                return at
            at += n
            C = _mean_cost(rows, i, n)
            if _is_idle(rows, i, n, C, tally):
                continue
            _score_chain(rows, i, n, weights, 0.0, scratch, chain)
            # If the chain has no old duals, this may be the first pass. Only that pass reports predictions.
            if not old.counts[i : i + n].any():
                best_sequence(chain.scores, chain.transitions, n, chain.best)
                tally[CORRECT] += _count_correct(n, chain)
            gain = _largest_gain(n, chain)
            tally[LOSS_SUM] += C * gain
            tally[CLOCK] += 1
            old_terms, term_change = step(problem, rows, i, n, C, gain, old, new, chain)
            time_factor = (tally[CLOCK] / weights.time_unit) ** AVERAGE_POWER
            for t in range(n):
                _move_row(rows, i + t, chain.node_steps[t], weights, scratch, time_factor)
            for a in range(k):
                _move_row(transitions, a, chain.pair_steps[a], weights, scratch, time_factor)
            tally[DUAL_SUM] += old_terms + term_change  # each pass counts all duals
            tally[DUAL_DELTA] += time_factor * term_change
        return at

    return allocating(visit, name=f"chain_{name}_visit")


def _loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets):
    chain = new_chain(longest_group(rows.qid), problem.n_classes)
    i = 0
    while i < len(rows.labels):
        n = group_end(rows.qid, i) - i
        C = _mean_cost(rows, i, n)
        for kind in range(len(tallies)):
            tally = tallies[kind]
            is_idle = _is_idle(rows, i, n, C, tally)
            if C == 0.0 or (is_idle and n == 1):
                continue
            _score_chain(rows, i, n, weights, 0.0 if kind == 0 else average_scale, scratch, chain)
            best_sequence(chain.scores, chain.transitions, n, chain.best)
            tally[CORRECT] += _count_correct(n, chain)
            if not is_idle:
                tally[LOSS_SUM] += C * _largest_gain(n, chain)
        i += n


_LOSS_ROWS = allocating(_loss_rows, name="chain_loss_rows")
_BY_SEQUENCES = Kernels(_make_visit("sequences", step_among_sequences), None, _LOSS_ROWS)
_BY_MARGINALS = _BY_SEQUENCES._replace(visit=_make_visit("marginals", step_in_marginals))

KERNELS: dict[str | tuple[str, str], Kernels] = {
    "chain": _BY_SEQUENCES,
    **{("chain", solver): _BY_MARGINALS for solver in ON_CHAINS[1:]},
}
