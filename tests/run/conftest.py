"""Tests of runs: their files are on a disk, where unwritten parts of a file take no space."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    return disk_path
