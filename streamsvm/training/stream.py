"""Streams, whose rows are read only once, and the source of their blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from streamsvm.base.format import index_dtype
from streamsvm.data.order import LabelGroups
from streamsvm.data.rows import Rows, with_index_dtype
from streamsvm.kernels.tally import VISITED
from streamsvm.run.manifest import RunPosition, StreamPosition
from streamsvm.training.auto_c import norms_of_c, running_costs
from streamsvm.training.sources import TrainingBlock
from streamsvm.transforms import Transform, apply, dense_after, features_after


class Stream(Protocol):
    """Stream of rows in a fixed order. A place is a JSON record of a position in the stream.

    `resumable` is True if the stream can be read again from a place. `label_dtype` is the type of the labels
    in Python. If it is None, the type is int64 if all classes are whole numbers, and str otherwise.
    `index_base` is the number of the first feature in LIBSVM text, and None for other data.
    """

    resumable: bool
    classes: list[str] | None  # None if classes appear during the pass; the model then sorts them
    n_features: int | None

    @property
    def label_dtype(self) -> str | None: ...

    @property
    def index_base(self) -> int | None: ...

    @property
    def feature_names(self) -> Sequence[str] | None: ...

    @property
    def dense_rows(self) -> bool: ...

    def batches(
        self, place: dict[str, Any] | None, classes: Sequence[str]
    ) -> Iterator[tuple[Rows, list[str], dict[str, Any]]]:
        """Yield the rows after `place` in batches: rows, new classes, and the place after the batch.

        Labels are indices in `classes`, extended by the new classes in order of appearance. A batch without
        rows may report how far the stream has been read.
        """

    def record(self) -> dict[str, Any]:
        """Return a JSON record from which the stream can be opened again."""

    def sources(self, place: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Return records of the inputs read completely before `place`, for the model's record."""

    def summary(self, place: dict[str, Any] | None) -> dict[str, Any]:
        """Return statistics of parsing the stream up to `place`."""


class StreamSource:
    """Source of the blocks of a stream, with transformed rows and their costs.

    If C is "auto", it is one over the mean ‖x‖² of the rows so far, up to the first 1,000 rows.
    """

    n_rows: int | None = None

    def __init__(self, stream: Stream, dtype: np.dtype, C: Any, transforms: Sequence[Transform] = ()) -> None:
        self.stream = stream
        self._dtype = dtype
        self._C = C
        self.transforms = transforms
        self.n_features = features_after(transforms, stream.n_features)
        # If the number of features is unknown, a constant feature comes first.
        self.constant_first = self.n_features is None and any(each.constant for each in transforms)
        takes_any = any(each.takes_any_feature for each in transforms)  # these need the numbers in the text
        self._shift = (stream.index_base or 0) if takes_any else int(self.constant_first)
        self.dense_rows = dense_after(transforms, stream.dense_rows)

    def blocks(self, position: RunPosition) -> Iterator[TrainingBlock]:
        """Yield the blocks after a position."""
        stream_position, number, visited = position.stream, position.blocks_done, int(position.tally[VISITED])
        assert stream_position is not None
        for rows, new_classes, place in self.stream.batches(stream_position.place, stream_position.classes):
            rows = self._transformed(rows._replace(data=rows.data.astype(self._dtype, copy=False)), visited)
            norm2 = norms_of_c(rows.norm2, self.transforms, self._dtype)
            cost, norms = running_costs(self._C, norm2, visited, stream_position.norms)
            groups = LabelGroups(stream_position.label_groups)
            groups.add(rows.labels)
            stream_position = StreamPosition(
                place,
                [*stream_position.classes, *new_classes] if new_classes else stream_position.classes,
                norms,
                groups.state.tolist(),
                max(stream_position.n_features, rows.largest_feature + 1),
            )
            order = np.arange(rows.n_rows)
            yield TrainingBlock(1, number, rows._replace(cost=cost), order, new_classes, stream_position)
            number += rows.n_rows > 0
            visited += rows.n_rows

    def _transformed(self, rows: Rows, first: int = 0) -> Rows:
        if self._shift:
            rows = rows._replace(indices=rows.features.astype(np.int64) + self._shift)
            rows = with_index_dtype(rows, index_dtype(rows.largest_feature + 1))
        rows = apply(self.transforms, rows, where="the stream", first=first)
        if self.n_features is None:
            return rows
        return with_index_dtype(rows, index_dtype(self.n_features))

    def empty(self) -> Rows:
        """Return an empty block with the same dtypes as the blocks."""
        none = np.zeros(0, np.int32)
        indices = None if self.stream.dense_rows else none
        return self._transformed(
            Rows(np.zeros(0, self._dtype), indices, np.zeros(1, np.int64), none, np.zeros(0), np.zeros(0))
        )
