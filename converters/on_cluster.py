"""Convert files on a Dask cluster, to the same bytes as on one machine.

Workers count the rows of each text, then read parts of the inputs to buckets of rows whose keys begin alike,
then sort buckets and write their rows as whole chunks of the store. What crosses the ends of these parts, and
the record, is written by the command. All files are in folders that the machines share.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Iterator, Sequence
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
from streamsvm.data.statistics import Statistics, join_spans, spans
from streamsvm.durable import reason
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
_CHECKED = 16  # inputs that each worker looks for before the work begins
_WEIGHTS = 2**20  # written at a time


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
    """

    token: str
    options: ReadOptions
    waiting: WaitingRows
    expected: int | None
    weights: Path | None


class _Order(NamedTuple):
    """What workers need to sort rows and write them to the store."""

    token: str
    waiting: WaitingRows
    settings: PartSettings
    code_of: np.ndarray | None
    shift: int
    index_dtype: np.dtype


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
    """

    def __init__(
        self, cluster: Cluster, reader: PartedReader, options: ReadOptions, waiting: WaitingRows
    ) -> None:
        self._cluster, self._reader, self._waiting = cluster, reader, waiting
        self._options = dataclasses.replace(options, folder=waiting.folder, progress=None, threads=1)
        self._tell = options.progress or (lambda *_: None)
        self._buckets: list[Bucket] = []
        self._token = uuid.uuid4().hex
        self._check_reach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._cluster.tell(on_worker.end, self._token)  # before the folder is removed

    def _check_reach(self) -> None:
        paths = map(Path, self._reader.inputs[:_CHECKED])
        sizes = {path: None if path.is_dir() else path.stat().st_size for path in paths}
        for warning in self._cluster.check(_why_unreadable, sizes):
            self._reader.notes.append(str(warning))
        with sample_file(self._waiting.folder) as sample:
            if not self._cluster.all(is_in_reach, sample):
                raise ClusterError(
                    f"a worker does not see {self._waiting.folder}, or cannot write there",
                    remedy=Remedy("write the store to a folder that all machines of the cluster share"),
                )

    # -- reading -----------------------------------------------------------------------------------

    def read(self, weights: str | Path | None) -> list[Source]:
        """Let workers read all rows, and their weights; returns what was read."""
        reader, folder = self._reader, self._waiting.folder
        wanted = _PER_THREAD * max(1, len(self._cluster.slots))
        parts, n_rows = reader.parts(wanted, self._cluster.in_order)
        sources = list(reader.sources)
        weight_file = None
        if weights is not None:
            weight_file = folder / "weights.npy"
            sources.append(_write_weights(weights, n_rows, weight_file))
        options = dataclasses.replace(self._options, features=reader.known_features())
        given = self._hold(_Input(self._token, options, self._waiting, reader.expected_bytes, weight_file))
        results = self._cluster.in_order("read", _read_part, ((given, part) for part in parts))
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
        order = self._hold(_Order(self._token, self._waiting, settings, code_of, shift, dtype))
        items = ((order, run, before) for run, before in self._runs(writer.nnz))
        for part in self._cluster.in_order("write", _write_part, items):
            writer.add_part(part)
        writer.complete_rows()
        digests = self._cluster.start(
            [self._cluster.task("digest", array_digest, settings.path, name) for name in settings.arrays]
        )
        statistics = self._statistics(writer) if writer.has_statistics else None
        with self._cluster.ended_by_loss():
            found = self._cluster.results(digests)
        return writer.finish(dict(zip(settings.arrays, found, strict=True)), statistics)

    def _split(self) -> None:
        """Split buckets that do not fit into the memory of a worker."""
        while large := [bucket for bucket in self._buckets if self._waiting.must_split(bucket)]:
            items = ((self._token, self._waiting, bucket) for bucket in large)
            finer = self._cluster.in_order("split", _split, items)
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

    def _statistics(self, writer: StoreWriter) -> Statistics:
        items = ((writer.path, writer.n_features, *ends) for ends in spans(writer.n_rows))
        return join_spans(self._cluster.in_order("statistics", span_statistics, items))

    def _hold(self, value: Any) -> Any:
        [held] = self._cluster.start([self._cluster.task("settings", on_worker.hold, value)])
        return held


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


def _why_unreadable(sizes: dict[Path, int | None]) -> str | None:
    """Why this process cannot read files of these sizes (None: folders); None if it can."""
    for path, size in sizes.items():
        try:
            found = path.stat().st_size
            if size is not None:
                path.open("rb").close()
        except OSError as error:
            return f"{path}: {reason(error)}"
        if size not in (None, found):
            return f"{path} has {found:,} bytes there, and {size:,} here"
    return None


def _read_part(given: _Input, part: InputPart) -> tuple[FoundInPart, list[Bucket]]:
    """Parse a part to files of this attempt: a task may run twice, if a worker is taken for lost."""
    reader = open_reader([part.path], given.options, part=part)
    assert isinstance(reader, PartedReader)
    weights = None if given.weights is None else np.load(given.weights, mmap_mode="r")
    name = f"part-{uuid.uuid4().hex}"
    shuffle = ExternalShuffle(given.waiting, expected=given.expected, name=name, holds=False)
    with os_errors_about(given.waiting.folder), shuffle:
        for rows, numbers in on_worker.steps_of(given.token, reader):
            if weights is not None:
                rows = rows._replace(cost=weights[numbers])
            shuffle.append(rows, numbers)
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

    with os_errors_about(order.settings.path):
        return write_part(order.settings, before, coded())
