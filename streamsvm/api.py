"""Training functions `fit`, `plan`, `resume` and `online`, which accept all declared settings as keywords."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

from streamsvm.base.converters import converters
from streamsvm.base.progress import Progress, Report, shown
from streamsvm.base.text import as_paths
from streamsvm.converted import converted, open_text
from streamsvm.data.arrays import check_is_matrix, label_column
from streamsvm.errors import InputError, Option, Remedy, SettingsError, wrong_setting
from streamsvm.model.matrix import begins_with_text, hashed
from streamsvm.model.model import Model
from streamsvm.model.results import FitResult, OnlineResult
from streamsvm.run.directory import RunDir, replacing
from streamsvm.settings.checks import GIVEN
from streamsvm.settings.field import MATRIX, CheckedSettings, changes_of, declared
from streamsvm.settings.fit import Interval, Settings
from streamsvm.settings.online import OnlineSettings, StoreSettings
from streamsvm.settings.reading import COLUMN_SETTINGS, TEXT_SETTINGS, ReadingSettings
from streamsvm.settings.signature import takes
from streamsvm.store.addresses import copy_address
from streamsvm.store.kinds import is_read_in_place
from streamsvm.training.create import fit_store, open_matrix, plan_store
from streamsvm.training.online import learn_stream
from streamsvm.training.parallel.splits import check_splits
from streamsvm.training.store_stream import StoreStream
from streamsvm.training.stream import Stream
from streamsvm.training.train import resume_run, train
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import Execution

Kind = TypeVar("Kind", bound=CheckedSettings)
OF_ROWS = ("sample_weight", "hold_out_by")  # settings that may be arrays if the data is a matrix

__all__ = ["FitResult", "OnlineResult", "fit", "online", "plan", "resume"]


@takes(declared(Settings) | declared(ReadingSettings), after="out")
def fit(
    data: Any,
    y: Any = None,
    *,
    groups: Any = None,
    out: str | os.PathLike[str] | None = None,
    keep_data: bool = True,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    checkpoint_every: str | float | None = None,
    force: bool = False,
    resume_or_start: bool = False,
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> FitResult | Model:
    """Train a linear multi-class SVM by exact dual block-coordinate descent (Wang & Scott 2021, Algorithm 1).

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
    **settings
        See `Settings`.
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
    y, settings["label"] = label_column(y, settings.get("label"))
    reading = taken_out(settings, ReadingSettings)
    tables = without_tables(settings)
    checked = Settings(**settings)
    every = Interval(checkpoint_every)
    are_texts = y is not None and begins_with_text(data)
    paths: Sequence[str | os.PathLike[str]] | None = None if are_texts else as_paths(data)
    if paths is None:
        encoding = {"columns": [], "text": reading.of_texts} if are_texts else None
        if encoding is not None:
            data = hashed(data, encoding, checked.dtype, InputError)
        check_is_matrix(data)
        applying = COLUMN_SETTINGS if hasattr(data, "columns") else frozenset()
        tables["columns"], of_files = divided(reading, TEXT_SETTINGS if are_texts else applying)
        check_of_matrix(
            settings, **of_files, out=out, cluster=cluster, force=force,
            resume_or_start=resume_or_start, keep_data=not keep_data,
        )  # fmt: skip
        with shown(progress) as progress:
            how = Execution(Callbacks.of(report, progress, stop), workers=workers)
            model = train(open_matrix((data, y, groups), checked, how, tables, encoding=encoding), how)[1]
            assert model is not None
            return model
    check_of_store(out, y=y, groups=groups, **{name: tables.get(name) for name in OF_ROWS})
    if cluster is not None:
        check_splits(checked.splits)
    assert out is not None
    if force and resume_or_start:
        raise wrong_setting("force", "replaces a run, but resume_or_start continues it; set only one of them")
    read = [*paths, checked.valid, checked.from_]
    with shown(progress) as progress, replacing(RunDir(out), read, force=force) as run:
        how, had = Execution(Callbacks.of(report, progress, stop), every, workers, cluster), run.data.exists()
        made: dict[str, Any] = {}
        try:
            paths, checked, made = converted(
                paths, checked, reading, run, how, force=force, resume=resume_or_start, keep=keep_data
            )
            return fit_store(paths, run, checked, how, tables, force=force, resume=resume_or_start, made=made)
        except Exception as error:
            if (made or not had) and run.data.exists() and not run.settings.exists():
                error.add_note(f"{run.data} is kept; pass it to avoid converting the files again")
            raise


def taken_out(settings: dict[str, Any], kind: type[Kind]) -> Kind:
    """Pop the settings declared by `kind` out of the dict `settings`, and return them as a `kind`."""
    return kind(**{name: settings.pop(name) for name in declared(kind) if name in settings})


def divided(reading: ReadingSettings, applying: Set[str]) -> list[dict[str, Any]]:
    """Split the non-default reading settings into two dicts: those in `applying`, and the others."""
    items = reading.given().items()
    return [{name: value for name, value in items if (name in applying) == match} for match in (True, False)]


def check_of_store(out: Any, **of_matrix: Any) -> None:
    if out is None:
        raise wrong_setting(
            "out", "is missing", Remedy("name the run directory to create with {}", Option("out"))
        )
    for name, value in of_matrix.items():
        if value is not None:
            raise wrong_setting(name, "is only for a matrix in memory; leave it out for a file or store")


def check_of_matrix(settings: Mapping[str, Any], **of_files: Any) -> None:
    names = [name for name, value in of_files.items() if value is not None and value is not False]
    advice = dict.fromkeys(names, "leave it out, or pass a file")
    for name, each in declared(Settings).items():
        if each.scope < MATRIX and settings.get(name, each.default) != each.default:
            advice[name] = each.instead
    for name, instead in advice.items():
        raise wrong_setting(name, "does not apply to a matrix in memory", Remedy(instead))


def without_tables(settings: dict[str, Any]) -> dict[str, Any]:
    """Move arrays and other Python objects from `settings` to a new dict, leaving placeholders."""
    tables = {}
    for name, each in declared(Settings).items():
        value = settings.get(name)
        if each.check.accepts == "Any" and value is not None and not isinstance(value, str | os.PathLike):
            tables[name], settings[name] = value, GIVEN
    return tables


@takes(declared(Settings), after="data")
def plan(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Estimate the memory and disk space that `fit` would use, without training.

    Parameters
    ----------
    data : path or list of paths
        One or more stores, as for `fit`.
    **settings
        As in `fit`.
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
    tables = without_tables(settings)
    checked = Settings(**settings)
    paths = [copy_address(path, checked.cache) for path in as_paths(data) or []]
    return plan_store(paths, checked, Execution(workers=workers, cluster=cluster), tables)


@takes(changes_of(Settings), after="run")
def resume(
    run: str | Path,
    *,
    store: str | Path | Sequence[str | Path] | None = None,
    open_stream: Callable[[dict[str, Any]], Stream] | None = None,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    checkpoint_every: str | float | None = None,
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> FitResult | OnlineResult:
    """Continue an interrupted run from its last commit, or extend a finished one.

    The result is byte-identical to that of an uninterrupted run on the same machine with the same versions.
    If a run of `fit` has made all its passes or has reached its tolerance, its result is returned. A finished
    run of `online` continues with the rows that have been added since. If a stream, such as a pipe, cannot be
    read again, the run ends at the last commit.

    Parameters
    ----------
    run : path
        Run directory made by `fit` or `online`.
    **settings
        New values of settings; see `Settings`.
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
    every = Interval(checkpoint_every)
    with shown(progress) as progress:
        how = Execution(Callbacks.of(report, progress, stop), every, workers, cluster)
        at = None if store is None else as_paths(store)
        return resume_run(run, how, open_stream or open_text, store=at, **settings)


@takes(declared(OnlineSettings) | declared(StoreSettings), after="out")
def online(
    data: Stream | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    out: str | Path,
    classes: Sequence[Any] | None = None,
    checkpoint_every: str | float | None = None,
    force: bool = False,
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> OnlineResult:
    """Train in one pass over the rows in order: predict the label of each row, then learn from it.

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
    **settings
        See `OnlineSettings`, and for stores also `StoreSettings`.
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
    of_store = taken_out(settings, StoreSettings)
    checked = OnlineSettings(**settings)
    every = Interval(checkpoint_every)
    with (
        shown(progress) as progress,
        replacing(RunDir(out), as_paths(data) or [], force=force) as run,
        _as_stream(data, of_store, checked.dtype, classes) as stream,
    ):
        return learn_stream(
            stream, run, checked, every=every, force=force, callbacks=Callbacks.of(report, progress, stop)
        )


def _as_stream(
    data: Any, of_store: StoreSettings, dtype: str, classes: Sequence[Any] | None
) -> contextlib.AbstractContextManager[Stream]:
    paths = as_paths(data)
    if paths is not None and all(is_read_in_place(copy_address(path, of_store.cache)) for path in paths):
        return StoreStream(paths, of_store, dtype, classes)
    changed, of_text = of_store.given(), {}
    if paths is not None:
        of_text = {name: getattr(of_store, name) for name in ("unseen_label", "memory")}
        data = converters().TextSource(paths, classes=classes, dtype=dtype, **of_text)
    elif not hasattr(data, "batches"):
        raise SettingsError(
            "data must not be a matrix in memory", remedy=Remedy("write the matrix to an .npy file")
        )
    elif classes is not None:
        changed["classes"] = classes
    for name in changed:
        if name not in of_text:
            raise wrong_setting(name, "is only for a store; leave it out, or set it in the stream")
    return contextlib.nullcontext(data)
