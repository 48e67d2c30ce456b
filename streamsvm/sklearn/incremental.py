"""Train on batches of rows in memory, learning from each row once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.base.format import index_dtype
from streamsvm.base.threads import one_thread_each
from streamsvm.data.memory_plan import Plan
from streamsvm.data.rows import Rows, with_index_dtype
from streamsvm.model.model import Model
from streamsvm.run.duals import PassDuals
from streamsvm.run.manifest import finite_json
from streamsvm.settings.fit import AUTO, Settings
from streamsvm.training.auto_c import c_for, norms_of_c, running_costs
from streamsvm.training.build import new_storage
from streamsvm.training.learner import Learner
from streamsvm.training.plain_visits import PlainVisits
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import VisitPlan
from streamsvm.transforms import apply, dense_after, features_after, records_of
from streamsvm.transforms.base import FittingData
from streamsvm.transforms.fitting import fit_without_rows


class IncrementalLearner:
    """Online learner: each batch of rows updates its weights, whose average is the model.

    A learner restored from a pickle continues bit-identically. Raises `SettingsError` if fitting a transform
    requires all rows.

    Parameters
    ----------
    settings : Settings
        Loss, C, transforms and dtype; C may be "auto".
    labels : mapping
        Record of the classes, as returned by `class_record`.
    n_features, names : int, and sequence of str, optional
        Number and names of the features before the transforms.
    fitted : Model, optional
        Model with the same classes and features; the learner begins with its weights and transforms.
    dense : bool
        Whether all rows are dense. With many classes, training on dense rows uses matrix products.
    """

    def __init__(
        self,
        settings: Settings,
        labels: dict[str, Any],
        n_features: int,
        names: Sequence[str] | None = None,
        fitted: Model | None = None,
        *,
        dense: bool = False,
    ) -> None:
        data = FittingData(n_features, names, None, None)
        self._transforms = (
            fit_without_rows(settings.transform, data) if fitted is None else list(fitted.transforms)
        )
        self._settings = settings
        self._n_features_in, self._names, self._labels = n_features, names, labels
        self._n_features = features_after(self._transforms, n_features) or 0
        self._dense = dense_after(self._transforms, dense)
        self._norms = (0.0, 0)
        self._rows = 0
        self._make()
        if fitted is not None:
            self._learner.storage.weights.current[:, : len(labels["classes"])] = fitted.weights()
        self._learner.begin_average()

    def _make(self) -> None:
        counts = np.zeros(len(self._labels["classes"]), np.int64)
        spec = Spec(self._settings, 0, self._n_features, counts, dense_rows=self._dense)
        plan = Plan(weights_in_memory=True, average=True)
        self._learner = Learner(spec, new_storage(spec, plan, None), PlainVisits(VisitPlan(spec)))

    def learn(self, rows: Rows) -> None:
        """Train on the rows in order, weighted by their costs (1 if they have none).

        Raises `InputError` if a transform rejects a row, and `RunError` if the weights are no longer finite.
        """
        rows = apply(self._transforms, rows, where="X", first=self._rows)
        rows = with_index_dtype(rows, index_dtype(self._n_features))
        norm2 = norms_of_c(rows.norm2, self._transforms, rows.data.dtype)
        cost, self._norms = running_costs(self._settings.C, norm2, self._rows, self._norms)
        rows = rows._replace(cost=cost * rows.cost if len(rows.cost) else cost)
        learner, n = self._learner, rows.n_rows
        nothing = PassDuals(learner.spec.dual_format()).segment(0, n)
        block = TrainingBlock(1, 0, rows, np.arange(n))
        # Matrix products are bit-identical only with a fixed number of threads.
        with one_thread_each if learner.spec.by_products else contextlib.nullcontext():
            for _ in learner.learn(block, nothing, None, lambda seen: seen + n + 1):
                pass
        finite_json(None, learner.tally.tolist())
        self._rows += n

    def model(self) -> Model:
        """Return a model with the average of the weights so far."""
        settings = self._settings
        coef = self._learner.coefficients(np.arange(len(self._labels["classes"])), average=True).stored()
        record = {
            **self._labels,
            "n_features": self._n_features,
            "n_features_in": self._n_features_in,
            "index_base": None,
            "loss": settings.loss,
            "dtype": settings.dtype,
            **settings.of_loss,
            "C": c_for(*self._norms) if settings.C == AUTO else settings.C,
            "C_auto": settings.C == AUTO,
            "transforms": records_of(self._transforms),
            "average": True,
            "passes": 1,
            "rows": self._rows,
        }
        return Model(coef, record, self._names, self._transforms)

    def __getstate__(self) -> dict[str, Any]:
        weights = self._learner.storage.weights
        state = {name: value for name, value in vars(self).items() if name != "_learner"}
        return {**state, "arrays": (weights.current[:], weights.average_delta[:], self._learner.tally)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = state.pop("arrays")
        vars(self).update(state)
        self._make()
        self._learner.begin_average()
        weights = self._learner.storage.weights
        for array, saved in zip(
            (weights.current, weights.average_delta, self._learner.tally), arrays, strict=True
        ):
            array[:] = saved
