"""Convert, fit and evaluate data far larger than a hard limit on memory (see README.md)."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from common import bytes_option, print_table, start, write_json
from generate import VALUE_BYTES
from measured import Failed, Group, drop_caches, run, size_of
from typer import Argument, Option

GENERATE = (sys.executable, Path(__file__).resolve().parent / "generate.py")
STREAMSVM = (sys.executable, "-m", "streamsvm_cli.main")
MB, GB = 10**6, 10**9
TEXT = 1.84  # bytes of text for one of the decoded store, at most
SPOOL = 1.05  # of the decoded store; it shrinks as the compressed one grows
STORE = 0.75  # of the decoded store, compressed
FULLEST = 0.85  # of the disk


class Options(NamedTuple):
    """What results depend on, but for the size."""

    direct: bool
    limit: int | None
    memory: int
    passes: int
    C: float
    gap: str
    checkpoint_every: str
    test_rows: int
    data: str


def main(
    sizes: Annotated[list[float], Argument(metavar="GB...", help="of the decoded store, 8 bytes a non-zero")],
    folder: Annotated[Path, Option(help="for data and runs; made if need be")] = Path("scale"),
    direct: Annotated[bool, Option("--direct", help="generate stores, not text to convert")] = False,
    limit: Annotated[int, bytes_option("hard limit on memory, of each command")] = GB,
    no_limit: Annotated[bool, Option("--no-limit", help="--memory alone bounds the commands")] = False,
    memory: Annotated[int, bytes_option("of convert and fit")] = 2 * GB // 5,
    passes: int = 2,
    C: Annotated[float, Option("--C")] = 1.0,
    gap: str = "end",
    checkpoint_every: str = "30s",
    test_rows: int = 100_000,
    data: Annotated[str, Option(help="options of generate.py, as one word")] = "",
    keep: Annotated[bool, Option("--keep", help="keep text, store and run of each size")] = False,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    limited = None if no_limit else limit
    if limited:
        try:
            Group(limited).close()
        except OSError as error:
            sys.exit(f"{error}; or give --no-limit")
    options = Options(direct, limited, memory, passes, C, gap, checkpoint_every, test_rows, data)
    out, asked = folder / "results.json", options._asdict()
    results = json.loads(out.read_text()) if out.exists() else {"options": asked, "sizes": {}}
    if results["options"] != asked:
        sys.exit(f"{out} holds results of other options: {results['options']}; give another --folder")
    results.pop("environment", None)
    try:
        for size in sizes:
            if f"{size:g}" not in results["sizes"]:
                results["sizes"][f"{size:g}"] = measure(size, options, folder.resolve(), keep=keep)
                write_json(out, results)
    except Failed as error:
        sys.exit(str(error))
    finally:
        show(results)


def measure(size: float, options: Options, folder: Path, *, keep: bool) -> dict[str, Any]:
    """All phases of one size, in GB of the decoded store: the cost of each, and what it reported."""
    work = folder / f"{size:g}"
    shutil.rmtree(work, ignore_errors=True)  # what a broken run left
    check_disk(folder, int(size * GB), options.direct)
    work.mkdir()
    data, phases = shlex.split(options.data), {}

    def phase(name: str, *words: object) -> dict[str, Any]:
        drop_caches(work)
        print(f"{size:g} GB: {name} ...", file=sys.stderr, flush=True)
        cost = run(words, cwd=work, limit=options.limit)
        phases[name] = cost._asdict()
        phases[name]["output"] = json.loads(cost.output) if cost.output.startswith("{") else None
        return phases[name]

    words = *GENERATE, *data, "--part", "test", "--rows", options.test_rows, "--out", "test.zarr"
    run(words, cwd=work)
    amount = "--size", int(size * GB)
    if options.direct:
        phase("generate", *GENERATE, *data, *amount, "--out", "train.zarr")
    else:
        generated = phase("generate", *GENERATE, *data, *amount, "--out", "text")
        generated["text_bytes"] = size_of(work / "text")
        phase(
            "convert", *STREAMSVM, "convert", "text", "--out", "train.zarr", "--like", "test.zarr",
            "--memory", options.memory, "--json",
        )  # fmt: skip
        if not keep:
            (work / "text").unlink()
    fit = phase(
        "fit", *STREAMSVM, "fit", "train.zarr", "--out", "run", "--passes", options.passes, "--C", options.C,
        "--transform", "none", "--gap", options.gap, "--checkpoint-every", options.checkpoint_every,
        "--memory", options.memory, "--json",
    )  # fmt: skip
    words = "fit", "train.zarr", "--passes", options.passes, "--memory", options.memory, "--transform", "none"
    planned = json.loads(run((*STREAMSVM, *words, "--dry-run", "--json"), cwd=work).output)
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
    if not keep:
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
            phases.append([
                size, name, f"{cost['seconds']:.1f}", f"{handled / MB / (seconds or cost['seconds']):.1f}",
                f"{cost['user_seconds']:.1f}", f"{cost['system_seconds']:.1f}",
                *(None if cost[key] is None else round(cost[key] / MB) for key in keys),
            ])  # fmt: skip
        commits = output["checkpoints"]
        fits.append([
            size, result["rows"], result["nnz"],
            *(round(result[key] / MB) for key in ("store_bytes", "weights_bytes", "duals_bytes")),
            " + ".join(f"{record['seconds']:.0f}" for record in output["history"]),
            f"{output['waited_fraction']:.0%}", commits, f"{output['checkpoint_seconds']:.1f}",
            round(output["checkpoint_bytes"] / MB), output["relative_gap"],
            output["progressive_accuracy"], result["phases"]["evaluate"]["output"]["accuracy"],
        ])  # fmt: skip
    print_table(
        f"Phases, each with {limit}, --memory {options['memory'] / MB:.0f} MB. MB/s: of the decoded store, 8 "
        "bytes a non-zero; of fit in training. Peak: with the pages of files. MB read and written: of disk",
        ["GB", "phase", "seconds", "MB/s", "user s", "system s", "peak MB", "private MB", "MB read",
         "MB written"],
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
    start(main, __doc__)
