"""Settings of reading the data that a model scores."""

from __future__ import annotations

import dataclasses
from typing import Any

from streamsvm.errors import wrong_setting
from streamsvm.settings.field import CheckedSettings, as_in, declared, setting
from streamsvm.settings.fit import Settings
from streamsvm.settings.reading import ReadingSettings


@dataclasses.dataclass(frozen=True)
class ScoringSettings(CheckedSettings):
    """Settings of `streamsvm.evaluate` and its like that say what is read, documented there.

    Raises
    ------
    SettingsError
        If a setting is not valid; says which, and what is.
    """

    label: str | None = setting(
        "Column with the labels: of a table, or of obs of AnnData that was not written by convert; by "
        "default the one that the model was trained on.",
        "Or, of AnnData in memory, also the name of an indicator matrix in ``obsm``. Rows without a label "
        "are left out.",
    )
    labels: str | None = as_in(Settings, "labels")
    layer: str | None = setting("Layer of AnnData to score instead of X.", "Also in memory.")
    raw: bool = setting("Score raw.X of AnnData.", default=False)
    obsm: str | None = setting("Entry of obsm of AnnData to score instead of X, such as an embedding.")
    multilabel: bool = setting(
        "LIBSVM text: commas separate several labels of a row; by default as the model was trained.",
        default=False,
    )
    format: str | None = as_in(ReadingSettings, "format")
    on_error: str = as_in(ReadingSettings, "on_error")
    cache: str | None = as_in(Settings, "cache", details="")

    @property
    def of_store(self) -> dict[str, Any]:
        """Those that `streamsvm.store.open_store` takes, too."""
        return {name: getattr(self, name) for name in ("label", "layer", "raw", "obsm", "labels")}

    def refuse_of_files(self) -> None:
        """Raise `SettingsError` if one is given that says how text and tables are read."""
        for name in self.given().keys() & {"multilabel", "format", "on_error"}:
            raise wrong_setting(name, "says how a file is read, and this data is read as it is")


TO_EVALUATE = declared(ScoringSettings)
TO_CALIBRATE = {name: each for name, each in TO_EVALUATE.items() if name != "multilabel"}
TO_PREDICT = {name: each for name, each in TO_CALIBRATE.items() if name != "labels"}
