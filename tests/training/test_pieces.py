"""Blocks whose rows are visited piece by piece as they are read."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
from helpers import MemoryPolicy, fit_with, make_store, resume_with
from run_files import metrics_of, model_bytes, stop_after, without_times
from small_problem import N

from streamsvm import plan
from streamsvm.data.blocks import Blocks
from streamsvm.errors import Interrupted
from streamsvm.training.learner import Learner

PIECES = MemoryPolicy(piece_bytes=2000, pieces_of_room=2**30)
# The rows take 14 kB.
SIZES: dict[str, dict[str, int]] = {
    "one block": {},
    "blocks": {"block_rows": 32},
    "in files": {"memory": 17_000},
}
BY_SIZE = pytest.mark.parametrize("size", SIZES)


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory, problem: Any) -> Path:
    return make_store(tmp_path_factory.mktemp("pieces") / "a.zarr", *problem, chunk_nnz=16, dtype="float32")


@BY_SIZE
def test_a_run_stopped_anywhere_and_resumed_gives_the_same_model(
    tmp_path: Path, shuffled: Path, size: str
) -> None:
    options: dict[str, Any] = {"passes": 3, "C": 0.5, "tol": 1e-9, "valid": shuffled}
    options |= SIZES[size]
    whole = fit_with(PIECES, shuffled, out=tmp_path / "whole", **options)
    assert whole.history[0]["rows"] == N
    for n in itertools.count(1, 13):
        try:
            fit_with(PIECES, shuffled, out=tmp_path / "run", stop=stop_after(n), checkpoint_every="1",
                     force=True, **options)  # fmt: skip
        except Interrupted:
            pass
        else:
            break
        resume_with(PIECES, tmp_path / "run")
        assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole"), n
        assert without_times(metrics_of(tmp_path / "run")) == without_times(metrics_of(tmp_path / "whole")), n
    assert n > 10


@BY_SIZE
def test_each_pass_reads_the_rows_once_and_visits_them_as_they_arrive(
    tmp_path: Path, shuffled: Path, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, waits = [], []
    one_piece, learn = Blocks._read, Learner.learn

    def read_piece(self: Blocks, start: int, stop: int) -> Any:
        read.append(stop - start)
        return one_piece(self, start, stop)

    def learn_block(self: Learner, block: Any, *duals: Any) -> Any:
        def arrived(at: int) -> int:
            waits.append((self.visited, at))
            return block.arrived(at)

        yield from learn(self, dataclasses.replace(block, arrived=block.arrived and arrived), *duals)
        assert sorted(block.order.tolist()) == list(range(block.rows.n_rows))

    monkeypatch.setattr(Blocks, "_read", read_piece)
    monkeypatch.setattr(Learner, "learn", learn_block)
    with PIECES.in_use():
        blocks = plan(shuffled, C=1.0, **SIZES[size])["blocks"]
    fit_with(PIECES, shuffled, out=tmp_path / "run", C=1.0, passes=2, gap="none", **SIZES[size])
    assert (blocks == 1) is (size == "one block")
    passes = 1 if blocks == 1 else 2
    assert sum(read) == passes * N
    assert len(read) > 2 * passes * blocks
    if size == "in files":
        assert waits == []
    else:
        assert len({visited for visited, _ in waits}) > 2 * passes * blocks  # between the pieces
