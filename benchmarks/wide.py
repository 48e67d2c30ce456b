"""Weights of very many classes: sparse rows with a common dual against a matrix (see README.md)."""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from common import print_table, write_json
from generate import Distribution, Generator, parse_size
from measured import drop_caches, run, size_of

from streamsvm.data import memory_plan
from streamsvm.errors import Interrupted
from streamsvm.settings.fit import Interval, Settings
from streamsvm.training.fit_store import fit_store
from streamsvm.training.trainer import Callbacks

MB = 10**6
IN_MEMORY = 2**40  # a budget of which a quarter holds any weights


class Way(NamedTuple):
    """How to keep the weights."""

    sparse: bool
    in_memory: bool = False
    limited: bool = False

    def __str__(self) -> str:
        where = "in memory" if self.in_memory else "in files, limited" if self.limited else "in files"
        return f"{'sparse' if self.sparse else 'matrix'} {where}"


WAYS = {
    "memory": Way(sparse=False, in_memory=True),
    "files": Way(sparse=False),
    "sparse": Way(sparse=True),
    "limited-files": Way(sparse=False, limited=True),
    "limited-sparse": Way(sparse=True, limited=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--classes", type=int, nargs="+", default=[1000, 4096, 8192, 17000])
    add("--features", type=int, default=77_000)
    add("--rows", type=int, default=20_000)
    add("--nnz", type=int, default=13, help="mean of a row")
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    add("--C", type=float, default=1.0)
    add("--average", action="store_true", help="keep the average in the last pass, as by default")
    add("--memory", type=parse_size, default=300 * MB, help="of weights in files")
    add("--limit", type=parse_size, default=1000 * MB, help="hard limit on memory, of ways with one")
    add("--passes", type=int, default=2)
    add("--seconds", type=float, default=60, help="stop a fit that takes longer")
    add("--folder", type=Path, help="for stores and runs; default: temporary")
    add("--out", metavar="FILE", help="write the results as JSON, too")
    add("--child", metavar="JSON", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(train_once(**json.loads(options.child))))
        return
    results = []
    with tempfile.TemporaryDirectory(prefix="streamsvm-", dir=options.folder) as name:
        folder = Path(name)
        for k in options.classes:
            of = Distribution(k, options.features, options.nnz, topic=0.6, topic_words=40, topic_exponent=0.8)
            Generator(of, "train").write_store(folder / "s.zarr", options.rows)
            for way in map(WAYS.__getitem__, options.ways):
                results.append(measure(folder, k, way, options))
            shutil.rmtree(folder / "s.zarr")
    write_json(options.out, {"options": vars(options), "results": results})
    print_table(
        f"{options.features:,} features, {options.rows:,} rows, C {options.C:g}, "
        f"{'with' if options.average else 'without'} the average; limit "
        f"{options.limit // MB:,} MB. Seconds of each pass and, of the processor, seconds in all passes",
        ["classes", "weights", "passes", "processor", "rows", "peak MB", "model MB", "written MB"],
        [
            [r["classes"], r["way"], " + ".join(f"{s:.1f}" for s in r["seconds"]),
             f"{r['processor']:.1f}", r["rows"], round(r["peak"] / MB), round(r["model_bytes"] / MB),
             round(r["written"] / MB)]
            for r in results
        ],
    )  # fmt: skip


def measure(folder: Path, k: int, way: Way, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one fit, in a process of its own."""
    arguments = {
        "folder": str(folder), "sparse": way.sparse, "passes": options.passes, "C": options.C,
        "average": options.average, "seconds": options.seconds,
        "memory": IN_MEMORY if way.in_memory else options.memory,
    }  # fmt: skip
    drop_caches(folder)
    words = sys.executable, Path(__file__).resolve(), "--child", json.dumps(arguments)
    cost = run(words, cwd=folder, limit=options.limit if way.limited else None)
    result = json.loads(cost.output)
    print(f"{k} classes, {way}: {result}", file=sys.stderr, flush=True)
    return {"classes": k, "way": str(way), "written": cost.written_bytes, **result}


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def train_once(
    folder: str, *, sparse: bool, passes: int, C: float, average: bool, memory: int, seconds: float
) -> dict[str, Any]:
    """Train, with sparse weights or without, whatever the number of classes; stop after so many seconds."""
    least = 2 if sparse else 2**31
    memory_plan.MANY_CLASSES = memory_plan.COMMON_DUAL_CLASSES = least
    settings = Settings(
        passes=passes, C=C, memory=memory, average=average, inner_passes=0, gap="none", block_rows=500
    )  # fmt: skip
    out, begin = Path(folder) / "run", time.monotonic()
    processor: list[float] = []
    rows = [0]

    def stop() -> bool:
        return time.monotonic() - begin > seconds

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            processor.append(processor_seconds())
        rows.append(event["rows"] if event["event"] == "rows" else 0)

    try:
        result = fit_store(
            f"{folder}/s.zarr", out, settings,
            every=Interval("1h"), callbacks=Callbacks.of(report, None, stop),
        )  # fmt: skip
        taken = [record["seconds"] for record in result.history]
        model = sum(size_of(path) for path in (out / "model").iterdir())
    except Interrupted:
        taken, model = [], 0
    processor.append(processor_seconds())
    log = sum(size_of(path) for path in out.glob("changes-*.bin"))
    shutil.rmtree(out)
    return {
        "seconds": taken, "processor": processor[1] - processor[0], "rows": max(rows),
        "model_bytes": model, "log_bytes": log,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }  # fmt: skip


if __name__ == "__main__":
    main()
