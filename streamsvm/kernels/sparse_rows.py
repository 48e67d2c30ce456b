"""Sparse storage of the weights, for very many classes.

Each feature has a row, which begins as a list of entries: classes, weights and, if iterates are averaged,
average deltas, in separate arrays. Once more than one class in four has an entry, the row is stored in full,
which is faster and takes less than three times the space. All rows are in one pool. A list that outgrows its
place moves, and its old place is reused. If the weights are dense, kernels get None as `sparse_rows`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.simd import LANES, lanes, load, multiply_add, prefetch, store

WEIGHT, AVERAGE_DELTA = 0, 1  # arrays of a row, by position
_FULL = 4  # a row is stored in full once more than 1 / _FULL of the classes have an entry
_CHANGED, _FOUND = 1, 2  # marks of a changed class, before and after its list entry is found
_STEP = 8  # number of entries checked together
# Entries up to this fraction of the largest entry of their row are only rounding errors, and are dropped.
_NEGLIGIBLE = 2.0**-26
_LISTS = 40  # number of list sizes ("kinds"); each size is twice the previous one


class SparseRows(NamedTuple):
    """Sparse rows of the weights.

    For feature f, ``at, size, capacity = extents[f]``. Its `size` weights begin at ``pool[at]``, and its
    average deltas at ``pool[at + capacity]``. If `size` is the number of columns, the row is stored in full.
    Otherwise the row is a list, and its classes begin at ``classes[at - capacity]``.
    """

    pool: np.ndarray  # (any,) dtype of the weights
    classes: np.ndarray  # view of the pool as unsigned integers of the same size
    extents: np.ndarray  # (n_features, 3) int64
    used: np.ndarray  # (1,) int64: number of allocated elements in the pool, including free places
    free: np.ndarray  # (_LISTS,) int64: first free place for each kind of list, or -1
    changed: np.ndarray  # (K,) int64: scratch array for the classes that a visit changes
    marks: np.ndarray  # (K,) uint8: scratch array for marks of the changed classes; zero between visits
    width: int  # number of arrays in a list: 2, or 3 with an average

    @classmethod
    def create(cls, n_features: int, columns: int, dtype: np.dtype, *, average: bool) -> SparseRows:
        nothing = np.zeros(0, dtype)
        return cls(
            nothing,
            nothing.view(f"u{dtype.itemsize}"),
            np.zeros((n_features, 3), np.int64),
            np.zeros(1, np.int64),
            np.full(_LISTS, -1),
            np.zeros(columns, np.int64),
            np.zeros(columns, np.uint8),
            2 + average,
        )


@inlined
def kind_of(n, pool):
    """Return the kind of the smallest list with room for `n` entries."""
    kind = 0
    while lanes(pool) << kind < n:
        kind += 1
    return kind


@kernel
def most_places(sparse_rows, sizes, columns):
    """Return an upper bound on the number of pool elements that rows of these sizes need."""
    total = 0
    for n in sizes:
        if n > columns // _FULL:
            total += sparse_rows.width * columns
        else:
            total += sparse_rows.width * (lanes(sparse_rows.pool) << kind_of(n, sparse_rows.pool))
    return total


@inlined
def has_sparse_room(sparse_rows, rows, i, columns):
    """Return True if the pool has room for any visit of row `i`, or if there are no sparse rows."""
    if sparse_rows is None:
        return True
    n_features = rows.indptr[i + 1] - rows.indptr[i]
    return sparse_rows.used[0] + n_features * sparse_rows.width * columns <= len(sparse_rows.pool)


@inlined
def fetch_extents(sparse_rows, rows, i):
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        prefetch(sparse_rows.extents, (rows.indices[p], 0))


@inlined
def fetch_lists(sparse_rows, rows, i):
    extents, pool = sparse_rows.extents, sparse_rows.pool
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        f = rows.indices[p]
        prefetch(pool, extents[f, 0] - extents[f, 2])
        prefetch(pool, extents[f, 0])


@inlined
def score_by_sparse_rows(scores, sparse_rows, rows, i, array):
    """Write the scores of row `i`, shape (K,); `array` selects the weights or the average deltas."""
    pool, classes, K = sparse_rows.pool, sparse_rows.classes, len(scores)
    scores[:] = 0
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        f, x = rows.indices[p], rows.data[p]
        at, size, capacity = entries(sparse_rows, f)
        first = at + array * capacity
        if size == K:
            for c in range(0, K, lanes(scores)):
                store(scores, c, multiply_add(x, load(pool, first + c), load(scores, c)))
        else:
            for e in range(size):
                scores[classes[at - capacity + e]] += x * pool[first + e]


@inlined
def _allocate(sparse_rows, kind, size):
    """Return the start of a free place for a list of this kind, or of `size` newly allocated elements."""
    begin = sparse_rows.free[kind]
    if begin >= 0:
        # Each free place stores the position of the next free place, in units of vectors.
        next_free = np.int64(sparse_rows.classes[begin])
        sparse_rows.free[kind] = (next_free - 1) * lanes(sparse_rows.pool)
        return begin
    begin = sparse_rows.used[0]
    sparse_rows.used[0] += size
    return begin


@inlined
def _release(sparse_rows, kind, begin):
    sparse_rows.classes[begin] = sparse_rows.free[kind] // lanes(sparse_rows.pool) + 1
    sparse_rows.free[kind] = begin


@inlined
def reserve_entries(sparse_rows, f, n, columns):
    """Make room for `n` entries of feature `f`, whose row may be moved or stored in full."""
    pool, classes, n_arrays = sparse_rows.pool, sparse_rows.classes, sparse_rows.width - 1
    at, size, capacity = entries(sparse_rows, f)
    if size == columns or n <= min(capacity, columns // _FULL):
        return
    if n > columns // _FULL:
        new_at, new_capacity = _allocate(sparse_rows, _LISTS - 1, n_arrays * columns), columns
        for e in range(new_at, new_at + n_arrays * columns):
            pool[e] = 0
        for e in range(size):
            for array in range(n_arrays):
                pool[new_at + array * columns + classes[at - capacity + e]] = pool[at + array * capacity + e]
        sparse_rows.extents[f, 1] = columns
    else:
        kind = kind_of(n, pool)
        new_capacity = lanes(pool) << kind
        new_at = _allocate(sparse_rows, kind, sparse_rows.width * new_capacity) + new_capacity
        for e in range(size):
            classes[new_at - new_capacity + e] = classes[at - capacity + e]
            for array in range(n_arrays):
                pool[new_at + array * new_capacity + e] = pool[at + array * capacity + e]
    if capacity > 0:
        _release(sparse_rows, kind_of(capacity, pool), at - capacity)
    sparse_rows.extents[f, 0], sparse_rows.extents[f, 2] = new_at, new_capacity


@inlined
def update_sparse_rows(sparse_rows, rows, i, delta, vectors, n_vectors, rate):
    """Add x_i deltaᵀ to the weights, and `rate` times this product to the average deltas."""
    changed, marks = sparse_rows.changed, sparse_rows.marks
    m, zero = 0, delta.dtype.type(0)
    for q in range(n_vectors):
        for c in range(vectors[q], vectors[q] + LANES):
            if delta[c] != zero:
                changed[m], marks[c] = c, _CHANGED
                m += 1
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        f, x = rows.indices[p], rows.data[p]
        n_existing = 0
        if sparse_rows.extents[f, 1] < len(delta):
            n_existing = _add_to_list(sparse_rows, f, x, delta, rate)
        if n_existing < m:
            reserve_entries(sparse_rows, f, sparse_rows.extents[f, 1] + m - n_existing, len(delta))
            _add_new_entries(sparse_rows, f, x, delta, m, n_existing, rate)
        if n_existing > 0:
            for r in range(m):
                marks[changed[r]] = _CHANGED
    for r in range(m):
        marks[changed[r]] = 0


@inlined
def _add_to_list(sparse_rows, f, x, delta, rate):
    """Update the list entries of feature `f` whose classes change; mark these, and return their number."""
    pool, classes, marks = sparse_rows.pool, sparse_rows.classes, sparse_rows.marks
    at, size, capacity = entries(sparse_rows, f)
    averaged, n_existing = sparse_rows.width > 2 and rate != 0, 0
    for first in range(at, at + size, _STEP):
        last = min(first + _STEP, at + size)
        any_changed = np.uint8(0)
        for e in range(first, last):
            any_changed |= marks[classes[e - capacity]]
        if any_changed == 0:  # nearly always
            continue
        for e in range(first, last):
            c = classes[e - capacity]
            if marks[c] != 0:
                step = x * delta[c]
                pool[e] += step
                if averaged:
                    pool[e + capacity] += rate * step
                marks[c] = _FOUND
                n_existing += 1
    return n_existing


@inlined
def _add_new_entries(sparse_rows, f, x, delta, m, n_existing, rate):
    """Add changed classes that have no entry yet to a full row, or to the end of a list that has room."""
    pool, classes, changed = sparse_rows.pool, sparse_rows.classes, sparse_rows.changed
    at, size, capacity = entries(sparse_rows, f)
    is_full, averaged = size == len(delta), sparse_rows.width > 2
    for r in range(m):
        c = changed[r]
        if n_existing > 0 and sparse_rows.marks[c] == _FOUND:
            continue
        step, e = x * delta[c], at + size
        if is_full:
            pool[at + c] += step
            if averaged:
                pool[at + c + capacity] += rate * step
        else:
            classes[e - capacity], pool[e] = c, step
            if averaged:
                pool[e + capacity] = rate * step
            size += 1
    sparse_rows.extents[f, 1] = size


@kernel
def scale_sparse_rows(sparse_rows, factor):
    for f in range(len(sparse_rows.extents)):
        at, size, _ = entries(sparse_rows, f)
        for e in range(at, at + size):
            sparse_rows.pool[e] *= sparse_rows.pool.dtype.type(factor)


@kernel
def restart_sparse_average(sparse_rows):
    for f in range(len(sparse_rows.extents)):
        at, size, capacity = entries(sparse_rows, f)
        for e in range(at + capacity, at + capacity + size):
            sparse_rows.pool[e] = 0


@kernel
def drop_negligible(sparse_rows, columns):
    """Drop list entries that are only rounding errors of duals that became zero; return their number."""
    pool, classes, n_arrays, dropped = sparse_rows.pool, sparse_rows.classes, sparse_rows.width - 1, 0
    for f in range(len(sparse_rows.extents)):
        at, size, capacity = entries(sparse_rows, f)
        if size == columns:
            continue
        largest = 0.0
        for e in range(at, at + size):
            largest = max(largest, abs(pool[e]))
        limit, kept = _NEGLIGIBLE * largest, at
        for e in range(at, at + size):
            keep = not abs(pool[e]) <= limit
            if n_arrays > 1:
                keep |= not abs(pool[e + capacity]) <= limit
            if keep:
                classes[kept - capacity] = classes[e - capacity]
                for array in range(n_arrays):
                    pool[kept + array * capacity] = pool[e + array * capacity]
                kept += 1
        if kept - at < size:
            dropped += size - (kept - at)
            sparse_rows.extents[f, 1] = kept - at
    return dropped


@inlined
def entries(sparse_rows, f):
    """Return the position and number of the weights of feature `f`, and the offset of its average deltas."""
    return sparse_rows.extents[f, 0], sparse_rows.extents[f, 1], sparse_rows.extents[f, 2]


@inlined
def class_at(sparse_rows, f, e, columns):
    at, size, capacity = entries(sparse_rows, f)
    return np.int64(e) if size == columns else np.int64(sparse_rows.classes[at - capacity + e])


@inlined
def value_at(sparse_rows, e, distance, average_scale):
    """Return the weight at position `e` of the pool, averaged unless `average_scale` is 0, in float64."""
    w = np.float64(sparse_rows.pool[e])
    if average_scale != 0:
        w -= average_scale * np.float64(sparse_rows.pool[e + distance])
    return w


@inlined
def sparse_sum_of_squares(sparse_rows, average_scale):
    """Return ‖W‖² for sparse rows (see `streamsvm.kernels.weights.sum_of_squares`)."""
    total = 0.0
    for f in range(len(sparse_rows.extents)):
        begin, size, distance = entries(sparse_rows, f)
        part = 0.0
        for e in range(begin, begin + size):
            w = value_at(sparse_rows, e, distance, average_scale)
            part += w * w
        total += part
    return total
