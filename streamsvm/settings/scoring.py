"""Settings for reading the data that a model scores."""

from __future__ import annotations

import dataclasses

from streamsvm.errors import wrong_setting
from streamsvm.settings.field import as_in, declared, setting
from streamsvm.settings.reading import DataSettings, ReadingSettings


@dataclasses.dataclass(frozen=True)
class ScoringSettings(DataSettings):
    """Settings of `evaluate`, `predict`, `calibrate` and `report` for reading data, documented there."""

    multilabel: bool = setting(
        "LIBSVM text: commas separate several labels of a row; by default as in training.", default=False
    )
    format: str | None = as_in(ReadingSettings, "format")
    delimiter: str | None = as_in(ReadingSettings, "delimiter")
    decimal: str | None = as_in(ReadingSettings, "decimal")
    on_error: str = as_in(ReadingSettings, "on_error")

    def refuse_of_files(self) -> None:
        """Raise `SettingsError` if a setting for reading text and tables is given."""
        for name in self.given().keys() - declared(DataSettings).keys():
            raise wrong_setting(name, "applies only to text and tables, not to this data; leave it out")


TO_EVALUATE = declared(ScoringSettings)
TO_CALIBRATE = {name: each for name, each in TO_EVALUATE.items() if name != "multilabel"}
TO_PREDICT = {name: each for name, each in TO_CALIBRATE.items() if name != "labels"}
