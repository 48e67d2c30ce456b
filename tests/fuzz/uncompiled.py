"""The parser's kernels as plain Python, so that an explorer sees which branches a text takes.

Their numbers are not to be trusted: compiled code rounds and wraps as its types say, Python does not.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from types import ModuleType
from typing import Any
from unittest import mock

import numba
import numpy as np

_PACKAGE = "streamsvm_converters.libsvm"


class _ByteVectors(ModuleType):
    """The functions of `byte_vectors` in Python."""

    SPAN, MARGIN = 32, 40

    @staticmethod
    def load_word(text: bytearray, at: int) -> np.uint64:
        return np.uint64(int.from_bytes(text[at : at + 8], "little"))

    @staticmethod
    def non_digits(text: bytearray, at: int) -> np.uint32:
        return np.uint32(sum(not 48 <= byte <= 57 and 1 << i for i, byte in enumerate(text[at : at + 32])))

    @staticmethod
    def first_bit(mask: Any) -> int:
        mask = int(mask)
        return (mask & -mask).bit_length() - 1 if mask else 32


def _as_it_is(**options: Any) -> Any:
    return lambda function: function


def load_kernels() -> dict[str, ModuleType]:
    """Return second copies of the modules of kernels, whose functions are not compiled."""
    copies: dict[str, ModuleType] = {}
    byte_vectors = _ByteVectors(f"{_PACKAGE}.byte_vectors")
    with (
        mock.patch.object(numba, "njit", _as_it_is),
        mock.patch.dict(sys.modules, {byte_vectors.__name__: byte_vectors}),
    ):
        for name in ("numbers", "lines", "rows"):  # each imports the ones before it
            spec = importlib.util.find_spec(f"{_PACKAGE}.{name}")
            assert spec is not None
            assert spec.loader is not None
            copies[name] = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(copies[name])
    return copies


def parse(kernels: dict[str, ModuleType], text: bytes, fix: bool, dtype: str, lists: bool = False) -> None:
    """Run the kernels over a text, for the branches they take alone."""
    buffer = bytearray(text + b"\n" + bytes(64))
    end, rows, values = len(text) + 1, len(text) + 1, len(text) + 1
    ints, floats = np.zeros(values, np.int64), np.zeros(values)
    lines, compact = kernels["lines"], kernels["rows"].compact
    columns = {name: np.zeros(rows, np.int64) for name in lines.Parsed._fields}
    out = lines.Parsed(**columns | {"indices": ints, "values": floats})
    too_large = 2.0**128 - 2.0**103 if dtype == "float32" else np.inf
    with np.errstate(all="ignore"), contextlib.suppress(OverflowError):
        _, _, n_rows, _ = lines.parse(buffer, 0, end, 0, too_large, fix, lists, False, out)
        kernels["rows"].repair(out, n_rows, too_large)
        data, indices, indptr = np.zeros(values), np.zeros(values, np.int64), np.zeros(rows + 1, np.int64)
        compact(out, n_rows, 0, 50, data, indices, indptr, np.zeros(rows))
