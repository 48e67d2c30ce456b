"""Scikit-learn estimator `StreamSVMClassifier`, which trains with `streamsvm.fit` (extra ``sklearn``)."""

from __future__ import annotations

import copy
import numbers
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

try:
    from joblib import effective_n_jobs
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "streamsvm.sklearn needs scikit-learn 1.6 or newer: pip install 'streamsvm[sklearn]'"
    ) from error

from streamsvm import api
from streamsvm.base.label_values import class_name, class_record, codes_among
from streamsvm.data.arrays import as_matrix
from streamsvm.data.checks import row_norms
from streamsvm.errors import Remedy, ScaleWarning, warn
from streamsvm.losses import get_loss
from streamsvm.model.model import Model, load_model
from streamsvm.prediction import calibration, predictions
from streamsvm.settings.field import ESTIMATOR, declared
from streamsvm.settings.fit import NONE, Settings
from streamsvm.settings.online import OnlineSettings
from streamsvm.settings.signature import documented, takes
from streamsvm.sklearn.estimator_data import NamedMatrix, part_of_rows, rows_to_train_on, value_errors
from streamsvm.sklearn.incremental import IncrementalLearner
from streamsvm.transforms.defaults import TABLE_DEFAULT

__all__ = ["StreamSVMClassifier"]

_SETTINGS = {name: each for name, each in declared(Settings).items() if each.scope == ESTIMATOR}
_LARGEST_SEED = 2**31 - 1
_NO_LABELS: Any = "no_validation"  # scikit-learn's marker for a missing y


def _has_probabilities(estimator: StreamSVMClassifier) -> bool:
    if hasattr(estimator, "model_"):
        has_probabilities = estimator.model_.temperature is not None
    else:
        has_probabilities = bool(get_loss(estimator.loss).probabilities) or estimator.calibrate is not None
    if not has_probabilities:
        raise AttributeError(
            f"the loss {estimator.loss} has no probabilities; set calibrate=0.1 or loss='logistic'"
        )
    return True


class StreamSVMClassifier(ClassifierMixin, BaseEstimator):
    """Linear multi-class SVM, trained in a few passes by exact dual block-coordinate descent.

    If the data is in memory, no files are written. For a store or file, the run is in a temporary directory.
    See `streamsvm.fit` for a full description, and for data larger than memory.

    Parameters
    ----------
    **settings
        See `Settings`.
    fit_intercept : bool, optional
        Whether to fit an intercept, which is included in ‖w‖², as in scikit-learn's LinearSVC. The default is
        that of `streamsvm.fit` or, if `transforms` is set, to fit one only if the last transform is ``bias``.
        If `transforms` is not set, the columns of a DataFrame are scaled, even without an intercept.
    intercept_scaling : float
        Value of the constant feature whose coefficients are the intercepts. With a larger value, the
        intercepts contribute less to ‖w‖².
    class_weight : dict or "balanced", optional
        Factor by which C is multiplied for the rows of each class.
    transforms : str or list of str, optional
        Transforms of each row, such as ``"normalize=1e4,log1p"``: the setting ``transform`` of
        `streamsvm.fit`. The name differs because scikit-learn treats objects with an attribute ``transform``
        as transformers.
    calibrate : float, optional
        Fraction of the rows to hold out of training, at random. The temperature of the probabilities that
        `predict_proba` returns is fitted to these rows.
    random_state : int, RandomState or None
        Seed for the order of the rows, and for the choice of the rows that `calibrate` holds out.
    n_jobs : int, optional
        Number of threads, as in joblib; see `workers` of `streamsvm.fit`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes, in the type of `y`.
    coef_ : ndarray, or sparse array if weights are sparse, shape (n_classes, n_features) or (1, n_features)
        Coefficients as in scikit-learn's linear classifiers: for two classes, those of the second class minus
        those of the first. The features are those after the transforms.
    intercept_ : ndarray of shape (n_classes,) or (1,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str objects, shape (n_features_in_,)
        Names of the columns of `X`; defined only if they have names.
    n_iter_ : int
        Number of passes over the data.
    duality_gap_ : float or None
        Primal minus dual objective of the model; None if not measured.
    model_ : streamsvm.Model
        Model to save, export or evaluate.
    """

    loss: str
    dtype: str

    @takes(_SETTINGS, after="loss")
    def __init__(
        self,
        loss: str = "ww",
        *,
        fit_intercept: bool | None = None,
        intercept_scaling: float = 1.0,
        class_weight: Mapping[Any, float] | str | None = None,
        transforms: str | list[str] | None = None,
        calibrate: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        **settings: Any,
    ) -> None:
        defaults = {name: each.default for name, each in _SETTINGS.items()}
        self.__dict__.update(defaults | settings, loss=loss)
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.transforms = transforms
        self.calibrate = calibrate
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None, **of_store: Any
    ) -> Self:
        """Train from scratch, discarding any earlier fit.

        Parameters
        ----------
        X : array_like, sparse matrix or array, DataFrame or AnnData, shape (n, n_features); or path
            Rows, or path of a store or file.
        y : array_like, shape (n,)
            Labels; None for a store or a file, which contains its own.
        sample_weight : array_like, shape (n,), optional
            Non-negative factor by which C is multiplied for each row.
        groups : array_like, shape (n,), optional
            Sequence of each row, for the loss ``chain``.
        **of_store
            Further options of `streamsvm.fit` for a store, such as `label`, `layer` and `memory`.
        """
        if isinstance(X, str | os.PathLike):
            return self._fit_store(X, y, sample_weight, groups, of_store)
        if of_store:
            raise TypeError(f"X is a matrix, not a store; leave out the arguments {', '.join(of_store)}")
        X, y = self._checked(X, y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, y, ensure_non_negative=True)
        kept = rows_to_train_on(y, self.calibrate, self.random_state)
        with value_errors():
            model: Any = api.fit(
                part_of_rows(X, kept), y[kept],
                groups=None if groups is None else np.asarray(groups)[kept],
                sample_weight=None if sample_weight is None else sample_weight[kept],
                progress=False, workers=effective_n_jobs(self.n_jobs),
                **self._options(
                    np.unique(y), of_store=hasattr(X, "var_names"), of_table=isinstance(X, NamedMatrix)
                ),
            )  # fmt: skip
            if not kept.all():
                calibration.calibrate(model, part_of_rows(X, ~kept), y[~kept], progress=False)
        return self._set_model(model)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from each row of a batch once, in order, as one part of an online pass.

        Only `C`, `dtype`, `transforms` and the parameters of the loss and the intercept apply. The model is
        the average of the iterates. After `fit`, learning continues from the fitted model and its transforms.

        Parameters
        ----------
        X : as for `fit`, but not a path
        y : array_like, shape (n,)
        classes : array_like, shape (n_classes,)
            All labels that occur in any batch; required in the first call.
        sample_weight : array_like, shape (n,), optional
        """
        begins = not self.__sklearn_is_fitted__()
        X, y = self._checked(X, y, reset=begins)
        if begins:
            if classes is None:
                raise ValueError("classes is missing; pass all labels in the first call of partial_fit")
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), np.sort(self.classes_)):
            raise ValueError(f"classes must be those of the first call, {self.classes_.tolist()}, or None")
        if len(self.classes_) < 2:
            raise ValueError("there is only one class; a classifier needs at least two")
        codes = codes_among(y, self.classes_)
        if (codes < 0).any():
            raise ValueError(f"y has the label {y[codes < 0].tolist()[0]!r}, which is not in classes")
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, y, ensure_non_negative=True)
        for name, each in declared(Settings).items():
            if each.group == "Weights and costs" and getattr(self, name, None) is not None:
                instead = "pass sample_weight to partial_fit" if name == "class_weight" else "leave it out"
                raise ValueError(f"{name} applies only to fit, which sees all rows; {instead}")
        matrix = as_matrix(X, np.dtype(self.dtype))
        if begins and isinstance(X, NamedMatrix) and self.transforms is None:
            problem = "partial_fit does not scale the columns of a table, but fit does"
            steps = NONE if self.fit_intercept is False else "bias"
            warn(ScaleWarning(problem, remedy=Remedy(f"scale them first, and set transforms={steps!r}")))
        if not hasattr(self, "_learner"):
            fitted = None if begins else self.model_
            with value_errors():
                labels = class_record(self.classes_)
                options = self._options(self.classes_)
                online = {name: options[name] for name in declared(OnlineSettings) if name in options}
                settings = OnlineSettings(**online).one_pass()  # raises for losses that need all rows
                self._learner = IncrementalLearner(
                    settings, labels, matrix.n_features, matrix.names, fitted, dense=matrix.indices is None
                )
        norm2 = row_norms(matrix.data, matrix.indptr)
        rows = matrix.rows(codes, norm2)
        with value_errors():
            self._learner.learn(rows if sample_weight is None else rows._replace(cost=sample_weight))
        self._model: Model | None = None
        self.n_iter_ = 1
        self.duality_gap_: float | None = None
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Compute the scores of the rows of `X`, which is as for `fit`, but must not be a path.

        Returns
        -------
        ndarray of shape (n, n_classes), or (n,) if there are two classes
            For two classes, the score of the second minus the score of the first.
        """
        with value_errors():
            scores: np.ndarray = self.model_.decision_function(self._checked(X, reset=False))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any, *, groups: Any = None, **of_store: Any) -> np.ndarray:
        """Predict the labels of the rows of `X`.

        Parameters
        ----------
        X : as for `fit`
        groups : array_like, shape (n,), optional
            Sequence of each row, for the loss ``chain``.
        **of_store
            Further options of `streamsvm.predict` for a store or a file.

        Returns
        -------
        ndarray of shape (n,)
            Labels in the type of `classes_`.
        """
        if isinstance(X, str | os.PathLike):
            return np.asarray(predictions.predict(self.model_, X, progress=False, **of_store).labels)[:, 0]
        with value_errors():
            return self.model_.predict(self._checked(X, reset=False), groups)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Compute class probabilities, shape (n, n_classes), if the loss has them or `calibrate` is set."""
        with value_errors():
            return self.model_.predict_proba(self._checked(X, reset=False))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Compute the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @property
    def model_(self) -> Model:
        check_is_fitted(self)
        model = self._model
        if model is None:
            model = self._model = self._learner.model()
        return model

    @property
    def coef_(self) -> Any:
        coef = self.model_.coef_
        return coef[[1]] - coef[[0]] if len(self.classes_) == 2 else coef

    @property
    def intercept_(self) -> np.ndarray:
        intercept = self.model_.intercept_
        return intercept[[1]] - intercept[[0]] if len(self.classes_) == 2 else intercept

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the training result, whose measured times differ from run to run."""
        state = super().__getstate__()
        if state.get("_model") is not None:
            state["_model"] = copy.copy(state["_model"])
            state["_model"].result = None
        return state

    def _options(
        self, classes: Any = (), *, of_store: bool = False, of_table: bool = False
    ) -> dict[str, Any]:
        steps, with_intercept = self.transforms, self.fit_intercept
        transform: str | None = NONE
        if steps is None:
            steps = TABLE_DEFAULT.rpartition(",")[0] if of_table else NONE
            if with_intercept is None:
                with_intercept, transform = not of_store, None
        steps = steps.split(",") if isinstance(steps, str) else list(steps)
        steps = [] if steps == [NONE] else steps
        if with_intercept and not any(step.strip().startswith("bias") for step in steps[-1:]):
            steps.append(f"bias={self.intercept_scaling}")
        seed = self.random_state
        if not isinstance(seed, numbers.Integral):
            seed = check_random_state(seed).randint(_LARGEST_SEED)
        weights = self.class_weight
        if isinstance(weights, Mapping):
            names = {label: class_name(label) for label in np.asarray(classes).tolist()}
            weights = {names.get(label, label): weight for label, weight in weights.items()}  # 1 equals True
        return {
            **{name: getattr(self, name) for name in _SETTINGS},
            "class_weight": weights, "transform": ",".join(steps) or transform, "seed": int(seed),
        }  # fmt: skip

    def _fit_store(
        self, path: str | os.PathLike[str], y: Any, sample_weight: Any, groups: Any, of_store: dict[str, Any]
    ) -> Self:
        if self.calibrate is not None:
            raise ValueError("calibrate applies only to a matrix, but X is a store; calibrate model_ instead")
        with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
            result: Any = api.fit(
                path, y, groups=groups, sample_weight=sample_weight, out=Path(folder, "run"), progress=False,
                workers=effective_n_jobs(self.n_jobs), **self._options(of_store=True) | of_store,
            )  # fmt: skip
            model = copy.deepcopy(load_model(Path(folder, "run")))
        model.result = result
        return self._set_model(model)

    def _set_model(self, model: Model) -> Self:
        assert model.result is not None
        self.__dict__.pop("_learner", None)
        self._model = model
        self.classes_ = model.classes_
        self.n_features_in_ = model.n_features_in_
        self.__dict__.pop("feature_names_in_", None)
        if model.feature_names_in_ is not None:
            self.feature_names_in_ = model.feature_names_in_
        self.n_iter_ = model.result.passes
        self.duality_gap_ = model.result.gap
        return self

    def _checked(self, X: Any, y: Any = _NO_LABELS, *, reset: bool = True) -> Any:
        """Validate `X`, and `y` if it is passed, with scikit-learn; attach the column names to `X`."""
        if hasattr(X, "var_names") or (y is _NO_LABELS and isinstance(X, str | os.PathLike)):
            return X if y is _NO_LABELS else (X, np.asarray(y))
        checked = validate_data(self, X, y, accept_sparse="csr", dtype=np.dtype(self.dtype), reset=reset)
        if y is not _NO_LABELS:
            checked, y = checked
            check_classification_targets(y)
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            checked = NamedMatrix(checked, names)
        return checked if y is _NO_LABELS else (checked, y)


StreamSVMClassifier.__doc__ = documented(StreamSVMClassifier.__doc__, _SETTINGS)
