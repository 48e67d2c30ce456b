"""Write and check files whose lengths and checksums are recorded in a manifest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np

from streamsvm.base import durable
from streamsvm.base.decode import Count
from streamsvm.errors import RunError

_PIECE_BYTES = 2**20


class FileSum(NamedTuple):
    """Length of a file in bytes, and its CRC-32C."""

    length: Count
    crc32c: Count

    def check(self, path: Path) -> None:
        """Raise `RunError` if a file does not have this length and CRC, or `OSError` if it cannot be read."""
        crc = length = 0
        with durable.named(path), durable.open_file(path) as file:
            while piece := file.read(_PIECE_BYTES):
                crc, length = google_crc32c.extend(crc, piece), length + len(piece)
        if length < self.length:
            raise RunError(f"{path} is truncated: {length:,} of {self.length:,} bytes")
        if (length, crc) != self:
            raise RunError(f"{path} is damaged: its checksum does not match")


def write_summed(path: Path, arrays: Iterable[np.ndarray]) -> FileSum:
    """Write contiguous arrays to a new file without syncing it; delete the file if writing fails."""
    crc = length = 0
    with durable.named(path), durable.open_file(path, "wb", buffering=_PIECE_BYTES) as file:
        try:
            for array in arrays:
                content = array.reshape(-1).view(np.uint8)
                for begin in range(0, len(content), _PIECE_BYTES):
                    piece = content[begin : begin + _PIECE_BYTES].tobytes()
                    file.write(piece)
                    crc, length = google_crc32c.extend(crc, piece), length + len(piece)
            file.flush()
        except OSError:  # the disk may be full
            path.unlink()
            raise
    return FileSum(length, crc)


def mapped(path: Path) -> np.ndarray:
    with durable.named(path), durable.open_file(path) as file:
        length = os.fstat(file.fileno()).st_size  # an empty file cannot be mapped
        return np.asarray(np.memmap(file, np.uint8, "r")) if length else np.zeros(0, np.uint8)
