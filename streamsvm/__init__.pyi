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

        model = fit(X, y, passes=3)  # arrays: a model
        result = fit("train.zarr", out="run", valid="test.zarr")  # a store: a run, which resumes
        labels = load_model("run").predict(X)

    Each pass reads the data once, block by block in a seeded random order, and solves the dual block of
    every row exactly. The state is kept in the run directory `out`, from which `resume` continues after any
    interruption to the same bits.

    Parameters
    ----------
    data : path, list of paths, or matrix of shape (n, n_features)
        A store made by convert, or AnnData, or several of them, whose features are found by name; a dense
        matrix in an ``.npy`` file, or a column of lists in Parquet or Arrow, see `open_store`. Or any other
        file that convert takes, such as LIBSVM text or a table: it is converted into the run, and so is
        `valid`; a conversion that is stopped is begun anew by the same call. Or a list of texts, whose
        n-grams are hashed as `analyzer`, `ngrams` and `bits` say (extra ``text``); or a matrix in
        memory, as `Model.predict` takes it; columns of text of a DataFrame become features as
        `convert` makes them of a table, one for each value. What is for a store alone is refused for a
        matrix; `memory`, `block_rows`, `slice_rows` and `checkpoint_every` change nothing.
    y : array_like, shape (n,), or str, optional
        Labels of a matrix; a store has its own. Or what `label` is, for AnnData and DataFrames.
        For several labels a row: a list with a list of labels for each row; or an indicator matrix (array,
        sparse or DataFrame) of zeros and ones, whose classes are the numbers of its columns, or their names
        in a DataFrame.
    groups : array_like, shape (n,), or str, optional
        The group that each row of a matrix belongs to, such as the sequence of a token, for the loss
        ``chain``: the rows of a group stand together, in their order. For AnnData in memory also the name of
        a column of ``obs``. A store has its own.
    out : path, optional
        Run directory to create; needed for a store. A matrix has none: `Model.save` saves its model.
    C : float | Literal["auto"]
        Weight of the loss against ½‖w‖²: a number, or auto, one over the mean squared distance of the rows
        from their mean; online, over the mean squared norm of the first 1,000 rows. For `fit` on dense rows,
        auto is 1, 0.1, 0.01 or 0.001 times that, the largest of those that are about best on held-out rows of
        a sample.
    loss : str
        Formulation of the multi-class SVM. ww: Weston-Watkins; ww2: Weston-Watkins, squared hinge; wws:
        Weston-Watkins, smoothed hinge; cs: Crammer-Singer; cs2: Crammer-Singer, squared; top-m: mean of the m
        largest hinges; llw: Lee-Lin-Wahba; llw2: Lee-Lin-Wahba, squared hinge; ovr: one-vs-rest, hinge; ovr2:
        one-vs-rest, squared hinge; logistic: multinomial logistic regression; sparsemax: sparsemax; chain:
        chain-structured SVM; auto, for fit and tune: ww, cs or ovr2, chosen on a sample of the rows.
    margin : float | None
        Margin scale M of Weston-Watkins: 1 (default) or 0.5.
    solver : str | None
        Block solver of the loss: newton by default (ovr, ovr2: clip; chain: cached), sorted as published, or
        another.
    smooth : float | None
        ε of wws, the smoothed hinge: slacks below it cost quadratically; 0.5 by default.
    top : int | None
        m of top-m: how many of the largest hinges are averaged, at most all; 5 by default.
    temperature : float | None
        τ of the block solvers bcpl and oeg of chain; 1 by default.
    dtype : Literal["float32", "float64"]
        Precision of weights, duals and scores; sums and objectives are always float64.
    label : str | None
        Column with the labels: of a table, or of obs of AnnData that was not written by convert; to score, by
        default that of the training. Or the array with them in an .npz file; of AnnData in memory, also the
        name of an indicator matrix in ``obsm``. Rows without a label are left out.
    labels : str | Path | None
        Labels of a matrix (.npy, .npz, Zarr, lists): .npy, or text with one a line.
    layer : str | None
        Layer of AnnData to read instead of X.
    raw : bool
        Read raw.X of AnnData, with its own features.
    obsm : str | None
        Entry of obsm of AnnData to read instead of X, such as an embedding.
    cache : str | Path | None
        Folder for copies of data at addresses; by default in the run, or temporary. All workers of a cluster
        must see it.
    passes : int
        Maximum number of passes over the data.
    seed : int
        Seed of the order of blocks and rows.
    memory : int | str
        Memory budget in bytes, or as text such as 500M or 2G.
    tol : float | None
        Stop when the exact relative gap (primal - dual) / primal is at most this. A negative gap, which
        rounding can give, counts by its size. The gap is that of the model after a pass: of the average, if
        the pass has one, or else of the last iterate.
    inner_passes : int | Literal["auto"]
        How often to revisit the rows of a block while they are in memory: a number, or auto, chosen by a cost
        model.
    average : bool
        Make the model the average of the iterates in the second half of the last pass, instead of the last
        iterate. The t-th iterate has weight t. With `tol` also earlier passes have an average, if it is
        expected to meet the tolerance. If `memory` has no room for the average, it is left out with a
        warning.
    gap : Literal["pass", "end", "none"] | None
        When to measure the exact gap, which reads the data once more: after each pass (default with a
        tolerance), at the end (default without), or never (none).
    valid : str | Path | None
        Store, text or table to measure the accuracy on after each pass.
    from_ : str | Path | None
        Model, or run with one, to go on from with new rows: minimise ½‖W - W₀‖² + C times the loss, where W₀
        are its weights. Its transforms are applied, and its classes and features are kept. Both are matched
        by name; weights of new ones begin at 0. A small C stays near the model.
    hold_out : str | None
        Measure the accuracy on a part of each class that is not trained on, such as 1/10: the first of 10
        parts, by a hash of the rows' numbers in the input. Groups of rows stay whole, whatever their classes.
        The rows count neither for C auto nor for the statistics of transforms, nor for balanced weights of
        classes.
    hold_out_by : Any
        Column of a table or of obs, such as a donor, or for a matrix or LIBSVM text a file with one value a
        line: rows with equal values are held out together, by fit, tune and the search for C. For a matrix in
        memory also an array of shape (n,). The column is not a feature. A store that was converted with one
        uses it. ``docs/tuning.md`` explains it.
    class_weight : str | Path | Mapping[str, float] | Literal["balanced"] | None
        Weights of the classes' rows: balanced, by which all classes weigh the same in all, or a file of lines
        with a class and its weight (others: 1). Balanced is the number of labels / (number of classes × rows
        of the class). The cost of a row is C times the weights of its class and of itself; of ``ovr`` and
        ``ovr2`` the weight of a class is that of its own machine's positive rows, as in LIBLINEAR.
    sample_weight : Any
        Numeric column of obs with the weights of the rows. A store that was converted with weights has them
        in the column weight, and uses them unless this is none. Of a matrix it may be an array of shape (n,).
        A row of weight 0 is left out. The mean counts in a group, with the loss ``chain``.
    weights : str | Path | None
        Weights of the rows of a matrix, text or a table: a file with one a line; of a matrix also .npy.
    costs : Any
        Table of margins by which each class (row) must win against each other (column): CSV with the names of
        the classes in the first line and column, or .npy in their order. Or a DataFrame, or an array of shape
        (k, k).
    tree : Any
        Tree of the classes, a child and its parent a line, in place of costs: the margin of two classes is
        the length of the path between them. Or a mapping of child to parent.
    transform : str | Sequence[str] | None
        What is done with each row first, in this order, in training and by the model: normalize[=sum], log1p,
        binarize, idf, df=power, center, scale=std|maxabs, clip=v, select=FILE, hash=bits, l2, bias[=value],
        fourier=D[:gamma=x]; such as normalize=1e4,log1p,scale=std; or none. By default a table with columns
        of numbers has center,scale=std,bias, AnnData with counts normalize=1e4,log1p,bias, text without other
        columns log1p,idf,l2,bias, and other data bias. With auto several are compared on a sample of the
        rows. Or a list of such texts. A DataFrame is a table. ``bias`` is a constant feature with the
        coefficients `Model.intercept_`. Transforms that need facts of all rows read the data once more.
        ``docs/transforms.md`` explains each.
    valid_labels : str | Path | None
        Labels of the matrix that valid names.
    join : Literal["inner", "outer"]
        Features of several files: those that all have (inner), or all that any has (outer).
    keep_duals : bool | None
        Keep the duals so that passes can be added later; the default unless passes is 1.
    block_rows : int | None
        Maximum number of rows in a block; by default memory decides.
    slice_rows : int | None
        Data that is not shuffled is read in slices of so many rows, each block from anywhere in it, or in its
        own order (0); by default chosen by chunks and memory.
    split : Literal["auto", "classes", "rows"]
        How training is split, if it has several splits: by classes, whose groups are solved in pairs; by
        rows, whose steps are added up; or auto: by classes if each worker then has less work than one core
        would have. By classes it is the scheme of Alber et al. (2017) with exact blocks; by rows CoCoA+ (Ma
        et al. 2015).
    splits : int
        Parts of each block that are trained on at the same time. The model depends on them, but not on how
        many workers there are.
    format : Literal["libsvm", "csv", "tsv", "jsonl", "parquet", "anndata", "npz", "npy"] | None
        Kind of the files, if text has another suffix than that of its kind.
    delimiter : str | None
        CSV: character between fields; by default the one of , ; | and tab that line 1 has most often.
    decimal : Literal[".", ","] | None
        CSV: the decimal mark; by default a comma if it separates no fields and more columns are numbers.
    like : str | Path | None
        Store, run or model whose classes, index base and width are used, as for test data: values of other
        features are dropped and counted. Of a model that hashes features, only the classes are used. Tables
        are read as those that it was made from; AnnData is matched by the names of features.
    text : str | Sequence[str]
        Columns of text whose hashed n-grams become the features, besides those in columns.
    analyzer : Literal["word", "char", "char_wb"] | None
        With text: n-grams of words (default), or of characters, also beyond (char) or only within words
        (char_wb).
    ngrams : tuple[int, int] | None
        With text: the least and the largest length of n-grams, at most 100; by default 1 and 2.
    bits : int | None
        With text: there are 2**bits features; by default 2**20.
    columns : str | Sequence[str]
        Columns of a table that become features: numbers and booleans as they are, dates as days and years,
        texts one feature for each value. By default all but the labels, or none with text.
    drop : str | Sequence[str]
        Columns of a table that become no features.
    categorical : str | Sequence[str]
        Columns of numbers or dates that are categories, such as codes.
    missing : Literal["error", "0", "mean", "indicator"]
        What a missing number or date of a table becomes: an error; 0; the mean of its column; or 0, and a
        feature COLUMN=missing that is 1 there (indicator). The mean is over the rows that are kept;
        categories that lack values have such a feature, too. With `like` it is what the earlier data has.
    labels_as : Literal["numbers", "text"] | None
        How labels of text are read: as numbers, so that +1 and 1.0 are 1, and in text but LIBSVM's, NA and
        the like are missing; or as the text that they are. By default as those of like, or as numbers. Labels
        of tables keep their spelling in any case: ``01`` is a code.
    multilabel : bool
        LIBSVM text: commas separate several labels of a row (1,5,7 1:0.3), and a line that begins with a
        blank has none. A label that a row lists twice counts once.
    index_base : int | Literal["auto"]
        LIBSVM text: index of the first feature. auto is 0 if any row that is kept has an index 0, explicit
        zeros included, else 1. With `like` it is that of its data, and must not contradict it.
    n_features : int | None
        LIBSVM text: number of features. By default the largest index determines it; fewer are an error.
    on_error : Literal["raise", "skip", "fix"]
        Whether an invalid row (of a table: one with a missing or infinite number) is an error, or is dropped
        and counted; fix, for LIBSVM text, also sorts unsorted rows and sums duplicate indices.
    keep_data : bool
        Whether the run keeps the stores that it made of files once it is finished. Without them `resume`
        cannot add passes, unless it is given a store.
    workers : int, optional
        Threads that train, never more than splits unless rows are dense and classes many, and that share the
        reading for the statistics of transforms: by default as many as processors. With a cluster the workers
        to wait for or, with a local one, the processes to start.
    cluster : str or path, optional
        Train on a Dask cluster (extra ``cluster``): the address of its scheduler or its scheduler file, or
        "local" for processes on this machine. Several splits are its work, and the model is the same. The
        workers read the store themselves, so `data` must name it on all machines; this process alone writes
        to `out`.
    checkpoint_every : str or float, optional
        How often to commit: a time ("0.5s", "60s", "5m"), a number of seconds, or a number of blocks as
        text ("8 blocks"). By default when 20 times the time of the last commit has passed, but at least 10 s.
    force : bool
        Replace an existing run. It is moved to ``NAME.old``, and deleted when the new one has a model.
    resume_or_start : bool
        Go on with the run in `out` if there is one, with the same settings and data; start it otherwise. A
        run that is finished gives its result again. So a scheduler can repeat one call.
    report : callable, optional
        Called with a dict for each line of ``metrics.jsonl``; before the first one with the plan, and with
        ``{"event": "ready"}`` when kernels are compiled and loaded; with "C", before the plan, if C was
        searched for: what was tried, and the accuracy of each; and before that, if transforms or the loss are
        auto, with "choose", "candidate" for each that is tried, and "chosen".
    progress : bool or callable, optional
        Whether there are bars of tqdm; by default on a terminal and in a notebook, for stages that take more
        than a second, and a line if kernels must be compiled. Or a function, called with a stage ("convert",
        "choose transform and loss", "choose C", "class means", "pass 1 of 3", "gap 1", "valid 1"), the number
        of rows done (or bytes, of "convert"), and of all. Each pass, and that kernels are compiled, is also a
        line of `logging` at the level INFO, under the name ``streamsvm``.
    stop : callable, optional
        Called after each block; if it returns True, the run commits and raises `Interrupted`. Of a
        training on a matrix, and of a search for C, nothing is kept.

    Returns
    -------
    FitResult or Model
        For a store, how training ended. For a matrix the model; its ``result`` says how training ended.

    Raises
    ------
    SettingsError
        If a setting is not valid, or does not apply to the data.
    PlanError
        If the memory budget is too small; `PlanError.needed_memory` is enough.
    StoreError
        If the store cannot be read, is damaged, or is not fit to train on.
    InputError
        If a matrix has values that are not finite, or not one label for each row.
    RunError
        If `out` exists, cannot be written, or is in use by another process; with `resume_or_start` if it was
        begun with other settings or data.
    ClusterError
        If the cluster cannot be reached, its workers differ, or they were lost again and again.
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
    r"""Plan what `fit` would hold in memory and on disk, without training.

    Parameters
    ----------
    data : path or list of paths
        The store, as for `fit`.
    C : float | Literal["auto"]
        Weight of the loss against ½‖w‖²: a number, or auto, one over the mean squared distance of the rows
        from their mean; online, over the mean squared norm of the first 1,000 rows. For `fit` on dense rows,
        auto is 1, 0.1, 0.01 or 0.001 times that, the largest of those that are about best on held-out rows of
        a sample.
    loss : str
        Formulation of the multi-class SVM. ww: Weston-Watkins; ww2: Weston-Watkins, squared hinge; wws:
        Weston-Watkins, smoothed hinge; cs: Crammer-Singer; cs2: Crammer-Singer, squared; top-m: mean of the m
        largest hinges; llw: Lee-Lin-Wahba; llw2: Lee-Lin-Wahba, squared hinge; ovr: one-vs-rest, hinge; ovr2:
        one-vs-rest, squared hinge; logistic: multinomial logistic regression; sparsemax: sparsemax; chain:
        chain-structured SVM; auto, for fit and tune: ww, cs or ovr2, chosen on a sample of the rows.
    margin : float | None
        Margin scale M of Weston-Watkins: 1 (default) or 0.5.
    solver : str | None
        Block solver of the loss: newton by default (ovr, ovr2: clip; chain: cached), sorted as published, or
        another.
    smooth : float | None
        ε of wws, the smoothed hinge: slacks below it cost quadratically; 0.5 by default.
    top : int | None
        m of top-m: how many of the largest hinges are averaged, at most all; 5 by default.
    temperature : float | None
        τ of the block solvers bcpl and oeg of chain; 1 by default.
    dtype : Literal["float32", "float64"]
        Precision of weights, duals and scores; sums and objectives are always float64.
    label : str | None
        Column with the labels: of a table, or of obs of AnnData that was not written by convert; to score, by
        default that of the training. Or the array with them in an .npz file; of AnnData in memory, also the
        name of an indicator matrix in ``obsm``. Rows without a label are left out.
    labels : str | Path | None
        Labels of a matrix (.npy, .npz, Zarr, lists): .npy, or text with one a line.
    layer : str | None
        Layer of AnnData to read instead of X.
    raw : bool
        Read raw.X of AnnData, with its own features.
    obsm : str | None
        Entry of obsm of AnnData to read instead of X, such as an embedding.
    cache : str | Path | None
        Folder for copies of data at addresses; by default in the run, or temporary. All workers of a cluster
        must see it.
    passes : int
        Maximum number of passes over the data.
    seed : int
        Seed of the order of blocks and rows.
    memory : int | str
        Memory budget in bytes, or as text such as 500M or 2G.
    tol : float | None
        Stop when the exact relative gap (primal - dual) / primal is at most this. A negative gap, which
        rounding can give, counts by its size. The gap is that of the model after a pass: of the average, if
        the pass has one, or else of the last iterate.
    inner_passes : int | Literal["auto"]
        How often to revisit the rows of a block while they are in memory: a number, or auto, chosen by a cost
        model.
    average : bool
        Make the model the average of the iterates in the second half of the last pass, instead of the last
        iterate. The t-th iterate has weight t. With `tol` also earlier passes have an average, if it is
        expected to meet the tolerance. If `memory` has no room for the average, it is left out with a
        warning.
    gap : Literal["pass", "end", "none"] | None
        When to measure the exact gap, which reads the data once more: after each pass (default with a
        tolerance), at the end (default without), or never (none).
    valid : str | Path | None
        Store, text or table to measure the accuracy on after each pass.
    from_ : str | Path | None
        Model, or run with one, to go on from with new rows: minimise ½‖W - W₀‖² + C times the loss, where W₀
        are its weights. Its transforms are applied, and its classes and features are kept. Both are matched
        by name; weights of new ones begin at 0. A small C stays near the model.
    hold_out : str | None
        Measure the accuracy on a part of each class that is not trained on, such as 1/10: the first of 10
        parts, by a hash of the rows' numbers in the input. Groups of rows stay whole, whatever their classes.
        The rows count neither for C auto nor for the statistics of transforms, nor for balanced weights of
        classes.
    hold_out_by : Any
        Column of a table or of obs, such as a donor, or for a matrix or LIBSVM text a file with one value a
        line: rows with equal values are held out together, by fit, tune and the search for C. For a matrix in
        memory also an array of shape (n,). The column is not a feature. A store that was converted with one
        uses it. ``docs/tuning.md`` explains it.
    class_weight : str | Path | Mapping[str, float] | Literal["balanced"] | None
        Weights of the classes' rows: balanced, by which all classes weigh the same in all, or a file of lines
        with a class and its weight (others: 1). Balanced is the number of labels / (number of classes × rows
        of the class). The cost of a row is C times the weights of its class and of itself; of ``ovr`` and
        ``ovr2`` the weight of a class is that of its own machine's positive rows, as in LIBLINEAR.
    sample_weight : Any
        Numeric column of obs with the weights of the rows. A store that was converted with weights has them
        in the column weight, and uses them unless this is none. Of a matrix it may be an array of shape (n,).
        A row of weight 0 is left out. The mean counts in a group, with the loss ``chain``.
    weights : str | Path | None
        Weights of the rows of a matrix, text or a table: a file with one a line; of a matrix also .npy.
    costs : Any
        Table of margins by which each class (row) must win against each other (column): CSV with the names of
        the classes in the first line and column, or .npy in their order. Or a DataFrame, or an array of shape
        (k, k).
    tree : Any
        Tree of the classes, a child and its parent a line, in place of costs: the margin of two classes is
        the length of the path between them. Or a mapping of child to parent.
    transform : str | Sequence[str] | None
        What is done with each row first, in this order, in training and by the model: normalize[=sum], log1p,
        binarize, idf, df=power, center, scale=std|maxabs, clip=v, select=FILE, hash=bits, l2, bias[=value],
        fourier=D[:gamma=x]; such as normalize=1e4,log1p,scale=std; or none. By default a table with columns
        of numbers has center,scale=std,bias, AnnData with counts normalize=1e4,log1p,bias, text without other
        columns log1p,idf,l2,bias, and other data bias. With auto several are compared on a sample of the
        rows. Or a list of such texts. A DataFrame is a table. ``bias`` is a constant feature with the
        coefficients `Model.intercept_`. Transforms that need facts of all rows read the data once more.
        ``docs/transforms.md`` explains each.
    valid_labels : str | Path | None
        Labels of the matrix that valid names.
    join : Literal["inner", "outer"]
        Features of several files: those that all have (inner), or all that any has (outer).
    keep_duals : bool | None
        Keep the duals so that passes can be added later; the default unless passes is 1.
    block_rows : int | None
        Maximum number of rows in a block; by default memory decides.
    slice_rows : int | None
        Data that is not shuffled is read in slices of so many rows, each block from anywhere in it, or in its
        own order (0); by default chosen by chunks and memory.
    split : Literal["auto", "classes", "rows"]
        How training is split, if it has several splits: by classes, whose groups are solved in pairs; by
        rows, whose steps are added up; or auto: by classes if each worker then has less work than one core
        would have. By classes it is the scheme of Alber et al. (2017) with exact blocks; by rows CoCoA+ (Ma
        et al. 2015).
    splits : int
        Parts of each block that are trained on at the same time. The model depends on them, but not on how
        many workers there are.
    workers, cluster
        As in `fit`. No cluster is asked: with `cluster`, splits by rows need no memory here for weights of
        their own.

    Returns
    -------
    dict
        ``rows, features, classes, nnz, blocks``; ``budget``, which is `memory` or the limit of the process,
        if that is less, and ``planned_bytes``; ``weights_bytes`` (as a dense matrix, with the average if
        there is one), ``mapped_bytes`` of them in files, and ``weights_in_memory``; ``sparse``, whether
        weights are stored sparsely, and ``sparse_bytes``, how much of them may be in memory; ``common_dual``,
        whether most wrong classes of a row have one dual; ``commit_bytes``, of weights that a commit writes
        at most; ``warning``, None or what is slow about the plan; ``average_warning``, None or the memory
        that the average needs, for want of which the model is the last iterate; ``order_warning``, None or
        what is wrong with the order of the labels; ``C_auto``, whether C was chosen from the data; and the
        settings, in which ``C`` is "auto" if `fit` will choose it on a sample of the rows, and ``split`` is
        settled, for the reason in ``split_reason``; and ``worker_bytes``, what a worker of a cluster holds
        beside the program for one split, and ``worker_split_bytes``, what each further one adds at most: None
        without splits.

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

    The result is byte for byte that of a run never interrupted, on the same machine and versions. A run
    that has made all its passes, or has reached its tolerance, returns the result it has. A finished run
    of `online` learns from the rows that were added since; one whose stream cannot be read again, such as
    a pipe, ends at the last commit.

    Parameters
    ----------
    run : path
        Run directory made by `fit` or `online`.
    cache : str | Path | None
        Folder for copies of data at addresses.
    passes : int | None
        New total number of passes of a fit.
    tol : float | None
        New tolerance of a fit, whose exact gap is then measured after each pass.
    valid : str | Path | None
        Where the validation store of a fit is now, or another one.
    valid_labels : str | Path | None
        Labels of the matrix that valid names, if they are elsewhere now, or others.
    store : path or list of paths, optional
        Where the store of the run is now, if it was moved; all of them if there were several.
    open_stream : callable, optional
        Makes the stream of an online run from its record, such as
        ``streamsvm_converters.TextSource.from_record``; needed for streams that are neither stores nor text.
    workers, cluster, checkpoint_every, report, progress, stop
        As in `fit`.

    Returns
    -------
    FitResult or OnlineResult
        Depending on what made the run.

    Raises
    ------
    RunError
        If there is no run, its format is another, its store has changed, all commits are damaged, or
        passes cannot be added because no duals were kept.
    InputError
        If the text, or the store, that an online run has learned from has changed.
    SettingsError
        If a setting is not valid, or does not apply to the kind of the run.
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
    r"""Train in one pass: each row is predicted, then learned from, in the order of the data.

        result = online("X.npy", labels="y.npy", out="run")

    Nothing is kept of a row, so memory does not depend on the number of rows. The model is the average of
    the iterates, the t-th of them with weight t.

    Parameters
    ----------
    data : path, list of paths, or Stream
        A store, AnnData or a dense matrix, as for `fit`, or several; they are read where they lie, in the
        order of their rows. Or LIBSVM text; or a stream, such as ``streamsvm_converters.TextSource``, which
        has more options for text, with values in `dtype`.
    out : path
        Run directory to create.
    C : float | Literal["auto"]
        Weight of the loss against ½‖w‖²: a number, or auto, one over the mean squared distance of the rows
        from their mean; online, over the mean squared norm of the first 1,000 rows. For `fit` on dense rows,
        auto is 1, 0.1, 0.01 or 0.001 times that, the largest of those that are about best on held-out rows of
        a sample.
    loss : str
        Formulation of the multi-class SVM. ww: Weston-Watkins; ww2: Weston-Watkins, squared hinge; wws:
        Weston-Watkins, smoothed hinge; cs: Crammer-Singer; cs2: Crammer-Singer, squared; top-m: mean of the m
        largest hinges; llw: Lee-Lin-Wahba; llw2: Lee-Lin-Wahba, squared hinge; ovr: one-vs-rest, hinge; ovr2:
        one-vs-rest, squared hinge; logistic: multinomial logistic regression; sparsemax: sparsemax; chain:
        chain-structured SVM; auto, for fit and tune: ww, cs or ovr2, chosen on a sample of the rows.
    margin : float | None
        Margin scale M of Weston-Watkins: 1 (default) or 0.5.
    solver : str | None
        Block solver of the loss: newton by default (ovr, ovr2: clip; chain: cached), sorted as published, or
        another.
    smooth : float | None
        ε of wws, the smoothed hinge: slacks below it cost quadratically; 0.5 by default.
    top : int | None
        m of top-m: how many of the largest hinges are averaged, at most all; 5 by default.
    temperature : float | None
        τ of the block solvers bcpl and oeg of chain; 1 by default.
    dtype : Literal["float32", "float64"]
        Precision of weights, duals and scores; sums and objectives are always float64.
    transform : str | Sequence[str] | None
        What is done with each row first, in this order, in training and by the model: counts,
        normalize[=sum], log1p, binarize, clip=v, hash=bits, l2, bias[=value], fourier=D:gamma=x; or none. The
        default is bias=0.3, and log1p,l2,bias=0.3 for a store of texts.
    label : str | None
        Column with the labels: of a table, or of obs of AnnData that was not written by convert; to score, by
        default that of the training. Or the array with them in an .npz file; of AnnData in memory, also the
        name of an indicator matrix in ``obsm``. Rows without a label are left out.
    labels : str | Path | None
        Labels of a matrix (.npy, .npz, Zarr, lists): .npy, or text with one a line.
    layer : str | None
        Layer of AnnData to read instead of X.
    raw : bool
        Read raw.X of AnnData, with its own features.
    obsm : str | None
        Entry of obsm of AnnData to read instead of X, such as an embedding.
    cache : str | Path | None
        Folder for copies of data at addresses; by default in the run, or temporary. All workers of a cluster
        must see it.
    join : Literal["inner", "outer"]
        Features of several files: those that all have (inner), or all that any has (outer).
    sample_weight : Literal["none"] | None
        none: learn from a store whose rows have weights as if they had none.
    unseen_label : Literal["error", "keep"]
        With known classes: whether another label is an error, or kept and counted as wrong.
    memory : int | str
        Memory for the rows that are read, in bytes or as text such as 500M or 2G: half of it. Weights are in
        files that are mapped, and have no bound.
    classes : sequence of str or int, optional
        All classes, in their order, if not those of the store; a stream has its own.
    checkpoint_every : str or float, optional
        How often to commit: a time ("0.5s", "60s", "5m"), a number of seconds, or a number of batches as
        text ("8 blocks"). By default when 20 times the time of the last commit has passed, but at least 10 s.
    force : bool
        Replace an existing run, as in `fit`.
    report, progress, stop
        As in `fit`; the number of all rows is None.

    Returns
    -------
    OnlineResult

    Raises
    ------
    SettingsError
        If a setting is not valid.
    PlanError
        If the weights would be larger than a file can be.
    InputError
        If the stream has no rows, or only one class, or raises it; rows before it are committed.
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
    r"""Choose C, and a loss, margin and transforms if several are given, and train with the best.

    Trainings on a store have run directories in the folder ``tune`` of `out`, which is deleted when the best
    model is trained in `out`. After an interruption, the same call goes on.

    Parameters
    ----------
    data, y, groups
        As for `streamsvm.fit`; texts in memory are to be in a file.
    out : path, optional
        Run directory to create; needed for files.
    C : Any
        Values of C: a range such as 2^-6:2^3, by factors of its base; numbers with commas; or auto, 10 values
        by factors of 2 around the C of fit. 0.01:10 goes by factors of 2. With auto each training has the C
        of its own rows; the table and the best training have that of all rows.
    loss : str | Sequence[str]
        Loss (see fit); several (ww,cs) are compared.
    margin : float | Sequence[float] | None
        Margin scale of Weston-Watkins; several are compared.
    transform : str | Sequence[str] | None
        Transforms of the rows (see fit), or none; several are compared. A list has texts such as
        ``df=-0.25,l2``; None stands for the default of the data.
    folds : int | None
        Measure on each of so many parts instead, in so many trainings. The mean decides; the standard
        deviation is reported.
    hold_out : str | None
        Part of the rows that is held out and measured on, 1/10 by default.
    valid : str | Path | None
        Store, text or table to measure on instead.
    passes_each : int
        Passes for each value of C.
    passes : int
        Passes of the training with the best, on all rows.
    solver : str | None
        Block solver of the loss: newton by default (ovr, ovr2: clip; chain: cached), sorted as published, or
        another.
    smooth : float | None
        ε of wws, the smoothed hinge: slacks below it cost quadratically; 0.5 by default.
    top : int | None
        m of top-m: how many of the largest hinges are averaged, at most all; 5 by default.
    temperature : float | None
        τ of the block solvers bcpl and oeg of chain; 1 by default.
    dtype : Literal["float32", "float64"]
        Precision of weights, duals and scores; sums and objectives are always float64.
    label : str | None
        Column with the labels: of a table, or of obs of AnnData that was not written by convert; to score, by
        default that of the training. Or the array with them in an .npz file; of AnnData in memory, also the
        name of an indicator matrix in ``obsm``. Rows without a label are left out.
    labels : str | Path | None
        Labels of a matrix (.npy, .npz, Zarr, lists): .npy, or text with one a line.
    layer : str | None
        Layer of AnnData to read instead of X.
    raw : bool
        Read raw.X of AnnData, with its own features.
    obsm : str | None
        Entry of obsm of AnnData to read instead of X, such as an embedding.
    cache : str | Path | None
        Folder for copies of data at addresses; by default in the run, or temporary. All workers of a cluster
        must see it.
    seed : int
        Seed of the order of blocks and rows.
    memory : int | str
        Memory budget in bytes, or as text such as 500M or 2G.
    inner_passes : int | Literal["auto"]
        How often to revisit the rows of a block while they are in memory: a number, or auto, chosen by a cost
        model.
    hold_out_by : Any
        Column of a table or of obs, such as a donor, or for a matrix or LIBSVM text a file with one value a
        line: rows with equal values are held out together, by fit, tune and the search for C. For a matrix in
        memory also an array of shape (n,). The column is not a feature. A store that was converted with one
        uses it. ``docs/tuning.md`` explains it.
    class_weight : str | Path | Mapping[str, float] | Literal["balanced"] | None
        Weights of the classes' rows: balanced, by which all classes weigh the same in all, or a file of lines
        with a class and its weight (others: 1). Balanced is the number of labels / (number of classes × rows
        of the class). The cost of a row is C times the weights of its class and of itself; of ``ovr`` and
        ``ovr2`` the weight of a class is that of its own machine's positive rows, as in LIBLINEAR.
    sample_weight : Any
        Numeric column of obs with the weights of the rows. A store that was converted with weights has them
        in the column weight, and uses them unless this is none. Of a matrix it may be an array of shape (n,).
        A row of weight 0 is left out. The mean counts in a group, with the loss ``chain``.
    weights : str | Path | None
        Weights of the rows of a matrix, text or a table: a file with one a line; of a matrix also .npy.
    costs : Any
        Table of margins by which each class (row) must win against each other (column): CSV with the names of
        the classes in the first line and column, or .npy in their order. Or a DataFrame, or an array of shape
        (k, k).
    tree : Any
        Tree of the classes, a child and its parent a line, in place of costs: the margin of two classes is
        the length of the path between them. Or a mapping of child to parent.
    valid_labels : str | Path | None
        Labels of the matrix that valid names.
    join : Literal["inner", "outer"]
        Features of several files: those that all have (inner), or all that any has (outer).
    block_rows : int | None
        Maximum number of rows in a block; by default memory decides.
    slice_rows : int | None
        Data that is not shuffled is read in slices of so many rows, each block from anywhere in it, or in its
        own order (0); by default chosen by chunks and memory.
    split : Literal["auto", "classes", "rows"]
        How training is split, if it has several splits: by classes, whose groups are solved in pairs; by
        rows, whose steps are added up; or auto: by classes if each worker then has less work than one core
        would have. By classes it is the scheme of Alber et al. (2017) with exact blocks; by rows CoCoA+ (Ma
        et al. 2015).
    splits : int
        Parts of each block that are trained on at the same time. The model depends on them, but not on how
        many workers there are.
    format : Literal["libsvm", "csv", "tsv", "jsonl", "parquet", "anndata", "npz", "npy"] | None
        Kind of the files, if text has another suffix than that of its kind.
    delimiter : str | None
        CSV: character between fields; by default the one of , ; | and tab that line 1 has most often.
    decimal : Literal[".", ","] | None
        CSV: the decimal mark; by default a comma if it separates no fields and more columns are numbers.
    like : str | Path | None
        Store, run or model whose classes, index base and width are used, as for test data: values of other
        features are dropped and counted. Of a model that hashes features, only the classes are used. Tables
        are read as those that it was made from; AnnData is matched by the names of features.
    text : str | Sequence[str]
        Columns of text whose hashed n-grams become the features, besides those in columns.
    analyzer : Literal["word", "char", "char_wb"] | None
        With text: n-grams of words (default), or of characters, also beyond (char) or only within words
        (char_wb).
    ngrams : tuple[int, int] | None
        With text: the least and the largest length of n-grams, at most 100; by default 1 and 2.
    bits : int | None
        With text: there are 2**bits features; by default 2**20.
    columns : str | Sequence[str]
        Columns of a table that become features: numbers and booleans as they are, dates as days and years,
        texts one feature for each value. By default all but the labels, or none with text.
    drop : str | Sequence[str]
        Columns of a table that become no features.
    categorical : str | Sequence[str]
        Columns of numbers or dates that are categories, such as codes.
    missing : Literal["error", "0", "mean", "indicator"]
        What a missing number or date of a table becomes: an error; 0; the mean of its column; or 0, and a
        feature COLUMN=missing that is 1 there (indicator). The mean is over the rows that are kept;
        categories that lack values have such a feature, too. With `like` it is what the earlier data has.
    labels_as : Literal["numbers", "text"] | None
        How labels of text are read: as numbers, so that +1 and 1.0 are 1, and in text but LIBSVM's, NA and
        the like are missing; or as the text that they are. By default as those of like, or as numbers. Labels
        of tables keep their spelling in any case: ``01`` is a code.
    multilabel : bool
        LIBSVM text: commas separate several labels of a row (1,5,7 1:0.3), and a line that begins with a
        blank has none. A label that a row lists twice counts once.
    index_base : int | Literal["auto"]
        LIBSVM text: index of the first feature. auto is 0 if any row that is kept has an index 0, explicit
        zeros included, else 1. With `like` it is that of its data, and must not contradict it.
    n_features : int | None
        LIBSVM text: number of features. By default the largest index determines it; fewer are an error.
    on_error : Literal["raise", "skip", "fix"]
        Whether an invalid row (of a table: one with a missing or infinite number) is an error, or is dropped
        and counted; fix, for LIBSVM text, also sorts unsorted rows and sums duplicate indices.
    workers, cluster, checkpoint_every, report, progress, stop
        As in `streamsvm.fit`. `report` gets each setting that was tried as ``{"event": "tried", ...}``, and
        of a store how many trainings there are, before them, as ``{"event": "search", ...}``; events of these
        have the name of their training as ``trial``.
    force : bool
        Replace an existing run.

    Returns
    -------
    TuneResult

    Raises
    ------
    SettingsError, StoreError, PlanError, InputError, RunError, Interrupted
        As in `streamsvm.fit`.
    """
