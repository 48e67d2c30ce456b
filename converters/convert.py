"""Conversion of files to a store: reading, shuffling on disk, and writing."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.base.decode import encode
from streamsvm.base.format import CHUNK_NNZ, LABEL_DTYPE, UNSEEN_LABEL, index_dtype
from streamsvm.base.label_values import OBJECT, TEXT, dtype_of_names
from streamsvm.base.progress import Progress, logger, shown
from streamsvm.base.repr import Readable
from streamsvm.base.text import as_python_value, check_local, parse_size
from streamsvm.base.threads import count_workers
from streamsvm.data.label_sets import recode
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import BYTES_PER_FEATURE
from streamsvm.errors import InputError, PlanError, StoreError
from streamsvm.settings.field import declared
from streamsvm.settings.reading import ReadingSettings
from streamsvm.settings.signature import takes

if TYPE_CHECKING:
    from streamsvm_converters.external_shuffle import ExternalShuffle
    from streamsvm_converters.kinds.reader import Reader
    from streamsvm_converters.libsvm.position import InputFile


# Bytes of memory for each value of a chunk: values and indices, being filled and being compressed.
_CHUNK_FACTOR = 128
# A bucket of the shuffle may take this fraction of the memory; the next one is loaded while it is in use.
_BUCKET_FRACTION = 8
# Statistics of the features are gathered if they take at most this fraction of the memory.
_STATISTICS_FRACTION = 16


@dataclass(frozen=True, repr=False)
class ConvertReport(Readable):
    """The result of a conversion.

    Attributes
    ----------
    path : Path
        The store.
    n, d, nnz, n_classes : int
        Rows, features, values and classes of the store.
    index_base : int or None
        Index of the first feature in the text: 0 or 1; None if the features have no such numbers.
    fingerprint : str
        Hash of the content: equal for equal input, options and seed, whatever the container.
    seconds, decompress_seconds : float
        Time taken in all, and for decompressing the text, which only one thread can do.
    skipped, repaired : int
        Rows dropped; rows sorted or summed.
    first_errors : tuple of str
        Messages about the first five rows dropped.
    explicit_zeros, qids : int
        Values dropped because they are zero in the dtype; ``qid`` fields ignored.
    unseen_features, unseen_labels : int
        With `like`: values dropped because of their feature; rows kept with label -1.
    empty_rows : int
        Rows of the store without a value.
    bytes_read : int
        Bytes of all inputs as stored.
    unlabelled : int
        Rows left out because they have no label.
    unseen_values : int
        With `like`: values of categories that are not among the known ones.
    missing_values : int
        Missing numbers of a table that were replaced, as `missing` says.
    notes : tuple of str
        How columns of a table became features, and other facts about the reading.
    warnings : tuple of str
        Warnings about the labels.
    n_labels, n_groups : int or None
        Labels of all rows together, with `multilabel`; groups of rows, with `groups`.
    """

    path: Path
    n: int
    d: int
    nnz: int
    n_classes: int
    index_base: int | None
    fingerprint: str
    seconds: float
    decompress_seconds: float
    skipped: int
    repaired: int
    first_errors: tuple[str, ...]
    explicit_zeros: int
    qids: int
    unseen_features: int
    unseen_labels: int
    empty_rows: int
    bytes_read: int
    warnings: tuple[str, ...]
    n_labels: int | None = None
    n_groups: int | None = None
    unlabelled: int = 0
    unseen_values: int = 0
    missing_values: int = 0
    notes: tuple[str, ...] = ()

    def _facts(self) -> dict[str, Any]:
        always = ("path", "n", "d", "nnz", "n_classes")
        hidden = ("fingerprint", "decompress_seconds", "bytes_read", "index_base")
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: facts[name] for name in facts if name not in hidden and (facts[name] or name in always)}


@takes(declared(ReadingSettings), after="out")
def convert(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    dtype: str = "float32",
    shuffle: bool = True,
    seed: int = 0,
    memory: int | str = 2**30,
    threads: int | None = None,
    codec: str = "fast",
    chunk_nnz: int | None = None,
    unseen_label: str = "error",
    weights: str | Path | None = None,
    groups: bool = False,
    label: str | None = None,
    labels: str | Path | None = None,
    join: str = "inner",
    layer: str | None = None,
    raw: bool = False,
    obsm: str | None = None,
    force: bool = False,
    progress: bool | Progress | None = None,
    **settings: Any,
) -> ConvertReport:
    """Convert files to a store, in bounded memory: LIBSVM text, tables, text columns, AnnData or arrays.

    Dense matrices whose values are mostly not 0, of at most 2**18 features, become dense stores, others CSR.
    The content of a file determines its kind; the suffix does if several kinds of text look alike. All
    inputs are of one kind, and are read one after another. LIBSVM text is read once, tables twice if they
    have categories. The rows are stored in a hidden folder beside `out`, since classes and width are known
    only at the end of the input. The store is then written there, and renamed to `out` when it is complete
    and durable. The folder needs free space for 8 bytes per value (12 in float64) and 20 per row, and for the
    store itself. A conversion that fails leaves nothing behind; the remains of a killed one are not a store,
    and the next conversion to `out` deletes them.

    Parameters
    ----------
    inputs : sequence of path or "-"
        LIBSVM text, CSV, TSV or JSON lines, plain or compressed by gzip, bzip2, xz or zstd; Parquet; AnnData;
        ``.npz`` of SciPy or NumPy, or ``.npy``; a column of lists of numbers in Parquet or Arrow. "-" is
        standard input, with LIBSVM text.
    out : path
        The store to write. The suffix ``.zarr``, ``.h5`` or ``.h5ad`` determines the container.
    **settings
        As `ReadingSettings` declares them.
    dtype : {"float16", "float32", "float64"}
        Type of the values, to which they are rounded once. float16 is for dense stores, and computed with in
        float32.
    shuffle : bool
        Whether the rows are put in an order that depends only on `seed` and their number, or keep theirs.
    seed : int
        Seed of the shuffle.
    memory : int or str
        Bytes ("500M", "2G") of memory, beyond the interpreter itself and, for compressed text, the decoder's
        window of at most 128 MB.
    threads : int, optional
        Number of threads of this process, by default one per processor. The store does not depend on it.
    codec : {"fast", "small", "none"}
        Compression of the store.
    chunk_nnz : int, optional
        Values per chunk of the store.
    unseen_label : {"error", "keep"}
        With `like`: whether a label that is not among the classes is an error, or the row is kept with
        label -1, or with its other labels.
    weights : path, optional
        A file with the weight of each row in a line of its own, in the order of the inputs, also for rows
        that are skipped: finite numbers of at least 0.
    groups : bool
        LIBSVM text: whether ``qid:`` fields are kept: each row names its group, the rows of a group stand
        together, and shuffling leaves them so, in their order. By default such fields are ignored.
    label : str, optional
        The column with the labels: of a table, or of ``obs`` of AnnData; or the array with them in an
        ``.npz`` file. Rows without a label are left out and counted.
    labels : path, optional
        A file with the labels of an ``.npy`` or ``.npz`` matrix: ``.npy``, or text with one a line.
    join : {"inner", "outer"}
        Which features the store has if several AnnData files have different ones: those that all of them
        have, or those that any has, with zeros where a file lacks one. A `StreamsvmWarning` counts them.
    layer : str, optional
        The entry of ``layers`` of AnnData to read instead of ``X``.
    raw : bool
        Whether ``raw.X`` of AnnData is read instead, with its own features.
    obsm : str, optional
        The entry of ``obsm`` of AnnData to read instead, such as an embedding.
    force : bool
        Whether to replace an existing store. It stays in place until the new one is complete.
    progress : bool or callable, optional
        Whether there is a bar, or a function, as in `streamsvm.fit`: it is called with the stage "convert",
        the number of bytes read, and of all inputs or None.

    Returns
    -------
    ConvertReport

    Raises
    ------
    InputError
        For malformed input, with its place; for inputs that cannot be read or are of another kind; for groups
        that begin twice; and for options that contradict the input or `like`.
    StoreError
        If `out` exists, is being written by another process or cannot be written, or if the store `like`
        cannot be read.
    ModelError
        If `like` is a run or a model that cannot be read.
    PlanError
        If `memory` is too small; `needed_memory` says what would be enough. `SettingsError` if it is not a
        size, or an option does not apply to this kind of file.
    ValueError
        If another option is not among its choices.
    """
    from streamsvm_converters.external_shuffle import ExternalShuffle
    from streamsvm_converters.kinds.options import ReadOptions
    from streamsvm_converters.kinds.registry import open_reader
    from streamsvm_converters.libsvm.labels import duplicate_warnings
    from streamsvm_converters.libsvm.reader import check_choices
    from streamsvm_converters.staging import os_errors_about, publish, staging_folder
    from streamsvm_converters.waiting_rows import WaitingRows

    from streamsvm.base.label_texts import class_order
    from streamsvm.base.prefetch import Prefetcher
    from streamsvm.model.schema import read_schema
    from streamsvm.store import StoreOptions, StoreWriter, store_kind

    asked = ReadingSettings(**settings)
    seed, threads, chunk_nnz = map(as_python_value, (seed, threads, chunk_nnz))
    shuffle, groups, raw, dtype = map(as_python_value, (shuffle, groups, raw, dtype))
    check_choices(dtype="float32" if dtype == "float16" else dtype, unseen_label=unseen_label)
    began = time.monotonic()
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    memory = parse_size(memory)
    check_local(out, StoreError)
    out = Path(out)
    store_kind(out)  # or the name is refused
    chunk_nnz = CHUNK_NNZ if chunk_nnz is None else chunk_nnz
    _check_memory(memory, chunk_nnz)
    threads = count_workers(None) if threads is None else threads
    if threads < 1:
        raise ValueError(f"threads must be 1 or more, not {threads}")
    read = [*inputs, *(path for path in (weights, labels) if path is not None)]
    _check_distinct(read, out)
    if weights is not None and sum(str(path) == "-" for path in read) > 1:
        raise InputError("standard input (-) is given for rows and for weights; it can be read only once")
    schema = None if asked.like is None else read_schema(asked.like)
    options = ReadOptions(
        dtype=dtype, memory=memory, threads=threads, unseen_label=unseen_label, groups=groups, label=label,
        labels=labels, join=join, layer=layer, raw=raw, obsm=obsm, **{**asked.given(), "like": schema},
    )  # fmt: skip

    with os_errors_about(out), staging_folder(out, force) as staging, shown(progress) as report:
        reader = open_reader(inputs, options, folder=staging, progress=partial(report, "convert"))
        columns = {"cost": weights is not None, "qid": groups, "label_codes": asked.multilabel}
        waiting = WaitingRows(
            staging, np.dtype(dtype), seed if shuffle else None, memory // _BUCKET_FRACTION,
            [name for name, present in columns.items() if present],
        )  # fmt: skip
        shuffled = ExternalShuffle(waiting, expected=reader.expected_bytes)
        with shuffled:
            sources = _read_all(reader, weights, shuffled)
        counts = reader.counts
        if counts.rows == 0:
            why = f"; all {counts.skipped} were skipped: {counts.first_errors[0]}" if counts.skipped else ""
            if getattr(counts, "unlabelled", 0):
                why += f"; {counts.unlabelled:,} have no label"
            named = ", ".join(map(str, inputs[:3])) + ", ..." * (len(inputs) > 3)
            raise InputError(f"{named}: the input has no rows{why}")
        if asked.multilabel and not shuffled.n_labels:
            raise InputError("no row of the input has a label")
        features = reader.features()
        classes: Sequence[str]
        codes = None
        warnings: list[str] = []
        if schema is None:
            learned = reader.labels()
            order = class_order(learned)
            classes, label_dtype = [learned[code] for code in order], reader.label_dtype
            warnings = duplicate_warnings(classes) if reader.options.labels_as != "text" else []
            if len(classes) == 1 and not asked.multilabel:
                warnings.append(f"all rows have the label {classes[0]!r}: nothing can be learned from them")
            codes = np.full(len(order) + 1, UNSEEN_LABEL, LABEL_DTYPE)
            codes[order] = np.arange(len(order), dtype=LABEL_DTYPE)
        else:
            classes = schema.classes
            as_text = schema.label_dtype in (TEXT, OBJECT)  # and else as whole numbers, if it may be
            label_dtype = TEXT if as_text else dtype_of_names(classes)

        made = staging / out.name
        width = features.width
        _check_memory(memory, width if reader.dense else 0)
        batches: Iterator[Rows] = shuffled.drain(features.shift, index_dtype(width))
        stored = StoreOptions(
            shape=(counts.rows, width), nnz=counts.nnz, classes=classes, dtype=dtype,
            label_dtype=label_dtype, index_base=features.index_base, codec=codec, chunk_nnz=chunk_nnz,
            meta={
                "sources": encode(sources), "shuffle_seed": seed if shuffle else None,
                "label": reader.options.label, "labels_as": reader.options.labels_as,
            },
            weighted=weights is not None, grouped=groups,
            n_labels=shuffled.n_labels if asked.multilabel else None,
            feature_names=features.names, encoding=features.encoding, dense=reader.dense,
            statistics=BYTES_PER_FEATURE["moments"] * width <= memory // _STATISTICS_FRACTION,
        )  # fmt: skip
        with StoreWriter(made, stored, threads=threads) as writer, contextlib.ExitStack() as stack:
            if threads > 1:
                batches = stack.enter_context(Prefetcher(batches))
            written = 0
            for rows in batches:
                writer.append(rows if codes is None else recode(rows, codes), rows.numbers)
                written += rows.n_rows
                report("write", written, counts.rows)
            fingerprint = writer.finish()
        publish(made, out)

    counted = dataclasses.asdict(counts)
    del counted["rows"]
    result = ConvertReport(
        path=out,
        n=counts.rows,
        d=width,
        n_classes=len(classes),
        index_base=features.index_base,
        fingerprint=fingerprint,
        seconds=max(time.monotonic() - began, 0.0),
        decompress_seconds=reader.decompress_seconds,
        warnings=tuple(warnings),
        n_labels=shuffled.n_labels if asked.multilabel else None,
        n_groups=reader.n_groups,
        notes=tuple(reader.notes),
        **counted | {"first_errors": tuple(counts.first_errors)},
    )
    for warning in result.warnings:
        logger.warning("%s", warning)
    logger.info("%r", result)
    return result


def _read_all(reader: Reader, weights: str | Path | None, shuffled: ExternalShuffle) -> list[InputFile]:
    """Append all rows, with weights if there is a file of them, to `shuffled`; return the files read."""
    from streamsvm_converters.libsvm.sample_weights import WeightFile

    if weights is None:
        for rows, numbers in reader:
            shuffled.append(rows, numbers)
        return reader.sources
    with WeightFile(weights) as file:
        for rows, numbers in reader:
            shuffled.append(rows._replace(cost=file.at(numbers)), numbers)
        counts = reader.counts
        n_rows = counts.rows + counts.skipped + getattr(counts, "unlabelled", 0)
        return [*reader.sources, file.finish(n_rows)]


def _check_memory(memory: int, chunk: int) -> None:
    """Raise `PlanError` if the memory is too small to write chunks of so many values."""
    if memory < _CHUNK_FACTOR * chunk:
        raise PlanError(
            f"a memory of {memory} bytes is too small to write chunks of {chunk} values",
            needed_memory=_CHUNK_FACTOR * chunk,
        )


def _check_distinct(inputs: Sequence[str | Path], out: Path) -> None:
    """Refuse an input that is the output, or is inside it."""
    for path in inputs:
        resolved = Path(path).resolve()
        if str(path) != "-" and out.resolve() in (resolved, *resolved.parents):
            raise InputError(f"{path} is both input and output; write the store elsewhere")
