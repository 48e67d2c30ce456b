"""Apply each fault of faults.toml to a copy of the project, and run tests until one fails.

    python tests/mutants/run.py --work DIR [--only WORD]

The tests of the fault's package run first, then all of the default suite, then the other kinds. DIR keeps
the copy, compiled kernels and results.jsonl, so that a later call goes on with the faults that no test has
caught, and prints the table of all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from streamsvm.kernels import jit

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).with_name("faults.toml")
# Each kind of tests, by pytest's expression of markers; first those of the package, then all of the kind.
STAGES = {
    "default": "not (engine or crash or cluster or more)",
    "engine": "engine and not more",
    "crash": "crash and not more",
    "more": "more or cluster",
}
PATIENCE = 2400  # seconds before a run counts as hung


class Copy:
    """A copy of the project in a folder, which tests import instead of what is installed."""

    def __init__(self, work: Path) -> None:
        self.work, self.root, links = work, work / "copy", work / "packages"
        shutil.rmtree(self.root, ignore_errors=True)
        for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0"):
            if name and (ROOT / name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)  # with its time, by which kernels are cached
        links.mkdir(exist_ok=True)
        for name in ("cli", "converters"):
            if not (links / f"streamsvm_{name}").is_symlink():
                (links / f"streamsvm_{name}").symlink_to(self.root / name)
        self.environment = {**os.environ, "PYTHONPATH": f"{self.root}{os.pathsep}{links}"}

    def first_failure(self, expression: str, tests: list[str], cache: Path) -> str | None:
        """The first test of some that fails, or None."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-m", expression, *tests]
        log = self.work / "log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command, cwd=self.root, env={**self.environment, "NUMBA_CACHE_DIR": str(cache)},
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                return "hangs"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        said = log.read_text()
        if code in (0, 5) or "ERROR: not found" in said:  # none fails, or none is of this kind or name
            return None
        found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
        return found[1] if found else f"exit code {code}"

    def try_fault(self, fault: dict[str, Any], stages: dict[str, str], hint: str | None) -> dict[str, Any]:
        """Apply a fault, run tests until one fails, beginning with `hint`, and take the fault back."""
        path, begun = self.root / fault["file"], time.monotonic()
        text, status = path.read_text(), path.stat()
        if text.count(fault["find"]) != 1:
            return {"name": fault["name"], "stage": "gone", "test": None, "seconds": 0}
        changed = text.replace(fault["find"], fault["put"])
        package = fault["file"].split("/")[0 if fault["file"].startswith("converters") else 1]
        first = [[hint]] if hint is not None else []
        first += [[f"tests/{package}"]] if (self.root / "tests" / package).is_dir() else []
        sources = self.sources()
        try:
            self.write(path, changed)
            cache = self.work / ("numba" if self.sources() == sources else "numba-fault")
            for stage, expression in stages.items():
                for tests in [*first, []]:
                    test = self.first_failure(expression, tests, cache)
                    if test is not None:
                        seconds = round(time.monotonic() - begun)
                        return {"name": fault["name"], "stage": stage, "test": test, "seconds": seconds}
            seconds = round(time.monotonic() - begun)
            return {"name": fault["name"], "stage": "none", "test": None, "seconds": seconds}
        finally:
            self.write(path, text)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            shutil.rmtree(self.work / "numba-fault", ignore_errors=True)

    def sources(self) -> list[str]:
        """Return the digests by which compiled kernels are cached."""
        digest = jit.source_digest.__wrapped__
        return [digest(self.root / "streamsvm"), digest(self.root / "converters")]

    @staticmethod
    def write(path: Path, text: str) -> None:
        """Write a source, and delete its bytecode, of which Python compares only the time and the size."""
        path.write_text(text)
        for each in path.parent.glob(f"__pycache__/{path.stem}.*"):
            each.unlink()


def read(results: Path | None) -> list[dict[str, Any]]:
    if results is None or not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines()]


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--work", type=Path, required=True)
    help = "results of an earlier run; the test that caught a fault there runs first"
    parser.add_argument("--hints", type=Path, help=help)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    help = "kinds of tests in place of all, in order"
    parser.add_argument("--stage", action="append", metavar="NAME=MARKERS", help=help)
    options = parser.parse_args()
    stages = dict(each.split("=", 1) for each in options.stage) if options.stage else STAGES
    options.work.mkdir(parents=True, exist_ok=True)
    results = options.work / "results.jsonl"
    done = [each for each in read(results) if each["test"] is not None]
    hints = {each["name"]: each["test"] for each in read(options.hints)}
    copy = Copy(options.work.resolve())
    if not done:  # a test that fails by itself would seem to catch all
        for expression in stages.values():
            if test := copy.first_failure(expression, [], copy.work / "numba"):
                sys.exit(f"{test} fails without any fault: see {copy.work / 'log'}")
    for fault in tomllib.loads(FAULTS.read_text())["fault"]:
        if options.only in fault["name"] and fault["name"] not in {each["name"] for each in done}:
            done.append(copy.try_fault(fault, stages, hints.get(fault["name"])))
            with results.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            print(done[-1], flush=True)
    for each in done:
        print(f"| {each['name']} | {each['stage']} | {each['test']} | {each['seconds']} s |")
    sys.exit(any(each["test"] is None for each in done))


if __name__ == "__main__":
    main()
