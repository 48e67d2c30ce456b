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


class Interrupted(StreamsvmError):
    """Training stopped on request, after a commit from which `resume` continues."""


class StreamsvmWarning(UserWarning):
    """What goes on, but not as it should: one line that says what, where and what to do."""
