"""Specification of a training run: resolved settings, and the sizes and types derived from them."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamsvm.data import memory_plan
from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.kernels.duals import MOST_COLUMNS
from streamsvm.kernels.weights import padded_classes
from streamsvm.losses.base import FILLING, MOST_SEQUENCES, ROUNDS, Loss
from streamsvm.run.duals import DualFormat
from streamsvm.run.growing_weights import TIME_UNIT
from streamsvm.run.sparse_weights import SparseWeights
from streamsvm.settings.fit import AUTO, CLASSES, Settings
from streamsvm.training.parallel.class_groups import ClassGroups, group_classes
from streamsvm.training.parallel.splits import settle_split
from streamsvm.training.products import Products

if TYPE_CHECKING:
    from streamsvm.store import Store

_TYPICAL_ROW_DUALS = 8  # usual upper bound of the mean number of duals per row after the first pass


@dataclasses.dataclass(frozen=True, eq=False)
class Spec:
    """Picklable specification of a training run, from which plan, storage, learner and tasks are created.

    For a stream, whose rows are visited once, `n_rows` is 0 and no duals are kept.
    """

    settings: Settings  # C is a number unless rows come from a stream, and `split` is not "auto"
    n_rows: int
    n_features: int  # after the transforms
    class_counts: np.ndarray  # int64, shape (n_classes,): number of rows of each class
    multilabel: bool = False
    dense_rows: bool = False  # see `streamsvm.data.rows.Rows`

    @property
    def n_classes(self) -> int:
        return len(self.class_counts)

    @property
    def loss(self) -> Loss:
        """Loss in the form that is trained (see `streamsvm.losses.base.Loss.by_classes`)."""
        return self.settings.trained_loss

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the weights and duals."""
        return np.dtype(self.settings.dtype)

    @property
    def time_unit(self) -> float:
        """Number of block steps per time unit of the average (see `streamsvm.kernels.weights.Weights`)."""
        return float(self.n_rows or TIME_UNIT)

    def changed(self, **settings: Any) -> Self:
        """Return a copy with some settings changed."""
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **settings))

    def grown(self, n_features: int, n_classes: int) -> Self:
        """Return a copy with the given numbers of features and classes."""
        counts = np.broadcast_to(np.int64(0), n_classes)
        return dataclasses.replace(self, n_features=n_features, class_counts=counts)

    # -- weights -----------------------------------------------------------------------------------

    @functools.cached_property
    def groups(self) -> ClassGroups | None:
        """Groups of classes, each with its own weight columns; None unless training is split by classes."""
        settings = self.settings
        if settings.splits == 1 or settings.split != CLASSES:
            return None
        return group_classes(self.class_counts, 2 * settings.splits, self.dtype)

    @property
    def columns(self) -> int:
        """Number of weight columns: one per class, the extra columns of the loss, and padding."""
        if self.groups is not None:
            return self.groups.n_columns
        return padded_classes(max(self.n_classes, 1) + self.loss.extra_columns, self.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the weights: one row per feature, then extra rows of the loss; `columns` columns."""
        return self.n_features + self.loss.extra_rows(self.n_classes), self.columns

    @property
    def weights_bytes(self) -> int:
        """Size of the weight matrix in bytes; the average needs the same amount again."""
        rows, columns = self.shape
        return rows * columns * self.dtype.itemsize

    @property
    def sparse_bytes(self) -> int | None:
        """Size of the index of sparse weights in bytes; None if sparse weights are not used.

        Sparse weights require many classes and a suitable loss. If training continues from a model, they
        would save nothing, because most weights of the model are not zero.
        """
        is_few = self.n_classes < memory_plan.MANY_CLASSES or self.settings.from_ is not None
        touches_all = self.loss.extra_columns > 0  # each visit changes the weights of all classes
        if is_few or touches_all or self.dense_rows or self.loss.sequences or self.settings.splits > 1:
            return None
        return SparseWeights.size(self.n_features, self.columns)

    @property
    def pair_bytes(self) -> int:
        """Size in bytes of the margins between pairs of classes: the table, and its copy for the kernels."""
        k = self.n_classes
        return 4 * k * (self.columns + k) * self.settings.has_pair_margins

    def chain_bytes(self, longest: int) -> int:
        """Return the maximum size in bytes of the scratch arrays for chains of up to `longest` rows."""
        settings, k = self.settings, self.n_classes
        # Scores, steps and best previous labels; transitions and steps of pairs; inner products.
        common = 3 * longest * k + 2 * k**2 + longest**2
        if settings.solver == "cached":
            n_sequences = MOST_SEQUENCES + 1 + ROUNDS  # label sequences with weights and inner products
            return 8 * (common + n_sequences * (longest + n_sequences + 8) + (longest + k) * k)
        if settings.solver in FILLING:  # marginals, ids, old and target duals; forward-backward
            return 8 * (common + 4 * longest * k**2 + 3 * longest * k)
        # A pass adds a pair to each token, and `resume` may change the number of passes.
        return 8 * (common + 3 * longest * k**2)

    @property
    def by_products(self) -> bool:
        """True if rows are visited in tiles, with matrix products (see `streamsvm.kernels.tile`)."""
        return self.dense_rows and self.columns > MOST_COLUMNS

    @property
    def starts_at_means(self) -> bool:
        """True if training starts from the class means (see `streamsvm.training.class_means`)."""
        plain = not (self.settings.has_pair_margins or self.multilabel or self.settings.from_)
        return self.by_products and self.loss.starts_at_means and plain

    @property
    def product_bytes(self) -> int:
        """Size in bytes of the arrays for tiles of rows; 0 if rows are not visited in tiles."""
        if not self.by_products:
            return 0
        return Products.n_bytes(self.columns, self.n_features, self.dtype.itemsize)

    # -- duals -------------------------------------------------------------------------------------

    @property
    def can_have_common_dual(self) -> bool:
        """True if the loss and the costs allow a common dual (see `streamsvm.losses.common_dual`)."""
        settings = self.settings
        plain = not (settings.has_pair_margins or self.multilabel or self.dense_rows or settings.from_)
        exact = settings.solver == "newton" and settings.inner_passes in (0, AUTO)
        return plain and settings.splits == 1 and exact and self.loss.common_dual

    @property
    def has_common_dual(self) -> bool:
        """True if a common dual is used regardless of the memory budget."""
        return self.can_have_common_dual and self.n_classes >= memory_plan.COMMON_DUAL_CLASSES

    @property
    def max_duals(self) -> int:
        """Maximum number of duals of a row."""
        return self.loss.max_duals(self.n_classes, self.settings.solver)

    def dual_format(self, *, common_dual: bool = False) -> DualFormat:
        """Return the storage format of the duals. With splits by classes, dual ids are weight columns."""
        if not self.n_rows:
            return DualFormat(self.dtype, np.dtype(np.uint8))
        loss, solver = self.loss, self.settings.solver
        n_ids = self.columns if self.groups is not None else loss.dual_ids(self.n_classes, solver)
        n_ids += common_dual
        return DualFormat(
            self.dtype, dual_id_dtype(n_ids), n_ids, self.max_duals, loss.has_distinct_ids(solver)
        )

    @property
    def row_dual_bytes(self) -> int:
        """Size in bytes of a row's duals: the maximum if the loss has dense duals, else a typical size."""
        n_duals = self.max_duals if self.loss.dense_duals else _TYPICAL_ROW_DUALS
        return n_duals * self.dual_format().entry_bytes

    @property
    def dense_duals_bytes(self) -> int:
        """Size in bytes of the duals of two passes if they are kept and nearly all are non-zero, else 0."""
        settings = self.settings
        if not (self.loss.dense_duals or settings.solver in FILLING) or not settings.keep_duals:
            return 0
        row = self.max_duals * self.dual_format().entry_bytes
        return 2 * self.n_rows * (row + 8)

    @property
    def dual_matrix_bytes(self) -> int:
        """Maximum size in bytes of the dual matrices of two passes; 0 if duals cannot be a matrix."""
        if self.columns > MOST_COLUMNS or self.settings.splits > 1 or self.loss.sequences:
            return 0
        return 2 * self.n_rows * self.columns * self.dtype.itemsize


def specify(settings: Settings, data: Store) -> Spec:
    """Return the specification for training on `data`, a store of transformed rows.

    Raises `SettingsError` if the data cannot be split as requested.
    """
    counts = data.class_counts
    settings = settle_split(settings, counts, multilabel=data.multilabel)
    return Spec(settings, data.n_rows, data.n_features, counts, data.multilabel, data.dense_rows)


def takes_dense_rows(settings: Settings) -> bool:
    """Return True if dense rows stay dense in training; otherwise they are converted to CSR."""
    return settings.splits == 1 and not settings.trained_loss.sequences
