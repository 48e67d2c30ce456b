"""Predict for many files on a Dask cluster: each task takes one store and the model.

    python examples/dask_predict.py RUN OUT STORE [STORE ...] [--scheduler ADDRESS]

The model and the stores must be at the same paths on all workers. OUT becomes a folder with a CSV table for
each store: the names of its rows, labels, scores and margins. Each has its name when all of it is written, so
a task that was lost with its worker runs again. Without a scheduler there are processes of this machine.
"""

import argparse
from pathlib import Path

import distributed

import streamsvm


def predict(model: Path, store: Path, out: Path) -> int:
    """Predict for a store, on a worker, in one thread; return the number of rows."""
    return streamsvm.predict(model, store, out, workers=1, force=True, progress=False).n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("stores", type=Path, nargs="+")
    parser.add_argument("--scheduler")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    tables = [options.out.resolve() / f"{store.stem}.csv" for store in options.stores]
    if len(set(tables)) < len(tables):
        parser.error("stores have the same name")
    with distributed.Client(options.scheduler) as client:
        models = [options.model.resolve()] * len(tables)
        stores = [store.resolve() for store in options.stores]
        counts = client.gather(client.map(predict, models, stores, tables, pure=False))
    for table, count in zip(tables, counts, strict=True):
        print(f"{count:,} rows: {table}")


if __name__ == "__main__":
    main()
