"""Under a hard limit, with data, duals and weights many times its size, convert and fit finish."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.data.memory_plan import available_memory

MB = 2**20

# What a process needs beside --memory: Python with numpy, scipy, numba's compiler, zarr and h5py loaded
# and the kernels compiled. Measured with the digits, which need next to nothing themselves: 77 to 86 MB
# with kernels from the cache, 130 to 141 MB when they are compiled. The rest is for other versions.
INTERPRETER = 160 * MB
# RLIMIT_DATA counts what is asked for and not what is used: stacks of threads, arenas, LLVM's pools.
ADDRESSES = 320 * MB


# -- limits ----------------------------------------------------------------------------------------


class Limit:
    """A hard limit on the memory of child processes: a cgroup, or RLIMIT_DATA where there is none.

    A cgroup also counts the pages of files, as long as the system has not taken them back.
    """

    def __init__(self, size: int) -> None:
        self.group = _new_group(size)
        self.size = size if self.group else size - INTERPRETER + ADDRESSES

    def run(self, *words: object, cwd: Path) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=cwd, capture_output=True, text=True, check=False, preexec_fn=self._enter,
        )  # fmt: skip

    def _enter(self) -> None:
        if self.group:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))
        else:
            resource.setrlimit(resource.RLIMIT_DATA, (self.size, self.size))

    def close(self) -> None:
        if self.group:
            self.group.rmdir()


def _new_group(size: int) -> Path | None:
    """A memory cgroup below our own, version 2 or 1, or None if that is not to be had."""
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = Path("/sys/fs/cgroup"), {"memory.max": size, "memory.swap.max": 0}
        elif "memory" in controllers.split(","):
            root, names = Path("/sys/fs/cgroup/memory"), {"memory.limit_in_bytes": size}
        else:
            continue
        group = root / path.lstrip("/") / f"streamsvm-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, value in names.items():
                if (group / name).exists() or name != "memory.swap.max":
                    (group / name).write_text(str(value))
        except OSError:
            group.rmdir()
            continue
        return group
    return None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


@contextlib.contextmanager
def limited(size: int) -> Iterator[Limit]:
    limit = Limit(size)
    try:
        yield limit
    finally:
        limit.close()


def test_the_limit_bites(tmp_path) -> None:
    """Otherwise the tests below would say nothing."""
    with limited(INTERPRETER) as limit:
        for size, succeeds in ((limit.size // 4, True), (2 * limit.size, False)):
            code = f"import numpy as np; np.ones({size}, np.uint8)"
            assert (limit.run("-c", code, cwd=tmp_path).returncode == 0) is succeeds


def test_available_memory_is_that_of_the_group(tmp_path) -> None:
    code = "from streamsvm.data.memory_plan import available_memory; print(available_memory())"
    with limited(INTERPRETER) as limit:
        done = limit.run("-c", code, cwd=tmp_path)
        if limit.group:
            assert 0 < int(done.stdout) < limit.size
    assert available_memory() > INTERPRETER  # of the machine


# -- data ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A training whose data, duals and weights outgrow the budget `memory`."""

    memory: int
    rows: int
    copies: int  # times the text is given to convert
    features: int
    classes: int
    ratio: int  # of all sizes to the budget, or with `whole` to the whole hard limit
    whole: bool = False
    nnz: int = 60  # a row
    rare: float = 0.002  # of the non-zeros, with any feature

    def write_text(self, path: Path) -> None:
        """LIBSVM text; like words, most features are rare, and most non-zeros are of common ones."""
        rng = np.random.default_rng(0)
        step = self.features // self.nnz
        common = max(1, step // 50)
        with path.open("wb") as file:
            for start in range(0, self.rows, 10_000):
                n = min(10_000, self.rows - start)
                offsets = rng.integers(0, common, (n, self.nnz))
                rare = rng.random((n, self.nnz)) < self.rare
                offsets[rare] = rng.integers(0, step, np.count_nonzero(rare))
                indices = offsets + step * np.arange(self.nnz) + 1
                lines = np.full((n, 4 + 11 * self.nnz + 1), ord(" "), np.uint8)
                digits(lines[:, :4], rng.integers(1000, 1000 + self.classes, n))
                lines[:, -1] = ord("\n")
                fields = lines[:, 4:-1].reshape(n, self.nnz, 11)
                digits(fields[:, :, 1:8], indices)
                fields[:, :, 8] = ord(":")
                digits(fields[:, :, 9:], rng.integers(10, 100, (n, self.nnz)))
                file.write(lines.data)


def digits(out: np.ndarray, numbers: np.ndarray) -> None:
    """Write decimal numbers into the last axis of `out`, padded with zeros."""
    for place in range(out.shape[-1] - 1, -1, -1):
        out[..., place] = ord("0") + numbers % 10
        numbers = numbers // 10


def size_of(path: Path) -> int:
    """Bytes of a file or of all files below a folder."""
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size


SIZES = {
    # Four times what the user grants.
    "budget": Sizes(32 * MB, rows=40_000, copies=2, features=320_000, classes=50, ratio=4),
    # Eight times all that the process may have, the interpreter included.
    "limit": Sizes(64 * MB, rows=250_000, copies=4, features=2_400_000, classes=90, ratio=8, whole=True),
}


@pytest.mark.parametrize("name", ["budget", pytest.param("limit", marks=pytest.mark.more)])
def test_convert_and_fit_within_a_hard_limit(digits_run, tmp_path, name: str) -> None:
    sizes = SIZES[name]
    sizes.write_text(tmp_path / "text")
    program, memory = ("-m", "streamsvm_cli.main"), ("--memory", sizes.memory, "--json")

    def result(limit: Limit, *words: object) -> dict:
        done = limit.run(*program, *words, *memory, cwd=tmp_path)
        assert done.returncode == 0, done
        warned = int(words[0] == "fit")
        assert done.stderr.count("\n") == done.stderr.count("the model is the last iterate") == warned, done
        return json.loads(done.stdout)

    fit = ("fit", "s.zarr", "--out", "run", "--passes", 2, "--C", 1e-9, "--gap", "end", "--checkpoint-every")
    with limited(INTERPRETER + sizes.memory) as limit:
        text = ["text"] * sizes.copies
        record = result(limit, "convert", *text, "--out", "s.zarr", "--codec", "none")
        assert record["n"] == sizes.rows * sizes.copies
        assert record["nnz"] == record["n"] * sizes.nnz
        (tmp_path / "text").unlink()
        fitted = result(limit, *fit, "1h")
        planned = result(limit, *fit[:2], *fit[4:], "1h", "--dry-run")
    duals = sum(size_of(path) for path in (tmp_path / "run").glob("duals-2-*.bin"))
    weights = planned["weights_bytes"]
    total = size_of(tmp_path / "s.zarr") + duals + weights
    print(
        f"{name}: {'cgroup' if limit.group else 'RLIMIT_DATA'} of {limit.size / MB:.0f} MB, "
        f"budget {sizes.memory / MB:.0f} MB, store {size_of(tmp_path / 's.zarr') / MB:.0f} MB, "
        f"duals {duals / MB:.0f} MB, weights {weights / MB:.0f} MB, "
        f"{total / sizes.memory:.1f} times the budget, {total / limit.size:.1f} times the limit, "
        f"peak {fitted['peak_memory_bytes'] / MB:.0f} MB, of which interpreter {digits_run / MB:.0f} MB"
    )
    shutil.rmtree(tmp_path / "run")
    shutil.rmtree(tmp_path / "s.zarr")
    assert total >= sizes.ratio * (limit.size if sizes.whole else sizes.memory)
    assert min(size_of_part / total for size_of_part in (duals, weights)) > 0.1
    assert fitted["peak_memory_bytes"] <= sizes.memory + INTERPRETER
    # And without the generosity of the constant: what the data add stays within the budget.
    assert fitted["peak_memory_bytes"] - digits_run <= sizes.memory


SPARSE = """
from streamsvm.data import memory_plan
from streamsvm.training import fit_plan
from streamsvm_cli.main import run

memory_plan.MANY_CLASSES = 2
choices = fit_plan.choices
fit_plan.choices = lambda *args, **options: [plan for plan in choices(*args, **options) if plan.sparse]
run()
"""


@pytest.mark.more
def test_sparse_weights_stay_within_the_budget(digits_run, digits, tmp_path) -> None:
    """2.4 million features, nearly all of them rare or absent: 60 MB to find their sparse rows."""
    for words in (  # compiles the kernels of sparse rows, if need be
        ("convert", digits / "train", "--out", "warm.zarr"),
        ("fit", "warm.zarr", "--out", "warm", "--passes", 2),
    ):
        command = [sys.executable, "-c", SPARSE, *map(str, words)]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    sizes = Sizes(128 * MB, rows=120_000, copies=1, features=2_400_000, classes=20, ratio=0, rare=0.05)
    sizes.write_text(tmp_path / "text")
    memory = ("--memory", sizes.memory, "--json")
    with limited(INTERPRETER + sizes.memory) as limit:
        for words in (
            ("convert", "text", "--out", "s.zarr", *memory),
            ("fit", "s.zarr", "--out", "run", "--passes", 2, "--C", 1e-9, *memory),
        ):
            done = limit.run("-c", SPARSE, *words, cwd=tmp_path)
            assert (done.returncode, done.stderr) == (0, ""), done
    peak = json.loads(done.stdout)["peak_memory_bytes"]
    print(f"peak {peak / MB:.0f} MB, of which interpreter {digits_run / MB:.0f} MB")
    assert json.loads((tmp_path / "run/run.json").read_text())["plan"]["sparse"]
    assert peak - digits_run <= sizes.memory


@pytest.fixture(scope="module")
def digits_run(digits: Path) -> int:
    """Bytes that a fit reports when its data are next to nothing: those of the interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        for words in (
            ("convert", digits / "train", "--out", "s.zarr"),
            ("fit", "s.zarr", "--out", "warm"),  # compiles, if need be
            ("fit", "s.zarr", "--out", "blocks", "--block-rows", 500),  # lists of duals, as of large data
            ("fit", "s.zarr", "--out", "run", "--json"),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "streamsvm_cli.main", *map(str, words), "--memory", "40M"],
                cwd=folder, capture_output=True, text=True, check=True,
            )  # fmt: skip
    peak = json.loads(done.stdout)["peak_memory_bytes"]
    assert peak <= INTERPRETER
    return peak


MEASURE = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "streamsvm_cli.main", *sys.argv[1:]], capture_output=True)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def write_parquet(folder: Path) -> None:
    """Files of up to 40 MB, with pages that decode to more."""
    rng = np.random.default_rng(0)
    y = np.array(["a", "b"])[rng.integers(0, 2, 60_000)]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(20_000 * 512, np.float32)), 512)
    zeros = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(60_000 * 512, np.float32)), 512)
    repeated = pa.DictionaryArray.from_arrays(np.zeros(2000, np.int32), ["t" * 900_000])
    for name, columns in {
        "few": {"x": rng.random(20_000), "y": y[:20_000]},
        "lists": {"x": lists, "y": y[:20_000]},
        "zeros": {"x": zeros, "y": y},
        "labels": {"x": np.arange(60.0), "y": [chr(65 + i) * MB for i in range(60)]},
        "repeated": {"x": np.arange(2000.0), "y": repeated},
        "page": {"x": ["t" * 900_000] * 300, "y": y[:300]},
    }.items():
        pq.write_table(
            pa.table(columns), folder / f"{name}.parquet", compression="zstd", store_schema=False,
            use_dictionary=name != "page", data_page_size=2**30 if name == "page" else None,
        )  # fmt: skip


def test_parquet_stays_within_twice_the_memory(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    peaks = {}
    compiling = ("few", "zeros")  # first, because LLVM takes memory, too
    for name in (*compiling, "few", "lists", "zeros", "labels", "repeated", "page"):
        words = ("convert", f"{name}.parquet", "--label", "y", "--memory", 32 * MB, "--out", "s.zarr")
        command = [sys.executable, "-c", MEASURE, *map(str, words), "--force"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        code, peaks[name] = map(int, done.stdout.split())
        assert code == (name in ("labels", "repeated", "page")), name
    print({name: f"{peak / MB:.0f} MB" for name, peak in peaks.items()})
    assert max(peaks.values()) - peaks["few"] <= 2 * 32 * MB, peaks
