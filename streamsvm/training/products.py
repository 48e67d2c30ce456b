"""Visits of dense rows in tiles, whose scores and weight updates are computed as matrix products."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.data.rows import Rows, kept_rows, row_span
from streamsvm.errors import Option, Remedy, RunError
from streamsvm.kernels.scratch import own_lines
from streamsvm.kernels.simd import LANES
from streamsvm.kernels.tally import CLOCK
from streamsvm.kernels.tile import Tile, add_columns, clear_steps, mark_moved
from streamsvm.kernels.weights import AVERAGE_POWER, Weights

# Rows per tile. More rows need more corrections of the scores; fewer rows make products slower.
_MAX_ROWS, _MIN_ROWS = 256, 64
_FEW_COLUMNS = 256  # with fewer columns, inner products of many rows dominate the cost
_PART = 64  # number of rows whose scores are corrected by one product for the steps of earlier rows
_BYTES = 2**26  # limit for the scores and the steps of a tile with more than `_MIN_ROWS` rows
# Products are divided into parts of fixed size, so that results do not depend on the number of threads.
_SCORED_COLUMNS = 512
_FEATURES, _COLUMNS = 192, 2048
_THREADS = 8  # the plan includes buffers for this many threads, whatever the actual number
_FEW = 4  # if at most a quarter of the columns change, steps are added column by column


def tile_rows(columns: int, itemsize: int) -> int:
    """Return the number of rows in a tile for weights with `columns` columns."""
    rows = _MAX_ROWS if columns >= _FEW_COLUMNS else _MIN_ROWS
    while rows > _MIN_ROWS and 2 * rows * columns * itemsize > _BYTES:
        rows //= 2
    return rows


class Products:
    """Matrix products for learning from dense rows. `threads` compute the parts of a product."""

    def __init__(self, columns: int, dtype: np.dtype, threads: Threads) -> None:
        self.n_rows = n_rows = tile_rows(columns, dtype.itemsize)
        self._threads = threads if columns >= _FEW_COLUMNS else Threads()
        none = np.zeros((0, 0), dtype)
        scores, average, steps = (own_lines(n_rows * columns, dtype).reshape(n_rows, -1) for _ in range(3))
        self._tile = Tile(
            scores, average, none, steps, np.zeros((n_rows, columns // LANES + 1), np.int64),
            np.zeros(n_rows, np.int64), np.zeros(1, np.int64), np.ones(1),
        )  # fmt: skip

    @staticmethod
    def n_bytes(columns: int, n_features: int, itemsize: int) -> int:
        """Return the size in bytes of the arrays that products need in addition to the weights."""
        n_rows = tile_rows(columns, itemsize)
        # Scores with the weights and with their average, and steps; rows and inner products of two tiles.
        row = 3 * columns + 2 * (n_features + n_rows)
        return (n_rows * row + _THREADS * _FEATURES * _COLUMNS) * itemsize + n_rows * columns

    def visit(
        self,
        visit: Callable[[int, int, Weights], int],
        rows: Rows,
        order: np.ndarray,
        begin: int,
        end: int,
        weights: Weights,
        tally: np.ndarray,
    ) -> int:
        """Visit the rows of ``order[begin:end]`` tile by tile, and return the position reached.

        ``visit(at, end, weights)`` must visit ``order[at:end]`` with the tile in `weights`, update `tally`,
        and return the position reached. Raises `RunError` if inner products of the rows would overflow.
        """
        if begin == end:  # only compiles the kernel
            return visit(begin, end, weights._replace(tile=self._tile))
        dtype = rows.data.dtype
        if (largest := rows.norm2.max()) > np.finfo(dtype).max:
            raise RunError(
                f"a row has the squared norm {largest:.1e}, too large for matrix products in {dtype}",
                remedy=Remedy("rescale the data to values of order 1, or use {}", Option("dtype", "float64")),
            )

        def load(positions: slice) -> tuple[np.ndarray, np.ndarray]:
            X = np.take(rows.matrix, order[positions], axis=0)
            return X, X @ X.T

        cuts = [begin, *range((begin // self.n_rows + 1) * self.n_rows, end, self.n_rows), end]
        tiles = [slice(*cut) for cut in itertools.pairwise(cuts)]
        loaded = self._threads.submit(load, tiles[0])
        for tile, next_tile in itertools.zip_longest(tiles, tiles[1:]):
            X, inner = loaded.result()
            self._multiply(X, weights.current, self._tile.scores)
            self._tile.n_moved[:] = 0
            self._tile.clock[0] = tally[CLOCK] + 1
            if next_tile is not None:  # loads in the background while rows are visited
                loaded = self._threads.submit(load, next_tile)
            reached = self._visit_tile(visit, inner, tile.start, weights)
            self._add_steps(X[: reached - tile.start], weights)
            if reached < tile.stop:
                break
        return reached

    def _visit_tile(
        self, visit: Callable[[int, int, Weights], int], inner: np.ndarray, at: int, weights: Weights
    ) -> int:
        """Visit the rows of the tile that starts at position `at`; `inner` contains their inner products.

        For each part of the tile, one product corrects the scores for the steps of all earlier parts. Within
        a part, steps are added one by one.
        """
        whole, reached = self._tile, at
        scores, steps = whole.scores, whole.steps
        for begin in range(0, len(inner), _PART):
            part = slice(begin, min(begin + _PART, len(inner)))
            if begin:
                scores[part] += inner[part, :begin] @ steps[:begin]
            tile = whole._replace(
                scores=scores[part], steps=steps[part], gram=np.ascontiguousarray(inner[part, part]),
                moved=whole.moved[part], n_moved=whole.n_moved[part],
            )  # fmt: skip
            reached = visit(at + begin, at + part.stop, weights._replace(tile=tile))
            if reached < at + part.stop:
                break
        return reached

    def score(self, rows: Rows, weights: Weights, *, average: bool) -> Iterator[tuple[Rows, Weights]]:
        """Yield tiles of the rows, each with weights that contain the scores of its rows."""
        if rows.n_rows == 0:
            yield rows, weights._replace(tile=self._tile)
        for begin in range(0, rows.n_rows, self.n_rows):
            part = row_span(rows, begin, min(begin + self.n_rows, rows.n_rows))
            if not part.cost.all():  # skip rows of cost 0, such as rows that are not held out
                part = kept_rows(part, part.cost != 0)
            self._multiply(part.matrix, weights.current, self._tile.scores)
            if average:
                self._multiply(part.matrix, weights.average_delta, self._tile.average_scores)
            yield part, weights._replace(tile=self._tile)

    def _multiply(self, X: np.ndarray, weights: np.ndarray, scores: np.ndarray) -> None:
        n_columns = weights.shape[1]

        def part(first: int) -> None:
            columns = slice(first, min(first + _SCORED_COLUMNS, n_columns))
            np.matmul(X, weights[: X.shape[1], columns], out=scores[: len(X), columns])

        self._threads.each(part, range(0, n_columns, _SCORED_COLUMNS))

    def _add_steps(self, X: np.ndarray, weights: Weights) -> None:
        tile, n = self._tile, len(X)
        steps, K = tile.steps[:n], weights.current.shape[1]
        moved = np.zeros(K // LANES, np.bool_)
        mark_moved(tile.moved, tile.n_moved[:n], moved)
        columns = np.flatnonzero(np.repeat(moved, LANES))
        few = _FEW * len(columns) <= K
        if few:
            steps = np.ascontiguousarray(steps[:, columns])
        targets = [(weights.current, 1.0)]
        if len(weights.average_delta):
            time = tile.clock[0] / weights.time_unit
            targets.append((weights.average_delta, steps.dtype.type(time**AVERAGE_POWER)))
        parts = [
            (slice(f, f + _FEATURES), slice(c, c + _COLUMNS))
            for f in range(0, X.shape[1], _FEATURES)
            for c in range(0, steps.shape[1], _COLUMNS)
        ]

        def add(part: tuple[slice, slice]) -> None:
            features, changed = part
            change = X[:, features].T @ steps[:, changed]
            for target, factor in targets:
                if factor != 1:
                    change *= factor
                if few:
                    add_columns(target[features], columns[changed], change)
                else:
                    target[features, changed] += change

        self._threads.each(add, parts)
        clear_steps(tile.steps, tile.moved, tile.n_moved)
