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
    seconds : float
        Time taken.
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
        LIBSVM text, CSV, TSV or JSON lines, plain or compressed by gzip, bzip2, zstd or, for LIBSVM text
        alone, xz; Parquet; AnnData;
        ``.npz`` of SciPy or NumPy, or ``.npy``; a column of lists of numbers in Parquet or Arrow. "-" is
        standard input, with LIBSVM text.
    out : path
        The store to write. The suffix ``.zarr``, ``.h5`` or ``.h5ad`` determines the container.
    **settings
        As `ConvertSettings` declares them.
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
        If `out` exists or cannot be written, or if the store `like` cannot be read.
    ModelError
        If `like` is a run or a model that cannot be read.
    PlanError
        If `memory` is too small; `needed_memory` says what would be enough. `SettingsError` if a setting is
        not valid, or does not apply to this kind of file.
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

    asked = ConvertSettings(**settings)
    began = time.monotonic()
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    check_local(out, StoreError)
    out = Path(out)
    store_kind(out)  # or the name is refused
    memory, weights, dtype = asked.memory, asked.weights, asked.dtype
    chunk_nnz, seed = asked.chunk_nnz or CHUNK_NNZ, asked.seed if asked.shuffle else None
    _check_memory(memory, chunk_nnz)
    threads = asked.threads or count_workers(None)
    read = [*inputs, *(path for path in (weights, asked.labels) if path is not None)]
    _check_distinct(read, out)
    if weights is not None and sum(str(path) == "-" for path in read) > 1:
        raise InputError("standard input (-) is given for rows and for weights; it can be read only once")
    schema = None if asked.like is None else read_schema(asked.like)
    options = ReadOptions(**vars(asked) | {"like": schema, "threads": threads})

    if not out.parent.is_dir():
        raise StoreError(f"{out}: the folder {out.parent} does not exist; create it first")
    with (
        durable.os_errors_as(StoreError, out, "written"),
        durable.temporary(out, folder=True) as staging,
        shown(progress) as report,
    ):
        _check_out(out, force)
        inputs = [copy_address(path, asked.cache or staging, report) for path in inputs]
        reader = open_reader(inputs, options, folder=staging, progress=partial(report, "convert"))
        present = {"cost": weights, "qid": asked.groups, "hold_out_by": asked.hold_out_by}
        columns = [name for name in (*present, "label_codes") if present.get(name, asked.multilabel)]
        waiting = WaitingRows(staging, np.dtype(dtype), seed, memory // _BUCKET_FRACTION, columns)
        shuffled = ExternalShuffle(waiting, expected=reader.expected_bytes)
        with shuffled:
            sources = _read_all(reader, shuffled)
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
        contents: Contents = decode(Contents, {
            "n": counts.rows, "d": width, "nnz": counts.nnz,
            "n_classes": len(classes), "dtype": dtype, "index_base": features.index_base,
            "chunk_nnz": chunk_nnz, "codec": asked.codec,
            "columns": [layout.COLUMNS[name] for name in columns], "n_labels": shuffled.n_labels,
            "label_dtype": label_dtype, "feature_names": features.names is not None,
            "statistics": BYTES_PER_FEATURE["moments"] * width <= memory // _STATISTICS_FRACTION,
            "encoding": features.encoding, "dense": reader.dense,
        })  # fmt: skip
        meta = {
            "sources": encode(sources), "shuffle_seed": seed,
            "label": reader.options.label, "hold_out_by": asked.hold_out_by,
            "labels_as": reader.options.labels_as,
            ANNDATA: reader.options.format == "anndata" and asked.obsm is None,
        }  # fmt: skip
        names = features.names
        with contextlib.ExitStack() as stack:
            writer = stack.enter_context(
                StoreWriter(made, contents, classes, feature_names=names, meta=meta, threads=threads)
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
        durable.move_into_place(made, out, staging / durable.PREVIOUS)

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


def _read_all(reader: Reader, shuffled: ExternalShuffle) -> list[InputFile]:
    """Append all rows to `shuffled`, with what files have of each in a line; return the files read."""
    from streamsvm_converters.libsvm.line_file import GROUP, WEIGHT, LineFile

    options = reader.options
    with contextlib.ExitStack() as stack:
        by = options.hold_out_by if options.format == "libsvm" else None
        given = {"cost": (options.weights, WEIGHT), "hold_out_by": (by, GROUP)}
        files = {name: LineFile(*each) for name, each in given.items() if each[0] is not None}
        for file in files.values():
            stack.enter_context(file)
        for rows, numbers in reader:
            columns = {name: file.at(numbers) for name, file in files.items()}
            shuffled.append(rows._replace(**columns), numbers)
        counts = reader.counts
        n_rows = counts.rows + counts.skipped + getattr(counts, "unlabelled", 0)
        return [*reader.sources, *(file.finish(n_rows) for file in files.values())]


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


def _check_out(out: Path, force: bool) -> None:
    """Raise `StoreError` if something is at `out` that may not be replaced."""
    if out.is_dir() and not (out / "zarr.json").exists():
        raise StoreError(f"{out} is a folder but not a Zarr store, and is not replaced; choose another name")
    durable.check_replaceable(out, StoreError, force=force, folder=True)
