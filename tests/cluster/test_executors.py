"""An executor of its own: tasks run in this process, one after the other, each on a copy of its arguments.

It does what a cluster does, without processes: any number of workers, and losses at any time.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cases import few
from dask_clusters import BY_CLASSES, BY_ROWS, EACH, fit, measured
from run_files import model_bytes

from streamsvm.base.threads import Threads, WorkersLost
from streamsvm.cluster import worker

pytestmark = pytest.mark.engine  # in this process, which needs no Dask


class Task:
    """A function and its arguments, and its result when it has run."""

    def __init__(self, function: Callable[..., Any], arguments: tuple) -> None:
        self.function, self.arguments, self.has_run = function, arguments, False

    def run(self) -> Any:
        if not self.has_run:
            given = [_value(each) for each in self.arguments]
            before = pickle.dumps(given)
            self.result = pickle.loads(pickle.dumps(self.function(*pickle.loads(before))))
            assert pickle.dumps(given) == before  # another task may be given the same
            self.has_run = True
        return self.result


def _value(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_value(each) for each in argument]
    return argument.run() if isinstance(argument, Task) else argument


class InThisProcess:
    """Executor with some workers, whose results are lost each time that `lost` returns True."""

    def __init__(self, n_workers: int, lost: Callable[[], bool] = lambda: False) -> None:
        self.token, self.slots = uuid.uuid4().hex, [worker.own_address()] * n_workers
        self.threads, self._lost = Threads(), lost
        self.when_silent: Callable[[], None] = lambda: None

    def task(self, name: str, function: Callable[..., Any], *arguments: Any, at: str | None = None) -> Task:
        assert name
        assert at is None or at in self.slots
        return Task(function, arguments)

    def put(self, values: Sequence[Any], at: str) -> list[Task]:
        assert at in self.slots
        return [Task(worker.identity, (value,)) for value in values]

    def start(self, tasks: Sequence[Task]) -> list[Task]:
        return list(tasks)

    def results(self, references: Sequence[Task]) -> list[Any]:
        if self._lost():
            raise WorkersLost("a worker was lost")
        return [task.run() for task in references]

    def check(self, data: Any) -> list[str]:
        assert worker.read_problem(data) is None
        return []

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *error: object) -> None:
        worker.close(self.token)


def use(executor: InThisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.cluster.client.Cluster", lambda *given: executor)


@pytest.mark.parametrize("n_workers", few([1, 2, 3], 2))
@pytest.mark.parametrize(
    "settings",
    [
        BY_CLASSES,
        BY_CLASSES | {"loss": "ovr2", "dtype": "float64"},
        BY_CLASSES | {"loss": "llw", "dtype": "float64"},
        BY_ROWS | {"tol": 1e-9, "C": 0.1},
        BY_ROWS | {"loss": "cs", "dtype": "float64", "hold_out": "1/5", "splits": 5},
    ],
    ids=lambda s: f"{s['split']}-{s.get('loss', 'ww')}",
)
def test_any_executor_gives_the_model_of_threads(
    store: Path, tmp_path: Path, settings: dict[str, Any], n_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = fit(store, tmp_path / "threads", settings, workers=2)
    use(InThisProcess(n_workers), monkeypatch)
    found = fit(store, tmp_path / "run", settings, cluster="this process")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "threads")
    assert measured(found) == measured(threads)
    assert all(each["worker_tasks"] > 0 for each in found.history)


@EACH
@pytest.mark.parametrize("first", [2, 6])
def test_results_are_lost_again_and_again(
    store: Path, tmp_path: Path, settings: dict[str, Any], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While rows are visited, scored and written: the training goes on from its last commit."""
    fit(store, tmp_path / "threads", settings)
    asked, lost, events = iter(range(10**6)), range(first, 40, 12), []
    use(InThisProcess(2, lambda: next(asked) in lost), monkeypatch)
    fit(
        store, tmp_path / "run", settings, cluster="this process", checkpoint_every="1 blocks",
        report=events.append,
    )  # fmt: skip
    warnings = [event["warning"] for event in events if event["event"] == "warning"]
    assert len(warnings) >= 3
    assert all("lost; training continues from the last commit" in warning for warning in warnings)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "threads")
