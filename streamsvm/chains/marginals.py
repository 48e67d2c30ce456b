"""Block solvers ``bcfw``, ``bcpl`` and ``oeg`` of the chain-structured SVM, with marginals as duals.

Each token except the last has a dual for each pair of its label a and the next label b, with the id a k + b.
The last token has a dual for each label. For each token, the dual of the true pair (or label) is not stored,
because it is C minus the sum of the stored duals. Equation numbers are from Mohapatra et al. (2016).
"""

from __future__ import annotations

import numpy as np

from streamsvm.chains.kernels import inner_products, replace_by_marginals
from streamsvm.kernels.duals import close_row
from streamsvm.kernels.jit import allocating, kernel
from streamsvm.losses.base import ON_CHAINS

_, BCFW, BCPL, OEG = range(len(ON_CHAINS))

_MIN_FRACTION = 1e-12  # smallest fraction of C for BCPL and OEG, which cannot increase zeros
_MAX_STEP = 1 - np.finfo(np.float64).eps  # for BCPL, which must stay inside the simplex (section 5.2)


@allocating
def step_in_marginals(problem, rows, i, n, C, gain, old, new, chain):
    """Move the marginals of a chain towards the target of the solver (see `loss._make_visit`)."""
    starts, ids, before, target = load_pairs(problem.solver, problem.temperature, i, n, C, old, chain)
    step = 1.0
    if problem.solver != OEG:
        step = exact_step(rows, i, n, starts, ids, before, target, chain)
        if problem.solver == BCPL:
            step = min(step, _MAX_STEP)
    return move_pairs_towards(i, n, starts, ids, before, target, step, new, chain)


@kernel
def _own_id(t, n, k, labels):
    return labels[t] * k + labels[t + 1] if t + 1 < n else labels[t]


@allocating
def load_pairs(solver, temperature, i, n, C, old, chain):
    """Return the duals that a step may change: start of each token's duals, ids, old and target values."""
    k = len(chain.transitions)
    starts = np.zeros(n + 1, np.int64)
    if solver == BCFW:
        for t in range(n):
            starts[t + 1] = starts[t] + np.int64(old.counts[i + t]) + 1
        ids, before, target = np.empty(starts[n], np.int64), np.zeros(starts[n]), np.zeros(starts[n])
        at = 0
        for t in range(n):
            starts[t] = at
            vertex, own = _own_id(t, n, k, chain.best), _own_id(t, n, k, chain.own)
            has_vertex = vertex == own
            for r in range(old.counts[i + t]):
                ids[at] = _load_id(old, i, t, r, n, k)
                before[at] = old.values[old.at[i + t] + r]
                if ids[at] == vertex:
                    target[at] = C
                    has_vertex = True
                at += 1
            if not has_vertex:
                ids[at], target[at] = vertex, C
                at += 1
        starts[n] = at
        return starts, ids, before, target
    nodes, pairs = _gibbs_marginals(temperature, i, n, C, old, chain)
    for t in range(n):
        starts[t + 1] = starts[t] + (k * k if t + 1 < n else k)
    ids, before, target = np.empty(starts[n], np.int64), np.zeros(starts[n]), np.empty(starts[n])
    for t in range(n):
        own = _own_id(t, n, k, chain.own)
        for r in range(old.counts[i + t]):
            before[starts[t] + _load_id(old, i, t, r, n, k)] = old.values[old.at[i + t] + r]
        for e in range(starts[t + 1] - starts[t]):
            ids[starts[t] + e] = e
            fraction = pairs[t, e // k, e % k] if t + 1 < n else nodes[t, e]
            target[starts[t] + e] = C * fraction
        target[starts[t] + own] = before[starts[t] + own] = 0.0  # the true pair is not stored
    return starts, ids, before, target


@kernel
def _load_id(old, i, t, r, n, k):
    """Return the id of dual `r` of token `t`, limited for the last token in case the file is damaged."""
    dual_id = np.int64(old.ids[old.at[i + t] + r])
    return dual_id if t + 1 < n else min(dual_id, k - 1)


@allocating
def _gibbs_marginals(temperature, i, n, C, old, chain):
    """Return marginals of the distribution s(y) ∝ α(y) exp(gain(y) / τ) (Mohapatra et al. 2016, equation 9).

    The paper stores a weight α for each label sequence. Here, α is the maximum-entropy distribution with the
    stored marginals, the Markov chain Π_t p(y_t, y_{t+1}) / Π_t p(y_t). For this α, the equation is exact.
    """
    k = len(chain.transitions)
    nodes, pairs = np.zeros((n, k)), np.zeros((n, k, k))
    min_value = _MIN_FRACTION * C
    for t in range(n):
        own = _own_id(t, n, k, chain.own)
        rest = C
        for r in range(old.counts[i + t]):
            entry, value = _load_id(old, i, t, r, n, k), np.float64(old.values[old.at[i + t] + r])
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
                pairs[t, c, b] = max(pairs[t, c, b], min_value)
                nodes[t, c] += pairs[t, c, b]
    for t in range(n):
        for c in range(k):
            factor = 1.0  # the first and the last token are included in the pairs
            if n == 1:
                factor = max(nodes[t, c], min_value) / C
            elif 0 < t < n - 1:
                factor = C / nodes[t, c]
            nodes[t, c] = np.log(factor) + (chain.scores[t, c] - chain.scores[t, chain.own[t]]) / temperature
            if t + 1 < n:
                for b in range(k):
                    pairs[t, c, b] = np.log(pairs[t, c, b] / C) + chain.transitions[c, b] / temperature
    replace_by_marginals(nodes, pairs, n)
    return nodes, pairs


@kernel
def _add_pair_step(entry, t, n, step, chain):
    """Add the change of a dual of token `t` to the steps of its pair, and subtract it for the true pair."""
    k, own = len(chain.transitions), chain.own
    first = entry // k if t + 1 < n else entry
    chain.node_steps[t, first] += step
    chain.node_steps[t, own[t]] -= step
    if t + 1 < n:
        chain.pair_steps[first, entry % k] += step
        chain.pair_steps[own[t], own[t + 1]] -= step


@allocating
def exact_step(rows, i, n, starts, ids, before, target, chain):
    """Return the step length in [0, 1] towards `target` that maximises the dual objective (equation 10)."""
    k, own = len(chain.transitions), chain.own
    gain = 0.0
    for t in range(n):
        for e in range(starts[t], starts[t + 1]):
            first = ids[e] // k if t + 1 < n else ids[e]
            slope = chain.scores[t, first] - chain.scores[t, own[t]]
            if t + 1 < n:
                slope += chain.transitions[first, ids[e] % k] - chain.transitions[own[t], own[t + 1]]
            gain += (target[e] - before[e]) * slope
            _add_pair_step(ids[e], t, n, target[e] - before[e], chain)
    active = np.zeros(n, np.bool_)
    for t in range(n):
        active[t] = chain.node_steps[t].any()
    products = inner_products(rows, i, active)
    length = 0.0
    for t in range(n):
        for u in range(t + 1):
            if active[t] and active[u]:
                product = 0.0
                for c in range(k):
                    product += chain.node_steps[t, c] * chain.node_steps[u, c]
                length += product * products[t, u] * (1.0 if t == u else 2.0)
    for c in range(k):
        for b in range(k):
            length += chain.pair_steps[c, b] * chain.pair_steps[c, b]
    chain.pair_steps[:] = 0.0
    chain.node_steps[:n] = 0.0
    if not gain >= length:
        return gain / length if gain > 0.0 else 0.0
    return 1.0


@kernel
def move_pairs_towards(i, n, starts, ids, before, target, step, new, chain):
    """Write the rounded duals after a step to `new` (see `loss._make_visit` for the returned values)."""
    k, own = len(chain.transitions), chain.own
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
                _add_pair_step(ids[e], t, n, change, chain)
            if value != 0.0 and len(new.ids) > 0:
                new.ids[at] = ids[e]
                new.values[at] = value
                at += 1
                kept += 1
        close_row(i + t, kept, new)
    return old_terms, term_change
