"""Choose the transforms and the loss by trial runs on a sample of the rows."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from streamsvm.errors import InputError, Interrupted, Option, Remedy, SettingsError, wrong_setting
from streamsvm.kernels.random import draw_integers
from streamsvm.settings.fit import AUTO, Settings
from streamsvm.store import Store
from streamsvm.store.arrays import ArrayStore
from streamsvm.store.ranges import ranges_of
from streamsvm.store.store import IN_MEMORY
from streamsvm.training.auto_c import rows_trained_on
from streamsvm.training.opened import OpenTraining
from streamsvm.training.train import train
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import Execution
from streamsvm.transforms.defaults import with_transform
from streamsvm.transforms.fourier import MAX_WIDTH

_MAX_ROWS, _MIN_ROWS = 10_000, 500
_MEMORY_SHARE = 8  # budget divided by the memory for the values of the sample
_HOLD_OUT, _PASSES = "1/5", 3
_LOSSES = ("ww", "cs", "ovr2")
_OUTPUTS = 2048
_WIDE = ("none", "df=-0.25,l2", "df=-0.5,l2", "log1p,df=-0.25,l2")


def choose(
    raw: Store, settings: Settings, callbacks: Callbacks, create: Callable[..., OpenTraining]
) -> tuple[Settings, dict[str, Any]]:
    """Return settings with "auto" replaced by the best transforms and loss, and a record of the choice.

    Each candidate is trained for three passes on four fifths of a sample of the training rows, and its
    accuracy is measured on the remaining fifth. The most accurate candidate is chosen, unless the accuracy of
    the first candidate, which has the default transforms, is within one standard error of the best.

    `raw` contains the rows before any transform. `callbacks` receives the event "choose", an event
    "candidate" for each trial run, and the event "chosen". `create` is `streamsvm.training.create.create`
    with a fixed argument `tables`. Raises `SettingsError` if the weights of a candidate do not fit into the
    memory budget, and `Interrupted` if a callback stops a trial run.
    """
    if (needed := 2 * raw.n_features * raw.n_classes * np.dtype(settings.dtype).itemsize) > settings.memory:
        name = "transform" if settings.transform == AUTO else "loss"
        remedy = Remedy(f"choose a {name}, or use {{}} or more", Option("memory", needed))
        raise wrong_setting(name, f"auto needs {needed:,} bytes for the weights of a trial run", remedy)
    sample = _sample(raw, settings)
    candidates = _candidates(settings, raw, sample)
    how, total = Execution(Callbacks(stop=callbacks.stop), workers=1), len(candidates) * sample.n_rows
    loss_defaults: dict[str, Any] = {"margin": None, "solver": None} if settings.loss == AUTO else {}
    trained, tried = list[Settings](), list[dict[str, Any]]()
    callbacks.report({"event": "choose", "rows": sample.n_rows, "trainings": len(candidates)})
    for number, (transform, loss) in enumerate(candidates):
        callbacks.progress("choose transform and loss", number * sample.n_rows, total)
        skipped = (SettingsError, InputError) if trained else ()
        with warnings.catch_warnings(), contextlib.suppress(*skipped):
            warnings.simplefilter("ignore")  # the fit on all rows will warn
            candidate = dataclasses.replace(settings, transform=transform, loss=loss, **loss_defaults)
            trial = dataclasses.replace(
                candidate, passes=_PASSES, tol=None, gap="none", hold_out=_HOLD_OUT, valid=None,
                valid_labels=None, keep_duals=True, splits=1,
            )  # fmt: skip
            try:
                result, _ = train(create(sample, trial, how), how)
            except Interrupted:
                raise Interrupted("stopped while choosing transforms and loss") from None
            tried.append({"transform": transform, "loss": loss, "valid_accuracy": result.valid_accuracy})
            trained.append(candidate)
            callbacks.report({"event": "candidate", **tried[-1]})
    accuracies = [each["valid_accuracy"] for each in tried]
    best, p = int(np.argmax(accuracies)), max(accuracies)
    if accuracies[0] >= p - math.sqrt(p * (1 - p) / (Fraction(_HOLD_OUT) * sample.n_rows)):
        best = 0
    callbacks.report({"event": "chosen", "default": best == 0, **tried[best]})
    return trained[best], {"rows": sample.n_rows, "tried": tried}


def _sample(raw: Store, settings: Settings) -> ArrayStore:
    row_bytes = max(8 * raw.nnz // max(raw.n_rows, 1), 4 * _OUTPUTS)
    limit = min(_MAX_ROWS, max(_MIN_ROWS, settings.memory // (_MEMORY_SHARE * row_bytes)))
    kept = (begin + np.flatnonzero(used) for begin, _, used in rows_trained_on(raw, settings))
    rows = raw.read(ranges_of(np.sort(draw_integers(settings.seed, kept, limit))))
    labels = {"classes": raw.classes, "label_dtype": raw.label_dtype}
    return ArrayStore(rows, labels, raw.n_features, raw.feature_names(), raw.meta, dense=raw.dense)


def _candidates(settings: Settings, raw: Store, sample: Store) -> list[tuple[str, str]]:
    """List the candidates as (transforms, loss), starting with the default transforms.

    If transforms are chosen automatically, `fourier` is tried with only one loss.
    """
    base_settings = dataclasses.replace(settings, transform=None) if settings.transform == AUTO else settings
    transforms = [str(with_transform(base_settings, sample).transform)]
    if settings.transform == AUTO and sample.n_features > MAX_WIDTH:
        transforms += _WIDE
    elif settings.transform == AUTO:
        outputs = min(_OUTPUTS, 1 << max(sample.n_rows.bit_length() - 2, 0))
        transforms.append("none")
        if raw.kind != IN_MEMORY or raw.n_rows * outputs * raw.dtype.itemsize <= settings.memory:
            transforms += [f"fourier={outputs}", f"scale=std,fourier={outputs}"]
    losses = _LOSSES if settings.loss == AUTO else (settings.loss,)
    fewer = losses[:1] if settings.transform == AUTO else losses
    return [(t, loss) for t in dict.fromkeys(transforms) for loss in (fewer if "fourier" in t else losses)]
