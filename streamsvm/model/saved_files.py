"""Write NumPy arrays; read arrays and JSON files after verifying their checksums."""

from __future__ import annotations

import io
import mmap
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from streamsvm.base import durable
from streamsvm.errors import ModelError

_PIECE_SIZE = 2**20
_MAX_HEADER = 2**14


class SavedFiles(NamedTuple):
    """Files in a folder; the checksum of a file is verified before the file is read.

    The methods raise `ModelError` if a file is damaged, `KeyError` if it has no checksum, and `OSError` if it
    cannot be read.
    """

    folder: Path
    sums: Mapping[str, int]  # CRC-32 of each file, by name

    def json(self, name: str) -> Any:
        return durable.read_record(self._checked(name), follow=True)

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Memory-map an array read-only; -1 in `shape` allows any length."""
        path = self._checked(name)
        with durable.named(path), warnings.catch_warnings(action="ignore"):
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False, max_header_size=_MAX_HEADER)
            except Exception as error:  # parsing the header as Python can fail in many ways
                if isinstance(error, OSError) and error.errno:
                    raise
                array = None
        if not (
            isinstance(array, np.memmap)
            and (array.dtype, array.ndim) == (dtype, len(shape))
            and array.flags.c_contiguous
            and all(expected in (-1, n) for expected, n in zip(shape, array.shape, strict=True))
        ):
            raise ModelError(f"{path} is damaged: it is not an array of the expected type and shape")
        mapped: Any = array.base
        mapped.madvise(mmap.MADV_RANDOM)
        return np.asarray(array)

    def _checked(self, name: str) -> Path:
        path, crc = self.folder / name, self.sums[name]
        try:
            is_whole = sum_of(path) == crc
        except FileNotFoundError:
            raise ModelError(f"{path} is missing: its folder is damaged") from None
        if not is_whole:
            raise ModelError(f"{path} is damaged: its checksum does not match")
        return path


def sum_of(path: Path) -> int:
    crc = 0
    with durable.open_file(path, follow=True) as file:
        while piece := file.read(_PIECE_SIZE):
            crc = zlib.crc32(piece, crc)
    return crc


def sum_of_array(array: np.ndarray) -> int:
    """Return the CRC-32 of the file that `write_array` writes."""
    header = io.BytesIO()
    write_header(header, array.dtype, array.shape)
    return zlib.crc32(np.ascontiguousarray(array).data, zlib.crc32(header.getvalue()))


def write_array(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        write_header(file, array.dtype, array.shape)
        file.write(np.ascontiguousarray(array).data)


def write_header(file: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, header)
