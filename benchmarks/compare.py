"""Time and accuracy on data sets: kernels, the published algorithm, other trainers (see README.md)."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Annotated, Any, NamedTuple

from common import Data, Out, Pair, Sets, choose, print_table, start, write_json
from others import OTHERS, Outcome
from tasks import History, Stores, Task, passes_to, total, usual_C, watch
from typer import Option
from visits import time_visits

from streamsvm import evaluate, fit, load_model

TARGETS = (0.01, 0.001)
FINE = 1e-4  # what float32 is to reach, too
PUBLISHED = {"solver": "sorted", "dtype": "float64", "inner_passes": 0, "average": False}
DEFAULT = {"inner_passes": "auto", "average": False}  # averages have a line of their own


class Options(NamedTuple):
    repeat: int
    max_passes: int
    C: float | None
    precision: bool


def main(
    data: Data,
    sets: Sets = "",
    repeat: Annotated[int, Option(help="runs in turn, of which medians")] = 3,
    max_passes: Annotated[int, Option(help="cap of the long runs")] = 300,
    C: Annotated[float | None, Option("--C", help="by default as README.md says")] = None,
    precision: Annotated[bool, Option("--precision", help="also float32 and float64, to 1e-4")] = False,
    out: Out = None,
) -> None:
    results, options = {}, Options(repeat, max_passes, C, precision)
    for pair in choose(data, sets):
        with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
            results[pair.name] = Comparison(pair, Path(folder), options).run()
    write_json(out, {"sets": results, "means": print_means(results)})


class Comparison:
    """All measurements on one data set; whatever is ours trains in one thread."""

    def __init__(self, pair: Pair, folder: Path, options: Options) -> None:
        self.options, self.out = options, folder / "run"
        self.stores = stores = Stores.create(pair, folder)
        self.train, self.test = stores.train, stores.test
        self.C: float = options.C or usual_C(pair, stores.n_classes)
        self.facts = {
            "rows": stores.rows.n_rows,
            "test rows": stores.test_rows.n_rows,
            "features": stores.n_features,
            "classes": stores.n_classes,
            "non-zeros": len(stores.rows.data),
            "C": self.C,
        }
        print(f"\n{pair.name}: " + ", ".join(f"{value:,} {name}" for name, value in self.facts.items()))

    def run(self) -> dict[str, Any]:
        """Measure and print, one table after another."""
        kernel = self.kernel()
        # Compiles everything; the published configuration's first gap is the common yardstick.
        self.common = self.fit(passes=1, **PUBLISHED)[0]["gap"]
        few = {
            f"inner passes {inner}": self.fit(
                passes=3, inner_passes=inner, average=True, valid=self.test, gap="none"
            )
            for inner in ("auto", 0)
        }
        runs = [self.long_runs(default_first=bool(i % 2)) for i in range(self.options.repeat)]
        return {
            **self.facts,
            "kernel": kernel,
            "convergence": self.convergence(runs),
            "accuracy": self.accuracy(runs[0], few),
            "precision": self.precision() if self.options.precision else None,
            "trainers": self.trainers(len(runs[0]["default"])),
        }

    def fit(self, *, to: float | None = None, **settings: Any) -> History:
        """Train, if `to` is given until the gap is so much of the first gaps; return the passes' reports."""
        train = partial(
            fit, self.train, out=self.out, force=True, checkpoint_every="1h", C=self.C, transform="none"
        )

        def reached(history: History) -> bool:
            return to is not None and history[-1]["gap"] <= to * min(history[0]["gap"], self.common)

        return watch(partial(train, **{"gap": "pass", **settings}), until=reached)

    def long_runs(self, *, default_first: bool) -> dict[str, History]:
        """Both configurations, one right after the other, down to the last target."""
        kinds = {"published": PUBLISHED, "default": DEFAULT}
        histories = {}
        for name in reversed(kinds) if default_first else kinds:
            settings = kinds[name] | {"passes": self.options.max_passes, "valid": self.test}
            histories[name] = self.fit(to=TARGETS[-1], **settings)
        return {name: histories[name] for name in kinds}

    def kernel(self) -> dict[str, float]:
        times = time_visits(self.stores.rows, self.stores.n_features, self.stores.n_classes, self.C)
        print_table(
            "kernel alone, float32, rows in memory: a full pass against scoring each row (medians)",
            ["", "full pass, ms", "bare scores, ms", "ratio"],
            [["", 1e3 * times.full, 1e3 * times.bare, times.ratio]],
        )
        return times._asdict()

    def convergence(self, runs: list[dict[str, History]]) -> list[dict[str, Any]]:
        """Passes and training seconds to each target, and the speed-up: medians over the paired runs."""
        table = []
        for base, target in itertools.product(("own", "common"), TARGETS):
            row: dict[str, Any] = {"base": base, "target": target}
            for name, history in runs[0].items():
                first = history[0]["gap"] if base == "own" else self.common
                row[f"{name}_passes"] = passes = passes_to(history, target * first)
                row[f"{name}_seconds"] = median(total(run[name][:passes]) for run in runs) if passes else None
            p, d = row["published_passes"], row["default_passes"]
            for what, less in (("speed_up", None), ("net_speed_up", "waited_seconds")):
                ratios = [total(r["published"][:p], less) / total(r["default"][:d], less) for r in runs]
                row[what] = median(ratios) if p and d else None
            table.append(row)
        print_table(
            f"training to a gap of 0.01 and 0.001 of the first; medians of {len(runs)} paired runs\n"
            "  own: of the same configuration's gap after pass 1; common: of the published one's\n"
            f"  net: without waiting for the store; a dash: not within {self.options.max_passes} passes",
            ["target", "published: passes", "seconds", "default: passes", "seconds", "speed-up", "net"],
            [[f"{base} {target}", *cells] for base, target, *cells in (row.values() for row in table)],
        )
        return table

    def accuracy(self, long: dict[str, History], few: dict[str, History]) -> dict[str, list[float | None]]:
        """Of the test rows, after passes 1, 2 and 3, and at the end of the long runs."""
        table: dict[str, list[float | None]] = {}
        for name, history in few.items():
            for kind, key in (("last", "last_iterate_valid_accuracy"), ("averaged", "valid_accuracy")):
                table[f"{name}, {kind}"] = [*(record[key] for record in history), None]
        for name, history in long.items():
            values = [record["valid_accuracy"] for record in history]
            table[f"long run, {name}"] = [*(values + [None] * 3)[:3], values[-1]]
        print_table(
            f"test accuracy; gaps at the end of the long runs, of the first:\n  {self.ends(long)}",
            ["after pass", "1", "2", "3", "end"],
            [[name, *values] for name, values in table.items()],
        )
        return table

    def ends(self, long: dict[str, History]) -> str:
        """After how many passes the runs ended, and at which gaps."""
        cap = {self.options.max_passes: ", the cap"}
        return "; ".join(
            f"{name} after {len(run)} passes{cap.get(len(run), '')}: {run[-1]['gap_decay']:.1e}"
            for name, run in long.items()
        )

    def precision(self) -> dict[str, dict[str, Any]]:
        """Passes down to a small gap and the test accuracy there, in both dtypes."""
        self.fit(passes=1, dtype="float64", gap="none", **DEFAULT)  # compiles
        long = {
            dtype: self.fit(to=FINE, dtype=dtype, passes=self.options.max_passes, valid=self.test, **DEFAULT)
            for dtype in ("float32", "float64")
        }
        table = {}
        for dtype, history in long.items():
            last = history[-1]
            passes = next((n for n, record in enumerate(history, 1) if record["gap_decay"] <= FINE), None)
            table[dtype] = {
                "passes": passes,
                "seconds": total(history[:passes]) if passes else None,
                "gap": last["gap_decay"],
                "accuracy": last["valid_accuracy"],
            }
        print_table(
            "precision: the default engine, last iterate,"
            f" to a gap of {FINE:g} of the first (at most {self.options.max_passes} passes)",
            ["", "passes", "seconds", "gap at the end", "test accuracy"],
            [[dtype, *row.values()] for dtype, row in table.items()],
        )
        return table

    def trainers(self, long: int) -> dict[str, Any]:
        """Accuracy and time of whole trainings, ours and of others, in turn."""
        task = Task.create(self.stores, self.C)
        jobs: dict[str, Callable[[], Outcome]] = {
            f"streamsvm, passes: {passes}": partial(self.whole_fit, passes) for passes in sorted({1, 3, long})
        }
        jobs |= {name: partial(train, task) for name, train in OTHERS.items()}
        outcomes: dict[str, list[Outcome]] = {}
        for _ in range(self.options.repeat):
            for name, job in list(jobs.items()):
                try:
                    outcomes[name] = [*outcomes.get(name, []), job()]
                except ImportError as error:
                    print(f"  {name} is skipped: {error}")
                    del jobs[name]
        table = {}
        for name, runs in outcomes.items():
            accuracy, *times = zip(*runs, strict=True)
            training, whole = (median(t) if t[0] is not None else None for t in times)
            table[name] = {"accuracy": median(accuracy), "training": training, "whole": whole}
        print_table(
            f"other trainers, rows in memory, one thread; seconds, medians of {self.options.repeat} turns\n"
            "  streamsvm: training with reading its store; the whole call also commits and saves the model",
            ["", "test accuracy", "training", "whole call"],
            [[name, *row.values()] for name, row in table.items()],
        )
        return table

    def whole_fit(self, passes: int) -> Outcome:
        """As a user calls it, with every default but the intercept, which the others do not have."""
        settings = {"passes": passes, "C": self.C, "gap": "none", "transform": "none"}
        begin = time.perf_counter()
        result = fit(self.train, out=self.out, force=True, **settings)
        whole = time.perf_counter() - begin
        accuracy = evaluate(load_model(self.out), [self.stores.test_rows]).accuracy
        return Outcome(accuracy, sum(record["seconds"] for record in result.history), whole)


def print_means(results: dict[str, Any]) -> dict[str, float | None]:
    """Geometric means over the data sets of the kernel's ratio and of the speed-ups."""
    values = {"full pass / bare scores": [result["kernel"]["ratio"] for result in results.values()]}
    for what, title in (("speed_up", "speed-up"), ("net_speed_up", "net speed-up")):
        for row in (row for result in results.values() for row in result["convergence"]):
            found = values.setdefault(f"{title}, {row['base']} {row['target']}", [])
            found += [row[what]] if row[what] else []
    means = {name: geometric_mean(found) if found else None for name, found in values.items()}
    print_table(
        f"geometric means over {len(results)} data sets, or those where both configurations got there",
        ["", "mean", "sets"],
        [[name, mean, len(values[name])] for name, mean in means.items()],
    )
    return means


if __name__ == "__main__":
    start(main, __doc__)
