"""Choose default transforms, and warn if the scales of features are very different.

The automatic C is one over the mean squared distance of the rows from their mean. A single feature with
values 1,000 times as large as usual dominates this distance, which makes C far too small for all others.
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

TABLE_DEFAULT = "center,scale=std,bias"
COUNTS_DEFAULT = "normalize=1e4,log1p,bias"
TEXT_DEFAULT = "log1p,idf,l2,bias"  # n-gram counts without other columns
OTHER_DEFAULT = "bias"
COUNT_TRANSFORMS = {"normalize", "log1p"}
_LARGEST_LOGARITHM = np.log1p(1e6)  # largest log1p of counts normalised to a sum of 1e6
# Transforms that equalise scales or show that the user has chosen the scales.
_SCALING_TRANSFORMS = {"scale", "binarize", "log1p", "clip"}
_MAX_RATIO = 1e3  # largest ratio between the scale of a feature and the usual scale, in either direction
_SMALL_FRACTION = 20  # warn of small scales only if 1/20 of the features have them; rare words always do
_SHOWN_FEATURES = 3
_DENSE_ROWS = 2**13  # approximate number of rows that are examined in a piece of dense rows
_MAX_FEATURES = 2**24  # the features of wider data are words or hashes, which have similar scales


def with_transform(settings: Settings, raw: Store) -> Settings:
    """Return the settings, with the default transform for the data if no transform is set.

    Raises `SettingsError` if the transforms are for counts, but AnnData values look like logarithms.
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
            problem = f"{settings.transform} is for counts, but the values of {raw.path} look like logarithms"
            remedy = Remedy("read a layer with counts, omit {}, or put counts=no first", Option("transform"))
            raise wrong_setting("transform", problem, remedy)
    return settings if settings.transform is not None else dataclasses.replace(settings, transform=default)


def counts_n_grams(encoding: Mapping[str, Any]) -> bool:
    """Return True if, according to the encoding record, all features are n-gram counts."""
    return not encoding.get("columns") and "text" in encoding and encoding["text"].get("norm", "l2") is None


def _first_values(raw: Store, settings: Settings) -> np.ndarray:
    """Return the values of the training rows in the first piece of the store that contains any."""
    for begin, rows in raw.pieces(SAMPLE_VALUES, 0, raw.n_rows):
        used = is_trained_on(raw, settings, begin, begin + rows.n_rows)
        if used.any():
            return rows.data[np.repeat(used, np.diff(rows.indptr))]
    return np.empty(0)


def watch_scales(transforms: Sequence[Transform], data: Any) -> Iterator[tuple[int, Rows]]:
    """Yield the sample of `data`, a `RawData`, and then warn if the scales of features differ too much.

    The scale of a feature is its largest absolute value, and the usual scale is the median over the features
    that occur. If no scale exceeds 1,000 times the median, the 5% quantile over the features that occur in at
    least half of the rows is used instead, if it is lower. The `ScaleWarning` names the features whose scales
    are farthest from the usual scale. Nothing is checked if one of `transforms` equalises scales.
    """
    checks = data.n_features <= _MAX_FEATURES and not _SCALING_TRANSFORMS & {each.name for each in transforms}
    largest = np.zeros(data.n_features if checks else 0)
    counts, n_rows = np.zeros(len(largest), np.int32), 0
    for first, rows in data.sample:
        if checks:
            if rows.dense:
                matrix = rows.data.reshape(rows.n_rows, len(largest))[:: rows.n_rows // _DENSE_ROWS | 1]
                for extremes in (matrix.max(axis=0, initial=0), -matrix.min(axis=0, initial=0)):
                    np.maximum(largest, extremes, out=largest)
                counts += np.count_nonzero(matrix, axis=0).astype(np.int32)
                n_rows += len(matrix)
            else:
                np.maximum.at(largest, rows.features, np.abs(rows.data).astype(np.float64))
                np.add.at(counts, rows.features, np.int32(1))  # 30 times as fast as with an int increment
                n_rows += rows.n_rows
        yield first, rows
    occurs = np.flatnonzero(largest)
    largest = largest[occurs]
    usual = np.sort(largest)[(len(occurs) - 1) // 2] if len(occurs) else 0.0
    common = np.sort(largest[2 * counts[occurs] >= n_rows])  # rare genes and words have small values
    if len(common) and largest.max() <= _MAX_RATIO * usual:
        usual = min(usual, common[len(common) // _SMALL_FRACTION])
    extreme, small = largest > _MAX_RATIO * usual, largest * _MAX_RATIO < usual
    if np.count_nonzero(small) * _SMALL_FRACTION >= len(occurs):
        extreme |= small
    at = np.flatnonzero(extreme)
    if not len(at):
        return
    at = at[np.argsort(-np.abs(np.log(largest[at] / usual)), kind="stable")]
    names = [
        data.names[j] if data.names is not None else f"feature {j + (data.index_base or 0)}"
        for j in occurs[at[:_SHOWN_FEATURES]]
    ]
    shown = ", ".join(f"{name} (up to {value:.3g})" for name, value in zip(names, largest[at], strict=False))
    others = f" and {len(at) - _SHOWN_FEATURES:,} more" if len(at) > _SHOWN_FEATURES else ""
    problem = (
        f"{data.where}: the scales of features differ by a factor of more than {_MAX_RATIO:,.0f}: "
        f"{shown}{others}; the usual largest value is about {usual:.3g}"
    )
    scaling = "scale=std,bias" if data.numbers is None else TABLE_DEFAULT
    if transforms and isinstance(outputs := transforms[-1].record().get("outputs"), int):
        scaling = f"scale=std,fourier={outputs}"
    warn(ScaleWarning(problem, remedy=Remedy("scale the features with {}", Option("transform", scaling))))
