"""What a source reads, how often, and in which order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from run_files import files_of_duals
from small_problem import BLOCK

from streamsvm import open_store, plan
from streamsvm.store.container import StoredArray
from streamsvm.store.ranges import Ranges
from streamsvm.store.reader import ContainerStore
from streamsvm.transforms import fitting


class Reading:
    """Records what a fit reads: ranges of rows, and how often each chunk of each array."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.chunks: Counter[tuple[str, int]] = Counter()
        read, read_ranges = ContainerStore.read, StoredArray.read_ranges

        def counted_read(store: ContainerStore, ranges: Ranges):
            self.ranges += map(tuple, ranges.tolist())
            return read(store, ranges)

        def counted_read_ranges(array: StoredArray, ranges: Ranges):
            chunks = [range(a // array.chunk, -(-b // array.chunk)) for a, b in ranges.tolist() if b > a]
            self.chunks.update((array.name, chunk) for chunk in set().union(*chunks))
            return read_ranges(array, ranges)

        monkeypatch.setattr(ContainerStore, "read", counted_read)
        monkeypatch.setattr(StoredArray, "read_ranges", counted_read_ranges)


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_each_row_is_read_once_a_pass_and_a_chunk_again_only_where_blocks_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    X, labels = make_problem(400, 20, 4)
    store = make_store(tmp_path / f"a.{suffix}", X, labels, chunk_nnz=64)
    monkeypatch.setattr(fitting, "_SAMPLE_SLICES", 0)  # rows that are looked at before the training
    reading = Reading(monkeypatch)
    result = fit(store, out=tmp_path / "run", passes=3, block_rows=50, slice_rows=0, gap="none", C=1)
    assert result.history[-1]["rows"] == 400
    blocks = [(begin, begin + 50) for begin in range(0, 400, 50)]
    for this_pass in range(3):
        ranges = reading.ranges[8 * this_pass : 8 * (this_pass + 1)]
        assert sorted(ranges) == blocks
        assert ranges != blocks
    assert len(reading.ranges) == 24
    assert reading.ranges[:8] != reading.ranges[8:16]
    # Blocks are longer than chunks: only a chunk that two blocks share is read twice a pass.
    data = {chunk: times for (name, chunk), times in reading.chunks.items() if name == "X/data"}
    with open_store(store) as opened:
        edges = opened.indptr(0, 400)[50:400:50]
        shared = {int(edge) // 64 for edge in edges if edge % 64}
    assert sorted(data) == list(range(-(-X.nnz // 64)))
    for chunk, times in data.items():
        assert times == (6 if chunk in shared else 3)
    assert {c: t for (name, c), t in reading.chunks.items() if name == "X/indices"} == data


def test_files_of_duals_have_each_row_with_values_once(tmp_path: Path, store: Path, problem) -> None:
    """In the last pass; rows without values have no duals."""
    fit(store, out=tmp_path / "run", passes=2, block_rows=BLOCK)
    seen: Counter[int] = Counter()
    for path in files_of_duals(tmp_path / "run", 2):
        content, first = path.read_bytes(), int(path.stem.split("-")[2])
        n_rows = int(np.frombuffer(content, np.int64, 1)[0])
        seen.update((first + np.frombuffer(content, np.int32, n_rows, 16)).tolist())
    assert seen == Counter(np.flatnonzero(problem[0].toarray().any(axis=1)).tolist())


def test_memory_determines_the_blocks_but_not_the_optimum(tmp_path: Path, store: Path) -> None:
    """Whatever the budget, the gap falls below the tolerance, so the primals agree."""
    options = {"passes": 300, "dtype": "float64", "tol": 1e-4, "C": 0.02}
    primals, counts = [], []
    for memory in (16_000, 22_000, 2**30):
        counts.append(plan(store, memory=memory, **options)["blocks"])
        result = fit(store, out=tmp_path / f"run{memory}", memory=memory, **options)
        assert result.status == "converged"
        primals.append(result.primal)
    assert counts[0] > counts[1] > counts[2] == 1
    assert max(primals) <= min(primals) * (1 + 1e-4)
