"""What the benchmarks share: find data, describe the environment, print tables."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

COMPRESSED = (".bz2", ".gz", ".xz", ".zst")
QUICK_BYTES = 2**20  # of a training file as it lies in the folder
TEST_ENDING = ((".tr", ".val"), ("", ".t"))  # of the training file's name, and of its test file's


class Pair(NamedTuple):
    """A training file and its test file."""

    name: str
    train: Path
    test: Path

    def is_called(self, wanted: str) -> bool:
        """Whether `wanted` is the name, or its part before the first dot."""
        return wanted in (self.name, self.name.split(".")[0])


def find_pairs(folder: Path) -> list[Pair]:
    """The LIBSVM files of a folder that come as ``x`` and ``x.t``, or ``x.tr`` and ``x.val``, by name."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            files.setdefault(path.stem if path.suffix in COMPRESSED else path.name, path)
    pairs = {}
    for file in files:
        for train_end, test_end in TEST_ENDING:
            name = file.removesuffix(train_end)
            if file.endswith(train_end) and name + test_end in files:
                pairs.setdefault(name, Pair(name, files[file], files[name + test_end]))
    return sorted(pairs.values())


def choose(pairs: list[Pair], sets: str | None, *, quick: bool = False) -> list[Pair]:
    """The data sets named by `sets`, otherwise all or the small ones; `ValueError` if there are none."""
    names = ", ".join(pair.name for pair in pairs)
    if sets:
        for name in sets.split(","):
            if not any(pair.is_called(name) for pair in pairs):
                raise ValueError(f"no data set {name} among {names}")
        pairs = [pair for pair in pairs if any(map(pair.is_called, sets.split(",")))]
    elif quick:
        pairs = [pair for pair in pairs if pair.train.stat().st_size <= QUICK_BYTES]
    if not pairs:
        raise ValueError(f"no pairs of LIBSVM files (x and x.t, or x.tr and x.val) to run; found: {names}")
    return pairs


def data_folder(option: str | None) -> Path:
    """The folder given by an option or by STREAMSVM_DATA; `ValueError` says what is missing."""
    given = option or os.environ.get("STREAMSVM_DATA")
    if not given:
        raise ValueError("no data: give --data FOLDER, or set STREAMSVM_DATA to a folder of LIBSVM files")
    if not Path(given).is_dir():
        raise ValueError(f"no data: {given} is not a folder")
    return Path(given)


def write_json(path: str | None, results: dict[str, Any]) -> None:
    """Write `results`, and what made them, to `path` if one was asked for."""
    if path:
        made_by = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        made_by |= {name: importlib.metadata.version(name) for name in ("streamsvm", "numba", "numpy")}
        Path(path).write_text(json.dumps({"environment": made_by} | results, indent=1) + "\n")


def text(value: Any) -> str:
    """A cell: three or four digits of a float, None as a dash."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if value == 0 or 0.001 <= abs(value) < 100_000:
        return f"{value:,.{max(0, 3 - len(str(int(abs(value)))) + 2 * (abs(value) < 1))}f}"
    return f"{value:.2e}"


def print_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows below their headers, the first column to the left, the others to the right."""
    cells = [list(headers), *([text(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    print(f"\n{title}")
    for row in cells:
        first, *others = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        print("  " + "  ".join([first.strip().ljust(widths[0]), *others]).rstrip())
    print(end="", flush=True)
