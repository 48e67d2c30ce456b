"""How fast stores are read, and whether an epoch keeps up with them (see docs/measurements/store.md)."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from common import COMPRESSED, data_folder, print_table, write_json
from streamsvm_converters import convert

from streamsvm import fit
from streamsvm.data.blocks import Blocks
from streamsvm.data.rows import Rows
from streamsvm.store import StoreWriter, open_store, store_kind

MB = 2**20
SETS = {  # file, and copies of its rows for the epochs
    "mnist": ("mnist.scale", 40),
    "sector": ("sector.scale", 250),
    "news20": ("news20.scale.tr", 200),
    "wn1000": ("wn1000.tfidf", 200),  # not for epochs under a small limit: its weights do not fit beside it
}
TABLE_NNZ = 5 * 10**7  # of the stores that are read without training
INTERPRETER = 160 * MB  # beside --memory: see tests/crash/test_memory.py
BLOCK_NNZ = 2**22  # a read of the tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", metavar="FOLDER", help="LIBSVM files; default: STREAMSVM_DATA")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["mnist", "sector", "news20"])
    parser.add_argument("--stores", nargs="+", default=["zarr:fast", "zarr:none", "zarr:small", "h5:none"],
                        metavar="KIND:CODEC")  # fmt: skip
    parser.add_argument("--chunks", nargs="+", type=int, default=[2**18], metavar="NNZ")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", action="store_true", help="train, instead of only reading")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--memory", type=int, default=64, metavar="MB", help="of an epoch's fit")
    parser.add_argument("--shrink", type=int, default=1, metavar="N", help="fewer copies, to try it out")
    parser.add_argument("--folder", metavar="FOLDER", help="for the stores; default: temporary")
    parser.add_argument("--out", metavar="FILE", help="write the results as JSON, too")
    parser.add_argument("--child", metavar="JSON", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        train(**json.loads(options.child))
        return
    measure = measure_epochs if options.epochs else measure_reading
    with tempfile.TemporaryDirectory(prefix="streamsvm-", dir=options.folder) as folder:
        results = measure(options, Path(folder))
    write_json(options.out, {"options": vars(options), "results": results})


# -- stores ----------------------------------------------------------------------------------------


def each_store(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str, int, Path]]:
    """Write one store after another, and remove it after its use."""
    for name in options.sets:
        rows, d, classes = base_rows(data_folder(options.data), name, folder)
        copies = SETS[name][1] if options.epochs else max(1, TABLE_NNZ // len(rows.data))
        for asked in options.stores:
            kind, codec = asked.split(":")
            for chunk in options.chunks:
                path = folder / f"{name}-{codec}-{chunk}.{kind}"
                write_tiled(path, rows, d, classes, max(1, copies // options.shrink), codec, chunk)
                yield name, asked, chunk, path
                for file in files_of(path):
                    file.unlink()


def base_rows(data: Path, name: str, folder: Path) -> tuple[Rows, int, Sequence[str]]:
    file = next(path for end in ("", *COMPRESSED) if (path := data / f"{SETS[name][0]}{end}").exists())
    base = folder / f"{name}-base.zarr"
    convert([file], base)
    with open_store(base) as store:
        return store.rows(0, store.n_rows), store.n_features, store.classes


def write_tiled(
    path: Path, rows: Rows, d: int, classes: Sequence[str], copies: int, codec: str, chunk: int
) -> None:
    """The rows again and again, each time in another random order, as far apart as codecs cannot see."""
    lengths = np.diff(rows.indptr)
    with StoreWriter(
        path, store_kind(path), shape=(copies * rows.n_rows, d), nnz=copies * len(rows.data), classes=classes,
        dtype=rows.data.dtype, index_base=1, codec=codec, chunk_nnz=chunk, meta={"shuffle_seed": 0},
    ) as writer:  # fmt: skip
        for copy in range(copies):
            order = np.random.default_rng(copy).permutation(rows.n_rows)
            indptr = np.concatenate([[0], np.cumsum(lengths[order])])
            at = np.repeat(rows.indptr[order] - indptr[:-1], lengths[order]) + np.arange(indptr[-1])
            part = Rows(rows.data[at], rows.indices[at], indptr, rows.labels[order], rows.norm2[order])
            writer.append(part, np.arange(rows.n_rows) + copy * rows.n_rows)
        writer.finish()


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in files_of(path))


def forget(path: Path) -> None:
    """Have the system drop what it caches of a store."""
    for file in files_of(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


# -- reading ---------------------------------------------------------------------------------------


def measure_reading(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    results = []
    for name, asked, chunk, path in each_store(options, folder):
        ways: dict[str, Callable[[], object]] = {
            "bare": lambda path=path: bare_read(path),
            "rows": lambda path=path: read_rows(path),
            "by library": lambda path=path: read_rows(path, library=True),
        }
        if asked == "zarr:none":
            ways["mapped"] = lambda path=path: read_mapped(path)
        walls: dict[str, list[float]] = {}
        works: dict[str, list[float]] = {}
        for _ in range(options.turns):
            for heat in ("cold", "hot"):
                for way, read in ways.items():
                    if heat == "cold":
                        forget(path)
                    wall, work = time.perf_counter(), time.process_time()
                    read()
                    walls.setdefault(f"{way} {heat}", []).append(time.perf_counter() - wall)
                    works.setdefault(f"{way} {heat}", []).append(time.process_time() - work)
        with open_store(path) as store:
            decoded = store.nnz * (store.dtype.itemsize + store.index_dtype.itemsize)
        record = {"set": name, "store": asked, "chunk": chunk, "stored": size_of(path), "decoded": decoded}
        record["MB/s"] = {way: decoded / statistics.median(t) / 1e6 for way, t in walls.items()}
        record["CPU s/GB"] = {way: 1e9 * statistics.median(t) / decoded for way, t in works.items()}
        results.append(record)
    names = [f"{way} {heat}" for way in ("bare", "rows", "by library", "mapped") for heat in ("cold", "hot")]
    for unit in ("MB/s", "CPU s/GB"):
        table = [
            [r["set"], r["store"], r["chunk"], r["stored"] / r["decoded"], *(r[unit].get(n) for n in names)]
            for r in results
        ]
        title = f"{unit} of decoded non-zeros, medians of {options.turns} turns"
        print_table(title, ["set", "store", "chunk", "stored/decoded", *names], table)
    return results


def bare_read(path: Path) -> None:
    """All bytes of a store, in order, into one buffer."""
    buffer = bytearray(8 * MB)
    for file in files_of(path):
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


def read_rows(path: Path, *, library: bool = False) -> None:
    """Blocks of rows as training reads them; with `library`, Zarr's too through the container's library."""
    with open_store(path) as store:
        if library:
            for array in store.arrays.values():
                array.direct = None
        step = max(1, BLOCK_NNZ * store.n_rows // store.nnz)
        for start in range(0, store.n_rows, step):
            store.rows(start, min(start + step, store.n_rows))


def read_mapped(path: Path) -> None:
    """The least that a memory-mapped reader of plain chunks must do: checksums, and a look at each value."""
    for name, dtype in (("data", "<f4"), ("indices", "<i4")):
        for file in sorted((path / "X" / name / "c").iterdir()):
            content = np.memmap(file, np.uint8, "r")
            if google_crc32c.value(content[:-4]) != int.from_bytes(content[-4:].tobytes(), "little"):
                raise ValueError(f"{file} is damaged")
            content[:-4].view(dtype).max()


# -- epochs ----------------------------------------------------------------------------------------


def measure_epochs(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Passes of `fit` with all rows in memory, and from a cold store under a hard limit of memory."""
    results = []
    limit = INTERPRETER + options.memory * MB
    for name, asked, chunk, path in each_store(options, folder):
        child = {"store": str(path), "out": str(folder / "run"), "passes": options.passes}
        child["memory"] = options.memory * MB
        in_child({**child, "passes": 1, "block_rows": 1000})  # compiles
        turns: list[dict[str, float]] = []
        for _ in range(options.turns):
            forget(path)
            begin = time.perf_counter()
            bare_read(path)
            bare = time.perf_counter() - begin
            held = in_child({**child, "held": True})
            hot = in_child(child)
            forget(path)
            with limited(limit) as enter:
                cold = in_child(child, enter)
            for number in range(1, options.passes):
                turn = {"bare": bare}
                for way, passes in (("held", held), ("hot", hot), ("cold", cold)):
                    turn |= {f"{what} {way}": value for what, value in passes[number].items()}
                for what in ("pass", "own"):
                    for way in ("hot", "cold"):
                        best = max(turn[f"{what} held"], bare)
                        turn[f"{what} ratio {way}"] = turn[f"{what} {way}"] / best
                turns.append(turn)
        medians = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        stored = size_of(path)
        record = {"set": name, "store": asked, "chunk": chunk, "stored": stored, "limits": stored / limit}
        results.append({**record, "medians": medians, "turns": turns})
        print_table(
            f"{name} {asked} {chunk}: {stored / 1e6:,.0f} MB, {stored / limit:.1f} times the limit of "
            f"{limit // MB} MB (--memory {options.memory}M); bare read {medians['bare']:.2f} s; "
            f"seconds of a pass, medians of {len(turns)}",
            ["", "pass", "waited", "own", "reader", "pass ratio", "own ratio"],
            [
                [way, *(medians.get(f"{what} {way}") for what in COLUMNS)]
                for way in ("held", "hot", "cold")
            ],
        )  # fmt: skip
    return results


COLUMNS = ("pass", "waited", "own", "reader", "pass ratio", "own ratio")


def train(*, held: bool, **arguments: Any) -> None:
    """Print the times of each pass; with `held`, every block is kept once it was read.

    `own` is the pass without the time in which the training thread was ready to run and another process had
    the processor (Linux counts it): waiting for rows and for pages of weights and duals is in it. `reader` is
    the processor time of the other threads.
    """
    if held:
        read, kept = Blocks.read, {}

        def read_once(blocks: Blocks, block: int) -> Rows:
            if block not in kept:
                kept[block] = read(blocks, block)
            return kept[block]

        Blocks.read = read_once
    clocks = [(0.0, 0.0, 0.0)]
    passes = []

    def report(event: dict[str, Any]) -> None:
        if event["event"] in ("ready", "pass"):
            clocks.append((queued(), time.thread_time(), time.process_time()))
        if event["event"] == "pass":
            queue, own, both = (b - a for a, b in zip(clocks[-2], clocks[-1], strict=True))
            seconds, waited = event["seconds"], event["waited_seconds"]
            passes.append({"pass": seconds, "waited": waited, "own": seconds - queue, "reader": both - own})

    fit(gap="none", checkpoint_every="1h", force=True, report=report, **arguments)
    print(json.dumps(passes))


def queued() -> float:
    """Seconds that this thread has been ready to run, and did not."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def in_child(arguments: dict[str, Any], enter: Callable[[], None] | None = None) -> list[dict[str, float]]:
    words = [sys.executable, __file__, "--child", json.dumps({"held": False, **arguments})]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, preexec_fn=enter)
    return json.loads(done.stdout)


@contextlib.contextmanager
def limited(size: int) -> Iterator[Callable[[], None]]:
    """A memory cgroup of `size` bytes, page cache included; yields what a child calls to enter it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, below = line.split(":", 2)
        if controllers == "":
            root, name = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        group = root / below.lstrip("/") / f"streamsvm-benchmark-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        (group / name).write_text(str(size))

        def enter(group: Path = group) -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

        try:
            yield enter
        finally:
            group.rmdir()
        return
    sys.exit("no memory cgroup can be made here: run as root, or where they are delegated")


if __name__ == "__main__":
    main()
