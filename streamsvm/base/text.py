"""Parsing and formatting of text: sizes, paths, URLs, escaping of control characters."""

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
# Also surrogates, which cannot be encoded, and characters that XML forbids.
_UNPRINTABLE = re.compile(f"[{CONTROL}\ud800-\udfff\ufffe\uffff]")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


def printable(text: str) -> str:
    """Escape line ends and control characters in `text`: ``\\n``, ``\\x1b``, ``\\u2028``."""
    return _UNPRINTABLE.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def shortened(text: object, most: int = 60) -> str:
    """Escape control characters in `text`, and truncate it to `most` characters, including the "…"."""
    line = printable(str(text))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def check_classes(classes: Iterable[str], where: object, error: type[StreamsvmError]) -> None:
    """Raise `error` if a class name has a control character, which could corrupt lines or a terminal."""
    for name in classes:
        if _CONTROL.search(name):
            name = shortened(name)
            raise error(
                f"{where}: the class '{name}' has a control character in its name; rename it in the data"
            )


def parse_size(size: Any) -> int:
    """Return a size in bytes from text such as "500M", "2G" or "1.5GiB" (binary units) or an integer.

    Raises `SettingsError` if it is not a size, not positive, or 2**63 or more.
    """
    wanted = f"{size!r} is not a size: a number of bytes, or text such as 500M or 2G"
    if isinstance(size, str):
        found = _SIZE.fullmatch(size.strip())
        if found is None or len(found[1]) > 30:
            raise SettingsError(wanted)
        size = int(float(found[1]) * 1024 ** "_kmgt".index(found[2].lower() or "_"))
    try:
        number = operator.index(size)
    except TypeError:
        raise SettingsError(wanted) from None
    if isinstance(size, bool) or not 0 < number < 2**63:
        raise SettingsError(wanted)
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
    """Return `path` as a URL, with slashes that `Path` merged restored; None if it is not a URL."""
    found = _URL.fullmatch(os.fspath(path))
    if found is None or os.path.lexists(path):
        return None
    root = "/" if found[1].lower() == "file" else ""  # file URLs have an empty host
    return f"{found[1]}://{root}{found[2]}"


def absolute(path: str | os.PathLike[str]) -> str:
    return as_url(path) or os.path.abspath(path)


def check_local(path: str | os.PathLike[str], error: type[StreamsvmError]) -> None:
    url = as_url(path)
    if url is not None:
        raise error(f"{url} is not a path on this machine; only local files are used")


def parse_part(text: str) -> tuple[int, int]:
    """Parse text such as ``1/10`` as (part, number of parts); raise `ValueError` for other text."""
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]) or not 2 <= int(found[2]) <= 1000:
        raise ValueError("a part such as 1/10, of 2 to 1,000 parts")
    return int(found[1]), int(found[2])
