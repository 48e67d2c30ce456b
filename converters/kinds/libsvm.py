"""Reader of LIBSVM text, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.reader import Features, Reader
from streamsvm_converters.libsvm.inputs import plain_size
from streamsvm_converters.libsvm.reader import LibsvmReader

from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, Option, Remedy


class LibsvmFileReader(Reader):
    """Reader of LIBSVM text by `LibsvmReader`, which chooses the index base and the number of features."""

    def __init__(self, inputs: list[str | Path], options: ReadOptions) -> None:
        super().__init__(inputs, options)
        self._index_base, self._known_features = options.index_base, None
        like, n_features = options.like, options.n_features
        if like is not None and not like.takes_any_feature:
            given = None if self._index_base == "auto" else int(self._index_base)
            self._index_base = like.resolve_index_base(given)
            self._known_features = like.n_features
            if n_features not in (None, like.n_features):
                raise InputError(
                    f"n_features={n_features} contradicts {like.path}, which has {like.n_features}"
                )
        self._reader = reader = LibsvmReader(
            inputs, dtype=options.dtype, index_base=1 if self._index_base == 1 else 0,
            n_features=self._known_features, classes=None if like is None else like.classes,
            unseen_label=options.unseen_label, labels_as=options.labels_as or "numbers",
            on_error=options.on_error, memory=options.memory, threads=options.threads,
            progress=options.progress, multilabel=options.multilabel,
            groups={False: "ignore", True: "keep"}.get(options.groups, "whole"),
        )  # fmt: skip
        self.counts, self.sources, self._labels = reader.counts, reader.sources, reader.labels

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        yield from self._reader
        self.notes += self._reader.labels.notes()
        if self._reader.group_starts is not None and self.counts.rows:
            self._reader.group_starts.check(
                ["standard input" if str(path) == "-" else str(path) for path in self.inputs]
            )

    def features(self) -> Features:
        reader, wanted = self._reader, self.options.n_features
        if self._known_features is not None:  # values of further features were dropped
            return Features(self._known_features, index_base=int(self._index_base))
        auto = self._index_base == "auto"
        base = (0 if reader.smallest == 0 else 1) if auto else int(self._index_base)
        width = reader.largest - base + 1
        if wanted is not None and width > wanted:
            raise InputError(
                f"{reader.largest_at} has index {reader.largest}, the largest of the input: with indices "
                f"from {base} that makes {width} features, more than n_features={wanted}"
            )
        if wanted is None and reader.largest < 0:
            remedy = Remedy("if that is intended, give {}", Option("n_features"))
            if any(mark in label for label in self.labels()[:1] for mark in ";|"):
                remedy = Remedy("if it is a table, give {}", Option("format", "csv"))
            raise InputError("no row of the input has a feature", remedy=remedy)
        return Features(width if wanted is None else wanted, base if auto else 0, base)

    @property
    def expected_bytes(self) -> int | None:
        return plain_size(self.inputs)  # about right: most pairs are longer than the 8 bytes of a value

    @property
    def n_groups(self) -> int | None:
        starts = self._reader.group_starts
        return None if starts is None else starts.count
