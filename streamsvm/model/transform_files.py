"""Files of the arrays of transforms, beside the ``model.json`` or ``run.json`` with their checksums."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.errors import ModelError
from streamsvm.model.coefficients import array_crc, map_array, write_array
from streamsvm.transforms import Transform, features_after, records_of, transforms_from

_CRC_ENTRY = "array_crc32"  # entry of a transform's record


def saved_records(transforms: Sequence[Transform]) -> list[dict[str, Any]]:
    """Return the records for `load_transforms`, with the checksums of the arrays."""
    records = records_of(transforms)
    for record, transform in zip(records, transforms, strict=True):
        if transform.array is not None:
            record[_CRC_ENTRY] = array_crc(transform.array)
    return records


def save_transforms(folder: Path, transforms: Sequence[Transform]) -> list[dict[str, Any]]:
    """Write the arrays of transforms into a folder; return their `saved_records`."""
    for number, transform in enumerate(transforms):
        if transform.array is not None:
            write_array(folder / format.transform_array(number), transform.array)
    return saved_records(transforms)


def load_transforms(
    folder: Path, records: Sequence[dict[str, Any]], n_features_in: int, n_features: int
) -> list[Transform]:
    """Make the transforms of records, with their arrays as read-only maps of the files in a folder.

    Raises
    ------
    ModelError
        If an array is damaged, or the records are not those of transforms that make `n_features` features of
        `n_features_in`.
    KeyError, TypeError
        If an entry of a record is missing, or has the wrong type.
    OSError
        If a file cannot be read.
    """
    checksums = [record.get(_CRC_ENTRY) for record in records]
    parameters = [{name: value for name, value in record.items() if name != _CRC_ENTRY} for record in records]

    def read(number: int, length: int, dtype: np.dtype) -> np.ndarray:
        path = folder / format.transform_array(number)
        try:
            return map_array(path, (length,), dtype, checksums[number])
        except FileNotFoundError:
            raise ModelError(f"{path} is missing: its folder is damaged") from None

    try:
        transforms = transforms_from(parameters, read)
        if features_after(transforms, n_features_in) != n_features:
            raise ValueError("they give another number of features")
    except ValueError as error:
        raise ModelError(f"{folder} is damaged: its transforms are not valid: {error}") from None
    return transforms
