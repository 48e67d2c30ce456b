"""Interface of stores: rows, columns and sizes for ranges of rows, and facts about the whole store."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from streamsvm.base import format
from streamsvm.base.repr import Readable
from streamsvm.data.rows import OF_EACH_ROW, Rows
from streamsvm.data.statistics import Statistics
from streamsvm.store.ranges import Ranges, span

if TYPE_CHECKING:
    from streamsvm.store.container import StoredArray

_POINTERS_AT_A_TIME = 2**16

Progress = Callable[[int, int], None]
Columns = dict[str, np.ndarray]
Whole = Literal["fingerprint", "class_counts", "feature_names", "statistics"]

IN_MEMORY = "memory"  # kind of a store that is not on disk

# Columns of the rows, named as in `Rows`; `label_codes` includes `label_indptr`.
COLUMNS = (*OF_EACH_ROW, "label_codes", "names")


def only(columns: Columns, wanted: Set[str]) -> Columns:
    """Select the wanted columns; `label_codes` includes `label_indptr`."""
    wanted = wanted | {"label_indptr"} if "label_codes" in wanted else wanted
    return {name: column for name, column in columns.items() if name in wanted}


class Units(NamedTuple):
    """Ranges of successive rows, such as groups or slices, that are never divided between blocks."""

    rows: np.ndarray  # int64, shape (n_units + 1,): first row of each unit, and the end of the last
    offsets: np.ndarray  # int64, shape (n_units + 1,): first non-zero of each unit, and the end of the last


class RowSizes(NamedTuple):
    """Upper bounds on row sizes, as int64 arrays of shape (n_rows,)."""

    nnz: np.ndarray  # non-zeros
    labels: np.ndarray  # labels; empty unless rows may have several


@dataclasses.dataclass(frozen=True)
class Facts:
    """Picklable facts about a store for plans, checks and records. `Store` describes most of them.

    `stored` contains the names of the `COLUMNS` that can be read without values. `parts_of` caches the first
    `HeldOutPart` of a division of the rows, by number of parts; views with the same rows share this cache.
    """

    path: Path
    kind: str
    n_rows: int
    n_features: int
    nnz: int
    classes: tuple[str, ...]
    label_dtype: str
    dtype: np.dtype
    chunk_nnz: int
    chunk_rows: float
    stored: frozenset[str]
    n_labels: int = 0
    native: bool = False
    shuffled: bool = False
    index_base: int | None = None
    dense: bool = False  # whether the rows, or some of them, come from a dense matrix
    dense_rows: bool = False  # whether `read` returns dense rows: see `Rows`
    unlabelled: int = 0
    units: Units | None = dataclasses.field(default=None, compare=False)
    held_bytes: int = 0
    extra_nnz_bytes: int = 0
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    parts_of: dict[int, Any] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def index_dtype(self) -> np.dtype:
        return format.index_dtype(self.n_features)

    @property
    def index_bytes(self) -> int:
        """Size of a feature index in memory, in bytes; 0 if rows are dense."""
        return 0 if self.dense_rows else self.index_dtype.itemsize

    @property
    def weighted(self) -> bool:
        return "cost" in self.stored

    @property
    def multilabel(self) -> bool:
        return "label_codes" in self.stored

    @property
    def grouped(self) -> bool:
        return "qid" in self.stored

    @property
    def held_out_by(self) -> bool:
        return "hold_out_by" in self.stored


if TYPE_CHECKING:
    HasFacts = Facts  # a store has the attributes of its facts
else:
    HasFacts = object


class Store(Readable, HasFacts):
    """Labelled matrix on disk, read in ranges of rows: CSR or, if most values are non-zero, dense.

    `open_store` returns a store, which is a context manager. Reading needs memory for the requested rows and
    one chunk of each array, never for the whole store. Only one thread may read at a time.

    Attributes
    ----------
    facts : Facts
        Facts about the store, each of which is also an attribute of the store.
    path : Path
    kind : {"zarr", "hdf5", "npy", "npz", "table", "memory"}
    native : bool
        Whether streamsvm wrote the store, with checksums and a record; False for AnnData from other programs.
    n_rows, n_features, nnz, n_classes : int
    classes : tuple of str
        Class names by class code.
    weighted : bool
        Whether rows have weights.
    multilabel : bool
        Whether rows may have several labels.
    grouped : bool
        Whether rows belong to groups, such as sequences.
    held_out_by : bool
        Whether there is a hold-out column; rows with equal values in it are held out together.
    n_labels : int
        Total number of labels, or an upper bound if not `native`; 0 if not `multilabel`.
    units : Units or None
        Ranges of rows that are never divided between blocks; None if a block may begin at any row.
    unlabelled : int
        Number of rows omitted because they have no label.
    dtype : dtype
        Dtype of the values from `rows`: float32 or float64.
    index_dtype : dtype
        Dtype of the indices of CSR rows from `rows`: int32 or int64.
    index_base : int or None
        First feature index, 0 or 1, in the text that the store was converted from.
    shuffled : bool
        Whether rows are in random order.
    chunk_nnz : int
        Number of non-zeros per chunk.
    chunk_rows : float
        Mean number of rows per chunk of values.
    meta : dict
        Record without ``arrays``; for AnnData from other programs, the names of label and hold-out columns.
    arrays : dict of str to StoredArray
        Arrays of the first container, by name, as in `layout`; empty for rows in memory.
    members : list of Store
        Stores on disk that contain the rows.
    bytes_read : int
        Number of decoded bytes returned so far.
    held_bytes : int
        Number of bytes held in memory while the store is open, besides chunks being decoded.
    extra_nnz_bytes : int
        Maximum number of bytes per non-zero that reading needs in addition to two copies of it.
    """

    facts: Facts

    @property
    def members(self) -> list[Store]:
        raise NotImplementedError

    def sizes(self, ranges: Ranges) -> RowSizes:
        """Return the sizes of the rows in ranges, reading only row pointers."""
        raise NotImplementedError

    def columns(self, ranges: Ranges, wanted: Set[str]) -> Columns:
        """Return the wanted columns of the rows in ranges, without reading values.

        Names that are not in ``facts.stored`` are ignored. Raises StoreError if a column is invalid (see
        `Rows`) or cannot be read; the message names the array and the chunk.
        """
        raise NotImplementedError

    def read(self, ranges: Ranges) -> Rows:
        """Return the rows in ranges, with all columns except names, decoding each chunk once; see `rows`."""
        raise NotImplementedError

    def whole(self, what: Whole) -> Any:
        """Return a property of the whole store, or None if it is unknown.

        Raises StoreError if the property contradicts the record or cannot be read.
        """
        raise NotImplementedError

    def rows(self, start: int, stop: int) -> Rows:
        """Read the rows ``start:stop`` and check everything that compiled code relies on.

        Parameters
        ----------
        start, stop : int
            ``0 <= start <= stop <= n_rows``.

        Returns
        -------
        Rows
            New, writable, contiguous arrays or, from an `ArrayStore`, views of its arrays. Values and norms
            are finite. Indices are in ``0..n_features - 1`` and strictly increasing within each row, and
            labels are in ``-1..n_classes - 1``. `cost` contains the row weights, which are finite and
            non-negative, or is empty if there are none.

        Raises
        ------
        StoreError
            If rows are invalid or cannot be read; the message names the array and the chunk.
        IndexError
            If ``start:stop`` is out of range.
        """
        return self.read(self._range(start, stop))

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Return the row pointers of the rows ``start:stop``, from 0: int64 of shape (stop - start + 1,).

        The rows of views with transforms or a model's features may have fewer non-zeros.
        """
        return np.concatenate([[0], np.cumsum(self.sizes(self._range(start, stop)).nnz)])

    def labels(self, start: int, stop: int) -> np.ndarray:
        """Return the class codes of the rows ``start:stop``, int32; -1 for a label outside `classes`."""
        return self._column("labels", start, stop)

    def label_sets(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return `label_codes` and `label_indptr` of the rows ``start:stop``; requires `multilabel`."""
        found = self.columns(self._range(start, stop), {"label_codes"})
        return found["label_codes"], found["label_indptr"]

    def weights(self, start: int, stop: int) -> np.ndarray:
        """Return the weights of the rows ``start:stop``, float64; requires `weighted`."""
        return self._column("cost", start, stop)

    def groups(self, start: int, stop: int) -> np.ndarray:
        """Return the group numbers of the rows ``start:stop``, int64; requires `grouped`."""
        return self._column("qid", start, stop)

    def numbers(self, start: int, stop: int) -> np.ndarray:
        """Return the numbers of the rows ``start:stop`` in the original data, int64: see `Rows`."""
        return self._column("numbers", start, stop)

    def names(self, start: int, stop: int) -> np.ndarray:
        """Return the names of the rows ``start:stop``.

        Names are row numbers in the original input (int64) or, if not `native`, the index of ``obs`` (str).
        """
        return self._column("names", start, stop)

    def norms(self, start: int, stop: int) -> np.ndarray:
        """Return the squared norms of the rows ``start:stop``, float64; computed if they are not stored."""
        if "norm2" in self.facts.stored:
            return self._column("norm2", start, stop)
        return self.rows(start, stop).norm2

    def pieces(self, most: int, start: int, stop: int) -> Iterator[tuple[int, Rows]]:
        """Yield (first row, rows) for successive pieces of the rows ``start:stop``.

        Pieces have at most `most` non-zeros, unless one row has more.
        """
        while start < stop:
            end = min(start + _POINTERS_AT_A_TIME, stop)
            offsets = self.indptr(start, end)
            while start < end:
                at = len(offsets) - 1 - (end - start)
                n = int(np.searchsorted(offsets, offsets[at] + most, "right")) - 1 - at
                next_ = start + max(n, 1)
                yield start, self.rows(start, next_)
                start = next_

    @property
    def fingerprint(self) -> str:
        """Hash of the content."""
        return self.whole("fingerprint")

    @property
    def class_counts(self) -> np.ndarray:
        """Number of rows in each class, int64; a row with several labels counts in each of its classes."""
        return self.whole("class_counts")

    def feature_names(self) -> list[str] | None:
        """Return the names of the features; None if features only have numbers, as in LIBSVM text."""
        return self.whole("feature_names")

    def statistics(self) -> Statistics | None:
        """Return the statistics of the features; None if the store has none."""
        return self.whole("statistics")

    @property
    def arrays(self) -> dict[str, StoredArray]:
        return self.members[0].arrays if self.members else {}

    @property
    def bytes_read(self) -> int:
        return sum(member.bytes_read for member in self.members)

    def verify(self, progress: Progress | None = None) -> None:
        """Read every chunk of every array, and compare the content with the hashes in the record.

        Calls ``progress(done, total)`` with numbers of decoded bytes or, for AnnData from other programs, of
        rows. Raises StoreError for the first damaged array; if a chunk cannot be read, the message also names
        it.
        """
        for member in self.members:
            member.verify(progress)

    def close(self) -> None:
        """Close the container; returned arrays stay valid."""
        for member in self.members:
            member.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _facts(self) -> dict[str, Any]:
        sizes = {name: getattr(self, name) for name in ("n_rows", "n_features", "nnz", "n_classes")}
        kinds = {name: True for name in ("weighted", "multilabel", "grouped") if getattr(self, name)}
        shown = {"path": str(self.path), **sizes, "dtype": str(self.dtype), **kinds}
        return {**shown, "shuffled": self.shuffled, "classes": self.classes}

    def _column(self, name: str, start: int, stop: int) -> np.ndarray:
        return self.columns(self._range(start, stop), {name})[name]

    def _range(self, start: int, stop: int) -> Ranges:
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start}:{stop} are not within 0:{self.n_rows}")
        return span(start, stop)


# Each fact is a read-only attribute of the store.
for _name in {*Facts.__annotations__, *vars(Facts)}:
    if not _name.startswith("_"):
        setattr(Store, _name, property(operator.attrgetter(f"facts.{_name}")))
