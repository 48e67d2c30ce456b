"""Random Fourier features against their definition in plain NumPy: rows, runs and predictions."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import succeeds
from helpers import GAMMA, as_rows, make_store, plain_mix
from helpers import plain_fit as fit
from resuming import assert_resumes
from scipy.stats import chi2, norm

import streamsvm
from streamsvm import load_model, tune
from streamsvm.data.hold_out import HeldOutPart
from streamsvm.data.rows import Rows, row_span, with_matrix
from streamsvm.errors import SettingsError, StreamsvmWarning
from streamsvm.sklearn import StreamSVMClassifier
from streamsvm.transforms import fitting, fourier, parse_transforms
from streamsvm.transforms.fitting import fit_transforms, raw_rows

N, D = 301, 13


def uniform(seed: int, first: int, n: int) -> np.ndarray:
    """Outputs of SplitMix64 as numbers between 0 and 1."""
    keys = [plain_mix(plain_mix(seed) + (i + 1) * GAMMA) for i in range(first, first + n)]
    return np.array([((key >> 12) + 0.5) / 2**52 for key in keys])


def directions(record: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """B and b by the recipe of docs/formats.md."""
    d, D, seed = record["width"], record["outputs"], record["seed"]
    m, blocks = min(d, D), []
    for k in range(-(-D // m)):
        u = uniform(seed, D + k * m * (d + 1), m * (d + 1))
        Q = np.linalg.qr(norm.ppf(u[m:]).reshape(d, m))[0]
        blocks.append(Q * np.sqrt(2 * record["gamma"] * chi2.ppf(u[:m], d)))
    return np.hstack(blocks)[:, :D].astype("f4"), (2 * np.pi * uniform(seed, 0, D)).astype("f4")


def by_hand(X: Any, record: dict[str, Any]) -> np.ndarray:
    B, b = (each.astype(np.float64) for each in directions(record))
    return np.sqrt(2 / record["outputs"]) * np.cos(np.asarray(X, np.float64) @ B + b)


def make_rows(n: int = N, d: int = D, dtype: str = "float32", seed: int = 0) -> tuple[np.ndarray, Rows, Rows]:
    """A matrix of which some values are 0, and its rows, CSR and dense."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    rows = as_rows(sp.csr_array(X.astype(dtype)), np.zeros(n, np.int32), dtype)
    return X.astype(dtype), rows, with_matrix(rows._replace(indices=None), X.astype(dtype))


def fitted(rows: Rows, text: str, parts: Any = (None,), seed: int = 5) -> list[Any]:
    data = raw_rows(rows, D, None)
    return [each.transforms[-1] for each in fit_transforms(parse_transforms(text), data, parts, seed=seed)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("outputs", [5, 64, 200])
def test_features_are_those_of_the_record_for_any_rows_and_threads(
    outputs: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, *both = make_rows(dtype=dtype)
    [transform] = fitted(both[0], f"fourier={outputs}:gamma=0.3")
    assert transform.record() == {"outputs": outputs, "gamma": 0.3, "seed": 5, "width": D}
    expected = transform(both[0]).matrix
    assert (expected.shape, expected.dtype) == ((N, outputs), dtype)
    np.testing.assert_allclose(expected, by_hand(X, transform.record()), atol=5e-6)
    for found, own in zip(transform.directions(), directions(transform.record()), strict=True):
        np.testing.assert_allclose(found, own, rtol=1e-6, atol=1e-7)
    transform = pickle.loads(pickle.dumps(transform))
    for threads, tile in (1, 7), (3, 2):
        monkeypatch.setattr(fourier, "count_workers", lambda wanted, n=threads: n)
        monkeypatch.setattr(fourier, "_TILE_ROWS", tile)
        for rows in both:
            for begin, end in (0, N), (17, 18), (100, 106), (9, 9), (N - 3, N):
                found = transform(row_span(rows, begin, end))
                assert found.data.tobytes() == expected[begin:end].tobytes()
                assert found.indptr.tolist() == [*range(0, outputs * (end - begin) + 1, outputs)]


def test_products_approximate_the_kernel_by_orthogonal_directions() -> None:
    outputs, gamma, rows = 1024, 0.05, make_rows(2000)
    [transform] = fitted(rows[1], f"fourier={outputs}:gamma={gamma}")
    X, Z = rows[0].astype(np.float64), transform(rows[2]).matrix.astype(np.float64)
    error = (Z[:1000] * Z[1000:]).sum(1) - np.exp(-gamma * np.square(X[:1000] - X[1000:]).sum(1))
    assert abs(error.mean()) < 3 / np.sqrt(outputs)
    assert error.std() < 3 / np.sqrt(outputs)
    B = transform.directions()[0].astype(np.float64)
    for begin in range(0, outputs - D, D):
        products = B[:, begin : begin + D].T @ B[:, begin : begin + D]
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-5)
    # Squared lengths are 2 gamma times chi-squared numbers of mean D and variance 2 D.
    length2 = np.square(B).sum(0) / (2 * gamma)
    assert abs(length2.mean() - D) < 4 * np.sqrt(2 * D / outputs)
    assert abs(length2.var() - 2 * D) < 0.5 * D


def by_rank(numbers: list[int], seed: int) -> np.ndarray:
    """The numbers by the outputs of SplitMix64 at their place in its sequence."""
    return np.array(sorted(numbers, key=lambda i: plain_mix(plain_mix(seed) + (i + 1) * GAMMA)))


@pytest.mark.parametrize("most", [40, 8000])
@pytest.mark.parametrize("dense", [False, True])
def test_gamma_is_that_of_pairs_of_rows_that_are_not_held_out(
    dense: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "_DRAWN_ROWS", most)
    X, *both = make_rows()
    X[: N // 2] = both[1].matrix[: N // 2] = X[0]  # many distances are 0
    both[0] = as_rows(sp.csr_array(X), np.zeros(N, np.int32), "float32")
    parts = [HeldOutPart(part, np.arange(N) % 3) for part in (0, 2)]
    found = fitted(both[dense], "clip=1,fourier=8", parts)
    for part, transform in zip(parts, found, strict=True):
        rank = by_rank([i for i in range(N) if not part.has(np.array([i]))[0]], 5)[:most]
        half, limited = len(rank) // 2, np.clip(X.astype(np.float64), -1, 1)
        distance2 = np.square(limited[rank[:half]] - limited[rank[half : 2 * half]]).sum(1)
        assert transform.gamma == pytest.approx(2 / np.median(distance2[distance2 > 0]), rel=1e-12)
    both[1].matrix[2::3] = 99
    if dense:
        changed = fitted(both[1], "clip=1,fourier=8", parts)
        assert (changed[1], changed[0] == found[0]) == (found[1], False)


# -- training and prediction -----------------------------------------------------------------------

K = 4


def make_curved(n: int = 400, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose class is their distance from the origin, which no linear model can tell."""
    X = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    norms = np.linalg.norm(X, axis=1)
    return X, np.searchsorted(np.quantile(norms, [0.25, 0.5, 0.75]), norms).astype(np.int32)


@pytest.fixture(params=["sparse.zarr", "dense.h5"])
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    X, y = make_curved()
    dense = request.param == "dense.h5"
    return make_store(tmp_path / request.param, sp.csr_array(X), y, dtype="float32", dense=dense)


OPTIONS: dict[str, Any] = {"transform": "fourier=128", "seed": 3}


def test_a_training_is_that_of_features_made_beforehand(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model tells apart what no linear one does."""
    X, y = make_curved()
    new, truth = make_curved(seed=1)
    run = fit(data, out=tmp_path / "run", passes=5, valid=data, **OPTIONS)
    record = json.loads((tmp_path / "run/run.json").read_text())["transforms"][0]
    Z, Z_new = by_hand(X, record).astype("f4"), by_hand(new, record).astype("f4")
    expected = fit(make_store(tmp_path / "Z.h5", sp.csr_array(Z), y, dtype="float32", dense=True),
                   out=tmp_path / "Z", passes=5, seed=3, C=run.C)  # fmt: skip
    model, linear = load_model(tmp_path / "run"), fit(X, y, passes=5, transform="bias")
    scores = load_model(tmp_path / "Z").decision_function(Z_new)
    np.testing.assert_allclose(model.decision_function(new), scores, atol=2e-3)
    assert run.gap == pytest.approx(expected.gap, rel=1e-2)
    of_store = streamsvm.evaluate(model, data)
    assert of_store.accuracy == run.valid_accuracy > 0.85
    assert streamsvm.evaluate(model, new, truth).accuracy > 0.8 > 0.2 + (linear.predict(new) == truth).mean()
    text = tmp_path / "new.txt"
    text.write_text("".join(f"{c} " + " ".join(f"{j}:{v!r}" for j, v in enumerate(row.tolist())) + "\n"
                            for c, row in zip(truth, new, strict=True)))  # fmt: skip
    model.record["index_base"] = 0
    whole = streamsvm.predict(model, text).labels[:, 0].tolist()
    assert whole == model.predict(new).tolist()
    monkeypatch.setattr("streamsvm.inputs.rows.dense_after", lambda transforms, dense: False)
    assert streamsvm.predict(model, text).labels[:, 0].tolist() == whole


@pytest.mark.parametrize(
    "options",
    [{}, {"block_rows": 90}, {"splits": 2}, {"hold_out": "1/5"}],
    ids=lambda options: "".join(options),
)
def test_a_run_resumes_to_the_same_bytes(tmp_path: Path, data: Path, options: dict[str, Any]) -> None:
    assert_resumes(tmp_path, data, (1, 2, 4), passes=3, **OPTIONS, **options)


def test_estimator_and_tune_and_streams(tmp_path: Path, data: Path) -> None:
    X, y = make_curved()
    svm = StreamSVMClassifier(transforms="fourier=128", random_state=3, passes=5).fit(X, y)
    assert svm.score(X, y) > 0.85
    assert pickle.loads(pickle.dumps(svm)).predict(X).tolist() == svm.predict(X).tolist()
    batches = StreamSVMClassifier(transforms="fourier=128:gamma=0.2")
    for _ in range(10):
        batches.partial_fit(X, y, classes=range(K))
    assert batches.score(X, y) > 0.7
    tuned = tune(data, out=tmp_path / "tuned", C="1,10", hold_out="1/3", **OPTIONS)
    part = fit(data, out=tmp_path / "part", hold_out="1/3", passes=2, C=tuned.C, **OPTIONS)
    assert abs(tuned.tried[0]["valid_accuracy"] - part.valid_accuracy) < 0.1
    text = "fourier=128:gamma=0.2"
    online = streamsvm.online(data, out=tmp_path / "online", transform=text, C=1.0)
    model = load_model(online.model)
    Z = by_hand(X, model.record["transforms"][0]).astype("f4")
    of_features = make_store(tmp_path / "Z.h5", sp.csr_array(Z), y, dtype="float32", dense=True)
    expected = load_model(streamsvm.online(of_features, out=tmp_path / "Z", transform="none", C=1.0).model)
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(Z), atol=1e-3)


def test_what_does_not_apply_is_refused_in_one_line(tmp_path: Path, data: Path) -> None:
    from streamsvm_converters import TextSource

    X, y = make_curved()
    wide = sp.csr_array((np.ones(400, "f4"), (np.arange(400), np.arange(400) * 11)), (400, 4400))
    (tmp_path / "a.txt").write_text("a 1:1 3:1\nb 2:1\n")
    stream, out = TextSource([tmp_path / "a.txt"]), tmp_path / "run"
    partial_fit = StreamSVMClassifier(transforms="fourier=8").partial_fit
    cases: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
        (fit, (wide, y), {"transform": "fourier=8"}, "1 to 4,096 features, but the data has 4,400; leave"),
        (
            fit,
            (0 * X, y),
            {"transform": "fourier=8"},
            "because in all 200 sampled pairs the rows are equal; set it",
        ),
        (streamsvm.online, (data,), {"transform": "fourier=8", "out": out}, "fourier needs gamma if"),
        (partial_fit, (X, y, range(K)), {}, "fourier needs gamma if"),
        (streamsvm.online, (stream,), {"transform": "fourier=8:gamma=1", "out": out}, "but the data has 0"),
    ]
    for call, arguments, options, words in cases:
        with pytest.raises((SettingsError, ValueError), match=words) as caught:
            call(*arguments, **options)
        assert "\n" not in str(caught.value)
    with pytest.warns(StreamsvmWarning, match="makes 401 features, more than the 400 rows") as warned:
        fit(data, out=out, transform="fourier=401")
    assert len(warned) == 1
    assert "fourier=401:gamma=" in succeeds("info", out / "model")
    with pytest.raises(SettingsError, match="explain does not apply to models with the transform fourier"):
        streamsvm.predict(out, X, explain=2)
