"""Training on a Dask cluster over a network of limited speed, against the model of cost.

The hosts are network namespaces of this machine, joined by a bridge, and `tc` limits what each sends and
receives (Linux, root, and iproute2 are needed). What a pass takes longer than without a limit is compared
with what `parallel_model.cost` says of moving weights.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import print_table
from parallel import Way
from parallel_model import Cluster, Costs, Problem, cost
from streamsvm_converters import convert

_NAME, _NET, _PORT = "ssvm", "10.77.0", 8786
_UNLIMITED = "unlimited"
_PASSES = 3
_TO_BITS = {"mbit": 1e6, "gbit": 1e9}


def run(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, capture_output=True, text=True)


@contextlib.contextmanager
def hosts(number: int, rate: str) -> Iterator[list[str]]:
    """Names of network namespaces that reach each other at a rate; the addresses end with 1, 2, ..."""
    names = [f"{_NAME}{i}" for i in range(number)]
    bridge = f"{_NAME}br"
    try:
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "up")
        for i, name in enumerate(names):
            outer, inner = f"{_NAME}o{i}", f"{_NAME}i{i}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
            run("ip", "link", "set", inner, "netns", name)
            run("ip", "link", "set", outer, "master", bridge)
            run("ip", "link", "set", outer, "up")
            within = ("ip", "netns", "exec", name)
            run(*within, "ip", "addr", "add", f"{_NET}.{i + 1}/24", "dev", inner)
            run(*within, "ip", "link", "set", inner, "up")
            run(*within, "ip", "link", "set", "lo", "up")
            if rate != _UNLIMITED:
                shape = ("root", "tbf", "rate", rate, "burst", "1mb", "latency", "100ms")
                run("tc", "qdisc", "add", "dev", outer, *shape)
                run(*within, "tc", "qdisc", "add", "dev", inner, *shape)
        yield names
    finally:
        for name in names:
            run("ip", "netns", "del", name, check=False)
        run("ip", "link", "del", bridge, check=False)


@contextlib.contextmanager
def dask(names: list[str]) -> Iterator[str]:
    """The address of a scheduler on the first host, with a worker on each other one."""
    address, quiet = f"tcp://{_NET}.1:{_PORT}", subprocess.DEVNULL
    commands = [["scheduler", "--host", f"{_NET}.1", "--port", str(_PORT), "--no-dashboard"]]
    commands += [
        [
            "worker",
            address,
            "--host",
            f"{_NET}.{i + 1}",
            "--nthreads",
            "1",
            "--no-dashboard",
            "--memory-limit",
            "0",
        ]
        for i in range(1, len(names))
    ]
    processes = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-m", "dask", *command], stdout=quiet, stderr=quiet
        )
        for name, command in zip(names, commands, strict=True)
    ]
    try:
        yield address
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def fit(store: Path, out: Path, address: str, split: str, splits: int, workers: int) -> None:
    """Train from within a host: the last line that this process prints is the record of the last pass."""
    import streamsvm

    result = streamsvm.fit(
        store, out=out, passes=_PASSES, C=0.1, split=split, splits=splits, cluster=address, workers=workers,
        average=False, inner_passes=0, gap="end", checkpoint_every="1h", memory="4G", progress=False,
    )  # fmt: skip
    print(json.dumps({name: result.history[-1].get(name, 0) for name in ("seconds", "moved_bytes")}))


def make_data(folder: Path, options: argparse.Namespace) -> Path:
    """A store of random rows, few of them: next to no training."""
    rng, last = np.random.default_rng(0), options.features
    with open(folder / "a.txt", "w") as file:
        for i in range(options.rows):
            features = {last} | set((1 + rng.integers(0, last, options.values)).tolist())
            file.write(f"{i % options.classes} " + " ".join(f"{f}:0.5" for f in sorted(features)) + "\n")
    convert(folder / "a.txt", folder / "a.zarr")
    return folder / "a.zarr"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    add = parser.add_argument
    add("--rates", default=f"{_UNLIMITED},1gbit,200mbit", help="of each host, as tc writes them")
    add("--workers", type=int, default=2)
    add("--rows", type=int, default=2000)
    add("--values", type=int, default=50, help="non-zeros of a row")
    add("--features", type=int, default=50_000)
    add("--classes", type=int, default=512)
    add("--inside", nargs=4, metavar=("STORE", "OUT", "ADDRESS", "SPLIT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        store, out, address, split = options.inside
        fit(Path(store), Path(out), address, split, options.workers, options.workers)
        return
    if os.geteuid() != 0 or shutil.which("tc") is None:
        print("skipped: network namespaces need root, and ip and tc of iproute2")
        return
    problem = Problem(options.rows, options.values, options.features, options.classes)
    rows, before = [], {}
    with tempfile.TemporaryDirectory() as name:
        store = make_data(Path(name), options)
        for rate in options.rates.split(","):
            for split in ("classes", "rows"):
                with hosts(1 + options.workers, rate) as names, dask(names) as address:
                    time.sleep(2)  # for the scheduler
                    arguments = [str(store), f"{name}/{rate}-{split}", address, split]
                    command = [
                        "ip",
                        "netns",
                        "exec",
                        names[0],
                        sys.executable,
                        __file__,
                        "--inside",
                        *arguments,
                    ]
                    done = subprocess.run(
                        [*command, "--workers", str(options.workers)], capture_output=True, text=True
                    )
                if done.returncode:
                    sys.exit(done.stderr[-2000:])
                found = json.loads(done.stdout.splitlines()[-1])
                before.setdefault(split, found["seconds"])
                rows.append(
                    [
                        rate,
                        split,
                        found["moved_bytes"] / 1e6,
                        found["seconds"],
                        found["seconds"] - before[split],
                        predicted(problem, Way(split, options.workers), options.workers, rate),
                    ]
                )
    title = (
        f"weights of {problem.weights / 1e6:.0f} MB, {options.workers} workers, the last of {_PASSES} passes"
    )
    print_table(title, ["rate", "split", "moved MB", "seconds", "more than at first", "predicted"], rows)


def predicted(problem: Problem, way: Way, workers: int, rate: str) -> float:
    """Seconds that the model has for a network of this rate, beside those without a limit."""
    if rate == _UNLIMITED:
        return 0.0
    costs = Costs(*[1.0] * 9, bandwidth=1e10, reading=1e9)
    network = float(rate[:-4]) * _TO_BITS[rate[-4:]] / 8
    limited, free = (
        cost(problem, way, costs, Cluster(workers, 1, 4e9, speed, 0.0, 1e9), average=False, blocks=1).moving
        for speed in (network, np.inf)
    )
    return limited - free


if __name__ == "__main__":
    main()
