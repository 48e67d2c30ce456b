"""Convert, fit and evaluate data far larger than a hard limit on memory (see README.md)."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from common import print_table, write_json
from generate import VALUE_BYTES, parse_size
from measured import Cost, Failed, Group, drop_caches, run, size_of

GENERATE = (sys.executable, Path(__file__).resolve().parent / "generate.py")
STREAMSVM = (sys.executable, "-m", "streamsvm_cli.main")
MB, GB = 10**6, 10**9
TEXT = 1.84  # bytes of text for one of the decoded store, at most
SPOOL = 1.05  # of the decoded store; it shrinks as the compressed one grows
STORE = 0.75  # of the decoded store, compressed
FULLEST = 0.85  # of the disk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--sizes", type=float, nargs="+", default=[1, 4, 16], metavar="GB", help="8 bytes a non-zero")
    add("--direct", action="store_true", help="generate stores, not text: nothing is converted")
    add("--limit", type=parse_size, default=GB, help="hard limit on memory, of each command; 0: none")
    add("--memory", type=parse_size, help="of convert and fit; default 0.4 of the limit")
    add("--passes", type=int, default=2)
    add("--C", type=float, default=1.0)
    add("--gap", choices=["pass", "end", "none"], default="end")
    add("--checkpoint-every", default="30s")
    add("--test-rows", type=int, default=100_000)
    add("--data", default="", metavar="OPTIONS", help="for generate.py, as one word")
    add("--folder", type=Path, default=Path("scale"), help="for data and runs; made if need be")
    add("--keep", action="store_true", help="keep text, store and run of each size")
    add("--out", type=Path, metavar="FILE", help="results; default FOLDER/results.json")
    options = parser.parse_args()

    options.memory = options.memory or 2 * (options.limit or 5 * GB) // 5
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.limit:
        try:
            Group(options.limit).close()
        except OSError as error:
            print(f"{error}: --memory alone bounds what follows", file=sys.stderr)
            options.limit = 0
    out = options.out or options.folder / "results.json"
    asked = {
        name: value for name, value in vars(options).items() if name not in ("sizes", "folder", "keep", "out")
    }
    results = json.loads(out.read_text()) if out.exists() else {"options": asked, "sizes": {}}
    if results["options"] != asked:
        sys.exit(f"{out} holds results of other options: {results['options']}; give another --out")
    results.pop("environment", None)
    try:
        for size in options.sizes:
            if f"{size:g}" not in results["sizes"]:
                results["sizes"][f"{size:g}"] = measure(size, options)
                write_json(str(out), results)
    except Failed as error:
        sys.exit(str(error))
    finally:
        show(results)


def measure(size: float, options: argparse.Namespace) -> dict[str, Any]:
    """All phases of one size, in GB of the decoded store: the cost of each, and what it reported."""
    work = options.folder.resolve() / f"{size:g}"
    shutil.rmtree(work, ignore_errors=True)  # what a broken run left
    check_disk(options.folder, int(size * GB), options.direct)
    work.mkdir()
    data, limit = shlex.split(options.data), options.limit or None
    phases: dict[str, Any] = {}

    def phase(name: str, *words: object) -> dict[str, Any]:
        drop_caches(work)
        print(f"{size:g} GB: {name} ...", file=sys.stderr, flush=True)
        cost: Cost = run(words, cwd=work, limit=limit)
        phases[name] = cost._asdict()
        phases[name]["output"] = json.loads(cost.output) if cost.output.startswith("{") else None
        return phases[name]

    words = *GENERATE, *data, "--part", "test", "--rows", options.test_rows, "--out", "test.zarr"
    run(words, cwd=work, limit=None)
    amount = "--size", int(size * GB)
    if options.direct:
        phase("generate", *GENERATE, *data, *amount, "--out", "train.zarr")
    else:
        phase("generate", *GENERATE, *data, *amount, "--out", "text")["text_bytes"] = size_of(work / "text")
        phase(
            "convert", *STREAMSVM, "convert", "text", "--out", "train.zarr", "--like", "test.zarr",
            "--memory", options.memory, "--json",
        )  # fmt: skip
        if not options.keep:
            (work / "text").unlink()
    fit = phase(
        "fit", *STREAMSVM, "fit", "train.zarr", "--out", "run", "--passes", options.passes, "--C", options.C,
        "--gap", options.gap, "--checkpoint-every", options.checkpoint_every,
        "--memory", options.memory, "--json",
    )  # fmt: skip
    words = "fit", "train.zarr", "--passes", options.passes, "--memory", options.memory, "--dry-run", "--json"
    planned = json.loads(run((*STREAMSVM, *words), cwd=work, limit=None).output)
    evaluate = phase("evaluate", *STREAMSVM, "evaluate", "run", "test.zarr", "--json")
    record = json.loads((work / "train.zarr/zarr.json").read_text())["attributes"]["streamsvm"]
    sizes = {
        "rows": record["n"], "nnz": record["nnz"], "features": record["d"], "classes": record["n_classes"],
        "store_bytes": size_of(work / "train.zarr"),
        "weights_bytes": planned["weights_bytes"],
        "duals_bytes": sum(size_of(path) for path in (work / "run").glob("duals-*.bin")),
        "test_bytes": evaluate["output"]["n"] * VALUE_BYTES * record["nnz"] // record["n"],
    }  # fmt: skip
    fit["output"].pop("model")
    if not options.keep:
        shutil.rmtree(work)
    return {"direct": options.direct, **sizes, "phases": phases}


def check_disk(folder: Path, size: int, direct: bool) -> None:
    """Stop before a disk is filled that others may use."""
    disk = shutil.disk_usage(folder)
    need = size * (STORE if direct else TEXT + SPOOL) + GB
    room = FULLEST * (disk.used + disk.free) - disk.used
    if need > room:
        sys.exit(
            f"{size / GB:g} GB need {need / GB:.0f} GB of disk; {room / GB:.0f} would leave it 85 % full"
        )


def show(results: dict[str, Any]) -> None:
    """Print what was measured."""
    options = results["options"]
    limit = f"{options['limit'] / MB:.0f} MB of memory at most" if options["limit"] else "no hard limit"
    phases, fits = [], []
    for size, result in results["sizes"].items():
        decoded = VALUE_BYTES * result["nnz"]
        output = result["phases"]["fit"]["output"]
        rates = {  # bytes handled, and the seconds that took
            "generate": (decoded, None),
            "convert": (decoded, None),
            "fit": (decoded * output["passes"], output["seconds"]),
            "evaluate": (result["test_bytes"], None),
        }
        for name, cost in result["phases"].items():
            handled, seconds = rates[name]
            keys = ("peak_memory", "private_memory", "read_bytes", "written_bytes")
            busy = cost["disk_busy"]
            phases.append([
                size, name, f"{cost['seconds']:.1f}", f"{handled / MB / (seconds or cost['seconds']):.1f}",
                f"{cost['user_seconds']:.1f}", f"{cost['system_seconds']:.1f}",
                *(None if cost[key] is None else round(cost[key] / MB) for key in keys),
                None if busy is None else f"{busy:.0%}",
            ])  # fmt: skip
        commits = output["checkpoints"]
        of_average = output["average"] or output
        fits.append([
            size, result["rows"], result["nnz"],
            *(round(result[key] / MB) for key in ("store_bytes", "weights_bytes", "duals_bytes")),
            " + ".join(f"{record['seconds']:.0f}" for record in output["history"]),
            f"{output['waited_fraction']:.0%}", commits, f"{output['checkpoint_seconds']:.1f}",
            round(output["checkpoint_bytes"] / MB), of_average.get("relative_gap"),
            output["progressive_accuracy"], result["phases"]["evaluate"]["output"]["accuracy"],
        ])  # fmt: skip
    print_table(
        f"Phases, each with {limit}, --memory {options['memory'] / MB:.0f} MB. MB/s: of the decoded store, 8 "
        "bytes a non-zero; of fit in training. Peak: with the pages of files. MB read and written: of disk",
        ["GB", "phase", "seconds", "MB/s", "user s", "system s", "peak MB", "private MB", "MB read",
         "MB written", "disk busy"],
        phases,
    )  # fmt: skip
    print_table(
        f"Fits of {options['passes']} passes, C = {options['C']:g}, a commit every "
        f"{options['checkpoint_every']}. Duals: kept at the end. Accuracy: of the test part",
        ["GB", "rows", "non-zeros", "store MB", "weights MB", "duals MB", "seconds of passes", "waited",
         "commits", "seconds", "MB", "rel. gap", "progressive", "accuracy"],
        fits,
    )  # fmt: skip


if __name__ == "__main__":
    main()
