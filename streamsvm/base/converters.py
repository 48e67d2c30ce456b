"""The one import of `streamsvm_converters`, made when files are read: the converters import the library."""

from __future__ import annotations

import importlib
from typing import Any


def converters(module: str = "") -> Any:
    """Return the package `streamsvm_converters`, or a module in it such as ``.tables.frames``."""
    return importlib.import_module("streamsvm_converters" + module)
