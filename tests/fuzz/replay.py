"""Run files through a target, in this process: `python tests/fuzz/replay.py TARGET FILE...`.

Ends with status 1 and the trace of the first file that breaks the target, takes 20 seconds, or more
memory than hostile bytes may ask for.
"""

from __future__ import annotations

import faulthandler
import importlib
import resource
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

MOST_SECONDS = 20
MOST_MEMORY = 2**28  # that a file may add to the largest memory seen


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def replay(name: str, inputs: list[tuple[str, bytes]]) -> None:
    target = importlib.import_module(f"fuzz.targets.{name}")
    for seed in target.seeds():  # loads what is loaded once, before memory is watched
        target.run(seed)
    for what, data in inputs:
        before = peak()
        signal.alarm(MOST_SECONDS)
        try:
            target.run(data)
        except Exception as error:
            raise AssertionError(f"{name}: {what} breaks it") from error
        signal.alarm(0)
        assert peak() - before < MOST_MEMORY, f"{name}: {what} takes {peak() - before} bytes"


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)
    replay(sys.argv[1], [(path, Path(path).read_bytes()) for path in sys.argv[2:]])
