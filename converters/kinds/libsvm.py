"""Read LIBSVM text as batches of CSR rows, and refuse, skip or repair malformed rows."""

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

# Bytes of text parsed at a time, if memory allows: enough to amortise the overhead of Python, but few enough
# for the parsed values to stay in the processor cache.
_BLOCK_SIZE = 2**20
_BLOCK_FACTOR = 32  # bytes of memory per byte of text with short lines, mostly for per-row arrays
_LINE_FACTOR = 24  # bytes of memory per byte of a long line


class _ParsedRows(NamedTuple):
    """Rows parsed from a block up to text offset `at`, with the counts that `parse` and `compact` return."""

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
    """Reader of plain or compressed LIBSVM text.

    Indices are int32 if they fit, and int64 otherwise. Skipped rows are numbered too, so row numbers do not
    depend on `on_error`. Raises `InputError` if an input cannot be read or is malformed; the message then
    names the input, line, column and token. Raises `PlanError` if a line or the set of labels does not fit in
    memory.

    Parameters
    ----------
    inputs : sequence of path or "-"
    options : ReadOptions
        If `groups` is "whole", a group is never split between batches.
    classes : sequence of str, optional
        Known labels, unless ``options.like`` defines them. By default, each new label becomes a class.
    known_features : int, optional
        Number of known features, unless ``options.like`` defines it. Values of other features are dropped and
        counted. By default, all features are kept.
    start : ReadingState, optional
        Position to start from. It requires a single thread, and the text before it must not have changed. If
        `start` is given, even as ``ReadingState()``, `position` is kept up to date, and rows from a pipe are
        yielded without waiting for further rows.

    Attributes
    ----------
    smallest, largest : int
        Smallest and largest index in the kept rows, as written in the text and including those of explicit
        zeros. If no row has an index, `largest` is -1.
    largest_at : str
        Input and line of the largest index.
    position : ReadingState
        Position after the last batch, if a `start` was given.
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
            raise InputError("there is no input; name files of LIBSVM text, or - for standard input")
        if sum(str(path) == "-" for path in inputs) > 1:
            raise InputError("standard input (-) is given twice, but can be read only once; name it once")
        like, self._base = options.like, options.index_base
        if like is not None:
            classes = like.classes
        if like is not None and not like.takes_any_feature:
            self._base = like.resolve_index_base(None if self._base == "auto" else int(self._base))
            known_features = like.n_features
            if options.n_features not in (None, like.n_features):
                raise InputError(
                    f"n_features={options.n_features} contradicts {like.path}; set it to {like.n_features}"
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
        # The midpoint between the largest float32 and 2**128 already rounds to infinity.
        too_large = 2.0**128 - 2.0**103 if options.dtype == "float32" else np.inf
        self._rules = Rules(
            self._lowest, too_large, options.on_error == "fix", options.multilabel, bool(options.groups)
        )
        n_blocks = threads + 3  # blocks queued or in use, the block being filled, and the text after it
        block = max(256, min(_BLOCK_SIZE, memory // (n_blocks * _BLOCK_FACTOR)))
        max_line = max(block, memory // _LINE_FACTOR)
        self._blocks = BlockReader(
            inputs, block, max_line, start, interactive=self._keeps_position, waiting=self._report
        )
        self.sources = self._blocks.sources
        self._place = start.place
        self._number = start.place.row
        self._fault = 0  # position of the malformed row in its block
        self._input, self._line = start.place.source, start.place.line  # input number, lines read from it

    @property
    def position(self) -> ReadingState:
        counts = dataclasses.replace(
            self.counts,
            bytes_read=sum(source.size for source in self.sources),
            first_errors=[getattr(error, "problem", error) for error in self.counts.first_errors],
        )
        return ReadingState(self._place, counts, list(self.sources))

    def features(self) -> Features:
        n_features, largest = self.options.n_features, self.largest
        if self._known_features is not None:  # values of other features are already dropped
            return Features(self._known_features, index_base=self._lowest)
        auto = self._base == "auto"
        base = (0 if self.smallest == 0 else 1) if auto else self._lowest
        width = largest - base + 1
        if n_features is not None and width > n_features:
            raise InputError(
                f"{self.largest_at} has the largest index of the input, {largest}; because indices start at "
                f"{base}, the input has {width} features, more than n_features={n_features}; raise n_features"
            )
        if n_features is None and largest < 0:
            remedy = Remedy("if this is intended, set {}", Option("n_features"))
            if any(mark in label for label in self.labels()[:1] for mark in ";|"):
                remedy = Remedy("if the input is a table, use {}", Option("format", "csv"))
            raise InputError("no row of the input has a feature", remedy=remedy)
        return Features(width if n_features is None else n_features, base if auto else 0, base)

    @property
    def expected_bytes(self) -> int | None:
        # The size of plain text is a fair estimate, because few pairs are shorter than 8 bytes.
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
            names = ["standard input" if str(path) == "-" else str(path) for path in self.inputs]
            self._group_starts.check(names)

    def _all_batches(self) -> Iterator[tuple[Rows, np.ndarray]]:
        blocks = iter(self._blocks)
        long_blocks: list[TextBlock] = []

        def blocks_before_long() -> Iterator[TextBlock]:
            for block in blocks:
                if self._blocks.is_long(block):
                    long_blocks.append(block)
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
                    if not long_blocks:
                        return
                    # A long line is parsed on its own, because it may take the memory of all blocks.
                    yield from self._batches(long_blocks.pop())
            except LineTooLong as error:  # raised once all earlier rows are yielded
                number, name, length = error.args
                before = self._line if number == self._input else 0
                raise PlanError(
                    f"{name}, line {before + 1} has {length} bytes, too many for the memory limit",
                    needed_memory=_LINE_FACTOR * (length + 1),
                ) from None

    def _parse(self, block: TextBlock) -> _ParsedRows:
        """Parse as many rows of a block as its buffers can hold. This method is called in the thread pool."""
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
        """Yield the rows of a block by one or more calls of `_parse`; `first` is the first call's result."""
        if block.input != self._input:
            self._input, self._line = block.input, 0
        hashed, cut = 0, block.cut
        while block.at < cut:
            parsed, first = first or self._parse(block), None
            try:
                batch = self._batch(block, parsed) if parsed.n_rows else None
            except InputError:
                if self._fault == 0:
                    raise
                block = block._replace(cut=int(block.buffers.parsed.line_at[self._fault]))
                continue  # yield the rows before the fault first
            self._line += parsed.lines
            if self._keeps_position:
                end = min(parsed.at, block.real)
                block.sha256.update(block.buffers.text[hashed:end].data)
                hashed = end
                digest = block.sha256.hexdigest()
                self._place = LinePosition(block.input, block.offset + end, self._line, self._number, digest)
            if batch is not None:
                yield batch
            block = block._replace(at=parsed.at, cut=cut)
        self._blocks.release(block.buffers)
        self.counts.bytes_read = block.bytes_read
        self._report()

    def _report(self) -> None:
        if self.options.progress is not None:
            self.options.progress(self.counts.bytes_read, self._total)

    def _batch(self, block: TextBlock, parsed: _ParsedRows) -> tuple[Rows, np.ndarray] | None:
        """Return the valid rows with their labels, and their row numbers; return None if no row is valid."""
        counts, n_rows = self.counts, parsed.n_rows
        self._fault = 0
        kept = self._faultless(block, n_rows)
        kept_labels = parsed.labels.select_rows(~block.buffers.parsed.faulty[:n_rows])
        labels = self._codes_of(block, kept_labels, kept)
        if not self.options.groups:
            counts.qids += parsed.qids
        counts.repaired += parsed.repaired
        counts.explicit_zeros += parsed.zeros
        counts.unseen_features += parsed.unseen
        self.smallest = min(self.smallest, parsed.smallest)
        if parsed.largest > self.largest:
            self.largest = parsed.largest
            self.largest_at = self._line_name(block, parsed.largest_row)
        if self.options.multilabel:
            codes, starts = distinct_sets(labels, kept_labels.indptr)
            labels = first_labels(codes, starts)
        n_kept = len(kept)
        numbers = self._number + kept
        self._number += n_rows
        if n_kept == 0:
            return None
        indptr = parsed.indptr[: n_kept + 1]
        size = int(indptr[-1])
        rows = Rows(parsed.data[:size], parsed.indices[:size], indptr, labels, parsed.norm2[:n_kept])
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
        """Return the positions of the valid rows; count the others, or raise if `on_error` is "raise"."""
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
        buffer, start = block.buffers.buffer, int(block.buffers.parsed.line_at[row])
        return bytes(buffer[start : buffer.find(b"\n", start)])

    def _codes_of(self, block: TextBlock, labels: BlockLabels, kept: np.ndarray) -> np.ndarray:
        def where(label: int) -> str:
            row = self._fault = int(kept[row_of(labels.indptr, label)])
            column = labels.at[label] - block.buffers.parsed.line_at[row] + 1
            return f"{self._line_name(block, row)}, column {column}"

        codes = self.label_codes.encode(labels.names, labels.numbers, where)
        self.counts.unseen_labels += int(np.count_nonzero(codes == UNSEEN_LABEL))
        return codes
