"""Storage of the weights: in memory, or in memory-mapped files that may exceed it."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from streamsvm.base import durable
from streamsvm.base.text import format_size
from streamsvm.data.rows import Rows
from streamsvm.errors import Remedy, RunError
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.sparse_rows import SparseRows
from streamsvm.kernels.weights import Weights
from streamsvm.model.coefficients import Coefficients
from streamsvm.run.directory import RunDir
from streamsvm.run.segments import pieces, restore_arrays, rows_in_use, state_of

LARGEST_FILE = 2**43  # bytes: ext4 ends at 16 TB
_HUGE_PAGE = 2**21


def map_array(
    path: Path | None, shape: tuple[int, int], dtype: np.dtype, *, fresh: bool = True
) -> np.ndarray:
    """Return an array in the file `path`, or in memory if that is None.

    It is zero, and pages that stay zero take no space on disk, unless the file system gives space to pages
    that are only read (tmpfs): there all of it is reserved. If not `fresh`, the file keeps what it holds, and
    is only extended.

    The file may be larger than memory. The operating system then writes changed pages to disk over and
    over: more than everything else that a fit writes.
    """
    size = shape[0] * shape[1] * dtype.itemsize
    if path is None:
        if size == 0:
            return np.zeros(shape, dtype)
        # Aligned to a page, as 64-byte vectors need; private, so that it counts as this process's memory.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE") and size >= _HUGE_PAGE:  # fewer faults, and misses of the TLB
            with contextlib.suppress(OSError):  # a kernel without them
                memory.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(memory, dtype).reshape(shape)
    with durable.open_file(path, "wb" if fresh else "r+b") as file:
        file.truncate(size)
    if size == 0:
        return np.zeros(shape, dtype)
    with durable.named(path), durable.open_file(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), size)
        if _reads_take_space(path, file.fileno(), mapped):
            os.posix_fallocate(file.fileno(), 0, size)
    # Rows are accessed in random order: reading ahead would fetch megabytes for each of a few hundred
    # bytes, and under a tight memory limit evict the rows in use. So would huge pages.
    mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, dtype).reshape(shape)


def _reads_take_space(path: Path, descriptor: int, mapped: mmap.mmap) -> bool:
    """Return True if a hole of a mapped file takes space once it is read; tests the last page."""
    if durable.free_bytes(path) < mmap.PAGESIZE:  # reading it might end the process
        return hasattr(os, "posix_fallocate")
    before = os.fstat(descriptor).st_blocks
    mapped[-1]
    return os.fstat(descriptor).st_blocks > before


class WeightStorage:
    """Base of the storage of weights for a learner.

    Attributes
    ----------
    weights : Weights
        The weights in the form that kernels take. Any method may replace it.
    sparse_rows : SparseRows or None
        The sparse rows of the weights; None if the weights are in the matrix.
    n_features : int
    work : mapping of str to float
        What workers that have the weights did in the pass, for its record.
    """

    weights: Weights
    work: Mapping[str, float] = {}
    sparse_rows: SparseRows | None = None

    @property
    def in_use(self) -> Weights:
        """Weights for a commit or a model: without rows that are mapped for features to come."""
        return self.weights

    @property
    def n_features(self) -> int:
        raise NotImplementedError

    def make_room(self, rows: Rows, i: int) -> None:
        """Make room for the changes that a visit of row `i` may make."""

    def grow(self, n_features: int, n_classes: int) -> None:
        """Make room for at least so many features, and columns for so many classes."""

    def begin_average(self) -> None:
        """Start the average of the iterates at the current weights."""

    def scale(self, factor: float) -> None:
        """Multiply the weights by a factor, before an average begins."""

    def end_pass(self) -> None:
        """Drop negligible weights, if that saves anything."""

    def state(self) -> Iterator[np.ndarray]:
        """Yield the arrays that a commit writes one after another."""
        raise NotImplementedError

    def restore(self, path: Path) -> None:
        """Read the weights of a commit, whose checksum was checked; they must be zero before.

        Raises `RunError` for numbers that would lead kernels out of their arrays.
        """
        raise NotImplementedError

    def check_room(self, rows: Rows) -> None:
        """Raise `RunError` if the disk cannot take what a block of these rows may change."""

    def squares(self, norm2: Callable[..., None], problem: Problem, average_scale: float) -> list[float]:
        """Return ‖w‖² of each range of classes by a kernel: of the last iterate, or of the average."""
        sums = np.zeros(len(problem.ranges))
        norm2(self.weights, average_scale, self.sparse_rows, problem, sums)
        return sums.tolist()

    def coefficients(self, average_scale: float | None, columns: np.ndarray) -> Coefficients:
        """Return the coefficients of a model: of the last iterate (None), or of the average."""
        raise NotImplementedError


class DenseWeights(WeightStorage):
    """Weights in a matrix of fixed shape, in memory or mapped from files.

    Parameters
    ----------
    shape : tuple of int
        Features, and classes padded to whole vectors.
    dtype : dtype
    time_unit : float
        The unit of the average's time (see `Weights`).
    paths : sequence of Path
        File of the weights; by default they are in memory.
    average : bool
        True if an average can be kept, in memory.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype,
        time_unit: float,
        paths: Sequence[Path] = (),
        *,
        average: bool = True,
    ) -> None:
        self._paths = paths
        current = map_array(paths[0] if paths else None, shape, dtype)
        delta = map_array(None, shape if average else (0, shape[1]), dtype)
        self.weights = Weights(current, delta, time_unit)

    @property
    def n_features(self) -> int:
        return len(self.weights.current)

    def begin_average(self) -> None:
        current = self.weights.current
        self.weights = self.weights._replace(average_delta=map_array(None, current.shape, current.dtype))

    def scale(self, factor: float) -> None:
        for current, path in self._arrays()[:1]:
            flat = current.reshape(-1)
            for part in pieces(current, path):  # zeros are not written into holes of the file
                np.multiply(flat[part], flat.dtype.type(factor), out=flat[part], where=flat[part] != 0)

    def state(self) -> Iterator[np.ndarray]:
        return state_of(self._arrays())

    def restore(self, path: Path) -> None:
        arrays = zip(self._paths, self.weights[:2], strict=False)
        check_mapped(arrays, self.n_features, durable.size(path))
        restore_arrays(path, [array for array, _ in self._arrays()])

    def _arrays(self) -> list[tuple[np.ndarray, Path | None]]:
        """Return the weights and, if there is one, their average's delta, each with its file."""
        found = itertools.zip_longest(self.in_use[:2], self._paths)
        return [(array, path) for array, path in found if len(array)]

    def _used(self) -> np.ndarray:
        """Return ranges of features, ascending, outside of which files of the weights are holes."""
        if not self._paths or not self.n_features:
            return np.array([[0, self.n_features]])
        return rows_in_use(self._arrays())

    def squares(self, norm2: Callable[..., None], problem: Problem, average_scale: float) -> list[float]:
        sums, weights = np.zeros(len(problem.ranges)), self.weights
        for begin, end in self._used().tolist():
            current, delta = (array[begin:end] for array in weights[:2])
            norm2(weights._replace(current=current, average_delta=delta), average_scale, None, problem, sums)
        return sums.tolist()

    def check_room(self, rows: Rows) -> None:
        """Raise `RunError` if the disk is too full: the first write to a page would then end the process."""
        arrays = list(zip(self._paths, self.weights[:2], strict=False))
        try:
            check_mapped(arrays, min(len(rows.data), self.n_features))
        except RunError:  # most features occur in many rows
            if rows.indices is None:
                raise
            check_mapped(arrays, len(np.unique(rows.indices)))

    def coefficients(self, average_scale: float | None, columns: np.ndarray) -> Coefficients:
        weights = self.in_use
        delta = None if average_scale is None else weights.average_delta
        return Coefficients(weights.current, columns, delta, average_scale or 0.0, self._used())


def check_mapped(arrays: Iterable[tuple[Path, np.ndarray]], n_rows: int, most: int = 2**63) -> None:
    """Raise `RunError` unless the disk of mapped files has room for `n_rows` more rows of each.

    A mapped file is sparse: a page takes space when it is first written. If there is none left by then, the
    operating system ends the process by a signal. So this is called before rows are written.

    Parameters
    ----------
    arrays : iterable of (Path, ndarray of shape (n, columns))
        Files, in one run directory, and the arrays mapped from them. A file may have been removed, since its
        map lives on.
    n_rows : int
        Rows that may be written next; those that never were need space.
    most : int
        Most bytes that may be written next.
    """
    needed = 0
    for path, array in arrays:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            continue
        pages = array.strides[0] // mmap.PAGESIZE + 2  # that a row can be on
        needed += max(min(n_rows * pages * mmap.PAGESIZE, array.nbytes - 512 * found.st_blocks), 0)
        needed = min(needed, most)
        if needed > (free := durable.free_bytes(path)):
            then = RunDir(path.parent).continues()
            raise RunError(
                f"{path}: the disk has {format_size(free)} left, and the weights may need "
                f"{format_size(needed)} more",
                remedy=Remedy(f"free some space, then {then.words}", *then.parts),
            )
