"""LIBSVM text, from any number of inputs, as batches of CSR rows; malformed rows by policy."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from streamsvm_converters import faults, kernels
from streamsvm_converters.inputs import Input, total_size
from streamsvm_converters.labels import LabelTable, number
from streamsvm_converters.words import MARGIN

from streamsvm.errors import InputError, PlanError

Progress = Callable[[int, int | None, int], None]

ON_ERROR = ("raise", "skip", "fix")
UNSEEN_LABEL = ("error", "keep")
DTYPES = ("float32", "float64")

# Bytes of text parsed at once, where memory allows: large enough to amortise Python's part, small
# enough for what is parsed of them to stay in the processor's cache.
_BLOCK = 2**20
# Bytes of memory a byte of text may take on its way: in blocks of many short lines (mostly what is
# kept a row), and in one long line.
_BLOCK_FACTOR = 32
_LINE_FACTOR = 24
_FIRST_ERRORS = 5
_TOKEN = re.compile(rb"[^ \t\r\n#]+")
_BOM = b"\xef\xbb\xbf"


@dataclass
class Counts:
    """What was met on the way; filled as batches are drawn.

    Attributes
    ----------
    rows : int
        Rows yielded.
    skipped, repaired : int
        Rows dropped by ``on_error`` "skip" or "fix"; rows sorted or summed by "fix".
    first_errors : list of str
        Messages of the first five rows skipped.
    nnz, explicit_zeros, empty_rows, qids : int
        Values kept; values dropped because they are zero in the dtype; rows left without a value;
        ``qid`` fields ignored.
    unseen_features, unseen_labels : int
        Values dropped because training did not know the feature; rows whose label it did not know.
    bytes_read : int
        Bytes of all inputs as stored.
    """

    rows: int = 0
    skipped: int = 0
    repaired: int = 0
    first_errors: list[str] = field(default_factory=list)
    nnz: int = 0
    explicit_zeros: int = 0
    empty_rows: int = 0
    qids: int = 0
    unseen_features: int = 0
    unseen_labels: int = 0
    bytes_read: int = 0


class Place(NamedTuple):
    """A place in the inputs, between two lines.

    `text` and `line` count bytes of decoded text and lines of the input number `source`, `row` the
    rows of all inputs; `sha256` is that of the text before it.
    """

    source: int = 0
    text: int = 0
    line: int = 0
    row: int = 0
    sha256: str = hashlib.sha256().hexdigest()


class Batch(NamedTuple):
    """Rows as read: indices as written (int32, or int64 where one is larger), labels as codes.

    The codes are those of the reader's `LabelTable`.
    `numbers` counts the rows of all inputs from 0, skipped ones included, so that a row has the
    same number whatever ``on_error`` is.
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    labels: np.ndarray
    norm2: np.ndarray
    numbers: np.ndarray


_ROW_FIELDS = ("begin", "end", "line", "line_at", "label_at", "label_end", "fault_at", "qids")


class _Scratch:
    """Room for `size` bytes of text, and for what is parsed of it: any line, and many rows."""

    def __init__(self, size: int, block: int) -> None:
        values, rows = size // 4 + 1, block // 8 + 1  # "1:1 " takes four bytes
        wide = np.int64
        self.size = size
        self.buffer = bytearray(size + MARGIN)
        self.text = np.frombuffer(self.buffer, dtype=np.uint8)
        self.parsed = kernels.Parsed(
            indices=np.empty(values, wide),
            values=np.empty(values, np.float64),
            hard_slot=np.empty(values, wide),
            hard_at=np.empty(values, wide),
            fault=np.empty(rows, np.uint8),
            untidy=np.empty(rows, np.bool_),
            **{name: np.empty(rows, wide) for name in _ROW_FIELDS},
        )


class _LongLine(Exception):
    """A line that has more bytes than memory allows: number and name of its input, and length."""


class _Block(NamedTuple):
    """Whole lines of text: `scratch.text[at:cut]`, of which the first `real` bytes are the input's own."""

    scratch: _Scratch
    at: int
    cut: int
    real: int
    input: int
    offset: int  # of the scratch, in the input's text
    name: str
    bytes_read: int  # of all inputs, as stored, once this is done


class _Round(NamedTuple):
    """What was parsed of a block, up to `at`: see the kernels `parse`, `repair` and `settle`."""

    at: int
    lines: int
    n_rows: int
    repaired: int
    qids: int
    zeros: int
    unseen: int
    smallest: int
    largest: int
    largest_row: int
    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    norm2: np.ndarray


def check_options(dtype: str, on_error: str, unseen_label: str) -> None:
    """Raise `ValueError` unless each is among its choices."""
    for name, value, choices in (
        ("dtype", dtype, DTYPES),
        ("on_error", on_error, ON_ERROR),
        ("unseen_label", unseen_label, UNSEEN_LABEL),
    ):
        if value not in choices:
            raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")


class LibsvmReader:
    """Iterate once over the rows of LIBSVM text.

    Parameters
    ----------
    inputs : sequence of path or "-"
    dtype : {"float32", "float64"}
    lowest_index : {0, 1}
        Indices below are errors.
    last_index : int, optional
        Features beyond are dropped and counted.
    classes : sequence of str, optional
        The labels known; without, every label is learned.
    unseen_label : {"error", "keep"}
        With `classes`: whether an unknown label is an error, whatever `on_error` says, or coded -1.
    on_error : {"raise", "skip", "fix"}
    memory : int
        Bytes that reading may take, labels included.
    share : int, optional
        Reading takes one of so many equal parts of `memory`; messages speak of the whole.
    options : bool
        Whether messages offer options of the command line, such as ``--on-error skip``.
    threads : int
        Blocks of text parsed at a time, beside the thread that reads them and takes the rows.
    progress : callable, optional
        Called as progress(bytes read, bytes of all inputs or None, rows) after each block.
    start : Place, optional
        Where to begin, with one thread; the text of the input before it must be the same. To begin
        at ``Place()`` has positions kept. Then the rows in a pipe are not kept waiting for others.

    Attributes
    ----------
    counts : Counts
    labels : LabelTable
    smallest, largest : int
        Indices met in the rows kept, explicit zeros included; `largest` is -1 if there were none.
    largest_at : str
        Where the largest was, for messages.
    decoding : float
        Seconds spent decompressing the inputs read to their end.
    sources : list of dict
        Name, size and SHA-256 of each input read to its end.
    place : Place
        Behind the last batch drawn, if a `start` was given.
    """

    def __init__(
        self,
        inputs: Sequence[str | Path],
        *,
        dtype: str,
        lowest_index: int,
        last_index: int | None = None,
        classes: Sequence[str] | None = None,
        unseen_label: str = "error",
        on_error: str,
        memory: int,
        share: int = 1,
        options: bool = True,
        threads: int = 1,
        progress: Progress | None = None,
        start: Place | None = None,
    ) -> None:
        check_options(dtype, on_error, unseen_label)
        if start is not None and threads > 1:
            raise ValueError("positions are kept by one thread only")
        if not inputs:
            raise InputError("no input; give files of LIBSVM text, or - for standard input")
        if sum(str(path) == "-" for path in inputs) > 1:
            raise InputError("standard input (-) is given twice; it can be read only once")
        self.counts = Counts()
        self.labels = LabelTable(classes)
        self.smallest, self.largest, self.largest_at = kernels.MAX_INDEX, -1, ""
        self.sources: list[dict[str, Any]] = []
        self.decoding = 0.0
        self._inputs = list(inputs)
        self._dtype = np.dtype(dtype)
        self._lowest = lowest_index
        self._last = kernels.MAX_INDEX if last_index is None else last_index
        self._classes = classes
        self._unseen_label = unseen_label
        self._on_error = on_error
        self._memory, self._share = memory, share
        self._options = options
        self._progress = progress
        self._total = total_size(self._inputs)
        # The midpoint between the largest number and the next power of two already rounds to infinity.
        self._too_large = 2.0**128 - 2.0**103 if dtype == "float32" else np.inf
        self._threads = threads
        in_work = threads + 3  # blocks in line or in use, one being filled, and what follows it
        self._block = max(256, min(_BLOCK, memory // (share * in_work * _BLOCK_FACTOR)))
        self._longest = max(self._block, memory // (share * _LINE_FACTOR))
        self._free: list[_Scratch] = []
        self._start = start
        self.place = start or Place()
        self._number = self.place.row  # of the next row
        self._input, self._line = self.place.source, self.place.line  # where that is
        self._sha256 = hashlib.sha256()  # of its text before that, if there is a `start`

    def __iter__(self) -> Iterator[Batch]:
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(self._threads)) if self._threads > 1 else None
            waiting: deque[tuple[_Block, Future[_Round]]] = deque()
            blocks, damage = self._blocks(), None
            while True:
                try:
                    block = next(blocks, None)
                except (InputError, _LongLine) as error:  # what comes before has its turn
                    block, damage = None, error
                if block and pool and block.scratch.size == self._block:
                    waiting.append((block, pool.submit(self._parse, block)))
                    if len(waiting) > self._threads:
                        yield from self._batches(*waiting.popleft())
                    continue
                while waiting:  # a long line has the memory for itself
                    yield from self._batches(*waiting.popleft())
                if block is None:
                    break
                yield from self._batches(block)
            if isinstance(damage, _LongLine):
                place, name, length = damage.args
                before = self._line if place == self._input else 0
                raise PlanError(
                    f"{name}, line {before + 1} has {length} bytes, too many for a memory of "
                    f"{self._memory}; --memory {self._share * _LINE_FACTOR * (length + 1)} would do"
                )
            if damage:
                raise damage

    def _blocks(self) -> Iterator[_Block]:
        """The text of all inputs, in blocks of whole lines."""
        before = self.counts.bytes_read  # of the inputs that have ended
        for place, path in enumerate(self._inputs[self.place.source :], self.place.source):
            with Input(path, hashes_text=self._start is None) as source:
                scratch = self._room_for(0)
                held = offset = 0
                begun = ended = False
                self._sha256 = hashlib.sha256()
                if self._start is not None and place == self._start.source:
                    self._skip(source)
                    offset, begun = self._start.text, self._start.text > 0
                while not ended:
                    buffer = scratch.buffer
                    count = source.readinto(memoryview(buffer)[held : scratch.size])
                    ended = count == 0
                    held += count
                    real = held
                    if ended and held and buffer[held - 1] != kernels.NEWLINE:
                        buffer[held] = kernels.NEWLINE  # into the margin
                        held += 1
                    room = held < scratch.size and not ended
                    if room and not (self._start is not None and source.is_dry()):
                        continue
                    cut = buffer.rfind(b"\n", 0, held) + 1
                    if not cut and room:
                        continue
                    if not cut and not ended:
                        scratch = self._grown(scratch, source, place)
                        continue
                    at = len(_BOM) if not begun and buffer.startswith(_BOM) else 0
                    begun = True
                    rest = self._room_for(held - cut)
                    rest.buffer[: held - cut] = memoryview(buffer)[cut:held]
                    yield _Block(scratch, at, cut, real, place, offset, source.name, before + source.size)
                    scratch, held, offset = rest, held - cut, offset + cut
                self._free.append(scratch)
                self.sources.append(source.record(self._sha256))
                self.decoding += source.decoding
                before += source.size

    def _skip(self, source: Input) -> None:
        """Read the text before the start; `InputError` unless it is what it was."""
        assert self._start is not None
        space = memoryview(bytearray(self._block))
        left = self._start.text
        while left and (count := source.readinto(space[:left])):
            self._sha256.update(space[:count])
            left -= count
        if left or self._sha256.hexdigest() != self._start.sha256:
            raise InputError(
                f"{source.name} has changed in its first {self._start.line:,} lines, learned from before; "
                "bring the old one back, or begin anew"
            )

    def _room_for(self, size: int) -> _Scratch:
        """A scratch that holds more than `size` bytes."""
        if size >= self._block:
            return _Scratch(min(2 * size, self._longest), self._block)
        return self._free.pop() if self._free else _Scratch(self._block, self._block)

    def _grown(self, scratch: _Scratch, source: Input, place: int) -> _Scratch:
        """A larger scratch for a line that fills this one, within memory."""
        if scratch.size == self._longest:
            length = scratch.size
            rest = bytearray(2**16)
            while count := source.readinto(memoryview(rest)):
                end = rest.find(b"\n", 0, count)
                length += count if end < 0 else end
                if end >= 0:
                    break
            raise _LongLine(place, source.name, length)
        larger = self._room_for(scratch.size)
        larger.buffer[: scratch.size] = memoryview(scratch.buffer)[: scratch.size]
        return larger

    def _parse(self, block: _Block) -> _Round:
        """As many rows of the block as its scratch has room for. Runs beside the rest."""
        parsed, buffer = block.scratch.parsed, block.scratch.buffer
        fix = self._on_error == "fix"
        at, lines, n_rows, hard = kernels.parse(
            block.scratch.text, block.at, block.cut, self._lowest, self._too_large, fix, parsed
        )
        self._finish_hard(parsed, buffer, hard, n_rows)
        repaired = 0
        if fix and parsed.untidy[:n_rows].any():
            repaired = kernels.repair(parsed, n_rows, self._too_large)
        size = int(parsed.end[n_rows - 1]) if n_rows else 0
        data, indices = np.empty(size, self._dtype), np.empty(size, np.int32)
        indptr, norm2 = np.empty(n_rows + 1, np.int64), np.empty(n_rows, np.float64)
        met = kernels.settle(parsed, n_rows, self._last, data, indices, indptr, norm2)
        if min(met[4], self._last) > np.iinfo(np.int32).max:
            indices = np.empty(size, np.int64)
            met = kernels.settle(parsed, n_rows, self._last, data, indices, indptr, norm2)
        return _Round(at, lines, n_rows, repaired, *met, data, indices, indptr, norm2)  # type: ignore[call-arg]

    def _batches(self, block: _Block, future: Future[_Round] | None = None) -> Iterator[Batch]:
        """The rows of a block, in rounds if they are many; the first may be on its way."""
        if block.input != self._input:
            self._input, self._line = block.input, 0
        hashed = 0
        while block.at < block.cut:
            done = self._parse(block) if future is None else future.result()
            future = None
            batch = self._batch(block, done) if done.n_rows else None
            self._line += done.lines
            if self._start is not None:
                end = min(done.at, block.real)
                self._sha256.update(block.scratch.text[hashed:end].data)
                hashed = end
                digest = self._sha256.hexdigest()
                self.place = Place(block.input, block.offset + end, self._line, self._number, digest)
            if batch is not None:
                yield batch
            block = block._replace(at=done.at)
        if block.scratch.size == self._block:
            self._free.append(block.scratch)
        self.counts.bytes_read = block.bytes_read
        if self._progress:
            self._progress(self.counts.bytes_read, self._total, self.counts.rows)

    def _batch(self, block: _Block, done: _Round) -> Batch | None:
        """The faultless rows of a round, counted and labelled; None if there are none."""
        counts, n_rows = self.counts, done.n_rows
        counts.qids += done.qids
        counts.repaired += done.repaired
        counts.explicit_zeros += done.zeros
        counts.unseen_features += done.unseen
        self.smallest = min(self.smallest, done.smallest)
        if done.largest > self.largest:
            self.largest = done.largest
            self.largest_at = self._where(block, done.largest_row)
        kept = self._judge(block, n_rows)
        labels = self._code(block, n_rows)[kept]
        n_kept = len(kept)
        numbers = self._number + kept
        self._number += n_rows
        if n_kept == 0:
            return None
        indptr = done.indptr[: n_kept + 1]
        size = int(indptr[-1])
        counts.rows += n_kept
        counts.nnz += size
        counts.empty_rows += int(np.count_nonzero(np.diff(indptr) == 0))
        return Batch(done.data[:size], done.indices[:size], indptr, labels, done.norm2[:n_kept], numbers)

    def _finish_hard(self, parsed: kernels.Parsed, buffer: bytearray, hard: int, n_rows: int) -> None:
        """Let Python's float() read the numbers that the kernel was not certain of."""
        for slot, at in zip(parsed.hard_slot[:hard].tolist(), parsed.hard_at[:hard].tolist(), strict=True):
            found = _TOKEN.match(buffer, at)
            value = float(found.group())  # type: ignore[union-attr]  # the kernel saw a token there
            parsed.values[slot] = value
            row = int(np.searchsorted(parsed.end[:n_rows], slot, "right"))
            if abs(value) >= self._too_large and parsed.fault[row] == kernels.OK:
                while buffer[at - 1] not in b" \t":  # back to where its pair starts
                    at -= 1
                parsed.fault[row], parsed.fault_at[row] = kernels.VALUE_LARGE, at

    def _judge(self, block: _Block, n_rows: int) -> np.ndarray:
        """The rows to keep, after raising or counting those with a fault."""
        counts = self.counts
        fault = block.scratch.parsed.fault[:n_rows]
        for row in np.flatnonzero(fault)[: _FIRST_ERRORS - len(counts.first_errors)].tolist():
            message = self._message(block, row)
            if self._on_error == "raise":
                offered = self._options and faults.NO_LIBSVM not in message
                skip = " (or skip such rows: --on-error skip)" if offered else ""
                raise InputError(message + skip)
            counts.first_errors.append(message)
        kept = np.flatnonzero(fault == kernels.OK)
        counts.skipped += n_rows - len(kept)
        return kept

    def _where(self, block: _Block, row: int) -> str:
        return f"{block.name}, line {self._line + block.scratch.parsed.line[row] + 1}"

    def _message(self, block: _Block, row: int) -> str:
        parsed, buffer = block.scratch.parsed, block.scratch.buffer
        start, at = int(parsed.line_at[row]), int(parsed.fault_at[row])
        content = bytes(buffer[start : buffer.find(b"\n", start)])
        words = faults.explain(int(parsed.fault[row]), content, at - start, self._dtype.name, self._options)
        return f"{self._where(block, row)}, column {at - start + 1}: {words}"

    def _code(self, block: _Block, n_rows: int) -> np.ndarray:
        """Label codes of the rows; unseen labels and too many labels are refused here."""
        parsed = block.scratch.parsed
        codes = self.labels.code(block.scratch.text, parsed, n_rows)
        if self.labels.learns:
            if 2 * self._share * self.labels.nbytes > self._memory:
                raise PlanError(
                    f"{self._where(block, 0)} and on: {self.labels.count} different labels so far, too many "
                    f"for a memory of {self._memory}; is the first column a class? If so, raise --memory"
                )
            return codes
        unseen = (codes < 0) & (parsed.fault[:n_rows] == kernels.OK)
        if self._unseen_label == "error" and unseen.any():
            row = int(np.argmax(unseen))
            raise InputError(self._unseen_message(block, row))
        self.counts.unseen_labels += int(np.count_nonzero(unseen))
        return codes

    def _unseen_message(self, block: _Block, row: int) -> str:
        parsed, buffer = block.scratch.parsed, block.scratch.buffer
        start, at = int(parsed.line_at[row]), int(parsed.label_at[row])
        token = bytes(buffer[at : int(parsed.label_end[row])])
        value = number(token.decode("utf-8"))
        classes = self._classes or ()
        twin = None if value is None else next((text for text in classes if number(text) == value), None)
        hint = (
            f"it is written {faults.show(twin.encode())} there; spell labels alike"
            if twin is not None
            else "keep such rows as unknown with --unseen-label keep"
            if self._options
            else "correct it, or leave the row out"
        )
        return (
            f"{self._where(block, row)}, column {at - start + 1}: label {faults.show(token)} "
            f"is not among the {len(classes)} known classes; {hint}"
        )
