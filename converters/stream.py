"""LIBSVM text straight to batches of rows, without a store: to learn from as it comes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from streamsvm_converters.inputs import STDIN

from streamsvm.errors import InputError
from streamsvm.format import index_dtype
from streamsvm.rows import Rows


class TextStream:
    """Rows of LIBSVM text in the order of the inputs, and the places between them (see `streamsvm.online`).

    Parameters
    ----------
    inputs : sequence of path or "-"
        Plain or compressed by gzip, bzip2, xz or zstd; read one after another.
    classes : sequence of str, optional
        The labels known; without, every label is a class from its first row on.
    n_features : int, optional
        Features beyond are dropped and counted; None keeps them all.
    index_base : {0, 1}
        Index of the first feature in the text.
    dtype : {"float32", "float64"}
        Of the values.
    unseen_label : {"error", "keep"}
        With `classes`: whether other labels end the reading, or get -1.
    on_error : {"raise", "skip", "fix"}
        As for `convert`.
    memory : int
        Bytes this may take.

    Attributes
    ----------
    resumable : bool
        Whether all inputs are files, which can be read again.
    counts : Counts
        What was met in the batches drawn so far.
    """

    def __init__(
        self,
        inputs: Sequence[str | Path],
        *,
        classes: Sequence[str] | None = None,
        n_features: int | None = None,
        index_base: int = 0,
        dtype: str = "float32",
        unseen_label: str = "error",
        on_error: str = "raise",
        memory: int = 2**28,
    ) -> None:
        from streamsvm_converters.libsvm import Counts

        if index_base not in (0, 1):
            raise ValueError(f"index_base is 0 or 1, not {index_base!r}")
        self.inputs = [str(path) if str(path) == STDIN else os.path.abspath(path) for path in inputs]
        self.classes = None if classes is None else list(classes)
        self.n_features = n_features
        self.index_base = index_base
        self.resumable = all(path != STDIN and _is_file(path) for path in self.inputs)
        self.counts = Counts()
        self._options: dict[str, Any] = {
            "dtype": dtype, "unseen_label": unseen_label, "on_error": on_error, "memory": memory,
        }  # fmt: skip
        self._sources: list[dict[str, Any]] = []

    def record(self) -> dict[str, Any]:
        """What `from_record` makes the same stream from, as JSON holds it."""
        names = ("inputs", "classes", "n_features", "index_base", "resumable")
        return {**{name: getattr(self, name) for name in names}, **self._options}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> TextStream:
        """The stream that `record` is of; `InputError` if it is none, or an input cannot be read again."""
        try:
            classes, memory = record["classes"], record["memory"]
            stream = cls(**{name: value for name, value in record.items() if name != "resumable"})
            stream.resumable = record["resumable"]
            sound = type(memory) is int and (classes is None or all(type(label) is str for label in classes))
        except (KeyError, TypeError, ValueError):
            sound = False
        if not sound:
            raise InputError("what the run says of its input makes no sense; begin anew")
        return stream

    def batches(self, place: dict[str, Any] | None, classes: Sequence[str]) -> Iterator[Any]:
        """Draw the batches from `place` on, at which these `classes` are known.

        Yields
        ------
        rows : Rows
            Features count from 0 (int32 while all met so far fit), labels in the order of `classes`
            and of first appearance.
        new : list of str
            The classes that appear first in these rows.
        place : dict
            Where the batch ends, as JSON holds it.
        """
        from streamsvm_converters.labels import LabelTable
        from streamsvm_converters.libsvm import Counts, LibsvmReader, Place

        start = Place()
        if place is not None:
            try:
                start = Place(**place["place"])
                self.counts, self._sources = Counts(**place["counts"]), list(place["sources"])
                sound = all(type(n) is int and n >= 0 for n in start[:-1])
                sound &= len(self._sources) == start.source < len(self.inputs)
                sound &= all(type(source["size"]) is int for source in self._sources)
            except (KeyError, TypeError):
                sound = False
            if not sound:
                raise InputError("what the run says of its place in the input makes no sense; begin anew")
            self._check_sources()
        last = None if self.n_features is None else self.n_features - 1 + self.index_base
        reader = LibsvmReader(
            self.inputs, lowest_index=self.index_base, last_index=last, classes=self.classes,
            start=start, **self._options,
        )  # fmt: skip
        reader.counts, reader.sources = self.counts, self._sources
        self.counts.bytes_read = sum(source["size"] for source in self._sources)
        if self.classes is None:
            reader.labels = LabelTable(classes, learns=True)
        known = len(classes)
        for batch in reader:
            indices = np.empty(len(batch.indices), index_dtype(reader.largest + 1))
            np.subtract(batch.indices, self.index_base, out=indices, casting="same_kind")
            rows = Rows(batch.data, indices, batch.indptr, batch.labels, batch.norm2)
            new = reader.labels.texts()[known:] if reader.labels.count > known else []
            known += len(new)
            yield rows, new, {
                "place": reader.place._asdict(),
                "counts": dataclasses.asdict(self.counts),
                "sources": list(self._sources),
            }  # fmt: skip

    def _check_sources(self) -> None:
        """Raise `InputError` unless the inputs that were read to their end are what they were."""
        for path, source in zip(self.inputs, self._sources, strict=False):
            try:
                with open(path, "rb") as file:
                    same = hashlib.file_digest(file, "sha256").hexdigest() == source["sha256"]
            except OSError as error:
                raise InputError(f"{path} cannot be read: {error.strerror}") from None
            if not same:
                raise InputError(
                    f"{path} has changed since it was learned from; bring the old one back, or begin anew"
                )

    def summary(self) -> dict[str, Any]:
        """What was met, in the words of `convert`."""
        names = ("skipped", "repaired", "explicit_zeros", "qids", "unseen_features", "unseen_labels")
        return {name: getattr(self.counts, name) for name in (*names, "nnz", "bytes_read", "first_errors")}

    def sources(self) -> list[dict[str, Any]]:
        """Name, size and SHA-256 of each input read to its end."""
        return list(self._sources)

    @staticmethod
    def in_order(classes: Sequence[str]) -> np.ndarray:
        """The order in which a store would have these classes."""
        from streamsvm_converters.labels import class_order

        return class_order(classes)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
