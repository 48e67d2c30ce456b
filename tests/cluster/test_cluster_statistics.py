"""Statistics that the workers of a Dask cluster gather: transforms and models as threads make them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from run_files import model_bytes
from small_anndata import write_anndata

from streamsvm import fit, tune
from streamsvm.cluster import feature_statistics as cluster_statistics
from streamsvm.data import statistics
from streamsvm.errors import InputError

distributed = pytest.importorskip("distributed")

N, D = 400, 25


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The spans that workers were asked for; there are seven of them in the data."""
    asked: list[tuple[int, int]] = []

    def spans_of(n_rows: int) -> list[tuple[int, int]]:
        asked.extend(found := statistics.spans(n_rows))
        return found

    monkeypatch.setattr(statistics, "_MIN_SPAN_ROWS", 64)
    monkeypatch.setattr(cluster_statistics, "spans", spans_of)
    return asked


@pytest.fixture(scope="module")
def counts() -> sp.csr_array:
    rng = np.random.default_rng(0)
    return sp.csr_array(rng.poisson(0.4, (N, D)).astype(np.float32))


@pytest.mark.parametrize(
    ("transform", "hold_out", "readings"),
    [
        ("normalize=50,log1p,scale=std", "1/3", 1),
        ("idf,l2,scale=std", None, 2),
        ("log1p,select=top:9,scale=maxabs,bias", None, 1),
        ("log1p,l2", None, 0),
    ],
)
def test_a_fit_has_the_same_transforms_and_model(
    tmp_path: Path, counts: sp.csr_array, address: str, transform: str, hold_out: str | None,
    readings: int, spans: list[tuple[int, int]],
) -> None:  # fmt: skip
    path = write_anndata(tmp_path / "a.h5ad", counts)
    options: dict[str, Any] = {
        "label": "type", "passes": 1, "transform": transform, "hold_out": hold_out, "split": "rows",
        "splits": 2, "C": 1.0,
    }  # fmt: skip
    fit(path, out=tmp_path / "threads", **options)
    assert not spans
    seen: list[tuple[str, int, int | None]] = []
    fit(
        path, out=tmp_path / "cluster", **options, cluster=address,
        progress=lambda *done: seen.append(done),
    )  # fmt: skip
    assert len(spans) == 7 * readings
    assert [each for each in seen if each[0] == "statistics"] == [
        ("statistics", stop, N) for _, stop in spans
    ]
    assert model_bytes(tmp_path / "threads") == model_bytes(tmp_path / "cluster")


def test_a_search_gathers_them_once(
    tmp_path: Path, counts: sp.csr_array, address: str, spans: list[tuple[int, int]]
) -> None:
    path = write_anndata(tmp_path / "a.h5ad", counts)
    options: dict[str, Any] = {
        "label": "type", "passes": 1, "transform": "idf,l2,scale=std", "split": "rows", "splits": 2,
        "folds": 2,
    }  # fmt: skip
    ours = tune(path, out=tmp_path / "cluster", **options, cluster=address)
    assert len(spans) == 2 * 7  # of both folds, and of all rows
    theirs = tune(path, out=tmp_path / "threads", **options)
    assert [row["valid_accuracy"] for row in ours.tried] == [row["valid_accuracy"] for row in theirs.tried]
    assert ours.C == theirs.C
    assert model_bytes(tmp_path / "threads") == model_bytes(tmp_path / "cluster")


def test_a_row_that_a_transform_cannot_take_is_named(
    tmp_path: Path, counts: sp.csr_array, address: str
) -> None:
    changed = counts.copy()
    changed.data[changed.indptr[311]] = -2.5
    path = write_anndata(tmp_path / "a.h5ad", changed)
    with pytest.raises(InputError, match="row 311"):
        fit(
            path, out=tmp_path / "run", label="type", transform="log1p,idf", split="rows", splits=2,
            cluster=address,
        )  # fmt: skip
    assert not (tmp_path / "run").exists()
