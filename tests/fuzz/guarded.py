"""Run compiled code on arrays whose neighbouring page cannot be touched; a step beyond ends the process.

`python tests/fuzz/guarded.py parser|engine|chains|everything after|before`. Numba's own check of bounds
does not see the loads and stores of the modules `simd` and `byte_vectors`; the processor does.
"""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


def guarded(array: np.ndarray, side: str) -> np.ndarray:
    """A copy that ends where a page without access begins, or that begins where one ends."""
    space = -(-array.nbytes // PAGE) * PAGE
    mapped = mmap.mmap(-1, space + PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    guard, at = (space, space - array.nbytes) if side == "after" else (0, PAGE)
    copy = np.frombuffer(mapped, array.dtype, array.size, at).reshape(array.shape)
    copy[...] = array
    if _LIBC.mprotect(ctypes.c_void_p(address + guard), ctypes.c_size_t(PAGE), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    return copy


def check_parser(side: str) -> None:
    """Texts that end anywhere, in arrays that end there too."""
    from fuzz.targets import text as target
    from streamsvm_converters.libsvm.lines import Parsed, Rules, parse
    from streamsvm_converters.libsvm.rows import compact, repair

    texts = {seed[4:] for seed in target.seeds()} | {
        seed[4:].replace(b"\n", b"\r\n") for seed in target.seeds()
    }
    texts |= {b"1 " + b" ".join(b"%d:%.*f" % (10**n, m, n / 7) for n in range(9)) for m in range(20)}
    space, slots = guarded(np.zeros(2**14, np.uint8), side), 2**12
    wide = {name: np.zeros(slots, np.int64) for name in Parsed._fields}
    wide |= {name: np.zeros(slots, np.bool_) for name in ("faulty", "unsorted", "undecided")}
    wide["values"] = np.zeros(slots)
    out = {name: guarded(array, side) for name, array in wide.items()}
    data, indices = guarded(np.zeros(slots), side), guarded(np.zeros(slots, np.int64), side)
    indptr, norm2 = guarded(np.zeros(slots, np.int64), side), guarded(np.zeros(slots), side)

    def cut(array: np.ndarray, size: int) -> np.ndarray:
        return array[len(array) - size :] if side == "after" else array[:size]

    for whole, lists in itertools.product(sorted(texts), (False, True)):
        for end in range(0, len(whole) + 1, 1 if len(whole) < 200 else 7):
            content = whole[:end] + b"\n"
            text = cut(space, len(content))
            text[:] = np.frombuffer(content, np.uint8)
            n_values, most_rows = len(content) // 4 + 1, len(content) // 8 + 1
            sizes = {name: n_values if name in ("indices", "values") else most_rows for name in out}
            parsed = Parsed(**{name: cut(out[name], sizes[name]) for name in out})
            at = 0
            while at < len(text):
                at, _, n_rows = parse(text, at, len(text), Rules(0, np.inf, True, lists, lists), parsed)
                repair(parsed, n_rows, np.inf)
                size = int(parsed.end[n_rows - 1]) if n_rows else 0
                compact(
                    parsed, n_rows, 0, 10**6, cut(data, size), cut(indices, size),
                    cut(indptr, n_rows + 1), cut(norm2, n_rows),
                )  # fmt: skip


def guard(side: str, named: Any) -> Any:
    """The same with guarded copies of its arrays."""
    return type(named)(*(guarded(x, side) if isinstance(x, np.ndarray) else x for x in named))


def errors_of(loss: Any, k: int, n: int, dtype: np.dtype, rng: np.random.Generator, side: str) -> list[Any]:
    """What errors may weigh and which labels rows may have: ``pairs, sets`` as kernels take them."""
    from streamsvm.kernels.row_steps import LabelSets
    from streamsvm.kernels.weights import padded_classes
    from streamsvm.settings.fit import Settings
    from streamsvm.training.costs import TrainingCosts

    K, table = padded_classes(k + loss.extra_columns, dtype), np.float32(rng.uniform(0.1, 2, size=(k, k)))
    weights, common = rng.uniform(0.5, 2, size=k), {"loss": loss.name, "dtype": str(dtype), "C": 1.0}
    found: list[Any] = [(None, None)]
    if loss.pair_margins:
        pairs = TrainingCosts(weights, table).pairs(Settings(**common, costs="given"), K)
        found.append((guard(side, pairs), None))
    if loss.label_sets:
        sizes = rng.integers(1, k + 1, size=n)
        codes = np.concatenate([np.sort(rng.permutation(k)[:size]) for size in sizes]).astype(np.int32)
        sets = LabelSets(codes, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
        found.append((None, guard(side, sets)))
    return found


def check_chains(side: str) -> None:
    """Chains of some lengths by all solvers, with any duals that a file may bring."""
    from streamsvm.chains.kernels import decode_groups
    from streamsvm.data.memory_plan import dual_id_dtype
    from streamsvm.data.rows import Rows
    from streamsvm.kernels.duals import DualBuffer, Duals, OldDuals
    from streamsvm.kernels.frame import Problem
    from streamsvm.kernels.scratch import Scratch
    from streamsvm.kernels.tally import N_TALLIES
    from streamsvm.kernels.weights import Weights, padded_classes
    from streamsvm.losses import LOSSES
    from streamsvm.losses.base import ROUNDS

    loss, rng, dtype, d = LOSSES["chain"], np.random.default_rng(0), np.dtype(np.float32), 5
    odds = (0.0, 0.1, np.inf, np.nan, -1.0)
    for k, lengths, solver, odd in itertools.product(
        (2, 7, 16, 17), ([1], [1, 4], [3, 1, 1, 2]), loss.solvers, odds
    ):
        n, K = sum(lengths), padded_classes(k, dtype)
        counts = rng.integers(0, d + 1, n)
        indices = np.concatenate([np.sort(rng.permutation(d)[:count]) for count in counts]).astype(np.int32)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        data = rng.normal(size=len(indices)).astype(dtype)
        norm2 = np.array([float(data[a:b] @ data[a:b]) for a, b in itertools.pairwise(indptr)])
        qid = np.repeat(rng.permutation(len(lengths)), lengths).astype(np.int64)
        labels = rng.integers(0, k, n).astype(np.int32)
        rows = guard(side, Rows(data, indices, indptr, labels, norm2, np.ones(n), qid=qid))
        current, average_delta = (guarded(rng.normal(size=(d + k, K)).astype(dtype), side) for _ in range(2))
        weights = guard(side, Weights(current, average_delta, float(n)))
        n_ids = loss.dual_ids(k, solver)
        held = rng.integers(0, 4, n).astype(np.int32)  # even of a damaged file, which varies in a group
        if rng.random() < 0.5:
            held[:] = 3
        ids = np.concatenate([rng.permutation(n_ids)[:count] for count in np.minimum(held, n_ids)])
        held = np.minimum(held, n_ids).astype(np.int32)
        starts = np.cumsum(held, dtype=np.int64) - held
        values = rng.choice([0.1, odd], len(ids)).astype(dtype)
        ids = ids.astype(dual_id_dtype(n_ids))
        old = guard(side, OldDuals(ids, values, starts, held))
        old.ids.flags.writeable = old.values.flags.writeable = False  # as a file is mapped
        size = n * (k * k if solver in ("bcpl", "oeg") else 3 + ROUNDS)
        ints = [np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(2, np.int64)]
        new = guard(side, DualBuffer(np.empty(size, ids.dtype), np.empty(size, dtype), *ints))
        scratch, tally = guard(side, Scratch.create(K, dtype)), guarded(np.zeros(N_TALLIES), side)
        order, problem = guarded(np.arange(n), side), Problem(k, 1.0, solver=loss.solvers.index(solver))
        with np.errstate(all="ignore"):
            duals = Duals(old, new)
            visit = loss.kernels_of(solver).visit
            assert visit(rows, order, 0, n, problem, weights, duals, scratch, tally, None, None, None) == n
            tallies = guarded(np.zeros((2, N_TALLIES)), side)
            loss.kernels.loss_rows(rows, problem, weights, 0.5, scratch, tallies, None, None, None)
            scores, best = guarded(rng.normal(size=(n, k)), side), guarded(np.empty(n, np.int64), side)
            decode_groups(scores, guarded(rng.normal(size=(k, k)), side), rows.qid, best)


def check_engine(side: str, everything: bool = False) -> None:
    """Small problems of all widths, with any duals that a file may bring.

    Without `everything` only in float32 with the default loss and solver, one label a row and errors that
    weigh the same, for compiling takes long.
    """
    from streamsvm.data.memory_plan import dual_id_dtype
    from streamsvm.data.rows import Rows
    from streamsvm.kernels.duals import (
        DualBuffer,
        DualMatrix,
        Duals,
        OldDuals,
        RowDuals,
        drop_zeros,
        find_duals,
        from_lists,
        new_matrix,
        repeats_class,
    )
    from streamsvm.kernels.frame import Problem
    from streamsvm.kernels.score import score_rows
    from streamsvm.kernels.scratch import Scratch
    from streamsvm.kernels.sparse_coef import compress_rows, score_sparse_rows
    from streamsvm.kernels.tally import N_TALLIES
    from streamsvm.kernels.weights import Weights, padded_classes
    from streamsvm.losses import ROW_LOSSES as LOSSES

    rng = np.random.default_rng(0)
    dtypes = (np.float32, np.float64) if everything else (np.float32,)
    for k, d, n, dtype in itertools.product((2, 7, 16, 17, 40), (1, 6), (1, 5), dtypes):
        dtype, ids_dtype = np.dtype(dtype), dual_id_dtype(k)
        counts = rng.integers(0, d + 1, n)
        indices = np.concatenate([np.sort(rng.permutation(d)[:count]) for count in counts]).astype(np.int32)
        data = rng.normal(size=len(indices)).astype(dtype)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        labels = rng.integers(0, k, n).astype(np.int32)
        norm2 = np.where(counts > 0, 1.0, 0.0)
        rows = guard(side, Rows(data, indices, indptr, labels, norm2, np.ones(n)))
        K = padded_classes(k, dtype)
        current = guarded(rng.normal(size=(d, K)).astype(dtype), side)
        piece = guarded(current[:, :k] * (rng.random((d, k)) < rng.choice([0.1, 0.9], size=(d, 1))), side)
        stored = [np.empty(d * k, kind) for kind in (dtype, np.int32)]
        ends = guarded(np.empty(d, np.int64), side)
        size = compress_rows(piece, *(guarded(array, side) for array in stored), ends)
        assert compress_rows(piece, *stored, ends) == size
        sparse = [guarded(array[:size].copy(), side) for array in stored]
        sparse.append(guarded(np.concatenate([[0], ends]), side))
        scores = guarded(np.zeros((n, k), dtype), side)
        score_sparse_rows(rows, 0, n, *sparse, scores)
        np.testing.assert_allclose(
            scores[0], data[: indptr[1]] @ piece[indices[: indptr[1]]], rtol=1e-4, atol=1e-5
        )
        score_rows(rows, 0, n, guarded(current[:, :k], side), scores)
        np.testing.assert_allclose(
            scores[0], data[: indptr[1]] @ current[indices[: indptr[1]], :k], rtol=1e-4, atol=1e-5
        )
        for loss in list(LOSSES.values())[: None if everything else 1]:
            columns = padded_classes(k + loss.extra_columns, dtype)
            current, average_delta = (
                guarded(rng.normal(size=(d, columns)).astype(dtype), side) for _ in range(2)
            )
            weights = guard(side, Weights(current, average_delta, float(n)))
            n_solvers = len(loss.solvers) if everything else 1
            errors = errors_of(loss, k, n, dtype, rng, side) if everything else [(None, None)]
            odds = (0.0, 1.0, np.inf, np.nan, -1.0)
            for solver, odd, (pairs, sets) in itertools.product(range(n_solvers), odds, errors):
                if sets is not None and solver > 0:  # which take one label a row
                    continue
                visited = rows
                if sets is not None:
                    visited = rows._replace(labels=guarded(sets.codes[sets.indptr[:-1]], side))
                held = rng.integers(0, k, n).astype(np.int32)  # at most k - 1
                ids = np.concatenate([rng.permutation(k)[:count] for count in held]).astype(ids_dtype)
                starts = np.cumsum(held, dtype=np.int64) - held
                values = rng.choice([0.5, odd], len(ids)).astype(dtype)
                old = guard(side, OldDuals(ids, values, starts, held))
                for array in (old.ids, old.values):
                    array.flags.writeable = False  # as a file is mapped
                assert not repeats_class(old, np.zeros(k, np.int64))
                empty = [np.empty(n * k, ids_dtype), np.empty(n * k, dtype)]
                ints = [np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(2, np.int64)]
                new = guard(side, DualBuffer(*empty, *ints))
                scratch = guard(side, Scratch.create(columns, dtype))
                tally = guarded(np.zeros(N_TALLIES), side)
                order = guarded(rng.permutation(n), side)
                problem, kernels = Problem(k, loss.margins[0]), loss.kernels_of(loss.solvers[solver])
                with np.errstate(all="ignore"):
                    duals = Duals(old, new)
                    assert (
                        kernels.visit(
                            visited, order, 0, n, problem, weights, duals, scratch, tally, None, pairs, sets
                        )
                        == n
                    )
                    used = new.counts[: new.used[1]]
                    active = guarded(new.rows[: new.used[1]][used > 0].astype(np.int64), side)
                    if loss.has_inner_passes:
                        listed = RowDuals.of_buffer(new).in_block(n)
                        at, counts = (guarded(each, side) for each in (listed.at, listed.counts))
                        listed = listed._replace(at=at, counts=counts)
                        kernels.revisit(
                            visited, active, 0, len(active), problem, weights, Duals(listed, new), scratch,
                            tally, None, pairs, sets,
                        )  # fmt: skip
                    drop_zeros(new)
                    zeros = new_matrix(n, k + loss.extra_columns, dtype)
                    matrices = [guarded(zeros, side) for _ in range(2)]
                    from_lists(old, matrices[0])
                    for again in (False, True):
                        duals = DualMatrix(matrices[again], matrices[1], again=again)
                        kernels.visit_matrix(
                            visited, order, 0, n, problem, weights, duals, scratch, tally, None, pairs, sets
                        )
                    find_duals(matrices[1], guarded(np.empty(n, np.bool_), side))
                    kernels.loss_rows(
                        visited, problem, weights, 0.5, scratch, np.zeros((2, N_TALLIES)), None, pairs, sets
                    )
                weights.current[...] = rng.normal(size=(d, columns))


if __name__ == "__main__":
    faulthandler.enable()
    if sys.argv[1] == "parser":
        check_parser(sys.argv[2])
    elif sys.argv[1] == "chains":
        check_chains(sys.argv[2])
    else:
        check_engine(sys.argv[2], everything=sys.argv[1] == "everything")
