"""Registry of transforms, with functions that parse, store and apply them."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, Remedy, SettingsError
from streamsvm.settings.fit import AUTO, NONE
from streamsvm.transforms.base import RowFault, Transform

TRANSFORMS = {
    "counts": ("streamsvm.transforms.counts", "Counts"),
    "normalize": ("streamsvm.transforms.row_scaling", "Normalize"),
    "log1p": ("streamsvm.transforms.values", "Log1p"),
    "binarize": ("streamsvm.transforms.values", "Binarize"),
    "idf": ("streamsvm.transforms.feature_weights", "InverseDocumentFrequency"),
    "df": ("streamsvm.transforms.feature_weights", "DocumentFrequency"),
    "center": ("streamsvm.transforms.center", "Center"),
    "scale": ("streamsvm.transforms.feature_weights", "Scale"),
    "clip": ("streamsvm.transforms.values", "Clip"),
    "select": ("streamsvm.transforms.selection", "Select"),
    "hash": ("streamsvm.transforms.hashing", "Hashing"),
    "l2": ("streamsvm.transforms.row_scaling", "L2"),
    "bias": ("streamsvm.transforms.bias", "Bias"),
    "fourier": ("streamsvm.transforms.fourier", "Fourier"),
}
MAX_TRANSFORMS = 16


def _transform_class(name: str) -> type[Transform]:
    module, class_name = TRANSFORMS[name]
    transform_class: type[Transform] = getattr(importlib.import_module(module), class_name)
    return transform_class


def parse_transforms(text: str | None) -> list[Transform]:
    """Parse a setting such as ``"normalize=1e4,log1p,scale=std"`` into unfitted transforms.

    Raises `SettingsError` if a name, a value or the order of the transforms is invalid.
    """
    transforms = []
    for step in [] if text in (None, NONE) else text.split(","):
        name, equals, value = step.strip().partition("=")
        if name not in TRANSFORMS:
            near = difflib.get_close_matches(name, TRANSFORMS, 1)
            hint = f"did you mean {near[0]}?" if near else f"the transforms are {', '.join(TRANSFORMS)}"
            hint = "auto is only for fit and tune, and must be the only transform" if name == AUTO else hint
            raise SettingsError(f"there is no transform {name!r}; {hint}", setting="transform")
        try:
            transforms.append(_transform_class(name).from_text(value if equals else None))
        except ValueError as error:
            raise SettingsError(f"transform: {step.strip()!r} must be {error}", setting="transform") from None
    _check_order(transforms)
    return transforms


def _check_order(transforms: Sequence[Transform]) -> None:
    names = [transform.name for transform in transforms]
    problem = None
    if len(transforms) > MAX_TRANSFORMS:
        problem = f"at most {MAX_TRANSFORMS} transforms are allowed, but {len(transforms)} are set"
    elif "fourier" in names and (names[-1] != "fourier" or {"bias", "fourier"} & set(names[:-1])):
        problem = "fourier must be last, and cannot be combined with bias"
    elif "bias" in names[:-1]:
        problem = f"bias must be last, because {names[names.index('bias') + 1]} would change the constant"
    elif "counts" in names[1:]:
        problem = "counts must be first, because it checks the original data"
    elif "hash" in names:
        at = names.index("hash")
        before = next((each.name for each in transforms[:at] if each.by_feature), None)
        if before is not None:
            problem = f"hash must come before {before}, because hash needs the original features"
        elif "hash" in names[at + 1 :]:
            problem = "hash can be applied only once"
    if problem is not None:
        raise SettingsError(f"transform: {problem}", setting="transform")


def transforms_from(
    records: Sequence[dict[str, Any]], read: Callable[[int, int, np.dtype], np.ndarray] | None = None
) -> list[Transform]:
    """Create transforms from the records in a model, in the order in which they are applied.

    ``read(number, length, dtype)`` must return the array of transform `number`. Without `read`, transforms
    that need an array cannot be applied. Raises `ValueError`, `TypeError` or `KeyError` if a record or an
    array is invalid.
    """
    transforms = []
    for number, record in enumerate(records):
        parameters = dict(record)
        transform_class = _transform_class(parameters.pop("name"))
        transform = transform_class(**parameters)
        if read is not None and transform.array_dtype is not None:
            transform = transform.with_array(read(number, transform.array_length, transform.array_dtype))
        transforms.append(transform)
    return transforms


def records_of(transforms: Sequence[Transform]) -> list[dict[str, Any]]:
    """Return the records of the transforms, without their arrays; `transforms_from` is the inverse."""
    return [{"name": transform.name, **transform.record()} for transform in transforms]


def features_after(transforms: Sequence[Transform], n_features: int | None) -> int | None:
    """Return the number of features after the transforms, given the number before; None if it is unknown.

    Raises `ValueError` if the transforms were fitted to a different number of features.
    """
    for transform in transforms:
        n_features = transform.n_features(n_features)
    return n_features


def dense_after(transforms: Sequence[Transform], dense: bool) -> bool:
    """Return whether rows are dense after the transforms, given whether they were dense before."""
    for transform in transforms:
        dense = dense if transform.dense is None else transform.dense
    return dense


def names_after(transforms: Sequence[Transform], names: Sequence[str] | None) -> Sequence[str] | None:
    """Return the feature names after the transforms, given the names before."""
    for transform in transforms:
        names = transform.feature_names(names)
    return names


def apply(transforms: Sequence[Transform], rows: Rows, *, where: str = "the data", first: int = 0) -> Rows:
    """Return the transformed rows with their new squared norms; `rows` is not modified.

    Raises `InputError` if a transform refuses a row, or if a transformed row is not finite. The message
    begins with `where` and contains the 1-based row number. If `rows` does not store row numbers, they are
    counted from `first`, which is 0-based.
    """
    if not transforms:
        return rows
    numbers = rows.numbers if len(rows.numbers) else range(first, first + rows.n_rows)
    for transform in transforms:
        try:
            with np.errstate(over="ignore"):
                rows = transform(rows)
        except RowFault as fault:
            raise InputError(
                f"{where}: row {numbers[fault.row] + 1} {fault.problem}", remedy=fault.remedy
            ) from None
    from streamsvm.transforms.row_scaling import squared_norms  # imported late because it loads the compiler

    rows = rows._replace(norm2=squared_norms(rows))
    finite = np.isfinite(rows.norm2)
    if not finite.all():
        raise InputError(
            f"{where}: row {numbers[int(np.argmin(finite))] + 1} is not finite after "
            f"{', '.join(transform.name for transform in transforms)}",
            remedy=Remedy("limit the values with the transform clip, or scale the data"),
        )
    return rows
