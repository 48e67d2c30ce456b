"""The block solver ``cached`` of the chain-structured SVM: pairwise steps among label sequences.

Each label sequence that is kept of a chain has an entry in each of the chain's rows: its label there, and its
weight. The own sequence has what is left of C.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.chains import best_sequence, inner_products, sequence_score
from streamsvm.kernels.duals import close_row
from streamsvm.kernels.jit import allocating, kernel
from streamsvm.losses.base import MOST_SEQUENCES

_ACCURACY = 0.001  # pairwise steps end when one raises the dual by this part of what they raised it by
ROUNDS = 2  # of finding the best sequence and moving weight to it
_STEPS = 5  # pairwise, for each cached sequence, at most


@allocating
def step_among_sequences(problem, rows, i, n, C, gain, old, new, word):
    """Add the best sequence to the cached ones, and move weight among these until they are balanced; repeat.

    A pairwise step moves weight from the sequence of the smallest gain, among those with weight, to that of
    the largest, as far as the dual rises.
    """
    own, best = word.own, word.best
    m = np.int64(old.counts[i])
    for t in range(1, n):
        m = min(m, np.int64(old.counts[i + t]))  # they are equal, but in a damaged log
    most = m + 1 + ROUNDS
    sequences, wrong = np.empty((most, n), np.int64), np.empty((most, 2, n + 1), np.int64)
    alpha, before, gains, losses = np.zeros(most), np.zeros(most), np.zeros(most), np.zeros(most)
    for t in range(n):
        sequences[0, t] = own[t]
    alpha[0] = C
    for s in range(m):
        alpha[s + 1] = before[s + 1] = old.values[old.values_at[i] + s]
        alpha[0] -= alpha[s + 1]
        for t in range(n):
            sequences[s + 1, t] = old.ids[old.ids_at[i + t] + s]
    if alpha[0] < C * np.finfo(new.values.dtype).eps:
        alpha[0] = 0.0  # but for rounding
    m += 1
    for s in range(1, m):
        for t in range(n):
            losses[s] += sequences[s, t] != own[t]
        gains[s] = _gain(sequences[s], n, word)
    products = inner_products(rows, i, np.ones(n, np.bool_))
    curvature = np.zeros((most, most))
    for s in range(1, m):
        _mark_wrong(sequences[s], own, n, wrong[s])
        _add_products(products, sequences, wrong, s, own, curvature)
    shown = before.copy()  # the weights that the scores are of
    for round_ in range(ROUNDS):
        if not gain > 0.0 or m > MOST_SEQUENCES or _position(best, sequences, m, n) >= 0:
            if round_ == 0:
                _balance(alpha, gains, curvature, m)
            break
        for t in range(n):
            sequences[m, t] = best[t]
            losses[m] += best[t] != own[t]
        gains[m] = gain
        _mark_wrong(sequences[m], own, n, wrong[m])
        _add_products(products, sequences, wrong, m, own, curvature)
        m += 1
        _balance(alpha, gains, curvature, m)
        if round_ + 1 < ROUNDS:
            for s in range(1, m):
                if alpha[s] != shown[s]:
                    _add_steps(sequences[s], n, alpha[s] - shown[s], word)
                    shown[s] = alpha[s]
            gain = _rescored_gain(products, n, word)
    old_terms, term_change, at, kept = 0.0, 0.0, new.used[0], 0
    for s in range(1, m):
        value = new.values.dtype.type(alpha[s])
        step = np.float64(value) - before[s]
        old_terms += losses[s] * before[s]
        term_change += losses[s] * step
        if step != 0.0:
            _add_steps(sequences[s], n, step, word)
        if value != 0.0:
            alpha[kept] = value  # behind `s`
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
def _rescored_gain(products, n, word):
    """Apply the steps of the marginals to the scores and the transitions, and find the best sequence again.

    Returns its score plus loss, minus the score of the own sequence. The steps are zero then.
    """
    k = len(word.transitions)
    for t in range(n):
        for u in range(n):
            for c in range(k):
                word.scores[t, c] -= products[t, u] * word.node_steps[u, c]
    for a in range(k):
        for b in range(k):
            word.transitions[a, b] -= word.pair_steps[a, b]
            word.pair_steps[a, b] = 0.0
    for t in range(n):
        for c in range(k):
            word.node_steps[t, c] = 0.0
    own_score = sequence_score(word.scores, word.transitions, word.own, n)
    return best_sequence(word.scores, word.transitions, n, word.best) - own_score


@kernel
def _position(sequence, sequences, m, n):
    """Which of the `m` sequences is equal to another one of `n` labels; -1 if none is."""
    for s in range(m):
        t = 0
        while t < n and sequences[s, t] == sequence[t]:
            t += 1
        if t == n:
            return s
    return -1


@kernel
def _gain(sequence, n, word):
    """Score plus loss of a sequence, minus the score of the own one."""
    own, scores, transitions = word.own, word.scores, word.transitions
    gain = 0.0
    for t in range(n):
        gain += scores[t, sequence[t]] - scores[t, own[t]]
        if t + 1 < n:
            gain += transitions[sequence[t], sequence[t + 1]] - transitions[own[t], own[t + 1]]
    return gain


@kernel
def _mark_wrong(sequence, own, n, wrong):
    """Write where a sequence differs from the own one, and where a pair of its labels does.

    ``wrong[0]`` and ``wrong[1]`` begin with the numbers of tokens and of pairs.
    """
    wrong[0, 0] = wrong[1, 0] = 0
    for t in range(n):
        if sequence[t] != own[t]:
            wrong[0, 0] += 1
            wrong[0, wrong[0, 0]] = t
        if t + 1 < n and (sequence[t] != own[t] or sequence[t + 1] != own[t + 1]):
            wrong[1, 0] += 1
            wrong[1, wrong[1, 0]] = t


@kernel
def _add_products(products, sequences, wrong, a, own, result):
    """Write row and column `a` of the inner products of what weight on sequences adds to the weights.

    That of sequence s is Σ_t x_t (e_{own_t} - e_{s_t})ᵀ, and the same of pairs: nothing where s is right.
    """
    p = sequences[a]
    for b in range(1, a + 1):
        q = sequences[b]
        total = 0.0
        for e in range(1, wrong[a, 0, 0] + 1):
            t = wrong[a, 0, e]
            for f in range(1, wrong[b, 0, 0] + 1):
                u = wrong[b, 0, f]
                same = np.int64(own[t] == own[u]) - np.int64(own[t] == q[u])
                same += np.int64(p[t] == q[u]) - np.int64(p[t] == own[u])
                total += products[t, u] * same
        for e in range(1, wrong[a, 1, 0] + 1):
            t = wrong[a, 1, e]
            for f in range(1, wrong[b, 1, 0] + 1):
                u = wrong[b, 1, f]
                same = _same_pair(own, t, own, u) - _same_pair(own, t, q, u)
                same += _same_pair(p, t, q, u) - _same_pair(p, t, own, u)
                total += same
        result[a, b] = result[b, a] = total


@kernel
def _same_pair(p, t, q, u):
    return np.int64(p[t] == q[u] and p[t + 1] == q[u + 1])


@kernel
def _balance(alpha, gains, curvature, m):
    """Pairwise steps among `m` sequences; modifies `alpha` and `gains`."""
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
        moved = alpha[down]
        if violation < length * moved:
            moved = violation / length
        alpha[up] += moved
        alpha[down] -= moved
        for s in range(m):
            gains[s] -= moved * (curvature[up, s] - curvature[down, s])
        rise = moved * (violation - 0.5 * length * moved)
        total += rise
        if rise <= _ACCURACY * total:
            break


@kernel
def _add_steps(sequence, n, step, word):
    """Add to the steps of the marginals those of `step` more weight on a sequence, and less on the own."""
    own = word.own
    for t in range(n):
        word.node_steps[t, sequence[t]] += step
        word.node_steps[t, own[t]] -= step
        if t + 1 < n:
            word.pair_steps[sequence[t], sequence[t + 1]] += step
            word.pair_steps[own[t], own[t + 1]] -= step
