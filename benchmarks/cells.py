"""Atlases of cells: reading them, training on them under a hard limit of memory, and CellTypist.

    python benchmarks/cells.py read FILE... [--memory 1G]
    python benchmarks/cells.py train FILE --query FILE [--limit 1G]
    python benchmarks/cells.py celltypist [--cells 40000]

`benchmarks/atlas.py` generates the files. ``read`` compares what a pass over blocks of random slices reads
with backed reading by anndata and, if it is installed, annbatch: in turn, the best of some rounds, decoded
bytes of values and indices a second. ``train`` and ``celltypist`` run whole commands in processes of their
own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measured import drop_caches, run

from streamsvm.base.text import format_size, parse_size

LABEL = "cell_type"


# -- reading ---------------------------------------------------------------------------------------


def read_by_us(path: Path, slice_rows: int, block_rows: int) -> int:
    from streamsvm.store import open_store
    from streamsvm.store.sliced import sliced

    read = 0
    with open_store(path, label=LABEL) as store:
        view = sliced(store, slice_rows, seed=0) if slice_rows else store
        for start in range(0, view.n_rows, block_rows):
            rows = view.rows(start, min(start + block_rows, view.n_rows))
            read += rows.data.nbytes + rows.indices.nbytes
    return read


def backed(path: Path) -> Any:
    from anndata.io import sparse_dataset

    if path.suffix == ".zarr":
        import zarr

        return sparse_dataset(zarr.open_group(path, mode="r", use_consolidated=False)["X"])
    import h5py

    return sparse_dataset(h5py.File(path, "r")["X"])


def read_by_anndata(path: Path, slice_rows: int, block_rows: int) -> int:
    """Backed reading, in order; or of slices in random order, as `read_by_us` takes them."""
    import scipy.sparse

    matrix, read = backed(path), 0
    n = matrix.shape[0]
    step = slice_rows or block_rows
    starts = np.arange(0, n, step)
    if slice_rows:
        starts = np.random.default_rng(0).permutation(starts)
    held: list[Any] = []
    for start in starts.tolist():
        held.append(matrix[start : min(start + step, n)])
        if sum(part.shape[0] for part in held) >= block_rows:
            rows = scipy.sparse.vstack(held, format="csr")
            read += rows.data.nbytes + rows.indices.nbytes
            held = []
    return read + sum(part.data.nbytes + part.indices.nbytes for part in held)


def read_by_annbatch(path: Path, slice_rows: int, block_rows: int) -> int:
    """Chunks of successive rows, shuffled, as its loader preloads them."""
    from annbatch import Loader

    n_chunks = max(1, block_rows // slice_rows)
    loader = Loader(
        chunk_size=slice_rows, preload_nchunks=n_chunks, batch_size=n_chunks * slice_rows, shuffle=True,
        preload_to_gpu=False,
    )  # fmt: skip
    loader.add_dataset(backed(path))
    read = 0
    for batch in loader:
        X = batch["X"]
        read += X.data.nbytes + X.indices.nbytes
    return read


def compare_reading(options: argparse.Namespace) -> None:
    from streamsvm.store import open_store
    from streamsvm.store.sliced import choose_slice_rows

    for path in options.files:
        with open_store(path, label=LABEL) as store:
            mean = store.nnz / store.n_rows
            block_rows = max(1, int(options.memory / 4 / (20 * mean)))
            slice_rows = choose_slice_rows(store, block_rows)
            print(f"{path.name}: {store.n_rows:,} cells, {mean:.0f} genes each; {block_rows:,} rows a block")
        contenders: dict[str, tuple[Callable[..., int], int]] = {
            "in order: ours": (read_by_us, 0),
            "in order: anndata": (read_by_anndata, 0),
            f"slices of {slice_rows}: ours": (read_by_us, slice_rows),
            f"slices of {slice_rows}: anndata": (read_by_anndata, slice_rows),
        }
        if importlib.util.find_spec("annbatch") and path.suffix == ".zarr":  # the only kind that it reads
            contenders["shuffled chunks: annbatch"] = (read_by_annbatch, slice_rows)
        wall, cpu = dict.fromkeys(contenders, 0.0), dict.fromkeys(contenders, 0.0)
        for _ in range(options.rounds):
            for name, (read, rows) in contenders.items():
                begin, used = time.perf_counter(), time.process_time()
                size = read(path, rows, block_rows)
                wall[name] = max(wall[name], size / 1e6 / (time.perf_counter() - begin))
                cpu[name] = max(cpu[name], size / 1e6 / (time.process_time() - used))
        for name in contenders:
            print(f"  {name:32} {wall[name]:6.0f} MB/s {cpu[name]:6.0f} MB per second of processor time")


# -- whole commands --------------------------------------------------------------------------------


def compare_training(options: argparse.Namespace) -> None:
    """Train on a file and predict another under a hard limit, with cold caches."""
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        folder = Path(work)
        drop_caches(options.file.parent)
        words: list[Any] = ["streamsvm", "fit", options.file.resolve(), "--label", LABEL, "--out", "run"]
        words += [
            "--passes",
            options.passes,
            "--memory",
            f"{options.limit // 2**21}M",
            "--gap",
            "none",
            "--json",
        ]
        if options.transform:
            words += ["--transform", options.transform]
        cost = run(words, cwd=folder, limit=options.limit)
        fitted = json.loads(cost.output)
        print(f"fit: {cost.seconds:.0f} s, {fitted['rows_per_second']:,.0f} rows/s, {_memory(cost)}")
        query = options.query.resolve()
        cost = run(
            ["streamsvm", "predict", "run", query, "--out", "labels.csv", "--force", "--json"],
            cwd=folder, limit=min(options.limit, parse_size("500M")),
        )  # fmt: skip
        print(f"predict: {json.loads(cost.output)['n'] / cost.seconds:,.0f} rows/s, {_memory(cost)}")
        cost = run(
            ["streamsvm", "evaluate", "run", query, "--label", LABEL, "--json"], cwd=folder, limit=None
        )
        print(f"accuracy of the query: {json.loads(cost.output)['accuracy']:.4f}")


def _memory(cost: Any) -> str:
    return (
        f"peak {format_size(cost.peak_memory or 0)}, of which private {format_size(cost.private_memory or 0)}"
    )


_CELLTYPIST = """
import sys, time, json, warnings
warnings.simplefilter("ignore")
import anndata, celltypist, scanpy as sc
reference, query = (anndata.read_h5ad(path) for path in sys.argv[1:])
begin = time.perf_counter()
for adata in (reference, query):
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
model = celltypist.train(
    reference, labels="cell_type", n_jobs=2, feature_selection=False, check_expression=False
)
trained = time.perf_counter()
found = celltypist.annotate(query, model=model).predicted_labels["predicted_labels"]
done = time.perf_counter()
truth = query.obs["cell_type"]
print(json.dumps({
    "accuracy": float((found.astype(str).to_numpy() == truth.astype(str).to_numpy()).mean()),
    "train": trained - begin, "predict": done - trained,
}))
"""


def compare_with_celltypist(options: argparse.Namespace) -> None:
    """The same reference and query, whose genes are in another order, from another batch."""
    generator = str(Path(__file__).with_name("atlas.py"))
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        folder = Path(work)
        for words in (
            ["reference.h5ad", "--cells", str(options.cells), "--order", "donor,type"],
            ["query.h5ad", "--cells", str(options.cells // 4), "--part", "query", "--genes-in-random-order"],
        ):  # in processes of their own: a command would count what its parent holds
            command = [sys.executable, generator, *words, "--compression", "gzip"]
            subprocess.run(command, cwd=folder, check=True)
        if importlib.util.find_spec("celltypist"):
            words = [sys.executable, "-c", _CELLTYPIST, "reference.h5ad", "query.h5ad"]
            whole, peak, output = timed(words, folder)
            found = json.loads(output.splitlines()[-1])
            print(
                f"CellTypist: accuracy {found['accuracy']:.4f}, training {found['train']:.0f} s, predicting "
                f"{found['predict']:.0f} s, {whole:.0f} s in all, {format_size(peak)}"
            )
        for passes in options.passes_of_ours:
            _ours(folder, passes, options.memory)


def _ours(folder: Path, passes: int, memory: str) -> None:
    transform = "normalize=1e4,log1p"
    fit = ["fit", "reference.h5ad", "--label", LABEL, "--transform", transform, "--out", "run"]
    fit += ["--force", "--passes", str(passes), "--memory", memory, "--gap", "none"]
    training, peak, _ = timed(["streamsvm", *fit], folder)
    predicting, *_ = timed(
        ["streamsvm", "predict", "run", "query.h5ad", "--out", "labels.csv", "--force"], folder
    )
    *_, output = timed(["streamsvm", "evaluate", "run", "query.h5ad", "--label", LABEL, "--json"], folder)
    print(
        f"streamsvm, {passes} passes: accuracy {json.loads(output)['accuracy']:.4f}, training "
        f"{training:.1f} s and predicting {predicting:.1f} s (whole commands), {format_size(peak)}"
    )


def timed(words: list[str], folder: Path) -> tuple[float, int, str]:
    """Seconds, peak of the resident memory in bytes, and output of a command."""
    begin = time.perf_counter()
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(words)[:200]} failed")
    return time.perf_counter() - begin, usage.ru_maxrss * 1024, output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    reading = commands.add_parser("read")
    reading.add_argument("files", nargs="+", type=Path)
    reading.add_argument("--memory", type=parse_size, default=2**30)
    reading.add_argument("--rounds", type=int, default=3)
    reading.set_defaults(run=compare_reading)
    training = commands.add_parser("train")
    training.add_argument("file", type=Path)
    training.add_argument("--query", type=Path, required=True)
    training.add_argument("--passes", type=int, default=1)
    training.add_argument("--limit", type=parse_size, default=2**30)
    training.add_argument("--transform", default="normalize=1e4,log1p")
    training.set_defaults(run=compare_training)
    peer = commands.add_parser("celltypist")
    peer.add_argument("--cells", type=int, default=40_000)
    peer.add_argument("--memory", default="200M")
    peer.add_argument("--passes-of-ours", type=int, nargs="*", default=[1, 3])
    peer.set_defaults(run=compare_with_celltypist)
    for each in (training, peer):
        each.add_argument("--work", type=Path, help="folder for temporary files")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
