"""What tests look at in a run directory, and how they stop a training."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c

from streamsvm.run.directory import RunDir
from streamsvm.run.duals import DualFile, DualFormat, PassDuals
from streamsvm.run.sums import FileSum

# Figures that differ between equal trainings.
_VARYING = {
    "seconds", "rows_per_second", "waited_seconds", "waited_fraction", "bytes_read", "peak_memory_bytes",
}  # fmt: skip


def model_bytes(run: Path) -> dict[str, bytes]:
    """The contents of the files of a run's model."""
    return {path.name: path.read_bytes() for path in (run / "model").iterdir()}


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics."""
    return parse_metrics((run / "metrics.jsonl").read_bytes())


def parse_metrics(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of metrics without the figures that differ between equal trainings."""
    return [{key: value for key, value in line.items() if key not in _VARYING} for line in lines]


def files_of_duals(run: Path, pass_number: int) -> list[Path]:
    """The files with the duals of a pass."""
    return sorted(run.glob(f"duals-{pass_number}-*.bin"))


def kept_duals(run: Path, pass_number: int, dual_format: DualFormat) -> PassDuals:
    """The duals of a pass, from all its files."""
    files = []
    for path in files_of_duals(run, pass_number):
        _, _, first, part = path.stem.split("-")
        content = path.read_bytes()
        found = FileSum(len(content), google_crc32c.value(content))
        files.append(DualFile(int(first), int(part), found))
    return PassDuals(dual_format, RunDir(run), pass_number, tuple(files))


def stop_after(n: int) -> Callable[[], bool]:
    """A `stop` that returns True from its n-th call on."""
    calls = itertools.count(1)
    return lambda: next(calls) >= n


def flip(path: Path, at: int = -1) -> None:
    """Change a bit of a byte of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)
