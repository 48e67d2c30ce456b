"""Files are scored by their path as the matrix that they hold is, by NumPy."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr
from helpers import save_weights
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import StandardScaler, normalize

from streamsvm import Model, calibrate, convert, evaluate, fit, load_model, predict
from streamsvm.errors import InputError, ModelError, SettingsError, StoreError, StreamsvmWarning
from streamsvm.inputs.rows import RowsToScore

N, D, K = 60, 8, 3
WEIGHTS = np.random.default_rng(0).integers(-3, 4, size=(D, K)).astype(np.float32)
X = np.random.default_rng(1).integers(1, 5, size=(N, D)).astype(np.float32)  # scores are exact
BEST = (X @ WEIGHTS).argmax(axis=1)
Y = np.where(np.random.default_rng(2).random(N) < 0.7, BEST, np.arange(N) % K)


def save(path: Path, weights: np.ndarray = WEIGHTS, **entries: Any) -> Model:
    record = {"classes": [str(c) for c in range(weights.shape[1])], "n_features": len(weights), "C": 1.0}
    record |= {"index_base": 1, "dtype": "float32", "label_dtype": "int64", "loss": "ww"}
    save_weights(path, weights, record | entries)
    return load_model(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "model")
    np.save("y.npy", Y)
    Path("y.txt").write_text("\n".join(f"+{label}.0" for label in Y))
    return tmp_path


def evidence(values: Any, weights: np.ndarray, names: Any, intercept: Any = 0) -> list[list[Any]]:
    """For the best class of each row, the two features with the largest shares above 0, and the shares."""
    found = []
    for row, scores in zip(values, values @ weights + intercept, strict=True):
        best, second = np.argsort(-scores, kind="stable")[:2]
        shares = row * (weights[:, best] - weights[:, second])
        first = [f for f in np.argsort(-shares, kind="stable")[:2] if shares[f] > 0]
        found.append([(names[f], pytest.approx(shares[f], rel=1e-4)) for f in first])
    return found


def as_text(path: Path) -> None:
    dump_svmlight_file(X, Y, str(path), zero_based=False)


def as_gzip(path: Path) -> None:
    as_text(path)
    path.write_bytes(gzip.compress(path.read_bytes()))


def as_zarr(path: Path) -> None:
    zarr.create_array(path, data=X, chunks=(7, 3))


# What writes a file, what says where its labels are, and whether its rows are scored as dense ones.
KINDS: dict[str, tuple[Callable[[Path], object], dict[str, str], bool]] = {
    "a.txt.gz": (as_gzip, {}, False),
    "a.npy": (lambda path: np.save(path, X), {"labels": "y.txt"}, True),
    "packed.npz": (lambda path: np.savez_compressed(path, X=X, y=Y), {"label": "y"}, True),
    "sparse.npz": (lambda path: sp.save_npz(path, sp.csc_matrix(X)), {"labels": "y.npy"}, False),
    "a.parquet": (lambda path: pq.write_table(pa.table({"v": list(X), "y": Y}), path), {"label": "y"}, True),
    "a.zarr": (as_zarr, {"labels": "y.npy"}, True),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_file_is_scored_as_its_matrix(folder: Path, name: str) -> None:
    write, labels, dense = KINDS[name]
    write(folder / name)
    model = load_model("model")
    read = [rows for rows, _ in RowsToScore(model, labelled=False).read(name)]
    assert {rows.dense for rows in read} == {dense}
    np.testing.assert_array_equal(predict(model, name).labels, BEST[:, None])
    np.testing.assert_array_equal(predict(model, Path(name), scores=True).scores[:, 0], (X @ WEIGHTS).max(1))
    assert predict(model, name, explain=2).evidence == evidence(X, WEIGHTS, range(1, D + 1))
    found = evaluate("model", name, **labels)
    assert (found.n, found.unlabelled, found.accuracy) == (N, 0, float(np.mean(BEST == Y)))
    wanted = calibrate(model, X, Y)
    assert calibrate(model, name, **labels).temperature == pytest.approx(wanted.temperature, rel=1e-6)


def test_rows_without_a_label_are_counted_whatever_the_file_is(folder: Path) -> None:
    missing = np.arange(N) % 10 == 3
    y = np.where(missing, np.nan, Y)
    np.save("a.npy", X)
    np.save("nan.npy", y)
    np.savez_compressed("a.npz", X=X, y=y)
    accuracy = np.mean((BEST == Y)[~missing])
    for name, options in ("a.npy", {"labels": "nan.npy"}), ("a.npz", {"label": "y"}):
        found = evaluate("model", name, **options)
        assert (found.n, found.unlabelled, found.accuracy) == (N - 6, 6, accuracy)


def test_labels_in_lines_are_spelled_as_those_of_the_training_data(folder: Path) -> None:
    """Of a model whose classes are texts, 01 and NA are classes; else they are 1, and missing."""
    np.save("a.npy", X)
    np.savez_compressed("a.npz", X)
    names = ["01", "1", "NA"]
    save(folder / "texts", classes=names, label_dtype="str", labels_as="text")
    save(folder / "known", classes=["0", "1", "NA"], label_dtype="str")
    Path("names.txt").write_text("\n".join(np.array(names)[Y]))
    Path("known.txt").write_text("\n".join(np.array(["+0.0", "01", "NA"])[Y]))
    for model, labels in ("texts", "names.txt"), ("known", "known.txt"):
        for data in "a.npy", "a.npz":
            found = evaluate(model, data, labels=labels)
            assert (found.n, found.unlabelled, found.accuracy) == (N, 0, np.mean(BEST == Y))


def test_what_the_model_does_not_know_is_a_warning(folder: Path) -> None:
    Path("new.txt").write_text("0 1:1 9:2\n7 2:1 " + " ".join(f"{j}:1" for j in range(10, 30)))
    little = "new.txt: only 8.70% of the non-zeros"
    words = [little, "left out values of features unknown to the model (21 in total)"]
    unknown = "1 row has a label unknown to the model; such rows count as wrong"
    for call, expected in (predict, words), (evaluate, [*words, unknown]):
        with pytest.warns(StreamsvmWarning) as caught:
            call("model", "new.txt")
        for each, said in zip(caught, expected, strict=True):
            assert said in str(each.message)
        assert caught[0].filename == __file__
    as_text(folder / "a.txt")
    with pytest.warns(StreamsvmWarning) as caught:
        fit("a.txt", out="run", valid="new.txt", passes=1)
    assert any(little in str(each.message) for each in caught)


def test_options_and_data_that_do_not_fit_are_refused(folder: Path) -> None:
    as_text(folder / "a.txt")
    np.save("a.npy", X)
    np.save("narrow.npy", X[:, 1:])
    np.savez_compressed("wide.npz", np.hstack([X, X]))
    np.save("short.npy", Y[1:])
    as_zarr(folder / "a.zarr")
    zarr.create_array(folder / "flat.zarr", data=np.ones(N))
    zarr.create_array(folder / "complex.zarr", data=np.ones((N, D), "c8"))
    save(folder / "nameless", index_base=None)
    refusals: list[tuple[str, dict[str, Any], type, str]] = [
        *(("a.txt", {option: "y.npy"}, SettingsError, f"{option} does not apply to LIBSVM text")
          for option in ("label", "labels", "layer", "obsm")),
        ("a.npy", {}, InputError, "matrix without labels"),
        ("a.npy", {"labels": "y.npy", "multilabel": True}, SettingsError, "multilabel applies only to text"),
        ("wide.npz", {}, InputError, "matrix without labels"),
        ("narrow.npy", {"labels": "y.npy"}, StoreError, "narrow.npy has 7 features, but the model has 8"),
        ("wide.npz", {"labels": "y.npy"}, InputError, "wide.npz has 16 features, but the model has 8"),
        ("a.zarr", {}, InputError, "matrix without labels"),
        ("a.zarr", {"label": "y"}, InputError, "a.zarr is a single array, which has no labels 'y'; specify"),
        ("a.zarr", {"labels": "short.npy"}, InputError, r"has the shape \(59,\), but .* has 60 rows"),
        ("a.zarr", {"labels": "y.npy", "layer": "counts"}, StoreError, "a matrix file has no layers"),
        ("flat.zarr", {}, StoreError, r"flat.zarr: array X has shape \(60,\); it must have two dimensions"),
        ("complex.zarr", {}, StoreError, "does not hold numbers of a supported type"),
        ("absent.txt", {}, InputError, "absent.txt cannot be read: No such file"),
        ("absent.npy", {"labels": "y.npy"}, StoreError, "absent.npy does not exist"),
    ]  # fmt: skip
    for data, options, error, match in refusals:
        with pytest.raises(error, match=match):
            evaluate("model", data, **options)
    with pytest.raises(ModelError, match="features of the model have no numbers"):
        evaluate("nameless", "a.txt")
    with pytest.raises(InputError, match="a pipe or an iterator can be read only once"):
        calibrate("model", "-")


@pytest.mark.parametrize("base", [0, 1])
def test_a_model_that_hashes_features_takes_their_numbers_from_text_as_from_a_store(
    folder: Path, base: int
) -> None:
    dump_svmlight_file(X, BEST, "a.txt", zero_based=base == 0)
    convert("a.txt", "a.zarr", index_base=base)
    fit("a.zarr", out="run", passes=5, loss="ww", C=1.0, transform="hash=6")
    found = evaluate("run", "a.txt")
    assert found.accuracy == evaluate("run", "a.zarr").accuracy > 0.8
    columns = np.hstack([np.zeros((N, base)), X])  # column j is the feature with the number j
    np.testing.assert_array_equal(predict("run", "a.txt").labels[:, 0], load_model("run").predict(columns))


@pytest.mark.parametrize(
    ("norm", "default"), [({"norm": None}, ["counts", "log1p", "idf", "l2", "bias"]), ({}, ["bias"])]
)
def test_a_model_of_hashed_text_scores_texts(
    norm: dict, default: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As counts; by a record without a norm, as rows of length 1, with signs."""
    monkeypatch.setattr("streamsvm_converters.kinds.table._BATCH_ROWS", 40)
    texts = [" ".join(np.random.default_rng(i).choice(list("abcdefgh"), 9)) for i in range(N)]
    texts[3] = ""
    weights = np.random.default_rng(4).normal(size=(2**6, K)).astype(np.float32)
    hashing = {"columns": ["body"], "analyzer": "char", "ngrams": [1, 2], "bits": 6, **norm}
    model = save(
        folder / "texts", weights, index_base=None, encoding={"columns": [], "text": hashing}, label="topic"
    )
    options: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 2), "n_features": 2**6}
    vectorizer = HashingVectorizer(**options, alternate_sign=not norm, **norm)
    hashed = vectorizer.transform(texts)
    scores = hashed @ weights
    wanted = scores.argmax(axis=1)
    alone = HashingVectorizer(n_features=2**6, analyzer=lambda ngram: [ngram])
    numbered = evidence(hashed.toarray(), weights, range(2**6))
    named = []
    for text, row in zip(texts, numbered, strict=True):
        of = {ngram: alone.transform([ngram]).indices[0] for ngram in vectorizer.build_analyzer()(text)}
        named.append([(" + ".join(each for each in of if of[each] == f), share) for f, share in row])
    y = np.where(Y == BEST, wanted, Y)
    pd.DataFrame({"body": texts, "topic": y}).to_csv("texts.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data in texts, tuple(texts), np.array(texts), pd.Series(texts), "texts.csv", ["texts.csv"]:
            found = predict(model, data, memory=2**17, explain=2)  # of a few rows at a time
            np.testing.assert_array_equal(found.labels[:, 0], wanted)
            assert found.evidence == named
    assert any(" + " in name for row in named for name, _ in row)
    assert predict(model, hashed, explain=2).evidence == numbered
    np.testing.assert_allclose(model.decision_function(texts), scores, rtol=1e-4, atol=1e-6)
    accuracy = np.mean(wanted == y)
    assert evaluate(model, texts, y).accuracy == evaluate(model, "texts.csv").accuracy == accuracy
    temperature = calibrate(model, "texts.csv").temperature
    assert calibrate(model, texts, y).temperature == pytest.approx(temperature, rel=1e-12)
    with pytest.raises(ModelError, match=r"X\[1\]: None is not a string"):
        model.predict(["a", None])
    with pytest.raises(InputError, match=r"absent\.csv cannot be read"):
        predict(model, ["texts.csv", "absent.csv"])
    convert(["texts.csv"], "like.zarr", like="texts", label="topic")
    fit("like.zarr", out="fitted")
    fit("like.zarr", out="further", from_="fitted")
    assert [each.name for each in load_model("further").transforms] == default


def test_evidence_has_names_and_values_after_the_transforms(folder: Path) -> None:
    """In files of any suffix and in memory. Rows that are centred have a value of every feature."""
    names = [f"gene {j}" for j in range(D)]
    frame = pd.DataFrame(X, columns=names)
    cells = anndata.AnnData(sp.csr_matrix(X), {"y": BEST.astype(str)}, pd.DataFrame(index=names))
    cells.write_h5ad("a.h5ad")
    frame.assign(y=BEST).to_csv("a.csv", index=False)
    for path, data, transform, values in (
        ("a.h5ad", cells, "log1p,l2,bias", normalize(np.log1p(X))),
        ("a.csv", frame, "center,scale=std,bias", StandardScaler().fit_transform(X)),
    ):
        model = load_model(fit(path, out=f"{path}.run", label="y", transform=transform).model)
        wanted = evidence(values, model.coef_.T, names, model.intercept_)
        assert predict(model, path, explain=2).evidence == predict(model, data, explain=2).evidence == wanted
    Path("a.csv").rename("a.data")
    assert predict(model, "a.data", format="csv", explain=2).evidence == wanted


def test_invalid_rows_are_an_error_or_left_out_with_a_warning(folder: Path) -> None:
    dump_svmlight_file(X, BEST, "a.txt", zero_based=False)
    lines = Path("a.txt").read_text().splitlines()
    Path("bad.txt").write_text("\n".join([*lines[:3], "1 1:x", *lines[3:]]) + "\n")
    convert("a.txt", "a.zarr")
    fit("a.zarr", out="run", passes=2, C=1.0)
    with pytest.raises(InputError, match=r"bad\.txt, line 4"):
        evaluate("run", "bad.txt")
    with pytest.warns(StreamsvmWarning, match=r"invalid rows \(1 in total, first error: bad.txt, line 4"):
        found = evaluate("run", "bad.txt", on_error="skip")
    assert (found.n, found.accuracy) == (len(X), evaluate("run", "a.txt").accuracy)
    with pytest.raises(SettingsError, match="on_error applies only to text and tables"):
        evaluate("run", "a.zarr", on_error="skip")
    with pytest.raises(SettingsError, match="format must be"):
        predict("run", "a.txt", format="xml")
