"""Transforms in a model or a run, with files of their arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.errors import ModelError
from streamsvm.model.saved_files import SavedFiles, sum_of_array, write_array
from streamsvm.transforms import Transform, features_after, transforms_from


def transform_sums(transforms: Sequence[Transform]) -> dict[str, int]:
    """Return the checksums of the files that `save_transforms` writes, by name."""
    arrays = {format.transform_array(number): each.array for number, each in enumerate(transforms)}
    return {name: sum_of_array(array) for name, array in arrays.items() if array is not None}


def save_transforms(folder: Path, transforms: Sequence[Transform]) -> None:
    """Write the arrays of transforms into a folder."""
    for number, transform in enumerate(transforms):
        if transform.array is not None:
            write_array(folder / format.transform_array(number), transform.array)


def load_transforms(
    folder: Path, record: dict[str, Any], n_features_in: int, n_features: int
) -> tuple[Transform, ...]:
    """Make the transforms in the record of a model or run, with their arrays as maps of files in its folder.

    Raises
    ------
    ModelError
        If an array is damaged, or the entries are not those of transforms that make `n_features` features of
        `n_features_in`.
    KeyError, TypeError
        If an entry is missing, or has the wrong type.
    OSError
        If a file cannot be read.
    """

    def read(number: int, length: int, dtype: np.dtype) -> np.ndarray:
        return SavedFiles(folder, record[format.SUMS]).array(format.transform_array(number), (length,), dtype)

    try:
        transforms = transforms_from(record.get("transforms", []), read)
        if features_after(transforms, n_features_in) != n_features:
            raise ValueError("they give another number of features")
    except ValueError as error:
        raise ModelError(f"{folder} is damaged: its transforms are not valid: {error}") from None
    return tuple(transforms)
