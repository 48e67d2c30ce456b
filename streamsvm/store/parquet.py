"""Parquet files in batches of few rows: what their metadata say about the memory that reading takes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

_INTEGERS, _BINARY, _STRUCT = (4, 5, 6), 8, 12  # types in the compact protocol of Thrift


def open_parquet(file: Any, dictionaries: Collection[str] = ()) -> Any:
    """Open a file or path to be read a page at a time; row groups may be as large as the file.

    Texts of the columns `dictionaries` are read as dictionaries: a page of a few bytes may repeat a long text
    thousands of times.
    """
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(
        file, pre_buffer=False, buffer_size=2**20, read_dictionary=list(dictionaries)
    )


def row_bytes(metadata: Any, names: Collection[str]) -> int:
    """Return the bytes of a row of some columns in memory: the mean of the row group where it is largest."""
    most = 1
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        parts = [chunk for _, chunk in _chunks(group, names)]
        size = sum(max(part.total_uncompressed_size, 8 * part.num_values) for part in parts)
        most = max(most, size // max(1, group.num_rows))
    return most


def largest_page(file: BinaryIO, metadata: Any, names: Collection[str], least: int) -> tuple[int, str]:
    """Return the bytes of the largest page of some columns, decompressed, and its column.

    Only column chunks of more than `least` bytes are searched. A page whose header cannot be read ends the
    search of its chunk; pyarrow reports it later.
    """
    found = 0, ""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for name, chunk in _chunks(group, names):
            if chunk.total_uncompressed_size > least:
                with contextlib.suppress(IndexError, ValueError, RecursionError):
                    for size in _page_sizes(file, chunk):
                        found = max(found, (size, name))
    return found


def _chunks(group: Any, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the column chunks of some columns in a row group, with the names of the columns."""
    for chunk in map(group.column, range(group.num_columns)):
        path = chunk.path_in_schema
        name = path if path in names else path.rsplit(".", 2)[0]  # of a list, ".list.element" follows
        if name in names:
            yield name, chunk


def _page_sizes(file: BinaryIO, chunk: Any) -> Iterator[int]:
    """Yield the decompressed bytes of each page of a column chunk."""
    file.seek(min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset))))
    end = file.tell() + chunk.total_compressed_size
    while file.tell() < end:
        _, size, stored, *_ = _header_numbers(file)
        yield size
        file.seek(stored, os.SEEK_CUR)


def _header_numbers(file: BinaryIO) -> list[int]:
    """Read the header of a page, a struct of Thrift; return its integers, which are not negative."""
    numbers = []
    while head := file.read(1)[0]:
        if head & 15 == _STRUCT:
            _header_numbers(file)
        elif head & 15 == _BINARY:
            file.seek(_varint(file), os.SEEK_CUR)
        elif head & 15 in _INTEGERS:
            numbers.append(_varint(file) >> 1)  # the last bit is the sign
    return numbers


def _varint(file: BinaryIO) -> int:
    value = shift = 0
    while (byte := file.read(1)[0]) >= 128:
        value |= (byte & 127) << shift
        shift += 7
    return value | byte << shift
