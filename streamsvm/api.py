"""Functions that train: `fit`, `plan`, `resume` and `online`, with the options that settings declare."""

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
OF_ROWS = ("sample_weight", "hold_out_by")  # settings that may be arrays, for a matrix

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
    **settings
        As `Settings` declares them.
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
    y, settings["label"] = label_column(y, settings.get("label"))
    reading = taken_out(settings, ReadingSettings)
    tables = without_tables(settings)
    asked = Settings(**settings)
    every = Interval(checkpoint_every)
    are_texts = y is not None and begins_with_text(data)
    paths: Sequence[str | os.PathLike[str]] | None = None if are_texts else as_paths(data)
    if paths is None:
        encoding = {"columns": [], "text": reading.of_texts} if are_texts else None
        if encoding is not None:
            data = hashed(data, encoding, asked.dtype, InputError)
        check_is_matrix(data)
        applying = COLUMN_SETTINGS if hasattr(data, "columns") else frozenset()
        tables["columns"], of_files = divided(reading, TEXT_SETTINGS if are_texts else applying)
        check_of_matrix(
            settings, **of_files, out=out, cluster=cluster, force=force,
            resume_or_start=resume_or_start, keep_data=not keep_data,
        )  # fmt: skip
        with shown(progress) as progress:
            how = Execution(Callbacks.of(report, progress, stop), workers=workers)
            model = train(open_matrix((data, y, groups), asked, how, tables, encoding=encoding), how)[1]
            assert model is not None
            return model
    check_of_store(out, y=y, groups=groups, **{name: tables.get(name) for name in OF_ROWS})
    if cluster is not None:
        check_splits(asked.splits)
    assert out is not None
    if force and resume_or_start:
        raise wrong_setting(
            "force", "replaces a run, and resume_or_start goes on with it; leave one of them out"
        )
    read = [*paths, asked.valid, asked.from_]
    with shown(progress) as progress, replacing(RunDir(out), read, force=force) as run:
        how, had = Execution(Callbacks.of(report, progress, stop), every, workers, cluster), run.data.exists()
        made: dict[str, Any] = {}
        try:
            paths, asked, made = converted(
                paths, asked, reading, run, how, force=force, resume=resume_or_start, keep=keep_data
            )
            return fit_store(paths, run, asked, how, tables, force=force, resume=resume_or_start, made=made)
        except Exception as error:
            if (made or not had) and run.data.exists() and not run.settings.exists():
                error.add_note(f"{run.data} is kept: given instead of its files, it saves reading them again")
            raise


def taken_out(settings: dict[str, Any], kind: type[Kind]) -> Kind:
    """Take the settings of a kind out of `settings`, in place, and return them."""
    return kind(**{name: settings.pop(name) for name in declared(kind) if name in settings})


def divided(reading: ReadingSettings, applying: Set[str]) -> list[dict[str, Any]]:
    """Return the settings of reading that are given: those that apply, and the others."""
    given = reading.given().items()
    return [{name: value for name, value in given if (name in applying) == own} for own in (True, False)]


def check_of_store(out: Any, **of_matrix: Any) -> None:
    """Raise `SettingsError` if `out` is missing, or an argument is given that only a matrix needs."""
    if out is None:
        raise wrong_setting(
            "out", "is missing", Remedy("name the run directory to create with {}", Option("out"))
        )
    for name, value in of_matrix.items():
        if value is not None:
            raise wrong_setting(name, "is for a matrix in memory: a file or store has its own; leave it out")


def check_of_matrix(settings: Mapping[str, Any], **of_files: Any) -> None:
    """Raise `SettingsError` if a setting for stores alone is given, or one of the arguments for files."""
    given = [name for name, value in of_files.items() if value is not None and value is not False]
    found = dict.fromkeys(given, "leave it out, or give a file")
    for name, each in declared(Settings).items():
        if each.scope < MATRIX and settings.get(name, each.default) != each.default:
            found[name] = each.instead
    for name, instead in found.items():
        raise wrong_setting(name, "does not apply to a matrix in memory", Remedy(instead))


def without_tables(settings: dict[str, Any]) -> dict[str, Any]:
    """Replace the Python objects among settings by a placeholder, in place; return those replaced."""
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
    """Plan what `fit` would hold in memory and on disk, without training.

    Parameters
    ----------
    data : path or list of paths
        The store, as for `fit`.
    **settings
        As in `fit`.
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
    tables = without_tables(settings)
    asked = Settings(**settings)
    paths = [copy_address(path, asked.cache) for path in as_paths(data) or []]
    return plan_store(paths, asked, Execution(workers=workers, cluster=cluster), tables)


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

    The result is byte for byte that of a run never interrupted, on the same machine and versions. A run
    that has made all its passes, or has reached its tolerance, returns the result it has. A finished run
    of `online` learns from the rows that were added since; one whose stream cannot be read again, such as
    a pipe, ends at the last commit.

    Parameters
    ----------
    run : path
        Run directory made by `fit` or `online`.
    **settings
        As `Settings` declares what a new value is.
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
    """Train in one pass: each row is predicted, then learned from, in the order of the data.

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
    **settings
        As `OnlineSettings` declares them, and for a store `StoreSettings`.
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
    of_store = taken_out(settings, StoreSettings)
    asked = OnlineSettings(**settings)
    every = Interval(checkpoint_every)
    with (
        shown(progress) as progress,
        replacing(RunDir(out), as_paths(data) or [], force=force) as run,
        _as_stream(data, of_store, asked.dtype, classes) as stream,
    ):
        return learn_stream(
            stream, run, asked, every=every, force=force, callbacks=Callbacks.of(report, progress, stop)
        )


def _as_stream(
    data: Any, of_store: StoreSettings, dtype: str, classes: Sequence[Any] | None
) -> contextlib.AbstractContextManager[Stream]:
    """Return the rows of a store or of text, or a stream as it is; raise `SettingsError` for a matrix."""
    paths = as_paths(data)
    if paths is not None and all(is_read_in_place(copy_address(path, of_store.cache)) for path in paths):
        return StoreStream(paths, of_store, dtype, classes)
    given, of_text = of_store.given(), {}
    if paths is not None:
        of_text = {name: getattr(of_store, name) for name in ("unseen_label", "memory")}
        data = converters().TextSource(paths, classes=classes, dtype=dtype, **of_text)
    elif not hasattr(data, "batches"):
        raise SettingsError(
            "a matrix in memory is neither a stream nor a file", remedy=Remedy("write it to an .npy file")
        )
    elif classes is not None:
        given["classes"] = classes
    for name in given:
        if name not in of_text:
            raise wrong_setting(name, "is for a store, and a stream has its own")
    return contextlib.nullcontext(data)
