"""Trained models: saved, loaded and used to predict; neither data nor model need to fit in memory."""

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
from streamsvm.model.doubt import least_probability
from streamsvm.model.matrix import label_codes, matrix_parts, rows_of_matrix
from streamsvm.model.scoring import Scorer, log_probabilities
from streamsvm.model.serialization import features_of_data, read_model, save_copy
from streamsvm.transforms import Transform, names_after

if TYPE_CHECKING:
    from streamsvm.model.results import FitResult


def load_model(path: str | Path) -> Model:
    """Open the model in `path`, a model folder or a run directory with one.

    The coefficients stay on disk, memory-mapped; they are read once to check them. If another process
    replaces the model meanwhile, the new one is opened.

    Raises
    ------
    ModelError
        If there is no model, it is damaged, or a class has a control character in its name.
    """
    return Model(**read_model(Path(path)))


class Model(Readable):
    """Linear classifier: the class of x is the one whose row of `coef_` scores it highest.

    Attributes
    ----------
    coef_ : ndarray or scipy.sparse.csc_array, shape (n_classes, n)
        Coefficients of the n features that rows have after the transforms, without the constant feature of
        the transform ``bias``; one row for each class, also of two. A transposed view of the stored array,
        memory-mapped and read-only. Sparse where that is much smaller: if less than half of the features have
        coefficients, or, with 64 classes or more, if that takes less than a quarter of the bytes;
        ``coef_.toarray()`` is then the dense matrix. If it was trained with a common dual (very many
        classes), a column that all classes share is left out, as in scores.
    intercept_ : ndarray of shape (n_classes,)
        Part of the scores of all rows that the transform ``bias`` adds: its value times its coefficients.
        Zeros without it.
    classes_ : ndarray, shape (n_classes,)
        The labels, in the type of those of the training data: that of `y` as an array; int64 or str if the
        data was a store.
    class_names : ndarray of str, shape (n_classes,)
        The labels as texts, as in files, tables of costs and predictions that are written.
    n_features : int
        Number of features after the transforms, with a constant one.
    n_features_in_ : int
        Features that data has before the transforms. For a model that hashes features, those that the
        training data had: it takes any.
    feature_names_in_ : ndarray of str objects, shape (n_features,), or None
        Names of the features, if the training data had any; new data is matched by them.
    feature_names_out_ : ndarray of str objects, shape (n,), or None
        Names of the features that `coef_` has a row for: other than `feature_names_in_` if some are selected.
    transitions_ : ndarray of shape (n_classes, n_classes), or None
        Transitions of a model of sequences: entry (a, b) is the score of class b following class a. Such a
        model predicts the label sequence of the largest score.
    multilabel : bool
        True if rows of the training data could have several labels, or none.
    dtype : dtype
        Type of coefficients and scores.
    record : dict
        The contents of ``model.json``.
    transforms : sequence of Transform
        Transforms that are applied to rows before they are scored, as in training.
    costs : ndarray of float32, shape (n_classes, n_classes), or None
        Cost of predicting the class of each column for rows of the class of each row, if the training had
        ``costs`` or a ``tree``.
    result : FitResult or None
        Result of the training, if `streamsvm.fit` returned the model.
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
        """Return dense coefficients, shape (n_features, n_classes), with those of a constant feature last."""
        return self.stored_coef.dense(0, self.n_features)

    @functools.cached_property
    def intercept_(self) -> np.ndarray:
        if self.bias is None:
            return np.zeros(len(self.classes_), self.dtype)
        last = self.stored_coef.dense(self.n_features - 1, self.n_features)
        return np.asarray(last[0] * self.dtype.type(self.bias))

    @property
    def bias(self) -> float | None:
        """Value of the last feature, if it is constant."""
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
        """Divisor of the scores before their softmax; None if the model has no probabilities.

        It is 1 for the losses ``logistic`` and ``sparsemax``, and else the value that `streamsvm.calibrate`
        found. Without that, ``sparsemax`` has the projection to the simplex in the place of the softmax.
        """
        found = self.record.get(format.TEMPERATURE)
        loss = LOSSES.get(str(self.record.get("loss")))
        if found is None and loss is not None and loss.probabilities:
            return 1.0
        return None if found is None else float(found)

    @property
    def threshold(self) -> float | None:
        """Score above which a class is predicted for rows that may have several labels.

        It is 0 if each class was separated from the others on its own (``ovr`` and ``ovr2``); None if the
        scores only rank the classes.
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
        """Write the model into the model folder `path`, which `load_model` reads.

        A model that `path` already holds is replaced. Coefficients are stored sparsely where that is much
        smaller; if `prune` or `dtype` is given, in the layout of the fewest bytes.

        Parameters
        ----------
        path : path
        prune : float
            Coefficients of at most this absolute value become 0. A score of x, after the transforms, changes
            by at most ``prune * sum(abs(x))``, and a label only if its score is ahead of the next by less
            than twice that.
        dtype : {"float16", "float32"}, optional
            Type to which coefficients are rounded and in which they are stored. Scores are then computed in
            float32; coefficients in float16 take half of the disk and, once they are loaded, as much memory
            as in float32. With float16 a score changes by at most ``sum(abs(x * w)) / 2048``, and 3e-8 times
            ``sum(abs(x))``.

        Raises
        ------
        ModelError
            If `path` holds anything but a model, or cannot be written, or a coefficient is too large for
            `dtype`.
        SettingsError
            If `prune` or `dtype` is not valid.
        """
        save_copy(path, self, prune=prune, dtype=dtype)

    @property
    def takes_texts(self) -> bool:
        """True for a model of hashed n-grams, which scores lists of texts, too."""
        encoding = self.record.get("encoding") or {}
        return bool(encoding.get("text") and not encoding["columns"])

    @property
    def takes_any_feature(self) -> bool:
        """True if data may have features that training did not see, because they are hashed."""
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
        """Score `rows` in pieces of at most `memory` bytes of scores, or of one row; `workers` share a piece.

        For a model of sequences the pieces have whole groups of rows, if these have groups. Raises
        `ModelError`, which calls the data `where` and the first row `first`, if a score is not finite.

        Yields
        ------
        begin : int
            First row of the piece.
        scores : ndarray, shape (n, n_classes)
            In the model's dtype; the array is reused for the next piece.
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
            As the training data was, before the transforms, which the model applies. AnnData that is backed
            by a file, or a view of it, is read in parts. One row may also be a
            tuple of two NumPy arrays: the indices of its features, as integers, and their values.
            Column j is the model's feature j, which in LIBSVM text has the number j + index_base.
            Columns of categories of a DataFrame become features as in the training. For a model of hashed
            text also a list, array or Series of texts, one for each row.
            Named columns (of a DataFrame, or ``var_names`` of AnnData) are matched with the model's
            names, in any order: missing ones are 0, and unknown ones are left out. For a model that hashes
            features, `X` may have any number of columns, and column j is the feature with the number j in the
            text, as scikit-learn's ``load_svmlight_file(..., zero_based=True)`` reads it.

        Returns
        -------
        ndarray, shape (n, n_classes), in the model's dtype

        Raises
        ------
        ModelError
            If `X` has another number of features, or a value or a score is not finite in the model's
            dtype; names the row and column.
        FeatureError
            If no name of a column is one of the model's, or a column of the model's table is missing.
        InputError
            If a transform of the model cannot take a row; names it.

        Warns
        -----
        StreamsvmWarning
            If columns are missing or unknown, with their numbers; or if only one side has names: columns
            are then assumed to be in the model's order.
        """
        return self._of_rows(X, lambda rows, begin, scores: scores, self.dtype, len(self.classes_))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes for all rows of `X`: the softmax of scores / `temperature`.

        Those of a model with the loss ``sparsemax`` that is not calibrated are the projections of the scores.

        Parameters and warnings are those of `decision_function`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Each row sums to 1.

        Raises
        ------
        ModelError
            If the model has no probabilities (see `temperature`). Also as in `decision_function`.
        FeatureError
            As in `decision_function`.
        """
        self.check_probabilities()
        probabilities = lambda rows, begin, scores: np.exp(self.log_probabilities(scores))  # noqa: E731
        return self._of_rows(X, probabilities, np.float64, len(self.classes_))

    def log_probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Return the logarithms of the probabilities of finite scores, shape (n, n_classes), in float64."""
        return log_probabilities(scores, self.record, self.check_probabilities())

    def check_probabilities(self) -> float:
        """Return the temperature; raises `ModelError` if the model has no probabilities."""
        if self.temperature is None:
            loss = self.record.get("loss")
            trained = "" if loss is None else f"was trained with the loss {loss} and "
            raise ModelError(
                f"the model has no probabilities: it {trained}was not calibrated",
                remedy=Remedy("fit a temperature to hold-out data with {}", Call("calibrate")),
            )
        return self.temperature

    def predict(
        self, X: Any, groups: Any = None, *, unknown: float | None = None, unknown_label: Any = "unknown"
    ) -> np.ndarray:
        """Predict the labels of the rows of `X`; of equal scores the first class wins.

        Parameters
        ----------
        X : as for `decision_function`
        groups : array_like, shape (n,), or str, optional
            The group that each row belongs to, for a model of sequences: see `streamsvm.fit`.
        unknown, unknown_label
            As for `streamsvm.predict`.

        Returns
        -------
        ndarray, shape (n,)
            In the type of `classes_`; text if `unknown_label` is text.

        Raises
        ------
        ModelError
            If a model of sequences is given no groups, or another one is, or the rows of a group do not stand
            together; or for `unknown`. Also as in `decision_function`, with its warnings.
        SettingsError
            If `unknown` is not valid.

        Notes
        -----
        For data that does not fit in memory, see `streamsvm.predict`.
        """
        best = functools.partial(
            self.best_classes, least=least_probability(self.record, unknown, unknown_label)
        )
        labels = self.classes_ if unknown is None else np.append(self.classes_, unknown_label)
        return np.asarray(labels[self._of_rows(X, best, np.int64, groups=groups)])

    def _of_rows(
        self,
        X: Any,
        compute: Callable[[Rows, int, np.ndarray], np.ndarray],
        dtype: Any,
        *shape: int,
        groups: Any = None,
    ) -> np.ndarray:
        """Return what `compute` makes of rows, the first of some of them, and their scores, for all rows."""
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

        Parameters
        ----------
        X, groups : as for `predict`
        y : array_like, shape (n,), or str
            Labels, or the name of the column of ``obs`` of AnnData that has them. Those that the model does
            not know count as predicted wrongly; rows whose label is missing are left out.
        sample_weight : array_like, shape (n,), optional

        Raises
        ------
        ModelError
            If a row of `y` has several labels. Also as in `predict`, with its warnings.

        Warns
        -----
        StreamsvmWarning
            If labels are unknown to the model, or missing; counts the rows.

        Notes
        -----
        `streamsvm.evaluate` has further metrics, also of rows with several labels.
        """
        y = labels_of(X, *label_column(y, None))
        predicted = self._of_rows(X, self.best_classes, np.int64, groups=groups)
        if label_lists(y, len(predicted)) is not None:
            raise ModelError("y has several labels a row: streamsvm.evaluate measures predictions of them")
        labels = label_codes(y, len(predicted), self.classes_)
        kept = labels != NO_LABEL
        warn_of_unknown(int(np.count_nonzero(labels == format.UNSEEN_LABEL)), "y")
        weights = None if sample_weight is None else np.asarray(sample_weight)[kept]
        return float(np.average((predicted == labels)[kept], weights=weights))

    def best_classes(
        self, rows: Rows, begin: int, scores: np.ndarray, least: float | None = None
    ) -> np.ndarray:
        """Return the codes of the classes predicted for the rows from `begin` on, which have these scores.

        Rows whose largest probability is below `least` have one more than the last code.
        """
        if self.transitions_ is not None:
            return best_sequences(scores, self.transitions_, rows, begin)
        best = np.asarray(scores.argmax(axis=1))
        if least is not None:
            best[np.exp(self.log_probabilities(scores).max(axis=1)) < least] = len(self.classes_)
        return best
