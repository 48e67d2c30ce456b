"""Read LIBSVM text as a stream of batches of rows, for online training and prediction without a store."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.libsvm.inputs import total_size
from streamsvm_converters.libsvm.position import ReadingState

from streamsvm.base.decode import decode, encode
from streamsvm.base.durable import open_file, os_errors_as
from streamsvm.base.label_values import INTEGER, TEXT, canonical_name, class_name, dtype_of_names
from streamsvm.base.text import check_classes, check_local, parse_size, printable
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, Option, Remedy, part_of_memory
from streamsvm.settings.converting import ConvertSettings
from streamsvm.store.kinds import STDIN, kind_of


@dataclasses.dataclass
class TextSource:
    """Stream of rows from LIBSVM text, in the order of the input; it can continue from a recorded position.

    Parameters
    ----------
    inputs : sequence of path or "-"
        Text files, plain or compressed with gzip, bzip2, xz or zstd, which are read one after another.
    classes : sequence of str or int, optional
        Known labels. By default, each new label becomes a class when it first appears.
    n_features : int, optional
        Number of known features. Values of other features are dropped and counted. By default, all are kept.
    index_base : {0, 1}
        Index of the first feature in the text.
    resumable : bool, optional
        Whether all inputs can be read again. By default, True if all inputs are regular files.
    dtype : {"float32", "float64"}
    unseen_label : {"error", "keep"}
        Whether a label outside `classes` is an error or gets code -1.
    labels_as, on_error : str
        As in `convert`; `labels_as` also applies to `classes`.
    memory : int or str
        Memory budget in bytes, or a string such as "500M" or "2G". Half of it is for the consumer of the
        batches.

    Raises
    ------
    InputError
        If an input cannot be read or is not LIBSVM text, if standard input is declared as resumable, or if
        `classes` contains a duplicate or a control character.
    SettingsError
        If a parameter has an invalid value.
    """

    inputs: Sequence[str | Path]
    _: dataclasses.KW_ONLY
    classes: Sequence[Any] | None = None
    n_features: int | None = None
    index_base: int = 0
    resumable: bool | None = None
    dtype: str = "float32"
    unseen_label: str = "error"
    labels_as: str = "numbers"
    on_error: str = "raise"
    memory: int | str = 2**28
    feature_names: ClassVar[None] = None
    dense_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        ConvertSettings(**self._options())
        if self.classes is not None:
            names = [class_name(label) for label in self.classes]
            self.classes = names if self.labels_as == "text" else list(map(canonical_name, names))
            if len(set(self.classes)) < len(self.classes):
                raise InputError("classes contains a label, or a number, twice; list each class once")
        check_classes(self.classes or (), "classes", InputError)
        for path in self.inputs:
            check_local(path, InputError)
        self.inputs = [str(path) if str(path) == STDIN else os.path.abspath(path) for path in self.inputs]
        if self.resumable is None:
            for path in self.inputs:
                kind_of(path, "libsvm")
            self.resumable = total_size(self.inputs) is not None
        if self.resumable and STDIN in self.inputs:
            raise InputError("standard input cannot be read again, so resumable must not be True")
        self.memory = parse_size(self.memory)

    def _options(self) -> dict[str, Any]:
        names = ("dtype", "unseen_label", "labels_as", "on_error", "index_base")
        return {name: getattr(self, name) for name in names}

    def record(self) -> dict[str, Any]:
        """Return the parameters as JSON for `from_record`."""
        return encode(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> TextSource:
        return cls(**record)

    def batches(
        self, place: dict[str, Any] | None, classes: Sequence[str]
    ) -> Iterator[tuple[Rows, list[str], dict[str, Any]]]:
        """Yield batches of the rows that follow the position `place`.

        Parameters
        ----------
        place : dict or None
            Position that an earlier call yielded; None for the beginning.
        classes : sequence of str
            Classes that are known at `place`.

        Yields
        ------
        rows : Rows
            Rows with 0-based indices, which are int32 if they fit and int64 otherwise. Label codes refer to
            `classes`, followed by the new classes.
        new_classes : list of str
            Classes that first appear in these rows.
        place : dict
            Position after the batch, as JSON. The last batch is empty, and its position is the end of the
            text.

        Raises
        ------
        InputError
            If the text is malformed; if the text before `place` has changed; or if the source was made
            without `classes`, the first label is a whole number, and a later label is not.
        PlanError
            If a line or the set of labels does not fit in memory.
        """
        from streamsvm_converters.kinds.libsvm import LibsvmReader

        start = self._state(place)
        start.sources = start.sources[: start.place.source]  # the current input may have grown
        self._check_sources(start)
        options = ReadOptions(**self._options(), memory=parse_size(self.memory) // 2)
        reader = LibsvmReader(
            self.inputs, options, classes=self.classes, known_features=self.n_features, start=start
        )
        if self.classes is None:
            reader.label_codes.encode(classes, np.arange(len(classes)), str)  # assigns their codes
        known, first = len(classes), next(iter(classes), None) if self.classes is None else None
        with part_of_memory(2):
            for rows, numbers in reader:
                new = reader.labels()[known:] if len(reader.label_codes) > known else []
                are_numbers = (
                    self.label_dtype is None and new and dtype_of_names([first or new[0]]) == INTEGER
                )
                if are_numbers and dtype_of_names(new) != INTEGER:
                    raise _other_label(first or new[0], new, rows.labels - known, numbers)
                known, first = known + len(new), first or next(iter(new), None)
                yield rows, new, encode(reader.position)
        none = np.zeros(0, np.int32)
        rows = Rows(np.zeros(0, self.dtype), none, np.zeros(1, np.int64), none, np.zeros(0))
        yield rows, [], encode(reader.position)

    def _check_sources(self, start: ReadingState) -> None:
        for path, source in zip(self.inputs, start.sources, strict=False):
            with os_errors_as(InputError, path, "read"), open_file(path, follow=True) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
            if sha256 != source.sha256:
                raise InputError(
                    f"{path} has changed since the run learned from it; restore the file, or start a new run"
                )

    def _state(self, place: dict[str, Any] | None) -> ReadingState:
        return ReadingState() if place is None else decode(ReadingState, place)

    def summary(self, place: dict[str, Any] | None) -> dict[str, Any]:
        """Return the reading statistics up to `place`; `bytes_read` counts only inputs that end before it."""
        counts = self._state(place).counts
        names = ("skipped", "repaired", "explicit_zeros", "qids", "unseen_features", "unseen_labels")
        return {name: getattr(counts, name) for name in (*names, "nnz", "bytes_read", "first_errors")}

    def sources(self, place: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Return the name, size and SHA-256 of each input that ends before `place`."""
        return encode(self._state(place).sources)

    @property
    def label_dtype(self) -> str | None:
        """Type of the labels; None means int64 if all classes are whole numbers, and str otherwise."""
        return TEXT if self.labels_as == "text" else None


def _other_label(first: str, new: Sequence[str], codes: np.ndarray, numbers: np.ndarray) -> InputError:
    """Return the error for the first new label that is not a whole number."""
    at = next(code for code, label in enumerate(new) if dtype_of_names([label]) == TEXT)
    row = int(numbers[np.argmax(codes == at)]) + 1
    return InputError(
        f"row {row:,} has the label {printable(new[at])!r:.60}, but the first label of the stream, {first}, "
        "is a whole number, so all labels must be whole numbers",
        remedy=Remedy("correct the label, or list all classes with {}", Option("classes")),
    )
