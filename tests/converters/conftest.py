from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamsvm_converters import read_rows

from streamsvm.store import open_store

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes text or bytes to a file and returns its path."""

    def write(content: str | bytes, name: str = "data.svm") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture(scope="session")
def lines_of() -> Callable[[Path], list[str]]:
    """Return a function that gives a store as lines of LIBSVM text, each value in its shortest form."""

    def lines_of(path: Path) -> list[str]:
        with open_store(path) as store:
            rows, base = store.rows(0, store.n_rows), store.index_base
            lines = []
            for row in range(rows.n_rows):
                span = slice(rows.indptr[row], rows.indptr[row + 1])
                pairs = zip(rows.indices[span].tolist(), rows.data[span], strict=True)
                code = rows.labels[row]
                label = "?" if code < 0 else store.classes[code]
                lines.append(" ".join([label, *(f"{index + base}:{value!s}" for index, value in pairs)]))
            return lines

    return lines_of


@pytest.fixture(scope="session")
def values_of() -> Callable[..., list[tuple[list[int], list[float]]]]:
    """Return a function that gives indices and values of the rows of text, read without a store."""

    def values_of(
        inputs: Sequence[Path], *, classes: Sequence[str] = (), n_features: int = 2**62, **options: Any
    ) -> list[tuple[list[int], list[float]]]:
        found = []
        for rows, _ in read_rows(
            inputs, classes=classes, n_features=n_features, index_base=0, **{"dtype": "float64", **options}
        ):
            assert rows.norm2.dtype == np.float64
            for row in range(rows.n_rows):
                span = slice(rows.indptr[row], rows.indptr[row + 1])
                found.append((rows.indices[span].tolist(), rows.data[span].tolist()))
        return found

    return values_of
