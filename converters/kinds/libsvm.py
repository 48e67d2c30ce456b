"""Reader of LIBSVM text: several inputs as batches of CSR rows, with a policy for malformed rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.reader import Features, Reader
from streamsvm_converters.label_codes import LabelCodes
from streamsvm_converters.libsvm.blocks import BlockReader, LineTooLong, TextBlock
from streamsvm_converters.libsvm.groups import GroupStarts, whole_groups
from streamsvm_converters.libsvm.inputs import total_size
from streamsvm_converters.libsvm.labels import BlockLabels, read_labels
from streamsvm_converters.libsvm.lines import MAX_INDEX, Rules, parse
from streamsvm_converters.libsvm.plain_parser import find_fault, show, values_of
from streamsvm_converters.libsvm.position import MAX_FIRST_ERRORS, LinePosition, ReadingState
from streamsvm_converters.libsvm.rows import compact, repair

from streamsvm.base.format import UNSEEN_LABEL, index_dtype
from streamsvm.base.label_values import canonical_name
from streamsvm.base.threads import Threads
from streamsvm.data.checks import first_labels, row_of
from streamsvm.data.label_sets import distinct_sets
from streamsvm.data.rows import NO_NUMBERS, Rows
from streamsvm.errors import InputError, Message, Option, PlanError, Remedy
from streamsvm.store.kinds import COMPRESSION_SUFFIXES

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


class LibsvmReader(Reader):
    """Reader of LIBSVM text, plain or compressed.

    Indices of the rows are int32 where they fit, else int64. Skipped rows have numbers, too, so that the
    number of a row does not depend on `on_error`.

    Parameters
    ----------
    inputs : sequence of path or "-"
    options : ReadOptions
        If `groups` is "whole", no batch divides a group.
    classes : sequence of str, optional
        The known labels; by default those of ``options.like``, and else every label is added.
    known_features : int, optional
        Values of further features are dropped and counted. By default these are the features of
        ``options.like``, and else all are kept.
    start : ReadingState, optional
        Where to begin, with one thread; the text of the input before it must be unchanged. With a `start`,
        even ``ReadingState()``, `position` is kept up to date, and rows in a pipe do not wait for further
        ones.

    Attributes
    ----------
    smallest, largest : int
        Extreme indices as written of the rows kept, explicit zeros included; `largest` is -1 if there are
        none.
    largest_at : str
        Input and line of the largest index.
    position : ReadingState
        The end of the last batch, if a `start` was given.

    Raises
    ------
    InputError
        For malformed text, with input, line, column and token; and for inputs that cannot be read.
    PlanError
        If a line, or the set of labels, does not fit in memory.
    """

    def __init__(
        self,
        inputs: Sequence[str | Path],
        options: ReadOptions,
        *,
        classes: Sequence[str] | None = None,
        known_features: int | None = None,
        start: ReadingState | None = None,
    ) -> None:
        super().__init__(inputs, options)
        if not inputs:
            raise InputError("no input; give files of LIBSVM text, or - for standard input")
        if sum(str(path) == "-" for path in inputs) > 1:
            raise InputError("standard input (-) is given twice; it can be read only once")
        like, self._base = options.like, options.index_base
        if like is not None:
            classes = like.classes
        if like is not None and not like.takes_any_feature:
            self._base = like.resolve_index_base(None if self._base == "auto" else int(self._base))
            known_features = like.n_features
            if options.n_features not in (None, like.n_features):
                raise InputError(
                    f"n_features={options.n_features} contradicts {like.path}, which has {like.n_features}"
                )
        self._known_features = known_features
        self._lowest = 1 if self._base == 1 else 0
        self._last_index = MAX_INDEX if known_features is None else known_features - 1 + self._lowest
        self._keeps_position, start = start is not None, start or ReadingState()
        self.counts = dataclasses.replace(start.counts, first_errors=list(start.counts.first_errors))
        name = str if options.labels_as == "text" else canonical_name
        memory, threads = options.memory, options.threads
        self.label_codes = LabelCodes(classes, options.unseen_label, memory, name=name)
        self.smallest, self.largest, self.largest_at = MAX_INDEX, -1, ""
        self._dtype = np.dtype(options.dtype)
        self._group_starts = GroupStarts(memory // 2) if options.groups is True else None
        self._total = total_size(inputs)
        # The midpoint between the largest number and the next power of two already rounds to infinity.
        too_large = 2.0**128 - 2.0**103 if options.dtype == "float32" else np.inf
        self._rules = Rules(
            self._lowest, too_large, options.on_error == "fix", options.multilabel, bool(options.groups)
        )
        in_work = threads + 3  # blocks in line or in use, one being filled, and the text after it
        block = max(256, min(_BLOCK_SIZE, memory // (in_work * _BLOCK_FACTOR)))
        longest = max(block, memory // _LINE_FACTOR)
        self._blocks = BlockReader(
            inputs, block, longest, start, interactive=self._keeps_position, waiting=self._report
        )
        self.sources = self._blocks.sources
        self._place = start.place
        self._number = start.place.row  # of the next row
        self._fault = 0  # the row, within its block, that is malformed
        self._input, self._line = start.place.source, start.place.line  # the position of that row

    @property
    def position(self) -> ReadingState:
        counts = dataclasses.replace(
            self.counts,
            bytes_read=sum(source.size for source in self.sources),
            first_errors=[getattr(error, "problem", error) for error in self.counts.first_errors],
        )
        return ReadingState(self._place, counts, list(self.sources))

    def features(self) -> Features:
        wanted, largest = self.options.n_features, self.largest
        if self._known_features is not None:  # values of further features were dropped
            return Features(self._known_features, index_base=self._lowest)
        auto = self._base == "auto"
        base = (0 if self.smallest == 0 else 1) if auto else self._lowest
        width = largest - base + 1
        if wanted is not None and width > wanted:
            raise InputError(
                f"{self.largest_at} has index {largest}, the largest of the input: with indices "
                f"from {base} that makes {width} features, more than n_features={wanted}"
            )
        if wanted is None and largest < 0:
            remedy = Remedy("if that is intended, give {}", Option("n_features"))
            if any(mark in label for label in self.labels()[:1] for mark in ";|"):
                remedy = Remedy("if it is a table, give {}", Option("format", "csv"))
            raise InputError("no row of the input has a feature", remedy=remedy)
        return Features(width if wanted is None else wanted, base if auto else 0, base)

    @property
    def expected_bytes(self) -> int | None:
        # About right for plain text: most pairs are longer than the 8 bytes of a value.
        are_plain = not any(Path(path).suffix[1:].lower() in COMPRESSION_SUFFIXES for path in self.inputs)
        return self._total if are_plain else None

    @property
    def n_groups(self) -> int | None:
        return None if self._group_starts is None else self._group_starts.count

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        if self.options.groups == "whole":
            batches = (rows._replace(numbers=numbers) for rows, numbers in self._all_batches())
            for rows in whole_groups(batches, self.options.memory):
                yield rows._replace(numbers=NO_NUMBERS), rows.numbers
        else:
            yield from self._all_batches()
        self.notes += self.label_codes.notes()
        if self._group_starts is not None:
            self._group_starts.check(
                ["standard input" if str(path) == "-" else str(path) for path in self.inputs]
            )

    def _all_batches(self) -> Iterator[tuple[Rows, np.ndarray]]:
        blocks = iter(self._blocks)
        long: list[TextBlock] = []

        def blocks_before_long() -> Iterator[TextBlock]:
            for block in blocks:
                if self._blocks.is_long(block):
                    long.append(block)
                    return
                yield block

        n_threads = self.options.threads
        with Threads(n_threads, "streamsvm-parse") as threads:
            try:
                while True:
                    parsed = threads.map_ahead(
                        lambda block: (block, self._parse(block)), blocks_before_long(), n_threads + 1
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
        labels = read_labels(block.buffers.text, parsed, n_rows, lists=self.options.multilabel)
        for row in np.flatnonzero(parsed.undecided[:n_rows] & ~parsed.faulty[:n_rows]).tolist():
            values = parsed.values[parsed.begin[row] : parsed.end[row]]
            values[:] = values_of(self._line_of(block, row))
            parsed.faulty[row] = (np.abs(values) >= rules.too_large).any()
        repaired = repair(parsed, n_rows, rules.too_large) if parsed.unsorted[:n_rows].any() else 0
        size = int(parsed.end[n_rows - 1]) if n_rows else 0
        largest = min(int(parsed.indices[:size].max(initial=0)), self._last_index)
        index = index_dtype(largest - self._lowest + 1)
        csr = np.empty(size, self._dtype), np.empty(size, index), np.empty(n_rows + 1, np.int64)
        norm2 = np.empty(n_rows)
        counts = compact(parsed, n_rows, self._lowest, self._last_index, *csr, norm2)
        return _ParsedRows(at, lines, n_rows, repaired, labels, *counts, *csr, norm2)  # type: ignore[call-arg]

    def _batches(
        self, block: TextBlock, first: _ParsedRows | None = None
    ) -> Iterator[tuple[Rows, np.ndarray]]:
        """Yield the rows of a block, parsed in several calls if they are many; `first` is the first one's."""
        if block.input != self._input:
            self._input, self._line = block.input, 0
        hashed, cut = 0, block.cut
        while block.at < cut:
            done, first = first or self._parse(block), None
            try:
                batch = self._batch(block, done) if done.n_rows else None
            except InputError:
                if self._fault == 0:
                    raise
                block = block._replace(cut=int(block.buffers.parsed.line_at[self._fault]))
                continue  # with the rows before that
            self._line += done.lines
            if self._keeps_position:
                end = min(done.at, block.real)
                block.sha256.update(block.buffers.text[hashed:end].data)
                hashed = end
                digest = block.sha256.hexdigest()
                self._place = LinePosition(block.input, block.offset + end, self._line, self._number, digest)
            if batch is not None:
                yield batch
            block = block._replace(at=done.at, cut=cut)
        self._blocks.release(block.buffers)
        self.counts.bytes_read = block.bytes_read
        self._report()

    def _report(self) -> None:
        if self.options.progress is not None:
            self.options.progress(self.counts.bytes_read, self._total)

    def _batch(self, block: TextBlock, done: _ParsedRows) -> tuple[Rows, np.ndarray] | None:
        """Count and label the parsed rows that have no fault; return None if there are none."""
        counts, n_rows = self.counts, done.n_rows
        self._fault = 0
        kept = self._faultless(block, n_rows)
        found = done.labels.of_rows(~block.buffers.parsed.faulty[:n_rows])
        labels = self._codes_of(block, found, kept)
        if not self.options.groups:
            counts.qids += done.qids
        counts.repaired += done.repaired
        counts.explicit_zeros += done.zeros
        counts.unseen_features += done.unseen
        self.smallest = min(self.smallest, done.smallest)
        if done.largest > self.largest:
            self.largest = done.largest
            self.largest_at = self._line_name(block, done.largest_row)
        if self.options.multilabel:
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
        if self.options.multilabel:
            rows = rows._replace(label_codes=codes, label_indptr=starts)
        if self.options.groups:
            rows = rows._replace(qid=block.buffers.parsed.group[kept])
            if self._group_starts is not None:
                lines = self._line + block.buffers.parsed.line[kept] + 1
                self._group_starts.add(rows.qid, block.input, lines)
        return rows, numbers

    def _faultless(self, block: TextBlock, n_rows: int) -> np.ndarray:
        """Return the rows without a fault, after raising or counting the others."""
        counts, faulty = self.counts, block.buffers.parsed.faulty[:n_rows]
        kept = np.flatnonzero(~faulty)
        for row in np.flatnonzero(faulty)[: MAX_FIRST_ERRORS - len(counts.first_errors)].tolist():
            fault = find_fault(self._line_of(block, row), self._rules, streams=self._keeps_position)
            remedies = [] if fault.remedy is None else [fault.remedy]
            if fault.skips and self.options.on_error == "raise":
                remedies.append(Remedy("{} skips such rows", Option("on_error", "skip")))
            message = Message(
                f"{self._line_name(block, row)}, column {fault.at + 1}: {show(fault.token)} {fault.problem}",
                Remedy.join(remedies) if remedies else None,
            )
            if self.options.on_error == "raise":
                self._fault = row
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

    def _codes_of(self, block: TextBlock, labels: BlockLabels, kept: np.ndarray) -> np.ndarray:
        """Return the codes of the labels of the kept rows."""

        def where(label: int) -> str:
            row = self._fault = int(kept[row_of(labels.indptr, label)])
            column = labels.at[label] - block.buffers.parsed.line_at[row] + 1
            return f"{self._line_name(block, row)}, column {column}"

        codes = self.label_codes.encode(labels.names, labels.numbers, where)
        self.counts.unseen_labels += int(np.count_nonzero(codes == UNSEEN_LABEL))
        return codes
