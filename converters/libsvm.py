"""LIBSVM text, from any number of inputs, as batches of CSR rows; malformed rows by policy."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from streamsvm_converters import faults, kernels
from streamsvm_converters.inputs import Input, total_size
from streamsvm_converters.labels import LabelTable, number

from streamsvm.errors import InputError, PlanError

Progress = Callable[[int, int | None, int], None]

ON_ERROR = ("raise", "skip", "fix")
UNSEEN_LABEL = ("error", "keep")
DTYPES = ("float32", "float64")

_BLOCK = 2**22  # bytes of text parsed at once, where memory allows: large enough to amortise Python's part
# Bytes of memory a byte of text may take on its way: in blocks of many short lines (mostly what is
# kept a row), and in one long line.
_BLOCK_FACTOR = 64
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
    """Rows as read: indices as written, labels as codes of the reader's `LabelTable`.

    `numbers` counts the rows of all inputs from 0, skipped ones included, so that a row has the
    same number whatever ``on_error`` is.
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    labels: np.ndarray
    norm2: np.ndarray
    numbers: np.ndarray


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
    progress : callable, optional
        Called as progress(bytes read, bytes of all inputs or None, rows) after each block.
    start : Place, optional
        Where to begin; the text of the input before it must be the same. To begin at ``Place()``
        has positions kept, which costs hashing the text.

    Attributes
    ----------
    counts : Counts
    labels : LabelTable
    smallest, largest : int
        Indices met in the rows kept, explicit zeros included; `largest` is -1 if there were none.
    largest_at : str
        Where the largest was, for messages.
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
        progress: Progress | None = None,
        start: Place | None = None,
    ) -> None:
        for name, value, choices in (
            ("dtype", dtype, DTYPES),
            ("on_error", on_error, ON_ERROR),
            ("unseen_label", unseen_label, UNSEEN_LABEL),
        ):
            if value not in choices:
                raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
        if not inputs:
            raise InputError("no input; give files of LIBSVM text, or - for standard input")
        if sum(str(path) == "-" for path in inputs) > 1:
            raise InputError("standard input (-) is given twice; it can be read only once")
        self.counts = Counts()
        self.labels = LabelTable(classes)
        self.smallest, self.largest, self.largest_at = kernels.MAX_INDEX, -1, ""
        self.sources: list[dict[str, Any]] = []
        self._inputs = list(inputs)
        self._dtype = np.dtype(dtype)
        self._lowest = lowest_index
        self._last = kernels.MAX_INDEX if last_index is None else last_index
        self._classes = classes
        self._unseen_label = unseen_label
        self._on_error = on_error
        self._memory = memory
        self._progress = progress
        self._total = total_size(self._inputs)
        # The midpoint between the largest number and the next power of two already rounds to infinity.
        self._too_large = 2.0**128 - 2.0**103 if dtype == "float32" else np.inf
        self._block = max(256, min(_BLOCK, memory // _BLOCK_FACTOR))
        self._longest = max(self._block, memory // _LINE_FACTOR)
        self._start = start
        self.place = start or Place()
        self._number = self.place.row  # of the next row
        self._scratch = self._new_scratch(self._block)

    def __iter__(self) -> Iterator[Batch]:
        buffer = bytearray(self._block)
        for nth, path in enumerate(self._inputs[self.place.source :], self.place.source):
            with Input(path) as source:
                before = self.counts.bytes_read
                line = held = 0
                begun = False
                ended = False
                lent = 0  # newlines that are not in the text
                begin, sha256 = 0, hashlib.sha256()  # of the buffer, in the text; of the text before it
                if self._start is not None and nth == self._start.source:
                    self._skip(source, sha256)
                    line, begin, begun = self._start.line, self._start.text, self._start.text > 0
                while not ended:
                    # One byte stays free for the newline that the last line may lack.
                    count = source.readinto(memoryview(buffer)[held:-1])
                    ended = count == 0
                    held += count
                    if ended and held and buffer[held - 1] != kernels.NEWLINE:
                        buffer[held] = kernels.NEWLINE
                        held += 1
                        lent = 1
                    if held < len(buffer) - 1 and not ended:
                        continue
                    cut = buffer.rfind(b"\n", 0, held) + 1
                    if not cut and not ended:
                        buffer = self._grown(buffer, held, source, line)
                        continue
                    text = np.frombuffer(buffer, dtype=np.uint8)
                    at = len(_BOM) if not begun and buffer.startswith(_BOM) else 0
                    begun = True
                    hashed = 0
                    while at < cut:
                        at, line, batch = self._parse(text, buffer, at, cut, line, source.name)
                        if self._start is not None:
                            after = min(at, held - lent)
                            sha256.update(text[hashed:after].data)
                            hashed = after
                            if batch is not None:
                                digest = sha256.hexdigest()
                                self.place = Place(nth, begin + after, line, self._number, digest)
                        if batch is not None:
                            yield batch
                    begin += cut
                    self.counts.bytes_read = before + source.size
                    if self._progress:
                        self._progress(self.counts.bytes_read, self._total, self.counts.rows)
                    buffer[: held - cut] = buffer[cut:held]
                    held -= cut
                self.sources.append(source.record())

    def _skip(self, source: Input, sha256: Any) -> None:
        """Read the text before the start; `InputError` unless it is what it was."""
        assert self._start is not None
        space = memoryview(bytearray(self._block))
        left = self._start.text
        while left and (count := source.readinto(space[:left])):
            sha256.update(space[:count])
            left -= count
        if left or sha256.hexdigest() != self._start.sha256:
            raise InputError(
                f"{source.name} has changed in its first {self._start.line:,} lines, learned from before; "
                "bring the old one back, or begin anew"
            )

    def _new_scratch(self, block: int) -> kernels.Parsed:
        """Room for any line of `block` bytes, and for as many rows as a usual block has."""
        values, rows = block // 4 + 1, self._block // 8 + 1  # "1:1 " takes four bytes
        wide = np.int64
        return kernels.Parsed(
            indices=np.empty(values, wide),
            values=np.empty(values, np.float64),
            hard_slot=np.empty(values, wide),
            hard_at=np.empty(values, wide),
            fault=np.empty(rows, np.uint8),
            untidy=np.empty(rows, np.bool_),
            **{name: np.empty(rows, wide) for name in _ROW_FIELDS},
        )

    def _grown(self, buffer: bytearray, held: int, source: Input, line: int) -> bytearray:
        """A larger buffer for a line that fills this one, within memory."""
        size = min(2 * len(buffer), self._longest)
        if size == len(buffer):
            length = held
            rest = bytearray(2**16)
            while count := source.readinto(memoryview(rest)):
                end = rest.find(b"\n", 0, count)
                length += count if end < 0 else end
                if end >= 0:
                    break
            raise PlanError(
                f"{source.name}, line {line + 1} has {length} bytes, too many for a memory of "
                f"{self._memory}; --memory {_LINE_FACTOR * (length + 2)} would do"
            )
        larger = bytearray(size)
        larger[:held] = buffer[:held]
        self._scratch = self._new_scratch(size)
        return larger

    def _parse(
        self, text: np.ndarray, buffer: bytearray, at: int, cut: int, line: int, name: str
    ) -> tuple[int, int, Batch | None]:
        """One batch from text[at:cut]; returns where the next begins, its line, and the batch if any."""
        parsed, counts, start = self._scratch, self.counts, line
        fix = self._on_error == "fix"
        at, line, n_rows, hard, qids = kernels.parse(
            text, at, cut, line, self._lowest, self._too_large, fix, parsed
        )
        counts.qids += qids
        if n_rows == 0:
            return at, line, None
        self._finish_hard(buffer, hard, n_rows)
        if fix and parsed.untidy[:n_rows].any():
            counts.repaired += kernels.repair(parsed, n_rows, self._too_large)
        size = int(parsed.end[n_rows - 1])
        data = np.empty(size, self._dtype)
        indptr, norm2 = np.empty(n_rows + 1, np.int64), np.empty(n_rows, np.float64)
        zeros, unseen, smallest, largest, largest_row = kernels.settle(
            parsed, n_rows, self._last, data, indptr, norm2
        )
        counts.explicit_zeros += zeros
        counts.unseen_features += unseen
        self.smallest = min(self.smallest, smallest)
        if largest > self.largest:
            self.largest = largest
            self.largest_at = f"{name}, line {parsed.line[largest_row] + 1}"
        kept = self._judge(buffer, n_rows, name)
        labels = self._code(text, buffer, n_rows, name, start)[kept]
        n_kept, size = len(kept), int(indptr[len(kept)])
        numbers = self._number + kept
        self._number += n_rows
        if n_kept == 0:
            return at, line, None
        indptr = indptr[: n_kept + 1]
        counts.rows += n_kept
        counts.nnz += size
        counts.empty_rows += int(np.count_nonzero(np.diff(indptr) == 0))
        # The indices are the scratch's own: valid until the next batch is drawn.
        return at, line, Batch(data[:size], parsed.indices[:size], indptr, labels, norm2[:n_kept], numbers)

    def _finish_hard(self, buffer: bytearray, hard: int, n_rows: int) -> None:
        """Let Python's float() read the numbers that the kernel was not certain of."""
        parsed = self._scratch
        for slot, at in zip(parsed.hard_slot[:hard].tolist(), parsed.hard_at[:hard].tolist(), strict=True):
            found = _TOKEN.match(buffer, at)
            value = float(found.group())  # type: ignore[union-attr]  # the kernel saw a token there
            parsed.values[slot] = value
            row = int(np.searchsorted(parsed.end[:n_rows], slot, "right"))
            if abs(value) >= self._too_large and parsed.fault[row] == kernels.OK:
                while buffer[at - 1] not in b" \t":  # back to where its pair starts
                    at -= 1
                parsed.fault[row], parsed.fault_at[row] = kernels.VALUE_LARGE, at

    def _judge(self, buffer: bytearray, n_rows: int, name: str) -> np.ndarray:
        """The rows to keep, after raising or counting those with a fault."""
        parsed, counts = self._scratch, self.counts
        fault = parsed.fault[:n_rows]
        for row in np.flatnonzero(fault)[: _FIRST_ERRORS - len(counts.first_errors)].tolist():
            message = self._message(buffer, row, name)
            if self._on_error == "raise":
                raise InputError(f"{message} (or skip such rows: --on-error skip)")
            counts.first_errors.append(message)
        kept = np.flatnonzero(fault == kernels.OK)
        counts.skipped += n_rows - len(kept)
        return kept

    def _message(self, buffer: bytearray, row: int, name: str) -> str:
        parsed = self._scratch
        start, at = int(parsed.line_at[row]), int(parsed.fault_at[row])
        content = bytes(buffer[start : buffer.find(b"\n", start)])
        words = faults.explain(int(parsed.fault[row]), content, at - start, self._dtype.name)
        return f"{name}, line {parsed.line[row] + 1}, column {at - start + 1}: {words}"

    def _code(self, text: np.ndarray, buffer: bytearray, n_rows: int, name: str, start: int) -> np.ndarray:
        """Label codes of the rows; unseen labels and too many labels are refused here."""
        parsed = self._scratch
        codes = self.labels.code(text, parsed, n_rows)
        if self.labels.learns:
            if 2 * self.labels.nbytes > self._memory:
                raise PlanError(
                    f"{name}, line {start + 1} and on: {self.labels.count} different labels so far, too many "
                    f"for a memory of {self._memory}; is the first column a class? If so, raise --memory"
                )
            return codes
        unseen = (codes < 0) & (parsed.fault[:n_rows] == kernels.OK)
        if self._unseen_label == "error" and unseen.any():
            row = int(np.argmax(unseen))
            raise InputError(self._unseen_message(buffer, row, name))
        self.counts.unseen_labels += int(np.count_nonzero(unseen))
        return codes

    def _unseen_message(self, buffer: bytearray, row: int, name: str) -> str:
        parsed = self._scratch
        start, at = int(parsed.line_at[row]), int(parsed.label_at[row])
        token = bytes(buffer[at : int(parsed.label_end[row])])
        value = number(token.decode("utf-8"))
        classes = self._classes or ()
        twin = None if value is None else next((text for text in classes if number(text) == value), None)
        hint = (
            f"it is written {faults.show(twin.encode())} there; spell labels alike"
            if twin is not None
            else "keep such rows as unknown with --unseen-label keep"
        )
        return (
            f"{name}, line {parsed.line[row] + 1}, column {at - start + 1}: label {faults.show(token)} "
            f"is not among the {len(classes)} known classes; {hint}"
        )


_ROW_FIELDS = ("begin", "end", "line", "line_at", "label_at", "label_end", "fault_at")
