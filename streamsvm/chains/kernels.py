"""Dynamic programming on chains, whose tokens are the rows of a group (successive rows with equal ``qid``).

A label sequence y of n tokens has the score Σ_t scores[t, y_t] + Σ_t transitions[y_t, y_{t+1}].
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import allocating, inlined, kernel


@inlined
def group_end(qid, i):
    """Return the end of the group that begins at row `i`; if `qid` is empty, each row is a group."""
    end = i + 1
    while end < len(qid) and qid[end] == qid[i]:
        end += 1
    return end


@kernel
def longest_group(qid):
    longest, begin = 1, 0
    while begin < len(qid):
        end = group_end(qid, begin)
        longest = max(longest, end - begin)
        begin = end
    return longest


@kernel
def sequence_score(scores, transitions, sequence, n):
    total = 0.0
    for t in range(n):
        total += scores[t, sequence[t]]
        if t > 0:
            total += transitions[sequence[t - 1], sequence[t]]
    return total


@allocating
def best_sequence(scores, transitions, n, sequence):
    """Write the best label sequence of `n` tokens to ``sequence[:n]``; return its score (Viterbi).

    `sequence` is int64, and the other arrays are float64. The traceback chooses the first of tied classes.
    """
    k = len(transitions)
    value, previous = scores[0].copy(), np.empty(k)
    predecessors = np.zeros((n, k), np.int32)
    for t in range(1, n):
        value, previous = previous, value
        value[:] = -np.inf
        for b in range(k):
            for c in range(k):
                score = previous[b] + transitions[b, c]
                if score > value[c]:
                    value[c] = score
                    predecessors[t, c] = b
        value += scores[t]
    best = 0
    for c in range(1, k):
        if value[c] > value[best]:
            best = c
    top = value[best]
    for t in range(n - 1, -1, -1):
        sequence[t] = best
        best = predecessors[t, best]
    return top


@kernel
def log_sum(values, k):
    """Return the log of the sum of the exponentials of the first `k` values, without overflow."""
    top = values[0]
    for c in range(1, k):
        top = max(top, values[c])
    total = 0.0
    for c in range(k):
        total += np.exp(values[c] - top)
    return top + np.log(total)


@allocating
def replace_by_marginals(nodes, pairs, n):
    """Replace log potentials of `n` >= 1 tokens by the marginals of their distribution (forward-backward).

    A label sequence y has a probability proportional to exp(Σ_t nodes[t, y_t] + Σ_t pairs[t, y_t, y_{t+1}]).
    `nodes` has shape (n or more, k), and `pairs` has shape (n - 1 or more, k, k). Both are float64.
    """
    k = nodes.shape[1]
    forward, backward, terms = np.empty((n, k)), np.empty((n, k)), np.empty(k)  # log-sums over other tokens
    for c in range(k):
        forward[0, c] = nodes[0, c]
        backward[n - 1, c] = 0.0
    for t in range(1, n):
        for c in range(k):
            for b in range(k):
                terms[b] = forward[t - 1, b] + pairs[t - 1, b, c]
            forward[t, c] = log_sum(terms, k) + nodes[t, c]
    for t in range(n - 2, -1, -1):
        for b in range(k):
            for c in range(k):
                terms[c] = pairs[t, b, c] + nodes[t + 1, c] + backward[t + 1, c]
            backward[t, b] = log_sum(terms, k)
    total = log_sum(forward[n - 1], k)
    for t in range(n - 1):
        for b in range(k):
            for c in range(k):
                log_p = forward[t, b] + pairs[t, b, c] + nodes[t + 1, c] + backward[t + 1, c] - total
                pairs[t, b, c] = np.exp(log_p)
    for t in range(n):
        for c in range(k):
            nodes[t, c] = np.exp(forward[t, c] + backward[t, c] - total)


@allocating
def decode_groups(scores, transitions, qid, best):
    """Write the best label sequence of each group to `best`, int64; the rows must form whole groups."""
    begin = 0
    while begin < len(best):
        end = group_end(qid, begin)
        best_sequence(scores[begin:end].astype(np.float64), transitions, end - begin, best[begin:end])
        begin = end


@allocating
def inner_products(rows, i, active):
    """Return x_tᵀx_u for the tokens of the chain starting at row `i`, shape (n, n); 0 for inactive tokens."""
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
