"""The blocks of a store: reading them, to train on or to score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.feature_names import match_features, sort_rows
from streamsvm.data.label_sets import recode
from streamsvm.data.memory_plan import cut_blocks, make_plan
from streamsvm.data.rows import Rows
from streamsvm.errors import Call, Option, Remedy, StoreError
from streamsvm.format import LABEL_DTYPE, UNSEEN_LABEL

if TYPE_CHECKING:
    from streamsvm.store import Store
    from streamsvm.transforms import Transform

_CONVERT_LIKE = Remedy(
    "convert the data with {}, giving the model or the store it was trained on",
    Call("convert", options=(Option("like"),)),
)


class Blocks:
    """The blocks of a store: how many, where they start, and reading one of them.

    Parameters
    ----------
    starts : ndarray of int64
        As `cut_blocks` gives them.
    dtype : dtype
        Of the computation; values are converted to it.
    classes : sequence of str, optional
        Give label codes in this order of classes instead of the store's own; -1 for others.
    columns : ndarray of int32 or int64, shape (store.n_features,), optional
        Give these features instead of the store's own: a permutation.
    cost : float
        The cost of each row whose weights are 1.
    class_weights : ndarray of float64, shape (k,), optional
        By which the cost of a row of each class is multiplied.
    weighted : bool
        Whether the cost is multiplied by the weights of the rows, if the store has any.
    transforms : sequence of Transform
        Applied to the rows that are read.

    Attributes
    ----------
    shuffled : bool
        Whether the rows are known to be in random order.
    """

    def __init__(
        self,
        store: Store,
        starts: np.ndarray,
        dtype: np.dtype,
        classes: Sequence[str] | None = None,
        columns: np.ndarray | None = None,
        cost: float = 1.0,
        transforms: Sequence[Transform] = (),
        class_weights: np.ndarray | None = None,
        weighted: bool = False,
    ) -> None:
        self._transforms = transforms
        self._class_weights = class_weights
        self._weighted = weighted
        self.store = store
        self._cost = cost
        self.starts = starts
        self.shuffled = store.shuffled
        self.dtype = dtype
        self.columns = columns
        self._only: Rows | None = None  # the rows, if all are one block: read once
        self._codes = None
        if classes is not None and tuple(classes) != tuple(store.classes):
            code = {label: c for c, label in enumerate(classes)}
            self._codes = np.array(
                [*(code.get(label, UNSEEN_LABEL) for label in store.classes), UNSEEN_LABEL], LABEL_DTYPE
            )  # the last entry serves code -1

    def __len__(self) -> int:
        return len(self.starts) - 1

    def read(self, block: int) -> Rows:
        """The rows of a block."""
        if self._only is not None:
            return self._only
        rows = self.store.rows(int(self.starts[block]), int(self.starts[block + 1]))
        if self._codes is not None:
            rows = recode(rows, self._codes)
        data, indices = self._cast(rows, int(self.starts[block])), rows.indices
        if self.columns is not None:
            data, indices = sort_rows(data, self.columns[indices], rows.indptr, self.store.n_features)
        rows = rows._replace(data=data, indices=indices, cost=self._costs(rows))
        for transform in self._transforms:
            rows = transform(rows)
        if len(self) == 1:
            self._only = rows
        return rows

    def _costs(self, rows: Rows) -> np.ndarray:
        """C times the weights of the rows and of their classes."""
        cost = np.full(rows.n_rows, self._cost)
        if self._weighted and len(rows.cost):
            cost *= rows.cost
        if self._class_weights is not None:
            cost *= self._class_weights[rows.labels]
        return cost

    def _cast(self, rows: Rows, first: int) -> np.ndarray:
        """The values of rows from number `first` on in our dtype; `StoreError` if it cannot hold them."""
        with np.errstate(over="ignore"):
            data = rows.data.astype(self.dtype, copy=False)
        if data is not rows.data and not np.isfinite(data).all():
            at = int(np.argmin(np.isfinite(data)))
            row = first + int(np.searchsorted(rows.indptr, at, "right")) - 1
            raise StoreError(
                f"{self.store.path}: row {row}: the value {rows.data[at]:g} is too large for {self.dtype}",
                remedy=Remedy("scale the data, or train with {}", Option("dtype", "float64")),
            )
        return data

    def empty(self) -> Rows:
        """No rows, in the types of those that `read` gives."""
        indices, labels = np.zeros(0, self.store.index_dtype), np.zeros(0, LABEL_DTYPE)
        start = np.zeros(1, np.int64)
        rows = Rows(np.zeros(0, self.dtype), indices, start, labels, np.zeros(0), np.zeros(0))
        return rows._replace(label_indptr=start) if self.store.multilabel else rows

    def read_to_train(self, block: int) -> Rows:
        """As `read`, but a row without a known class is an error."""
        rows = self.read(block)
        if rows.n_rows and not len(rows.label_indptr) and rows.labels.min() < 0:
            row = int(self.starts[block]) + int(np.argmax(rows.labels < 0))
            raise StoreError(
                f"{self.store.path}: row {row} has a label outside the store's classes: such a store "
                "serves to evaluate, not to train"
            )
        return rows


def blocks_to_score(
    store: Store,
    *,
    classes: Sequence[str],
    n_features: int,
    index_base: int | None,
    dtype: np.dtype,
    memory: int,
    labelled: bool = True,
    feature_names: Sequence[str] | None = None,
    model: str = "the model",
    transforms: Sequence[Transform] = (),
) -> Blocks:
    """The blocks of a store that a model of these classes and features can score.

    Reading takes `memory` bytes. Labels come in the model's codes, and features in its order, whatever
    the store's. Raises `FeatureError` if features cannot be matched by name (an error calls the model
    `model`), `StoreError` if, without names, the store's features are not the model's, or, if
    `labelled`, none of its classes is.
    """
    columns = match_features(store.feature_names(), feature_names, str(store.path), model=model)
    if not store.native and store.n_features != n_features:
        raise StoreError(
            f"{store.path} has {store.n_features:,} features, the model {n_features:,}: give it the features "
            "of the training data, in their order"
        )
    if store.n_features > n_features:
        raise StoreError(
            f"{store.path} has {store.n_features:,} features, the model {n_features:,}",
            remedy=_CONVERT_LIKE,
        )
    if None not in (index_base, store.index_base) and index_base != store.index_base:
        raise StoreError(
            f"{store.path} counts features from {store.index_base}, the model's data from {index_base}",
            remedy=_CONVERT_LIKE,
        )
    if labelled and not set(classes) & set(store.classes):
        raise StoreError(
            f"{store.path} has none of the model's classes (its first is {store.classes[:1]}, the model's "
            f"{tuple(classes[:1])})",
            remedy=_CONVERT_LIKE,
        )
    plan = make_plan(
        store,
        dtype=dtype,
        columns=len(classes),
        memory=memory,
        keeps_duals=False,
        shared=0 if columns is None else columns.nbytes,
    )
    return Blocks(store, cut_blocks(store, plan), dtype, classes, columns, transforms=transforms)
