from __future__ import annotations

from pathlib import Path

import pytest
from problems import D


@pytest.fixture(autouse=True)
def kept_features(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the transform ``select=kept.txt``: every third feature."""
    monkeypatch.chdir(tmp_path_factory.mktemp("kept"))
    Path("kept.txt").write_text("".join(f"{j}\n" for j in range(0, D, 3)))
