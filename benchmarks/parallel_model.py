"""What training that is split costs on many cores and machines: a model, and how far it can be trusted.

The constants of the processor are measured first, those of the network are given. A pass over n rows of z
non-zeros, d features and k classes (L = k/16 lines of 64 bytes a feature) costs

one split   n (row + z value + z L line), and reading n z values; inner passes cost half as much again
classes     2S - 1 rounds, in each of which one of S pairs visits a row: per core (2S - 1)/S n visits
            over the 2 ceil(k/2S/16) lines of a pair, n (a + b S) serial to file the duals.
            Groups move to their neighbour on each day, so that a machine sends two and receives two: about
            2 w for each block of rows, whatever S is. Each worker process reads and holds all blocks: one
            process a machine, whose threads share them
apart       likewise with a process for each core, so that blocks are smaller and come more often
filed       what is not built: stores whose rows are filed by the groups of their classes. Then the days of
            all rows come one after the other, and a machine reads the rows of two groups on each: about 2 w
            and twice all rows a pass
rows        per core n/S visits; each round copies, subtracts and adds up weights of the rows' features (10
            times their bytes) and adds up the machines' sums as a tree, there and back

and `predict` multiplies by the passes to an accuracy or a gap that `parallel.py --out` measured.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from common import print_table, write_json
from generate import Distribution, Generator
from parallel import Clock, PassTime, Way
from tasks import Task, fit_task

from streamsvm import open_store
from streamsvm.kernels.sum_rows import add_rows, copy_rows

_LINE = 64  # bytes
_LANES = 16  # float32 values in it
_TOUCHED = 10  # times that a round of splits by rows reads or writes each weight: copy, subtract, add
_ROUNDS = 2  # of each block of rows
_INNER = 1.5  # visits and inner passes, to visits alone, where rows are read
_VALUE = 8  # bytes of a non-zero in memory
_TASK = 1.4e-3  # seconds of a task in Dask, with two workers on two cores that do next to nothing
_TASKS = 4  # of a pair of groups that meet, about


class Problem(NamedTuple):
    """Sizes of data: rows, non-zeros of each, features and classes."""

    n: float
    z: float
    d: float
    k: float

    @property
    def weights(self) -> float:
        """Bytes."""
        return self.d * _LANES * lines(self.k) * 4


class Costs(NamedTuple):
    """Constants of a processor: nanoseconds, but for the last two."""

    row: float  # of a visit
    value: float  # of a non-zero in a visit
    line: float  # of a line of one, scored and perhaps updated, of weights in a core's own cache,
    shared_line: float  # in the shared one,
    far_line: float  # and in memory
    day: float  # of a visit in a pair of groups of classes, beside
    filing: float  # of a row and split: serial
    filing_row: float
    appending: float  # of a row to the duals of splits by rows: serial
    bandwidth: float  # bytes a second at which one core copies, subtracts and adds rows of the weights
    reading: float  # bytes a second of rows from a store, by one core


class Cluster(NamedTuple):
    """Machines with so many cores each, and their memory and network in bytes."""

    machines: int
    cores: int
    memory: float
    network: float  # bytes a second, of each machine
    latency: float  # seconds
    storage: float  # bytes a second of rows, that each machine gets from the common storage


class Cost(NamedTuple):
    """Seconds of a pass, and bytes."""

    compute: float
    serial: float
    moving: float  # weights within memory or between machines
    waiting: float  # for the network's latency
    reading: float
    memory: float  # of a machine: weights, their average, and rows

    @property
    def seconds(self) -> float:
        """Of all, with rows read meanwhile."""
        return max(self.compute + self.serial + self.moving + self.waiting, self.reading)


def lines(k: float) -> float:
    return float(math.ceil(k / _LANES))


def visits(problem: Problem, number: float, width: float, costs: Costs, resident: float) -> float:
    """Seconds of a number of visits over `width` lines, of weights of so many bytes."""
    sizes = np.log([2**21, _SHARED.weights, _FAR.weights])
    line = float(np.interp(math.log(resident), sizes, [costs.line, costs.shared_line, costs.far_line]))
    return number * (costs.row + problem.z * (costs.value + width * line)) * 1e-9


def cost(
    problem: Problem,
    way: Way,
    costs: Costs,
    cluster: Cluster,
    *,
    inner: float = _INNER,
    average: bool = True,
    in_memory: bool = False,
    blocks: float | None = None,
    filed: bool = False,
    apart: bool = False,
) -> Cost:
    """A pass of training.

    Parameters
    ----------
    problem : Problem
    way : Way
        With as many splits as there are cores at work, or fewer.
    costs : Costs
    cluster : Cluster
    inner : float
        What inner passes make of visits.
    average : bool
        Whether the average is kept, too.
    in_memory : bool
        Whether the rows are in memory before.
    blocks : float, optional
        That the rows come in; by default as many as fit: of splits by classes two into what the weights leave
        of a machine's memory for each worker, of splits by rows eight into that of all machines.
    filed : bool
        Whether machines read the rows of the groups that they have, and no others.
    apart : bool
        Whether each core at work has a process of its own, with blocks of its own.
    """
    n, z = problem.n, problem.z
    splits, machines = way.splits, min(cluster.machines, way.splits)
    data, copies = n * z * _VALUE, 1 + average
    speed = min(cluster.storage, cluster.cores * costs.reading)
    if splits == 1:
        seconds = visits(problem, n, lines(problem.k), costs, problem.weights) * inner
        read = 0.0 if in_memory else data / speed
        return Cost(seconds, 0.0, 0.0, 0.0, read, copies * problem.weights)
    if way.split == "classes":
        days, width = 2 * splits - 1, 2 * lines(problem.k / 2 / splits)
        weights = problem.d * width * splits * _LINE
        each = visits(problem, n * days / splits, width, costs, weights / splits) * inner
        each += n * days / splits * costs.day * 1e-9
        # Machines file the duals of their own groups; one machine does it in one thread.
        serial = n / machines * (costs.filing_row + splits * costs.filing) * 1e-9
        moving = waiting = 0.0
        read = data / speed
        held = copies * weights / machines
        if machines > 1 and not filed:
            processes = splits / machines if apart else 1.0
            left = max(cluster.memory - held, 1.0) / (2 * processes)
            blocks = max(1.0, data / left) if blocks is None else blocks
            moving = blocks * 2 * copies * weights / cluster.network
            waiting = blocks * days * max(2 * cluster.latency, splits * _TASKS * _TASK)
            each += data / costs.reading * processes / (splits / machines)  # each decompresses all rows
            held += 2 * processes * data / blocks
        elif machines > 1:
            moving = 2 * copies * weights / cluster.network
            waiting = days * max(2 * cluster.latency, splits * _TASKS * _TASK)
            fits = held + data / machines < cluster.memory
            read = (2 * data if fits else days / machines * data) / speed
            held += data / machines if fits else 0.0
        return Cost(each, serial, moving, waiting, 0.0 if in_memory else read, held)
    local = splits / machines
    blocks = max(1.0, 8 * data / machines / cluster.memory) if blocks is None else blocks
    touched = min(problem.d, n * z / splits / blocks) * lines(problem.k) * _LINE
    compute = visits(problem, n / splits, lines(problem.k), costs, problem.weights) * inner
    serial = n / machines * costs.appending * 1e-9
    rounds = _ROUNDS * blocks
    moving = rounds * _TOUCHED * copies * touched / costs.bandwidth
    steps = 2 * math.ceil(math.log2(machines)) if machines > 1 else 0
    union = min(problem.weights, local * touched)
    moving += rounds * steps * copies * union / cluster.network
    read = 0.0 if in_memory else data / machines / speed
    held = copies * (1 + local) * problem.weights
    return Cost(compute, serial, moving, rounds * steps * cluster.latency, read, held)


# -- constants ----------------------------------------------------------------------------------------


def generated(problem: Problem, seed: int = 0) -> Task:
    """Rows of norm 1 with random features, half of which belong to the row's class."""
    n, z, d, k = (int(each) for each in problem)
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    own = rng.integers(d, size=(k, 4 * z))
    indices = rng.integers(d, size=(n, z))
    indices[:, : z // 2] = own[y[:, None], rng.integers(4 * z, size=(n, z // 2))]
    values = rng.random((n, z), dtype=np.float32) + 0.5
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    X = sp.csr_matrix((values.ravel(), indices.ravel(), np.arange(n + 1) * z), (n, d))
    X.sum_duplicates()
    return Task(X, y, X[:1], y[:1], k, 1.0)


def time_pass(task: Task, way: Way, *, workers: int = 1, delay: float = 0.0) -> PassTime:
    """The least times of late passes, without inner passes."""
    clock = Clock(way.splits, (lambda n: time.sleep(delay)) if delay else None)
    with clock.watching():
        fit_task(task, passes=4, workers=workers, loss="ww", **way.settings)
    return PassTime(*(min(each) for each in zip(*clock.passes[1:], strict=True)))


_FITTED = [Problem(6000, z, 2000, k) for z, k in ((10, 10), (100, 10), (10, 128), (100, 128), (40, 256))]
_SHARED = Problem(4000, 50, 20_000, 1000)  # 80 MB of weights
_FAR = Problem(4000, 50, 300_000, 1000)  # 1.2 GB


def calibrate() -> Costs:
    """Measure the constants."""
    one = Way("auto", 1)
    time_pass(generated(Problem(500, 10, 100, 20)), one)  # compiles
    seconds = np.array([time_pass(generated(each), one).cpu / each.n for each in _FITTED])
    design = np.array([[1.0, each.z, each.z * lines(each.k)] for each in _FITTED])
    row, value, line = _positive(design / seconds[:, None], np.ones(len(seconds)))
    slower = []
    for each in (_SHARED, _FAR):
        found = time_pass(generated(each), one).cpu / each.n - row - each.z * value
        slower.append(max(line, found / each.z / lines(each.k)))
    problem, days, serial, splits = Problem(12_000, 30, 2000, 256), [], [], (2, 4, 8)
    task = generated(problem)
    time_pass(task, Way("classes", 2))
    for number in splits:
        timed, width = time_pass(task, Way("classes", number)), 2 * lines(problem.k / 2 / number)
        visit = (timed.cpu - timed.serial) / problem.n / (2 * number - 1)
        days.append(max(0.0, visit - row - problem.z * (value + width * line)))
        serial.append(timed.serial / problem.n)
    filing_row, filing = _positive(np.array([[1.0, number] for number in splits]), np.array(serial))
    appending = time_pass(task, Way("rows", 4)).serial / problem.n
    constants = row, value, line, *slower, float(np.mean(days)), filing, filing_row, appending
    return Costs(
        *(1e9 * each for each in constants),
        _bandwidth(),
        _reading(),
    )


def _positive(design: np.ndarray, target: np.ndarray) -> list[float]:
    from scipy.optimize import nnls

    return [float(each) for each in nnls(design, target)[0]]


def _bandwidth() -> float:
    """Bytes a second at which one core reads and writes rows of the weights, half of them."""
    shared, own = np.ones((2, 100_000, 256), np.float32)
    features, best = np.arange(0, 100_000, 2), np.inf
    for _ in range(10):
        begin = time.thread_time()
        copy_rows(features, shared, own)
        add_rows(features, shared, -1.0, own)
        add_rows(features, own, 1.0, shared)
        best = min(best, time.thread_time() - begin)
    return 8 * len(features) * shared.shape[1] * 4 / best  # copied: 2, subtracted: 3, added: 3


def _reading() -> float:
    """Bytes a second of rows that one core reads from a store."""
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        path, best = Path(folder) / "rows.zarr", np.inf
        Generator(Distribution(classes=20, features=50_000), "train").write_store(path, 100_000)
        for _ in range(3):
            begin = time.process_time()
            with open_store(path) as store:
                nnz = sum(
                    len(store.rows(at, min(at + 20_000, store.n_rows)).data)
                    for at in range(0, store.n_rows, 20_000)
                )
            best = min(best, time.process_time() - begin)
    return nnz * _VALUE / best


# -- checks and predictions -------------------------------------------------------------------------------

_HERE = Cluster(1, 2, 16e9, 1e10, 0.0, 1e10)
_CHECKED = [
    Problem(20_000, 40, 10_000, 200),
    Problem(10_000, 60, 50_000, 1000),
    Problem(20_000, 150, 800, 10),
]


def check(costs: Costs) -> None:
    """Print predicted and measured milliseconds of a pass, of rows that the constants do not come from."""
    table = []
    for problem in _CHECKED:
        task = generated(problem, seed=1)
        ways = [Way("auto", 1), *(Way(s, n) for s in ("classes", "rows") for n in (2, 4, 8))]
        for way in ways:
            if way.why_not(task) is None:
                found = time_pass(task, way)
                says = cost(
                    problem, way, costs, _HERE, inner=1.0, average=False, in_memory=True, blocks=1
                ).seconds
                table.append(
                    [f"n={problem.n:,} z={problem.z} d={problem.d:,} k={problem.k:,}", str(way), 1000 * says,
                     1000 * found.ideal, says / found.ideal]
                )  # fmt: skip
    print_table(
        "A pass on S cores, in ms: of the model, and of items timed one by one",
        ["", "", "predicted", "measured", "ratio"], table,
    )  # fmt: skip


def check_delays(delay: float) -> None:
    """Print what a delay before each item of a map does to S threads, which wait for it side by side."""
    table, task = [], generated(Problem(10_000, 40, 10_000, 200), seed=2)
    for way in (Way("classes", 4), Way("classes", 8), Way("rows", 4), Way("rows", 8)):
        plain = time_pass(task, way, workers=way.splits)
        slow = time_pass(task, way, workers=way.splits, delay=delay)
        items = 8 if way.split == "rows" else way.splits  # that are added up side by side
        turns = _ROUNDS * (1 + math.ceil(items / way.splits)) + 1 if way.split == "rows" else plain.maps
        says = plain.seconds + turns * delay
        table.append([str(way), 1000 * plain.seconds, turns, 1000 * says, 1000 * slow.seconds,
                      says / slow.seconds])  # fmt: skip
    print_table(
        f"Delays of {1000 * delay:g} ms before each item, S threads on the cores here: ms of a pass",
        ["", "without", "delays in turn", "predicted", "measured", "ratio"], table,
    )  # fmt: skip


_BIG = {
    "web": Problem(1e9, 100, 1e7, 1e4),
    "atlas": Problem(1e8, 1500, 3e4, 500),
}


class Passes(NamedTuple):
    """Passes to an aim by splits, as measured, and beyond that by the slope of their logarithms."""

    splits: list[int]
    passes: list[float]

    def at(self, splits: int) -> float:
        x, y = np.log2(self.splits), np.log2(self.passes)
        slope = np.polyfit(x, y, 1)[0] if len(x) > 1 else 0.0
        inside = float(np.interp(math.log2(splits), x, y))
        return float(2.0 ** (inside + max(0.0, math.log2(splits) - x[-1]) * max(0.0, slope)))


def passes_to(results: dict[str, Any], split: str, aim: str) -> Passes:
    """The geometric mean over data sets of the passes to "gap 0.1", or to the "accuracy" of one split.

    That is within 0.3 points of its averaged weights after one pass.
    """
    logs: dict[int, list[float]] = {}
    for each in results["sets"].values():
        one = each["ways"]["one split"]
        for name, found in each["ways"].items():
            if name != "one split" and not name.startswith(split):
                continue
            splits = 1 if name == "one split" else int(name.rpartition("=")[2])
            if aim == "accuracy":
                best = (max(pair) for pair in zip(found["last"], found["averaged"], strict=True))
                wanted = one["averaged"][0] - 0.003
                n = next((p for p, a in zip(results["passes"], best, strict=True) if a >= wanted), None)
            else:
                n = next((p for p, gap in enumerate(found["gaps"], 1) if gap <= 0.1), None)
            if n is None:  # a lower bound
                n = len(found["gaps"]) if aim != "accuracy" else 2 * results["passes"][-1]
            logs.setdefault(splits, []).append(math.log(n))
    splits_seen = sorted(logs)
    return Passes(splits_seen, [math.exp(float(np.mean(logs[s]))) for s in splits_seen])


def predict(costs: Costs, results: dict[str, Any] | None, options: argparse.Namespace) -> None:
    """Print the best number of splits of either kind on some clusters, and what it is bound by."""
    network = options.network * 1e9 / 8
    clusters = [
        Cluster(machines, 16, options.memory * 1e9, network, options.latency / 1000, options.storage * 1e9)
        for machines in (1, 8, 64)
    ]
    for aim in ("gap 0.1", "accuracy") if results else ("a pass",):
        table = []
        for name, problem in _BIG.items():
            for cluster in clusters:
                for split in ("one", "classes", "classes, apart", "classes, filed", "rows"):
                    table.append(_best(name, problem, cluster, split, aim, costs, results))
        print_table(
            f"Seconds of a pass, and hours to {aim}, with the best number of splits for it",
            ["", "machines of 16 cores", "split", "S", "compute", "serial", "moving", "waiting", "reading",
             "GB a machine", "passes", "hours"], table,
        )  # fmt: skip


def _best(
    name: str,
    problem: Problem,
    cluster: Cluster,
    split: str,
    aim: str,
    costs: Costs,
    results: dict[str, Any] | None,
) -> list[Any]:
    cores = cluster.machines * cluster.cores
    kind, _, how = split.partition(", ")
    most = min(512, cores if kind == "rows" else problem.k // 4 if kind == "classes" else 1, cores)
    best: tuple[float, int, Cost, float] | None = None
    splits = 1 if split == "one" else 2
    while splits <= most:
        found = cost(problem, Way(kind, splits), costs, cluster, filed=how == "filed", apart=how == "apart")
        passes = passes_to(results, kind, aim).at(splits) if results else 1.0
        hours = passes * found.seconds / 3600
        if best is None or hours < best[0]:
            best = hours, splits, found, passes
        splits *= 2
    assert best is not None
    hours, splits, found, passes = best
    fits = found.memory <= cluster.memory
    return [
        name, cluster.machines, split, splits, *map(float, found[:-1]), found.memory / 1e9, passes,
        hours if fits else f"({hours:.1f}: too large)",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--epochs",
        metavar="FILE",
        nargs="+",
        help="results of parallel.py: passes to a gap and an accuracy",
    )
    add("--network", type=float, default=10.0, help="Gbit/s of a machine")
    add("--latency", type=float, default=0.1, help="ms of a message")
    add("--storage", type=float, default=1.0, help="GB/s that each machine reads from the common storage")
    add("--memory", type=float, default=256.0, help="GB of a machine")
    add("--delay", type=float, default=5.0, help="ms, of the check with simulated workers")
    add("--costs", metavar="FILE", help="constants of an earlier --out, instead of measuring them")
    add("--out", metavar="FILE", help="write the constants as JSON, too")
    options = parser.parse_args()
    costs = Costs(**json.loads(Path(options.costs).read_text())["costs"]) if options.costs else calibrate()
    write_json(options.out, {"costs": costs._asdict()})
    print_table("Constants: ns, and bytes a second", list(costs._fields), [list(costs)])
    check(costs)
    check_delays(options.delay / 1000)
    results: dict[str, Any] | None = None
    for file in options.epochs or ():
        read = json.loads(Path(file).read_text())
        results = results or {"sets": {}, "passes": read["passes"]}
        results["sets"] |= read["sets"]
    predict(costs, results, options)


if __name__ == "__main__":
    main()
