"""All names of `streamsvm`, for type checkers and editors: written by tests/make_stubs.py."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from streamsvm import errors as errors, plot as plot
from streamsvm.base.progress import Progress, Report
from streamsvm.training.stream import Stream
from streamsvm.model.results import Calibration as Calibration
from streamsvm.prediction.evaluation import Evaluation as Evaluation
from streamsvm.exporting.export import Exported as Exported
from streamsvm.model.results import FitResult as FitResult
from streamsvm.prediction.label_set_evaluation import LabelSetEvaluation as LabelSetEvaluation
from streamsvm.model.model import Model as Model
from streamsvm.model.results import OnlineResult as OnlineResult
from streamsvm.settings.online import OnlineSettings as OnlineSettings
from streamsvm.prediction.predictions import Predictions as Predictions
from streamsvm.data.rows import Rows as Rows
from streamsvm.settings.fit import Settings as Settings
from streamsvm.store.store import Store as Store
from streamsvm.model.results import TuneResult as TuneResult
from streamsvm.prediction.calibration import calibrate as calibrate
from streamsvm_converters.convert import convert as convert
from streamsvm.prediction.evaluation import evaluate as evaluate
from streamsvm.exporting.export import export_model as export_model
from streamsvm.model.model import load_model as load_model
from streamsvm.store.open import open_store as open_store
from streamsvm.prediction.predictions import predict as predict
from streamsvm.reporting.page import report as report

__version__: str
__all__ = ['Calibration', 'Evaluation', 'Exported', 'FitResult', 'LabelSetEvaluation', 'Model', 'OnlineResult', 'OnlineSettings', 'Predictions', 'Rows', 'Settings', 'Store', 'TuneResult', 'calibrate', 'convert', 'evaluate', 'export_model', 'fit', 'load_model', 'online', 'open_store', 'plan', 'plot', 'predict', 'report', 'resume', 'tune']

def fit(
    data: Any,
    y: Any = None,
    *,
    groups: Any = None,
    out: str | os.PathLike[str] | None = None,
    C: float | Literal["auto"] = 'auto',
    loss: str = 'ww',
    margin: float | None = None,
    solver: str | None = None,
    smooth: float | None = None,
    top: int | None = None,
    temperature: float | None = None,
    dtype: Literal["float32", "float64"] = 'float32',
    label: str | None = None,
    labels: str | Path | None = None,
    layer: str | None = None,
    raw: bool = False,
    obsm: str | None = None,
    cache: str | Path | None = None,
    passes: int = 3,
    seed: int = 0,
    memory: int | str = 2147483648,
    tol: float | None = None,
    inner_passes: int | Literal["auto"] = 'auto',
    average: bool = True,
    gap: Literal["pass", "end", "none"] | None = None,
    valid: str | Path | None = None,
    from_: str | Path | None = None,
    hold_out: str | None = None,
    hold_out_by: Any = None,
    class_weight: str | Path | Mapping[str, float] | Literal["balanced"] | None = None,
    sample_weight: Any = None,
    weights: str | Path | None = None,
    costs: Any = None,
    tree: Any = None,
    transform: str | Sequence[str] | None = None,
    valid_labels: str | Path | None = None,
    join: Literal["inner", "outer"] = 'inner',
    keep_duals: bool | None = None,
    block_rows: int | None = None,
    slice_rows: int | None = None,
    split: Literal["auto", "classes", "rows"] = 'auto',
    splits: int = 1,
    format: Literal["libsvm", "csv", "tsv", "jsonl", "parquet", "anndata", "npz", "npy"] | None = None,
    delimiter: str | None = None,
    decimal: Literal[".", ","] | None = None,
    like: str | Path | None = None,
    text: str | Sequence[str] = (),
    analyzer: Literal["word", "char", "char_wb"] | None = None,
    ngrams: tuple[int, int] | None = None,
    bits: int | None = None,
    columns: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    missing: Literal["error", "0", "mean", "indicator"] = 'error',
    labels_as: Literal["numbers", "text"] | None = None,
    multilabel: bool = False,
    index_base: int | Literal["auto"] = 'auto',
    n_features: int | None = None,
    on_error: Literal["raise", "skip", "fix"] = 'raise',
    keep_data: bool = True,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    checkpoint_every: str | float | None = None,
    force: bool = False,
    resume_or_start: bool = False,
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> FitResult | Model:
    r"""Train a linear multi-class SVM by exact dual block-coordinate descent (Wang & Scott 2021, Algorithm 1).

        model = fit(X, y, passes=3)  # arrays give a model
        result = fit("train.zarr", out="run", valid="test.zarr")  # a store gives a run
        labels = load_model("run").predict(X)

    Each pass reads the data once, block by block in a seeded random order, and solves the dual problem of
    each row exactly. The state is saved in the run directory `out`, so that `resume` can continue an
    interrupted run with bit-identical results.

    Parameters
    ----------
    data : path, list of paths, or matrix of shape (n, n_features)
        Path of a store made by `convert`, of AnnData, or of a dense matrix (``.npy``, or a column of lists in
        Parquet or Arrow; see `open_store`). With several paths, features are matched by name. Other files,
        such as LIBSVM text and tables, are first converted to a store in the run directory, as is `valid`. If
        the conversion is stopped, the same call restarts it. Data in memory can be a matrix, as for
        `Model.predict`, or a list of text documents, whose n-grams are hashed (see `analyzer`, `ngrams` and
        `bits`; extra ``text``). Each value of a text column of a DataFrame becomes a feature, as in
        `convert`. For a matrix, settings that apply only to stores are invalid, except that `memory`,
        `block_rows`, `slice_rows` and `checkpoint_every` are ignored.
    y : array_like, shape (n,), or str, optional
        Labels of a matrix; stores and files contain their own. For AnnData or a DataFrame, this may be the
        name of a column, as for `label`. If rows have several labels, pass a list of labels for each row, or
        an indicator matrix of zeros and ones (array, sparse matrix or DataFrame). Its classes are the column
        names of a DataFrame, or otherwise the column numbers.
    groups : array_like, shape (n,), or str, optional
        Group of each row of a matrix, such as the sequence that contains a token, for the loss ``chain``. The
        rows of a group must be adjacent and in order. For AnnData in memory, this may be the name of a column
        of ``obs``. Stores and files contain their own groups.
    out : path, optional
        Run directory to create; required for stores and files. For a matrix, use `Model.save` instead.
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
    label : str | None
        Label column of a table, or of obs of AnnData that was not written by convert. For scoring, the
        default is the column used in training. Or the array with the labels in an .npz file; for AnnData in
        memory, also the name of an indicator matrix in ``obsm``. Rows without a label are left out.
    labels : str | Path | None
        Label file of a matrix (.npy, .npz, Zarr, lists): .npy, or text, one per line.
    layer : str | None
        Layer of AnnData to read instead of X.
    raw : bool
        Read raw.X of AnnData, with its own features.
    obsm : str | None
        Entry of obsm of AnnData to read instead of X, such as an embedding.
    cache : str | Path | None
        Folder for copies of remote data; by default in the run directory, or temporary if there is none. All
        workers of a cluster must have access to it.
    passes : int
        Maximum number of passes over the data.
    seed : int
        Seed of the order of blocks and rows, and of fourier.
    memory : int | str
        Memory budget in bytes, or as text such as 500M or 2G.
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
    valid : str | Path | None
        Store, text or table to measure the accuracy on after each pass.
    from_ : str | Path | None
        Model, or run with a model, from which to continue with new rows: minimise ½‖W - W₀‖² + C times the
        loss, where W₀ are the weights of the model. Its transforms, classes and features are kept. Classes
        and features are matched by name; new classes and features start with weights of 0. With a small C,
        the weights stay near the model.
    hold_out : str | None
        Hold out a part of each class and measure the accuracy on it. For example, 1/10 is the first of 10
        parts, which are determined by a hash of the rows' numbers in the input. Groups of rows are never
        divided. Held-out rows are not used for C auto, for the statistics of transforms, or for balanced
        class weights.
    hold_out_by : Any
        Column of a table or of obs, such as a donor; for a matrix or LIBSVM text, a file with one value per
        line. fit, tune and the search for C hold out rows with equal values together. For a matrix in memory,
        also an array of shape (n,). The column does not become a feature. A store that was converted with
        this setting uses it. ``docs/tuning.md`` explains it.
    class_weight : str | Path | Mapping[str, float] | Literal["balanced"] | None
        Weights of the rows of each class: balanced, so that all classes have the same total weight, or a file
        with a class and its weight on each line (default weight: 1). Balanced weights are number of labels /
        (number of classes × rows of the class). The cost of a row is C times the weight of its class times
        the weight of the row. For ``ovr`` and ``ovr2``, the weight of a class applies to the positive rows of
        its problem, as in LIBLINEAR.
    sample_weight : Any
        Numeric column of obs with the weights of the rows. A store that was converted with weights stores
        them in the column weight, and they are used unless this is none. For a matrix, also an array of shape
        (n,). Rows with weight 0 are left out. With the loss ``chain``, the mean weight of each group is used.
    weights : str | Path | None
        Weights of the rows of a matrix, text or a table: a file with one weight per line; for a matrix also
        .npy.
    costs : Any
        Table of margins by which each class (row) must win against each other class (column): CSV with class
        names in the first line and column, or .npy in class order. Or a DataFrame, or an array of shape (k,
        k).
    tree : Any
        Tree of the classes, with a child and its parent on each line, instead of costs. The margin between
        two classes is the length of the path between them. Or a mapping from child to parent.
    transform : str | Sequence[str] | None
        Transforms of each row, applied in this order in training and prediction: normalize[=sum], log1p,
        binarize, idf, df=power, center, scale=std|maxabs, clip=v, select=FILE, hash=bits, l2, bias[=value],
        fourier=D[:gamma=x]; for example normalize=1e4,log1p,scale=std; or none. The default is
        center,scale=std,bias for a table with numeric columns, normalize=1e4,log1p,bias for AnnData with
        counts, log1p,idf,l2,bias for text without other columns, and bias for other data. auto compares
        several choices on a sample of the rows. Or a list of such strings. A DataFrame is a table. ``bias``
        is a constant feature with the coefficients `Model.intercept_`. Transforms that need statistics of all
        rows read the data once more. ``docs/transforms.md`` explains each transform.
    valid_labels : str | Path | None
        Labels of the matrix in valid.
    join : Literal["inner", "outer"]
        Features of several files: those that all files have (inner), or those that any file has (outer).
    keep_duals : bool | None
        Keep the duals, so that passes can be added later; the default unless passes is 1.
    block_rows : int | None
        Maximum number of rows in a block; by default, memory is the only limit.
    slice_rows : int | None
        Read data that is not shuffled in slices of this many rows; a block consists of slices from all over
        the data. 0 keeps the order. The default is determined by chunks and memory.
    split : Literal["auto", "classes", "rows"]
        How to split training if there are several splits: by classes, in groups that are solved in pairs; by
        rows, with steps that are added up; or auto: by classes if each worker then has less work than one
        core would have. The split by classes is the scheme of Alber et al. (2017) with exact block steps; the
        split by rows is CoCoA+ (Ma et al. 2015).
    splits : int
        Number of parts of each block that are trained at the same time. The model depends on this number, but
        not on the number of workers.
    format : Literal["libsvm", "csv", "tsv", "jsonl", "parquet", "anndata", "npz", "npy"] | None
        Format of the files; needed only for text without the usual suffix of its format.
    delimiter : str | None
        CSV: character between fields; by default the most frequent of , ; | and tab in line 1.
    decimal : Literal[".", ","] | None
        CSV: decimal mark; by default a comma if it separates no fields and makes more columns numeric.
    like : str | Path | None
        Store, run or model whose classes, features and index base are used, as for test data. Values of other
        features are dropped and counted. From a model that hashes features, only the classes are used. Tables
        are read like the table of the earlier data. AnnData is matched by feature names.
    text : str | Sequence[str]
        Text columns whose hashed n-grams become features; list other features in columns.
    analyzer : Literal["word", "char", "char_wb"] | None
        With text: n-grams of words (word, the default), of characters across words (char), or of characters
        within words (char_wb).
    ngrams : tuple[int, int] | None
        With text: minimum and maximum length of n-grams, at most 100; by default 1 and 2.
    bits : int | None
        With text: the number of features is 2**bits, by default 2**20.
    columns : str | Sequence[str]
        Columns of a table that become features: numbers and booleans unchanged, dates as days and years, text
        as one feature for each value. By default all but labels, or none if text is set.
    drop : str | Sequence[str]
        Columns of a table that do not become features.
    categorical : str | Sequence[str]
        Columns of numbers or dates that are categories, such as codes.
    missing : Literal["error", "0", "mean", "indicator"]
        How to treat a missing number or date of a table: as an error; as 0; as the mean of its column; or as
        0, with an additional feature COLUMN=missing that is 1 in this row (indicator). The mean is over the
        rows that are kept. A categorical column with missing values also gets this feature. With `like`, the
        earlier data determines this setting.
    labels_as : Literal["numbers", "text"] | None
        How to read labels in text: as numbers, so that +1 and 1.0 are 1, and NA and the like are missing
        except in LIBSVM text; or as text, unchanged. By default as in like, or as numbers. Labels of tables
        always keep their spelling: ``01`` is a code.
    multilabel : bool
        LIBSVM text: commas separate several labels of a row (1,5,7 1:0.3), and a line that begins with
        whitespace has no label. A label that a row repeats is counted once.
    index_base : int | Literal["auto"]
        LIBSVM text: index of the first feature. auto is 0 if any row that is kept has an index 0, even if its
        value is 0, and 1 otherwise. With `like`, the index base of the earlier data is used; another value is
        an error.
    n_features : int | None
        LIBSVM text: number of features; by default from the largest index. A larger index is an error.
    on_error : Literal["raise", "skip", "fix"]
        Whether an invalid row is an error, or is dropped and counted; in a table, a missing or infinite
        number makes a row invalid. For LIBSVM text, fix also sorts unsorted rows and sums duplicate indices.
    keep_data : bool
        Whether a finished run keeps the stores that were converted from files. Without them, `resume` can add
        passes only if its argument `store` names a store.
    workers : int, optional
        Number of threads for training and for the statistics of transforms; by default, one per processor.
        Training uses at most one thread per split, unless rows are dense and there are many classes. With a
        cluster, the number of workers to wait for, or of processes to start if the cluster is local.
    cluster : str or path, optional
        Dask cluster to train on (extra ``cluster``): the address of its scheduler, its scheduler file, or
        "local" for processes on this machine. A cluster requires `splits` > 1; the model is the same as with
        threads. The workers read the store themselves, so `data` must be a valid path on all machines. Only
        this process writes to `out`.
    checkpoint_every : str or float, optional
        Interval between commits: a time ("0.5s", "60s", "5m"), a number of seconds, or a number of blocks as
        text ("8 blocks"). The default is 20 times the duration of the last commit, but at least 10 s.
    force : bool
        Replace an existing run. It is moved to ``NAME.old``, and deleted once the new run has a model.
    resume_or_start : bool
        Resume the run in `out` if it exists, and start it otherwise. An existing run must have the same
        settings and data; if it is finished, its result is returned, so a scheduler can repeat the same call.
    report : callable, optional
        Function called with a dict for each line of ``metrics.jsonl``, and before that for these events:
        "convert" for each conversion; "choose", "candidate" and "chosen" if transforms or the loss are
        "auto"; "C", with the values tried and their accuracies, if C is searched for; "plan"; and "ready"
        once the kernels are compiled and loaded.
    progress : bool or callable, optional
        Whether to show tqdm bars. By default, they appear in terminals and notebooks, for stages that take
        more than a second. A function passed instead is called with the stage ("convert", "choose transform
        and loss", "choose C", "class means", "pass 1 of 3", "gap 1", "valid 1"), the number of rows done
        (bytes for "convert"), and the total. Passes and the compilation of kernels are also logged at level
        INFO, by the logger ``streamsvm``.
    stop : callable, optional
        Function called after each block; if it returns True, the run commits and raises `Interrupted`. If
        training on a matrix or a search for C is stopped, nothing is kept.

    Returns
    -------
    FitResult or Model
        `FitResult` for stores and files. `Model` for a matrix; its attribute ``result`` is the `FitResult`.

    Raises
    ------
    SettingsError
        If a setting is invalid or does not apply to the data.
    PlanError
        If the memory budget is too small; `PlanError.needed_memory` would suffice.
    StoreError
        If the store cannot be read, is damaged, or is unsuitable for training.
    InputError
        If a matrix has values that are not finite or does not match its labels, or if a file is invalid.
    RunError
        If `out` exists, cannot be written, or is in use by another process; with `resume_or_start`, if the
        run was started with different settings or data.
    ClusterError
        If the cluster is unreachable, its workers have other package versions, or it keeps losing workers.
    Interrupted
        If `stop` returned True.
    """

def plan(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    C: float | Literal["auto"] = 'auto',
    loss: str = 'ww',
    margin: float | None = None,
    solver: str | None = None,
    smooth: float | None = None,
    top: int | None = None,
    temperature: float | None = None,
    dtype: Literal["float32", "float64"] = 'float32',
    label: str | None = None,
    labels: str | Path | None = None,
    layer: str | None = None,
    raw: bool = False,
    obsm: str | None = None,
    cache: str | Path | None = None,
    passes: int = 3,
    seed: int = 0,
    memory: int | str = 2147483648,
    tol: float | None = None,
    inner_passes: int | Literal["auto"] = 'auto',
    average: bool = True,
    gap: Literal["pass", "end", "none"] | None = None,
    valid: str | Path | None = None,
    from_: str | Path | None = None,
    hold_out: str | None = None,
    hold_out_by: Any = None,
    class_weight: str | Path | Mapping[str, float] | Literal["balanced"] | None = None,
    sample_weight: Any = None,
    weights: str | Path | None = None,
    costs: Any = None,
    tree: Any = None,
    transform: str | Sequence[str] | None = None,
    valid_labels: str | Path | None = None,
    join: Literal["inner", "outer"] = 'inner',
    keep_duals: bool | None = None,
    block_rows: int | None = None,
    slice_rows: int | None = None,
    split: Literal["auto", "classes", "rows"] = 'auto',
    splits: int = 1,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    r"""Estimate the memory and disk space that `fit` would use, without training.

    Parameters
    ----------
    data : path or list of paths
        One or more stores, as for `fit`.
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
    label : str | None
        Label column of a table, or of obs of AnnData that was not written by convert. For scoring, the
        default is the column used in training. Or the array with the labels in an .npz file; for AnnData in
        memory, also the name of an indicator matrix in ``obsm``. Rows without a label are left out.
    labels : str | Path | None
        Label file of a matrix (.npy, .npz, Zarr, lists): .npy, or text, one per line.
    layer : str | None
        Layer of AnnData to read instead of X.
    raw : bool
        Read raw.X of AnnData, with its own features.
    obsm : str | None
        Entry of obsm of AnnData to read instead of X, such as an embedding.
    cache : str | Path | None
        Folder for copies of remote data; by default in the run directory, or temporary if there is none. All
        workers of a cluster must have access to it.
    passes : int
        Maximum number of passes over the data.
    seed : int
        Seed of the order of blocks and rows, and of fourier.
    memory : int | str
        Memory budget in bytes, or as text such as 500M or 2G.
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
    valid : str | Path | None
        Store, text or table to measure the accuracy on after each pass.
    from_ : str | Path | None
        Model, or run with a model, from which to continue with new rows: minimise ½‖W - W₀‖² + C times the
        loss, where W₀ are the weights of the model. Its transforms, classes and features are kept. Classes
        and features are matched by name; new classes and features start with weights of 0. With a small C,
        the weights stay near the model.
    hold_out : str | None
        Hold out a part of each class and measure the accuracy on it. For example, 1/10 is the first of 10
        parts, which are determined by a hash of the rows' numbers in the input. Groups of rows are never
        divided. Held-out rows are not used for C auto, for the statistics of transforms, or for balanced
        class weights.
    hold_out_by : Any
        Column of a table or of obs, such as a donor; for a matrix or LIBSVM text, a file with one value per
        line. fit, tune and the search for C hold out rows with equal values together. For a matrix in memory,
        also an array of shape (n,). The column does not become a feature. A store that was converted with
        this setting uses it. ``docs/tuning.md`` explains it.
    class_weight : str | Path | Mapping[str, float] | Literal["balanced"] | None
        Weights of the rows of each class: balanced, so that all classes have the same total weight, or a file
        with a class and its weight on each line (default weight: 1). Balanced weights are number of labels /
        (number of classes × rows of the class). The cost of a row is C times the weight of its class times
        the weight of the row. For ``ovr`` and ``ovr2``, the weight of a class applies to the positive rows of
        its problem, as in LIBLINEAR.
    sample_weight : Any
        Numeric column of obs with the weights of the rows. A store that was converted with weights stores
        them in the column weight, and they are used unless this is none. For a matrix, also an array of shape
        (n,). Rows with weight 0 are left out. With the loss ``chain``, the mean weight of each group is used.
    weights : str | Path | None
        Weights of the rows of a matrix, text or a table: a file with one weight per line; for a matrix also
        .npy.
    costs : Any
        Table of margins by which each class (row) must win against each other class (column): CSV with class
        names in the first line and column, or .npy in class order. Or a DataFrame, or an array of shape (k,
        k).
    tree : Any
        Tree of the classes, with a child and its parent on each line, instead of costs. The margin between
        two classes is the length of the path between them. Or a mapping from child to parent.
    transform : str | Sequence[str] | None
        Transforms of each row, applied in this order in training and prediction: normalize[=sum], log1p,
        binarize, idf, df=power, center, scale=std|maxabs, clip=v, select=FILE, hash=bits, l2, bias[=value],
        fourier=D[:gamma=x]; for example normalize=1e4,log1p,scale=std; or none. The default is
        center,scale=std,bias for a table with numeric columns, normalize=1e4,log1p,bias for AnnData with
        counts, log1p,idf,l2,bias for text without other columns, and bias for other data. auto compares
        several choices on a sample of the rows. Or a list of such strings. A DataFrame is a table. ``bias``
        is a constant feature with the coefficients `Model.intercept_`. Transforms that need statistics of all
        rows read the data once more. ``docs/transforms.md`` explains each transform.
    valid_labels : str | Path | None
        Labels of the matrix in valid.
    join : Literal["inner", "outer"]
        Features of several files: those that all files have (inner), or those that any file has (outer).
    keep_duals : bool | None
        Keep the duals, so that passes can be added later; the default unless passes is 1.
    block_rows : int | None
        Maximum number of rows in a block; by default, memory is the only limit.
    slice_rows : int | None
        Read data that is not shuffled in slices of this many rows; a block consists of slices from all over
        the data. 0 keeps the order. The default is determined by chunks and memory.
    split : Literal["auto", "classes", "rows"]
        How to split training if there are several splits: by classes, in groups that are solved in pairs; by
        rows, with steps that are added up; or auto: by classes if each worker then has less work than one
        core would have. The split by classes is the scheme of Alber et al. (2017) with exact block steps; the
        split by rows is CoCoA+ (Ma et al. 2015).
    splits : int
        Number of parts of each block that are trained at the same time. The model depends on this number, but
        not on the number of workers.
    workers, cluster
        As in `fit`. The cluster is not contacted. With a cluster, splits by rows need no memory for their
        weights on this machine.

    Returns
    -------
    dict
        - ``rows, features, classes, nnz, blocks``: numbers of rows, features, classes, non-zeros and blocks.
        - ``budget``: `memory`, or the memory limit of the process if that is lower, in bytes.
        - ``planned_bytes``: memory that training is planned to use.
        - ``weights_bytes``: size of the weights as a dense matrix, including the average if there is one.
        - ``mapped_bytes``: the same size if the weights are in memory-mapped files, otherwise 0.
        - ``sparse``: whether weights are stored as sparse rows.
        - ``sparse_bytes``: maximum memory of sparse weights.
        - ``common_dual``: whether most wrong classes of a row share one dual.
        - ``commit_bytes``: maximum size of the weights that a commit writes.
        - ``warning``: None, or a warning that training will be slow or may exceed the memory limit.
        - ``average_warning``: None, or a warning that `memory` has no room for the average.
        - ``order_warning``: None, or a warning about the order of the labels.
        - ``C_auto``: whether C was chosen from the data.
        - ``worker_bytes``: memory of a cluster worker for one split, without the program itself, or None.
        - ``worker_split_bytes``: maximum memory of the worker for each additional split, or None.
        - The value of each setting; ``C`` is "auto" if `fit` will choose it on a sample of the rows.
        - ``split``, with several splits: "classes" or "rows"; ``split_reason`` explains the choice.

    Raises
    ------
    SettingsError, PlanError, StoreError
        As in `fit`.
    """

def resume(
    run: str | Path,
    *,
    cache: str | Path | None = None,
    passes: int | None = None,
    tol: float | None = None,
    valid: str | Path | None = None,
    valid_labels: str | Path | None = None,
    store: str | Path | Sequence[str | Path] | None = None,
    open_stream: Callable[[dict[str, Any]], Stream] | None = None,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    checkpoint_every: str | float | None = None,
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> FitResult | OnlineResult:
    r"""Continue an interrupted run from its last commit, or extend a finished one.

    The result is byte-identical to that of an uninterrupted run on the same machine with the same versions.
    If a run of `fit` has made all its passes or has reached its tolerance, its result is returned. A finished
    run of `online` continues with the rows that have been added since. If a stream, such as a pipe, cannot be
    read again, the run ends at the last commit.

    Parameters
    ----------
    run : path
        Run directory made by `fit` or `online`.
    cache : str | Path | None
        Folder for copies of remote data.
    passes : int | None
        New total number of passes of a fit.
    tol : float | None
        New tolerance of a fit; the exact gap is then measured after each pass.
    valid : str | Path | None
        New path of the validation data of a fit, or other validation data.
    valid_labels : str | Path | None
        New path of the labels of the matrix in valid, or other labels.
    store : path or list of paths, optional
        Current path of the store, if it was moved; all paths if the run has several stores.
    open_stream : callable, optional
        Function that makes the stream of an online run from its record, such as
        ``streamsvm_converters.TextSource.from_record``. Required for streams other than stores and text.
    workers, cluster, checkpoint_every, report, progress, stop
        As in `fit`.

    Returns
    -------
    FitResult or OnlineResult
        `FitResult` for a run of `fit`, and `OnlineResult` for a run of `online`.

    Raises
    ------
    RunError
        If the run does not exist, if its format is unknown, if its store has changed, if all commits are
        damaged, or if passes cannot be added because no duals were kept.
    InputError
        If the text or store of an online run has changed.
    SettingsError
        If a setting is invalid or does not apply to this kind of run.
    Interrupted
        If `stop` returned True.
    """

def online(
    data: Stream | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    out: str | Path,
    C: float | Literal["auto"] = 'auto',
    loss: str = 'ww',
    margin: float | None = None,
    solver: str | None = None,
    smooth: float | None = None,
    top: int | None = None,
    temperature: float | None = None,
    dtype: Literal["float32", "float64"] = 'float32',
    transform: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Path | None = None,
    layer: str | None = None,
    raw: bool = False,
    obsm: str | None = None,
    cache: str | Path | None = None,
    join: Literal["inner", "outer"] = 'inner',
    sample_weight: Literal["none"] | None = None,
    unseen_label: Literal["error", "keep"] = 'error',
    memory: int | str = 1073741824,
    classes: Sequence[Any] | None = None,
    checkpoint_every: str | float | None = None,
    force: bool = False,
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> OnlineResult:
    r"""Train in one pass over the rows in order: predict the label of each row, then learn from it.

        result = online("X.npy", labels="y.npy", out="run")

    Rows are not stored, so memory does not depend on their number. The model is a weighted average of the
    iterates, in which the t-th iterate has weight t.

    Parameters
    ----------
    data : path, list of paths, or Stream
        One or more stores, AnnData files or dense matrices, as for `fit`, which are read in place, in row
        order; or paths of LIBSVM text; or a stream with values of type `dtype`, such as
        ``streamsvm_converters.TextSource``, which has more options for text.
    out : path
        Run directory to create.
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
    transform : str | Sequence[str] | None
        Transforms of each row, applied in this order in training and prediction: counts, normalize[=sum],
        log1p, binarize, clip=v, hash=bits, l2, bias[=value], fourier=D:gamma=x; or none. The default is
        bias=0.3, and log1p,l2,bias=0.3 for a store of text.
    label : str | None
        Label column of a table, or of obs of AnnData that was not written by convert. For scoring, the
        default is the column used in training. Or the array with the labels in an .npz file; for AnnData in
        memory, also the name of an indicator matrix in ``obsm``. Rows without a label are left out.
    labels : str | Path | None
        Label file of a matrix (.npy, .npz, Zarr, lists): .npy, or text, one per line.
    layer : str | None
        Layer of AnnData to read instead of X.
    raw : bool
        Read raw.X of AnnData, with its own features.
    obsm : str | None
        Entry of obsm of AnnData to read instead of X, such as an embedding.
    cache : str | Path | None
        Folder for copies of remote data; by default in the run directory, or temporary if there is none. All
        workers of a cluster must have access to it.
    join : Literal["inner", "outer"]
        Features of several files: those that all files have (inner), or those that any file has (outer).
    sample_weight : Literal["none"] | None
        none: ignore the row weights in a store.
    unseen_label : Literal["error", "keep"]
        With known classes: whether another label is an error, or is kept and counted as wrong.
    memory : int | str
        Memory budget in bytes, or as text such as 500M or 2G; half of it is for reading rows. Weights are in
        memory-mapped files of any size.
    classes : sequence of str or int, optional
        All classes, in order; by default, the classes of the store. A stream defines its own classes.
    checkpoint_every : str or float, optional
        As in `fit`; batches are counted as blocks.
    force : bool
        Replace an existing run, as in `fit`.
    report, progress, stop
        As in `fit`, except that `progress` gets None as the total number of rows.

    Raises
    ------
    SettingsError
        If a setting is invalid.
    PlanError
        If the weights would exceed the maximum size of a file.
    InputError
        If the stream has no rows or only one class, or if it raises `InputError`; earlier rows are committed.
    RunError
        If `out` exists, cannot be written, or is in use by another process.
    Interrupted
        If `stop` returned True.
    """

def tune(
    data: Any,
    y: Any = None,
    *,
    groups: Any = None,
    out: str | os.PathLike[str] | None = None,
    C: Any = 'auto',
    loss: str | Sequence[str] = 'ww',
    margin: float | Sequence[float] | None = None,
    transform: str | Sequence[str] | None = None,
    folds: int | None = None,
    hold_out: str | None = None,
    valid: str | Path | None = None,
    passes_each: int = 2,
    passes: int = 3,
    solver: str | None = None,
    smooth: float | None = None,
    top: int | None = None,
    temperature: float | None = None,
    dtype: Literal["float32", "float64"] = 'float32',
    label: str | None = None,
    labels: str | Path | None = None,
    layer: str | None = None,
    raw: bool = False,
    obsm: str | None = None,
    cache: str | Path | None = None,
    seed: int = 0,
    memory: int | str = 2147483648,
    inner_passes: int | Literal["auto"] = 'auto',
    hold_out_by: Any = None,
    class_weight: str | Path | Mapping[str, float] | Literal["balanced"] | None = None,
    sample_weight: Any = None,
    weights: str | Path | None = None,
    costs: Any = None,
    tree: Any = None,
    valid_labels: str | Path | None = None,
    join: Literal["inner", "outer"] = 'inner',
    block_rows: int | None = None,
    slice_rows: int | None = None,
    split: Literal["auto", "classes", "rows"] = 'auto',
    splits: int = 1,
    format: Literal["libsvm", "csv", "tsv", "jsonl", "parquet", "anndata", "npz", "npy"] | None = None,
    delimiter: str | None = None,
    decimal: Literal[".", ","] | None = None,
    like: str | Path | None = None,
    text: str | Sequence[str] = (),
    analyzer: Literal["word", "char", "char_wb"] | None = None,
    ngrams: tuple[int, int] | None = None,
    bits: int | None = None,
    columns: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    missing: Literal["error", "0", "mean", "indicator"] = 'error',
    labels_as: Literal["numbers", "text"] | None = None,
    multilabel: bool = False,
    index_base: int | Literal["auto"] = 'auto',
    n_features: int | None = None,
    on_error: Literal["raise", "skip", "fix"] = 'raise',
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    checkpoint_every: str | float | None = None,
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Any = None,
    force: bool = False,
) -> TuneResult:
    r"""Choose C, and optionally loss, margin and transforms; then train with the best settings.

    Trial runs on a store have run directories in the folder ``tune`` of `out`. The folder is deleted after
    the best model is trained in `out`. After an interruption, repeat the same call to continue.

    Parameters
    ----------
    data, y, groups
        As for `streamsvm.fit`, except that text documents must be in a file.
    out : path, optional
        Run directory to create; required for files.
    C : Any
        Values of C: a range such as 2^-6:2^3, in which values differ by factors of the base; numbers
        separated by commas; or auto for 10 values around the C of fit, which differ by factors of 2. The
        factor is 2 in a range without a base, such as 0.01:10. With auto, each training run derives C from
        its training rows. The table shows C for all rows, which the final run uses.
    loss : str | Sequence[str]
        Loss (see fit); several (ww,cs) are compared.
    margin : float | Sequence[float] | None
        Margin scale of Weston-Watkins; several are compared.
    transform : str | Sequence[str] | None
        Transforms of the rows (see fit), or none; several are compared. A list contains strings such as
        ``df=-0.25,l2``; None is the default for the data.
    folds : int | None
        Number of parts of which each is held out in turn, in a training run of its own (cross-validation).
        The settings with the best mean accuracy are chosen; the standard deviation is reported.
    hold_out : str | None
        Part of the rows to hold out and measure the accuracy on; by default 1/10.
    valid : str | Path | None
        Store, text or table to score instead of held-out rows.
    passes_each : int
        Number of passes for each value of C.
    passes : int
        Number of passes of the final training run, on all rows.
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
    label : str | None
        Label column of a table, or of obs of AnnData that was not written by convert. For scoring, the
        default is the column used in training. Or the array with the labels in an .npz file; for AnnData in
        memory, also the name of an indicator matrix in ``obsm``. Rows without a label are left out.
    labels : str | Path | None
        Label file of a matrix (.npy, .npz, Zarr, lists): .npy, or text, one per line.
    layer : str | None
        Layer of AnnData to read instead of X.
    raw : bool
        Read raw.X of AnnData, with its own features.
    obsm : str | None
        Entry of obsm of AnnData to read instead of X, such as an embedding.
    cache : str | Path | None
        Folder for copies of remote data; by default in the run directory, or temporary if there is none. All
        workers of a cluster must have access to it.
    seed : int
        Seed of the order of blocks and rows, and of fourier.
    memory : int | str
        Memory budget in bytes, or as text such as 500M or 2G.
    inner_passes : int | Literal["auto"]
        Number of times to revisit the rows of a block while they are in memory, or auto to let a cost model
        choose it.
    hold_out_by : Any
        Column of a table or of obs, such as a donor; for a matrix or LIBSVM text, a file with one value per
        line. fit, tune and the search for C hold out rows with equal values together. For a matrix in memory,
        also an array of shape (n,). The column does not become a feature. A store that was converted with
        this setting uses it. ``docs/tuning.md`` explains it.
    class_weight : str | Path | Mapping[str, float] | Literal["balanced"] | None
        Weights of the rows of each class: balanced, so that all classes have the same total weight, or a file
        with a class and its weight on each line (default weight: 1). Balanced weights are number of labels /
        (number of classes × rows of the class). The cost of a row is C times the weight of its class times
        the weight of the row. For ``ovr`` and ``ovr2``, the weight of a class applies to the positive rows of
        its problem, as in LIBLINEAR.
    sample_weight : Any
        Numeric column of obs with the weights of the rows. A store that was converted with weights stores
        them in the column weight, and they are used unless this is none. For a matrix, also an array of shape
        (n,). Rows with weight 0 are left out. With the loss ``chain``, the mean weight of each group is used.
    weights : str | Path | None
        Weights of the rows of a matrix, text or a table: a file with one weight per line; for a matrix also
        .npy.
    costs : Any
        Table of margins by which each class (row) must win against each other class (column): CSV with class
        names in the first line and column, or .npy in class order. Or a DataFrame, or an array of shape (k,
        k).
    tree : Any
        Tree of the classes, with a child and its parent on each line, instead of costs. The margin between
        two classes is the length of the path between them. Or a mapping from child to parent.
    valid_labels : str | Path | None
        Labels of the matrix in valid.
    join : Literal["inner", "outer"]
        Features of several files: those that all files have (inner), or those that any file has (outer).
    block_rows : int | None
        Maximum number of rows in a block; by default, memory is the only limit.
    slice_rows : int | None
        Read data that is not shuffled in slices of this many rows; a block consists of slices from all over
        the data. 0 keeps the order. The default is determined by chunks and memory.
    split : Literal["auto", "classes", "rows"]
        How to split training if there are several splits: by classes, in groups that are solved in pairs; by
        rows, with steps that are added up; or auto: by classes if each worker then has less work than one
        core would have. The split by classes is the scheme of Alber et al. (2017) with exact block steps; the
        split by rows is CoCoA+ (Ma et al. 2015).
    splits : int
        Number of parts of each block that are trained at the same time. The model depends on this number, but
        not on the number of workers.
    format : Literal["libsvm", "csv", "tsv", "jsonl", "parquet", "anndata", "npz", "npy"] | None
        Format of the files; needed only for text without the usual suffix of its format.
    delimiter : str | None
        CSV: character between fields; by default the most frequent of , ; | and tab in line 1.
    decimal : Literal[".", ","] | None
        CSV: decimal mark; by default a comma if it separates no fields and makes more columns numeric.
    like : str | Path | None
        Store, run or model whose classes, features and index base are used, as for test data. Values of other
        features are dropped and counted. From a model that hashes features, only the classes are used. Tables
        are read like the table of the earlier data. AnnData is matched by feature names.
    text : str | Sequence[str]
        Text columns whose hashed n-grams become features; list other features in columns.
    analyzer : Literal["word", "char", "char_wb"] | None
        With text: n-grams of words (word, the default), of characters across words (char), or of characters
        within words (char_wb).
    ngrams : tuple[int, int] | None
        With text: minimum and maximum length of n-grams, at most 100; by default 1 and 2.
    bits : int | None
        With text: the number of features is 2**bits, by default 2**20.
    columns : str | Sequence[str]
        Columns of a table that become features: numbers and booleans unchanged, dates as days and years, text
        as one feature for each value. By default all but labels, or none if text is set.
    drop : str | Sequence[str]
        Columns of a table that do not become features.
    categorical : str | Sequence[str]
        Columns of numbers or dates that are categories, such as codes.
    missing : Literal["error", "0", "mean", "indicator"]
        How to treat a missing number or date of a table: as an error; as 0; as the mean of its column; or as
        0, with an additional feature COLUMN=missing that is 1 in this row (indicator). The mean is over the
        rows that are kept. A categorical column with missing values also gets this feature. With `like`, the
        earlier data determines this setting.
    labels_as : Literal["numbers", "text"] | None
        How to read labels in text: as numbers, so that +1 and 1.0 are 1, and NA and the like are missing
        except in LIBSVM text; or as text, unchanged. By default as in like, or as numbers. Labels of tables
        always keep their spelling: ``01`` is a code.
    multilabel : bool
        LIBSVM text: commas separate several labels of a row (1,5,7 1:0.3), and a line that begins with
        whitespace has no label. A label that a row repeats is counted once.
    index_base : int | Literal["auto"]
        LIBSVM text: index of the first feature. auto is 0 if any row that is kept has an index 0, even if its
        value is 0, and 1 otherwise. With `like`, the index base of the earlier data is used; another value is
        an error.
    n_features : int | None
        LIBSVM text: number of features; by default from the largest index. A larger index is an error.
    on_error : Literal["raise", "skip", "fix"]
        Whether an invalid row is an error, or is dropped and counted; in a table, a missing or infinite
        number makes a row invalid. For LIBSVM text, fix also sorts unsorted rows and sums duplicate indices.
    workers, cluster, checkpoint_every, report, progress, stop
        As in `streamsvm.fit`. `report` receives ``{"event": "tried", ...}`` for each combination of settings
        tried. For a store, it first receives the number of trial runs as ``{"event": "search", ...}``, and
        each event of a trial run has the run's name as ``trial``.
    force : bool
        Whether to replace an existing run.

    Returns
    -------
    TuneResult

    Raises
    ------
    SettingsError, StoreError, PlanError, InputError, RunError, Interrupted
        As in `streamsvm.fit`.
    """
