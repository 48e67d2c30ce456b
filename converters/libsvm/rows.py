"""Sort the indices of parsed rows, sum duplicates, and convert the rows to CSR, in compiled code."""

from __future__ import annotations

import functools

import numpy as np
from streamsvm_converters.libsvm.lines import MAX_INDEX
from streamsvm_converters.libsvm.numbers import compiled, inlined

from streamsvm.kernels import jit

allocating = functools.partial(jit.allocating, fastmath=False)


@allocating
def repair(parsed, n_rows, too_large):
    """Sort the `unsorted` rows and sum duplicates; return the number of these rows that are now valid."""
    repaired = 0
    for row in range(n_rows):
        if parsed.faulty[row] or not parsed.unsorted[row]:
            continue
        begin, end = parsed.begin[row], parsed.end[row]
        indices, values = parsed.indices[begin:end], parsed.values[begin:end]
        # The sort is stable, so duplicates are summed in the order of the text.
        order = np.argsort(indices, kind="mergesort")
        indices[:], values[:] = indices[order], values[order]
        last = 0
        for slot in range(1, end - begin):
            if indices[slot] == indices[last]:
                values[last] += values[slot]
            else:
                last += 1
                indices[last], values[last] = indices[slot], values[slot]
        parsed.end[row] = begin + last + 1
        for slot in range(last + 1):
            if abs(values[slot]) >= too_large:
                parsed.faulty[row] = True
        repaired += not parsed.faulty[row]
    return repaired


@inlined
def copy_values(parsed, begin, end, base, data, indices):
    """Copy the values of a row, and its indices minus `base`; return the number of zeros."""
    zeros = 0
    for slot in range(end - begin):  # no branch, so the loop is vectorised
        indices[slot] = parsed.indices[begin + slot] - base
        data[slot] = parsed.values[begin + slot]
        zeros += data[slot] == 0.0
    return zeros


@compiled
def compact(parsed, n_rows, base, last_index, data, indices, indptr, norm2):
    """Write the valid rows to CSR arrays, with `base` subtracted from the indices.

    Values whose index is above `last_index`, and values that round to zero, are dropped. Rows whose squared
    norm overflows are marked as faulty. `norm2` gets one entry per kept row, and `indptr` one more. The
    dtype of `indices` must be large enough.

    Returns (qids, zeros, unseen, smallest, largest, largest_row): the number of qid fields in the kept rows,
    the number of zeros dropped, the number of values dropped because their feature is unknown, the smallest
    and the largest index in the kept rows (including dropped values; MAX_INDEX and -1 if there are none), and
    the row with the largest index.
    """
    size, kept, qids, zeros, unseen = 0, 0, 0, 0, 0
    smallest, largest, largest_row = np.int64(MAX_INDEX), np.int64(-1), 0
    indptr[0] = 0
    for row in range(n_rows):
        if parsed.faulty[row]:
            continue
        begin, end = parsed.begin[row], parsed.end[row]
        first, last = np.int64(MAX_INDEX), np.int64(-1)
        if begin < end:
            first, last = parsed.indices[begin], parsed.indices[end - 1]
        row_size, row_zeros, row_unseen, total = size, 0, 0, 0.0
        if last <= last_index:
            row_zeros = copy_values(parsed, begin, end, base, data[size:], indices[size:])
        if last > last_index or row_zeros > 0:
            row_zeros = 0
            for slot in range(begin, end):
                if parsed.indices[slot] > last_index:
                    row_unseen += 1
                    continue
                data[row_size] = parsed.values[slot]
                if data[row_size] == 0.0:
                    row_zeros += 1
                    continue
                indices[row_size] = parsed.indices[slot] - base
                row_size += 1
        else:
            row_size += end - begin
        for slot in range(size, row_size):
            value = np.float64(data[slot])
            total += value * value
        if not np.isfinite(total):
            parsed.faulty[row] = True
            continue
        smallest = min(smallest, first)
        if last > largest:
            largest, largest_row = last, row
        size = row_size
        qids += parsed.qids[row]
        zeros += row_zeros
        unseen += row_unseen
        norm2[kept] = total
        kept += 1
        indptr[kept] = size
    return qids, zeros, unseen, smallest, largest, largest_row
