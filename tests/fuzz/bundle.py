"""Several files as one run of bytes, so that a fuzzer can change them, and changes that fit their kinds.

The first byte tells which checksums the target makes right again: damage alone would be refused at the
first of them, and what lies behind would never be tried.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

_SECTION = re.compile(rb"(?:^|\n)=== ([\w./-]+)\n")

VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63)),
    *(10**400, 0.0, 0.5, -0.5, 1.0, 2.5, 1e308, 1e-308, True, False, None),
    *("", "1", "x", "float16", "float64"),
    *(">f4", "int32", "O", "\ud800", "a\0b", "ä", "../x", "/", "x" * 300, [], [1], [[]], {}, {"a": 1}),
)


def pack(flags: int, files: dict[str, bytes]) -> bytes:
    return bytes([flags]) + b"\n".join(b"=== " + name.encode() + b"\n" + files[name] for name in files)


def unpack(data: bytes) -> tuple[int, dict[str, bytes]]:
    """The flags and the files; what stands before the first name is left out."""
    if not data:
        return 0, {}
    parts = _SECTION.split(data[1:])
    return data[0], {name.decode(): content for name, content in zip(parts[1::2], parts[2::2], strict=True)}


def read_files(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def write_files(files: dict[str, bytes], folder: Path) -> None:
    """Make `folder` hold these files and no others; names that lead out of it, or clash, are left out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or parts[0] == "/":
            continue
        with contextlib.suppress(OSError):  # a file where a folder should be, a name too long
            path = folder.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def mutate(data: bytes, max_size: int, seed: int, random_bytes: Callable[[bytes, int], bytes]) -> bytes:
    """A bundle with one change: of an entry of its JSON, of a file as a whole, or of any byte."""
    chance = random.Random(seed)
    flags, files = unpack(data)
    kind = chance.random()
    if not files or kind < 0.3:
        return random_bytes(data, max_size)
    name = chance.choice(sorted(files))
    if kind < 0.7:
        named = [name for name in sorted(files) if name.endswith("json")]
        name = chance.choice(named or [name])
        with contextlib.suppress(ValueError, RecursionError):
            content = json.loads(files[name])
            for _ in range(chance.choice((1, 1, 1, 2, 3))):
                content = _changed(content, chance)
            files[name] = json.dumps(content).encode()
    elif kind < 0.75:
        flags = chance.randrange(256)
    elif kind < 0.79:
        del files[name]
    elif kind < 0.82:
        files[name] = files[chance.choice(sorted(files))]
    elif kind < 0.86:
        files[name] = files[name][: chance.randrange(len(files[name]) + 1)]
    elif kind < 0.93 and len(files[name]) >= 8:  # a number among bytes
        at = chance.randrange(0, len(files[name]) - 7)
        value = chance.choice([value for value in VALUES if type(value) is int])
        number = (value % 2**64).to_bytes(8, "little")[: chance.choice((1, 2, 4, 8))]
        files[name] = files[name][:at] + number + files[name][at + len(number) :]
    else:
        files[name] = random_bytes(files[name], len(files[name]) + 64)
    return pack(flags, files)[:max_size]


def _changed(value: Any, chance: random.Random) -> Any:
    """A JSON value with one entry changed, somewhere in it."""
    if isinstance(value, dict) and value and chance.random() < 0.95:
        key = chance.choice(sorted(value))
        draw = chance.random()
        if draw < 0.08:
            return {name: entry for name, entry in value.items() if name != key}
        if draw < 0.12:
            return value | {str(chance.choice(VALUES))[:40]: value[key]}
        return value | {key: _changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        if chance.random() < 0.2:
            return value[:at] + value[at:] * 2 if chance.random() < 0.5 else value[:at]
        return [*value[:at], _changed(value[at], chance), *value[at + 1 :]]
    if type(value) is int and chance.random() < 0.5:
        return value + chance.choice((-8, -1, 1, 2, 8, 64))
    return chance.choice(VALUES)
