"""Storage of the weights: in memory, or in memory-mapped files that may exceed it."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from streamsvm.base import durable
from streamsvm.base.text import format_size
from streamsvm.data.rows import Rows
from streamsvm.errors import Remedy, RunError
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.sparse_rows import SparseRows
from streamsvm.kernels.weights import Weights
from streamsvm.model.coefficients import Coefficients
from streamsvm.run.directory import RunDir
from streamsvm.run.segments import restore_arrays, state_of

LARGEST_FILE = 2**43  # bytes: ext4 ends at 16 TB
# Weights in memory up to this size (bytes) have no dirty bits, and each commit writes them whole: marking
# changes would take a tenth of the training time where classes are few.
_MAX_UNTRACKED_BYTES = 2**26
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
        Files of the weights and of the dirty bits; by default they are in memory.
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
        whole = not paths and current.nbytes + delta.nbytes <= _MAX_UNTRACKED_BYTES
        dirty = map_array(paths[1] if paths else None, (0 if whole else shape[0], 2), np.dtype(np.uint64))
        self.weights = Weights.create(current, delta, time_unit, dirty)

    @property
    def n_features(self) -> int:
        return len(self.weights.current)

    def begin_average(self) -> None:
        current = self.weights.current
        self.weights = self.weights._replace(average_delta=map_array(None, current.shape, current.dtype))
        if len(self.weights.dirty):
            mark_known(self.weights.dirty)  # for the log holds the delta of an earlier average

    def scale(self, factor: float) -> None:
        multiply_known(self.weights.current, self.weights.dirty, self.weights.group_bits, factor)
        mark_known(self.weights.dirty)

    def state(self) -> Iterator[np.ndarray]:
        paths = [*self._paths[::2], None, None]
        return state_of(list(zip(self._dense(self.in_use), paths, strict=False)))

    def restore(self, path: Path) -> None:
        restore_arrays(path, self._dense(self.weights))
        if len(self.weights.dirty):
            self.weights.dirty[:, 1] = ~np.uint64(0)

    @staticmethod
    def _dense(weights: Weights) -> list[np.ndarray]:
        return [array for array in (weights.current, weights.average_delta) if len(array)]

    def check_room(self, rows: Rows) -> None:
        """Raise `RunError` if the disk is too full: the first write to a page would then end the process."""
        weights = self.weights
        arrays = list(zip(self._paths, (weights.current, weights.dirty, weights.average_delta), strict=False))
        try:
            check_mapped(arrays, min(len(rows.data), self.n_features))
        except RunError:  # most features occur in many rows
            if rows.indices is None:
                raise
            check_mapped(arrays, len(np.unique(rows.indices)))

    def coefficients(self, average_scale: float | None, columns: np.ndarray) -> Coefficients:
        weights = self.in_use
        dirty = weights.dirty if len(weights.dirty) else None
        delta = None if average_scale is None else weights.average_delta
        return Coefficients(weights.current, columns, delta, average_scale or 0.0, dirty)


def check_mapped(arrays: Sequence[tuple[Path, np.ndarray]], n_rows: int) -> None:
    """Raise `RunError` unless the disk of mapped files has room for `n_rows` more rows of each.

    A mapped file is sparse: a page takes space when it is first written. If there is none left by then, the
    operating system ends the process by a signal. So this is called before rows are written.

    Parameters
    ----------
    arrays : sequence of (Path, ndarray of shape (n, columns))
        Files, in one run directory, and the arrays mapped from them. A file may have been removed, since its
        map lives on.
    n_rows : int
        Rows that may be written next; those that never were need space.
    """
    needed = 0
    for path, array in arrays:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            continue
        pages = array.strides[0] // mmap.PAGESIZE + 2  # that a row can be on
        needed += max(min(n_rows * pages * mmap.PAGESIZE, array.nbytes - 512 * found.st_blocks), 0)
        if needed > (free := durable.free_bytes(path)):
            then = RunDir(path.parent).continues()
            raise RunError(
                f"{path}: the disk has {format_size(free)} left, and the weights may need "
                f"{format_size(needed)} more",
                remedy=Remedy(f"free some space, then {then.words}", *then.parts),
            )


@kernel
def mark_known(dirty):
    """Mark all groups known to the log as changed. Others are not touched: they may be holes of a file."""
    for f in range(len(dirty)):
        if dirty[f, 1] != 0:
            dirty[f, 0] |= dirty[f, 1]


@kernel
def multiply_known(array, dirty, group_bits, factor):
    """Multiply the groups that ever changed, or all if that is not recorded, by `factor`.

    The rest is not touched: it may be holes of a file.
    """
    for f in range(len(array)):
        word = ~np.uint64(0)
        if len(dirty) > 0:
            word = dirty[f, 0] | dirty[f, 1]
        begin = 0
        while word != 0 and begin < array.shape[1]:
            end = min(array.shape[1], begin + (1 << group_bits))
            if word & np.uint64(1):
                for c in range(begin, end):
                    array[f, c] *= array.dtype.type(factor)
            word >>= np.uint64(1)
            begin = end
