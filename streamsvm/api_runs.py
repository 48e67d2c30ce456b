"""Functions for runs: `plan` and `resume`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from streamsvm.api import without_tables
from streamsvm.base.progress import Progress, Report, shown
from streamsvm.base.text import as_paths
from streamsvm.model.results import FitResult, OnlineResult
from streamsvm.settings.fit import Interval, Settings
from streamsvm.training import fit_store
from streamsvm.training.resume import resume_run
from streamsvm.training.sources import Stream
from streamsvm.training.trainer import Callbacks


def plan(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    passes: int = 3,
    C: float | Literal["auto"] = "auto",
    first_C: float | Literal["auto"] = "auto",
    C_path: str | None = None,
    loss: str = "ww",
    margin: float | None = None,
    solver: str | None = None,
    smooth: float | None = None,
    top: int | None = None,
    temperature: float | None = None,
    solver_tol: float | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    seed: int = 0,
    memory: int | str = 2**31,
    tol: float | None = None,
    inner_passes: int | Literal["auto"] = "auto",
    average: bool = True,
    gap: Literal["pass", "end", "none"] | None = None,
    valid: str | Path | None = None,
    hold_out: str | None = None,
    calibrate: str | Path | None = None,
    class_weight: str | Path | Mapping[str, float] | None = None,
    sample_weight: Any = None,
    costs: Any = None,
    costs_as: Literal["margins", "costs", "both"] | None = None,
    tree: Any = None,
    transform: str | Sequence[str] | None = None,
    label: str | None = None,
    layer: str | None = None,
    raw: bool = False,
    join: Literal["inner", "outer"] = "inner",
    keep_duals: bool | None = None,
    block_rows: int | None = None,
    slice_rows: int | None = None,
    split: Literal["auto", "classes", "rows"] = "auto",
    splits: int = 1,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Plan what `fit` would hold in memory and on disk, without training.

    The parameters are those of `fit`. No cluster is asked: with `cluster`, splits by rows need no memory here
    for weights of their own.

    Returns
    -------
    dict
        ``rows, features, classes, nnz, blocks``; ``budget``, which is `memory` or the limit of the process,
        if that is less, and ``planned_bytes``; ``weights_bytes`` (as a dense matrix, with the average if
        there is one), ``mapped_bytes`` of them in files, and ``weights_in_memory``; ``sparse``, whether
        weights are stored sparsely, and ``sparse_bytes``, how much of them may be in memory; ``common_dual``,
        whether most wrong classes of a row have one dual; ``log_bytes``, the disk space for weights and their
        log at most; ``warning``, None or what is slow about the plan; ``average_warning``, None or the memory
        that the average needs, for want of which the model is the last iterate; ``order_warning``, None or
        what is wrong with the order of the labels; ``C_auto``, whether C was chosen from the data; and the
        settings, in which ``split`` is settled, for the reason in ``split_reason``; and ``worker_bytes``,
        what a worker of a cluster holds beside the program for one split, and ``worker_split_bytes``, what
        each further one adds at most: None without splits.

    Raises
    ------
    SettingsError, PlanError, StoreError
        As in `fit`.
    """
    given, tables = without_tables(dict(locals()))
    return fit_store.plan_store(
        as_paths(data) or [], Settings.from_arguments(given), given=tables, workers=workers,
        cluster=cluster is not None,
    )  # fmt: skip


def resume(
    run: str | Path,
    *,
    passes: int | None = None,
    tol: float | None = None,
    store: str | Path | Sequence[str | Path] | None = None,
    valid: str | Path | None = None,
    calibrate: str | Path | None = None,
    open_stream: Callable[[dict[str, Any]], Stream] | None = None,
    workers: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    checkpoint_every: str | float = "60s",
    report: Report | None = None,
    progress: bool | Progress | None = None,
    stop: Callable[[], bool] | None = None,
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
    passes : int, optional
        New total number of passes of a fit.
    tol : float, optional
        New tolerance of a fit, such as a smaller one. The exact gap is then measured after each pass.
    store : path or list of paths, optional
        Where the store of a fit is now, if it was moved; all of them if there were several.
    valid : path, optional
        Where the validation store of a fit is now, or another one.
    calibrate : path, optional
        Where the hold-out store of a fit is now, or another one; or the first one, also of a finished run.
    open_stream : callable, optional
        Makes the stream of an online run from its record, such as
        ``streamsvm_converters.TextSource.from_record``; needed for online runs.
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
        If the text that an online run has learned from has changed.
    SettingsError
        If a setting is not valid, or does not apply to the kind of the run.
    Interrupted
        If `stop` returned True.
    """
    every = Interval(checkpoint_every)
    with shown(progress) as progress:
        return resume_run(
            run, open_stream, passes=passes, tol=tol, store=None if store is None else as_paths(store),
            valid=valid, calibrate=calibrate, every=every, callbacks=Callbacks.of(report, progress, stop),
            workers=workers, cluster=cluster,
        )  # fmt: skip
