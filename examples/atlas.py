"""An atlas of cells: from raw counts to a label for each cell of a query.

    pip install -e '.[anndata,tables]' anndata   # in a copy of the repository
    python examples/atlas.py                     # in a folder for the files that it writes

Data are generated, so that there is nothing to download; everything below "Train" is as for an atlas of
millions of cells. It takes some seconds, and half a minute more where kernels are compiled first.
"""

import subprocess

import anndata
import numpy as np
import pandas as pd
import scipy.sparse as sp

# -- Data: counts of genes in cells --------------------------------------------------------------------
#
# Each type of cell has an expression of its own. Each donor changes it a little, and the query was
# measured in another batch, which changes it more. Counts are negative binomial: Poisson, with a mean
# that varies by a gamma distribution.

GENES = np.array([f"ENSG{number:011d}" for number in range(2000)])
TYPES = np.array(["B", "NK", "T helper", "T killer", "dendritic", "macrophage", "mast", "monocyte", "plasma"])

rng = np.random.default_rng(0)
EXPRESSION = rng.gamma(0.3, size=len(GENES)) * np.exp(0.3 * rng.normal(size=(len(TYPES), len(GENES))))


def cells(n: int, donors: list[str], batch_effect: float) -> anndata.AnnData:
    """Cells of some donors, in the order in which atlases often have them: by donor, then by type."""
    obs = pd.DataFrame({"donor": rng.choice(donors, n), "cell_type": rng.choice(TYPES, n)}, dtype="category")
    obs = obs.sort_values(["donor", "cell_type"]).set_index(np.array([f"{donors[0]}-{i}" for i in range(n)]))
    batch = np.exp(batch_effect * rng.normal(size=len(GENES)))
    effects = batch * np.exp(0.2 * rng.normal(size=(len(donors), len(GENES))))
    mean = EXPRESSION[obs["cell_type"].cat.codes] * effects[obs["donor"].cat.codes]
    mean *= rng.lognormal(np.log(600), 0.4, (n, 1)) / mean.sum(axis=1, keepdims=True)  # counts of a cell
    counts = rng.poisson(mean * rng.gamma(2, 1 / 2, mean.shape)).astype(np.float32)
    return anndata.AnnData(sp.csr_matrix(counts), obs, pd.DataFrame(index=GENES))


cells(6000, ["D1", "D2", "D3", "D4"], batch_effect=0).write_h5ad("atlas.h5ad", compression="gzip")

# The query has other donors, its genes come in another order, and a tenth of them was not measured.
query = cells(1000, ["Q1", "Q2"], batch_effect=0.3)
query[:, rng.permutation(len(GENES))[:1800]].copy().write_h5ad("query.h5ad")


def run(*command: str) -> None:
    """Show a command, and run it as a shell would."""
    print("\n$", " ".join(command), flush=True)
    subprocess.run(command, check=True)


# -- Train ---------------------------------------------------------------------------------------------
#
# The file is read where it lies: there is nothing to convert, to shuffle or to normalise beforehand. Each
# block of rows is read in slices from all over the file, so it does not matter that the file is sorted.
# What `--memory` says is all that is used, however large the file; here it is so little that a pass takes
# several blocks. The steps of `--transform` are kept in the model, so from now on everything takes counts.

run("streamsvm", "info", "atlas.h5ad")
run(
    "streamsvm", "fit", "atlas.h5ad", "--label", "cell_type", "--out", "run",
    "--transform", "normalize=1e4,log1p", "--memory", "16M",
)  # fmt: skip

# -- Measure -------------------------------------------------------------------------------------------
#
# Genes are found by name, and the command says how many the query lacks; those are taken as 0.

run("streamsvm", "evaluate", "run", "query.h5ad", "--label", "cell_type")

# -- Predict -------------------------------------------------------------------------------------------
#
# The table has a row for each cell, with its name. No labels are needed for this, and the matrix is not read
# into memory as a whole. The margin is the score of the best class minus the score of the second: cells with
# a small one are worth a look.

run("streamsvm", "predict", "run", "query.h5ad", "--out", "predicted.parquet", "--quiet")

predicted = pd.read_parquet("predicted.parquet").set_index("row")
obs = anndata.read_h5ad("query.h5ad", backed="r").obs.join(predicted)
print("\n", obs.head(), sep="")
right = obs["label"] == obs["cell_type"].astype(str)
sure = obs["margin"] > obs["margin"].median()
print(
    f"\nright: {right.mean():.3f} of all cells, {right[sure].mean():.3f} of the half with the largest margins"
)
