"""Save models by writing a new folder and renaming it; load them after checking every entry."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from streamsvm.base import durable, format
from streamsvm.base.decode import Check, Count, SchemaError, between, decode
from streamsvm.base.label_values import LABEL_DTYPES, TEXT, class_labels
from streamsvm.base.text import absolute, check_classes, check_local, format_size, printable
from streamsvm.data.class_costs import check_costs
from streamsvm.data.value_kinds import ValuesIn
from streamsvm.errors import Call, InputError, ModelError, Option, PlanError, Remedy, SettingsError
from streamsvm.model.coefficients import Coefficients, open_coef, write_coef
from streamsvm.model.doubt import Answered
from streamsvm.model.saved_files import SavedFiles, sum_of, write_array
from streamsvm.model.transform_files import load_transforms, save_transforms
from streamsvm.settings import checks
from streamsvm.transforms import TRANSFORMS, Transform, records_of

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-100, 1e100  # limits that keep the softmax far from overflow
_ATTEMPTS, _PAUSE = 20, 0.01  # attempts to read a model that is being replaced; pause in seconds
# Entries of a record that describe how its model is stored; each save sets them anew.
_STORAGE_ENTRIES = ("version", "checksum", "layout", format.STORED_DTYPE, format.SUMS, "transforms")


def save_model(
    folder: Path,
    coefficients: Coefficients,
    record: dict[str, Any],
    *,
    names: Sequence[str] | None = None,
    costs: np.ndarray | None = None,
    transforms: Sequence[Transform] | None = None,
    complete: Callable[[Path], None] | None = None,
    smallest: bool = False,
    work: Path | None = None,
) -> None:
    """Write ``model.json`` and the coefficients into `folder`, replacing an existing model.

    `coefficients`, and `costs` (float32, shape (k, k)), are in the order of ``record["classes"]``. `names`
    are the feature names. The fitted `transforms` replace the records in ``record["transforms"]``. Equal
    arguments give equal bytes. `complete` is called with the new folder before the old model is replaced, and
    may call `write_record`. `smallest` selects the layout with the fewest bytes. `work` is a temporary folder
    on the same file system. By default, NAME.aside and NAME.old next to `folder` are overwritten and deleted.
    """
    aside, old = folder.with_name(folder.name + ".aside"), folder.with_name(folder.name + ".old")
    if work is not None:
        aside, old = work / "new", work / durable.PREVIOUS
    durable.remove(aside)
    aside.mkdir()
    stored = write_coef(aside, coefficients, smallest=smallest)
    if names is not None:
        _write_json(aside / format.FEATURES, list(names))
    if costs is not None:
        write_array(aside / format.COSTS, costs)
    if coefficients.transitions is not None:
        write_array(aside / format.TRANSITIONS, coefficients.transitions)
    if transforms is not None:
        save_transforms(aside, transforms)
        stored["transforms"] = records_of(transforms)
    sums = {path.name: sum_of(path) for path in sorted(aside.iterdir())}
    write_record(aside, {"version": format.MODEL_VERSION, **record, **stored, format.SUMS: sums})
    if complete is not None:
        complete(aside)
    durable.sync_tree(aside)
    durable.remove(old)
    durable.move_into_place(aside, folder, old)
    durable.remove(old)


def write_record(folder: Path, record: dict[str, Any]) -> None:
    sealed = format.sealed({name: value for name, value in record.items() if name != "checksum"})
    durable.write_atomic(folder / format.MODEL_JSON, (json.dumps(sealed, indent=1) + "\n").encode())


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, separators=(",", ":")))


def _read_names(files: SavedFiles, record: dict[str, Any]) -> list[str] | None:
    if format.FEATURES not in files.sums:
        return None
    names: list[str] = files.json(format.FEATURES)
    if not (format.are_labels(names) and len(set(names)) == len(names) == features_of_data(record)):
        raise ModelError(
            f"{files.folder / format.FEATURES} is damaged: its names do not match the features in model.json"
        )
    return names


def _read_class_costs(files: SavedFiles, classes: list[str]) -> np.ndarray | None:
    if format.COSTS not in files.sums:
        return None
    costs = files.array(format.COSTS, (len(classes), len(classes)), np.dtype(np.float32))
    try:
        check_costs(costs, classes, str(files.folder / format.COSTS))
    except InputError as error:  # the checksum matches, so the file is forged
        raise ModelError(f"{files.folder / format.COSTS} is damaged: {error.message.problem}") from None
    return costs


def check_room(folder: Path, size: int, n_features: int, n_classes: int) -> None:
    """Raise `PlanError` if weights of `size` bytes do not fit on the disk that contains `folder`."""
    if size > (free := shutil.disk_usage(folder).free):
        hashed = Call("online", options=(Option("transform", "hash=24"),))
        raise PlanError(
            f"the weights for {n_features:,} features and {n_classes:,} classes, with their copies, take "
            f"{format_size(size)}, but the disk of {folder} has only {format_size(free)} left",
            remedy=Remedy("free some space, or hash the features to fewer columns with {}", hashed),
        )


def save_copy(
    path: str | os.PathLike[str], model: Any, *, prune: float, dtype: Literal["float16", "float32"] | None
) -> None:
    """Save a `Model` to `path`, which is a new folder or a model folder to replace; see `Model.save`."""
    prune = checks.NOT_NEGATIVE.checked("prune", prune)
    if dtype not in (None, "float16", "float32"):
        raise SettingsError(f"dtype must be float16 or float32, not {dtype!r}", setting="dtype")
    check_local(path, ModelError)
    folder = Path(os.path.realpath(path))
    coefficients = Coefficients(
        model.stored_coef, np.arange(len(model.classes_)), prune=prune,
        rounded=None if dtype is None else np.dtype(dtype),
    )  # fmt: skip
    if model.transitions_ is not None:
        transitions = model.transitions_.astype(coefficients.dtype, copy=False)
        coefficients = coefficients._replace(transitions=transitions)
    names = None if model.feature_names_in_ is None else model.feature_names_in_.tolist()
    record = {
        **{name: value for name, value in model.record.items() if name not in _STORAGE_ENTRIES},
        "n_features": model.n_features,
        "dtype": str(coefficients.dtype),
        "index_base": model.record.get("index_base"),
    }
    with durable.os_errors_as(ModelError, folder, "written"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        old = saved_record(folder).get(format.SUMS, {})
        expected = {format.MODEL_JSON, f"{format.MODEL_JSON}.tmp", *old}  # a crash may leave the .tmp file
        foreign = sorted(set(os.listdir(folder)) - expected) if folder.exists() else []
        if foreign:
            raise ModelError(f"{path} contains {foreign[0]}, which is not part of a model; use a new folder")
        with durable.temporary(folder, folder=True) as work:
            save_model(
                folder, coefficients, record, names=names, costs=model.costs,
                transforms=model.transforms, smallest=prune > 0 or dtype is not None, work=work,
            )  # fmt: skip


def read_model(path: Path) -> dict[str, Any]:
    """Read the arguments of `streamsvm.Model` from a folder; raise the errors of `load_model`."""
    check_local(path, ModelError)
    for _ in range(_ATTEMPTS):
        before = _identities(path)
        try:
            return _read(path)
        except ModelError:
            if any(before) and _identities(path) == before:  # no file: a replacement may be in progress
                raise
            time.sleep(_PAUSE)
    return _read(path)


def _identities(path: Path) -> list[Any]:
    return [durable.file_identity(folder / format.MODEL_JSON) for folder in (path, path / format.MODEL)]


def features_of_data(record: dict[str, Any]) -> int:
    n_features = record.get("n_features_in")
    return record["n_features"] if n_features is None else n_features


def model_folder(path: Path) -> Path:
    return path if (path / format.MODEL_JSON).exists() else path / format.MODEL


def saved_record(folder: Path) -> dict[str, Any]:
    try:
        return format.read_sealed(folder / format.MODEL_JSON, ModelError, follow=True)
    except (OSError, ModelError):
        return {}


def _read(path: Path) -> dict[str, Any]:
    folder = model_folder(path)
    header = folder / format.MODEL_JSON
    try:
        record = format.read_sealed(header, ModelError, follow=True)
        if record["version"] != format.MODEL_VERSION:
            raise ModelError(
                f"{header} has model format {record['version']!r:.40}, but this version of streamsvm reads "
                f"format {format.MODEL_VERSION}; use the version that wrote the model, or train it again"
            )
        decoded = decode(_ModelRecord, record)
        for transform in decoded.transforms:
            if transform["name"] not in TRANSFORMS:
                name = printable(str(transform["name"]))
                raise ModelError(
                    f"{header} has the transform {name}, which this version does not know; update streamsvm"
                )
        files, classes = SavedFiles(folder, decoded.crc32), decoded.classes
        transforms = load_transforms(folder, record, features_of_data(record), record["n_features"])
        check_classes(classes, header, ModelError)
        coef = open_coef(files, record)
        names = _read_names(files, record)
        costs = _read_class_costs(files, classes)
        transitions = None
        if format.TRANSITIONS in files.sums:
            transitions = files.array(format.TRANSITIONS, (len(classes), len(classes)), coef.dtype)
    except (FileNotFoundError, NotADirectoryError) as error:
        older = Path(f"{absolute(path)}.old")
        if (older / format.REPLACED).exists():
            problem = f"{path} has no finished model yet; the run that it replaces is in {older}"
            raise ModelError(problem) from None
        if (path / format.RUN_JSON).exists():
            remedy = Remedy("finish the run with {}", Call("resume", path))
            raise ModelError(f"{path} has no finished model yet", remedy=remedy) from None
        if not path.exists():
            raise ModelError(f"{path} does not exist; check the path") from None
        raise ModelError(
            f"there is no model at {error.filename}; specify a run directory or a model folder"
        ) from None
    except SchemaError as error:  # the checksum matches, so the file is forged
        raise ModelError(f"{header} is damaged: {error}") from None
    except (ValueError, RecursionError):  # another JSON file is forged
        raise ModelError(f"{folder} is damaged: one of its files is not valid JSON") from None
    except (KeyError, TypeError):
        raise ModelError(f"{header} is damaged: an entry is missing or has the wrong type") from None
    except OSError as error:
        raise ModelError(f"{error.filename or folder} cannot be read: {durable.reason(error)}") from None
    return {
        "coef": coef, "record": record, "feature_names": names, "transforms": transforms, "costs": costs,
        "transitions": transitions,
    }  # fmt: skip


def _are_classes(names: list[str]) -> bool:
    return bool(names) and format.are_labels(names)


@dataclasses.dataclass
class _ModelRecord:
    """Entries of ``model.json`` that other code relies on."""

    classes: Annotated[list[str], Check(_are_classes, "a list of labels")]
    n_features: Count
    dtype: Literal["float32", "float64"]
    index_base: Literal[0, 1] | None
    crc32: dict[str, int]
    n_features_in: Count | None = None
    transforms: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    label_dtype: Annotated[str, Check(LABEL_DTYPES.__contains__, "a type of labels")] = TEXT
    class_values: list[Any] | None = None
    values_in: ValuesIn | None = None
    multilabel: bool = False
    label: str | None = None
    labels_as: Literal["numbers", "text"] = "numbers"
    probability_temperature: Annotated[float, between(MIN_TEMPERATURE, MAX_TEMPERATURE)] | None = None
    answered: Answered | None = None

    def __post_init__(self) -> None:
        class_labels(vars(self))
