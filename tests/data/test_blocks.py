"""The memory plan, the cut into blocks, and reading them."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import make_problem, make_store
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.data import memory_plan
from streamsvm.data.blocks import Blocks
from streamsvm.data.hold_out import HeldOutPart
from streamsvm.data.memory_plan import cut_blocks, make_plan
from streamsvm.errors import PlanError, StoreError, part_of_memory
from streamsvm.inputs.blocks import blocks_to_score
from streamsvm.inputs.schema import schema_of_store
from streamsvm.store import open_store
from streamsvm.store.store import RowSizes


def store_of(
    lengths: list[int],
    *,
    shuffled: bool = True,
    n_classes: int = 3,
    groups: list[int] | None = None,
    labels: list[int] | None = None,
    weighted: bool = False,
) -> SimpleNamespace:
    """What a plan needs of a store whose rows have these lengths, groups and numbers of labels."""
    sizes = [np.array(each or [], np.int64) for each in (lengths, labels)]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return SimpleNamespace(
        path="rows", n_rows=len(lengths), nnz=int(offsets[-1]), n_classes=n_classes, chunk_nnz=16,
        dtype=np.dtype("f4"), index_dtype=np.dtype("i4"), index_bytes=4, shuffled=shuffled,
        indptr=lambda begin, end: offsets[begin : end + 1].copy(),
        held_bytes=0, extra_nnz_bytes=0, native=True, held_out_by=False,
        units=None, weighted=weighted, grouped=groups is not None, multilabel=labels is not None,
        n_labels=sum(labels or []), groups=lambda begin, end: np.array(groups)[begin:end],
        sizes=lambda ranges: RowSizes(*(each[slice(*ranges[0])] for each in sizes)),
    )  # fmt: skip


def plan_of(store, memory: int, **options):
    options = {"dtype": np.dtype("f4"), "columns": 4, "keeps_duals": True, **options}
    return make_plan(store, memory=memory, **options)


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=50),
    st.integers(1, 3000),
    st.integers(1, 2),
    st.sampled_from([1 / 8, 3 / 4]),
)
def test_a_budget_that_is_too_small_is_refused_with_one_that_is_enough(
    lengths, memory, parts, dual_share
) -> None:
    """Also where the plan has only a part of the budget that the user gave, and with any share of duals."""
    store = store_of(lengths, n_classes=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_plan, "DUAL_SHARE", dual_share)
        try:
            with part_of_memory(parts):
                cut_blocks(store, plan_of(store, memory // parts))
        except PlanError as error:
            enough = error.needed_memory or 0
        else:
            return
        assert enough > memory
        cut_blocks(store, plan_of(store, enough // parts))


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 200), st.integers(0, 5)), min_size=1, max_size=60),
    st.integers(3000, 60_000),
    st.one_of(st.none(), st.integers(1, 20)),
    st.integers(1, 40),
    st.sampled_from([50, 10**6]),
    *[st.booleans()] * 3,
)
def test_blocks_hold_every_row_once_within_the_plan_and_cut_no_group(
    drawn, memory, block_rows, piece, work, weighted, grouped, shuffled
) -> None:
    """Whatever the limits of rows, non-zeros and memory, and wherever the pieces that are read end."""
    groups = [g for g, (size, _, _) in enumerate(drawn) for _ in range(size)]
    lengths, labels = np.array([drawn[g][1:] for g in groups]).T.tolist()
    groups = groups if grouped else None
    store = store_of(lengths, groups=groups, labels=labels, weighted=weighted, shuffled=shuffled)
    sizes = [size for size, _, _ in drawn] if grouped else [1] * len(lengths)
    edges = [0, *np.cumsum(sizes).tolist()]

    def cost(plan, begin, end):
        return (
            (end - begin) * plan.row_bytes
            + sum(lengths[begin:end]) * plan.nnz_bytes
            + sum(labels[begin:end]) * plan.label_bytes
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_plan, "_SCAN_ROWS", piece)
        patch.setattr(memory_plan, "BLOCK_WORK", 4 * work)
        try:
            plan = plan_of(store, memory, block_rows=block_rows)
            starts = cut_blocks(store, plan)
        except PlanError as error:
            memory = max(memory + 1, error.needed_memory or 0)
            plan = plan_of(store, memory, block_rows=block_rows)
            starts = cut_blocks(store, plan)
    assert plan.total <= memory
    assert starts[0] == 0
    assert starts[-1] == len(lengths)
    assert (np.diff(starts) > 0).all()
    assert set(starts.tolist()) <= set(edges)
    for begin, end in itertools.pairwise(starts):
        assert cost(plan, begin, end) <= plan.block_bytes
        if end != edges[edges.index(begin) + 1]:  # more than one group
            assert end - begin <= plan.max_block_rows <= (block_rows or len(lengths))
            assert sum(lengths[begin:end]) <= plan.max_block_nnz
        if end < len(lengths):  # the next group would not have fitted
            more = edges[edges.index(end) + 1]
            assert (
                more - begin > plan.max_block_rows
                or sum(lengths[begin:more]) > plan.max_block_nnz
                or cost(plan, begin, more) > plan.block_bytes
            )


def test_a_group_that_does_not_fit_is_an_error_with_the_memory_it_needs() -> None:
    store = store_of([50] * 1000, groups=[0] * 30 + [1] * 70 + [2, 3] * 450)
    with pytest.raises(PlanError, match="is too small for a group of rows with 3,500 non-zeros") as caught:
        cut_blocks(store, plan_of(store, 60_000))
    needed = caught.value.needed_memory
    assert cut_blocks(store, plan_of(store, needed))[1] >= 100
    assert cut_blocks(store_of([50] * 1000), plan_of(store_of([50] * 1000), 60_000))[-1] == 1000


def test_weights_groups_and_labels_take_memory() -> None:
    plain = plan_of(store_of([1] * 9), 10**6)
    full = plan_of(store_of([1] * 9, groups=[0] * 9, labels=[2] * 9, weighted=True), 10**6)
    assert full.row_bytes == plain.row_bytes + 2 * 8  # weights become costs, which all rows have
    assert full.largest_block == plain.largest_block + 9 * 2 * 8 + 18 * 4


@pytest.mark.parametrize("groups", [None, np.repeat(range(20), 5).tolist()])
def test_sizes_of_rows_are_read_once_while_blocks_are_cut(monkeypatch, groups) -> None:
    store = store_of([50] * 100, groups=groups, labels=[2] * 100)
    plan = plan_of(store, 60_000)
    expected = cut_blocks(store, plan)
    assert len(expected) > 3
    read, sizes = [], store.sizes
    store.sizes = lambda ranges: read.extend(range(*ranges[0])) or sizes(ranges)
    monkeypatch.setattr(memory_plan, "_SCAN_ROWS", 7)
    np.testing.assert_array_equal(cut_blocks(store, plan), expected)
    assert read == list(range(100))


@pytest.mark.parametrize("held_out", [None, HeldOutPart(0, np.arange(50) // 2 % 3)])
@pytest.mark.parametrize("room", [6000, 10**6])
def test_rows_put_together_from_reads_are_those_that_are_read_at_once(
    tmp_path, monkeypatch, held_out, room
) -> None:
    X, labels = make_problem(50, 12, 4)
    monkeypatch.setattr(memory_plan, "READ_BYTES", 700)
    monkeypatch.setattr(memory_plan, "READS_OF_ROOM", 2**30)
    with open_store(make_store(tmp_path / "a.zarr", X, labels)) as store:
        fixed = plan_of(store, 0, keeps_duals=False).fixed
        plan = plan_of(store, fixed + room, keeps_duals=False)
        starts = cut_blocks(store, plan)
        assert (len(starts) > 3) is (room == 6000)
        blocks = Blocks(store, starts, np.dtype("f4"), held_out=held_out, plan=plan)
        at_once = Blocks(store, np.array([0, *starts]), np.dtype("f4"), held_out=held_out)
        all_expected = [at_once.read(1 + number) for number in range(len(blocks))]
        reads, read = [], store.rows
        monkeypatch.setattr(store, "rows", lambda *span: reads.append(span) or read(*span))
        numbers = [*range(len(blocks)), 0]
        for number, rows in zip(numbers, blocks.each(starts, numbers), strict=True):
            (start, stop), expected = starts[number : number + 2], all_expected[number]
            if held_out is not None:
                np.testing.assert_array_equal(expected.numbers, np.arange(start, stop))
                np.testing.assert_array_equal(expected.cost == 0, held_out.has(expected.numbers))
            for found in (rows, blocks.read(number)):
                for array, right in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(array, right)
                    assert array.dtype == right.dtype
        assert len(reads) > 2 * len(blocks)
        for start, stop in reads:
            size = plan.nnz_bytes * (X.indptr[stop] - X.indptr[start]) + plan.row_bytes * (stop - start)
            assert size <= plan.read_bytes


def test_rows_with_unknown_labels_cannot_be_trained_on(tmp_path) -> None:
    X, labels = make_problem(30, 12, 4)
    labels[11] = -1
    with open_store(make_store(tmp_path / "a.zarr", X, labels)) as store:
        blocks = Blocks(store, np.array([0, 10, 30]), np.dtype("f4"), labelled=True)
        blocks.read(0)
        with pytest.raises(StoreError, match="row 12 "):
            blocks.read(1)


def test_a_value_too_large_for_the_dtype_is_one_error_that_names_its_row(tmp_path) -> None:
    """It neither becomes an infinite weight, nor a warning of NumPy."""
    X, labels = make_problem(30, 5, 3)
    X = X.astype(np.float64)
    row = int(np.flatnonzero(np.diff(X.indptr))[17])
    X.data[X.indptr[row]] = 2 * float(np.finfo(np.float32).max)
    with open_store(make_store(tmp_path / "s.h5", X, labels)) as store:
        starts = np.array([0, row, store.n_rows])
        blocks = Blocks(store, starts, np.dtype(np.float32))
        blocks.read(0)
        with pytest.raises(StoreError, match=rf"s\.h5: row {row + 1}: .* too large for float32; .*float64"):
            blocks.read(1)
        assert Blocks(store, starts, np.dtype(np.float64)).read(1).data.max() == X.data.max()


def test_labels_are_given_as_codes_of_the_model(tmp_path) -> None:
    X, labels = make_problem(30, 12, 4)
    with open_store(make_store(tmp_path / "a.zarr", X, labels)) as store:
        own = schema_of_store(store, "the model")

        def blocks_like(**facts) -> Blocks:
            return blocks_to_score(store, dataclasses.replace(own, **facts), np.dtype("f4"), 10**6)

        blocks = blocks_like(classes=["3", "x", "0"])
        code = {0: 2, 1: -1, 2: -1, 3: 0}
        assert blocks.read(0).labels.tolist() == [code[c] for c in labels[: blocks.starts[1]].tolist()]
        with pytest.raises(StoreError, match="none of the model's classes"):
            blocks_like(classes=["a", "b"])
        with pytest.raises(StoreError, match="12 features"):
            blocks_like(n_features=11)
        with pytest.raises(StoreError, match="numbers features from 1, but the model from 0"):
            blocks_like(index_base=0)
