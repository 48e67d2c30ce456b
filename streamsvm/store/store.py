"""The interface of stores: facts, sizes, columns and rows of ranges, and what belongs to all rows at once."""

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

IN_MEMORY = "memory"  # the kind of a store that is none on a disk

# What each row has beside its values, by the names in `Rows`; `label_codes` stands for `label_indptr`, too.
COLUMNS = (*OF_EACH_ROW, "label_codes", "names")


def only(columns: Columns, wanted: Set[str]) -> Columns:
    """Return the wanted columns of some; `label_indptr` comes with `label_codes`."""
    wanted = wanted | {"label_indptr"} if "label_codes" in wanted else wanted
    return {name: column for name, column in columns.items() if name in wanted}


class Units(NamedTuple):
    """Ranges of successive rows that no block divides.

    Attributes
    ----------
    rows, offsets : ndarray of int64, shape (n_units + 1,)
        The first row and the first non-zero of each, and where the last one ends.
    """

    rows: np.ndarray
    offsets: np.ndarray


class RowSizes(NamedTuple):
    """Sizes of rows, each int64 of shape (n_rows,).

    Attributes
    ----------
    nnz : ndarray
        Non-zeros, at most.
    labels : ndarray
        Labels, at most; empty unless rows may have several.
    """

    nnz: np.ndarray
    labels: np.ndarray


@dataclasses.dataclass(frozen=True)
class Facts:
    """What plans, checks and records need to know of a store; picklable.

    Attributes are those of `Store`, and:

    Attributes
    ----------
    stored : frozenset of str
        The `COLUMNS` that can be read without values.
    dense : bool
        Whether a matrix that holds rows is dense.
    dense_rows : bool
        Whether the rows that `read` returns are dense: see `streamsvm.data.rows.Rows`.
    parts_of : dict
        Divisions of the rows by their number of parts, as far as they are made: the first `HeldOutPart` of
        each. Views with the same rows share them.
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
    dense: bool = False
    dense_rows: bool = False
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
        """Bytes of the index of each value of the rows in memory."""
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
    """Matrix with labels on disk, read in ranges of rows: CSR or, if most values are not 0, dense.

    `open_store` returns it; it is a context manager. Reading needs memory for the requested rows and one
    chunk of each array, never for the whole store. Only one thread may read at a time.

    Attributes
    ----------
    facts : Facts
        Its entries are attributes of the store, too.
    path : Path
    kind : {"zarr", "hdf5"}
    native : bool
        Whether streamsvm wrote it, with checksums and a record. False for other AnnData.
    n_rows, n_features, nnz, n_classes : int
    classes : tuple of str
        Label texts by class code.
    weighted, multilabel, grouped, held_out_by : bool
        True if rows have weights; if they may have several labels, or none; if they belong to groups, such
        as sequences; if a column says which are held out together.
    n_labels : int
        Labels of all rows together, if `multilabel`; else 0. If not `native`, at most so many.
    units : Units or None
        Ranges of rows that are read as one; None if a block may begin anywhere.
    unlabelled : int
        Rows that were left out because they have no label.
    dtype : dtype
        Of the values that `rows` returns: float32 or float64.
    index_dtype : dtype
        Of the indices that `rows` returns, unless they are dense: int32 or int64.
    index_base : int or None
        The first feature index in the text that the store was converted from: 0 or 1.
    shuffled : bool
        Whether rows are in random order.
    chunk_nnz : int
        Non-zeros per chunk.
    chunk_rows : float
        Mean number of rows per chunk of values.
    meta : dict
        The store's record without its table of arrays; empty if not `native`.
    arrays : dict of str to StoredArray
        The arrays of the first container, by the names in `layout`; none of rows in memory.
    members : list of Store
        Stores on disk that contain the rows.
    bytes_read : int
        Decoded bytes returned so far.
    held_bytes : int
        Bytes that the store holds while it is open, beside the chunks being decoded.
    extra_nnz_bytes : int
        Bytes of each non-zero that reading needs beyond two copies of it, at most.
    """

    facts: Facts

    # -- what each kind of store defines -----------------------------------------------------------

    @property
    def members(self) -> list[Store]:
        raise NotImplementedError

    def sizes(self, ranges: Ranges) -> RowSizes:
        """Return the sizes of the rows of some ranges, one after the other; reads row pointers."""
        raise NotImplementedError

    def columns(self, ranges: Ranges, wanted: Set[str]) -> Columns:
        """Return the wanted columns of the rows of some ranges, without reading values.

        Parameters
        ----------
        ranges : Ranges
        wanted : set of str
            Of `COLUMNS`; what is not in ``facts.stored`` is left out.

        Raises
        ------
        StoreError
            If they are not what `Rows` says, or cannot be read; the message names array and chunk.
        """
        raise NotImplementedError

    def read(self, ranges: Ranges) -> Rows:
        """Return the rows of some ranges, one after the other, with all of their columns but the names.

        Each chunk is decoded once, in the order in which chunks lie on the disk. Errors are those of `rows`.
        """
        raise NotImplementedError

    def whole(self, what: Whole) -> Any:
        """Return what belongs to all rows at once; None if it is not known.

        Raises
        ------
        StoreError
            If it is not what is on record, or cannot be read.
        """
        raise NotImplementedError

    # -- one range ---------------------------------------------------------------------------------

    def rows(self, start: int, stop: int) -> Rows:
        """Read the rows ``start:stop``, and check that they are what compiled code relies on.

        Parameters
        ----------
        start, stop : int
            ``0 <= start <= stop <= n_rows``.

        Returns
        -------
        Rows
            New, writable, contiguous arrays; of an `ArrayStore`, views of those that it was given. Values
            are finite, indices are in ``0..n_features - 1`` and strictly increasing within each row, labels
            are in ``-1..n_classes - 1``, norms are finite. `cost` has the weights of the rows, finite and at
            least 0, or is empty if the store has none.

        Raises
        ------
        StoreError
            If they are not, or cannot be read; the message names array and chunk.
        IndexError
            If there are no such rows.
        """
        return self.read(self._range(start, stop))

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Return where the rows ``start:stop`` begin among their non-zeros, and where the last one ends.

        They may have fewer non-zeros than this says, if the store is a view with transforms or features of a
        model.

        Returns
        -------
        ndarray of int64, shape (stop - start + 1,)
            Monotonic, from 0 on.
        """
        return np.concatenate([[0], np.cumsum(self.sizes(self._range(start, stop)).nnz)])

    def labels(self, start: int, stop: int) -> np.ndarray:
        """Return the class codes of the rows ``start:stop``, int32; -1 is a label outside `classes`."""
        return self._column("labels", start, stop)

    def label_sets(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return `label_codes` and `label_indptr` of the rows ``start:stop``; only if `multilabel`."""
        found = self.columns(self._range(start, stop), {"label_codes"})
        return found["label_codes"], found["label_indptr"]

    def weights(self, start: int, stop: int) -> np.ndarray:
        """Return the weights of the rows ``start:stop``, float64; only if `weighted`."""
        return self._column("cost", start, stop)

    def groups(self, start: int, stop: int) -> np.ndarray:
        """Return the groups that the rows ``start:stop`` belong to, int64; only if `grouped`."""
        return self._column("qid", start, stop)

    def numbers(self, start: int, stop: int) -> np.ndarray:
        """Return the numbers that the rows ``start:stop`` have in the data as given, int64: see `Rows`."""
        return self._column("numbers", start, stop)

    def names(self, start: int, stop: int) -> np.ndarray:
        """Return the names of the rows ``start:stop``: their numbers in the original input, int64.

        If not `native`, the index of ``obs``, as str objects.
        """
        return self._column("names", start, stop)

    def norms(self, start: int, stop: int) -> np.ndarray:
        """Return the squared norms of the rows ``start:stop``, float64; reads the rows if none are stored."""
        if "norm2" in self.facts.stored:
            return self._column("norm2", start, stop)
        return self.rows(start, stop).norm2

    def pieces(self, most: int, start: int, stop: int) -> Iterator[tuple[int, Rows]]:
        """Yield the rows ``start:stop`` in pieces of about `most` non-zeros, each with its first row."""
        while start < stop:
            end = min(start + _POINTERS_AT_A_TIME, stop)
            offsets = self.indptr(start, end)
            while start < end:
                at = len(offsets) - 1 - (end - start)
                n = int(np.searchsorted(offsets, offsets[at] + most, "right")) - 1 - at
                next_ = start + max(n, 1)
                yield start, self.rows(start, next_)
                start = next_

    # -- all rows ----------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Hash of the content."""
        return self.whole("fingerprint")

    @property
    def class_counts(self) -> np.ndarray:
        """Rows of each class, int64; a row of several labels counts for each."""
        return self.whole("class_counts")

    def feature_names(self) -> list[str] | None:
        """Read the names of the features; None if they only have numbers, as those of LIBSVM text."""
        return self.whole("feature_names")

    def statistics(self) -> Statistics | None:
        """Read the statistics of the features; None if they were not gathered."""
        return self.whole("statistics")

    @property
    def arrays(self) -> dict[str, StoredArray]:
        return self.members[0].arrays if self.members else {}

    @property
    def bytes_read(self) -> int:
        return sum(member.bytes_read for member in self.members)

    def verify(self, progress: Progress | None = None) -> None:
        """Read every chunk of every array, and compare the content with the fingerprint.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(done, total)`` in decoded bytes.

        Raises
        ------
        StoreError
            At the first damage; the message names the array, and the chunk if one cannot be read.
        """
        for member in self.members:
            member.verify(progress)

    def close(self) -> None:
        """Close the container; arrays that were returned stay valid."""
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
            raise IndexError(f"rows {start}:{stop} of {self.n_rows}")
        return span(start, stop)


# The facts of a store as attributes of it, which nothing sets.
for _name in {*Facts.__annotations__, *vars(Facts)}:
    if not _name.startswith("_"):
        setattr(Store, _name, property(operator.attrgetter(f"facts.{_name}")))
