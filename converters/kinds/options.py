"""Options of the file readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.settings.converting import ConvertSettings

if TYPE_CHECKING:
    from streamsvm.inputs.schema import DataSchema


@dataclass(frozen=True)
class ReadOptions(ConvertSettings):
    """Settings of `convert`, without its checks, and further options of readers.

    Rows must fit the schema `like` of earlier data. Temporary files are in `folder` (None: the system
    default). Unless `labelled`, labels are not read and all codes are -1.
    """

    like: DataSchema | None = None  # type: ignore[assignment]  # a path in the settings
    threads: int = 1
    progress: Callable[[int, int | None], None] | None = None
    folder: Path | None = None
    labelled: bool = True

    def __post_init__(self) -> None:
        pass

    def changed(self, names: Iterable[str]) -> list[str]:
        """Return the `names` whose options differ from their defaults."""
        return [name for name in names if getattr(self, name) != getattr(ReadOptions, name)]
