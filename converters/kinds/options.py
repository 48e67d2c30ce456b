"""Options of the readers of files."""

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
    """Options of a reader: settings that are checked already, and what `streamsvm_converters.convert` adds.

    Attributes
    ----------
    folder : Path or None
        Folder for temporary files; None for the system's folder of such files.
    like : DataSchema or None
        The classes and features of earlier data, which the rows must fit.
    labelled : bool
        Whether labels are read; if not, all codes are -1.
    """

    like: DataSchema | None = None  # type: ignore[assignment]  # where the settings have a path
    threads: int = 1
    progress: Callable[[int, int | None], None] | None = None
    folder: Path | None = None
    labelled: bool = True

    def __post_init__(self) -> None:
        pass

    def changed(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` whose options do not have their defaults."""
        return [name for name in names if getattr(self, name) != getattr(ReadOptions, name)]
