"""Rows that fit: small blocks in the first pass, read once, and one block in later passes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import MemoryPolicy, fit_with, make_store, resume_with
from run_files import metrics_of, model_bytes, stop_after, without_times
from small_problem import N

from streamsvm import plan
from streamsvm.data.blocks import Blocks
from streamsvm.errors import Interrupted
from streamsvm.training.sources import ShuffledSource

SMALL = MemoryPolicy(read_bytes=1400, reads_of_room=2**30, first_bytes=2000)
# The rows take 14 kB.
SIZES: dict[str, dict[str, Any]] = {
    "one block": {},
    "matrix of duals": {"average": False},
    "one visit": {"inner_passes": 0},
    "splits": {"splits": 2, "split": "rows"},
    "blocks": {"block_rows": 32},
    "in files": {"memory": 17_000},
}
BY_SIZE = pytest.mark.parametrize("size", SIZES)


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory, problem: Any) -> Path:
    return make_store(tmp_path_factory.mktemp("first") / "a.zarr", *problem, chunk_nnz=16, dtype="float32")


@BY_SIZE
def test_a_run_stopped_anywhere_and_resumed_gives_the_same_model(
    tmp_path: Path, shuffled: Path, size: str
) -> None:
    options: dict[str, Any] = {"passes": 3, "C": 0.5, "tol": 1e-9, "valid": shuffled}
    options |= SIZES[size]
    whole = fit_with(SMALL, shuffled, out=tmp_path / "whole", **options)
    assert whole.history[0]["rows"] == N
    for n in itertools.count(1, 5):
        try:
            fit_with(SMALL, shuffled, out=tmp_path / "run", stop=stop_after(n), checkpoint_every="1",
                     force=True, **options)  # fmt: skip
        except Interrupted:
            pass
        else:
            break
        resume_with(SMALL, tmp_path / "run")
        assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole"), n
        assert without_times(metrics_of(tmp_path / "run")) == without_times(metrics_of(tmp_path / "whole")), n
    assert n > 10


@BY_SIZE
def test_rows_that_fit_are_read_once_and_are_one_block_after_the_first_pass(
    tmp_path: Path, shuffled: Path, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, learned = [], []
    read_rows, blocks_of = Blocks._read, ShuffledSource.blocks

    def counting(self: Blocks, start: int, stop: int) -> Any:
        read.append(stop - start)
        return read_rows(self, start, stop)

    def noting(self: ShuffledSource, *which: Any) -> Any:
        for block in blocks_of(self, *which):
            np.testing.assert_array_equal(np.sort(block.order), np.arange(block.rows.n_rows))
            learned.append((block.pass_number, block.first, block.rows.n_rows))
            yield block

    monkeypatch.setattr(Blocks, "_read", counting)
    monkeypatch.setattr(ShuffledSource, "blocks", noting)
    with SMALL.in_use():
        blocks = plan(shuffled, C=1.0, **SIZES[size])["blocks"]
    fit_with(SMALL, shuffled, out=tmp_path / "run", C=1.0, passes=2, gap="none", **SIZES[size])
    first, second = ([each[1:] for each in learned if each[0] == number] for number in (1, 2))
    assert len(read) > len(learned)
    for each in (first, second):
        rows = sorted(row for begin, n in each for row in range(begin, begin + n))
        assert rows == list(range(N))
    if size in ("blocks", "in files"):
        assert len(first) == len(second) == blocks > 1
        assert sum(read) == 2 * N
    else:
        assert (blocks, second) == (1, [(0, N)])
        assert len(first) > 4
        assert sum(read) == N
