"""Record of a store: its contents, the arrays that these require, and the fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from streamsvm.base import format
from streamsvm.base.decode import Count, SchemaError, between, decode
from streamsvm.base.label_values import TEXT
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.container import DAMAGED
from streamsvm.store.layout import ArraySpec


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Contents of a store and how they are stored: the first entries of its record, in this order.

    A store with feature names, statistics or dense rows may have at most 2**27 features.

    Attributes
    ----------
    n, d, nnz, n_classes : int
        Numbers of rows, features, values and classes.
    dtype : {"float16", "float32", "float64"}
        Dtype of the values; float16 requires dense rows.
    index_base : {0, 1} or None
        First feature index in the source text.
    chunk_nnz : int
        Number of values per chunk. For dense rows, this is a maximum, unless one row has more values.
    codec : {"fast", "small", "none"}
        Compression of chunks: Blosc-lz4, Blosc-zstd or none in Zarr, and none, gzip or none in HDF5. Chunks
        always have checksums.
    columns : list of str
        Names of the optional columns, as in `layout.COLUMNS` and in the same order.
    n_labels : int
        Total number of labels if rows may have several, else 0.
    label_dtype : {"str", "int64"}
        Type of the labels.
    statistics : bool
        Whether statistics of the features are stored; writing them needs 32 bytes of memory per feature.
    feature_names : bool
        Whether features have names.
    encoding : dict or None
        JSON record of how table columns were encoded as features.
    dense : bool
        Whether rows are dense, with a value for every feature.
    """

    version: Literal[5] = 5
    n: Count
    d: Count
    nnz: Count
    n_classes: Count
    dtype: Literal["float16", "float32", "float64"]
    index_base: Literal[0, 1] | None
    chunk_nnz: Annotated[int, between(1, layout.MAX_CHUNK)] = format.CHUNK_NNZ
    codec: Literal["fast", "small", "none"] = "fast"
    columns: list[Literal["weight", "qid", "hold_out_by", "labels"]] = field(default_factory=list)
    n_labels: Count = 0
    label_dtype: Literal["int64", "str"] = "str"
    statistics: bool = False
    feature_names: bool = False
    encoding: dict[str, Any] | None = None
    dense: bool = False

    def __post_init__(self) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"the columns {self.columns} are not distinct")
        if (self.feature_names or self.statistics or self.dense) and self.d > layout.VAR_LIMIT:
            raise ValueError("names, statistics and dense rows are limited to 2**27 features")
        if self.dense and not (0 < self.nnz == self.n * self.d):
            raise ValueError(f"dense rows must have n * d = {self.n * self.d} values (> 0), not {self.nnz}")
        if self.dtype == "float16" and not self.dense:
            raise ValueError("float16 is only for dense rows")

    def specs(self) -> dict[str, ArraySpec]:
        """Return the specification of every array, by name.

        Readers refuse the fill values, so a lost chunk is never read as plausible numbers.
        """
        n, d, nnz, k, dtype = self.n, self.d, self.nnz, self.n_classes, np.dtype(self.dtype)
        if self.dense:
            specs = {layout.MATRIX: ArraySpec(nnz, dtype, float("nan"), d)}
        else:
            specs = {
                layout.DATA: ArraySpec(nnz, dtype, float("nan")),
                layout.INDICES: ArraySpec(nnz, format.index_dtype(d), -1),
                layout.INDPTR: ArraySpec(n + 1, format.INDPTR_DTYPE, -1),
                layout.NORM2: ArraySpec(n, format.NORM2_DTYPE, float("nan")),
            }
        specs |= {
            self.counts: ArraySpec(k, np.dtype(np.int64), -1),
            layout.NAMES: ArraySpec(n, np.dtype(np.int64), -1),
            layout.CODES: ArraySpec(n, format.LABEL_DTYPE, -2),
            layout.CATEGORIES: ArraySpec(k, None, ""),
        }
        if self.feature_names:
            specs[layout.FEATURES] = ArraySpec(d, None, "")
        elif d <= layout.VAR_LIMIT:
            specs[layout.FEATURES] = ArraySpec(d, np.dtype(np.int64), -1)
        if self.statistics:
            nonzeros, *moments = (f"var/{name}" for name in layout.STATISTICS)
            specs[nonzeros] = ArraySpec(d, np.dtype(np.int64), -1)
            specs |= {name: ArraySpec(d, np.dtype(np.float64), float("nan")) for name in moments}
        if layout.WEIGHTS in self.columns:
            specs[layout.WEIGHT] = ArraySpec(n, format.WEIGHT_DTYPE, float("nan"))
        if layout.GROUPS in self.columns:
            specs[layout.QID] = ArraySpec(n, format.QID_DTYPE, -1)
        if layout.HOLD_OUT_BY in self.columns:
            specs[layout.HASHES] = ArraySpec(n, np.dtype(np.int64), -1)
        if layout.LABEL_SETS in self.columns:
            specs[layout.LABELS_INDPTR] = ArraySpec(n + 1, format.INDPTR_DTYPE, -1)
            specs[layout.LABELS_CODES] = ArraySpec(self.n_labels, format.LABEL_DTYPE, -1)
            specs[layout.LABELS_ONES] = ArraySpec(self.n_labels, np.dtype(np.int8), -1)
        return specs

    @property
    def counts(self) -> str:
        """Name of the array with the class counts."""
        return layout.DENSE_COUNTS if self.dense else layout.COUNTS

    def fingerprint_of(self, digests: Mapping[str, str]) -> str:
        """Return the SHA-256 of the content, which does not depend on container, codec or chunk length.

        `digests` maps the name of each array to the SHA-256 of its little-endian bytes in row order or, for
        texts, to their `text_digest`.
        """
        header = {"n": self.n, "d": self.d, "dtype": self.dtype, "classes": digests[layout.CATEGORIES]}
        header |= {} if self.label_dtype == TEXT else {"label_dtype": self.label_dtype}
        content = [layout.MATRIX] if self.dense else [layout.DATA, layout.INDICES, layout.INDPTR]
        content += [layout.CODES, layout.NAMES]
        optional = (layout.WEIGHT, layout.QID, layout.HASHES, layout.LABELS_INDPTR, layout.LABELS_CODES)
        content += [name for name in optional if name in digests]
        content += [layout.FEATURES] if self.feature_names else []
        return format.json_digest({"header": header, "arrays": {name: digests[name] for name in content}})


@dataclass(frozen=True, kw_only=True)
class StoreRecord(Contents):
    """Entries of a complete store's record that are needed to read it; docs/formats.md lists all entries."""

    complete: Literal[True]
    fingerprint: str
    arrays: dict[str, str]  # SHA-256 of each array, by name
    label: str | None = None
    anndata: bool = False
    labels_as: Literal["numbers", "text"] = "numbers"


def decode_record(path: Path, content: Any) -> StoreRecord:
    """Decode a store's record; raise StoreError if it is too new, incomplete, altered or invalid."""
    if isinstance(content, dict):
        version = content.get("version")
        if isinstance(version, int) and version > format.STORE_VERSION:
            raise StoreError(
                f"{path} was written by a newer streamsvm (store format {version}; this one reads "
                f"{format.STORE_VERSION}); update streamsvm"
            )
        if content.get("complete") is False:
            raise StoreError(f"{path} is incomplete: its conversion did not finish; convert again")
        if not format.is_sealed(content):
            raise StoreError(f"{path}: the store's record was altered: its checksum is wrong ({DAMAGED})")
    try:
        record: StoreRecord = decode(StoreRecord, content)
        return record
    except SchemaError as error:
        raise StoreError(f"{path}: the store's record is invalid: {error} ({DAMAGED})") from error
