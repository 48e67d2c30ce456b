"""Start and resumption of runs over streams."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import durable, format
from streamsvm.base.threads import Threads
from streamsvm.errors import PlanError, Remedy, RunError, SettingsError
from streamsvm.model.results import OnlineResult
from streamsvm.run.checkpoint import RunPosition, StreamPosition
from streamsvm.run.directory import RunDir, claimed
from streamsvm.run.files import RunFiles
from streamsvm.run.growing_weights import GrowingWeights
from streamsvm.settings.fit import Interval
from streamsvm.settings.online import OnlineSettings
from streamsvm.training.build import find_workers
from streamsvm.training.learner import Learner
from streamsvm.training.online import Online
from streamsvm.training.plain_visits import PlainVisits
from streamsvm.training.spec import Spec
from streamsvm.training.store_stream import STORE, StoreStream
from streamsvm.training.stream import Stream, StreamSource
from streamsvm.training.trainer import Callbacks
from streamsvm.transforms import Transform


def learn_stream(
    stream: Stream,
    out: str | Path | RunDir,
    online_settings: OnlineSettings,
    *,
    every: Interval,
    force: bool = False,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
) -> OnlineResult:
    """Begin a run over a stream, as `streamsvm.online` describes it."""
    if stream.classes is not None and len(stream.classes) < 2:
        raise PlanError(f"{len(stream.classes)} class is given; a classifier needs two or more")
    if online_settings.hash_bits is not None and stream.index_base != 0:
        base = stream.index_base
        why = "this data has none" if base is None else f"index_base={base} changes them; leave it 0"
        raise SettingsError(f"hash_bits takes the numbers of features as they stand in the text, and {why}")
    run = RunDir.at(out)
    record = {
        "version": format.RUN_VERSION,
        "kind": format.ONLINE,
        "settings": dataclasses.asdict(online_settings),
        "input": stream.record(),
    }
    with claimed(run, force=force):
        run.write_settings(record)
        try:
            with _stream_trainer(run, stream, online_settings, every, callbacks) as trainer:
                return trainer.run()
        except Exception:
            if not run.commits():
                durable.remove(run.settings)  # there is nothing to continue: the folder is free again
            raise


def resume_stream(
    run: RunDir,
    record: dict[str, Any],
    open_stream: Callable[[dict[str, Any]], Stream] | None,
    every: Interval,
    callbacks: Callbacks,
    store: Sequence[str | os.PathLike[str]] | None = None,
) -> OnlineResult:
    """Continue a run over a stream; `store` is where one that it learns from is now, if it was moved."""
    online_settings = OnlineSettings(**record["settings"])
    opened: contextlib.AbstractContextManager[Stream]
    if record["input"].get("kind") == STORE:
        opened = StoreStream.from_record(record["input"], store)
    elif store is not None:
        raise SettingsError(f"store does not apply: {run.path} learns from a stream", setting="store")
    else:
        assert open_stream is not None  # `fit` alone resumes runs without it, and those of its own
        opened = contextlib.nullcontext(open_stream(record["input"]))
    with opened as stream, _stream_trainer(run, stream, online_settings, every, callbacks) as trainer:
        if store is not None:
            run.write_settings({**record, "input": stream.record()})
        return trainer.run() if stream.resumable else trainer.end_early()


@contextlib.contextmanager
def _stream_trainer(
    run: RunDir, stream: Stream, online_settings: OnlineSettings, every: Interval, callbacks: Callbacks
) -> Iterator[Online]:
    """Provide the trainer of a stream at its last commit."""
    callbacks.report({"event": "plan", **dataclasses.asdict(online_settings), **stream.record()})
    settings = online_settings.one_pass()
    dtype = np.dtype(settings.dtype)
    transforms: list[Transform] = []
    if online_settings.hash_bits is not None:
        from streamsvm.transforms.hashing import Hashing

        transforms.append(Hashing(online_settings.hash_bits, online_settings.seed))
    source = StreamSource(stream, dtype, online_settings.C, transforms)
    counts = np.zeros(len(stream.classes or ()), np.int64)
    spec = Spec(settings, 0, 0, counts, dense_rows=source.dense_rows)
    files = RunFiles(run, spec.dual_format(), every)
    position = files.recover() or RunPosition(stream=StreamPosition(classes=list(stream.classes or ())))
    assert position.stream is not None
    classes = position.stream.classes
    if position.blocks_done and (
        source.n_features not in (None, position.weights_shape[0])
        or stream.classes not in (None, classes)  # whose codes the stream gives to labels
    ):
        raise RunError(
            f"{run.path} was begun on a stream of other features or classes",
            remedy=Remedy("bring the old one back, or begin anew"),
        )
    storage = GrowingWeights(position.weights_shape, dtype, (run.weights, run.dirty, run.average_delta))
    files.restore(position, storage)
    if source.n_features is not None:
        storage.grow(source.n_features, len(classes))
    spec = spec.grown(storage.n_features, len(classes))
    with find_workers(spec, None) as threads:
        assert isinstance(threads, Threads)
        learner = Learner(spec, storage, PlainVisits(spec, threads=threads))
        yield Online(source, online_settings, settings, files, learner, position, callbacks)
