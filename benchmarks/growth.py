"""How the time of a pass grows with rows, classes and non-zeros a row, on synthetic rows (see README.md)."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from common import print_table, write_json
from visits import STEADY, time_visits

from streamsvm import fit
from streamsvm.data.rows import Rows
from streamsvm.store import StoreWriter


class Shape(NamedTuple):
    """Of a synthetic problem; `features` is a power of two."""

    rows: int
    features: int
    classes: int
    row_nnz: int


FULL = {
    "rows": [Shape(n, 2**16, 100, 100) for n in (1_000, 10_000, 100_000, 1_000_000)],
    "classes": [Shape(20_000, 2**14, k, 32) for k in (10, 100, 1_000, 10_000)],
    "row_nnz": [Shape(20_000, 2**15, 100, m) for m in (4, 16, 64, 256, 1_000)],
}
QUICK = {
    "rows": [Shape(n, 2**14, 100, 50) for n in (1_000, 10_000, 100_000)],
    "classes": [Shape(4_000, 2**12, k, 32) for k in (10, 100, 1_000)],
    "row_nnz": [Shape(4_000, 2**14, 100, m) for m in (4, 32, 256)],
}
PLAIN = {"inner_passes": 0, "average": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute once compiled")
    parser.add_argument("--out", metavar="FILE", help="write the results as JSON, too")
    options = parser.parse_args()
    sweeps = QUICK if options.quick else FULL

    measure(Shape(500, 2**10, 100, 10))  # compiles
    results: dict[str, Any] = {name: sweep(name, shapes) for name, shapes in sweeps.items()}
    write_json(options.out, {"options": vars(options), **results})


def sweep(grown: str, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Measure problems that differ in the field `grown` alone, and fit the exponents."""
    measured = [measure(shape) for shape in shapes]
    x = np.log([getattr(shape, grown) for shape in shapes])
    times = {name: np.log([row[name] for row in measured]) for name in measured[0] if name != "waited"}
    overall = {name: float(np.polyfit(x, t, 1)[0]) for name, t in times.items()}
    last = {name: float((t[-1] - t[-2]) / (x[-1] - x[-2])) for name, t in times.items()}
    table = [
        [f"{getattr(shape, grown):,}", shape.rows * shape.row_nnz, *(1e3 * row[name] for name in row)]
        for shape, row in zip(shapes, measured, strict=True)
    ]
    for label, slopes in (("exponent", overall), ("of last step", last)):
        table.append([label, "", *(slopes.get(name, "") for name in measured[0])])
    others = ", ".join(f"{size:,} {name}" for name, size in shapes[0]._asdict().items() if name != grown)
    print_table(
        f"growing {grown}, with {others}: milliseconds a pass, float32, one thread",
        [grown, "non-zeros", *measured[0]],
        table,
    )
    rows = [shape._asdict() | row for shape, row in zip(shapes, measured, strict=True)]
    return {"measured": rows, "exponents": overall, "last_step": last}


def measure(shape: Shape) -> dict[str, float]:
    """Seconds of a steady pass: kernels on rows in memory, and within `fit` from a store."""
    rows = synthetic_rows(shape, seed=0)
    kernel = time_visits(rows, shape.features, shape.classes, 1.0, passes=STEADY + 2)
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        store = write_store(Path(folder) / "train.zarr", shape, rows)
        del rows
        plain, waited = fit_pass(store, **PLAIN)
        default, _ = fit_pass(store, inner_passes="auto", average=False)
    names = ("bare scores", "kernel", "fit, no inner passes", "waited", "fit, default")
    return dict(zip(names, (kernel.bare, kernel.full, plain, waited, default), strict=True))


def fit_pass(store: Path, **settings: Any) -> tuple[float, float]:
    """Median seconds of the steady passes, and how long of them the kernel waited for rows."""
    settings |= {"passes": STEADY + 2, "gap": "none", "checkpoint_every": "1h", "force": True}
    passes = fit(store, out=store.parent / "run", **settings).history[STEADY - 1 :]
    return tuple(statistics.median(record[key] for record in passes) for key in ("seconds", "waited_seconds"))


def synthetic_rows(shape: Shape, seed: int) -> Rows:
    """Rows of norm 1 and exactly `row_nnz` values; the same for the same seed."""
    n, m = shape.rows, shape.row_nnz
    data, indices, labels = draw(np.random.default_rng(seed), n, shape.features, shape.classes, m)
    return Rows(data, indices, np.arange(n + 1, dtype=np.int64) * m, labels, np.ones(n))


@numba.njit
def draw(rng, n, d, k, m):
    """Values, features and labels: half of a row's features belong to its class's topic (2 m features),
    the others are drawn by Zipf's law; one label in ten is replaced by chance.
    """
    data, indices = np.empty(n * m, np.float32), np.empty(n * m, np.int32)
    labels = np.empty(n, np.int32)
    taken_by = np.full(d, -1)
    for i in range(n):
        c = rng.integers(0, k)
        count = 0
        while count < m:
            if rng.random() < 0.5:
                f = ((c + 1) * 7919 + rng.integers(0, 2 * m) * 104729) % d
            else:
                f = int(d ** rng.random()) * 40503 % d  # a rank by Zipf's law, scattered
            if taken_by[f] != i:
                taken_by[f] = i
                indices[i * m + count] = f
                count += 1
        row = slice(i * m, (i + 1) * m)
        indices[row].sort()
        data[row] = 0.5 + rng.random(m)
        data[row] /= np.sqrt(np.sum(data[row] ** 2))
        labels[i] = c if rng.random() < 0.9 else rng.integers(0, k)
    return data, indices, labels


def write_store(path: Path, shape: Shape, rows: Rows) -> Path:
    """A store of the rows, which are in random order already."""
    with StoreWriter(
        path, "zarr", shape=shape[:2], nnz=len(rows.data), classes=[str(c) for c in range(shape.classes)],
        dtype=rows.data.dtype, index_base=0, meta={"shuffle_seed": 0},
    ) as writer:  # fmt: skip
        writer.append(rows, np.arange(rows.n_rows))
        writer.finish()
    return path


if __name__ == "__main__":
    main()
