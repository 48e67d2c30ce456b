"""Columns of text become what scikit-learn's HashingVectorizer makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from stored_rows import stored
from streamsvm_converters import convert
from streamsvm_converters.kinds import table
from streamsvm_converters.tables.batches import TableFile

from streamsvm import fit, load_model, online, predict
from streamsvm.errors import ModelError, StoreError
from streamsvm.store import open_store

N = 600


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    words = np.array(["Äpfel", "pear", "don't", "a", "x1", "big\nline", "the", "of"])
    bodies = [" ".join(rng.choice(words, rng.integers(0, 9))) for _ in range(N)]
    titles: list[str | None] = [f"title {i % 5}" for i in range(N)]
    titles[5] = None
    return pd.DataFrame({"body": bodies, "title": titles, "topic": rng.choice(["u", "v"], N), "n": range(N)})


@pytest.mark.parametrize(
    ("options", "vectorizer"),
    [
        ({}, {"ngram_range": (1, 2)}),
        ({"bits": 3, "ngrams": (1, 1)}, {"n_features": 8}),
        ({"analyzer": "char_wb", "ngrams": (2, 4), "bits": 12},
         {"analyzer": "char_wb", "ngram_range": (2, 4), "n_features": 4096}),
    ],
)  # fmt: skip
def test_rows_are_those_of_the_hashing_vectorizer(
    frame: pd.DataFrame, options: dict, vectorizer: dict, tmp_path: Path
) -> None:
    frame.to_parquet(tmp_path / "t.parquet")
    convert(tmp_path / "t.parquet", tmp_path / "a.zarr", label="topic", text="body", shuffle=False, **options)
    wanted = HashingVectorizer(norm=None, alternate_sign=False, **vectorizer).transform(frame["body"])
    with open_store(tmp_path / "a.zarr") as store:
        rows = store.rows(0, store.n_rows)
        found = sp.csr_array((rows.data, rows.indices, rows.indptr), (store.n_rows, store.n_features))
    assert found.shape == wanted.shape
    assert abs(found - wanted).max() == 0
    assert (found.data > 0).all()


@pytest.mark.more
def test_processes_give_the_same_store(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without a label are left out before texts are hashed; numbers and labels stay with theirs."""
    frame.loc[::7, "topic"] = None
    frame.to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(table, "_MIN_PARALLEL_BYTES", 0)
    monkeypatch.setattr(table, "_BATCH_ROWS", 50)
    options: dict[str, Any] = {"label": "topic", "text": "body"}
    reports = [
        convert([tmp_path / "t.parquet"], tmp_path / f"{threads}.zarr", threads=threads, **options)
        for threads in (1, 2)
    ]
    assert reports[0].fingerprint == reports[1].fingerprint
    assert reports[0].unlabelled == len(range(0, N, 7))


def test_columns_are_joined_and_their_encoding_is_on_record_for_new_texts(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    """Texts that are missing are empty."""
    frame.to_csv(tmp_path / "t.csv", index=False)
    options: dict[str, Any] = {"label": "topic", "text": ["title", "body"], "bits": 10, "ngrams": (1, 3)}
    convert([tmp_path / "t.csv"], tmp_path / "a.zarr", **options, shuffle=False)
    with open_store(tmp_path / "a.zarr") as store:
        assert store.meta["encoding"] == {
            "columns": [],
            "text": {
                "columns": ["title", "body"], "analyzer": "word", "ngrams": [1, 3], "bits": 10, "norm": None
            },
        }  # fmt: skip
    convert([tmp_path / "t.csv"], tmp_path / "b.zarr", label="topic", like=tmp_path / "a.zarr", shuffle=False)
    joined = frame["title"].fillna("") + "\n" + frame["body"]
    hashing = HashingVectorizer(n_features=1024, ngram_range=(1, 3), norm=None, alternate_sign=False)
    wanted = hashing.transform(joined).toarray()
    for name in "a.zarr", "b.zarr":
        np.testing.assert_array_equal(stored(tmp_path / name)[0], wanted)


def test_texts_alone_have_a_default_of_their_own(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Logarithms of counts, weighted by rarity, of length 1; online, which reads rows once, not weighted."""
    frame["topic"] = np.where(frame["body"].str.contains("pear"), "u", "v")
    frame.to_csv(tmp_path / "t.csv", index=False)
    options: dict[str, Any] = {"text": "body", "label": "topic", "bits": 8, "dtype": "float64"}
    convert(tmp_path / "t.csv", tmp_path / "t.zarr", shuffle=False, **options)
    fit(tmp_path / "t.zarr", out=tmp_path / "run", passes=2, dtype="float64")
    in_memory = fit(frame["body"].tolist(), frame["topic"], passes=2, bits=8, dtype="float64")
    hashing = HashingVectorizer(n_features=2**8, ngram_range=(1, 2), norm=None, alternate_sign=False)
    logs = hashing.transform(frame["body"]).log1p()
    by_hand = fit(TfidfTransformer().fit_transform(logs), frame["topic"], passes=2, dtype="float64")
    for model in load_model(tmp_path / "run"), in_memory:
        np.testing.assert_allclose(model.coef_, by_hand.coef_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.intercept_, by_hand.intercept_, rtol=1e-6, atol=1e-9)
    online(tmp_path / "t.zarr", out=tmp_path / "online", dtype="float64")
    online(tmp_path / "t.zarr", out=tmp_path / "same", dtype="float64", transform="log1p,l2,bias=0.3")
    models = [load_model(tmp_path / name) for name in ("online", "same")]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_stores_that_hash_text_differently_are_not_joined(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    stores = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    for store, n in zip(stores, (1, 2), strict=True):
        convert(tmp_path / "t.csv", store, text="body", label="topic", bits=8, ngrams=(1, n))
    with pytest.raises(StoreError, match="hash text differently"):
        fit(stores, out=tmp_path / "run")


def test_n_grams_follow_the_features_of_other_columns(frame: pd.DataFrame, tmp_path: Path) -> None:
    """The default transform is scikit-learn's StandardScaler of the numbers, and leaves all others."""
    frame["kind"] = np.where(np.arange(N) % 3 == 0, "large", "small")
    frame.to_csv(tmp_path / "t.csv", index=False)
    options: dict[str, Any] = {"label": "topic", "text": "body", "columns": ["kind", "n"], "bits": 8}
    convert(tmp_path / "t.csv", tmp_path / "t.zarr", shuffle=False, dtype="float64", **options)
    fit(tmp_path / "t.zarr", out=tmp_path / "run", passes=2, dtype="float64")
    of_file, of_frame = load_model(tmp_path / "run"), fit(frame, passes=2, dtype="float64", **options)
    one_hot = OneHotEncoder().fit_transform(frame[["kind"]])
    number = StandardScaler().fit_transform(frame[["n"]])
    texts = HashingVectorizer(n_features=2**8, ngram_range=(1, 2)).transform(frame["body"])
    by_hand = fit(sp.hstack([one_hot, number, texts]), frame["topic"], passes=2, dtype="float64")
    for model in of_file, of_frame:
        np.testing.assert_allclose(model.coef_, by_hand.coef_, rtol=1e-6, atol=1e-9)
        scores = model.decision_function(frame[::-1])
        np.testing.assert_allclose(
            scores, by_hand.decision_function(sp.hstack([one_hot, number, texts]))[::-1]
        )
    predicted = predict(of_file, tmp_path / "t.csv").labels[:, 0]
    np.testing.assert_array_equal(of_frame.predict(frame), predicted)
    with pytest.raises(ModelError, match="X has no column 'body'"):
        of_file.predict(frame[["kind", "n"]])


def test_long_texts_are_read_and_hashed_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the memory does not grow with their length."""
    body = ["word " * 20_000] * 100  # of 100 KB
    frame = pa.table({"body": [f"{text}{i}" for i, text in enumerate(body)], "topic": ["a", "b"] * 50})
    pq.write_table(frame, tmp_path / "a.parquet", use_dictionary=False)
    batches: list[int] = []
    pieces: list[int] = []
    read, cut = TableFile.batches, table._pieces
    batched = lambda *given: (batches.append(each.nbytes) or each for each in read(*given))  # noqa: E731
    pieced = lambda *given: (pieces.append(each.nbytes) or each for each in cut(*given))  # noqa: E731
    monkeypatch.setattr(TableFile, "batches", batched)
    monkeypatch.setattr(table, "_pieces", pieced)
    report = convert(tmp_path / "a.parquet", tmp_path / "a.zarr", text="body", label="topic", memory="64M")
    assert report.n == 100
    assert sum(pieces) >= 10_000_000
    assert max(batches) < 8 * 2**20
    assert max(pieces) < 5 * 2**20
