"""Parse and format sizes, paths and URLs, and escape control characters."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable
from typing import Any

from streamsvm.errors import SettingsError, StreamsvmError

# Characters that end a line, move the cursor or change the text direction: control characters, line and
# paragraph separators, bidirectional embeddings, overrides and isolates.
CONTROL = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{CONTROL}]")
# Also includes surrogates, which cannot be encoded, and characters that XML forbids.
_UNPRINTABLE = re.compile(f"[{CONTROL}\ud800-\udfff\ufffe\uffff]")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


def printable(text: str) -> str:
    """Escape line ends and control characters in `text`, as in ``\\n``, ``\\x1b`` and ``\\u2028``."""
    return _UNPRINTABLE.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def shortened(text: object, max_length: int = 60) -> str:
    """Escape control characters in `text`, and truncate it to `max_length` characters, including the "…"."""
    line = printable(str(text))
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def check_classes(classes: Iterable[str], where: object, error: type[StreamsvmError]) -> None:
    """Raise `error` if a class name contains a control character, which could corrupt files or terminals."""
    for name in classes:
        if _CONTROL.search(name):
            name = shortened(name)
            raise error(f"{where}: the name of class '{name}' contains a control character; rename the class")


def parse_size(size: Any) -> int:
    """Return a size in bytes from an integer, or from text such as "500M", "2G" or "1.5GiB" (binary units).

    Raises `SettingsError` if `size` is neither, or is not in the range from 1 to 2**63 - 1.
    """
    problem = f"{size!r} is not a valid size; specify a number of bytes, or a size such as 500M or 2G"
    if isinstance(size, str):
        match = _SIZE.fullmatch(size.strip())
        if match is None or len(match[1]) > 30:
            raise SettingsError(problem)
        size = int(float(match[1]) * 1024 ** "_kmgt".index(match[2].lower() or "_"))
    try:
        number = operator.index(size)
    except TypeError:
        raise SettingsError(problem) from None
    if isinstance(size, bool) or not 0 < number < 2**63:
        raise SettingsError(problem)
    return number


def as_python_value(value: Any) -> Any:
    """Convert a NumPy scalar to a Python scalar, which JSON supports; return other values unchanged."""
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if is_scalar else value


def as_paths(data: Any) -> list[str | os.PathLike[str]] | None:
    """Return a path, or a list or tuple of paths, as a list; None for other data, such as a matrix."""
    if isinstance(data, str | os.PathLike):
        return [data]
    if isinstance(data, list | tuple) and data and all(isinstance(each, str | os.PathLike) for each in data):
        return list(data)
    return None


def format_size(n: float) -> str:
    """Format a number of bytes in binary units, such as 512 B, 2 GiB or 1.5 GiB."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while n >= 1000 and len(units) > 1:  # 1000, not 1024, so that numbers rarely have four digits
        n /= 1024
        del units[0]
    return f"{n:,.1f}".removesuffix(".0") + f" {units[0]}"


def as_url(path: str | os.PathLike[str]) -> str | None:
    """Return `path` as a URL, restoring slashes that `Path` merged; None if it is a local path."""
    match = _URL.fullmatch(os.fspath(path))
    if match is None or os.path.lexists(path):
        return None
    root = "/" if match[1].lower() == "file" else ""  # file URLs have an empty host
    return f"{match[1]}://{root}{match[2]}"


def absolute(path: str | os.PathLike[str]) -> str:
    return as_url(path) or os.path.abspath(path)


def check_local(path: str | os.PathLike[str], error: type[StreamsvmError]) -> None:
    url = as_url(path)
    if url is not None:
        raise error(f"{url} is not a local path; specify the path of a local file")


def parse_part(text: str) -> tuple[int, int]:
    """Parse text such as ``1/10`` as (part, number of parts); raise `ValueError` for other text."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) or not 2 <= int(match[2]) <= 1000:
        raise ValueError("a part such as 1/10, of 2 to 1,000 parts")
    return int(match[1]), int(match[2])
