"""A generated atlas of cells: negative-binomial counts of genes, with types, donors and batches, as AnnData.

The counts of a gene in a cell are negative binomial. They are drawn as a compound: a Poisson number of
clusters, whose genes are drawn by their expression and whose sizes are logarithmic. Expression is a base
level times what the cell's type changes (some marker genes, and all genes a little; types come in families,
whose members are alike), times what donor and batch change. A file depends on its options alone, and "query"
has other donors in another batch.

    python benchmarks/atlas.py atlas.h5ad --cells 100000 --compression gzip
    python benchmarks/atlas.py query.h5ad --part query --cells 20000 --genes-in-random-order
"""

# ruff: noqa: NPY002 (Numba has no other generator with these distributions)

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anndata
import h5py
import numba
import numpy as np
import pandas as pd
import scipy.sparse as sp
import zarr

PARTS = {"reference": 0, "query": 1}
ORDERS = ("random", "donor", "type", "type,donor", "donor,type")
COMPRESSIONS = ("none", "lzf", "gzip")
_BLOCK = 4096  # cells drawn at a time
_CHUNK = 2**16  # values a chunk: about what h5py chooses for large arrays


class Atlas(NamedTuple):
    """What cells are drawn from; the defaults are those of the command."""

    cells: int = 100_000
    genes: int = 20_000
    types: int = 50
    donors: int = 8
    batches: int = 2
    counts: float = 1500.0  # mean of a cell
    markers: int = 40  # genes of each type that are expressed several times as much
    fold: float = 3.0  # how much, at most
    dispersion: float = 0.3  # of a cluster's size: the p of the logarithmic distribution
    spread: float = 0.35  # standard deviation of the logarithm of what a type changes in all genes
    effect: float = 0.2  # of what a donor changes; of a batch twice as much
    part: str = "reference"
    seed: int = 0


class Cells(NamedTuple):
    """Types, donors and batches of all cells, and the number of each cell."""

    type: np.ndarray
    donor: np.ndarray
    batch: np.ndarray
    number: np.ndarray


def draw_cells(atlas: Atlas) -> Cells:
    """What each cell is, in random order."""
    rng = np.random.default_rng([atlas.seed, PARTS[atlas.part], 1])
    shares = 1 / np.arange(1, atlas.types + 1) ** 0.7
    kind = rng.choice(atlas.types, atlas.cells, p=shares / shares.sum()).astype(np.int16)
    donor = rng.integers(0, atlas.donors, atlas.cells).astype(np.int16)
    return Cells(kind, donor, donor % atlas.batches, np.arange(atlas.cells))


def in_order(cells: Cells, order: str) -> Cells:
    """The same cells in another order, as files of atlases have them."""
    if order == "random":
        return cells
    keys = [getattr(cells, name) for name in order.split(",")]
    at = np.lexsort(keys[::-1])
    return Cells(*(each[at] for each in cells))


def gene_names(atlas: Atlas) -> list[str]:
    return [f"ENSG{11 * gene + 10_000:011d}" for gene in range(atlas.genes)]


def expression(atlas: Atlas) -> np.ndarray:
    """Cumulative expression of all genes for each type and donor, float32, ending with 1."""
    rng = np.random.default_rng([atlas.seed, 2])
    base = rng.gamma(0.3, size=atlas.genes) + 1e-4
    families = rng.normal(0, atlas.spread, (-(-atlas.types // 5), atlas.genes))
    levels = np.empty((atlas.types, atlas.genes))
    for kind in range(atlas.types):
        own = families[kind // 5] + rng.normal(0, atlas.spread / 2, atlas.genes)
        own[rng.choice(atlas.genes, atlas.markers, replace=False)] += np.log(rng.uniform(1.5, atlas.fold))
        levels[kind] = base * np.exp(own)
    rng = np.random.default_rng([atlas.seed, PARTS[atlas.part], 3])
    batches = rng.normal(0, 2 * atlas.effect, (atlas.batches, atlas.genes))
    cdf = np.empty((atlas.types, atlas.donors, atlas.genes), np.float32)
    for donor in range(atlas.donors):
        change = np.exp(batches[donor % atlas.batches] + rng.normal(0, atlas.effect, atlas.genes))
        both = np.cumsum(levels * change, axis=1)
        cdf[:, donor] = both / both[:, -1:]
    cdf[:, :, -1] = 1
    return cdf


def blocks(atlas: Atlas, cells: Cells) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Counts of the cells: `data` (float32), `indices` (int32) and lengths of some rows at a time."""
    cdf = expression(atlas)
    key = np.random.default_rng([atlas.seed, PARTS[atlas.part], 4]).integers(2**62)
    for begin in range(0, atlas.cells, _BLOCK):
        few = slice(begin, begin + _BLOCK)
        yield _draw(
            cdf, cells.type[few], cells.donor[few], cells.number[few], key, atlas.counts, atlas.dispersion
        )


@numba.njit(cache=True)
def _draw(cdf, types, donors, numbers, key, counts, p):
    n, n_genes = len(types), cdf.shape[2]
    log_series = -1 / np.log(1 - p)
    mean_size = log_series * p / (1 - p)
    capacity = n * int(3 * counts)
    data, indices = np.empty(capacity, np.float32), np.empty(capacity, np.int32)
    lengths = np.zeros(n, np.int64)
    total = np.zeros(n_genes, np.int32)
    filled = 0
    for i in range(n):
        np.random.seed((key + numbers[i] * 2654435761) % 4294967291)  # Numba's own generator
        depth = counts / mean_size * np.exp(np.random.normal(0, 0.4) - 0.08)
        levels = cdf[types[i], donors[i]]
        clusters = min(np.random.poisson(depth), int(3 * counts))
        for _ in range(clusters):
            gene = min(np.searchsorted(levels, np.float32(np.random.random())), n_genes - 1)
            total[gene] += np.random.logseries(p) if p > 0 else 1
        begin = filled
        for gene in range(n_genes):
            if total[gene]:
                data[filled], indices[filled] = total[gene], gene
                total[gene] = 0
                filled += 1
        lengths[i] = filled - begin
    return data[:filled].copy(), indices[:filled].copy(), lengths


def write(
    path: Path, atlas: Atlas, order: str, compression: str, columns: np.ndarray | None, *, labelled: bool
) -> None:
    """Write AnnData, ``.h5ad`` or ``.zarr``, in bounded memory.

    Parameters
    ----------
    path : Path
    atlas : Atlas
    order : str
        One of `ORDERS`.
    compression : str
        One of `COMPRESSIONS`, of ``.h5ad``; Zarr has its own.
    columns : ndarray of int, shape (genes,), optional
        Column of each gene, a permutation.
    labelled : bool
        Whether ``obs`` has the types.
    """
    cells = in_order(draw_cells(atlas), order)
    names = np.array(gene_names(atlas), object)
    if columns is not None:
        names[columns] = names.copy()
    obs = pd.DataFrame(index=[f"{atlas.part}-{number}" for number in cells.number])
    if labelled:
        obs["cell_type"] = pd.Categorical([f"type {kind:02d}" for kind in cells.type])
    obs["donor"] = pd.Categorical([f"{atlas.part} {donor}" for donor in cells.donor])
    obs["batch"] = pd.Categorical([f"{atlas.part} {batch}" for batch in cells.batch])
    described = anndata.AnnData(obs=obs, var=pd.DataFrame(index=names))
    with contextlib.ExitStack() as stack:
        if path.suffix == ".zarr":
            described.write_zarr(path)
            root: Any = zarr.open_group(path, mode="r+", use_consolidated=False)
            options: dict[str, Any] = {"chunks": (4 * _CHUNK,)}
        else:
            described.write_h5ad(path)
            root = stack.enter_context(h5py.File(path, "r+"))
            options = {"chunks": (_CHUNK,), "compression": None if compression == "none" else compression}
        for number, (data, indices, lengths) in enumerate(blocks(atlas, cells)):
            if columns is not None:
                indices = columns[indices].astype(np.int32)
            indptr = np.concatenate([[0], np.cumsum(lengths)])
            rows = sp.csr_matrix((data, indices, indptr), (len(lengths), atlas.genes))
            rows.indptr = indptr  # int64, for what is appended
            if number:
                anndata.io.sparse_dataset(root["X"]).append(rows)
            else:
                anndata.io.write_elem(root, "X", rows, dataset_kwargs=options)
    if path.suffix == ".zarr":
        zarr.consolidate_metadata(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--order", choices=ORDERS, default="random")
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none")
    parser.add_argument("--genes-in-random-order", action="store_true")
    parser.add_argument("--unlabelled", action="store_true")
    for name, default in Atlas._field_defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    given = vars(parser.parse_args())
    atlas = Atlas(**{name: given[name] for name in Atlas._fields})
    columns = None
    if given["genes_in_random_order"]:
        columns = np.random.default_rng([atlas.seed, 5]).permutation(atlas.genes)
    write(
        given["out"], atlas, given["order"], given["compression"], columns, labelled=not given["unlabelled"]
    )


if __name__ == "__main__":
    main()
