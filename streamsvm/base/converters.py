"""Lazy import of `streamsvm_converters`, which itself imports this library."""

from __future__ import annotations

import importlib
from typing import Any


def converters(module: str = "") -> Any:
    """Import and return `streamsvm_converters`, or one of its modules, such as ``.tables.frames``."""
    return importlib.import_module("streamsvm_converters" + module)
