"""The estimator for scikit-learn, for type checkers and editors: written by tests/make_stubs.py."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from streamsvm.sklearn import estimator

class StreamSVMClassifier(estimator.StreamSVMClassifier):
    r"""Linear multi-class SVM, trained in a few passes by exact dual block-coordinate descent.

    If the data is in memory, no files are written. For a store or file, the run is in a temporary directory.
    See `streamsvm.fit` for a full description, and for data larger than memory.

    Parameters
    ----------
    C : float | Literal["auto"]
        Weight C of the loss relative to ½‖w‖²: a number, or auto for one over the mean squared distance of
        the rows from their mean (in online, one over the mean squared norm of the first 1,000 rows). For
        `fit` on dense rows, auto multiplies this by 1, 0.1, 0.01 or 0.001: the largest factor whose accuracy
        on held-out rows is close to the best.
    loss : str
        Formulation of the multi-class SVM. ww: Weston-Watkins; ww2: Weston-Watkins, squared hinge; wws:
        Weston-Watkins, smoothed hinge; cs: Crammer-Singer; cs2: Crammer-Singer, squared; top-m: mean of the m
        largest hinges; llw: Lee-Lin-Wahba; llw2: Lee-Lin-Wahba, squared hinge; ovr: one-vs-rest, hinge; ovr2:
        one-vs-rest, squared hinge; logistic: multinomial logistic regression; sparsemax: sparsemax; chain:
        chain-structured SVM; auto, in fit and tune: ww, cs or ovr2, chosen on a sample of the rows.
    margin : float | None
        Margin scale M of Weston-Watkins: 1 (default) or 0.5.
    solver : str | None
        Block solver of the loss: newton (the default; clip for ovr and ovr2, cached for chain), sorted (as
        published), or another one that the loss offers.
    smooth : float | None
        ε of wws, the smoothed hinge: slacks below ε have a quadratic cost; 0.5 by default.
    top : int | None
        m of top-m: number of largest hinges to average, at most one per class; 5 by default.
    temperature : float | None
        τ of the block solvers bcpl and oeg of chain; 1 by default.
    dtype : Literal["float32", "float64"]
        Precision of weights, duals and scores; sums and objectives are always float64.
    passes : int
        Maximum number of passes over the data.
    tol : float | None
        Stop when the exact relative gap (primal - dual) / primal is at most this. The absolute value of the
        gap is compared, because rounding can make it negative. The gap is measured for the model after a
        pass: the average if the pass has one, or else the last iterate.
    inner_passes : int | Literal["auto"]
        Number of times to revisit the rows of a block while they are in memory, or auto to let a cost model
        choose it.
    average : bool
        Use the average of the iterates in the second half of the last pass as the model, instead of the last
        iterate. The t-th iterate has weight t. With `tol`, an earlier pass is also averaged if it is expected
        to meet the tolerance. If `memory` has no room for the average, a warning says so, and the model is
        the last iterate.
    gap : Literal["pass", "end", "none"] | None
        When to measure the exact gap, which reads the data once more: after each pass (default with a
        tolerance), at the end (default otherwise), or never (none).
    costs : Any
        Table of margins by which each class (row) must win against each other class (column): CSV with class
        names in the first line and column, or .npy in class order. Or a DataFrame, or an array of shape (k,
        k).
    tree : Any
        Tree of the classes, with a child and its parent on each line, instead of costs. The margin between
        two classes is the length of the path between them. Or a mapping from child to parent.
    split : Literal["auto", "classes", "rows"]
        How to split training if there are several splits: by classes, in groups that are solved in pairs; by
        rows, with steps that are added up; or auto: by classes if each worker then has less work than one
        core would have. The split by classes is the scheme of Alber et al. (2017) with exact block steps; the
        split by rows is CoCoA+ (Ma et al. 2015).
    splits : int
        Number of parts of each block that are trained at the same time. The model depends on this number, but
        not on the number of workers.
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
    C: float | Literal["auto"]
    margin: float | None
    solver: str | None
    smooth: float | None
    top: int | None
    temperature: float | None
    dtype: Literal["float32", "float64"]
    passes: int
    tol: float | None
    inner_passes: int | Literal["auto"]
    average: bool
    gap: Literal["pass", "end", "none"] | None
    costs: Any
    tree: Any
    split: Literal["auto", "classes", "rows"]
    splits: int
    fit_intercept: bool | None
    intercept_scaling: float
    class_weight: Mapping[Any, float] | str | None
    transforms: str | list[str] | None
    calibrate: float | None
    n_jobs: int | None
    random_state: Any
    def __init__(
        self,
        loss: str = 'ww',
        *,
        C: float | Literal["auto"] = 'auto',
        margin: float | None = None,
        solver: str | None = None,
        smooth: float | None = None,
        top: int | None = None,
        temperature: float | None = None,
        dtype: Literal["float32", "float64"] = 'float32',
        passes: int = 3,
        tol: float | None = None,
        inner_passes: int | Literal["auto"] = 'auto',
        average: bool = True,
        gap: Literal["pass", "end", "none"] | None = None,
        costs: Any = None,
        tree: Any = None,
        split: Literal["auto", "classes", "rows"] = 'auto',
        splits: int = 1,
        fit_intercept: bool | None = None,
        intercept_scaling: float = 1.0,
        class_weight: Mapping[Any, float] | str | None = None,
        transforms: str | list[str] | None = None,
        calibrate: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        ...
