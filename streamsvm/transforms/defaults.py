"""Default transforms of the data, and a warning of features of very different scales.

C auto is one over the mean squared distance of the rows from their mean. A feature whose values are a
thousand times those of the others makes up all of it, so that C is far too small for the others to count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.data.hold_out import is_trained_on
from streamsvm.data.rows import Rows
from streamsvm.data.value_kinds import SAMPLE_VALUES, describe_values
from streamsvm.errors import Option, Remedy, ScaleWarning, warn, wrong_setting
from streamsvm.settings.fit import NONE, Settings
from streamsvm.store.store import Store
from streamsvm.transforms import parse_transforms
from streamsvm.transforms.base import Transform

TABLE_DEFAULT = "center,scale=std,bias"  # with columns of numbers
COUNTS_DEFAULT = "normalize=1e4,log1p,bias"  # of AnnData
TEXT_DEFAULT = "log1p,idf,l2,bias"  # of counts of n-grams, without other columns
OTHER_DEFAULT = "bias"
COUNT_TRANSFORMS = {"normalize", "log1p"}
_LARGEST_LOGARITHM = np.log1p(1e6)  # of rows that were normalised to at most a million
# Transforms after which scales are alike, or as the user wants.
_SCALING_TRANSFORMS = {"scale", "binarize", "log1p", "clip"}
_MAX_RATIO = 1e3  # of a feature's scale and the usual one, in either direction
_SMALL_FRACTION = 20  # small scales count only in 1/20 of the features or more: rare words have small ones
_SHOWN_FEATURES = 3  # features that the warning names
_DENSE_ROWS = 2**13  # that are looked at, or up to twice as many, if rows are dense
_MAX_FEATURES = 2**24  # more are words or hashes, of one scale


def with_transform(settings: Settings, raw: Store) -> Settings:
    """Return the settings with the default transform of the data, if they name none.

    Raises `SettingsError` for transforms of counts if the values of AnnData seem to be logarithms already.
    """
    encoding = raw.meta.get("encoding") or {}
    numbers = any(each["type"] == "number" for each in encoding.get("columns", ()))
    default = TABLE_DEFAULT if numbers else TEXT_DEFAULT if counts_n_grams(encoding) else OTHER_DEFAULT
    if raw.meta.get(format.ANNDATA) and settings.transform != NONE:
        values = _first_values(raw, settings)
        seen, is_signed = describe_values(values), values.min(initial=0) < 0
        if seen.integers and seen.largest > 1 and not is_signed:
            default = COUNTS_DEFAULT
        are_logarithms = not seen.integers and seen.largest < _LARGEST_LOGARITHM and not is_signed
        steps = {each.name for each in parse_transforms(settings.transform)}
        if are_logarithms and steps & COUNT_TRANSFORMS and "counts" not in steps:
            problem = f"{settings.transform} is for counts, and the values of {raw.path} look like logarithms"
            remedy = Remedy("name their layer, leave {} out, or begin it with counts=no", Option("transform"))
            raise wrong_setting("transform", problem, remedy)
    return settings if settings.transform is not None else dataclasses.replace(settings, transform=default)


def counts_n_grams(encoding: Mapping[str, Any]) -> bool:
    """Return True if all features are counts of n-grams, by the record of their encoding."""
    return not encoding.get("columns") and "text" in encoding and encoding["text"].get("norm", "l2") is None


def _first_values(raw: Store, settings: Settings) -> np.ndarray:
    """Return values of the first rows that are trained on."""
    for begin, rows in raw.pieces(SAMPLE_VALUES, 0, raw.n_rows):
        used = is_trained_on(raw, settings, begin, begin + rows.n_rows)
        if used.any():
            return rows.data[np.repeat(used, np.diff(rows.indptr))]
    return np.empty(0)


def watch_scales(transforms: Sequence[Transform], data: Any) -> Iterator[tuple[int, Rows]]:
    """Yield the sample of `data`; warn at its end if the values of some features are far larger.

    There is no warning if one of `transforms` makes the scales alike. `data` is a
    `streamsvm.transforms.fitting.RawData`.

    Warns
    -----
    ScaleWarning
        Names the features whose largest absolute values are farthest from the median of all; or, if none is
        far from it, from the smallest of those that at least every second row has.
    """
    looks = data.n_features <= _MAX_FEATURES and not _SCALING_TRANSFORMS & {each.name for each in transforms}
    largest = np.zeros(data.n_features if looks else 0)
    times, n_rows = np.zeros(len(largest), np.int32), 0
    for first, rows in data.sample:
        if looks:
            if rows.dense:
                matrix = rows.data.reshape(rows.n_rows, len(largest))[:: rows.n_rows // _DENSE_ROWS | 1]
                for extremes in (matrix.max(axis=0, initial=0), -matrix.min(axis=0, initial=0)):
                    np.maximum(largest, extremes, out=largest)
                times += np.count_nonzero(matrix, axis=0).astype(np.int32)
                n_rows += len(matrix)
            else:
                np.maximum.at(largest, rows.features, np.abs(rows.data).astype(np.float64))
                np.add.at(times, rows.features, np.int32(1))  # of the same type, which is 30 times as fast
                n_rows += rows.n_rows
        yield first, rows
    used = np.flatnonzero(largest)
    largest = largest[used]
    usual = np.sort(largest)[(len(used) - 1) // 2] if len(used) else 0.0
    common = np.sort(largest[2 * times[used] >= n_rows])  # rare genes and words have small values, too
    if len(common) and largest.max() <= _MAX_RATIO * usual:
        usual = min(usual, common[len(common) // _SMALL_FRACTION])
    extreme, small = largest > _MAX_RATIO * usual, largest * _MAX_RATIO < usual
    if np.count_nonzero(small) * _SMALL_FRACTION >= len(used):
        extreme |= small
    at = np.flatnonzero(extreme)
    if not len(at):
        return
    at = at[np.argsort(-np.abs(np.log(largest[at] / usual)), kind="stable")]
    names = [
        data.names[j] if data.names is not None else f"feature {j + (data.index_base or 0)}"
        for j in used[at[:_SHOWN_FEATURES]]
    ]
    shown = ", ".join(f"{name} (up to {value:.3g})" for name, value in zip(names, largest[at], strict=False))
    others = f" and {len(at) - _SHOWN_FEATURES:,} more" if len(at) > _SHOWN_FEATURES else ""
    problem = (
        f"{data.where}: features differ in scale by more than {_MAX_RATIO:,.0f} times, and the largest hide "
        f"the others: {shown}{others}, where others go up to {usual:.3g} or so"
    )
    scaling = "scale=std,bias" if data.numbers is None else TABLE_DEFAULT
    if transforms and isinstance(outputs := transforms[-1].record().get("outputs"), int):
        scaling = f"scale=std,fourier={outputs}"
    warn(ScaleWarning(problem, remedy=Remedy("scale them, as with {}", Option("transform", scaling))))
