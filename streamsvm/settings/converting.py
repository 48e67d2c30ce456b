"""Settings of `convert`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Annotated

from streamsvm.settings import checks
from streamsvm.settings.field import as_in, setting
from streamsvm.settings.fit import Settings
from streamsvm.settings.online import StoreSettings
from streamsvm.settings.reading import DataSettings, ReadingSettings

_as_in_store = functools.partial(as_in, StoreSettings)


@dataclasses.dataclass(frozen=True)
class ConvertSettings(DataSettings, ReadingSettings):
    """Settings of `streamsvm_converters.convert`, documented there."""

    dtype: Annotated[str, checks.one_of("float16", "float32", "float64")] = setting(
        "Precision of the values; float16 is only for dense values, and computations then use float32.",
        default="float32", group="Computing",
    )  # fmt: skip
    shuffle: bool = setting("Shuffle the rows, or keep the order of the input.", default=True)
    seed: int = as_in(Settings, "seed", help="Seed of the shuffle.", check=checks.whole(-(2**63)))
    memory: int = _as_in_store(
        "memory", help="Memory budget in bytes, or as text such as 500M or 2G.",
        details="The decoder of compressed text takes up to 128 MB more.",
    )  # fmt: skip
    threads: Annotated[int | None, checks.whole(1)] = setting(
        "Number of threads; by default one per processor."
    )
    codec: Annotated[str, checks.one_of("fast", "small", "none")] = setting(
        "Compression: fast (LZ), small (zstd or gzip), or none.", default="fast"
    )
    chunk_nnz: Annotated[int | None, checks.whole(1)] = setting("Number of values in a chunk.")
    unseen_label: str = _as_in_store("unseen_label")
    weights: Annotated[str | None, checks.or_word("-", checks.PATH)] = setting(
        "File with the weights of the rows, one number per line, in the order of the input.",
        "Rows that are skipped need a weight, too.",
    )  # fmt: skip
    groups: bool = setting("Keep qid: fields; rows with the same qid stay together, in order.", default=False)
    hold_out_by: str | None = as_in(Settings, "hold_out_by", check=checks.TEXT, details="")
    join: str = _as_in_store("join")
