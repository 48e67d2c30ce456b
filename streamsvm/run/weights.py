"""Store the weights in memory, or in memory-mapped files that may be larger than memory."""

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

LARGEST_FILE = 2**43  # bytes; the limit of ext4 is 16 TB
_HUGE_PAGE = 2**21


def map_array(
    path: Path | None, shape: tuple[int, int], dtype: np.dtype, *, fresh: bool = True
) -> np.ndarray:
    """Return an array of zeros mapped from the file `path`, or in memory if `path` is None.

    If `fresh` is False, the file keeps its content and is only extended. Pages that stay zero take no disk
    space. Some file systems (tmpfs) allocate pages even on reading; on these, the full size is reserved at
    once. If the file is larger than memory, the operating system repeatedly writes changed pages to disk.
    """
    size = shape[0] * shape[1] * dtype.itemsize
    if path is None:
        if size == 0:
            return np.zeros(shape, dtype)
        # Page-aligned for 64-byte vectors; private, so that it counts as memory of this process.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE") and size >= _HUGE_PAGE:  # fewer page faults and TLB misses
            with contextlib.suppress(OSError):
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
    # Rows are accessed in random order. Read-ahead, or huge pages, would fetch megabytes for a few hundred
    # bytes and, under a tight memory limit, evict the rows in use.
    mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, dtype).reshape(shape)


def _reads_take_space(path: Path, descriptor: int, mapped: mmap.mmap) -> bool:
    if durable.free_bytes(path) < mmap.PAGESIZE:  # reading might kill the process
        return hasattr(os, "posix_fallocate")
    before = os.fstat(descriptor).st_blocks
    mapped[-1]
    return os.fstat(descriptor).st_blocks > before


class WeightStorage:
    """Base class for the storage of a learner's weights.

    `weights` is the form of the weights that kernels take; any method may replace it. `sparse_rows` is None
    if the weights are a matrix. `work` records the work of cluster workers in the current pass.
    """

    weights: Weights
    work: Mapping[str, float] = {}
    sparse_rows: SparseRows | None = None

    @property
    def in_use(self) -> Weights:
        """Weights for a commit or a model, without rows reserved for new features."""
        return self.weights

    @property
    def n_features(self) -> int:
        raise NotImplementedError

    def make_room(self, rows: Rows, i: int) -> None:
        """Make room for all weights that a visit of row `i` may change."""

    def grow(self, n_features: int, n_classes: int) -> None:
        """Make room for `n_features` features and `n_classes` classes."""

    def begin_average(self) -> None:
        """Start the average of the iterates at the current weights."""

    def scale(self, factor: float) -> None:
        """Multiply the weights by a factor; called only before an average is started."""

    def end_pass(self) -> None:
        """Drop negligible weights, if that saves memory or time."""

    def state(self) -> Iterator[np.ndarray]:
        """Yield the arrays that a commit writes, in the order of the file."""
        raise NotImplementedError

    def restore(self, path: Path) -> None:
        """Read committed weights, whose checksum was verified, into weights of zeros.

        Raises `RunError` if the file contains numbers that would make kernels access memory out of bounds.
        """
        raise NotImplementedError

    def check_room(self, rows: Rows) -> None:
        """Raise `RunError` if the disk lacks room for the changes that a block of rows may make."""

    def squares(self, norm2: Callable[..., None], problem: Problem, average_scale: float) -> list[float]:
        """Return ‖w‖² of each range of classes, for the last iterate or the average; `norm2` computes it."""
        sums = np.zeros(len(problem.ranges))
        norm2(self.weights, average_scale, self.sparse_rows, problem, sums)
        return sums.tolist()

    def coefficients(self, average_scale: float | None, columns: np.ndarray) -> Coefficients:
        """Return the coefficients of the average, or of the last iterate if `average_scale` is None."""
        raise NotImplementedError


class DenseWeights(WeightStorage):
    """Weights in a matrix of fixed shape, in memory or in memory-mapped files.

    `shape` contains the number of features, and that of classes padded to whole vectors. `time_unit` is the
    time unit of the average (see `Weights`). `paths` contains the file of the weights, or is empty to keep
    them in memory. If `average` is True, an average can be kept in memory.
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
            for part in pieces(current, path):  # zeros are not written, to keep holes in the file
                np.multiply(flat[part], flat.dtype.type(factor), out=flat[part], where=flat[part] != 0)

    def state(self) -> Iterator[np.ndarray]:
        return state_of(self._arrays())

    def restore(self, path: Path) -> None:
        arrays = zip(self._paths, self.weights[:2], strict=False)
        check_mapped(arrays, self.n_features, durable.size(path))
        restore_arrays(path, [array for array, _ in self._arrays()])

    def _arrays(self) -> list[tuple[np.ndarray, Path | None]]:
        """Return the weights and, if there is one, the average delta, each with its file or None."""
        pairs = itertools.zip_longest(self.in_use[:2], self._paths)
        return [(array, path) for array, path in pairs if len(array)]

    def _used(self) -> np.ndarray:
        """Return ascending ranges of features that cover all weights outside holes in the files."""
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
        """Raise `RunError` if the disk is too full, because writing a page would then kill the process."""
        arrays = list(zip(self._paths, self.weights[:2], strict=False))
        try:
            check_mapped(arrays, min(len(rows.data), self.n_features))
        except RunError:  # count distinct features, because most occur in many rows
            if rows.indices is None:
                raise
            check_mapped(arrays, len(np.unique(rows.indices)))

    def coefficients(self, average_scale: float | None, columns: np.ndarray) -> Coefficients:
        weights = self.in_use
        delta = None if average_scale is None else weights.average_delta
        return Coefficients(weights.current, columns, delta, average_scale or 0.0, self._used())


def check_mapped(arrays: Iterable[tuple[Path, np.ndarray]], n_rows: int, max_bytes: int = 2**63) -> None:
    """Raise `RunError` unless the disk has room for writing `n_rows` more rows of each mapped file.

    A page of a mapped file takes disk space when it is first written. On a full disk, a signal then kills the
    process. `arrays` pairs files in one run directory with the arrays of shape (n, columns) mapped from them.
    Deleted files are skipped. At most `max_bytes` bytes will be written.
    """
    needed = 0
    for path, array in arrays:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue
        pages = array.strides[0] // mmap.PAGESIZE + 2
        needed += max(min(n_rows * pages * mmap.PAGESIZE, array.nbytes - 512 * status.st_blocks), 0)
        needed = min(needed, max_bytes)
        if needed > (free := durable.free_bytes(path)):
            continuing = RunDir(path.parent).continues()
            raise RunError(
                f"{path}: the disk has {format_size(free)} left, but the weights may need "
                f"{format_size(needed)} more",
                remedy=Remedy(f"free some space, then {continuing.words}", *continuing.parts),
            )
