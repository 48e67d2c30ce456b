"""Import of the package of converters, which itself imports the library, when files are read."""

from __future__ import annotations

import importlib
from typing import Any


def converters() -> Any:
    """Return the package `streamsvm_converters`."""
    return importlib.import_module("streamsvm_converters")
