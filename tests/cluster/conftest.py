"""Limits of waiting, a store, and a cluster of two processes, which tests leave as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dask_clusters import limits, start, store  # noqa: F401


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    with start(2) as cluster:
        yield cluster
