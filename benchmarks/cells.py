"""Atlases of cells: reading them, training on them under a hard limit of memory, and CellTypist.

`benchmarks/atlas.py` generates the files.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from common import bytes_option, start
from measured import Cost, drop_caches, run
from typer import Option

from streamsvm.base.text import format_size, parse_size

LABEL = "cell_type"
TRANSFORM = "normalize=1e4,log1p"
STREAMSVM = (sys.executable, "-m", "streamsvm")


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
    for first in starts.tolist():
        held.append(matrix[first : min(first + step, n)])
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


def read(
    files: list[Path],
    memory: Annotated[int, bytes_option("of which a quarter is a block")] = 2**30,
    rounds: int = 3,
) -> None:
    """Compare reading in blocks by streamsvm, by anndata, backed, and by annbatch if it is installed.

    In turn, the best of some rounds, decoded bytes of values and indices a second.
    """
    from streamsvm.store import open_store
    from streamsvm.store.sliced import choose_slice_rows

    for path in files:
        with open_store(path, label=LABEL) as store:
            mean = store.nnz / store.n_rows
            block_rows = max(1, int(memory / 4 / (20 * mean)))
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
        for _ in range(rounds):
            for name, (reader, rows) in contenders.items():
                begin, used = time.perf_counter(), time.process_time()
                size = reader(path, rows, block_rows)
                wall[name] = max(wall[name], size / 1e6 / (time.perf_counter() - begin))
                cpu[name] = max(cpu[name], size / 1e6 / (time.process_time() - used))
        for name in contenders:
            print(f"  {name:32} {wall[name]:6.0f} MB/s {cpu[name]:6.0f} MB per second of processor time")


# -- whole commands --------------------------------------------------------------------------------


def train(
    file: Path,
    query: Annotated[Path, Option()],
    passes: int = 1,
    limit: Annotated[int, bytes_option("hard limit")] = 2**30,
    transform: str = TRANSFORM,
    work: Annotated[Path | None, Option(help="folder for temporary files")] = None,
) -> None:
    """Train on a file and predict another under a hard limit of memory, with cold caches."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        drop_caches(file)
        cost = run_ours(
            folder, "fit", file.resolve(), "--label", LABEL, "--transform", transform, "--out", "run",
            "--passes", passes, "--memory", limit // 2, "--gap", "none", limit=limit,
        )  # fmt: skip
        rate = json.loads(cost.output)["rows_per_second"]
        print(f"fit: {cost.seconds:.0f} s, {rate:,.0f} rows/s, {memory_of(cost)}")
        words = "predict", "run", query.resolve(), "--out", "labels.csv"
        cost = run_ours(folder, *words, limit=min(limit, parse_size("500M")))
        print(f"predict: {json.loads(cost.output)['n'] / cost.seconds:,.0f} rows/s, {memory_of(cost)}")
        print(f"accuracy of the query: {accuracy_of(folder, query.resolve()):.4f}")


def run_ours(folder: str, *words: object, limit: int | None = None) -> Cost:
    return run([*STREAMSVM, *words, "--json"], cwd=Path(folder), limit=limit)


def accuracy_of(folder: str, query: Path | str) -> float:
    return json.loads(run_ours(folder, "evaluate", "run", query, "--label", LABEL).output)["accuracy"]


def memory_of(cost: Cost) -> str:
    peak, private = cost.peak_memory or 0, cost.private_memory or 0
    return f"peak {format_size(peak)}, of which private {format_size(private)}"


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


def celltypist(
    cells: int = 40_000,
    memory: str = "200M",
    passes: Annotated[str, Option(metavar="A,B", help="of streamsvm")] = "1,3",
    work: Annotated[Path | None, Option(help="folder for temporary files")] = None,
) -> None:
    """Compare with CellTypist: a reference, and a query of another batch with genes in another order."""
    generate = [sys.executable, Path(__file__).with_name("atlas.py"), "--compression", "gzip", "--cells"]
    with tempfile.TemporaryDirectory(dir=work) as folder:
        for words in (
            [cells, "reference.h5ad", "--order", "donor,type"],
            [cells // 4, "query.h5ad", "--part", "query", "--genes-in-random-order"],
        ):
            run([*generate, *words], cwd=Path(folder))
        if importlib.util.find_spec("celltypist"):
            words = [sys.executable, "-c", _CELLTYPIST, "reference.h5ad", "query.h5ad"]
            cost = run(words, cwd=Path(folder))
            found = json.loads(cost.output.splitlines()[-1])
            print(
                f"CellTypist: accuracy {found['accuracy']:.4f}, training {found['train']:.0f} s, predicting "
                f"{found['predict']:.0f} s, {cost.seconds:.0f} s in all, {format_size(cost.resident_memory)}"
            )
        for n in passes.split(","):
            fit = run_ours(
                folder, "fit", "reference.h5ad", "--label", LABEL, "--transform", TRANSFORM, "--out", "run",
                "--force", "--passes", n, "--memory", memory, "--gap", "none",
            )  # fmt: skip
            predict = run_ours(folder, "predict", "run", "query.h5ad", "--out", "labels.csv", "--force")
            print(
                f"streamsvm, {n} passes: accuracy {accuracy_of(folder, 'query.h5ad'):.4f}, training "
                f"{fit.seconds:.1f} s and predicting {predict.seconds:.1f} s (whole commands), "
                f"{format_size(fit.resident_memory)}"
            )


if __name__ == "__main__":
    start(read, __doc__, train, celltypist)
