"""Settings of `convert`."""

from __future__ import annotations

import dataclasses
import functools
import os

from streamsvm.settings.field import as_in, setting
from streamsvm.settings.fit import Settings
from streamsvm.settings.online import StoreSettings
from streamsvm.settings.reading import ReadingSettings

_as_in_store = functools.partial(as_in, StoreSettings)


@dataclasses.dataclass(frozen=True)
class ConvertSettings(ReadingSettings):
    """Settings of `streamsvm_converters.convert`, documented there.

    Raises
    ------
    SettingsError
        If a setting is not valid; says which, and what is.
    """

    dtype: str = as_in(
        Settings, "dtype", choices=("float16", "float32", "float64"),
        help="Precision of the values; float16 is for dense ones, which are computed with in float32.",
    )  # fmt: skip
    shuffle: bool = setting(bool, True, "Shuffle the rows, or keep the order of the input.")
    seed: int = as_in(Settings, "seed", help="Seed of the shuffle.", least=-(2**63))
    memory: int = _as_in_store(
        "memory", help="Memory budget in bytes, or as text such as 500M or 2G.",
        details="The decoder of compressed text takes up to 128 MB more.",
    )  # fmt: skip
    threads: int | None = setting(int, None, "Number of threads; by default one per processor.", least=1)
    codec: str = setting(
        str, "fast", "Compression: fast (LZ), small (zstd or gzip), none.", choices=("fast", "small", "none")
    )
    chunk_nnz: int | None = setting(int, None, "Values in a chunk.", least=1)
    unseen_label: str = _as_in_store("unseen_label")
    weights: str | None = setting(
        os.PathLike, None, "Weight of each row, one number a line, in the order of the input.",
        "Rows that are skipped have one, too.", words=("-",),
    )  # fmt: skip
    groups: bool = setting(bool, False, "Keep qid: fields; rows of a group stay together, in order.")
    label: str | None = _as_in_store(
        "label", details="Or the array with them in an .npz file. Rows without a label are left out."
    )
    labels: str | None = _as_in_store("labels")
    join: str = _as_in_store("join")
    layer: str | None = _as_in_store("layer", help="Layer of AnnData to read instead of X.")
    raw: bool = _as_in_store("raw", help="Read raw.X of AnnData, with its own features.")
    obsm: str | None = _as_in_store("obsm", help="Entry of obsm of AnnData to read instead of X.")
    cache: str | None = _as_in_store(
        "cache", help="Folder for copies of inputs at addresses; by default they are deleted at the end."
    )
