"""How fast stores are read, and whether an epoch keeps up with them (see docs/measurements/store.md)."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from common import Data, Out, Pair, Sets, choose, print_records, print_table, start, write_json
from measured import drop_caches, files_of, run, size_of
from streamsvm_converters import convert
from typer import Option

from streamsvm import fit
from streamsvm.data.blocks import Blocks
from streamsvm.data.rows import Rows
from streamsvm.store import Contents, StoreWriter, open_store

MB = 2**20
INTERPRETER = 160 * MB  # beside --memory: see tests/crash/test_memory.py
BLOCK_NNZ = 2**22  # a read of the tables
COLUMNS = ("pass", "waited", "own", "reader", "pass ratio", "own ratio")
Stores = Annotated[str, Option(metavar="KIND:CODEC,...")]
Nnz = Annotated[float, Option(help="of a store: the rows of a set, as often as that takes")]
Folder = Annotated[Path | None, Option(help="for the stores")]


# -- stores ----------------------------------------------------------------------------------------


def each_store(
    pairs: list[Pair], stores: str, nnz: float, chunk: int, folder: Path | None
) -> Iterator[tuple[dict[str, Any], Path]]:
    """Write one store after another, and remove it after its use."""
    for pair in pairs:
        for asked in stores.split(","):
            kind, codec = asked.split(":")
            with tempfile.TemporaryDirectory(prefix="streamsvm-", dir=folder) as work:
                path = Path(work) / f"{pair.name}.{kind}"
                write_tiled(path, pair, nnz, codec, chunk)
                yield {"set": pair.name, "store": asked, "stored": size_of(path)}, path


def write_tiled(path: Path, pair: Pair, nnz: float, codec: str, chunk: int) -> None:
    """The rows again and again, each time in another random order, as far apart as codecs cannot see."""
    base = path.with_name("base.zarr")
    convert([pair.train], base)
    with open_store(base) as store:
        rows, d, classes = store.rows(0, store.n_rows), store.n_features, store.classes
    lengths, copies = np.diff(rows.indptr), max(1, int(nnz) // len(rows.data))
    contents = Contents(
        n=copies * rows.n_rows, d=d, nnz=copies * len(rows.data), n_classes=len(classes),
        dtype=rows.data.dtype.name, index_base=1, codec=codec, chunk_nnz=chunk,
    )  # fmt: skip
    with StoreWriter(path, contents, classes, meta={"shuffle_seed": 0}) as writer:
        for copy in range(copies):
            order = np.random.default_rng(copy).permutation(rows.n_rows)
            indptr = np.concatenate([[0], np.cumsum(lengths[order])])
            at = np.repeat(rows.indptr[order] - indptr[:-1], lengths[order]) + np.arange(indptr[-1])
            part = Rows(rows.data[at], rows.indices[at], indptr, rows.labels[order], rows.norm2[order])
            writer.append(part, np.arange(rows.n_rows) + copy * rows.n_rows)
        writer.finish()


# -- reading ---------------------------------------------------------------------------------------


def read(
    data: Data,
    sets: Sets = "mnist,sector,news20",
    stores: Stores = "zarr:fast,zarr:none,zarr:small,h5:none",
    chunk: Annotated[int, Option(help="non-zeros of a chunk")] = 2**18,
    nnz: Nnz = 5e7,
    turns: int = 5,
    folder: Folder = None,
    out: Out = None,
) -> None:
    """Read stores in blocks, from cold and hot caches, and the bare bytes of their files."""
    records = []
    for record, path in each_store(choose(data, sets), stores, nnz, chunk, folder):
        with open_store(path) as store:
            decoded = store.nnz * (store.dtype.itemsize + store.index_dtype.itemsize)
        for way, reader in (("bare", bare_read), ("rows", read_rows)):
            for heat in ("cold", "hot"):
                walls, works = [], []
                for _ in range(turns):
                    if heat == "cold":
                        drop_caches(path)
                    wall, work = time.perf_counter(), time.process_time()
                    reader(path)
                    walls.append(time.perf_counter() - wall)
                    works.append(time.process_time() - work)
                record[f"{way} {heat}, MB/s"] = decoded / statistics.median(walls) / 1e6
                record[f"{way} {heat}, CPU s/GB"] = 1e9 * statistics.median(works) / decoded
        records.append({**record, "decoded": decoded})
    print_records(f"decoded non-zeros, medians of {turns} turns", records)
    write_json(out, {"read": records})


def bare_read(path: Path) -> None:
    """All bytes of a store, in order, into one buffer."""
    buffer = bytearray(8 * MB)
    for file in files_of(path):
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


def read_rows(path: Path) -> None:
    """Blocks of rows as training reads them."""
    with open_store(path) as store:
        step = max(1, BLOCK_NNZ * store.n_rows // store.nnz)
        for first in range(0, store.n_rows, step):
            store.rows(first, min(first + step, store.n_rows))


# -- epochs ----------------------------------------------------------------------------------------


def epochs(
    data: Data,
    sets: Sets = "mnist,sector,news20",  # the weights of wn1000 do not fit beside such a limit
    stores: Stores = "zarr:fast",
    nnz: Nnz = 3e8,
    passes: int = 3,
    memory: Annotated[int, Option(help="MB of the fit")] = 64,
    turns: int = 5,
    folder: Folder = None,
    out: Out = None,
) -> None:
    """Make passes with all rows in memory, and from a cold store under a hard limit of memory."""
    limit, records = INTERPRETER + memory * MB, []
    for record, path in each_store(choose(data, sets), stores, nnz, 2**18, folder):
        run_epochs(path, passes, memory)  # compiles
        found: list[dict[str, float]] = []
        for _ in range(turns):
            drop_caches(path)
            begin = time.perf_counter()
            bare_read(path)
            bare = time.perf_counter() - begin
            held = run_epochs(path, passes, memory, "--held")
            hot = run_epochs(path, passes, memory)
            drop_caches(path)
            cold = run_epochs(path, passes, memory, limit=limit)
            for number in range(1, passes):
                turn = {"bare": bare}
                for way, seconds in (("held", held), ("hot", hot), ("cold", cold)):
                    turn |= {f"{what} {way}": value for what, value in seconds[number].items()}
                for what in ("pass", "own"):
                    for way in ("hot", "cold"):
                        turn[f"{what} ratio {way}"] = turn[f"{what} {way}"] / max(turn[f"{what} held"], bare)
                found.append(turn)
        medians = {key: statistics.median(turn[key] for turn in found) for key in found[0]}
        records.append({**record, "medians": medians, "turns": found})
        print_table(
            f"{record['set']} {record['store']}: {record['stored'] / 1e6:,.0f} MB, "
            f"{record['stored'] / limit:.1f} times the limit of {limit // MB} MB (--memory {memory}); "
            f"bare read {medians['bare']:.2f} s; seconds of a pass, medians of {len(found)}",
            ["", *COLUMNS],
            [[way, *(medians.get(f"{what} {way}") for what in COLUMNS)] for way in ("held", "hot", "cold")],
        )
    write_json(out, {"epochs": records})


def run_epochs(
    store: Path, passes: int, memory: int, *more: str, limit: int | None = None
) -> list[dict[str, float]]:
    """Train in another process; the times of each pass."""
    words = [sys.executable, Path(__file__).resolve(), "train", store, store.with_name("run"), passes, memory]
    return json.loads(run([*words, *more], cwd=store.parent, limit=limit).output)


class Clocks(NamedTuple):
    """Seconds that this thread was ready to run and did not, and of its and the process's work."""

    queued: float
    own: float
    process: float

    @classmethod
    def now(cls) -> Clocks:
        queued = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
        return cls(queued, time.thread_time(), time.process_time())


def train(store: Path, out: Path, passes: int, memory: int, held: bool = False) -> None:
    """Print the times of each pass; with --held, all rows are kept once they were read.

    `own` is the pass without the time in which the training thread was ready to run and another process had
    the processor (Linux counts it): waiting for rows and for pages of weights and duals is in it. `reader` is
    the processor time of the other threads.
    """
    if held:
        read, kept = Blocks._read, {}

        def read_once(blocks: Blocks, first: int, stop: int) -> Rows:
            if (first, stop) not in kept:
                kept[first, stop] = read(blocks, first, stop)
            return kept[first, stop]

        Blocks._read = read_once
    clocks: list[Clocks] = [Clocks.now()]
    times = []

    def report(event: dict[str, Any]) -> None:
        if event["event"] in ("ready", "pass"):
            clocks.append(Clocks.now())
        if event["event"] == "pass":
            queued, own, both = (b - a for a, b in zip(clocks[-2], clocks[-1], strict=True))
            seconds, waited = event["seconds"], event["waited_seconds"]
            times.append({"pass": seconds, "waited": waited, "own": seconds - queued, "reader": both - own})

    fit(
        store, out=out, passes=passes, memory=memory * MB, gap="none", checkpoint_every="1h", force=True,
        transform="none", report=report,
    )  # fmt: skip
    print(json.dumps(times))


if __name__ == "__main__":
    start(read, __doc__, epochs, train)
