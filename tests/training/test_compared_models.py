"""Which model is saved, the average or the last iterate, as the last rows of a pass say."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import make_store
from run_files import metrics_of, model_bytes, stop_after, without_times

from streamsvm import fit, resume
from streamsvm.errors import Interrupted
from streamsvm.kernels.random import permutation
from streamsvm.training import passes

N, D, K, SEED = 900, 6, 4, 3


def problem(noise: float) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(0)
    means, labels = rng.normal(size=(K, D)), rng.integers(0, K, N)
    return sp.csr_matrix(means[labels] + noise * rng.normal(size=(N, D))), labels


@pytest.fixture(autouse=True)
def few_rows_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_LEAST_LAST", 1)


@pytest.mark.parametrize(("C", "noise"), [(100.0, 2.0), (1.0, 2.0), (0.001, 0.3)])
def test_the_model_is_the_one_that_has_more_of_the_last_rows_right(C: float, noise: float) -> None:
    X, labels = problem(noise)
    options: dict[str, Any] = {"C": C, "passes": 1, "seed": SEED, "dtype": "float64", "gap": "none"}
    options |= {"inner_passes": 0}
    last = permutation(N, SEED, 1, 0, 0)[-(N // 100) :]
    weights = np.ones(N)
    weights[last] = 0  # without these rows both models are those before them
    right = []
    for average in (False, True):
        before = fit(X, labels, sample_weight=weights, average=average, **options)
        right.append(int(np.sum(before.predict(X[last]) == labels[last])))
    model = fit(X, labels, **options)
    report = model.result.history[-1]
    found = [report[f"compared_{name}"] for name in ("rows", "last_iterate", "average")]
    assert found == [N // 100, *right]
    averaged = right[1] >= right[0]
    assert model.result.averaged == model.record["average"] == averaged
    np.testing.assert_array_equal(model.coef_, fit(X, labels, average=averaged, **options).coef_)


@pytest.mark.parametrize(
    "options", [{"splits": 2, "split": "rows"}, {"tol": 1e-9}, {"average": True}, {"inner_passes": 2}]
)
def test_nothing_is_compared_where_something_else_decides(options: dict[str, Any]) -> None:
    result = fit(*problem(1.0), C=0.1, passes=1, **{"inner_passes": 0} | options).result
    assert "compared_rows" not in result.history[-1]


@pytest.mark.parametrize("block_rows", [200, None])
def test_a_run_stopped_anywhere_and_resumed_has_the_same_counts_and_model(
    tmp_path: Path, block_rows: int | None
) -> None:
    store = make_store(tmp_path / "s.zarr", *problem(2.0))
    options: dict[str, Any] = {"C": 0.1, "passes": 2, "block_rows": block_rows, "gap": "pass"}
    options |= {"inner_passes": 0}
    fit(store, out=tmp_path / "whole", **options)
    expected = without_times(metrics_of(tmp_path / "whole"))
    assert [line["compared_rows"] for line in expected if line["event"] == "pass"] == [9, 9]
    for n in itertools.count(1, 3):
        run = tmp_path / f"run-{n}"
        try:
            fit(store, out=run, stop=stop_after(n), checkpoint_every="1", **options)
        except Interrupted:
            resume(run)
        else:
            break
        assert model_bytes(run) == model_bytes(tmp_path / "whole")
        assert without_times(metrics_of(run)) == expected
    assert n > 2
