"""Divide a store into blocks with the classes and features of a model, for scoring."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from streamsvm.data.blocks import Blocks
from streamsvm.data.memory_plan import cut_blocks, make_plan
from streamsvm.data.names import FeatureMatch, examples, match_features
from streamsvm.errors import Call, Option, Remedy, StoreError
from streamsvm.inputs.schema import DataSchema
from streamsvm.store import Store
from streamsvm.store.views import matched, recoded

_CONVERT_LIKE = Remedy(
    "convert the data with {}, naming the model or its training store",
    Call("convert", options=(Option("like"),)),
)


def check_has_classes(store: Store, classes: Sequence[str]) -> None:
    """Raise `StoreError` if a store contains none of the model's `classes`."""
    if not set(classes) & set(store.classes):
        problem = f"{store.path} has none of the model's classes: its labels are {examples(store.classes)}"
        remedy = Remedy("name another label column with {}, or pass other data", Option("label"))
        raise StoreError(f"{problem}, and the classes are {examples(classes)}", remedy=remedy)


def blocks_to_score(
    store: Store,
    like: DataSchema,
    dtype: np.dtype,
    memory: int,
    *,
    labelled: bool = True,
    transformed: Callable[[Store], Store] | None = None,
    held_row_bytes: int = 0,
) -> Blocks:
    """Divide a store into blocks that have the classes and features of `like`, for scoring.

    `memory` limits the memory for reading, in bytes, including `held_row_bytes` of extra memory for each row.
    Features are matched by name if both store and model have names; `Blocks.match` describes the match. Then
    `transformed` is applied to the store.

    Raises `FeatureError` if store and model have no name in common, or if the store lacks a table column that
    the model needs. Raises `StoreError` if features without names do not fit the model, or if `labelled` is
    True and the store has no rows or none of the classes.
    """
    where, model = str(store.path), str(like.path)
    match = match_features(store.feature_names(), like.names, where, model=model, encoding=like.encoding)
    store = matched(store, match, list(like.names or ()))
    if store.n_features > like.n_features or (store.n_features < like.n_features and not store.native):
        remedy = Remedy("pass data with the features of the training data, in the same order")
        raise StoreError(
            f"{store.path} has {store.n_features:,} features, but the model has {like.n_features:,}",
            remedy=_CONVERT_LIKE if store.native else remedy,
        )
    if store.n_features < like.n_features and like.names is None:
        store = matched(store, FeatureMatch(np.arange(store.n_features)), None, like.n_features)
    if None not in (like.index_base, store.index_base) and like.index_base != store.index_base:
        raise StoreError(
            f"{store.path} numbers features from {store.index_base}, but the model from {like.index_base}",
            remedy=_CONVERT_LIKE,
        )
    if labelled and not store.n_rows:
        raise StoreError(f"{store.path} has no rows")
    if labelled:
        check_has_classes(store, like.classes)
    if transformed is not None:
        store = transformed(store)
    if tuple(like.classes) != store.classes:
        store = recoded(store, like.classes, store.label_dtype)
    plan = make_plan(
        store, dtype=dtype, columns=len(like.classes), memory=memory, keeps_duals=False, in_one_read=True,
        held_row_bytes=held_row_bytes,
    )  # fmt: skip
    return Blocks(store, cut_blocks(store, plan), dtype, match=match, plan=plan)
