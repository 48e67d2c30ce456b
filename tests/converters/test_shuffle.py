"""The external shuffle: the seed determines the order, whatever the memory and the container."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import GAMMA, plain_mix
from stored_rows import lines_of
from streamsvm_converters import convert

from streamsvm.store import open_store

N = 5000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose values are their numbers, sorted by class."""
    path = tmp_path_factory.mktemp("text") / "sorted.svm"
    path.write_text(
        "".join(
            f"{row // 500} {' '.join(f'{1 + i}:{row + 1}' for i in range(row % 9))}\n" for row in range(N)
        )
    )
    return path


def reference_key(seed: int, number: int) -> int:
    """splitmix64 as published, in Python's integers."""
    return plain_mix(plain_mix(seed) + (number + 1) * GAMMA)


@pytest.mark.parametrize(
    ("seed", "memory", "chunk"), [(0, 2**30, 256), (1, 2**18, 256), (-1, 2**16, 256), (2**63 - 1, 2**13, 64)]
)
def test_order_is_that_of_the_keys(path: Path, tmp_path: Path, seed: int, memory: int, chunk: int) -> None:
    """With one pass, and with buckets of 8 KB or 1 KB, which are split once or twice."""
    convert([path], tmp_path / "a.h5", seed=seed, memory=memory, chunk_nnz=chunk)
    with open_store(tmp_path / "a.h5") as store:
        names = store.names(0, N).tolist()
    assert names == sorted(range(N), key=lambda number: reference_key(seed, number))
    lines = path.read_text().replace(" \n", "\n").split("\n")
    assert [line.replace(".0", "") for line in lines_of(tmp_path / "a.h5")] == [lines[name] for name in names]


@pytest.mark.parametrize("memory", [2**30, 2**16])
def test_no_shuffle_keeps_the_order(path: Path, tmp_path: Path, memory: int) -> None:
    convert([path], tmp_path / "a.zarr", shuffle=False, memory=memory, chunk_nnz=256)
    with open_store(tmp_path / "a.zarr") as store:
        assert store.names(0, N).tolist() == list(range(N))
        assert store.meta["shuffle_seed"] is None


def test_wide_indices(tmp_path: Path) -> None:
    """Beyond int32, beside narrow ones."""
    lines = [f"a {row + 1}:1.0 {2**33 * (row % 3) + 5000}:2.0" for row in range(1000)]
    (tmp_path / "wide").write_text("\n".join(lines))
    convert([tmp_path / "wide"], tmp_path / "a.h5", memory=2**18, chunk_nnz=512)
    assert sorted(lines_of(tmp_path / "a.h5")) == sorted(lines)
