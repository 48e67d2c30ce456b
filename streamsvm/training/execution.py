"""Execution of a training: nothing in it changes the model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

from streamsvm.base.text import as_url
from streamsvm.errors import Interrupted, Option, Remedy, wrong_setting
from streamsvm.run.directory import RunDir
from streamsvm.settings.fit import Interval
from streamsvm.store.addresses import copy_address
from streamsvm.training.trainer import Callbacks


@dataclasses.dataclass(frozen=True)
class Execution:
    """Who is told about a training, how often it commits, and who does the work.

    Attributes
    ----------
    callbacks : Callbacks
    every : Interval or None
        Interval between commits of a run.
    workers : int or None
        Number of threads or, with a cluster, of its workers.
    cluster : str or path or None
        Address of the cluster.
    """

    callbacks: Callbacks = Callbacks()  # noqa: RUF009
    every: Interval | None = None
    workers: int | None = None
    cluster: str | os.PathLike[str] | None = None

    @property
    def threads(self) -> int | None:
        """Number of threads of this process that read and convert data."""
        return self.workers if self.cluster is None else None


def copy_inputs(run: RunDir, paths: Iterable[Any], cache: str | None, how: Execution) -> None:
    """Copy the inputs of a run that are at addresses to the folder `cache`, or to one in the run.

    Raises
    ------
    SettingsError
        If workers of a cluster, which need not see the run, would have to read a copy in it.
    """

    def progress(stage: str, done: int, total: int | None) -> None:
        if how.callbacks.stop():
            raise Interrupted("stopped while data was copied; the same command goes on")
        how.callbacks.progress(stage, done, total)

    for url in filter(None, map(as_url, filter(None, paths))):
        if how.cluster is not None and cache is None:
            remedy = Remedy("name a folder that all workers of the cluster see with {}", Option("cache"))
            raise wrong_setting("cache", f"is missing, for a copy of {url}", remedy)
        copy_address(url, cache or run.cache, progress)
