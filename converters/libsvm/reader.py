"""Reader of LIBSVM text: several inputs as batches of CSR rows, with a policy for malformed rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from streamsvm_converters.label_codes import LabelCodes
from streamsvm_converters.libsvm.blocks import BlockReader, LineTooLong, TextBlock
from streamsvm_converters.libsvm.groups import GroupStarts, whole_groups
from streamsvm_converters.libsvm.inputs import total_size
from streamsvm_converters.libsvm.labels import BlockLabels, read_labels
from streamsvm_converters.libsvm.lines import MAX_INDEX, Rules, parse
from streamsvm_converters.libsvm.plain_parser import find_fault, show, values_of
from streamsvm_converters.libsvm.position import MAX_FIRST_ERRORS, InputFile, LinePosition, ReadingState
from streamsvm_converters.libsvm.rows import compact, repair

from streamsvm.base.format import UNSEEN_LABEL, index_dtype
from streamsvm.base.label_texts import canonical_name
from streamsvm.base.threads import Threads
from streamsvm.data.checks import first_labels, row_of
from streamsvm.data.label_sets import distinct_sets
from streamsvm.data.rows import NO_NUMBERS, Rows
from streamsvm.errors import InputError, Message, Option, PlanError, Remedy

Progress = Callable[[int, int | None], None]

CHOICES = {
    "dtype": ("float32", "float64"),
    "on_error": ("raise", "skip", "fix"),
    "unseen_label": ("error", "keep"),
    "labels_as": ("numbers", "text"),
    "groups": ("ignore", "keep", "whole"),
}

# Bytes of text parsed at once, where memory allows: large enough to amortise the work in Python, and small
# enough for the values parsed from them to stay in the processor's cache.
_BLOCK_SIZE = 2**20
# Bytes of memory for each byte of text: in blocks of many short lines (mostly for arrays with an entry for
# each row), and in one long line.
_BLOCK_FACTOR = 32
_LINE_FACTOR = 24


class _ParsedRows(NamedTuple):
    """Rows of a block up to offset `at`, with what the kernels `parse` and `compact` counted in them."""

    at: int
    lines: int
    n_rows: int
    repaired: int
    labels: BlockLabels
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


def check_choices(**values: str) -> None:
    """Raise `ValueError` unless each option has one of its `CHOICES`."""
    for name, value in values.items():
        if value not in CHOICES[name]:
            raise ValueError(f"{name} must be one of {', '.join(CHOICES[name])}, not {value!r}")


@dataclasses.dataclass(eq=False, repr=False)
class LibsvmReader:
    """Iterate once over the rows of LIBSVM text.

    Yields ``(rows, numbers)``. Of the `Rows`, indices are int32 where they fit, else int64, and labels are
    codes of `labels`. The numbers, int64 of shape (n_rows,), count the rows of all inputs from 0, including
    skipped ones, so that a row has the same number whatever `on_error` is.

    Parameters
    ----------
    inputs : sequence of path or "-"
    dtype : {"float32", "float64"}
    index_base : {0, 1}
        Index of the first feature: it is subtracted from all indices, and lower ones are errors.
    n_features : int, optional
        Values of further features are dropped and counted. By default all are kept.
    classes : sequence of str, optional
        The known labels; by default every label is added to `labels`.
    unseen_label : {"error", "keep"}
        With `classes`: whether an unknown label is an error, whatever `on_error` says, or gets code -1.
    labels_as : {"numbers", "text"}
        Whether labels that are one number are one class, or the text of a label is its class.
    on_error : {"raise", "skip", "fix"}
        Whether a malformed row raises, or is dropped and counted. "fix" also sorts unsorted rows and sums
        duplicate indices.
    memory : int
        Bytes that reading may take, including labels.
    threads : int
        Number of blocks parsed in parallel, beside the thread that reads them and takes the rows.
    progress : callable, optional
        Called as progress(bytes read, bytes of all inputs or None) after each block.
    start : ReadingState, optional
        Where to begin, with one thread; the text of the input before it must be unchanged. With a `start`,
        even ``ReadingState()``, `position` is kept up to date, and rows in a pipe do not wait for further
        ones.
    multilabel : bool
        Whether commas separate several labels of a row, and a line that begins with a blank has none. Rows
        then have `label_codes`; those of labels that are unknown, and kept, are left out.
    groups : {"ignore", "keep", "whole"}
        Whether rows have `qid`, which each line must name; "whole" gives batches that divide no group.

    Attributes
    ----------
    counts : ReadCounts
    labels : LabelCodes
    smallest, largest : int
        Extreme indices as written of the rows kept, explicit zeros included; `largest` is -1 if there are
        none.
    largest_at : str
        Input and line of the largest index.
    group_starts : GroupStarts or None
        First lines of the groups, if `groups` is "keep".
    sources : list of InputFile
        Name, size and SHA-256 of each input read to its end.
    position : ReadingState
        The end of the last batch, if a `start` was given.

    Raises
    ------
    InputError
        For malformed text, with input, line, column and token; and for inputs that cannot be read.
    PlanError
        If a line, or the set of labels, does not fit in `memory`.
    """

    inputs: Sequence[str | Path]
    _: dataclasses.KW_ONLY
    dtype: str
    index_base: int
    on_error: str
    memory: int
    n_features: int | None = None
    classes: Sequence[str] | None = None
    unseen_label: str = "error"
    labels_as: str = "numbers"
    threads: int = 1
    progress: Progress | None = None
    start: ReadingState | None = None
    multilabel: bool = False
    groups: str = "ignore"

    def __post_init__(self) -> None:
        check_choices(
            dtype=self.dtype, on_error=self.on_error, unseen_label=self.unseen_label, groups=self.groups,
            labels_as=self.labels_as,
        )  # fmt: skip
        inputs, memory, start = list(self.inputs), self.memory, self.start or ReadingState()
        self._keeps_position = self.start is not None
        if self._keeps_position and (self.threads > 1 or self.groups == "whole"):
            raise ValueError("a start needs threads=1, and batches that may divide groups")
        if not inputs:
            raise InputError("no input; give files of LIBSVM text, or - for standard input")
        if sum(str(path) == "-" for path in inputs) > 1:
            raise InputError("standard input (-) is given twice; it can be read only once")
        self.counts = dataclasses.replace(start.counts, first_errors=list(start.counts.first_errors))
        name = str if self.labels_as == "text" else canonical_name
        self.labels = LabelCodes(self.classes, self.unseen_label, memory, name=name)
        self.smallest, self.largest, self.largest_at = MAX_INDEX, -1, ""
        self._dtype = np.dtype(self.dtype)
        self._last_index = MAX_INDEX if self.n_features is None else self.n_features - 1 + self.index_base
        self.group_starts = GroupStarts(memory // 2) if self.groups == "keep" else None
        self._total = total_size(inputs)
        # The midpoint between the largest number and the next power of two already rounds to infinity.
        too_large = 2.0**128 - 2.0**103 if self.dtype == "float32" else np.inf
        self._rules = Rules(
            self.index_base, too_large, self.on_error == "fix", self.multilabel, self.groups != "ignore"
        )
        in_work = self.threads + 3  # blocks in line or in use, one being filled, and the text after it
        block = max(256, min(_BLOCK_SIZE, memory // (in_work * _BLOCK_FACTOR)))
        longest = max(block, memory // _LINE_FACTOR)
        self._blocks = BlockReader(inputs, block, longest, start, interactive=self._keeps_position)
        self._place = start.place
        self._number = start.place.row  # of the next row
        self._input, self._line = start.place.source, start.place.line  # the position of that row

    @property
    def position(self) -> ReadingState:
        counts = dataclasses.replace(
            self.counts,
            bytes_read=sum(source.size for source in self.sources),
            first_errors=[getattr(error, "problem", error) for error in self.counts.first_errors],
        )
        return ReadingState(self._place, counts, list(self.sources))

    @property
    def sources(self) -> list[InputFile]:
        return self._blocks.sources

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        if self.groups != "whole":
            return self._all_batches()
        batches = (rows._replace(numbers=numbers) for rows, numbers in self._all_batches())
        whole = whole_groups(batches, self.memory)
        return ((rows._replace(numbers=NO_NUMBERS), rows.numbers) for rows in whole)

    def _all_batches(self) -> Iterator[tuple[Rows, np.ndarray]]:
        blocks = iter(self._blocks)
        long: list[TextBlock] = []

        def blocks_before_long() -> Iterator[TextBlock]:
            for block in blocks:
                if self._blocks.is_long(block):
                    long.append(block)
                    return
                yield block

        with Threads(self.threads, "streamsvm-parse") as threads:
            try:
                while True:
                    parsed = threads.map_ahead(
                        lambda block: (block, self._parse(block)), blocks_before_long(), self.threads + 1
                    )
                    yield from chain.from_iterable(starmap(self._batches, parsed))
                    if not long:
                        return
                    # A long line is parsed alone, for it takes the memory of all blocks.
                    yield from self._batches(long.pop())
            except LineTooLong as error:  # after the rows before it
                number, name, length = error.args
                before = self._line if number == self._input else 0
                raise PlanError(
                    f"{name}, line {before + 1} has {length} bytes, too many for the memory limit",
                    needed_memory=_LINE_FACTOR * (length + 1),
                ) from None

    def _parse(self, block: TextBlock) -> _ParsedRows:
        """Parse as many rows of a block as its buffers have room for; run in the thread pool."""
        parsed, rules = block.buffers.parsed, self._rules
        at, lines, n_rows = parse(block.buffers.text, block.at, block.cut, rules, parsed)
        labels = read_labels(block.buffers.text, parsed, n_rows, lists=self.multilabel)
        for row in np.flatnonzero(parsed.undecided[:n_rows] & ~parsed.faulty[:n_rows]).tolist():
            values = parsed.values[parsed.begin[row] : parsed.end[row]]
            values[:] = values_of(self._line_of(block, row))
            parsed.faulty[row] = (np.abs(values) >= rules.too_large).any()
        repaired = repair(parsed, n_rows, rules.too_large) if parsed.unsorted[:n_rows].any() else 0
        size = int(parsed.end[n_rows - 1]) if n_rows else 0
        largest = min(int(parsed.indices[:size].max(initial=0)), self._last_index)
        index = index_dtype(largest - self.index_base + 1)
        csr = np.empty(size, self._dtype), np.empty(size, index), np.empty(n_rows + 1, np.int64)
        norm2 = np.empty(n_rows)
        counts = compact(parsed, n_rows, self.index_base, self._last_index, *csr, norm2)
        return _ParsedRows(at, lines, n_rows, repaired, labels, *counts, *csr, norm2)  # type: ignore[call-arg]

    def _batches(
        self, block: TextBlock, first: _ParsedRows | None = None
    ) -> Iterator[tuple[Rows, np.ndarray]]:
        """Yield the rows of a block, parsed in several calls if they are many; `first` is the first one's."""
        if block.input != self._input:
            self._input, self._line = block.input, 0
        hashed = 0
        while block.at < block.cut:
            done, first = first or self._parse(block), None
            batch = self._batch(block, done) if done.n_rows else None
            self._line += done.lines
            if self._keeps_position:
                end = min(done.at, block.real)
                block.sha256.update(block.buffers.text[hashed:end].data)
                hashed = end
                digest = block.sha256.hexdigest()
                self._place = LinePosition(block.input, block.offset + end, self._line, self._number, digest)
            if batch is not None:
                yield batch
            block = block._replace(at=done.at)
        self._blocks.release(block.buffers)
        self.counts.bytes_read = block.bytes_read
        if self.progress:
            self.progress(self.counts.bytes_read, self._total)

    def _batch(self, block: TextBlock, done: _ParsedRows) -> tuple[Rows, np.ndarray] | None:
        """Count and label the parsed rows that have no fault; return None if there are none."""
        counts, n_rows = self.counts, done.n_rows
        if self.groups == "ignore":
            counts.qids += done.qids
        counts.repaired += done.repaired
        counts.explicit_zeros += done.zeros
        counts.unseen_features += done.unseen
        self.smallest = min(self.smallest, done.smallest)
        if done.largest > self.largest:
            self.largest = done.largest
            self.largest_at = self._line_name(block, done.largest_row)
        kept = self._faultless(block, n_rows)
        found = done.labels.of_rows(~block.buffers.parsed.faulty[:n_rows])
        labels = self._label_codes(block, found, kept)
        if self.multilabel:
            codes, starts = distinct_sets(labels, found.indptr)
            labels = first_labels(codes, starts)
        n_kept = len(kept)
        numbers = self._number + kept
        self._number += n_rows
        if n_kept == 0:
            return None
        indptr = done.indptr[: n_kept + 1]
        size = int(indptr[-1])
        rows = Rows(done.data[:size], done.indices[:size], indptr, labels, done.norm2[:n_kept])
        counts.add(rows)
        if self.multilabel:
            rows = rows._replace(label_codes=codes, label_indptr=starts)
        if self.groups != "ignore":
            rows = rows._replace(qid=block.buffers.parsed.group[kept])
            if self.group_starts is not None:
                lines = self._line + block.buffers.parsed.line[kept] + 1
                self.group_starts.add(rows.qid, block.input, lines)
        return rows, numbers

    def _faultless(self, block: TextBlock, n_rows: int) -> np.ndarray:
        """Return the rows without a fault, after raising or counting the others."""
        counts, faulty = self.counts, block.buffers.parsed.faulty[:n_rows]
        kept = np.flatnonzero(~faulty)
        for row in np.flatnonzero(faulty)[: MAX_FIRST_ERRORS - len(counts.first_errors)].tolist():
            fault = find_fault(self._line_of(block, row), self._rules, streams=self._keeps_position)
            remedies = [] if fault.remedy is None else [fault.remedy]
            if fault.skips and self.on_error == "raise":
                remedies.append(Remedy("{} skips such rows", Option("on_error", "skip")))
            message = Message(
                f"{self._line_name(block, row)}, column {fault.at + 1}: {show(fault.token)} {fault.problem}",
                Remedy.join(remedies) if remedies else None,
            )
            if self.on_error == "raise":
                raise InputError(message)
            counts.first_errors.append(message)
        counts.skipped += n_rows - len(kept)
        return kept

    def _line_name(self, block: TextBlock, row: int) -> str:
        return f"{block.name}, line {self._line + block.buffers.parsed.line[row] + 1}"

    @staticmethod
    def _line_of(block: TextBlock, row: int) -> bytes:
        """Return the text of a row's line, without the newline."""
        buffer, start = block.buffers.buffer, int(block.buffers.parsed.line_at[row])
        return bytes(buffer[start : buffer.find(b"\n", start)])

    def _label_codes(self, block: TextBlock, labels: BlockLabels, kept: np.ndarray) -> np.ndarray:
        """Return the codes of the labels of the kept rows."""

        def where(label: int) -> str:
            row = int(kept[row_of(labels.indptr, label)])
            column = labels.at[label] - block.buffers.parsed.line_at[row] + 1
            return f"{self._line_name(block, row)}, column {column}"

        codes = self.labels.encode(labels.names, labels.numbers, where)
        self.counts.unseen_labels += int(np.count_nonzero(codes == UNSEEN_LABEL))
        return codes
