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
    """Settings of `convert`, which are not checked here, and further options of readers.

    Rows must match `like`, the schema of earlier data. Temporary files are written to `folder`, or to the
    system default if it is None. If `labelled` is False, labels are not read and all codes are -1.
    """

    like: DataSchema | None = None  # type: ignore[assignment]  # a path in `ConvertSettings`
    threads: int = 1
    progress: Callable[[int, int | None], None] | None = None
    folder: Path | None = None
    labelled: bool = True

    def __post_init__(self) -> None:
        pass

    def changed(self, names: Iterable[str]) -> list[str]:
        """Return the names of those options among `names` that differ from their defaults."""
        return [name for name in names if getattr(self, name) != getattr(ReadOptions, name)]
