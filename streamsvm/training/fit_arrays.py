"""Train on rows in memory, without a run directory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from streamsvm.base.format import index_dtype
from streamsvm.data.arrays import Matrix, labelled_rows, labels_of, row_groups, row_weights, with_layer
from streamsvm.data.groups import group_starts
from streamsvm.data.hold_out import HeldOutBlocks, held_out_part
from streamsvm.data.memory_plan import Placement, available_memory
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, SettingsError
from streamsvm.losses import get_loss
from streamsvm.model.model import Model
from streamsvm.model.schema import reading_of
from streamsvm.run.files import MemoryRun
from streamsvm.settings.fit import AUTO, NONE, Settings
from streamsvm.training.auto_c import c_for, norms_of_c, with_c
from streamsvm.training.build import build
from streamsvm.training.costs import check_multilabel, read_training_costs
from streamsvm.training.fit_plan import (
    check_dense_duals,
    check_has_groups,
)
from streamsvm.training.parallel.splits import find_workers
from streamsvm.training.sources import ArrayBlocks
from streamsvm.training.spec import DataFacts, Spec, specify
from streamsvm.training.trainer import Callbacks
from streamsvm.transforms import apply, features_after, parse_transforms
from streamsvm.transforms.defaults import MATRIX_DEFAULT, with_transform
from streamsvm.transforms.fitting import FittedTransforms, fit_transforms, raw_rows

_MAX_BUFFERED_DUALS = 2**22  # entries of the buffer of new duals
_SMALL = 2**28  # bytes that matrices of duals may take; or twice those of the rows


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
) -> Model:
    """Train on a matrix as `streamsvm.fit` describes it; `given` may have ``sample_weight`` too.

    `tuned` says that C was found by a search, and so chosen from the data.
    """
    rows, labels, matrix = _labelled(X, y, groups, settings, given)
    settings = with_transform(settings, matrix.encoding, MATRIX_DEFAULT)
    return fit_rows(
        rows,
        labels,
        matrix.n_features,
        settings,
        names=matrix.names,
        encoding=matrix.encoding,
        callbacks=callbacks,
        given=given,
        workers=workers,
        tuned=tuned,
    )


def automatic_c(X: Any, y: Any, groups: Any, settings: Settings, given: Mapping[str, Any]) -> float:
    """Return the C that `fit_matrix` would choose."""
    rows, _, matrix = _labelled(X, y, groups, settings, given)
    settings = with_transform(settings, matrix.encoding, MATRIX_DEFAULT)
    return _prepared(rows, matrix.n_features, settings, matrix.names)[-1].C


def _labelled(
    X: Any, y: Any, groups: Any, settings: Settings, given: Mapping[str, Any]
) -> tuple[Rows, dict[str, Any], Matrix]:
    """Return the results of `labelled_rows`, in which the rows have their weights as costs, and groups."""
    X = with_layer(X, settings.layer, settings.raw)
    rows, labels, matrix = labelled_rows(X, labels_of(X, y, settings.label), np.dtype(settings.dtype))
    if settings.sample_weight not in (None, NONE):
        weights = given.get("sample_weight", settings.sample_weight)
        rows = rows._replace(cost=row_weights(X, weights, rows.n_rows))
    if groups is not None:
        if not get_loss(settings.loss).sequences:
            raise SettingsError(f"groups does not apply to the loss {settings.loss}", setting="groups")
        rows = rows._replace(qid=row_groups(X, groups, rows.n_rows, InputError))
    return rows, labels, matrix


def _prepared(
    rows: Rows, n_features: int, settings: Settings, names: Any
) -> tuple[Rows, np.ndarray, FittedTransforms, Settings]:
    """Transform the rows, select those to train on, and choose C.

    Returns the rows, with their weights as costs; a mask of those that are trained on; the transforms; and
    settings in which C is a number.
    """
    cost = rows.cost if len(rows.cost) else np.ones(rows.n_rows)
    used, part = cost > 0, held_out_part(settings)
    if part is not None:
        used &= ~part.has(np.arange(rows.n_rows), rows.qid)
    raw = raw_rows(rows, n_features, names)
    [fitted] = fit_transforms(parse_transforms(settings.transform), raw, [part])
    rows = apply(fitted.transforms, rows._replace(cost=cost), where="X")
    width = features_after(fitted.transforms, n_features) or 0
    rows = rows._replace(indices=rows.indices.astype(index_dtype(width), copy=False))
    norm2 = norms_of_c(rows.norm2[used], fitted.transforms, np.dtype(settings.dtype))
    settings = with_c(settings, c_for(float(norm2.sum()), int(np.count_nonzero(norm2))))
    return rows, used, fitted, settings


def fit_rows(
    rows: Rows,
    labels: Mapping[str, Any],
    n_features: int,
    settings: Settings,
    *,
    names: Any = None,
    encoding: dict[str, Any] | None = None,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
    given: Mapping[str, Any] = MappingProxyType({}),
    workers: int | None = None,
    tuned: bool = False,
) -> Model:
    """Train on rows in memory, and write no file.

    Parameters
    ----------
    rows : Rows
        In the dtype of the settings; their costs are the weights of the rows, 1 if there are none.
    labels : mapping
        The classes by their codes, two or more, as `class_record` has them.
    n_features : int
    settings : Settings
    names : sequence of str, optional
        Names of the features.
    encoding : dict, optional
        Record of the encoding of columns as features.
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
    classes = labels["classes"]
    k = len(classes)
    multilabel = len(rows.label_indptr) > 0
    check_multilabel(settings, multilabel=multilabel, where="y")
    check_has_groups(settings, has_groups=len(rows.qid) > 0, where="the matrix")
    class_counts = rows.class_counts(k)
    chosen = tuned or settings.C == AUTO
    rows, used, fitted, settings = _prepared(rows, n_features, settings, names)
    n_features = features_after(fitted.transforms, n_features) or 0
    trained = rows._replace(cost=np.where(used, rows.cost, 0.0))
    costs = read_training_costs(settings, classes, trained.class_counts(k), given)
    cost = settings.C * rows.cost
    class_weights = costs.row_factors(settings)
    if class_weights is not None:
        cost *= class_weights[rows.labels]
    blocks = ArrayBlocks(rows._replace(cost=cost))
    valid_blocks = None
    part = held_out_part(settings)
    if part is not None:
        held_out = HeldOutBlocks(blocks, part)
        valid_blocks = functools.partial(contextlib.nullcontext, held_out)
        blocks = ArrayBlocks(rows._replace(cost=np.where(used, cost, 0.0)))
    spec = specify(settings, DataFacts(rows.n_rows, n_features, class_counts, multilabel))
    check_dense_duals(spec, available_memory(), "the memory of this process")
    files = MemoryRun(spec.dual_format(common_dual=spec.has_common_dual))
    with find_workers(settings, workers) as threads:
        trainer = build(
            spec,
            _placement(spec, rows),
            blocks,
            files,
            costs,
            threads,
            callbacks,
            matrix_bytes=max(_SMALL, 2 * sum(each.nbytes for each in rows)),
            record={
                **labels,
                "n_features": n_features,
                "index_base": None,
                "C_auto": chosen,
                **reading_of({"encoding": encoding, "label": settings.label}),
                **fitted.record,
            },
            names=names,
            transforms=fitted.transforms,
            valid_blocks=valid_blocks,
        )
        result = trainer.run()
    assert files.model is not None
    files.model.result = result
    return files.model


def _placement(spec: Spec, rows: Rows) -> Placement:
    """Return the place of the weights, and room for the new duals of any row or group."""
    entries = 0
    if spec.settings.keep_duals or spec.settings.inner_passes:
        most = spec.max_duals
        entries = max(spec.n_classes, min(rows.n_rows * most, _MAX_BUFFERED_DUALS))
        if spec.loss.sequences:
            entries = max(entries, int(np.diff(group_starts(rows.qid)).max()) * most)
    common = spec.has_common_dual
    return Placement(
        dual_entries=entries, weights_in_memory=True, average=spec.settings.average, sparse=common,
        common_dual=common,
    )  # fmt: skip
