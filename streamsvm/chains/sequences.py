"""Block solver ``cached`` of the chain-structured SVM: moves weight between pairs of label sequences.

For each sequence that the solver keeps, every row of the chain stores a dual: the label of the row as the id,
and the weight of the sequence. The weight of the true sequence is C minus the sum of the stored weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.chains.kernels import best_sequence, inner_products, sequence_score
from streamsvm.kernels.duals import close_row
from streamsvm.kernels.jit import allocating, inlined, kernel
from streamsvm.losses.base import MOST_SEQUENCES, ROUNDS

_ACCURACY = 0.001  # no more steps are taken after one that adds at most this fraction of the total increase
_STEPS = 5  # maximum number of steps per sequence


class Cached(NamedTuple):
    """Label sequences of a chain that may have weight: the true sequence, kept sequences, new sequences."""

    sequences: np.ndarray  # (capacity, n) int64
    alpha: np.ndarray  # (capacity,) float64: weights, with the sum C
    before: np.ndarray  # (capacity,) float64: weights before the visit; 0 for the true sequence
    losses: np.ndarray  # (capacity,) float64: number of wrong labels
    gains: np.ndarray  # (capacity,) float64: gains as defined in `streamsvm.chains.loss`
    curvature: np.ndarray  # (capacity, capacity) float64: inner products of changes in (W, T) by unit weights
    products: np.ndarray  # (n, n) float64: inner products of the tokens
    # Scratch arrays of `_add_products`: products of the tokens with a change of W, and the change of T.
    token_products: np.ndarray  # (n, k) float64
    pair_products: np.ndarray  # (k, k) float64


@allocating
def step_among_sequences(problem, rows, i, n, C, gain, old, new, chain):
    """Add the best sequence to the kept sequences, and move weight among them (see `loss._make_visit`)."""
    cached, m = load_sequences(rows, i, n, C, old, new, chain)
    m = _balance_in_rounds(cached, m, n, gain, chain)
    return _write_sequences(cached, m, i, n, new, chain)


@inlined
def kept_sequences(i, n, old):
    """Return the number of kept sequences of a chain; rows agree on it unless the file is damaged."""
    m = np.int64(old.counts[i])
    for t in range(1, n):
        m = min(m, np.int64(old.counts[i + t]))
    return m


@inlined
def max_sequences(m):
    """Return the maximum number of kept sequences after a visit that begins with `m` kept sequences."""
    return max(m, min(m + ROUNDS, MOST_SEQUENCES))


@allocating
def load_sequences(rows, i, n, C, old, new, chain):
    """Return the true sequence and the kept sequences, with room for new ones, and their number."""
    kept = kept_sequences(i, n, old)
    capacity, k = kept + 1 + ROUNDS, len(chain.transitions)
    cached = Cached(
        np.empty((capacity, n), np.int64),
        np.zeros(capacity),
        np.zeros(capacity),
        np.zeros(capacity),
        np.zeros(capacity),
        np.zeros((capacity, capacity)),
        inner_products(rows, i, np.ones(n, np.bool_)),
        np.zeros((n, k)),
        np.zeros((k, k)),
    )
    alpha = cached.alpha
    alpha[0] = C
    for t in range(n):
        cached.sequences[0, t] = chain.own[t]
    for s in range(1, kept + 1):
        alpha[s] = cached.before[s] = old.values[old.at[i] + s - 1]
        alpha[0] -= alpha[s]
        for t in range(n):
            cached.sequences[s, t] = old.ids[old.at[i + t] + s - 1]
        _describe(cached, s, n, chain)
    if alpha[0] < C * np.finfo(new.values.dtype).eps:
        alpha[0] = 0.0  # only rounding error
    return cached, kept + 1


@kernel
def _describe(cached, s, n, chain):
    sequence = cached.sequences[s]
    for t in range(n):
        cached.losses[s] += sequence[t] != chain.own[t]
    cached.gains[s] = _gain(sequence, n, chain)
    _add_products(cached, s, n, chain.own)


@allocating
def _balance_in_rounds(cached, m, n, gain, chain):
    """Move weight among `m` sequences and new best ones, first ``chain.best``; return the new `m`."""
    alpha, gains = cached.alpha, cached.gains
    scored_alpha = cached.before.copy()  # weights for which the scores were computed
    for round_ in range(ROUNDS):
        if not gain > 0.0 or _position(chain.best, cached.sequences, m, n) >= 0:
            if round_ == 0:
                _balance(alpha, gains, cached.curvature, m)
            break
        for t in range(n):
            cached.sequences[m, t] = chain.best[t]
        _describe(cached, m, n, chain)
        old_alpha, old_gains = alpha.copy(), gains.copy()
        rise = _balance(alpha, gains, cached.curvature, m + 1)
        rise += _make_room(alpha, gains, cached.curvature, m + 1)
        if not rise > 0.0:  # the dropped sequence was worth more
            alpha[:], gains[:] = old_alpha, old_gains
            if round_ == 0:
                _balance(alpha, gains, cached.curvature, m)
            break
        m += 1
        if round_ + 1 < ROUNDS:
            for s in range(1, m):
                if alpha[s] != scored_alpha[s]:
                    _add_steps(cached.sequences[s], n, alpha[s] - scored_alpha[s], chain)
                    scored_alpha[s] = alpha[s]
            gain = _rescored_gain(cached.products, n, chain)
    return m


@kernel
def _make_room(alpha, gains, curvature, m):
    """Until at most `MOST_SEQUENCES` are left, drop the one that lowers the dual least; return its change."""
    change = 0.0
    n_weighted = 0
    for s in range(1, m):
        n_weighted += alpha[s] > 0.0
    while n_weighted > MOST_SEQUENCES:
        min_decrease, down, up = np.inf, 0, 0
        for s in range(1, m):
            for u in range(m):
                if u != s and alpha[s] > 0.0 and (u == 0 or alpha[u] > 0.0):
                    length = curvature[s, s] - 2.0 * curvature[s, u] + curvature[u, u]
                    decrease = alpha[s] * (gains[s] - gains[u] + 0.5 * alpha[s] * length)
                    if decrease < min_decrease:
                        min_decrease, down, up = decrease, s, u
        if down == 0:  # numbers are not finite
            return -np.inf
        weight = alpha[down]
        _move_weight(alpha, gains, curvature, m, up, down, weight)
        alpha[down] = 0.0
        change -= min_decrease
        n_weighted -= 1
    return change


@allocating
def _write_sequences(cached, m, i, n, new, chain):
    """Write the rounded weights and sequences as duals (see `loss._make_visit` for the returned values)."""
    alpha, sequences, losses = cached.alpha, cached.sequences, cached.losses
    old_terms, term_change, at, kept = 0.0, 0.0, new.used[0], 0
    for s in range(1, m):
        value = new.values.dtype.type(alpha[s])
        step = np.float64(value) - cached.before[s]
        old_terms += losses[s] * cached.before[s]
        term_change += losses[s] * step
        if step != 0.0:
            _add_steps(sequences[s], n, step, chain)
        if value != 0.0:
            alpha[kept] = value  # overwrites only entries up to `s`
            for t in range(n):
                sequences[kept, t] = sequences[s, t]
            kept += 1
    for t in range(n):
        if len(new.ids) > 0:
            for s in range(kept):
                new.ids[at] = sequences[s, t]
                new.values[at] = alpha[s]
                at += 1
        close_row(i + t, kept, new)
    return old_terms, term_change


@allocating
def _rescored_gain(products, n, chain):
    """Apply the marginal steps to the scores, then clear the steps; return the gain of the best sequence."""
    k = len(chain.transitions)
    for t in range(n):
        for u in range(n):
            for c in range(k):
                chain.scores[t, c] -= products[t, u] * chain.node_steps[u, c]
    for a in range(k):
        for b in range(k):
            chain.transitions[a, b] -= chain.pair_steps[a, b]
    chain.pair_steps[:] = 0.0
    chain.node_steps[:n] = 0.0
    own_score = sequence_score(chain.scores, chain.transitions, chain.own, n)
    return best_sequence(chain.scores, chain.transitions, n, chain.best) - own_score


@kernel
def _position(sequence, sequences, m, n):
    for s in range(m):
        t = 0
        while t < n and sequences[s, t] == sequence[t]:
            t += 1
        if t == n:
            return s
    return -1


@kernel
def _gain(sequence, n, chain):
    own, scores, transitions = chain.own, chain.scores, chain.transitions
    gain = 0.0
    for t in range(n):
        gain += scores[t, sequence[t]] - scores[t, own[t]]
        if t + 1 < n:
            gain += transitions[sequence[t], sequence[t + 1]] - transitions[own[t], own[t + 1]]
    return gain


@kernel
def _add_products(cached, a, n, own):
    """Write row and column `a` of the curvature (see `Cached`).

    Unit weight on a sequence p adds Σ_t x_t (e_{own_t} - e_{p_t})ᵀ to W. T changes likewise, by label pairs.
    """
    p, products = cached.sequences[a], cached.products
    token_products, pair_products = cached.token_products, cached.pair_products
    for u in range(n):
        if p[u] != own[u]:
            for t in range(n):
                token_products[t, own[u]] += products[t, u]
                token_products[t, p[u]] -= products[t, u]
        if u + 1 < n:
            pair_products[own[u], own[u + 1]] += 1.0
            pair_products[p[u], p[u + 1]] -= 1.0
    for b in range(1, a + 1):
        q = cached.sequences[b]
        total = 0.0
        for t in range(n):
            total += token_products[t, own[t]] - token_products[t, q[t]]
            if t + 1 < n:
                total += pair_products[own[t], own[t + 1]] - pair_products[q[t], q[t + 1]]
        cached.curvature[a, b] = cached.curvature[b, a] = total
    for u in range(n):
        if p[u] != own[u]:
            for t in range(n):
                token_products[t, own[u]] = token_products[t, p[u]] = 0.0
        if u + 1 < n:
            pair_products[own[u], own[u + 1]] = pair_products[p[u], p[u + 1]] = 0.0


@kernel
def _balance(alpha, gains, curvature, m):
    """Move weight between pairs of `m` sequences, updating `alpha` and `gains`; return the rise of the dual.

    Each step takes weight from the sequence with the smallest gain among those that have weight, and moves
    it to the sequence with the largest gain.
    """
    total = 0.0
    for _ in range(_STEPS * m):
        up, down = 0, -1
        for s in range(m):
            if gains[s] > gains[up]:
                up = s
            if alpha[s] > 0.0 and (down < 0 or gains[s] < gains[down]):
                down = s
        violation = gains[up] - gains[down]
        if down < 0 or not violation > 0.0:
            break
        length = curvature[up, up] - 2.0 * curvature[up, down] + curvature[down, down]
        weight = alpha[down]
        if violation < length * weight:
            weight = violation / length
        _move_weight(alpha, gains, curvature, m, up, down, weight)
        rise = weight * (violation - 0.5 * length * weight)
        total += rise
        if rise <= _ACCURACY * total:
            break
    return total


@kernel
def _move_weight(alpha, gains, curvature, m, up, down, weight):
    alpha[up] += weight
    alpha[down] -= weight
    for s in range(m):
        gains[s] -= weight * (curvature[up, s] - curvature[down, s])


@kernel
def _add_steps(sequence, n, step, chain):
    """Update the marginal steps for a move of the weight `step` from the true sequence to `sequence`."""
    own = chain.own
    for t in range(n):
        chain.node_steps[t, sequence[t]] += step
        chain.node_steps[t, own[t]] -= step
        if t + 1 < n:
            chain.pair_steps[sequence[t], sequence[t + 1]] += step
            chain.pair_steps[own[t], own[t + 1]] -= step
