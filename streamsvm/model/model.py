"""Load, apply and save trained models."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import NO_LABEL, class_labels, warn_of_unknown
from streamsvm.base.repr import Readable
from streamsvm.base.threads import Threads
from streamsvm.chains.viterbi import best_sequences
from streamsvm.data.arrays import label_column, labels_of
from streamsvm.data.label_sets import label_lists
from streamsvm.data.rows import Rows
from streamsvm.errors import Call, ModelError, Remedy
from streamsvm.losses import LOSSES
from streamsvm.model.coefficients import DenseCoef, StoredCoef
from streamsvm.model.doubt import probability_threshold
from streamsvm.model.matrix import label_codes, matrix_parts, rows_of_matrix
from streamsvm.model.scoring import Scorer, log_probabilities
from streamsvm.model.serialization import features_of_data, read_model, save_copy
from streamsvm.transforms import Transform, names_after

if TYPE_CHECKING:
    from streamsvm.model.results import FitResult


def load_model(path: str | Path) -> Model:
    """Load a model from a model folder or run directory.

    The coefficients are memory-mapped, unless they are stored as float16, and are read once to verify them.
    If another process replaces the model while it is being loaded, the new model is loaded.

    Raises
    ------
    ModelError
        If there is no model, if the model is damaged, or if a class name contains a control character.
    """
    return Model(**read_model(Path(path)))


class Model(Readable):
    """Linear classifier that predicts the class with the highest score.

    Attributes
    ----------
    coef_ : ndarray or scipy.sparse.csc_array, shape (n_classes, n)
        Coefficients of the n features after the transforms, without the constant feature of ``bias``. There
        is one row per class, even if there are only two classes. The matrix is sparse if that is much
        smaller; ``coef_.toarray()`` converts it. A loaded model memory-maps it read-only. If training used
        a common dual, as for very many classes, a term that is the same for every class is omitted.
    intercept_ : ndarray of shape (n_classes,)
        Value of the constant feature of ``bias`` times its coefficients; zeros if there is none.
    classes_ : ndarray, shape (n_classes,)
        Labels of the classes, in the type of `y` in training; int64 or str if the data was a store.
    class_names : ndarray of str, shape (n_classes,)
        Labels as text, as they appear in files, cost tables and written predictions.
    n_features : int
        Number of features after the transforms, including a constant feature.
    n_features_in_ : int
        Number of features before the transforms. A model that hashes features accepts any number.
    feature_names_in_ : ndarray of str objects, shape (n_features_in_,), or None
        Names of the features in training, if any; new data is matched by name.
    feature_names_out_ : ndarray of str objects, shape (n,), or None
        Names of the n features of `coef_`, which transforms may have selected.
    transitions_ : ndarray of shape (n_classes, n_classes), or None
        Transition scores of a sequence model, which predicts the label sequence with the highest score. Entry
        (a, b) is the score of class b after class a.
    multilabel : bool
        Whether rows of the training data could have several labels, or none.
    dtype : dtype
        Type of coefficients and scores.
    record : dict
        Contents of ``model.json``.
    transforms : sequence of Transform
        Transforms applied to rows before scoring, as in training.
    costs : ndarray of float32, shape (n_classes, n_classes), or None
        Entry (a, b) is the cost of predicting class b for a row of class a, set by ``costs`` or ``tree``.
    result : FitResult or None
        Result of training, if `streamsvm.fit` returned the model.
    """

    def __init__(
        self,
        coef: StoredCoef | np.ndarray,
        record: dict[str, Any],
        feature_names: Sequence[str] | None = None,
        transforms: Sequence[Transform] = (),
        costs: np.ndarray | None = None,
        transitions: np.ndarray | None = None,
    ) -> None:
        self.transforms = transforms
        self.costs = costs
        self.transitions_ = transitions
        self.result: FitResult | None = None
        self.stored_coef: StoredCoef = DenseCoef(coef, len(coef)) if isinstance(coef, np.ndarray) else coef
        self.dtype: np.dtype = coef.dtype
        self._scorer = Scorer(self.stored_coef, self.dtype)
        self.classes_: np.ndarray = class_labels(record)
        self.class_names: np.ndarray = np.array(record["classes"], str)
        self.n_features = coef.shape[0]
        self.n_features_in_: int = features_of_data({"n_features": self.n_features, **record})
        self.feature_names_in_: Any = None if feature_names is None else np.array(feature_names, dtype=object)
        self.multilabel: bool = record.get(format.MULTILABEL, False)
        self.record = record

    def _facts(self) -> dict[str, Any]:
        return {
            "loss": self.record.get("loss"),
            "n_classes": len(self.classes_),
            "n_features_in_": self.n_features_in_,
            "multilabel": self.multilabel or None,
            "dtype": str(self.dtype),
            "transforms": ",".join(each.name for each in self.transforms) or None,
            "classes_": self.classes_.tolist(),
        }

    def _more_html(self) -> str:
        return "" if self.result is None else self.result._more_html()

    @functools.cached_property
    def coef_(self) -> Any:
        return self.stored_coef.matrix()[: self.n_features - (self.bias is not None)].T

    def weights(self) -> np.ndarray:
        """Return dense coefficients, shape (n_features, n_classes); any constant feature is the last row."""
        return self.stored_coef.dense(0, self.n_features)

    @functools.cached_property
    def intercept_(self) -> np.ndarray:
        if self.bias is None:
            return np.zeros(len(self.classes_), self.dtype)
        last = self.stored_coef.dense(self.n_features - 1, self.n_features)
        return np.asarray(last[0] * self.dtype.type(self.bias))

    @property
    def bias(self) -> float | None:
        """Value of the constant feature, which is the last feature; None if there is none."""
        return (self.transforms[-1].constant or None) if self.transforms else None

    @functools.cached_property
    def feature_names_out_(self) -> Any:
        names = None if self.feature_names_in_ is None else self.feature_names_in_.tolist()
        names = names_after(self.transforms, names)
        if names is None:
            return None
        return np.array(names[: self.n_features - (self.bias is not None)], dtype=object)

    @property
    def temperature(self) -> float | None:
        """Divisor of the scores before the softmax; None if the model has no probabilities.

        `streamsvm.calibrate` sets it. Until then, it is 1 for the losses ``logistic`` and ``sparsemax``, and
        ``sparsemax`` projects the scores onto the simplex instead of using the softmax.
        """
        temperature = self.record.get(format.TEMPERATURE)
        loss = LOSSES.get(str(self.record.get("loss")))
        if temperature is None and loss is not None and loss.probabilities:
            return 1.0
        return None if temperature is None else float(temperature)

    @property
    def threshold(self) -> float | None:
        """Score above which a class is predicted for rows that may have several labels.

        It is 0 for ``ovr`` and ``ovr2``, and None for other losses, whose scores only rank the classes.
        """
        loss = LOSSES.get(str(self.record.get("loss")))
        return 0.0 if loss is not None and loss.own_dual else None

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        prune: float = 0.0,
        dtype: Literal["float16", "float32"] | None = None,
    ) -> None:
        """Save the model to the folder `path`, replacing any model there; `load_model` loads it.

        Coefficients are dense unless that is much larger; `prune` or `dtype` selects the smallest layout.

        Parameters
        ----------
        path : path
        prune : float
            Coefficients of at most this absolute value become 0. The scores of a row x, after the transforms,
            change by at most ``prune * sum(abs(x))``. The prediction can change only if its score exceeds
            the next by at most twice that.
        dtype : {"float16", "float32"}, optional
            Type to which coefficients are rounded for storage; scores are then float32. Float16 halves the
            disk space, but not the memory. It changes the score of a row x for a class with coefficients w
            by at most ``sum(abs(x * w)) / 2048 + 3e-8 * sum(abs(x))``.

        Raises
        ------
        ModelError
            If `path` contains other files or cannot be written, or if a coefficient overflows `dtype`.
        SettingsError
            If `prune` or `dtype` is not valid.
        """
        save_copy(path, self, prune=prune, dtype=dtype)

    @property
    def takes_texts(self) -> bool:
        """Whether the model hashes n-grams of documents, and therefore also accepts lists of strings."""
        encoding = self.record.get("encoding") or {}
        return bool(encoding.get("text") and not encoding["columns"])

    @property
    def takes_any_feature(self) -> bool:
        """Whether the model hashes features, so that data may contain features unseen in training."""
        return any(transform.takes_any_feature for transform in self.transforms)

    def scores(
        self,
        rows: Rows,
        memory: int = 2**26,
        *,
        first: int = 0,
        where: str = "the data",
        workers: Threads = Threads(),  # noqa: B008
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Score `rows` piece by piece, using the threads of `workers`.

        `memory` limits the size of a piece's scores in bytes, but a piece has at least one row. For a
        sequence model, pieces consist of whole groups if the rows have groups. Raises `ModelError` if a score
        is not finite; the message calls the data `where` and numbers the rows from `first` + 1.

        Yields
        ------
        begin : int
            First row of the piece.
        scores : ndarray, shape (n, n_classes)
            Scores in the model's dtype; the array is reused for the next piece.
        """
        pieces = self._scorer.pieces(rows, memory, by_group=self.transitions_ is not None, workers=workers)
        for begin, scores in pieces:
            finite = np.isfinite(scores).all(axis=1)
            if not finite.all():
                row = first + begin + int(np.argmin(finite)) + 1
                raise ModelError(
                    f"row {row} of {where}: a score overflows {scores.dtype}; scale the values down"
                )
            yield begin, scores

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of all rows of `X`.

        Parameters
        ----------
        X : array_like, scipy sparse matrix or array, DataFrame or AnnData, shape (n, n_features_in_)
            Data with the features of the training data, to which the model applies its transforms. Column j
            is the feature with the number j + index_base in LIBSVM text. File-backed AnnData, or a view of
            it, is read in blocks. A tuple of two NumPy arrays is one row: the integer feature indices and the
            values. A model trained on hashed text also accepts a list, array or Series of strings, one per
            row. Named columns (of a DataFrame, or ``var_names`` of AnnData) are matched by name: missing
            columns are 0, and unknown columns are ignored. Categorical columns become features as in
            training. A model that hashes features accepts any number of columns; column j is then feature j
            of LIBSVM text, as scikit-learn's ``load_svmlight_file(..., zero_based=True)`` reads it.

        Returns
        -------
        ndarray, shape (n, n_classes), in the model's dtype

        Raises
        ------
        ModelError
            If `X` has the wrong number of features, or if a value or score is not finite.
        FeatureError
            If the model knows none of the column names, or if `X` lacks a column of the training table.
        InputError
            If a transform of the model rejects a row; the message names the row.

        Warns
        -----
        StreamsvmWarning
            If columns are missing or unknown, or if only the data or only the model has feature names. In the
            latter case, the features are assumed to be in the model's order.
        """
        return self._compute(X, lambda rows, begin, scores: scores, self.dtype, len(self.classes_))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities of all rows of `X`: the softmax of scores / `temperature`.

        For an uncalibrated ``sparsemax`` model, they are the projections of the scores onto the simplex.
        Parameters, errors and warnings are as for `decision_function`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Each row sums to 1.

        Raises
        ------
        ModelError
            Also if the model has no probabilities (see `temperature`).
        """
        self.check_probabilities()
        probabilities = lambda rows, begin, scores: np.exp(self.log_probabilities(scores))  # noqa: E731
        return self._compute(X, probabilities, np.float64, len(self.classes_))

    def log_probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Return the log-probabilities, float64, of finite scores, shape (n, n_classes)."""
        return log_probabilities(scores, self.record, self.check_probabilities())

    def check_probabilities(self) -> float:
        """Return the temperature; raise `ModelError` if the model has no probabilities."""
        if self.temperature is None:
            loss = self.record.get("loss")
            trained = "" if loss is None else f"was trained with the loss {loss} and "
            raise ModelError(
                f"the model has no probabilities: it {trained}was not calibrated",
                remedy=Remedy("fit a temperature to held-out data with {}", Call("calibrate")),
            )
        return self.temperature

    def predict(
        self, X: Any, groups: Any = None, *, unknown: float | None = None, unknown_label: Any = "unknown"
    ) -> np.ndarray:
        """Predict the labels of the rows of `X`; the first class wins a tie.

        For data that does not fit in memory, see `streamsvm.predict`.

        Parameters
        ----------
        X : as for `decision_function`
        groups : array_like, shape (n,), or str, optional
            Group of each row, for a sequence model: see `streamsvm.fit`.
        unknown, unknown_label
            As for `streamsvm.predict`.

        Returns
        -------
        ndarray, shape (n,)
            Labels in the type of `classes_`; strings if `unknown` is set and `unknown_label` is a string.

        Raises
        ------
        ModelError
            If `groups` is missing for a sequence model or passed to another model, if a group's rows are not
            adjacent, or if `unknown` has no threshold. Also raises and warns like `decision_function`.
        SettingsError
            If `unknown` is not valid.
        """
        best = functools.partial(
            self.best_classes, min_probability=probability_threshold(self.record, unknown, unknown_label)
        )
        labels = self.classes_ if unknown is None else np.append(self.classes_, unknown_label)
        return np.asarray(labels[self._compute(X, best, np.int64, groups=groups)])

    def _compute(
        self,
        X: Any,
        compute: Callable[[Rows, int, np.ndarray], np.ndarray],
        dtype: Any,
        *shape: int,
        groups: Any = None,
    ) -> np.ndarray:
        for first, part in matrix_parts(X, groups):
            rows = rows_of_matrix(self, part, groups=groups, first=first)
            if first == 0:
                result = np.empty((getattr(X, "n_obs", rows.n_rows), *shape), dtype)
            for begin, scores in self.scores(rows, first=first):
                at = first + begin
                result[at : at + len(scores)] = compute(rows, begin, scores)
        return result

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Return the accuracy of the predictions for the rows of `X`, which have one label each.

        `streamsvm.evaluate` computes more metrics, also for rows with several labels.

        Parameters
        ----------
        X, groups : as for `predict`
        y : array_like, shape (n,), or str
            Labels, or the name of their column in a DataFrame or in ``obs`` of AnnData. Rows whose label the
            model does not know count as wrong; rows without a label are left out.
        sample_weight : array_like, shape (n,), optional

        Raises
        ------
        ModelError
            If a row of `y` has several labels. Other errors and warnings are as in `predict`.

        Warns
        -----
        StreamsvmWarning
            If labels are unknown to the model; the message gives the number of rows.
        """
        y = labels_of(X, *label_column(y, None))
        predicted = self._compute(X, self.best_classes, np.int64, groups=groups)
        if label_lists(y, len(predicted)) is not None:
            raise ModelError("y has several labels per row; call streamsvm.evaluate instead of score")
        labels = label_codes(y, len(predicted), self.classes_)
        has_label = labels != NO_LABEL
        warn_of_unknown(int(np.count_nonzero(labels == format.UNSEEN_LABEL)), "y")
        weights = None if sample_weight is None else np.asarray(sample_weight)[has_label]
        return float(np.average((predicted == labels)[has_label], weights=weights))

    def best_classes(
        self, rows: Rows, begin: int, scores: np.ndarray, min_probability: float | None = None
    ) -> np.ndarray:
        """Return the codes of the predicted classes, given the `scores` of `rows` from row `begin` on.

        Rows whose largest probability is below `min_probability` get the code n_classes.
        """
        if self.transitions_ is not None:
            return best_sequences(scores, self.transitions_, rows, begin)
        best = np.asarray(scores.argmax(axis=1))
        if min_probability is not None:
            best[np.exp(self.log_probabilities(scores).max(axis=1)) < min_probability] = len(self.classes_)
        return best
