"""Fit transforms to training data, in as few passes over the data as possible."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from streamsvm.base import format
from streamsvm.base.prefetch import Prefetcher
from streamsvm.base.threads import Threads
from streamsvm.data.hold_out import HeldOutPart
from streamsvm.data.rows import PIECE_ROWS, Rows, kept_rows
from streamsvm.data.statistics import Statistics, StatisticsBuilder, bytes_needed
from streamsvm.data.value_kinds import VALUES_IN, ValuesIn, describe_values
from streamsvm.errors import PlanError, wrong_setting
from streamsvm.store.ranges import ranges_of
from streamsvm.store.store import Store
from streamsvm.transforms import Transform, apply, features_after, parse_transforms
from streamsvm.transforms.base import FittingData
from streamsvm.transforms.counts import Counts
from streamsvm.transforms.defaults import COUNT_TRANSFORMS, watch_scales
from streamsvm.transforms.store import number_columns

DATA_ENTRIES = ("n_features_in", VALUES_IN, format.MULTILABEL)  # entries in the records of runs and models
_SAMPLE_SLICES, _SLICE_ROWS = 16, 1024  # sample of a store, from which the kind of its values is detected
_MIN_PIECE_NNZ, _MAX_PIECE_NNZ = 2**12, 2**20
_MIN_PIECE_CHUNKS = 2  # minimum with several threads, because chunks at the ends of a piece are decoded twice
_DRAWN_ROWS = 8000  # number of rows whose distances determine gamma of `fourier`
_PIECE_SHARE, _NNZ_BYTES = 8, 64  # 1/8 of the budget is for pieces; bytes per non-zero in a piece


Kind = Literal["counts", "moments"]


class RawData(NamedTuple):
    """Training data before any transform."""

    n_rows: int
    n_features: int
    names: Sequence[str] | None
    index_base: int | None  # number of the first feature in LIBSVM text
    where: str
    pieces: Callable[[], Iterable[tuple[int, Rows]]]
    read: Callable[[np.ndarray], Rows]  # reads the rows with the given numbers, which are ascending
    sample: Iterable[tuple[int, Rows]]  # sample in pieces, each preceded by the number of its first row
    statistics: Callable[[], Statistics | None] = lambda: None
    numbers: np.ndarray | None = None  # as in `FittingData`
    multilabel: bool = False  # whether a row may have several labels, or none
    workers: int = 1  # number of threads that transform pieces; if above 1, another thread reads ahead
    # Called with the number of rows read so far.
    progress: Callable[[int], None] = lambda done: None


class FittedTransforms(NamedTuple):
    """Fitted transforms, and the entries that describe the training data in the model's record.

    `record` contains ``values_in``, which describes the sampled values and is None with ``counts=no``. It
    contains ``multilabel`` only if this is True, and ``n_features_in`` only if there are transforms.
    """

    transforms: list[Transform]
    record: dict[str, Any]


@dataclasses.dataclass
class _Fitting:
    """State while transforms are fitted to all rows except those in a held-out part."""

    held_out: HeldOutPart | None
    n_features: int
    names: Sequence[str] | None
    numbers: np.ndarray | None
    known: Statistics | None = None  # statistics after the transforms fitted so far
    seed: int = 0
    fitted: list[Transform] = dataclasses.field(default_factory=list)
    integers: bool = True
    largest: float = 0.0

    def add_sample(self, first: int, rows: Rows) -> None:
        kept = self.kept(first, rows)
        data = rows.data if kept is None else rows.data[np.repeat(kept, np.diff(rows.indptr))]
        seen = describe_values(data)
        self.integers &= seen.integers
        self.largest = max(self.largest, seen.largest)

    def kept(self, first: int, rows: Rows) -> np.ndarray | None:
        """Return a mask of the rows that are not held out, or None for all rows; row 0 has number `first`."""
        return None if self.held_out is None else ~self.held_out.has(np.arange(first, first + rows.n_rows))

    def row_numbers(self, n_rows: int) -> Iterator[np.ndarray]:
        for begin in range(0, n_rows, PIECE_ROWS):
            numbers = np.arange(begin, min(begin + PIECE_ROWS, n_rows))
            yield numbers if self.held_out is None else numbers[~self.held_out.has(numbers)]

    def lacks(self, needs: str | None) -> bool:
        return needs is not None and (self.known is None or self.known.kind not in (needs, "moments"))

    def fit(self, transform: Transform, raw: RawData) -> None:
        facts = self.n_features, self.names, raw.index_base, self.known, self.numbers, self.seed
        data = FittingData(*facts, raw.n_rows)
        transform = transform.fitted(data)
        self.known = None if self.known is None else transform.after(self.known)
        self.n_features = transform.n_features(self.n_features) or 0
        self.names = transform.feature_names(self.names)
        self.numbers = transform.numbers(self.numbers)
        self.fitted.append(transform)


def fit_transforms(
    transforms: Sequence[Transform],
    data: RawData,
    held_out: Sequence[HeldOutPart | None] = (None,),
    *,
    memory: int | None = None,
    seed: int = 0,
) -> list[FittedTransforms]:
    """Fit transforms once for each part in `held_out`, to the rows outside the part, or to all rows for None.

    Feature statistics are taken from the store if it has them and no row is held out. Otherwise they are
    computed for all parts in one pass over the rows. Statistics remain known when features are multiplied or
    selected; after centring, only the variance does. If the next transform needs other statistics, the rows
    are read once more, and the transforms fitted so far are applied to them.

    If the transforms include `normalize` or `log1p` but not `counts`, and all sampled values are whole
    numbers, `Counts` is inserted first. If `fourier` has no gamma, a sample of rows, which is determined by
    `seed`, is read last to choose it.

    Raises `SettingsError` if a transform cannot be applied to the data, `PlanError` if the statistics or the
    sample for `fourier` exceed `memory` bytes, and `InputError` if a transform refuses a row.
    """
    fittings = [_Fitting(part, data.n_features, data.names, data.numbers, seed=seed) for part in held_out]
    for first, rows in watch_scales(transforms, data):
        for each in fittings:
            each.add_sample(first, rows)
    checked = [each for each in transforms if not (isinstance(each, Counts) and not each.checked)]
    compared = len(checked) == len(transforms)
    needs_counts = any(each.name in COUNT_TRANSFORMS for each in transforms)
    names_counts = any(each.name == Counts.name for each in transforms)
    needs_statistics = any(each.needs is not None for each in transforms)
    affordable = memory is None or bytes_needed(data.n_rows, data.n_features, "moments") <= memory
    for each in fittings:
        if needs_counts and not names_counts and each.integers:
            each.fit(Counts(), data)
        if each.held_out is None and needs_statistics and affordable:
            each.known = data.statistics()
    for at, transform in enumerate(checked):
        lacking = [each for each in fittings if each.lacks(transform.needs)]
        if lacking:
            kind: Kind = "counts" if {each.needs for each in checked[at:]} <= {None, "counts"} else "moments"
            needed = sum(bytes_needed(data.n_rows, each.n_features, kind) for each in lacking)
            if memory is not None and needed > memory:
                raise PlanError(
                    f"{transform.name} needs statistics of {lacking[0].n_features:,} features, which take "
                    f"{needed:,} bytes",
                    needed_memory=needed,
                )
            for each, statistics in zip(lacking, _gather(data, lacking, kind), strict=True):
                each.known = statistics
        for each in fittings:
            each.fit(transform, data)
    if checked and checked[-1].needs_rows:
        _fit_to_rows(data, fittings, memory)
    before: dict[str, Any] = {"n_features_in": data.n_features} if transforms else {}
    after: dict[str, Any] = {format.MULTILABEL: True} if data.multilabel else {}
    results = []
    for each in fittings:
        values_in = ValuesIn(each.integers, each.largest)._asdict() if compared else None
        results.append(FittedTransforms(each.fitted, {**before, VALUES_IN: values_in, **after}))
    return results


def fit_without_rows(text: str | None, data: FittingData) -> list[Transform]:
    """Parse transforms and fit them to data whose rows come in batches.

    Raises `SettingsError` if a transform needs all rows, or cannot be applied to the data.
    """
    transforms: list[Transform] = []
    for transform in parse_transforms(text):
        if transform.needs_rows:
            problem = f"{transform.name} needs gamma if rows come in batches"
            raise wrong_setting("transform", f"{problem}; set it, as in fourier=2048:gamma=0.5")
        if transform != Counts(checked=False):
            transforms.append(transform.fitted(data))
            width = features_after(transforms[-1:], data.n_features) or 0
            data = dataclasses.replace(data, n_features=width)
    return transforms


def _gather(data: RawData, fittings: Sequence[_Fitting], kind: Kind) -> list[Statistics]:
    builders = [StatisticsBuilder(data.n_rows, each.n_features, kind) for each in fittings]
    first_ids = [id(each) for each in fittings[0].fitted]
    shared = all([id(each) for each in other.fitted] == first_ids for other in fittings)

    def transformed(piece: tuple[int, Rows]) -> tuple[int, Rows]:
        first, rows = piece
        return first, apply(fittings[0].fitted, rows, where=data.where, first=first) if shared else rows

    with contextlib.ExitStack() as stack:
        pieces = data.pieces()
        if data.workers > 1:
            pieces = stack.enter_context(Prefetcher(pieces))
        threads = stack.enter_context(Threads(data.workers))
        for first, rows in threads.map_ahead(transformed, pieces):  # in order, so that sums are rounded alike
            for each, builder in zip(fittings, builders, strict=True):
                # Transforms that differ are applied here, so that only one copy of the rows exists at a time.
                mapped = rows if shared else apply(each.fitted, rows, where=data.where, first=first)
                builder.add_rows(mapped, each.kept(first, rows))
            data.progress(first + rows.n_rows)
    return [builder.result() for builder in builders]


def _fit_to_rows(data: RawData, fittings: Sequence[_Fitting], memory: int | None) -> None:
    """Fit the last transform to a random sample of rows, after the preceding transforms."""
    from streamsvm.kernels.random import draw_integers  # imported late because it loads the compiler

    chosen = [draw_integers(each.seed, each.row_numbers(data.n_rows), _DRAWN_ROWS) for each in fittings]
    width = features_after(fittings[0].fitted[:-1], data.n_features) or 0
    needed = 2 * 8 * len(chosen[0]) * width
    if memory is not None and needed > memory:
        name = fittings[0].fitted[-1].name
        raise PlanError(f"the sample of rows for {name} takes {needed:,} bytes", needed_memory=needed)
    numbers = np.unique(np.concatenate(chosen))
    rows = data.read(numbers)
    for each, drawn in zip(fittings, chosen, strict=True):
        *before, last = each.fitted
        kept = apply(before, kept_rows(rows, np.isin(numbers, drawn)), where=data.where)
        each.fitted[-1] = last.fitted_to_rows(kept, np.argsort(drawn))


def raw_store(
    store: Store,
    memory: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    workers: int = 1,
) -> RawData:
    """Return a store as training data; `progress` receives the number of rows read and the total number.

    At most `workers` threads transform pieces, and fewer if `memory` cannot hold that many pieces. Only
    one thread reads the pieces, because a store requires this, but several threads decode their chunks.
    """
    workers, piece_nnz = _workers_and_piece(store, memory, workers)
    if (numbers := number_columns(store)) is not None:  # centring fills in the zeros of these columns
        piece_nnz = piece_nnz * store.nnz // max(store.nnz, store.n_rows * len(numbers), 1)

    def sample() -> Iterator[tuple[int, Rows]]:
        if 0 < store.n_rows <= _SAMPLE_SLICES * _SLICE_ROWS and store.nnz <= piece_nnz:
            yield 0, store.rows(0, store.n_rows)  # a single read, because each read takes milliseconds
            return
        n_slices = min(_SAMPLE_SLICES, -(-store.n_rows // _SLICE_ROWS))
        for begin in np.linspace(0, max(store.n_rows - _SLICE_ROWS, 0), n_slices).astype(np.int64).tolist():
            yield begin, first_rows(store, begin, min(_SLICE_ROWS, store.n_rows - begin), piece_nnz)

    return RawData(
        store.n_rows, store.n_features, store.feature_names(), store.index_base, str(store.path),
        lambda: store.pieces(piece_nnz, 0, store.n_rows), lambda at: store.read(ranges_of(at)), sample(),
        store.statistics, numbers, store.multilabel, workers, lambda done: progress(done, store.n_rows),
    )  # fmt: skip


def _workers_and_piece(store: Store, memory: int, workers: int) -> tuple[int, int]:
    """Return the number of threads whose pieces fit in `memory`, and the number of non-zeros in a piece."""
    if store.dense:
        workers = 1  # reading a dense matrix takes most of the time: docs/measurements/parallel.md
    room = memory // (_PIECE_SHARE * _NNZ_BYTES)
    chunk = int(store.chunk_rows * store.nnz / max(store.n_rows, 1))
    min_nnz = max(_MIN_PIECE_NNZ, min(_MIN_PIECE_CHUNKS * chunk, _MAX_PIECE_NNZ))
    workers = max(1, min(workers, room // min_nnz - 2))  # one more piece is being read, and one added up
    pieces = 1 if workers == 1 else workers + 2
    return workers, max(_MIN_PIECE_NNZ, min(_MAX_PIECE_NNZ, room // pieces))


def first_rows(store: Store, begin: int, n_rows: int, max_nnz: int) -> Rows:
    """Read at most `n_rows` rows starting at row `begin`, with at most `max_nnz` non-zeros if possible."""
    offsets = store.indptr(begin, begin + n_rows)
    n = int(np.searchsorted(offsets, offsets[0] + max_nnz, "right")) - 1
    return store.rows(begin, begin + min(max(n, 1), n_rows))


def raw_rows(rows: Rows, n_features: int, names: Sequence[str] | None) -> RawData:
    several = len(rows.label_indptr) > 0
    return RawData(
        rows.n_rows, n_features, names, 0, "X", lambda: [(0, rows)],
        lambda numbers: kept_rows(rows, np.isin(np.arange(rows.n_rows), numbers)), [(0, rows)],
        multilabel=several,
    )  # fmt: skip
