"""The trainer in plain NumPy, to be read from top to bottom: an exact Weston-Watkins SVM on data on disk.

    streamsvm convert train.libsvm --out train.zarr
    python examples/walrus.py train.zarr --C 0.1 --passes 5

It visits the same rows in the same order, and ends with the same weights, average, primal and dual, as

    streamsvm fit train.zarr --out run --C 0.1 --passes 5 --inner-passes 0 --dtype float64 --transform none

and a test compares them. The engine is hundreds of times as fast: docs/engine.md says how. This is only its
mathematics, for rows that `convert` shuffled, with one label each and without weights.

The problem, of rows x_i of class y_i, and W with a column w_c for each class:

    min P(W) = ½‖W‖² + C Σ_i Σ_{j≠y_i} max(0, 1 - (w_{y_i} - w_j)ᵀx_i)

Its dual has a number 0 <= b_ij <= C for each row and wrong class; these also say what the weights are:

    max D(B) = Σ_ij b_ij - ½‖W‖²,    w_c = Σ_{i: y_i = c} (Σ_j b_ij) x_i - Σ_i b_ic x_i

Weak duality: D <= P, whatever B is. So their gap, P - D, bounds how far W is from the optimum.
"""

import argparse
import bisect
import itertools
import tempfile

import numpy as np

import streamsvm
from streamsvm.kernels.random import local_permutation, permutation

# -- One row -------------------------------------------------------------------------------------------
#
# A visit maximises D exactly over the k - 1 duals of one row, all others held fixed. With q = ‖x‖², scores
# s = Wᵀx and the row's old duals b, the new ones are (Wang & Scott 2021)
#
#     b_j = clip(v_j - γ, 0, C),    v_j = (1 - s_y + s_j) / q + b_j + Σb,    γ = Σ_j clip(v_j - γ, 0, C)
#
# The first says that the derivative of D is 0 where b_j is free, and points outwards where it is at a bound.
# The last one is an equation of the number γ. Its left side rises, its right side falls and is linear between
# the points v_j and v_j - C. So the piece that has the solution is found by bisection of the sorted points,
# and the solution by a division. (The engine uses Newton's method instead, which needs no sorting.)


def solve_block(v, C):
    """Return the duals clip(v - γ, 0, C), shape (k - 1,), of which γ is the sum."""

    def is_beyond(gamma):
        return gamma >= np.clip(v - gamma, 0, C).sum()

    points = np.sort(np.concatenate([v, v - C, [np.inf]]))
    end = points[bisect.bisect_left(points, True, key=is_beyond)]  # of the piece that has the solution
    full, free = v - C >= end, (v - C < end) & (end <= v)
    gamma = (C * full.sum() + v[free].sum()) / (1 + free.sum())
    return np.clip(v - gamma, 0, C)


# -- All rows ------------------------------------------------------------------------------------------
#
# A block of rows is in memory at a time. Blocks come in an order that is drawn from the seed and the number
# of the pass, and the rows of a block in one that is drawn from its number too. So nobody needs to store the
# order: a run that was killed goes on in the same one.
#
# The last iterate is noisy, because each visit makes up for what one row lacks. So the model is an average of
# the iterates in the second half of the last pass, where iterate s of it, from 0 on, has the weight 2s + 1.
# These weights add up to T² for T iterates, and a step Δ from iterate t - 1 to t is missing in the first t of
# them, which weigh t² of T²:
#
#     average = W - U / T²,    U = Σ_t t² Δ_t
#
# which changes U only where a step changes W. The dual objective is linear in the duals but for ½‖W‖², so
# the sum of the averaged duals follows in the same way, without the duals themselves.


def train(path, C=1.0, passes=3, block_rows=None, seed=0, report=print):
    """Train on the store at `path`.

    Returns
    -------
    W, average : ndarray of float64, shape (n_features, n_classes)
        The last iterate, and the average.
    of_W, of_average : (float, float)
        Their primal and dual objectives.
    """
    with streamsvm.open_store(path) as store, tempfile.TemporaryFile() as file:
        assert (store.shuffled, store.multilabel, store.weighted) == (True, False, False)
        n, k = store.n_rows, store.n_classes
        starts = np.append(np.arange(0, n, block_rows or n), n)
        W, U, T = np.zeros((store.n_features, k)), np.zeros((store.n_features, k)), 0
        # A dual for each row and class may not fit in memory. (The engine keeps those that are not 0.)
        duals = np.memmap(file, float, "w+", shape=(n, k))
        dual_sum = dual_U = 0.0

        for number in range(1, passes + 1):
            visited, loss = 0, 0.0
            for block in permutation(len(starts) - 1, seed, number, -1, 0):
                rows = store.rows(starts[block], starts[block + 1])
                for i in local_permutation(rows.n_rows, seed, number, block, 0):
                    averages = number == passes and visited >= n // 2
                    visited += 1
                    q = rows.norm2[i]
                    if q == 0:
                        continue  # its scores are 0, whatever W is: it does not enter the problem
                    (features, values), y, b = row_of(rows, i), rows.labels[i], duals[starts[block] + i]
                    scores = values @ W[features]
                    slack = np.delete(1 - scores[y] + scores, y)
                    loss += C * np.maximum(0, slack).sum()

                    old = np.delete(b, y)
                    new = solve_block(slack / q + old + old.sum(), C)
                    b[:] = np.insert(new, y, 0)
                    step = np.insert(old - new, y, (new - old).sum())
                    W[features] += np.outer(values, step)
                    dual_sum += step[y]
                    if averages:
                        T += 1
                        U[features] += T**2 * np.outer(values, step)
                        dual_U += T**2 * step[y]
            norm2 = (W**2).sum()
            # The losses are those that each row had as it was visited, so this P is an estimate.
            report(f"pass {number}: dual {dual_sum - norm2 / 2:.8g}, primal about {norm2 / 2 + loss:.8g}")

        average = W - U / max(T, 1) ** 2
        of_W = objectives(store, starts, W, C, dual_sum)
        of_average = objectives(store, starts, average, C, dual_sum - dual_U / max(T, 1) ** 2)
        return W, average, of_W, of_average


def objectives(store, starts, W, C, dual_sum):
    """Return P(W), for which all rows are read once more, and D, given Σ b_ij."""
    half_norm2, loss = (W**2).sum() / 2, 0.0
    for begin, end in itertools.pairwise(starts):
        rows = store.rows(begin, end)
        for i in np.flatnonzero(rows.norm2):
            (features, values), y = row_of(rows, i), rows.labels[i]
            scores = values @ W[features]
            loss += np.maximum(0, np.delete(1 - scores[y] + scores, y)).sum()
    return half_norm2 + C * loss, dual_sum - half_norm2


def row_of(rows, i):
    """Return the features of row `i` of a CSR matrix that are not 0, and their values."""
    part = slice(rows.indptr[i], rows.indptr[i + 1])
    return rows.indices[part], rows.data[part].astype(float)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store")
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--block-rows", type=int, help="by default all; give the same to fit")
    given = parser.parse_args()
    *_, of_W, of_average = train(given.store, given.C, given.passes, given.block_rows)
    for name, (primal, dual) in ("last iterate", of_W), ("average", of_average):
        print(f"{name}: primal {primal:.8g}, dual {dual:.8g}, relative gap {(primal - dual) / primal:.3g}")
