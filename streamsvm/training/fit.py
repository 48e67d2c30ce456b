"""Trainings of stores and matrices with given settings, from opening the data to the result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from streamsvm.base import durable
from streamsvm.cluster.worker_memory import worker_bytes
from streamsvm.data.arrays import labelled_rows, labels_of, row_groups, row_weights, with_layer
from streamsvm.errors import InputError, SettingsError
from streamsvm.losses import get_loss
from streamsvm.model.model import Model
from streamsvm.model.results import FitResult
from streamsvm.model.serialization import check_room
from streamsvm.model.transform_files import save_transforms
from streamsvm.run.directory import RunDir, check_place, claimed, locked
from streamsvm.settings.fit import NONE, Settings
from streamsvm.store.arrays import ArrayStore
from streamsvm.training.costs import check_multilabel
from streamsvm.training.create import create
from streamsvm.training.execution import Execution
from streamsvm.training.fit_plan import check_dense_duals, check_has_groups
from streamsvm.training.opened import OpenTraining
from streamsvm.training.search_c import find_sample
from streamsvm.training.train import train
from streamsvm.training.training import open_to_train
from streamsvm.transforms.fitting import FittedTransforms

Paths = Sequence[str | os.PathLike[str]]


def fit_store(
    paths: Paths,
    out: str | Path | RunDir,
    settings: Settings,
    how: Execution,
    given: Mapping[str, Any] = MappingProxyType({}),
    *,
    force: bool = False,
    resume: bool = False,
    fitted: FittedTransforms | None = None,
    tuned: bool = False,
    made: Mapping[str, Any] = MappingProxyType({}),
) -> FitResult:
    """Train a run on a store, as `streamsvm.fit` describes it; if `resume`, go on with one that is there.

    `given`, `fitted` and `tuned` are as for `create`; `made` are entries of ``run.json`` about the stores
    that the run made of files.
    """
    run = RunDir.at(out)
    check_place(run)
    with contextlib.ExitStack() as stack:
        begun = run if resume and run.settings.exists() else None
        if begun is not None:
            stack.enter_context(locked(run))
        raw = stack.enter_context(open_to_train(paths, settings))
        opened = create(
            raw, settings, how, given, paths=paths, fitted=fitted, tuned=tuned, made=made, begun=begun
        )
        if begun is not None:
            return train(opened, how, run)[0]
        made_here = [run.path / f"{name}.zarr" for name in made.get("files", ())]  # by a search, too
        kept = run.stores_among([*paths, settings.valid, *made_here])
        claim = claimed(run, force=force, by_tune=tuned, kept=kept)
        return train(opened, how, run, _new_run(run, opened, claim))[0]


@contextlib.contextmanager
def _new_run(
    run: RunDir, opened: OpenTraining, claim: contextlib.AbstractContextManager[None]
) -> Iterator[None]:
    """Claim the folder of a new run, and write the files that its record names."""
    with claim:
        spec = opened.training.spec
        check_dense_duals(spec, durable.free_bytes(run.path), f"the disk of {run.path}")
        check_room(run.path, spec.n_features, spec.n_classes, spec.dtype.itemsize)
        opened.costs.save(run.costs)
        save_transforms(run.path, opened.training.transforms)
        durable.sync_tree(run.path)
        yield


def plan_store(
    paths: Paths, settings: Settings, how: Execution, given: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Plan the memory and disk of a fit of a store, as `streamsvm.plan` describes it."""
    with open_to_train(paths, settings) as raw:
        opened = create(raw, settings, how, given, paths=paths, search=False)
        plan = {
            **opened.described,
            **worker_bytes(opened.store, opened.training),
            "C_auto": opened.run_record["C_auto"],
        }
        if find_sample(opened.store, settings) is not None:
            plan["C"] = settings.C
        return plan


def fit_matrix(
    data: tuple[Any, Any, Any],
    settings: Settings,
    how: Execution,
    given: Mapping[str, Any],
    *,
    tuned: bool = False,
    encoding: Mapping[str, Any] | None = None,
) -> Model:
    """Train on a matrix, as `streamsvm.fit` describes it; the parameters are those of `open_matrix`."""
    model = train(open_matrix(data, settings, how, given, tuned=tuned, encoding=encoding), how)[1]
    assert model is not None
    return model


def open_matrix(
    data: tuple[Any, Any, Any],
    settings: Settings,
    how: Execution,
    given: Mapping[str, Any],
    *,
    tuned: bool = False,
    encoding: Mapping[str, Any] | None = None,
) -> OpenTraining:
    """Create the training of a matrix.

    `data` are X, y and groups; `given` may have ``sample_weight``, too; `encoding` is the record of how texts
    became the matrix.
    """
    X, y, groups = data
    X = with_layer(X, settings.layer, settings.raw, settings.obsm)
    rows, labels, matrix = labelled_rows(X, labels_of(X, y, settings.label), np.dtype(settings.dtype))
    if settings.sample_weight not in (None, NONE):
        weights = given.get("sample_weight", settings.sample_weight)
        rows = rows._replace(cost=row_weights(X, weights, rows.n_rows))
    if groups is not None:
        if not get_loss(settings.loss).sequences:
            raise SettingsError(f"groups does not apply to the loss {settings.loss}", setting="groups")
        rows = rows._replace(qid=row_groups(X, groups, rows.n_rows, InputError))
    meta = {"encoding": matrix.encoding if encoding is None else encoding, "label": settings.label}
    raw = ArrayStore(rows, labels, matrix.n_features, matrix.names, meta)
    check_multilabel(settings, multilabel=raw.multilabel, where="y")
    check_has_groups(settings, has_groups=raw.grouped, where="the matrix")
    return create(raw, settings, how, given, tuned=tuned, made=labels)
