"""The exceptions that the library raises for anything a user can cause or repair."""

from __future__ import annotations


class StreamsvmError(Exception):
    """Base class: the message is one line that says what, where and what to do."""


class InputError(StreamsvmError):
    """Input text that cannot be understood (names file, line, column and token)."""


class StoreError(StreamsvmError):
    """A store that is missing, incomplete, damaged or does not fit (names array and chunk)."""


class PlanError(StreamsvmError):
    """Settings that cannot work, such as a memory budget below one row's scratch."""


class SettingsError(PlanError):
    """A setting that no data could be trained with, such as a C below 0: the command was used wrongly."""


class RunError(StreamsvmError):
    """A run directory that is missing, in use, damaged, or belongs to other data."""


class ModelError(StreamsvmError):
    """A model folder that is missing, damaged, or does not fit the data."""


class FeatureError(StreamsvmError):
    """Data whose features cannot be matched with those of the model by their names.

    Attributes
    ----------
    missing, unknown : int
        How many of the model's the data lacks, and how many the data has beside them.
    """

    def __init__(self, message: str, *, missing: int = 0, unknown: int = 0) -> None:
        super().__init__(message)
        self.missing = missing
        self.unknown = unknown


class Interrupted(StreamsvmError):
    """Training stopped on request, after a commit from which `resume` continues."""


class StreamsvmWarning(UserWarning):
    """What goes on, but not as it should: one line that says what, where and what to do."""
