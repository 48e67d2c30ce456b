"""Convert files to a store: read their rows, shuffle them on disk, and write the store."""

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

from streamsvm.base import durable
from streamsvm.base.decode import decode, encode
from streamsvm.base.format import ANNDATA, CHUNK_NNZ, LABEL_DTYPE, UNSEEN_LABEL, index_dtype
from streamsvm.base.label_values import OBJECT, TEXT, class_order, dtype_of_names
from streamsvm.base.progress import Progress, logger, shown
from streamsvm.base.repr import Readable
from streamsvm.base.text import check_local
from streamsvm.base.threads import count_workers
from streamsvm.data.label_sets import recode
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import BYTES_PER_FEATURE
from streamsvm.errors import InputError, PlanError, StoreError
from streamsvm.settings.converting import ConvertSettings
from streamsvm.settings.field import declared
from streamsvm.settings.signature import takes

if TYPE_CHECKING:
    from streamsvm_converters.external_shuffle import ExternalShuffle
    from streamsvm_converters.kinds.reader import Reader
    from streamsvm_converters.libsvm.position import InputFile


_CHUNK_FACTOR = 128  # bytes of memory per value in a chunk, while the chunk is filled and compressed
_BUCKET_FRACTION = 8  # a shuffle bucket may take 1/8 of the memory, while the next bucket is loaded
_STATISTICS_FRACTION = 16  # feature statistics are omitted if they need more than 1/16 of the memory


@dataclass(frozen=True, repr=False)
class ConvertReport(Readable):
    """Result of a conversion.

    Attributes
    ----------
    path : Path
    n, d, nnz, n_classes : int
        Numbers of rows, features, stored values and classes.
    index_base : int or None
        Index of the first feature in the text, 0 or 1; None if the features are not numbered.
    fingerprint : str
        Hash of the content. Equal input, options and seed give the same hash in every container format.
    seconds : float
    skipped : int
        Number of rows dropped because they are malformed.
    repaired : int
        Number of rows whose indices were sorted or whose duplicates were summed.
    first_errors : tuple of str
        Messages about the first five skipped rows.
    explicit_zeros : int
        Number of values dropped because they are zero or round to zero.
    qids : int
        Number of ``qid`` fields ignored.
    unseen_features : int
        Number of values dropped because `like` does not contain their feature.
    unseen_labels : int
        Number of rows whose label `like` does not contain; their code is -1.
    empty_rows : int
        Number of rows in the store without a non-zero value.
    unlabelled : int
        Number of rows dropped because they have no label.
    bytes_read : int
        Size of all inputs in bytes, before decompression.
    unseen_values : int
        Number of category values that `like` does not contain.
    missing_values : int
        Number of missing numbers in a table that were replaced, as specified by `missing`.
    notes : tuple of str
        Remarks about the input, for example about how columns became features.
    warnings : tuple of str
        Warnings about the labels.
    n_labels : int or None
        Total number of labels, if `multilabel` is True.
    n_groups : int or None
        Number of groups of rows, if `groups` is True.
    """

    path: Path
    n: int
    d: int
    nnz: int
    n_classes: int
    index_base: int | None
    fingerprint: str
    seconds: float
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
        hidden = ("fingerprint", "bytes_read", "index_base")
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: facts[name] for name in facts if name not in hidden and (facts[name] or name in always)}


@takes(declared(ConvertSettings), after="out")
def convert(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    force: bool = False,
    progress: bool | Progress | None = None,
    **settings: Any,
) -> ConvertReport:
    """Convert files to a store in bounded memory.

    All inputs must be of the same kind, and are read one after another. The kind is detected from the content
    of a file, and for kinds of text that look alike, from its suffix. LIBSVM text is read once. Tables are
    read twice if they have categories, or if `missing` is "mean" or "indicator". A dense matrix becomes a
    dense store if most values are non-zero and it has at most 2**18 features. All other data becomes CSR.

    The classes and the number of features are known only at the end of the input. Until then, rows are kept
    in a hidden folder next to `out`, or in memory if there are only a few. The store is written in this
    folder, and moved to `out` once it is complete and durable. The disk needs free space for 8 bytes per
    value (12 for float64), 20 bytes per row, and the store itself. If a conversion fails, it leaves no files.
    If it is killed, it leaves no valid store, and the next conversion to `out` deletes its files.

    Parameters
    ----------
    inputs : sequence of path or "-"
        LIBSVM text, CSV, TSV or JSON lines, plain or compressed with gzip, bzip2 or zstd (LIBSVM text also
        with xz); Parquet; AnnData; ``.npz`` from SciPy or NumPy; ``.npy``; Parquet or Arrow with a column of
        lists of numbers. "-" reads LIBSVM text from standard input.
    out : path
        Path of the store. The suffix ``.zarr``, ``.h5`` or ``.h5ad`` determines the container format.
    **settings
        Settings declared in `ConvertSettings`.
    force : bool
        Whether to replace an existing store, which stays in place until the new store is complete.
    progress : bool or callable, optional
        Whether to show a progress bar, or a function as in `streamsvm.fit`. The stage "convert" counts bytes
        of the inputs; its total is None if their size is unknown. The stage "write" counts rows.

    Returns
    -------
    ConvertReport

    Raises
    ------
    InputError
        If an input is malformed (the message says where), cannot be read, or differs in kind from the first
        input; if a group of rows begins twice; or if an option contradicts the input or `like`.
    StoreError
        If `out` exists and `force` is False, if it cannot be written, or if the store `like` cannot be read.
    ModelError
        If `like` is a run or a model that cannot be read.
    PlanError
        If `memory` is too small; `needed_memory` is a sufficient amount in bytes, or None if it is unknown.
    SettingsError
        If a setting is not valid, or does not apply to this kind of file.
    """
    from streamsvm_converters.external_shuffle import ExternalShuffle
    from streamsvm_converters.kinds.options import ReadOptions
    from streamsvm_converters.kinds.registry import open_reader
    from streamsvm_converters.label_codes import duplicate_warnings
    from streamsvm_converters.waiting_rows import WaitingRows

    from streamsvm.base.prefetch import Prefetcher
    from streamsvm.inputs.schema import read_schema
    from streamsvm.store import Contents, StoreWriter, layout, store_kind
    from streamsvm.store.addresses import copy_address

    checked = ConvertSettings(**settings)
    start_time = time.monotonic()
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    check_local(out, StoreError)
    out = Path(out)
    store_kind(out)  # raises StoreError for an unknown suffix
    memory, weights, dtype = checked.memory, checked.weights, checked.dtype
    chunk_nnz, seed = checked.chunk_nnz or CHUNK_NNZ, checked.seed if checked.shuffle else None
    _check_memory(memory, chunk_nnz)
    threads = checked.threads or count_workers(None)
    paths_read = [*inputs, *(path for path in (weights, checked.labels) if path is not None)]
    _check_distinct(paths_read, out)
    if weights is not None and sum(str(path) == "-" for path in paths_read) > 1:
        raise InputError("standard input (-) is used twice; put the weights into a file")
    schema = None if checked.like is None else read_schema(checked.like)
    options = ReadOptions(**vars(checked) | {"like": schema, "threads": threads})

    if not out.parent.is_dir():
        raise StoreError(f"{out}: the folder {out.parent} does not exist; create it first")
    with (
        durable.os_errors_as(StoreError, out, "written"),
        durable.temporary(out, folder=True) as staging,
        shown(progress) as report,
    ):
        _check_out(out, force)
        inputs = [copy_address(path, checked.cache or staging, report) for path in inputs]
        reader = open_reader(inputs, options, folder=staging, progress=partial(report, "convert"))
        present = {"cost": weights, "qid": checked.groups, "hold_out_by": checked.hold_out_by}
        columns = [name for name in (*present, "label_codes") if present.get(name, checked.multilabel)]
        waiting = WaitingRows(staging, np.dtype(dtype), seed, memory // _BUCKET_FRACTION, columns)
        shuffled = ExternalShuffle(waiting, expected=reader.expected_bytes)
        with shuffled:
            sources = _read_all(reader, shuffled)
        counts = reader.counts
        if counts.rows == 0:
            why = ""
            if counts.skipped:
                why = f"; rows skipped: {counts.skipped:,}, first error: {counts.first_errors[0]}"
            if getattr(counts, "unlabelled", 0):
                why += f"; {counts.unlabelled:,} rows have no label"
            shown_inputs = ", ".join(map(str, inputs[:3])) + ", ..." * (len(inputs) > 3)
            raise InputError(f"{shown_inputs}: the input has no usable rows{why}")
        if checked.multilabel and not shuffled.n_labels:
            raise InputError("no row of the input has a label; begin each line with its labels")
        features = reader.features()
        classes: Sequence[str]
        codes = None
        warnings: list[str] = []
        if schema is None:
            learned = reader.labels()
            order = class_order(learned)
            classes, label_dtype = [learned[code] for code in order], reader.label_dtype
            warnings = duplicate_warnings(classes) if reader.options.labels_as != "text" else []
            if len(classes) == 1 and not checked.multilabel:
                warnings.append(f"all rows have the label {classes[0]!r}, so there is nothing to learn")
            codes = np.full(len(order) + 1, UNSEEN_LABEL, LABEL_DTYPE)
            codes[order] = np.arange(len(order), dtype=LABEL_DTYPE)
        else:
            classes = schema.classes
            as_text = schema.label_dtype in (TEXT, OBJECT)  # otherwise int64, if all are whole numbers
            label_dtype = TEXT if as_text else dtype_of_names(classes)

        new_store = staging / out.name
        width = features.width
        _check_memory(memory, width if reader.dense else 0)
        batches: Iterator[Rows] = shuffled.drain(features.shift, index_dtype(width))
        contents: Contents = decode(Contents, {
            "n": counts.rows, "d": width, "nnz": counts.nnz,
            "n_classes": len(classes), "dtype": dtype, "index_base": features.index_base,
            "chunk_nnz": chunk_nnz, "codec": checked.codec,
            "columns": [layout.COLUMNS[name] for name in columns], "n_labels": shuffled.n_labels,
            "label_dtype": label_dtype, "feature_names": features.names is not None,
            "statistics": BYTES_PER_FEATURE["moments"] * width <= memory // _STATISTICS_FRACTION,
            "encoding": features.encoding, "dense": reader.dense,
        })  # fmt: skip
        meta = {
            "sources": encode(sources), "shuffle_seed": seed,
            "label": reader.options.label, "hold_out_by": checked.hold_out_by,
            "labels_as": reader.options.labels_as,
            ANNDATA: reader.options.format == "anndata" and checked.obsm is None,
        }  # fmt: skip
        names = features.names
        with contextlib.ExitStack() as stack:
            writer = stack.enter_context(
                StoreWriter(new_store, contents, classes, feature_names=names, meta=meta, threads=threads)
            )
            if threads > 1:
                batches = stack.enter_context(Prefetcher(batches))
            written = 0
            for rows in batches:
                writer.append(rows if codes is None else recode(rows, codes), rows.numbers)
                written += rows.n_rows
                report("write", written, counts.rows)
            fingerprint = writer.finish()
        _check_out(out, force)
        durable.move_into_place(new_store, out, staging / durable.PREVIOUS)

    statistics = dataclasses.asdict(counts)
    del statistics["rows"]
    result = ConvertReport(
        path=out,
        n=counts.rows,
        d=width,
        n_classes=len(classes),
        index_base=features.index_base,
        fingerprint=fingerprint,
        seconds=max(time.monotonic() - start_time, 0.0),
        warnings=tuple(warnings),
        n_labels=shuffled.n_labels if checked.multilabel else None,
        n_groups=reader.n_groups,
        notes=tuple(reader.notes),
        **statistics | {"first_errors": tuple(counts.first_errors)},
    )
    for warning in result.warnings:
        logger.warning("%s", warning)
    logger.info("%r", result)
    return result


def _read_all(reader: Reader, shuffled: ExternalShuffle) -> list[InputFile]:
    from streamsvm_converters.libsvm.line_file import GROUP, WEIGHT, LineFile

    options = reader.options
    with contextlib.ExitStack() as stack:
        by = options.hold_out_by if options.format == "libsvm" else None
        arguments = {"cost": (options.weights, WEIGHT), "hold_out_by": (by, GROUP)}
        files = {name: LineFile(*argument) for name, argument in arguments.items() if argument[0] is not None}
        for file in files.values():
            stack.enter_context(file)
        for rows, numbers in reader:
            columns = {name: file.at(numbers) for name, file in files.items()}
            shuffled.append(rows._replace(**columns), numbers)
        counts = reader.counts
        n_rows = counts.rows + counts.skipped + getattr(counts, "unlabelled", 0)
        return [*reader.sources, *(file.finish(n_rows) for file in files.values())]


def _check_memory(memory: int, chunk: int) -> None:
    if memory < _CHUNK_FACTOR * chunk:
        raise PlanError(
            f"a memory budget of {memory} bytes is too small to write chunks of {chunk} values",
            needed_memory=_CHUNK_FACTOR * chunk,
        )


def _check_distinct(inputs: Sequence[str | Path], out: Path) -> None:
    for path in inputs:
        resolved = Path(path).resolve()
        if str(path) != "-" and out.resolve() in (resolved, *resolved.parents):
            raise InputError(f"{path} is both input and output; choose a different output")


def _check_out(out: Path, force: bool) -> None:
    if out.is_dir() and not (out / "zarr.json").exists():
        raise StoreError(f"{out} is a folder but not a Zarr store, so it is not replaced; use another path")
    durable.check_replaceable(out, StoreError, force=force, folder=True)
