"""Train on rows in memory, without a run directory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from streamsvm.data.arrays import labelled_rows, labels_of, row_groups, row_weights, with_layer
from streamsvm.data.hold_out import held_out_part
from streamsvm.errors import InputError, SettingsError
from streamsvm.losses import get_loss
from streamsvm.model.model import Model
from streamsvm.model.schema import reading_of
from streamsvm.settings.fit import NONE, Settings
from streamsvm.store.arrays import ArrayStore
from streamsvm.training.costs import check_multilabel
from streamsvm.training.fit_plan import check_has_groups
from streamsvm.training.prepare import prepare
from streamsvm.training.train_rows import train_rows
from streamsvm.training.trainer import Callbacks
from streamsvm.transforms import parse_transforms
from streamsvm.transforms.defaults import MATRIX_DEFAULT, with_transform
from streamsvm.transforms.fitting import FittedTransforms, fit_transforms, raw_rows


def fit_matrix(
    X: Any,
    y: Any,
    groups: Any,
    settings: Settings,
    *,
    callbacks: Callbacks,
    given: Mapping[str, Any],
    workers: int | None = None,
    tuned: bool = False,
    encoding: Mapping[str, Any] | None = None,
) -> Model:
    """Train on a matrix as `streamsvm.fit` describes it; `given` may have ``sample_weight`` too.

    `tuned` says that C was found by a search, and so chosen from the data. `encoding` is the record of how
    texts became the matrix.
    """
    raw, labels, encoding = _labelled(X, y, groups, settings, given, encoding)
    settings = with_transform(settings, encoding, MATRIX_DEFAULT)
    return fit_rows(raw, labels, settings, callbacks=callbacks, given=given, workers=workers, tuned=tuned)


def automatic_c(
    X: Any, y: Any, groups: Any, settings: Settings, given: Mapping[str, Any], callbacks: Callbacks
) -> float:
    """Return the C that `fit_matrix` would choose."""
    raw, _, encoding = _labelled(X, y, groups, settings, given)
    settings = with_transform(settings, encoding, MATRIX_DEFAULT)
    return prepare(raw, _fitted(raw, settings), settings, given, callbacks).spec.settings.C


def _labelled(
    X: Any,
    y: Any,
    groups: Any,
    settings: Settings,
    given: Mapping[str, Any],
    encoding: Mapping[str, Any] | None = None,
) -> tuple[ArrayStore, dict[str, Any], Mapping[str, Any] | None]:
    """Return the rows, with their weights and groups, the record of the classes, and that of the encoding."""
    X = with_layer(X, settings.layer, settings.raw, settings.obsm)
    rows, labels, matrix = labelled_rows(X, labels_of(X, y, settings.label), np.dtype(settings.dtype))
    if settings.sample_weight not in (None, NONE):
        weights = given.get("sample_weight", settings.sample_weight)
        rows = rows._replace(cost=row_weights(X, weights, rows.n_rows))
    if groups is not None:
        if not get_loss(settings.loss).sequences:
            raise SettingsError(f"groups does not apply to the loss {settings.loss}", setting="groups")
        rows = rows._replace(qid=row_groups(X, groups, rows.n_rows, InputError))
    encoding = matrix.encoding if encoding is None else encoding
    meta = {"encoding": encoding, "label": settings.label}
    return ArrayStore(rows, labels, matrix.n_features, matrix.names, meta), labels, encoding


def _fitted(raw: ArrayStore, settings: Settings) -> FittedTransforms:
    """Fit the transforms to the rows that are not held out."""
    [fitted] = fit_transforms(
        parse_transforms(settings.transform),
        raw_rows(raw.rows(0, raw.n_rows), raw.n_features, raw.feature_names()),
        [held_out_part(settings)],
    )
    return fitted


def fit_rows(
    raw: ArrayStore,
    labels: Mapping[str, Any],
    settings: Settings,
    *,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
    given: Mapping[str, Any] = MappingProxyType({}),
    workers: int | None = None,
    tuned: bool = False,
) -> Model:
    """Train on rows in memory, and write no file.

    Parameters
    ----------
    raw : ArrayStore
        With values in the dtype of the settings.
    labels : mapping
        The classes by their codes, two or more, as `class_record` has them.
    settings : Settings
    callbacks : Callbacks
    given : mapping
        ``costs`` and ``tree`` that are not files, by name.
    workers : int, optional
        Threads, if the training is split.
    tuned : bool
        True if C was found by a search.

    Returns
    -------
    Model
        With the `FitResult` as its ``result``.
    """
    check_multilabel(settings, multilabel=raw.multilabel, where="y")
    check_has_groups(settings, has_groups=raw.grouped, where="the matrix")
    store, spec, costs, fitted, chosen = prepare(raw, _fitted(raw, settings), settings, given, callbacks)
    return train_rows(
        store,
        spec,
        costs,
        record={
            **labels,
            "n_features": store.n_features,
            "index_base": None,
            "C_auto": chosen or tuned,
            **reading_of(store.meta),
            **fitted.record,
        },
        callbacks=callbacks,
        workers=workers,
        names=raw.feature_names(),
        transforms=fitted.transforms,
    )
