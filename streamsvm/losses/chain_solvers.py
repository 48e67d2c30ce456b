"""Block solvers of the chain-structured SVM: steps in the duals of one chain (see `streamsvm.losses.chain`).

A step between two distributions over label sequences changes the weights by -Σ_t x_t d_tᵀ and the transitions
by -Σ_t D_t, where d_t and D_t are the changes of the marginals of token t's label and of its pair of labels
with the next token. So the curvature of the dual along a step is Σ_tu x_tᵀx_u d_tᵀd_u + ‖Σ_t D_t‖². The inner
products of tokens are made once a step, for the tokens that take part: at most n² / 2 of sparse rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.chains import best_sequence, replace_by_marginals, sequence_score
from streamsvm.kernels.duals import close_row
from streamsvm.kernels.jit import allocating, kernel
from streamsvm.losses.base import MOST_SEQUENCES, ON_CHAINS

CACHED, BCFW, BCPL, OEG = range(len(ON_CHAINS))

_LEAST_SHARE = 1e-12  # of C, for BCPL and OEG: from 0 they could not rise
_LARGEST_STEP = 1 - np.finfo(np.float64).eps  # of BCPL, which must stay inside the simplex (section 5.2)
_ACCURACY = 0.001  # pairwise steps end when one raises the dual by this part of what they raised it by
_ROUNDS = 2  # of finding the best sequence and moving weight to it
_STEPS = 5  # pairwise, for each cached sequence, at most


class Word(NamedTuple):
    """The chain that is being visited: its first n tokens are in use."""

    scores: np.ndarray  # (n, k) float64: of each token and class, plus 1 for the wrong classes
    transitions: np.ndarray  # (k, k) float64
    own: np.ndarray  # (n,) int64: its labels
    best: np.ndarray  # (n,) int64: the label sequence of the largest score plus loss
    # By how much the marginals of C times the distribution change, zero between visits.
    node_steps: np.ndarray  # (n, k) float64
    pair_steps: np.ndarray  # (k, k) float64: summed over the tokens


@allocating
def step_chain(solver, temperature, rows, i, n, C, gain, old, new, word):
    """Make a step in the duals of the chain of the `n` rows from `i` on, and write them to `new`.

    Parameters
    ----------
    gain : float
        Score plus loss of the best sequence, minus the score of the own one.

    Returns
    -------
    old_terms, term_change : float
        The chain's expected Hamming loss before the step, times C, and its change. The steps of the marginals
        are left in `word`.
    """
    if solver == CACHED:
        return step_among_sequences(rows, i, n, C, gain, old, new, word)
    starts, ids, before, target = load_pairs(solver, temperature, i, n, C, old, word)
    step = 1.0
    if solver != OEG:
        step = exact_step(rows, i, n, starts, ids, before, target, word)
        if solver == BCPL:
            step = min(step, _LARGEST_STEP)
    return move_pairs_towards(i, n, starts, ids, before, target, step, new, word)


@allocating
def inner_products(rows, i, active):
    """x_tᵀx_u of the tokens from row `i` on that are `active`, shape (n, n); 0 for the others."""
    n = len(active)
    products = np.zeros((n, n))
    for t in range(n):
        if not active[t]:
            continue
        products[t, t] = rows.norm2[i + t]
        for u in range(t):
            if active[u]:
                products[t, u] = products[u, t] = _inner_product(rows, i + t, i + u)
    return products


@kernel
def _inner_product(rows, i, j):
    p, q = rows.indptr[i], rows.indptr[j]
    total = 0.0
    while p < rows.indptr[i + 1] and q < rows.indptr[j + 1]:
        f, g = rows.indices[p], rows.indices[q]
        if f == g:
            total += np.float64(rows.data[p]) * rows.data[q]
        p += f <= g
        q += g <= f
    return total


# -- cached: pairwise steps among label sequences --------------------------------------------------


@allocating
def step_among_sequences(rows, i, n, C, gain, old, new, word):
    """Add the best sequence to the chain's cached ones, and move weight among these until they are balanced.

    Each of the cached sequences has an entry in each of the chain's rows: its label there, and its weight.
    The own sequence, number 0, has what is left of C. A pairwise step moves weight from the sequence of the
    smallest gain, among those with weight, to that of the largest, as far as the dual rises.
    """
    own, best = word.own, word.best
    m = np.int64(old.counts[i])
    for t in range(1, n):
        m = min(m, np.int64(old.counts[i + t]))  # they are equal, but in a damaged log
    most = m + 1 + _ROUNDS
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
    for round_ in range(_ROUNDS):
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
        if round_ + 1 < _ROUNDS:
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


# -- bcfw, bcpl, oeg: steps in the marginals -------------------------------------------------------
#
# The duals of token t are the marginals of its pair of labels (a, b) with the next token, by the id a k + b;
# of the last token those of its label. The own pair has what is left of C, and no entry. The marginals of the
# labels are sums over pairs, so each entry also counts for its first label.


@kernel
def _own_id(t, n, k, labels):
    return labels[t] * k + labels[t + 1] if t + 1 < n else labels[t]


@allocating
def load_pairs(solver, temperature, i, n, C, old, word):
    """The entries that a step may change, with their old values and those of the point that it goes towards.

    Returns ``starts, ids, before, target``: the entries of token t begin at ``starts[t]``.
    """
    k = len(word.transitions)
    starts = np.zeros(n + 1, np.int64)
    if solver == BCFW:
        for t in range(n):
            starts[t + 1] = starts[t] + np.int64(old.counts[i + t]) + 1
        ids, before, target = np.empty(starts[n], np.int64), np.zeros(starts[n]), np.zeros(starts[n])
        at = 0
        for t in range(n):
            starts[t] = at
            vertex, own = _own_id(t, n, k, word.best), _own_id(t, n, k, word.own)
            has_vertex = vertex == own
            for r in range(old.counts[i + t]):
                ids[at] = _load_id(old, i, t, r, n, k)
                before[at] = old.values[old.values_at[i + t] + r]
                if ids[at] == vertex:
                    target[at] = C
                    has_vertex = True
                at += 1
            if not has_vertex:
                ids[at], target[at] = vertex, C
                at += 1
        starts[n] = at
        return starts, ids, before, target
    nodes, pairs = _gibbs_marginals(temperature, i, n, C, old, word)
    for t in range(n):
        starts[t + 1] = starts[t] + (k * k if t + 1 < n else k)
    ids, before, target = np.empty(starts[n], np.int64), np.zeros(starts[n]), np.empty(starts[n])
    for t in range(n):
        own = _own_id(t, n, k, word.own)
        for r in range(old.counts[i + t]):
            before[starts[t] + _load_id(old, i, t, r, n, k)] = old.values[old.values_at[i + t] + r]
        for e in range(starts[t + 1] - starts[t]):
            ids[starts[t] + e] = e
            share = nodes[t, e]
            if t + 1 < n:
                share = pairs[t, e // k, e % k]
            target[starts[t] + e] = C * share
        target[starts[t] + own] = before[starts[t] + own] = 0.0  # what is left of C
    return starts, ids, before, target


@kernel
def _load_id(old, i, t, r, n, k):
    """The id of dual `r` of token `t`: below k for the last token, even in a damaged log."""
    found = np.int64(old.ids[old.ids_at[i + t] + r])
    return found if t + 1 < n else min(found, k - 1)


@allocating
def _gibbs_marginals(temperature, i, n, C, old, word):
    """Marginals of the distribution s(y) ∝ α(y) exp(gain(y) / τ) (Mohapatra et al. 2016, equation 9).

    The paper's α is a weight for each label sequence, of which marginals alone are kept. Weights and dual
    depend on nothing else, so α is taken here as the distribution of the largest entropy among those with its
    marginals: the Markov chain Π_t p(y_t, y_{t+1}) / Π_t p(y_t). With it the equation is computed exactly.
    """
    k = len(word.transitions)
    nodes, pairs = np.empty((n, k)), np.empty((n, k, k))
    least = _LEAST_SHARE * C
    for t in range(n):
        own = _own_id(t, n, k, word.own)
        rest = C
        for c in range(k):
            nodes[t, c] = 0.0
            for b in range(k):
                pairs[t, c, b] = 0.0
        for r in range(old.counts[i + t]):
            entry, value = _load_id(old, i, t, r, n, k), np.float64(old.values[old.values_at[i + t] + r])
            rest -= value
            if t + 1 < n:
                pairs[t, entry // k, entry % k] = value
            else:
                nodes[t, entry] = value
        if t + 1 == n:
            nodes[t, own] = rest
            break
        pairs[t, own // k, own % k] = rest
        for c in range(k):
            for b in range(k):
                pairs[t, c, b] = max(pairs[t, c, b], least)
                nodes[t, c] += pairs[t, c, b]
    for t in range(n):
        for c in range(k):
            share = 1.0  # the pairs have what there is to say of the first token and the last one
            if n == 1:
                share = max(nodes[t, c], least) / C
            elif 0 < t < n - 1:
                share = C / nodes[t, c]
            nodes[t, c] = np.log(share) + (word.scores[t, c] - word.scores[t, word.own[t]]) / temperature
            if t + 1 < n:
                for b in range(k):
                    pairs[t, c, b] = np.log(pairs[t, c, b] / C) + word.transitions[c, b] / temperature
    replace_by_marginals(nodes, pairs, n)
    return nodes, pairs


@kernel
def _add_pair_step(entry, t, n, step, word):
    """Add to the steps of the marginals that of one dual of token `t`, which the own pair loses."""
    k, own = len(word.transitions), word.own
    first = entry // k if t + 1 < n else entry
    word.node_steps[t, first] += step
    word.node_steps[t, own[t]] -= step
    if t + 1 < n:
        word.pair_steps[first, entry % k] += step
        word.pair_steps[own[t], own[t + 1]] -= step


@allocating
def exact_step(rows, i, n, starts, ids, before, target, word):
    """How far to go towards `target` for the dual to rise most, in [0, 1]: equation 10, clipped."""
    k, own = len(word.transitions), word.own
    gain = 0.0
    for t in range(n):
        for e in range(starts[t], starts[t + 1]):
            first = ids[e] // k if t + 1 < n else ids[e]
            slope = word.scores[t, first] - word.scores[t, own[t]]
            if t + 1 < n:
                slope += word.transitions[first, ids[e] % k] - word.transitions[own[t], own[t + 1]]
            gain += (target[e] - before[e]) * slope
            _add_pair_step(ids[e], t, n, target[e] - before[e], word)
    active = np.zeros(n, np.bool_)
    for t in range(n):
        for c in range(k):
            active[t] |= word.node_steps[t, c] != 0.0
    products = inner_products(rows, i, active)
    length = 0.0
    for t in range(n):
        for u in range(t + 1):
            if active[t] and active[u]:
                both = 0.0
                for c in range(k):
                    both += word.node_steps[t, c] * word.node_steps[u, c]
                length += both * products[t, u] * (1.0 if t == u else 2.0)
    for c in range(k):
        for b in range(k):
            length += word.pair_steps[c, b] * word.pair_steps[c, b]
            word.pair_steps[c, b] = 0.0
    for t in range(n):
        for c in range(k):
            word.node_steps[t, c] = 0.0
    if not gain >= length:
        return gain / length if gain > 0.0 else 0.0
    return 1.0


@kernel
def move_pairs_towards(i, n, starts, ids, before, target, step, new, word):
    """Write the duals after a step, rounded, to `new`; see `step_chain`."""
    k, own = len(word.transitions), word.own
    old_terms, term_change, at = 0.0, 0.0, new.used[0]
    for t in range(n):
        kept = 0
        for e in range(starts[t], starts[t + 1]):
            exact = before[e] + step * (target[e] - before[e]) if step < 1.0 else target[e]
            value = new.values.dtype.type(max(exact, 0.0))
            change = np.float64(value) - before[e]
            first = ids[e] // k if t + 1 < n else ids[e]
            if first != own[t]:
                old_terms += before[e]
                term_change += change
            if change != 0.0:
                _add_pair_step(ids[e], t, n, change, word)
            if value != 0.0 and len(new.ids) > 0:
                new.ids[at] = ids[e]
                new.values[at] = value
                at += 1
                kept += 1
        close_row(i + t, kept, new)
    return old_terms, term_change
