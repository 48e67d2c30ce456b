"""Options of the readers of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamsvm.model.schema import DataSchema


@dataclass(frozen=True)
class ReadOptions:
    """Options of a reader, which `ReadingSettings` checks and `streamsvm_converters.convert` describes.

    Attributes
    ----------
    folder : Path or None
        Folder for temporary files; None for the system's folder of such files.
    like : DataSchema or None
        The classes and features of earlier data, which the rows must fit.
    labelled : bool
        Whether labels are read; if not, all codes are -1.
    """

    dtype: str = "float32"
    memory: int = 2**30
    threads: int = 1
    on_error: str = "raise"
    unseen_label: str = "error"
    progress: Callable[[int, int | None], None] | None = None
    folder: Path | None = None
    like: DataSchema | None = None
    labelled: bool = True
    format: str | None = None
    index_base: str | int = "auto"
    n_features: int | None = None
    multilabel: bool = False
    groups: bool = False
    label: str | None = None
    labels: str | Path | None = None
    labels_as: str | None = None
    join: str = "inner"
    layer: str | None = None
    raw: bool = False
    obsm: str | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    missing: str = "error"
    text: Sequence[str] = ()
    analyzer: str | None = None
    ngrams: tuple[int, int] | None = None
    bits: int | None = None
    words: bool = True

    def changed(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` whose options do not have their defaults."""
        return [name for name in names if getattr(self, name) != getattr(ReadOptions, name)]
