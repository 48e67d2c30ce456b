"""Training that is split, against one split: gaps, accuracies, and the time that so many cores would take.

All runs are on rows in memory. One worker does all the work, and the processor seconds of each item of each
`Threads.map` are recorded: on S cores a map takes as long as its items, given one after the other to the core
that is free first. What is in no map is serial. So other programs and the number of cores here matter little;
nor does it count that cores share memory: --turns also measures real threads beside one split, in turn.
"""

from __future__ import annotations

import heapq
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple
from unittest import mock

import numpy as np
from common import Data, Out, Sets, choose, print_table, start, write_json
from tasks import Task, fit_task, load_task
from typer import Option

from streamsvm.base.threads import Threads
from streamsvm.kernels.weights import padded_classes
from streamsvm.training.trainer import Trainer

ALL = ",".join(f"{split}:{splits}" for split in ("classes", "rows") for splits in (2, 4, 8, 16))
GAPS = 1e-1, 1e-2
PASSES = 1, 3, 5  # after which accuracies are measured
MOST_COPIES = 4 * 10**9  # bytes of weights that splits by rows may hold beside those of the run


class PassTime(NamedTuple):
    """What the training of a pass took, without its gap."""

    seconds: float
    cpu: float  # of the items, and of the thread that gives them out
    ideal: float  # on as many cores as there are splits
    serial: float  # of these: in no map


class Clock:
    """Times the passes of trainings within `watching`.

    Parameters
    ----------
    cores : int
        That the ideal time is for.
    """

    def __init__(self, cores: int) -> None:
        self.passes: list[PassTime] = []
        self._cores = cores
        self._maps: list[list[float]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        whole_map, whole_pass = Threads.map, Trainer.learn

        def timed_map(threads: Threads, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
            def timed(item: Any) -> tuple[Any, float]:
                begin = time.thread_time()
                return work(item), time.thread_time() - begin

            found = whole_map(threads, timed, items)
            self._maps.append([seconds for _, seconds in found])
            return [result for result, _ in found]

        def timed_pass(trainer: Trainer, *args: Any, **options: Any) -> bool:
            self._maps.clear()
            begin, begin_cpu = time.perf_counter(), time.thread_time()
            finished = whole_pass(trainer, *args, **options)
            seconds, serial = time.perf_counter() - begin, time.thread_time() - begin_cpu
            items = sum(map(sum, self._maps))
            if self._workers(trainer) == 1:  # this thread did the items
                serial -= items
            ideal = sum(makespan(each, self._cores) for each in self._maps)
            self.passes.append(PassTime(seconds, serial + items, serial + ideal, serial))
            return finished

        with (
            mock.patch.object(Threads, "map", timed_map),
            mock.patch.object(Trainer, "learn", timed_pass),
        ):
            yield

    @staticmethod
    def _workers(trainer: Trainer) -> int:
        threads = getattr(trainer.learner.visits, "_workers", None)
        return 1 if threads is None else threads.number


def makespan(items: list[float], cores: int) -> float:
    """When the last of `items` ends, if each goes to the core that is free first."""
    free = [0.0] * cores
    for seconds in items:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


class Way(NamedTuple):
    """How training is split."""

    split: str
    splits: int

    @classmethod
    def parse(cls, text: str) -> Way:
        """ "1", or as in "classes:4"."""
        split, _, splits = text.rpartition(":")
        return cls(split or "auto", int(splits))

    def __str__(self) -> str:
        return "one split" if self.splits == 1 else f"{self.split} S={self.splits}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"split": self.split, "splits": self.splits}

    def why_not(self, task: Task) -> str | None:
        """Why a task cannot be split so, or not on a machine of this size."""
        if self.splits == 1:
            return None
        if self.split == "classes" and task.n_classes < 2 * self.splits:
            return f"{task.n_classes} classes are fewer than {2 * self.splits}"
        copy = task.X.shape[1] * padded_classes(task.n_classes, np.dtype(np.float32)) * 4
        if self.split == "rows" and 2 * self.splits * copy > MOST_COPIES:
            return f"its copies of the weights would take {2 * self.splits * copy / 1e9:.1f} GB"
        return None


class Measured(NamedTuple):
    """What is known of a way on a task."""

    gaps: list[float]  # by pass
    times: list[PassTime]
    last: list[float]  # accuracy after PASSES
    averaged: list[float]
    C: float

    def seconds_to(self, gap: float) -> float | None:
        """Ideal seconds until the gap was at most `gap`; None if it never was."""
        n = self.passes_to(gap)
        return None if n is None else sum(each.ideal for each in self.times[:n])

    def passes_to(self, gap: float) -> int | None:
        return next((n for n, found in enumerate(self.gaps, 1) if found <= gap), None)

    @property
    def a_pass(self) -> PassTime:
        """The median of each time, of the passes from the second on."""
        later = self.times[1:] or self.times
        return PassTime(*(statistics.median(each) for each in zip(*later, strict=True)))


def measure(task: Task, way: Way, passes: int, settings: dict[str, Any]) -> Measured:
    """Train until the smallest of the gaps, and for each number of passes with and without the average."""
    settings = {"workers": 1, **settings, **way.settings}
    events: list[dict[str, Any]] = []
    fit_task(task, passes=1, **settings)  # compiles
    clock = Clock(way.splits)
    with clock.watching():
        fit_task(
            task, passes=passes, gap="pass", tol=min(GAPS), report=events.append, **settings,
        )  # fmt: skip
    history = [event for event in events if event["event"] == "pass"]
    gaps, C = [event["relative_gap"] for event in history], history[-1]["C"]

    def accuracies(*, average: bool) -> list[float]:
        return [task.accuracy(fit_task(task, passes=n, average=average, **settings)[1]) for n in PASSES]

    return Measured(gaps, clock.passes, accuracies(average=False), accuracies(average=True), C)


def race(task: Task, ways: list[Way], turns: int, settings: dict[str, Any]) -> dict[str, float]:
    """Seconds of a pass on two real threads by seconds of one split, which ran just before; medians."""
    ratios: dict[str, list[float]] = {str(way): [] for way in ways}
    for _ in range(turns):
        for way in ways:
            seconds = []
            for each, threads in ((Way("auto", 1), 1), (way, 2)):
                clock = Clock(each.splits)
                with clock.watching():
                    fit_task(task, passes=4, workers=threads, **settings, **each.settings)
                seconds.append(min(found.seconds for found in clock.passes[1:]))
            ratios[str(way)].append(seconds[1] / seconds[0])
    return {name: statistics.median(each) for name, each in ratios.items() if each}


def show(name: str, found: dict[str, Measured], raced: dict[str, float]) -> None:
    """Print the tables of a data set; times are ratios to one split."""
    one = found["one split"]
    rows = []
    for way, each in found.items():
        times = each.a_pass
        speed_ups = [
            None if each.seconds_to(gap) is None or one.seconds_to(gap) is None
            else one.seconds_to(gap) / each.seconds_to(gap)  # type: ignore[operator]
            for gap in GAPS
        ]  # fmt: skip
        rows.append([
            way, times.cpu / one.a_pass.cpu, one.a_pass.cpu / times.ideal, times.serial / times.ideal,
            raced.get(way), *(each.passes_to(gap) for gap in GAPS), *speed_ups,
            *(f"{100 * a:.1f}/{100 * b:.1f}" for a, b in zip(each.last, each.averaged, strict=True)),
        ])  # fmt: skip
    headers = [
        "", "CPU", "speed-up", "serial", "2 threads", *(f"to {gap:g}" for gap in GAPS),
        *(f"speed-up to {gap:g}" for gap in GAPS), *(f"after {passes}" for passes in PASSES),
    ]  # fmt: skip
    title = (
        f"{name}, C={one.C:.3g}: one split takes {1000 * one.a_pass.cpu:.1f} ms a pass.\n"
        "CPU: of a pass, to that of one split; speed-up: of a pass on S cores; serial: share of it;\n"
        "2 threads: seconds of a pass on them, to those of one split; passes to a gap, and speed-up of\n"
        "the way; test accuracy in per cent, last/averaged"
    )
    print_table(title, headers, rows)
    print(f"\n{name}: relative gap by pass")
    for way, each in found.items():
        print(f"  {way:13}", " ".join(f"{gap:.2g}" for gap in each.gaps))


def main(
    data: Data,
    sets: Sets = "letter,sector,mnist,wn1000",
    ways: Annotated[str, Option(metavar="SPLIT:SPLITS,...", help="ways to split")] = ALL,
    C: Annotated[str, Option("--C")] = "auto",
    loss: str = "ww",
    inner_passes: str = "auto",
    passes: Annotated[int, Option(help="at most")] = 30,
    turns: Annotated[int, Option(help="of 2 real threads against one split")] = 0,
    out: Out = None,
) -> None:
    settings: dict[str, Any] = {"loss": loss, "C": C if C == "auto" else float(C)}
    settings["inner_passes"] = inner_passes if inner_passes == "auto" else int(inner_passes)
    results = {}
    for pair in choose(data, sets):
        task, possible = load_task(pair, dtype="float32"), []
        for way in map(Way.parse, ways.split(",")):
            if reason := way.why_not(task):
                print(f"{pair.name}: not {way}: {reason}", flush=True)
            else:
                possible.append(way)
        found = {str(way): measure(task, way, passes, settings) for way in (Way("auto", 1), *possible)}
        raced = race(task, possible, turns, settings)
        show(pair.name, found, raced)
        results[pair.name] = {"ways": {way: each._asdict() for way, each in found.items()}, "raced": raced}
        write_json(out, {"passes": PASSES, "sets": results})


if __name__ == "__main__":
    start(main, __doc__)
