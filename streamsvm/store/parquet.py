"""Read Parquet files in small batches, whose size is determined from the metadata."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def open_parquet(file: Any, dictionaries: Collection[str] = ()) -> Any:
    """Open a file or path for reading page by page, because row groups may be as large as the file.

    The string columns `dictionaries` are read dictionary-encoded, because a page of a few bytes may repeat a
    long string thousands of times.
    """
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(
        file, pre_buffer=False, buffer_size=2**20, read_dictionary=list(dictionaries)
    )


def row_bytes(metadata: Any, names: Collection[str]) -> dict[str, int]:
    """Estimate each column's size per row in memory, in bytes, as the largest mean of any row group."""
    largest = dict.fromkeys(names, 1)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            path = chunk.path_in_schema
            name = path if path in largest else path.rsplit(".", 2)[0]  # "x.list.element" is in column x
            if name in largest:
                size = max(chunk.total_uncompressed_size, 8 * chunk.num_values)
                largest[name] = max(largest[name], size // max(1, group.num_rows))
    return largest
