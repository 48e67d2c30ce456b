"""Plugin of pytest: the kinds of tests, the tests that run in one process, and the kernels that each may use.

Default tests have no marker, and may load only the kernels of `KERNELS`. A test that loads another kernel of
a loss fails until it is marked `engine`. Cases with another `loss` get that marker automatically, and the
folders of `FOLDERS` have kinds of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamsvm.kernels import jit
from streamsvm.losses import LOSSES

TESTS = Path(__file__).parent
FOLDERS = {"crash": "crash", "fuzz": "crash", "cluster": "cluster"}
MARKERS = ("engine", "crash", "cluster", "more")  # default tests have none of them
KERNELS = {("ww", "float32"), ("ww", "float64"), ("cs", "float64"), ("ovr2", "float64"), ("chain", "float64")}
# Argument types that specialise kernels: costs of errors, several labels, dense products, sparse rows.
SPECIAL = ("ClassPairs", "LabelSets", "Tile", "SparseRows")
STEPS = ("visit", "revisit", "visit_matrix", "loss_rows", "sum_duals", "improve")

_running: list[pytest.Item] = []


def is_default(item: pytest.Item) -> bool:
    return not any(item.get_closest_marker(name) for name in MARKERS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folders and losses; those of one loss form a group, which compiles its kernels."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if folder in FOLDERS and not item.get_closest_marker("engine"):
            item.add_marker(FOLDERS[folder])
            continue
        case = item.callspec.params if hasattr(item, "callspec") else {}
        loss = LOSSES.get(str(case.get("loss")))
        if loss is None:
            continue
        if (loss.name, case.get("dtype", "float64")) not in KERNELS or case.get("solver") in loss.solvers[1:]:
            item.add_marker("engine")
        if item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.xdist_group(loss.name))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process a group, or all other tests of a file, which share fixtures."""
    from xdist.scheduler import LoadGroupScheduling

    class Groups(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            group = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if group == nodeid else group

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


def is_special(name: str, types: str) -> bool:
    """Return whether default tests may not load this kernel."""
    names = {each.replace("-", "_"): each for each in LOSSES}
    prefix = max((each for each in names if name.startswith(f"{each}_")), key=len, default=None)
    if prefix is None or not name.endswith(STEPS):
        return False
    dtype = "float32" if "array(float32" in types else "float64"
    of_solver = name.removeprefix(f"{prefix}_") not in STEPS and prefix != "chain"
    return (names[prefix], dtype) not in KERNELS or of_solver or any(f"{each}(" in types for each in SPECIAL)


def _watch_kernels() -> None:
    cache: Any = jit._cache_class()
    real = cache.load_overload

    def load_overload(self: Any, types: Any, context: Any) -> Any:
        name = self._names[0].rpartition(".")[2]
        if _running and is_default(_running[-1]) and is_special(name, str(types)):
            raise AssertionError(f"a default test uses the kernel {name}{types}: mark it engine")
        return real(self, types, context)

    cache.load_overload = load_overload


_watch_kernels()
