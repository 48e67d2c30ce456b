"""Convert the input files of `fit` that are not stores, and open the text input of a run of `online`."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.base import durable
from streamsvm.base.converters import converters
from streamsvm.base.decode import encode
from streamsvm.base.text import as_url
from streamsvm.data.names import warn_of_unknown_features
from streamsvm.errors import Call, InputError, Interrupted, Option, Remedy, SettingsError, wrong_setting
from streamsvm.losses import get_loss
from streamsvm.run.directory import RunDir, entered, locked
from streamsvm.settings.checks import GIVEN
from streamsvm.settings.field import declared
from streamsvm.settings.fit import AUTO, BALANCED, NONE, Settings
from streamsvm.settings.reading import ReadingSettings
from streamsvm.store import open_store
from streamsvm.store.addresses import local
from streamsvm.store.kinds import is_read_in_place, is_trained_in_place, kind_of
from streamsvm.training.training import Execution, copy_inputs
from streamsvm.transforms import parse_transforms

Paths = Sequence[str | os.PathLike[str]]

# Reading settings that also apply to held-out data; the training data determines the others.
_OF_VALID = ("format", "delimiter", "decimal", "labels_as", "multilabel", "on_error")
# Settings that a conversion applies, so training on the converted store must not apply them again.
_OF_CONVERSION = ("label", "labels", "weights", "hold_out_by", "layer", "raw", "obsm", "join")


class _Inputs(NamedTuple):
    """Files to convert to one store, and the options of the conversion."""

    paths: list[str]
    options: dict[str, Any]

    @property
    def files(self) -> list[str]:
        """All files that the conversion reads."""
        files = [self.options[name] for name in ("weights", "labels") if name in self.options]
        by = self.options.get("hold_out_by")
        return [*self.paths, *files, *([by] if by is not None and os.path.isfile(by) else [])]


def converted(
    paths: Paths,
    settings: Settings,
    reading: ReadingSettings,
    run: RunDir,
    how: Execution,
    *,
    force: bool,
    resume: bool,
    keep: bool,
    by_tune: bool = False,
) -> tuple[Paths, Settings, dict[str, Any]]:
    """Convert training and held-out data that cannot be read in place to stores in the run directory.

    Remote data is copied first. Leftovers of a killed conversion are deleted. If `resume` is True and the run
    (with `by_tune`, the search) has started, its stores are reused.

    Return the paths of training data that can be read in place, the settings for training on them, and
    entries of ``run.json``: ``files``, the input files and options of each store, and ``keep_data``. There
    are no entries if nothing was converted.

    Raises `SettingsError` if a setting does not apply to converted files, or if it needs a conversion and
    there is none. Also raises the errors of `convert`, and `Interrupted` if the `stop` callback returns True.
    """
    read = [*paths, settings.valid]
    if any(path is not None and as_url(path) for path in read):
        resumes = resume and run.settings.exists()
        with locked(run) if resumes else _new_folder(run, force=force, by_tune=by_tune):
            copy_inputs(run, read, settings.cache, how)
    inputs = _inputs(paths, settings, reading)
    if not inputs:
        return paths, settings, {}
    if resume and not keep:
        raise wrong_setting(
            "keep_data",
            "must be on with resume_or_start, because a finished run needs its data to return its result",
        )
    _check_before(settings)
    has_started = (run.tuning if by_tune else run.settings).exists()
    if resume and has_started and all(getattr(run, name).exists() for name in inputs):
        files = {name: _facts(each.files) for name, each in inputs.items()}
    else:
        if "data" not in inputs and (len(paths) > 1 or settings.label or settings.labels):
            trained = ", ".join(map(str, paths))
            raise SettingsError(
                f"held-out text and tables require training data in one store made by convert, not {trained}",
                remedy=Remedy("convert held-out data with {}", Call("convert", options=(Option("like"),))),
            )
        like = run.data if "data" in inputs else paths[0]
        # The initial model may have classes that `like` lacks.
        separate = settings.from_ and ("data" in inputs or kind_of(inputs["valid"].paths[0]) == "libsvm")
        files = {}
        with _new_folder(run, force=force, by_tune=by_tune):
            for name, each in inputs.items():
                extra = {"like": like, "unseen_label": "keep"}
                if name == "data" or separate:
                    extra = {key: value for key, value in reading.given().items() if key not in each.options}
                files[name] = _convert(each, getattr(run, name), settings, how, **extra)
    changes: dict[str, Any] = {}
    if "data" in inputs:
        paths = [run.data]
        changes |= {name: declared(Settings)[name].default for name in _OF_CONVERSION}
    if "valid" in inputs:
        changes |= {"valid": str(run.valid), "valid_labels": None}
    record = {
        "files": {name: {"options": each.options, "files": files[name]} for name, each in inputs.items()},
        "keep_data": keep,
    }
    return paths, dataclasses.replace(settings, **changes), record


def open_text(record: dict[str, Any]) -> Any:
    """Open the text input of an online run from the run's record."""
    if "inputs" not in record:
        raise wrong_setting("open_stream", "is missing; pass the function that makes the stream")
    return converters().TextSource.from_record(record)


def _inputs(paths: Paths, settings: Settings, reading: ReadingSettings) -> dict[str, _Inputs]:
    """Return the files to convert for each store that is needed: "data" for training, and "valid"."""
    given, inputs = reading.given(), {}
    groups = {"groups": True} if get_loss(settings.loss).sequences else {}
    if not all(is_trained_in_place(path) for path in paths):
        if settings.sample_weight not in (None, NONE):
            raise wrong_setting("sample_weight", "does not apply to files that are converted; use weights")
        own = {name: value for name, value in settings.given().items() if name in _OF_CONVERSION}
        inputs["data"] = _Inputs([os.fspath(local(path)) for path in paths], {**own, **groups, **given})
    valid = settings.valid
    with_data = "data" in inputs and valid is not None and kind_of(valid) == "lists"
    if valid is not None and (with_data or not is_read_in_place(valid)):
        own = {"label": settings.label, "labels": settings.valid_labels}
        own = {name: value for name, value in own.items() if value is not None}
        own |= {name: value for name, value in given.items() if name in _OF_VALID}
        inputs["valid"] = _Inputs([os.fspath(local(valid))], {**own, **groups})
    for name in given if "data" not in inputs else ():
        if not inputs or name not in _OF_VALID:
            raise wrong_setting(
                name,
                f"determines how files are converted, but {', '.join(map(str, paths))} is not converted",
                Remedy("leave {} out", Option(name)),
            )
    return inputs


def _check_before(settings: Settings) -> None:
    """Check settings and paths before a conversion, which may take hours."""
    if settings.transform != AUTO:
        parse_transforms(settings.transform)
    for name, each in declared(Settings).items():
        path = getattr(settings, name)
        is_file = "PATH" in each.check.metavar and isinstance(path, str) and path not in (BALANCED, GIVEN)
        if is_file and name != "cache" and as_url(path) is None:
            with durable.os_errors_as(InputError, path, "read"):
                os.stat(path)


@contextlib.contextmanager
def _new_folder(run: RunDir, *, force: bool, by_tune: bool) -> Iterator[None]:
    """Lock the folder of a new run; on error, remove it if it is empty, and restore the replaced run."""
    with entered(run, force=force, by_tune=by_tune):
        try:
            yield
        except BaseException:
            if [path.name for path in run.path.iterdir()] == [run.lock.name]:
                durable.remove(run.path)
                if run.replaces:
                    run.replaced.rename(run.path)
            raise


def _is_pipe(path: str) -> bool:
    return path == "-" or (os.path.exists(path) and not os.path.isfile(path))


def _facts(files: Sequence[str], known: Sequence[Any] = ()) -> list[Any]:
    """Return the name, size and hash of each file, or its entry in `known`; None for a pipe."""
    facts = []
    for path, fact in itertools.zip_longest(files, known):
        with durable.os_errors_as(InputError, path, "read"):
            facts.append(None if _is_pipe(path) else fact or encode(converters().InputFile.of(Path(path))))
    return facts


def _convert(inputs: _Inputs, out: Path, settings: Settings, how: Execution, **options: Any) -> list[Any]:
    """Convert files to the store `out`; return their names, sizes and hashes."""

    def progress(stage: str, done: int, total: int | None) -> None:
        if how.callbacks.stop():
            raise Interrupted(f"the conversion to {out.name} was stopped; the same command starts it again")
        how.callbacks.progress(stage if out.stem == "data" else f"{stage} {out.stem}", done, total)

    report = converters().convert(
        inputs.paths, out, dtype=settings.dtype, seed=settings.seed, memory=settings.memory,
        threads=how.threads, force=True, progress=progress, **inputs.options, **options,
    )  # fmt: skip
    how.callbacks.report({"event": "convert", "report": report})
    n_unknown = report.unseen_features + report.unseen_values
    warn_of_unknown_features(report.nnz, n_unknown, ", ".join(inputs.paths))
    with open_store(out) as store:
        return _facts(inputs.files, store.meta["sources"][: len(inputs.paths)])
