"""Save and load the transforms of a model or run, with a file for each array."""

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
    """Return the checksum of each file that `save_transforms` writes, by file name."""
    arrays = {format.transform_array(number): each.array for number, each in enumerate(transforms)}
    return {name: sum_of_array(array) for name, array in arrays.items() if array is not None}


def save_transforms(folder: Path, transforms: Sequence[Transform]) -> None:
    for number, transform in enumerate(transforms):
        if transform.array is not None:
            write_array(folder / format.transform_array(number), transform.array)


def load_transforms(
    folder: Path, record: dict[str, Any], n_features_in: int, n_features: int
) -> tuple[Transform, ...]:
    """Load the transforms of a model or run from its record; their arrays are memory-mapped.

    Raises `ModelError` if an array is damaged, or if the transforms do not turn `n_features_in` features into
    `n_features`. Raises `KeyError` or `TypeError` if an entry is missing or has the wrong type, and `OSError`
    if a file cannot be read.
    """

    def read(number: int, length: int, dtype: np.dtype) -> np.ndarray:
        return SavedFiles(folder, record[format.SUMS]).array(format.transform_array(number), (length,), dtype)

    try:
        transforms = transforms_from(record.get("transforms", []), read)
        if features_after(transforms, n_features_in) != n_features:
            raise ValueError(f"they do not produce {n_features} features")
    except ValueError as error:
        raise ModelError(f"{folder} is damaged: its transforms are not valid: {error}") from None
    return tuple(transforms)
