"""Where tests find data that the repository does not carry."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their length: packed ones hold the time, and processes that share tests must agree."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of LIBSVM files named by STREAMSVM_DATA; tests that need it skip without."""
    folder = os.environ.get("STREAMSVM_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("STREAMSVM_DATA names no folder of data sets")
    return Path(folder)


@pytest.fixture
def soon() -> Iterator[None]:
    """Fail instead of waiting for ever, as for a pipe that nobody writes to."""

    def fail(number: int, frame: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
