"""Features of hashed texts are named by the commonest n-grams that are hashed to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from streamsvm_converters import convert
from streamsvm_converters.tables import ngrams
from streamsvm_converters.tables.ngrams import NgramCounts

import streamsvm
from streamsvm.model.strongest import strongest_features
from streamsvm.store import open_store

BITS = 9


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Texts of words whose frequencies fall like those of a language."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(400)])
    p = 1 / np.arange(1, 401)
    return [" ".join(rng.choice(words, 12, p=p / p.sum())) for _ in range(1500)]


def commonest_by_feature(texts: list[str]) -> dict[int, set[str]]:
    """Return, for each feature, the n-grams that most texts have among those that are hashed there."""
    counter = CountVectorizer(ngram_range=(1, 2), binary=True)
    counts = np.asarray(counter.fit_transform(texts).sum(axis=0)).ravel()
    names = counter.get_feature_names_out()
    hasher = HashingVectorizer(n_features=2**BITS, analyzer=lambda ngram: [ngram])
    features = hasher.transform(names).indices
    most = np.zeros(2**BITS, int)
    np.maximum.at(most, features, counts)
    found: dict[int, set[str]] = {}
    for name, feature, count in zip(names, features.tolist(), counts, strict=True):
        if count == most[feature] and count >= 3:
            found.setdefault(feature, set()).add(name)
    return found


def words_of(path: Path) -> dict[int, str]:
    with open_store(path) as store:
        lines = [line.split(" ", 1) for line in store.meta["encoding"]["words"].split("\n") if line]
    return {abs(int(feature)): word for feature, word in lines}


def table_of(texts: list[str], path: Path) -> Path:
    pd.DataFrame({"text": texts, "topic": np.arange(len(texts)) % 2}).to_json(
        path, orient="records", lines=True
    )
    return path


def test_words_are_the_commonest_of_their_feature(texts: list[str], tmp_path: Path) -> None:
    convert(table_of(texts, tmp_path / "t.jsonl"), tmp_path / "a.zarr", label="topic", text="text", bits=BITS)
    words, wanted = words_of(tmp_path / "a.zarr"), commonest_by_feature(texts)
    assert words.keys() == wanted.keys()
    assert all(word in wanted[feature] for feature, word in words.items())


def test_words_are_left_out_if_asked_for(texts: list[str], tmp_path: Path) -> None:
    path = table_of(texts, tmp_path / "t.jsonl")
    convert(path, tmp_path / "a.zarr", label="topic", text="text", bits=BITS, words=False)
    assert words_of(tmp_path / "a.zarr") == {}
    y = np.arange(len(texts)) % 2
    model = streamsvm.fit(texts, y, words=False)
    assert not model.record["encoding"]["words"]
    behind_hash = streamsvm.fit(texts, y, transform="hash=12")
    assert {type(name) for each in strongest_features(behind_hash, 5) for name, _ in each} == {int}


def test_words_do_not_depend_on_threads_and_memory(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm_converters.kinds.table._MIN_PARALLEL_BYTES", 0)
    monkeypatch.setattr(ngrams, "_MAX_COUNTED", 3000)  # n-grams are forgotten on the way
    monkeypatch.setattr(ngrams, "_MAX_NAMED", 100)
    path = table_of(texts * 4, tmp_path / "t.jsonl")
    found = []
    for name, batch, threads in (("a", 4096, 1), ("b", 70, 2)):
        monkeypatch.setattr("streamsvm_converters.kinds.table.TEXTS_PER_BATCH", batch)
        convert(path, tmp_path / f"{name}.zarr", label="topic", text="text", bits=BITS, threads=threads)
        found.append(words_of(tmp_path / f"{name}.zarr"))
    assert found[0] == found[1]
    assert {"w0", "w1", "w0 w0"} <= set(found[0].values())
    assert len(found[0]) <= 100


def test_the_sample_is_of_all_texts_and_stands_for_all() -> None:
    counts = NgramCounts()
    weights = counts.weights_of_next(1000) + counts.weights_of_next(1) + counts.weights_of_next(99_000)
    assert weights[:2048] == [1] * 2048
    assert abs(sum(weights) - 100_000) <= max(weights)
    assert np.count_nonzero(weights) < 9_000
    assert max(np.diff(np.flatnonzero(weights))) == max(weights) == 64


@pytest.mark.parametrize("transform", ["none", "select=top:300"])
def test_models_name_features_by_words(texts: list[str], transform: str, tmp_path: Path) -> None:
    """The coefficients are those of the counts of words, some of which are hashed with the sign -1."""
    y = np.array([len(set(text.split()) & {"w1", "w5", "w9", "w13"}) > 1 for text in texts])
    model = streamsvm.fit(texts, y, ngrams=(1, 1), C=1, transform=transform)
    words = sorted({word for text in texts for word in text.split()})
    hashed = HashingVectorizer().transform(words)
    assert set(hashed.data) == {-1, 1}
    columns = hashed.indices.tolist()
    selected = model.transforms[0].array.tolist() if model.transforms else range(2**20)
    row_of = {column: row for row, column in enumerate(selected)}
    coef = {
        word: sign * model.coef_[1, row_of[column]]
        for word, column, sign in zip(words, columns, hashed.data, strict=True)
        if column in row_of
    }
    wanted = sorted(coef.items(), key=lambda each: -each[1])[:20]
    assert strongest_features(model, 20)[1] == wanted
    model.save(tmp_path / "m")
    assert strongest_features(streamsvm.load_model(tmp_path / "m"), 20)[1] == wanted


def test_words_stay_with_data_that_is_like_earlier_data(texts: list[str], tmp_path: Path) -> None:
    convert(table_of(texts, tmp_path / "t.jsonl"), tmp_path / "a.zarr", label="topic", text="text", bits=BITS)
    other = table_of(["other words", "here"], tmp_path / "o.jsonl")
    convert(other, tmp_path / "b.zarr", label="topic", like=tmp_path / "a.zarr")
    assert words_of(tmp_path / "b.zarr") == words_of(tmp_path / "a.zarr")
