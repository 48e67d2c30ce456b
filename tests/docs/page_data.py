"""Small data for the pages of the documentation that do not make their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable


def digits() -> None:
    """LIBSVM text in `train` and `test`: what the page of LIBSVM files makes."""
    from sklearn.datasets import dump_svmlight_file, load_digits

    X, y = load_digits(return_X_y=True)
    dump_svmlight_file(X[:1400], y[:1400], "train", zero_based=False)
    dump_svmlight_file(X[1400:], y[1400:], "test", zero_based=False)


def stores() -> None:
    """The digits as stores, `train.zarr` and `test.zarr`, too."""
    from streamsvm_converters import convert

    digits()
    convert(["train"], "train.zarr")
    convert(["test"], "test.zarr", like="train.zarr")


def cells() -> None:
    """AnnData: an atlas with a layer, two files of it to be joined, one by columns, and a query."""
    import anndata
    import numpy as np
    import pandas as pd
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    kinds = rng.integers(3, size=300)
    counts = sp.csr_matrix(rng.poisson(np.exp(rng.normal(size=(3, 40)))[kinds]), dtype=np.float32)
    obs = pd.DataFrame({"cell_type": np.array(["B", "NK", "T"])[kinds]}, [f"cell{i}" for i in range(300)])
    atlas = anndata.AnnData(counts, obs, pd.DataFrame(index=[f"gene{j}" for j in range(40)]))
    atlas.layers["counts"] = counts
    atlas.write_h5ad("atlas.h5ad")
    atlas[:150, :30].copy().write_h5ad("a.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata on what its next version will write
        atlas[150:, 10:].copy().write_zarr("b.zarr")
    query = atlas[200:, 5:].copy()
    del query.obs["cell_type"]
    query.write_h5ad("query.h5ad")
    atlas.X = counts.tocsc()
    atlas.write_h5ad("by-columns.h5ad")


def tables() -> None:
    """A table of numbers and categories, and one of texts, each with new rows."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, 400)
    people = pd.DataFrame(
        {
            "id": np.arange(400),
            "name": [f"person {i}" for i in range(400)],
            "zip": rng.integers(5, size=400),
            "age": age,
            "town": rng.choice(["Leeds", "York"], 400),
            "group": np.where(age + 5 * rng.normal(size=400) < 50, "young", "old"),
        }
    )
    people[:300].to_csv("people.csv", index=False)
    people[300:].drop(columns="group").to_parquet("new.parquet")
    words = {"sport": ["ball", "goal", "team"], "money": ["bank", "rate", "share"]}
    topics = rng.choice(list(words), 400)
    news = pd.DataFrame(
        {
            "title": [rng.choice(words[topic]) for topic in topics],
            "body": [" ".join(rng.choice([*words[topic], "the", "of", "and"], 8)) for topic in topics],
            "topic": topics,
        }
    )
    news[:300].to_parquet("news.parquet")
    news[300:].drop(columns="topic").to_parquet("more.parquet")


def kinds() -> None:
    cells()
    tables()


def validated_run() -> None:
    """A run with held-out data."""
    from streamsvm import fit

    stores()
    fit("train.zarr", out="run", valid="test.zarr")


DATA: dict[str, tuple[Callable[[], None], str]] = {  # unless another page, read before, has made this file
    "data.md": (kinds, "people.csv"),
    "how-to/better-accuracy.md": (digits, "train"),
    "how-to/choosing-C-and-loss.md": (stores, "train.zarr"),
    "how-to/killed-jobs.md": (stores, "train.zarr"),
    "how-to/larger-than-memory.md": (stores, "train.zarr"),
    "measurements/results.md": (digits, "train"),
    "parallel.md": (stores, "train.zarr"),
    "report.md": (validated_run, "run"),
    "start/python.md": (digits, "train"),
    "transforms.md": (cells, "atlas.h5ad"),
    "tuning.md": (stores, "train.zarr"),
}
