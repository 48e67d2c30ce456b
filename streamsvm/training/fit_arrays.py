"""Train on rows in memory, without a run directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamsvm.data.arrays import labelled_rows, labels_of, row_groups, row_weights, with_layer
from streamsvm.data.hold_out import held_out_part
from streamsvm.errors import InputError, SettingsError
from streamsvm.inputs.schema import reading_of
from streamsvm.losses import get_loss
from streamsvm.model.model import Model
from streamsvm.settings.fit import NONE, Settings
from streamsvm.store.arrays import ArrayStore
from streamsvm.training.costs import check_multilabel
from streamsvm.training.fit_plan import check_has_groups
from streamsvm.training.prepare import Prepared, prepare
from streamsvm.training.train_rows import train_rows
from streamsvm.training.trainer import Callbacks
from streamsvm.transforms import parse_transforms
from streamsvm.transforms.defaults import MATRIX_DEFAULT, with_transform
from streamsvm.transforms.fitting import fit_transforms, raw_rows


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
    raw, labels, prepared = _prepare(X, y, groups, settings, given, callbacks, encoding)
    store, spec, costs, fitted, chosen = prepared
    record = {
        **labels,
        "n_features": store.n_features,
        "index_base": None,
        "C_auto": chosen or tuned,
        **reading_of(store.meta),
        **fitted.record,
    }
    return train_rows(
        store, spec, costs, record=record, callbacks=callbacks, workers=workers, names=raw.feature_names(),
        transforms=fitted.transforms,
    )  # fmt: skip


def automatic_c(
    X: Any, y: Any, groups: Any, settings: Settings, given: Mapping[str, Any], callbacks: Callbacks
) -> float:
    """Return the C that `fit_matrix` would choose."""
    _, _, prepared = _prepare(X, y, groups, settings, given, callbacks)
    return prepared.spec.settings.C


def _prepare(
    X: Any,
    y: Any,
    groups: Any,
    settings: Settings,
    given: Mapping[str, Any],
    callbacks: Callbacks,
    encoding: Mapping[str, Any] | None = None,
) -> tuple[ArrayStore, dict[str, Any], Prepared]:
    """Return the rows, with their weights and groups, the record of the classes, and what is trained."""
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
    raw = ArrayStore(rows, labels, matrix.n_features, matrix.names, meta)
    settings = with_transform(settings, encoding, MATRIX_DEFAULT)
    check_multilabel(settings, multilabel=raw.multilabel, where="y")
    check_has_groups(settings, has_groups=raw.grouped, where="the matrix")
    of_rows = raw_rows(raw.rows(0, raw.n_rows), raw.n_features, raw.feature_names())
    part = held_out_part(settings.hold_out)
    [fitted] = fit_transforms(parse_transforms(settings.transform), of_rows, [part])
    return raw, labels, prepare(raw, fitted, settings, given, callbacks)
