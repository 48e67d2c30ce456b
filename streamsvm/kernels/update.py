"""Update the weights after a step in the duals of one row."""

from __future__ import annotations

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.score import feature
from streamsvm.kernels.simd import cast, item, load_like, multiply_add, store, zeros
from streamsvm.kernels.sparse_rows import update_sparse_rows
from streamsvm.kernels.tile import keep_step


@inlined
def add_vector(weights, rows, i, c, step):
    """Add x_i stepᵀ to the weights, in the vector of columns that starts at `c`."""
    indices, data, begin = rows.indices, rows.data, rows.indptr[i]
    for p in range(begin, rows.indptr[i + 1]):
        f = feature(indices, p, begin)
        store(weights, (f, c), multiply_add(item(data, p), step, load_like(weights, (f, c), step)))


@inlined
def add_vectors(weights, rows, i, delta, vectors, n_vectors):
    """Add x_i deltaᵀ to the weights, in the vectors of columns that start at ``vectors[:n_vectors]``."""
    indices, data = rows.indices, rows.data
    begin, end, like = rows.indptr[i], rows.indptr[i + 1], cast(zeros(), weights)
    q = 0
    while q + 2 <= n_vectors:
        c0, c1 = vectors[q], vectors[q + 1]
        step0, step1 = load_like(delta, c0, like), load_like(delta, c1, like)
        for p in range(begin, end):
            f, x = feature(indices, p, begin), item(data, p)
            store(weights, (f, c0), multiply_add(x, step0, load_like(weights, (f, c0), like)))
            store(weights, (f, c1), multiply_add(x, step1, load_like(weights, (f, c1), like)))
        q += 2
    if q < n_vectors:
        add_vector(weights, rows, i, vectors[q], load_like(delta, vectors[q], like))


@inlined
def time_of_step(clock, tile):
    """Return the time of a step in the running average: that of the tile if there is one, else the clock."""
    if tile is None:
        return clock
    return tile.clock[0]


@inlined
def update_weights(rows, i, weights, tile, delta, vectors, n_vectors, time_factor, sparse_rows):
    """Add x_i deltaᵀ to the weights, or store the step in the tile if there is one; set `delta` to zero.

    ``average_delta`` changes by `time_factor` = (t / time_unit)^p times this product (see `Weights`).
    """
    if tile is None:
        _add_step(rows, i, weights, delta, vectors, n_vectors, time_factor, sparse_rows)
    else:
        keep_step(tile, delta, vectors, n_vectors)


@inlined
def _add_step(rows, i, weights, delta, vectors, n_vectors, time_factor, sparse_rows):
    if sparse_rows is not None:
        update_sparse_rows(sparse_rows, rows, i, delta, vectors, n_vectors, delta.dtype.type(time_factor))
    else:
        add_vectors(weights.current, rows, i, delta, vectors, n_vectors)
        if len(weights.average_delta) > 0:
            for q in range(n_vectors):
                store(delta, vectors[q], time_factor * load_like(delta, vectors[q], cast(zeros(), delta)))
            add_vectors(weights.average_delta, rows, i, delta, vectors, n_vectors)
    for q in range(n_vectors):
        store(delta, vectors[q], zeros())
