"""Parquet files in small batches, planned from their metadata."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def open_parquet(file: Any, dictionaries: Collection[str] = ()) -> Any:
    """Open a file or path for reading page by page, because row groups may be as large as the file.

    The text columns `dictionaries` are read dictionary-encoded, because a page of a few bytes may repeat a
    long text thousands of times.
    """
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(
        file, pre_buffer=False, buffer_size=2**20, read_dictionary=list(dictionaries)
    )


def row_bytes(metadata: Any, names: Collection[str]) -> dict[str, int]:
    """Estimate the bytes per row of each column in memory, as the largest mean of a row group."""
    most = dict.fromkeys(names, 1)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            path = chunk.path_in_schema
            name = path if path in most else path.rsplit(".", 2)[0]  # a list column ends in ".list.element"
            if name in most:
                size = max(chunk.total_uncompressed_size, 8 * chunk.num_values)
                most[name] = max(most[name], size // max(1, group.num_rows))
    return most
