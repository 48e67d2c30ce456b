"""Convert files on a Dask cluster, to the same bytes as on one machine.

Workers count the rows of each text, then read parts of the inputs to buckets of rows whose keys begin alike,
then sort buckets and write their rows as whole chunks of the store. What crosses the ends of these parts, and
the record, is written by the command. All files are in folders that the machines share.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from streamsvm_converters.external_shuffle import ExternalShuffle, drain, split
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.parts import FoundInPart, PartedReader
from streamsvm_converters.kinds.reader import Reader
from streamsvm_converters.kinds.registry import open_reader
from streamsvm_converters.libsvm.position import InputPart, Source
from streamsvm_converters.libsvm.sample_weights import WeightFile
from streamsvm_converters.staging import os_errors_about
from streamsvm_converters.waiting_rows import Bucket, WaitingRows

from streamsvm import on_worker
from streamsvm.cluster import Cluster
from streamsvm.data.label_sets import recode
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import join_spans, spans
from streamsvm.durable import open_file, reason
from streamsvm.errors import ClusterError, InputError, Option, Remedy, SettingsError
from streamsvm.reach import is_in_reach, sample_file
from streamsvm.store.part_writer import (
    PartSettings,
    WrittenPart,
    array_digest,
    span_statistics,
    write_part,
)
from streamsvm.store.rows_writer import Sizes
from streamsvm.store.writer import StoreWriter

_PER_THREAD = 4  # tasks of a step for each thread of the workers, where the data are large enough
_LEAST_VALUES = 2**22  # that a task writes: more chunks than the two at its ends
_STEP = 10.0  # seconds that a step of a task may take before its end is no longer waited for
_CHECKED = 16  # inputs that each worker looks for before the work begins
_MOST_RESULTS = 1000
_WEIGHTS = 2**20  # written at a time


_Stamp = tuple[int, int] | None


class _Input(NamedTuple):
    """What workers need to read parts of the inputs.

    Attributes
    ----------
    token : str
        Of this conversion.
    options : ReadOptions
    waiting : WaitingRows
    expected : int or None
        Bytes of memory that all rows take, about.
    weights : Path or None
        An ``.npy`` file with the weights of all rows.
    stamps : tuple
        Size and time of change of each input, if it is a file.
    out : Path
        The store, for messages.
    """

    token: str
    options: ReadOptions
    waiting: WaitingRows
    expected: int | None
    weights: Path | None
    stamps: tuple[_Stamp, ...]
    out: Path


class _Order(NamedTuple):
    """What workers need to sort rows and write them to the store."""

    token: str
    waiting: WaitingRows
    settings: PartSettings
    code_of: np.ndarray | None
    shift: int
    index_dtype: np.dtype
    out: Path


def check_is_parted(reader: Reader) -> PartedReader:
    """The reader; raises `SettingsError` if several processes cannot share its work."""
    if isinstance(reader, PartedReader):
        return reader
    raise SettingsError(
        "cluster is for LIBSVM text and AnnData; files of other kinds are read by one process",
        remedy=Remedy("leave {} out", Option("cluster")),
        setting="cluster",
    )


class ClusterConversion:
    """The steps of one conversion.

    Parameters
    ----------
    cluster : Cluster
    reader : PartedReader
        Of the inputs; it counts what workers read.
    options : ReadOptions
        Of that reader.
    waiting : WaitingRows
        In a folder that workers can reach.
    out : Path
        The store, for messages.
    """

    def __init__(
        self, cluster: Cluster, reader: PartedReader, options: ReadOptions, waiting: WaitingRows, out: Path
    ) -> None:
        self._cluster, self._reader, self._waiting = cluster, reader, waiting
        self._options = dataclasses.replace(options, folder=waiting.folder, progress=None, threads=1)
        self._tell = options.progress or (lambda *_: None)
        self._buckets: list[Bucket] = []
        self._token, self._out = uuid.uuid4().hex, out
        self._stamps = tuple(_stamp(path) for path in reader.inputs)
        self._check_reach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Let workers end what they do, before the folder is removed."""
        self._cluster.tell(on_worker.end, self._token)
        until = time.monotonic() + _STEP
        while self._is_at_work() and time.monotonic() < until:
            time.sleep(0.05)

    def _is_at_work(self) -> bool:
        try:
            return any(self._cluster.ask(on_worker.is_at_work, self._token))
        except TimeoutError:  # a worker is there, and does not answer
            return True

    def _check_reach(self) -> None:
        stamps = dict(zip(self._reader.inputs[:_CHECKED], self._stamps, strict=False))
        for warning in self._cluster.check(_why_unreadable, stamps):
            self._reader.notes.append(str(warning))
        with sample_file(self._waiting.folder) as sample:
            if not self._cluster.all(is_in_reach, sample):
                raise ClusterError(
                    f"a worker does not see the folder of {self._out}, or cannot write there",
                    remedy=Remedy("write the store to a folder that all machines of the cluster share"),
                )

    # -- reading -----------------------------------------------------------------------------------

    def read(self, weights: str | Path | None) -> list[Source]:
        """Let workers read all rows, and their weights; returns what was read."""
        reader, folder = self._reader, self._waiting.folder
        wanted = _PER_THREAD * max(1, len(self._cluster.slots))
        parts, n_rows = reader.parts(wanted, self._in_order)
        sources = list(reader.sources)
        weight_file = None
        if weights is not None:
            weight_file = folder / "weights.npy"
            sources.append(_write_weights(weights, n_rows, weight_file))
        options = dataclasses.replace(self._options, features=reader.known_features())
        expected = reader.expected_bytes
        if expected is not None:  # buckets are what workers share, too
            expected = max(expected, wanted * self._waiting.limit)
        given = self._cluster.hold(
            _Input(
                self._token, options, self._waiting, expected, weight_file, self._stamps, self._out
            )
        )  # fmt: skip
        results = self._in_order("read", _read_part, ((given, part) for part in parts))
        of_parts: list[list[Bucket]] = []
        total = sum(source.size for source in reader.sources)
        ends = itertools.pairwise([*(part.row for part in parts), n_rows])
        for at, (part, (begin, end), (found, buckets)) in enumerate(zip(parts, ends, results, strict=True)):
            if found.n_rows != end - begin:
                raise InputError(f"{part.path} changed while it was read; convert again")
            codes = reader.add_part(part, found)
            if codes is not None:
                path = folder / f"codes-{at}.npy"
                np.save(path, codes)
                buckets = [bucket.coded(path) for bucket in buckets]
            of_parts.append(buckets)
            self._tell(total * end // max(n_rows, 1), total, reader.counts.rows)
        reader.check()
        if self._waiting.seed is None:
            self._buckets = list(itertools.chain.from_iterable(of_parts))
        else:
            self._buckets = [Bucket.joined(*alike) for alike in zip(*of_parts, strict=True)]
        return sources

    @property
    def n_labels(self) -> int:
        """Labels of all lists of labels together."""
        return sum(bucket.n_labels for bucket in self._buckets)

    # -- writing -----------------------------------------------------------------------------------

    def write(self, writer: StoreWriter, code_of: np.ndarray | None, shift: int, dtype: np.dtype) -> str:
        """Let workers write all rows, and complete the store; returns its fingerprint.

        Parameters
        ----------
        writer : StoreWriter
        code_of : ndarray, or None
            As for `recode`; None if the codes of labels are right.
        shift : int
            Is subtracted from all indices.
        dtype : dtype
            Of the indices.
        """
        self._split()
        settings = writer.part_settings()
        order = self._cluster.hold(
            _Order(self._token, self._waiting, settings, code_of, shift, dtype, self._out)
        )
        items = ((order, run, before) for run, before in self._runs(writer.nnz))
        for part in self._in_order("write", _write_part, items):
            writer.add_part(part)
        writer.complete_rows()
        path, names = settings.path, list(settings.arrays)
        measures: list[tuple[Any, ...]] = [(array_digest, path, name) for name in names]  # the longest first
        if writer.has_statistics:
            measures += [(span_statistics, path, writer.n_features, *ends) for ends in spans(writer.n_rows)]
        found = self._in_order("measure", _measure, measures)
        digests = dict(zip(names, itertools.islice(found, len(names)), strict=True))
        return writer.finish(digests, join_spans(found) if writer.has_statistics else None)

    def _split(self) -> None:
        """Split buckets that do not fit into the memory of a worker."""
        while large := [bucket for bucket in self._buckets if self._waiting.must_split(bucket)]:
            items = ((self._token, self._waiting, bucket) for bucket in large)
            finer = self._in_order("split", _split, items)
            self._buckets = [
                each
                for bucket in self._buckets
                for each in (next(finer) if self._waiting.must_split(bucket) else [bucket])
            ]
            for bucket in large:
                for file in bucket.files:
                    file.path.unlink()

    def _runs(self, nnz: int) -> Iterator[tuple[list[Bucket], Sizes]]:
        """Consecutive buckets that a task writes, and the rows before them."""
        least = max(_LEAST_VALUES, nnz // (_PER_THREAD * max(1, len(self._cluster.slots))))
        before = done = Sizes()
        run: list[Bucket] = []
        for bucket in self._buckets:
            if bucket.n_rows:
                run.append(bucket)
                done = done.plus(Sizes(bucket.n_rows, bucket.nnz, bucket.n_labels))
            if done.nnz - before.nnz >= least:
                yield run, before
                run, before = [], done
        if run:
            yield run, before

    def _in_order(
        self, name: str, function: Callable[..., Any], items: Iterable[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """As `Cluster.in_order`; results are small, so that many may wait for that of a large part."""
        return self._cluster.in_order(name, function, items, most=_MOST_RESULTS)


def _write_weights(path: str | Path, n_rows: int, out: Path) -> Source:
    """Write the weights of all rows as an array that workers can read from any row on."""
    weights = np.lib.format.open_memmap(out, mode="w+", dtype=np.float64, shape=(n_rows,))
    with WeightFile(path) as file:
        for start in range(0, n_rows, _WEIGHTS):
            numbers = np.arange(start, min(start + _WEIGHTS, n_rows))
            weights[numbers] = file.at(numbers)
        weights.flush()
        return file.finish(n_rows)


# -- on workers ------------------------------------------------------------------------------------


def _stamp(path: str | Path) -> _Stamp:
    """Size and time of change of a file; None of a folder."""
    found = os.stat(path)
    return None if stat.S_ISDIR(found.st_mode) else (found.st_size, found.st_mtime_ns)


def _why_unreadable(stamps: dict[str | Path, _Stamp]) -> str | None:
    """Why this process cannot read what is expected; None if it can."""
    for path, expected in stamps.items():
        try:
            found = _stamp(path)
            if found is not None:
                open_file(path, follow=True).close()
        except OSError as error:
            return f"{path}: {reason(error)}"
        if found is None or expected is None:
            continue
        if found[0] != expected[0]:
            return f"{path} has {found[0]:,} bytes there, and {expected[0]:,} here"
    return None


def _check_unchanged(part: InputPart, expected: _Stamp) -> None:
    try:
        same = _stamp(part.path) == expected
    except OSError as error:
        raise InputError(f"{part.path} cannot be read: {reason(error)}") from None
    if not same:
        raise InputError(f"{part.path} changed while it was read; convert again")


def _measure(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _read_part(given: _Input, part: InputPart) -> tuple[FoundInPart, list[Bucket]]:
    """Parse a part to files of this attempt: a task may run twice, if a worker is taken for lost."""
    reader = open_reader([part.path], given.options, part=part)
    assert isinstance(reader, PartedReader)
    weights = None if given.weights is None else np.load(given.weights, mmap_mode="r")
    name = f"part-{uuid.uuid4().hex}"
    shuffle = ExternalShuffle(given.waiting, expected=given.expected, name=name, holds=False)
    _check_unchanged(part, given.stamps[part.number])
    with os_errors_about(given.out), shuffle:
        for rows, numbers in on_worker.steps_of(given.token, reader):
            if weights is not None:
                rows = rows._replace(cost=weights[numbers])
            shuffle.append(rows, numbers)
    _check_unchanged(part, given.stamps[part.number])
    return reader.found(), shuffle.buckets()


def _split(token: str, waiting: WaitingRows, bucket: Bucket) -> list[Bucket]:
    with os_errors_about(waiting.folder):
        batches = on_worker.steps_of(token, waiting.read(bucket))
        return split(waiting, bucket, f"split-{uuid.uuid4().hex}", batches)


def _write_part(order: _Order, run: Sequence[Bucket], before: Sizes) -> WrittenPart:
    def coded() -> Iterator[tuple[Rows, np.ndarray]]:
        batches = drain(order.waiting, run, order.shift, order.index_dtype, keep=True)
        for rows, numbers in on_worker.steps_of(order.token, batches):
            yield rows if order.code_of is None else recode(rows, order.code_of), numbers

    with os_errors_about(order.out):
        return write_part(order.settings, before, coded(), order.waiting.folder)
