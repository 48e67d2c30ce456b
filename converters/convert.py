"""LIBSVM text to a store: read everything once, spool it, then write it shuffled."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.durable import reason
from streamsvm.errors import InputError, PlanError, StoreError
from streamsvm.format import CHUNK_NNZ, LABEL_DTYPE, index_dtype
from streamsvm.text import check_local, parse_size

if TYPE_CHECKING:
    from streamsvm_converters.libsvm import LibsvmReader

# Bytes of memory for each value of a chunk: values and indices, being filled and being compressed.
_CHUNK_FACTOR = 128
# The share of the memory that a bucket of the spool may take; one more is loaded while it is in use.
_BUCKET_FACTOR = 8


@dataclass(frozen=True)
class ConvertReport:
    """What a conversion did.

    Attributes
    ----------
    path : Path
    n, d, nnz, n_classes : int
        Rows, features, values and classes of the store.
    index_base : int
        Index of the first feature in the text: 0 or 1.
    fingerprint : str
        Of the content; equal for equal input, options and seed, whatever the container.
    seconds, decompress_seconds : float
        In all, and of it in decompressing the text, which is one thread's work.
    skipped, repaired : int
        Rows dropped, and rows sorted or summed.
    first_errors : tuple of str
        Why the first five of them were dropped.
    explicit_zeros, qids : int
        Values dropped because they are zero in the dtype; ``qid`` fields ignored.
    unseen_features, unseen_labels : int
        With `like`: values dropped and rows kept with label -1.
    empty_rows : int
        Rows of the store without a value.
    bytes_read : int
        Bytes of all inputs as stored.
    warnings : tuple of str
        What is odd about the labels.
    """

    path: Path
    n: int
    d: int
    nnz: int
    n_classes: int
    index_base: int
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


def convert(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    index_base: str | int = "auto",
    n_features: int | None = None,
    dtype: str = "float32",
    shuffle: bool = True,
    seed: int = 0,
    memory: int | str = 2**30,
    threads: int | None = None,
    codec: str = "fast",
    chunk_nnz: int | None = None,
    like: str | Path | None = None,
    unseen_label: str = "error",
    on_error: str = "raise",
    force: bool = False,
    progress: Callable[[int, int | None, int], None] | None = None,
) -> ConvertReport:
    """Convert LIBSVM text to a store, in bounded memory.

    The text is read once and spooled to a work folder beside `out`, since classes, width and
    index base are known only at its end; the store is then written there and renamed to `out`
    when it is complete and durable. The folder needs free space for the spool, 8 bytes a value
    (12 in float64) and 20 a row, and meanwhile the store itself. A conversion that fails leaves
    nothing; what a killed one leaves is no store, and goes with the next conversion to `out`.

    Parameters
    ----------
    inputs : sequence of path or "-"
        Read one after another; plain or compressed by gzip, bzip2, xz or zstd.
    out : path
        ``.zarr``, ``.h5`` or ``.h5ad`` decides the container.
    index_base : {"auto", 0, 1}
        Index of the first feature. "auto" is 0 if any row kept has an index 0, else 1; explicit
        zeros count. With `like`, that of its data, and giving another is an error.
    n_features : int, optional
        Width of the store; by default up to the largest index met. Too small is an error.
    dtype : {"float32", "float64"}
        Of the values; they are rounded to it once.
    shuffle : bool
        Put rows in an order that depends on `seed` and their number alone; else keep theirs.
    seed : int
    memory : int or str
        Bytes ("500M", "2G") this may take beyond the interpreter itself and, of compressed text, the
        decoder's window, which is 128 MB at most.
    threads : int, optional
        Threads that work at a time, by default as many as there are processors. The store does not
        depend on them.
    codec : {"fast", "small", "none"}
    chunk_nnz : int, optional
        Non-zeros a chunk of the store.
    like : path, optional
        A store, run or model whose classes, index base and width to use, as for test data: features
        beyond its width are dropped and counted. Of a model that hashes features, the classes.
    unseen_label : {"error", "keep"}
        With `like`: refuse labels that are not among the classes, or keep the rows with label -1.
    on_error : {"raise", "skip", "fix"}
        Malformed rows end the conversion, or are dropped and counted; "fix" also sorts unsorted
        rows and sums duplicate indices (in float64) instead of dropping them.
    force : bool
        Replace an existing store. It stays in place until the new one is complete.
    progress : callable, optional
        Called as progress(bytes read, bytes of all inputs or None, rows) after each block.

    Returns
    -------
    ConvertReport

    Raises
    ------
    InputError
        For text that cannot be understood; the message has file, line, column and token.
    StoreError
        If `out` exists, is being written by another process or cannot be written, or the store
        `like` cannot be read.
    ModelError
        If `like` is a run or a model that cannot be read.
    PlanError
        If `memory` is too small; the message says what would do. `SettingsError` if it is no size.
    """
    from streamsvm_converters.ahead import run_ahead
    from streamsvm_converters.inputs import plain_size
    from streamsvm_converters.labels import class_order, same_number
    from streamsvm_converters.libsvm import LibsvmReader
    from streamsvm_converters.spool import Spool
    from streamsvm_converters.workplace import publish, workplace

    from streamsvm.data.rows import Rows
    from streamsvm.data.schema import read_like
    from streamsvm.store import StoreWriter, store_kind

    began = time.monotonic()
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    memory = parse_size(memory)
    check_local(out, StoreError)
    out = Path(out)
    kind = store_kind(out)
    chunk_nnz = CHUNK_NNZ if chunk_nnz is None else chunk_nnz
    if index_base not in ("auto", 0, 1):
        raise ValueError(f"index_base is auto, 0 or 1, not {index_base!r}")
    if n_features is not None and not 0 < n_features < 2**62:
        raise InputError(f"the number of features is 1 to 2**62 - 1, not {n_features}")
    if memory < _CHUNK_FACTOR * chunk_nnz:
        raise PlanError(
            f"a memory of {memory} bytes is too small to write chunks of {chunk_nnz} values; "
            f"--memory {_CHUNK_FACTOR * chunk_nnz} would do"
        )
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise ValueError(f"threads is 1 or more, not {threads}")
    _check_distinct(inputs, out)
    classes: Sequence[str] | None = None
    last_index = None
    if like is not None:
        theirs = read_like(like)
        classes = theirs.classes
        if not theirs.hash:
            index_base = theirs.base(None if index_base == "auto" else int(index_base))
            if n_features not in (None, theirs.n_features):
                raise InputError(f"{n_features} features contradict {like}, which has {theirs.n_features}")
            n_features = theirs.n_features
            last_index = n_features - 1 + index_base

    with _writing(out), workplace(out, force) as work:
        reader = LibsvmReader(
            inputs,
            dtype=dtype,
            lowest_index=1 if index_base == 1 else 0,
            last_index=last_index,
            classes=classes,
            unseen_label=unseen_label,
            on_error=on_error,
            memory=memory,
            threads=threads,
            progress=progress,
        )
        text = plain_size(inputs)
        spool = Spool(
            work,
            np.dtype(dtype),
            seed if shuffle else None,
            memory // _BUCKET_FACTOR,
            expected=text,  # about: most pairs are longer than the 8 bytes they make
        )
        with spool:
            for batch in reader:
                spool.append(batch)
        counts = reader.counts
        if counts.rows == 0:
            first = f"; all {counts.skipped} were skipped: {counts.first_errors[0]}" if counts.skipped else ""
            raise InputError(f"the input has no rows{first}")
        base, width = _frame(reader, index_base, n_features, last_index)
        codes = None
        warnings: list[str] = []
        if classes is None:
            texts = reader.labels.texts()
            order = class_order(texts)
            classes = [texts[code] for code in order]
            warnings = same_number(classes)
            codes = np.empty(len(order), dtype=LABEL_DTYPE)
            codes[order] = np.arange(len(order), dtype=LABEL_DTYPE)

        made = work / out.name
        with StoreWriter(
            made,
            kind,
            shape=(counts.rows, width),
            nnz=counts.nnz,
            classes=classes,
            dtype=dtype,
            index_base=base,
            codec=codec,
            chunk_nnz=chunk_nnz,
            threads=threads,
            meta={"sources": reader.sources, "shuffle_seed": seed if shuffle else None},
        ) as writer:
            for batch in run_ahead(spool.drain(base, index_dtype(width)), threads):
                labels = batch.labels if codes is None else codes[batch.labels]
                rows = Rows(batch.data, batch.indices, batch.indptr, labels, batch.norm2)
                writer.append(rows, batch.numbers)
            fingerprint = writer.finish()
        publish(made, out)

    return ConvertReport(
        path=out,
        n=counts.rows,
        d=width,
        nnz=counts.nnz,
        n_classes=len(classes),
        index_base=base,
        fingerprint=fingerprint,
        seconds=max(time.monotonic() - began, 0.0),
        decompress_seconds=reader.decoding,
        skipped=counts.skipped,
        repaired=counts.repaired,
        first_errors=tuple(counts.first_errors),
        explicit_zeros=counts.explicit_zeros,
        qids=counts.qids,
        unseen_features=counts.unseen_features,
        unseen_labels=counts.unseen_labels,
        empty_rows=counts.empty_rows,
        bytes_read=counts.bytes_read,
        warnings=tuple(warnings),
    )


def _frame(
    reader: LibsvmReader, index_base: str | int, n_features: int | None, last_index: int | None
) -> tuple[int, int]:
    """Index base and width, from the options and all that was read."""
    if last_index is not None and n_features is not None:  # features beyond were dropped
        return int(index_base), n_features
    base = int(index_base) if index_base != "auto" else 0 if reader.smallest == 0 else 1
    width = reader.largest - base + 1
    if n_features is not None and width > n_features:
        raise InputError(
            f"{reader.largest_at} has index {reader.largest}, the largest of the input: with indices from "
            f"{base} that makes {width} features, more than the {n_features} asked for"
        )
    if n_features is None and reader.largest < 0:
        raise InputError("no row of the input has a feature; give the number of features if that is meant")
    return base, width if n_features is None else n_features


def _check_distinct(inputs: Sequence[str | Path], out: Path) -> None:
    """Refuse an input that is the output, or lies in it."""
    for path in inputs:
        resolved = Path(path).resolve()
        if str(path) != "-" and out.resolve() in (resolved, *resolved.parents):
            raise InputError(f"{path} is input and output at once; write the store elsewhere")


@contextlib.contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Report what the system refuses, a full disk for one, as an error about `out`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {reason(error)}") from error
