"""Predict labels for data of any size, read in blocks, and return them or write them to a file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from streamsvm.base import durable
from streamsvm.base.progress import Progress, logger, shown
from streamsvm.base.repr import Readable
from streamsvm.base.text import parse_size, printable
from streamsvm.base.threads import Threads, count_workers
from streamsvm.data.rows import NO_NUMBERS, Rows
from streamsvm.errors import ModelError, Option, Remedy, SettingsError, wrong_setting
from streamsvm.inputs.rows import RowsToScore
from streamsvm.model.doubt import probability_threshold
from streamsvm.model.model import Model, load_model
from streamsvm.prediction.evidence import with_evidence
from streamsvm.prediction.files import Batch, Lines, Pairs, Sink, check_suffix, is_table, open_output
from streamsvm.settings import checks
from streamsvm.settings.scoring import TO_PREDICT, ScoringSettings
from streamsvm.settings.signature import takes
from streamsvm.store.addresses import copy_address

_UNNAMED = ""


@dataclasses.dataclass(frozen=True, repr=False)
class Predictions(Readable):
    """Best classes of each row, best first; ties are broken in favour of the first class.

    If a threshold is set, the number of classes varies, so each row has its own array of shape (n_labels,).

    Attributes
    ----------
    n : int
        Number of rows.
    labels : ndarray, shape (n, top_k), or list of n arrays, or None
        Labels of the same type as `Model.classes_`; None if they are in a file.
    scores : ndarray, shape (n, top_k), or list of n arrays, or None
        Scores with the model's dtype, or float64 probabilities with `proba`; None if they are in a file.
    evidence : list of n lists of (str or int, float), or None
        Features that contribute most to the margin of each row, with their shares of the margin, largest
        first; None if `explain` was not set, or if the evidence is in a file.
    out : Path or None
        Path of the output file; None if the predictions were returned or written to an open file.
    """

    n: int
    labels: np.ndarray | list[np.ndarray] | None = None
    scores: np.ndarray | list[np.ndarray] | None = None
    evidence: list[Pairs] | None = None
    out: Path | None = None

    def _facts(self) -> dict[str, Any]:
        first = {"labels": self.labels, "scores": self.scores}
        shown = {name: None if values is None else _first(values) for name, values in first.items()}
        return {"n": self.n, **shown, "evidence": self.evidence and self.evidence[:5], "out": self.out}


def _first(values: np.ndarray | list[np.ndarray]) -> list[Any]:
    rows = [row.tolist() for row in values[:5]]
    one_each = isinstance(values, np.ndarray) and values.shape[1] == 1
    return [row[0] for row in rows] if one_each else rows


@takes(TO_PREDICT, after="memory")
def predict(
    model: Model | str | Path,
    data: Any,
    out: str | Path | TextIO | None = None,
    *,
    top_k: int | None = None,
    threshold: float | None = None,
    unknown: float | None = None,
    unknown_label: Any = "unknown",
    scores: bool = False,
    proba: bool = False,
    explain: int | None = None,
    memory: int | str = 2**28,
    groups: Any = None,
    force: bool = False,
    workers: int | None = None,
    progress: bool | Progress | None = None,
    **settings: Any,
) -> Predictions:
    """Predict the best classes of each row, in the order of the data.

    If `out` is set, predictions are not kept in memory, so memory use does not grow with their number.

    Parameters
    ----------
    model : Model or path
        Model, or path of its run directory or model folder.
    data : path, Store, iterable of Rows, matrix, or several of these
        Data to score: a store, AnnData (also file-backed) or a file that `convert` accepts, all of which are
        read in blocks; an iterable of blocks of rows, or of pairs of a block and its row names; or anything
        that `Model.predict` accepts, such as strings. Blocks contain untransformed features. Labels are
        ignored. Pass several inputs as a list of paths, or as a mapping of names to data. If the model was
        trained on hashed text, the strings in a list are documents, unless one of them is an existing path.
    out : path or text file, optional
        Where to write the predictions. A file is renamed to `out` once it is complete. The suffixes ``.csv``,
        ``.tsv``, ``.jsonl`` and ``.parquet`` select a table with the columns ``row`` (row name, or number
        from 1), ``label``, ``score``, ``margin`` (score minus the largest other score) and, with `top_k`,
        ``label_2``, ``score_2`` and so on. If there are several inputs, the first column is ``file``. With
        `proba`, a ``probability`` follows each score. In ``.csv`` and ``.tsv``, an apostrophe precedes names
        that a spreadsheet would run as formulas: names that begin with one of ``= + - @``, a tab or a line
        break and are not numbers. Other output (``.txt``, no suffix, an open file) consists of one line of
        tab-separated labels per row.
    top_k : int, optional
        Maximum number of classes to predict per row; by default 1, or all classes if `threshold` is set.
    threshold : float, optional
        Score above which a class is predicted, or probability if `proba` is set. A row may then have any
        number of classes; in text output, a row without classes is an empty line.
    unknown : float, optional
        Required accuracy, such as 0.95. Rows whose largest probability is below a threshold get
        `unknown_label`, with the score and probability of the best class. The threshold is the smallest one
        at which the remaining rows of the calibration data (see `streamsvm.calibrate`) reach this accuracy.
    unknown_label : object
        Label of unknown rows, written to files as text.
    scores : bool
        Whether to write the score after each label in text output.
    proba : bool
        Whether to return probabilities (`Model.predict_proba`) instead of scores; tables contain both.
    explain : int, optional
        Maximum number of features to return as evidence for the first label of each row: the features with
        the largest positive shares of its margin. The share of a feature is its value after the transforms
        times the difference between its coefficients for the label and for the class with the largest other
        score. The ``bias`` constant and transitions are left out. Features are identified by name, or by
        number as in LIBSVM text; columns of ``hash`` are numbered from 0. Features of hashed text are named
        after the row's n-grams, joined by " + " if hashes collide. The evidence is the last column of tables,
        as text or, in ``.jsonl``, as pairs, and the last field of text lines.
    memory : int or str
        Memory budget in bytes, or as text such as 500M or 2G.
    **settings
        See `ScoringSettings`.
    groups : array_like, shape (n,), or str, optional
        Group of each row of a matrix, for a sequence model; see `streamsvm.fit`. Stores contain groups.
    force : bool
        Whether to replace an existing file `out`.
    workers : int, optional
        Number of scoring threads; by default the number of processors.
    progress : bool or callable, optional
        Whether to show a bar, or a callback, as in `streamsvm.fit`; the stage is "predict".

    Raises
    ------
    ModelError, FeatureError, StoreError, InputError
        If the model or data cannot be read, if the data does not fit the model, if a value or score is not
        finite, if `proba` or `unknown` does not apply to the model, or if `out` exists and `force` is False.
    SettingsError
        If `top_k`, `threshold`, `unknown`, `explain` or `memory` is invalid, if `explain` is combined with
        `threshold`, or if `unknown` is combined with several labels per row.
    PlanError
        If the longest row does not fit into the memory budget; `PlanError.needed_memory` is sufficient.

    Warns
    -----
    StreamsvmWarning
        If the data contains features or categories that the model does not know, or has no feature names.
    """
    model, memory = as_model(model), parse_size(memory)
    if threshold is not None:
        threshold = checks.FINITE.checked("threshold", threshold)
    if is_table(out) and threshold is not None and top_k is None:
        remedy = Remedy("set the maximum number of labels per row with {}", Option("top_k"))
        problem = f"needs top_k, because {out} is a table, which has the same columns for every row"
        raise wrong_setting("threshold", problem, remedy)
    if explain is not None and any(transform.name == "fourier" for transform in model.transforms):
        raise wrong_setting("explain", "does not apply to models with the transform fourier; leave it out")
    if explain is not None and threshold is not None:
        raise wrong_setting("explain", "applies only to one label per row; leave threshold out")
    # A feature of evidence takes a few hundred bytes, a score 4 or 8 bytes.
    piece_bytes = memory // (32 if explain is None else 512 * checks.whole(1).checked("explain", explain))
    sources = _by_name(data, texts=model.takes_texts)
    path = Path(out) if isinstance(out, str | os.PathLike) else None
    if path is not None:
        durable.check_replaceable(path, ModelError, force=force)
        if path.exists() and any(os.path.samefile(path, file) for file in filter(os.path.exists, sources)):
            raise wrong_setting("out", "is one of the input files", Remedy("choose another file"))
        check_suffix(path)
    if top_k is None:
        top_k = 1 if threshold is None else len(model.classes_)
    top_k = min(checks.whole(1).checked("top_k", top_k), len(model.classes_))
    if proba:
        model.check_probabilities()
    if (unknown is not None or model.transitions_ is not None) and (top_k > 1 or threshold is not None):
        problem = "gives several labels per row, but the setting unknown and sequence models allow only one"
        raise wrong_setting("top_k" if threshold is None else "threshold", problem)
    workers, options = count_workers(workers), ScoringSettings(**settings)
    best = _Best(model, top_k, threshold, proba=proba, margins=is_table(out))
    labels, class_names = model.classes_, model.class_names
    if (cutoff := probability_threshold(model.record, unknown, unknown_label)) is not None:
        labels, class_names = np.append(labels, unknown_label), np.append(class_names, str(unknown_label))
    several, scored = len(sources) > 1, scores or proba
    with ExitStack() as stack:
        threads = stack.enter_context(Threads(workers))
        no_scores = np.zeros((0, len(model.classes_)), model.dtype)
        no_rows = Rows(*np.zeros((5, 0)))
        empty = best.batch(_UNNAMED if several else None, NO_NUMBERS, no_rows, 0, no_scores)
        empty = empty._replace(evidence=None if explain is None else [])
        sink: Sink = _InMemory(labels, empty)
        if isinstance(out, str | os.PathLike):
            sink = stack.enter_context(open_output(out, class_names, empty, scored=scored))
        elif out is not None:
            sink = Lines(out, class_names, scored=scored)
        report = stack.enter_context(shown(progress))
        count = 0
        for file, source in sources.items():
            first = 0
            where = "the data" if file == _UNNAMED else file
            reader = RowsToScore(model, options, memory, labelled=False, named=best.margins, workers=workers)
            stage = f"predict {printable(file)}" if several else "predict"
            source = copy_address(source, options.cache, report)
            for rows, names in reader.read(source, groups=groups, where=where):
                pieces = model.scores(rows, piece_bytes, first=first, where=where, workers=threads)
                for begin, piece in pieces:
                    end = begin + len(piece)
                    batch = best.batch(file if several else None, names[begin:end], rows, begin, piece)
                    if explain is not None:
                        batch = with_evidence(batch, model, rows, begin, piece, explain, reader.texts)
                    if cutoff is not None:
                        batch = batch._replace(codes=model.best_classes(rows, begin, piece, cutoff)[:, None])
                    sink.write(batch)
                    report(stage, first + end, reader.n_rows)
                first += rows.n_rows
            count += first
    logger.info("predicted %s rows", f"{count:,}")
    return sink.predictions(count) if isinstance(sink, _InMemory) else Predictions(count, out=path)


@dataclasses.dataclass(frozen=True)
class _Best:
    model: Model
    top_k: int
    threshold: float | None
    proba: bool
    margins: bool

    def batch(self, file: str | None, names: np.ndarray, rows: Rows, begin: int, scores: np.ndarray) -> Batch:
        if self.top_k == 1:
            codes = np.asarray(self.model.best_classes(rows, begin, scores)[:, None])
        else:
            codes = np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k]
        best_scores = np.take_along_axis(scores, codes, axis=1)
        probabilities = above = None
        if self.proba:
            logarithms = self.model.log_probabilities(scores)
            probabilities = np.exp(np.take_along_axis(logarithms, codes, axis=1))
        if self.threshold is not None:
            compared = best_scores if probabilities is None else probabilities
            above = (compared > self.threshold).sum(axis=1).tolist()
        margins = _margins(scores, codes, best_scores) if self.margins else None
        return Batch(file, names, codes, best_scores, probabilities, above, margins)


class _InMemory:
    def __init__(self, classes: np.ndarray, empty: Batch) -> None:
        self._classes = classes
        self._labels: list[np.ndarray] = []
        self._values: list[np.ndarray] = []
        self._evidence = empty.evidence
        self._ragged = empty.above is not None
        self.write(empty)

    def write(self, batch: Batch) -> None:
        batch = batch.without_unused()
        names, values = self._classes[batch.codes], batch.values
        if self._evidence is not None:
            self._evidence += batch.evidence or []
        if batch.above is None:
            self._labels.append(names)
            self._values.append(values)
        else:  # sorted, so the first classes are above the threshold
            self._labels.extend(row[:n].copy() for row, n in zip(names, batch.above, strict=True))
            self._values.extend(row[:n].copy() for row, n in zip(values, batch.above, strict=True))

    def predictions(self, n: int) -> Predictions:
        if self._ragged:
            return Predictions(n, self._labels, self._values)
        return Predictions(n, np.concatenate(self._labels), np.concatenate(self._values), self._evidence)


def _margins(scores: np.ndarray, codes: np.ndarray, best_scores: np.ndarray) -> np.ndarray:
    """Return the scores of the first codes minus the largest other scores; NaN if there is only one class."""
    if scores.shape[1] == 1:
        return np.full(len(scores), np.nan)
    other_scores = scores.copy()
    np.put_along_axis(other_scores, codes[:, :1], -np.inf, axis=1)
    return np.asarray(best_scores[:, 0] - other_scores.max(axis=1))


def _by_name(data: Any, *, texts: bool) -> dict[str, Any]:
    """Return inputs by display name, which is "" for data in memory; `texts` allows a list of documents."""
    if isinstance(data, Mapping):
        return dict(data)
    if isinstance(data, str | os.PathLike):
        return {str(data): data}
    several = isinstance(data, list | tuple) and data and all(isinstance(x, str | os.PathLike) for x in data)
    if several and not (texts and all(isinstance(x, str) and not os.path.exists(x) for x in data)):
        sources = {str(path): path for path in data}
        if len(sources) < len(data):
            raise SettingsError("data contains the same file twice; name each file once", setting="data")
        return sources
    return {_UNNAMED: data}


def as_model(model: Model | str | Path) -> Model:
    if isinstance(model, Model):
        return model
    if not isinstance(model, str | os.PathLike):
        raise wrong_setting("model", f"must be a Model or the path of a model, not {type(model).__name__}")
    return load_model(model)
