"""Blocks of a store with the classes and features of a model, which scores them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from streamsvm.data.blocks import Blocks
from streamsvm.data.memory_plan import cut_blocks, make_plan
from streamsvm.data.names import match_features
from streamsvm.errors import Call, Option, Remedy, StoreError
from streamsvm.store.store import Store
from streamsvm.store.views import matched, recoded

_CONVERT_LIKE = Remedy(
    "convert the data with {}, giving the model or the store it was trained on",
    Call("convert", options=(Option("like"),)),
)


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
    transformed: Callable[[Store], Store] | None = None,
) -> Blocks:
    """Divide a store into blocks that a model of these classes and features can score.

    Reading takes `memory` bytes. Labels come in the model's codes, and features in its order, whatever
    the store's: they are matched by name if both have names, and `Blocks.match` says how. Raises
    `FeatureError` if no name is the same (an error calls the model `model`), `StoreError` if, without names,
    the store has other features than the model, or, if `labelled`, none of its classes is. `transformed`, if
    given, makes a store of one with these features; its rows are scored.
    """
    names = store.feature_names()
    match = match_features(names, feature_names, str(store.path), model=model)
    if match.columns is not None:
        assert feature_names is not None
        store = matched(store, match, list(feature_names))
    if store.n_features > n_features or (store.n_features < n_features and not store.native):
        give = Remedy("give it the features of the training data, in their order")
        raise StoreError(
            f"{store.path} has {store.n_features:,} features, the model {n_features:,}",
            remedy=_CONVERT_LIKE if store.native else give,
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
    if transformed is not None:
        store = transformed(store)
    if tuple(classes) != store.classes:
        store = recoded(store, classes, store.label_dtype)
    plan = make_plan(
        store,
        dtype=dtype,
        columns=len(classes),
        memory=memory,
        keeps_duals=False,
        as_they_arrive=True,
    )
    if plan.largest_block > plan.block_bytes:  # two pieces are in memory, instead of a block
        plan = dataclasses.replace(plan, block_bytes=plan.piece_bytes)
    return Blocks(store, cut_blocks(store, plan), dtype, match=match, plan=plan)
