"""Plugin of pytest: `pytest --costs FILE` writes the processor seconds and compiled kernels of each test."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import warm_process
from numba.core.caching import FunctionCache

compiled: list[str] = []  # names of kernels, since the last report of a test


def pytest_addoption(parser: pytest.Parser) -> None:
    help = "print processor seconds and compiled kernels by folder, and write those of each test as JSON"
    parser.addoption("--costs", metavar="FILE", help=help)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--costs"):
        config.pluginmanager.register(Costs(Path(config.getoption("--costs"))))


class Costs:
    """Measures tests in workers, and adds up their reports in the process that started them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests: dict[str, dict[str, Any]] = defaultdict(
            lambda: {"processor": 0.0, "wall": 0.0, "compiled": []}
        )
        self.last = self.now()
        real = FunctionCache.save_overload

        def save_overload(cache: Any, signature: Any, data: Any) -> None:
            compiled.append(f"{cache._name.split()[1]}{signature}")
            real(cache, signature, data)

        FunctionCache.save_overload = save_overload

    @staticmethod
    def now() -> tuple[float, float]:
        """Processor seconds of this process and of those that it waited for; the clock."""
        return sum(os.times()[:4]) + warm_process.spent, time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Any:
        report = yield
        now = self.now()
        report.costs = {
            "processor": now[0] - self.last[0],
            "wall": now[1] - self.last[1],
            "compiled": compiled[:],
        }
        compiled.clear()
        self.last = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, cost in getattr(report, "costs", {}).items():  # none if its process has crashed
            self.tests[report.nodeid][name] += cost

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if hasattr(config, "workerinput"):
            return
        self.path.write_text(json.dumps(self.tests, indent=0))
        folders: dict[str, Counter[str]] = defaultdict(Counter)
        for test, cost in self.tests.items():
            path = test.partition("::")[0].split("/")
            folder = folders["/".join(path[:2]) if len(path) > 2 else path[0]]
            folder.update(tests=1, seconds=cost["processor"], kernels=len(cost["compiled"]))
        terminalreporter.section("costs")
        terminalreporter.write_line(f"{'processor s':>11} {'tests':>6} {'kernels':>7}")
        for name, sums in sorted(folders.items(), key=lambda pair: -pair[1]["seconds"]):
            terminalreporter.write_line(
                f"{sums['seconds']:11.1f} {sums['tests']:6} {sums['kernels']:7}  {name}"
            )
