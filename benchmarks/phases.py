"""Where the seconds of a whole `fit` go: import, load, read, train, score, commit, save.

Fresh processes train on each store with the defaults and --passes 3, alternating with those of another
interpreter if one is given, whose streamsvm may be another version. Medians are printed. Kernels are compiled
by a first run that does not count.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

PHASES = ("import", "load", "read", "train", "score", "commit", "save", "other", "all")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--other", type=Path, help="a Python with another version of streamsvm")
    options = parser.parse_args()
    ways = {"this": Path(sys.executable)} | ({"other": options.other} if options.other else {})
    print("| store | | " + " | ".join(PHASES) + " |")
    print("|---|---|" + "--:|" * len(PHASES))
    for store in options.stores:
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for turn in range(options.turns + 1):
            for way, python in ways.items():
                found = run(python, store)
                if turn:
                    runs[way].append(found)
        for way, all_found in runs.items():
            medians = [statistics.median(found[phase] for found in all_found) for phase in PHASES]
            print(f"| {store.stem} | {way} | " + " | ".join(f"{seconds:.2f}" for seconds in medians) + " |")
        if options.other:
            ratios = [b["all"] / a["all"] for a, b in zip(runs["this"], runs["other"], strict=True)]
            print(f"| {store.stem} | other / this, pair by pair | " + " | " * (len(PHASES) - 1), end="")
            print(
                f"{min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f} |",
                flush=True,
            )


def run(python: Path, store: Path) -> dict[str, float]:
    """Train once in a new process; the seconds of each phase, and of all from its start to its end."""
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        begin = time.monotonic()
        words = [python, Path(__file__).resolve(), "--child", store, Path(folder) / "run", str(begin)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        seconds = time.monotonic() - begin
    found = json.loads(done.stdout)
    return {**found, "all": seconds, "other": seconds - sum(found.values())}


def child(store: str, out: str, begun: float) -> None:
    from streamsvm import fit
    from streamsvm.run.files import RunFiles
    from streamsvm.training import fit_store
    from streamsvm.training.learner import Learner
    from streamsvm.training.passes import Fit

    phases: Counter[str] = Counter({"import": time.monotonic() - begun})

    def timed(phase: str, owner: Any, name: str) -> None:
        called: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            begin = time.monotonic()
            try:
                return called(*args, **named)
            finally:
                phases[phase] += time.monotonic() - begin

        setattr(owner, name, call)

    timed("read", fit_store, "open_to_train")
    timed("load", Learner, "compile")
    timed("score", Fit, "_score")
    timed("commit", RunFiles, "commit")
    timed("save", RunFiles, "save_model")
    result = fit(store, out=out, passes=3, checkpoint_every="1h")
    waited = sum(record["waited_seconds"] for record in result.history)
    phases["read"] += waited
    phases["train"] = result.seconds - waited
    print(json.dumps(phases))
    shutil.rmtree(out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        main()
