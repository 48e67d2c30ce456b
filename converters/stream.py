"""LIBSVM text straight to batches of rows, without a store: to learn from as it comes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from streamsvm_converters.inputs import STDIN, total_size

from streamsvm.data.rows import Rows
from streamsvm.durable import reason
from streamsvm.errors import InputError, SettingsError
from streamsvm.format import are_labels, index_dtype
from streamsvm.text import check_classes, check_local, parse_size

if TYPE_CHECKING:
    from streamsvm_converters.libsvm import Counts, LibsvmReader, Place


class TextStream:
    """Rows of LIBSVM text in the order of the inputs, and the places between them.

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
    memory : int or str
        Bytes this may take ("500M", "2G"), of which half are for the rows that are drawn, hashed and in use.
    resumable : bool, optional
        Whether all inputs can be read again; by default if they are files.
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
        memory: int | str = 2**28,
        resumable: bool | None = None,
    ) -> None:
        from streamsvm_converters.libsvm import check_options

        check_options(dtype, on_error, unseen_label)
        check_classes(classes or (), "the classes given", InputError)
        if index_base not in (0, 1):
            raise ValueError(f"index_base is 0 or 1, not {index_base!r}")
        for path in inputs:
            check_local(path, InputError)
        self.inputs = [str(path) if str(path) == STDIN else os.path.abspath(path) for path in inputs]
        self.classes = None if classes is None else list(classes)
        self.n_features = n_features
        self.index_base = index_base
        if resumable is None:
            resumable = total_size(self.inputs) is not None  # of a pipe, nobody knows
        self.resumable = resumable
        self._begun = False
        self._options: dict[str, Any] = {
            "dtype": dtype, "unseen_label": unseen_label, "on_error": on_error,
            "memory": parse_size(memory),
        }  # fmt: skip

    def record(self) -> dict[str, Any]:
        """What `from_record` makes the same stream from, as JSON holds it."""
        names = ("inputs", "classes", "n_features", "index_base", "resumable")
        return {**{name: getattr(self, name) for name in names}, **self._options}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> TextStream:
        """The stream that `record` is of; `InputError` if it is none."""
        try:
            stream = cls(**record)
            stream._begun, sound = True, _is_sound(record)
        except (KeyError, TypeError, ValueError, SettingsError):
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
            Where the batch ends, as JSON holds it. The last batch has no rows: it ends where the text does.
        """
        from streamsvm_converters.labels import LabelTable
        from streamsvm_converters.libsvm import LibsvmReader

        start, counts, sources = self._parts(place)
        sources = sources[: start.source]  # an input that had ended may be longer now
        self._check_sources(sources)
        last = None if self.n_features is None else self.n_features - 1 + self.index_base
        reader = LibsvmReader(
            self.inputs, lowest_index=self.index_base, last_index=last, classes=self.classes,
            start=start, share=2, options=not self._begun, **self._options,
        )  # fmt: skip
        reader.counts, reader.sources = counts, sources
        if self.classes is None:
            reader.labels = LabelTable(classes, learns=True)
        known = len(classes)
        for batch in reader:
            indices = np.empty(len(batch.indices), index_dtype(reader.largest + 1))
            np.subtract(batch.indices, self.index_base, out=indices, casting="same_kind")
            rows = Rows(batch.data, indices, batch.indptr, batch.labels, batch.norm2)
            new = reader.labels.texts()[known:] if reader.labels.count > known else []
            known += len(new)
            yield rows, new, self._place(reader)
        none = np.zeros(0, np.int32)
        rows = Rows(np.zeros(0, self._options["dtype"]), none, np.zeros(1, np.int64), none, np.zeros(0))
        yield rows, [], self._place(reader)

    @staticmethod
    def _place(reader: LibsvmReader) -> dict[str, Any]:
        counts = dataclasses.asdict(reader.counts) | {"bytes_read": sum(s["size"] for s in reader.sources)}
        return {"place": reader.place._asdict(), "counts": counts, "sources": list(reader.sources)}

    def _check_sources(self, sources: list[dict[str, Any]]) -> None:
        """Raise `InputError` unless the inputs that were read to their end are what they were."""
        for path, source in zip(self.inputs, sources, strict=False):
            try:
                with open(path, "rb") as file:
                    same = hashlib.file_digest(file, "sha256").hexdigest() == source["sha256"]
            except OSError as error:
                raise InputError(f"{path} cannot be read: {reason(error)}") from None
            if not same:
                raise InputError(
                    f"{path} has changed since it was learned from; bring the old one back, or begin anew"
                )

    def _parts(self, place: dict[str, Any] | None) -> tuple[Place, Counts, list[dict[str, Any]]]:
        """The entries of a place; those of the beginning if it is None."""
        from streamsvm_converters.libsvm import Counts, Place

        if place is None:
            return Place(), Counts(), []
        try:
            start, counts = Place(**place["place"]), Counts(**place["counts"])
            sources = [{name: each[name] for name in ("name", "size", "sha256")} for each in place["sources"]]
            numbers = [*start[:-1], *(source["size"] for source in sources)]
            numbers += [number for name, number in vars(counts).items() if name != "first_errors"]
            texts = [start.sha256, *counts.first_errors]
            texts += [source[name] for source in sources for name in ("name", "sha256")]
            sound = all(type(number) is int and 0 <= number < 2**62 for number in numbers)
            sound &= all(type(text) is str for text in texts)
            sound &= start.source <= len(sources) <= len(self.inputs) > start.source
        except (KeyError, TypeError):
            sound = False
        if not sound:
            raise InputError("what the run says of its place in the input makes no sense; begin anew")
        return start, counts, sources

    def summary(self, place: dict[str, Any] | None) -> dict[str, Any]:
        """What was met before `place`, in the words of `convert`; `bytes_read` are those of `sources`."""
        _, counts, _ = self._parts(place)
        names = ("skipped", "repaired", "explicit_zeros", "qids", "unseen_features", "unseen_labels")
        return {name: getattr(counts, name) for name in (*names, "nnz", "bytes_read", "first_errors")}

    def sources(self, place: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Name, size and SHA-256 of each input that ends before `place`."""
        _, _, sources = self._parts(place)
        return sources

    @staticmethod
    def in_order(classes: Sequence[str]) -> np.ndarray:
        """The order in which a store would have these classes."""
        from streamsvm_converters.labels import class_order

        return class_order(classes)

    @staticmethod
    def warnings(classes: Sequence[str]) -> list[str]:
        """What is odd about these classes, met in the text."""
        from streamsvm_converters.labels import same_number

        return same_number(classes)


def _is_sound(record: dict[str, Any]) -> bool:
    """Whether the entries that others rely on could be those of a stream; `ValueError` too says that not."""
    inputs, classes, n_features = record["inputs"], record["classes"], record["n_features"]
    return (
        isinstance(inputs, list)
        and len(inputs) > 0
        and all(isinstance(path, str) and b"\0" not in os.fsencode(path) for path in inputs)
        and (classes is None or are_labels(classes))
        and (n_features is None or (type(n_features) is int and 0 <= n_features < 2**62))
        and type(record["memory"]) is int
        and type(record["index_base"]) is int
        and type(record["resumable"]) is bool
        and not (record["resumable"] and STDIN in inputs)
    )
