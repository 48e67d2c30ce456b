"""Reports of runs of every kind, read by a parser of HTML and compared with the runs' own files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store
from report_pages import Page
from report_problems import label_store, many_classes, sequence_store
from row_stream import RowStream, late_problem
from run_files import flip, metrics_of, stop_after
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from streamsvm import fit, load_model, online, report
from streamsvm.errors import Interrupted, ModelError, RunError

N, D, K = 240, 7, 4
X, CODES = make_problem(2 * N, D, K, noise=1.5)
LABELS = CODES.astype(str)


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> tuple[Path, Path]:
    """Data to train on, and held-out data."""
    folder = tmp_path_factory.mktemp("data")
    return (
        make_store(folder / "train.h5", X[:N], CODES[:N], n_classes=K),
        make_store(folder / "valid.h5", X[N:], CODES[N:], n_classes=K),
    )


@pytest.fixture(scope="module")
def finished(stores, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    fit(stores[0], out=run, passes=4, gap="pass", valid=stores[1], block_rows=50)
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def page_of(run: Path, tmp_path: Path, **options: Any) -> Page:
    page = Page(report(run, tmp_path / "page.html", force=True, **options))
    page.check()
    return page


def test_figures_are_those_of_the_metrics(run: Path, tmp_path: Path) -> None:
    page = page_of(run, tmp_path)
    lines = [line for line in metrics_of(run) if line["event"] == "pass"]
    columns = {
        "pass": ("pass", "d"), "primal": ("primal", ".6g"), "dual": ("dual", ".6g"),
        "relative gap": ("relative_gap", ".3g"), "gap of average": ("average_relative_gap", ".3g"),
        "train accuracy": ("train_accuracy", ".2%"), "valid accuracy": ("valid_accuracy", ".2%"),
        "valid, last iterate": ("last_iterate_valid_accuracy", ".2%"),
    }  # fmt: skip
    rows = page.table("pass", "primal", "seconds")
    assert len(rows) == 4
    for row, line, seconds in zip(rows, lines, np.cumsum([line["seconds"] for line in lines]), strict=True):
        assert {head: row[head] for head in columns} == {
            head: f"{line[key]:{form}}" for head, (key, form) in columns.items()
        }
        assert row["seconds"] == f"{seconds:.2f}"
    assert page.pictures == [
        "Relative gap by pass", "Accuracy by pass", "Seconds of each pass", "Progressive accuracy",
        *map(str, range(K)),
    ]  # fmt: skip


def test_confusions_are_those_of_predictions(run: Path, tmp_path: Path) -> None:
    page = page_of(run, tmp_path)
    labels, predicted = LABELS[N:], load_model(run).predict(X[N:])
    matrix = confusion_matrix(labels, predicted)
    rows = page.table("true", *map(str, range(K)))
    assert [[int(row[str(c)] or 0) for c in range(K)] for row in rows] == matrix.tolist()
    precision, recall, f1, counts = precision_recall_fscore_support(labels, predicted)
    rows = page.table("class", "precision", "F1")
    assert [int(row["class"]) for row in rows] == np.lexsort((-counts, f1)).tolist()
    np.fill_diagonal(matrix, 0)
    for row in rows:
        c = int(row["class"])
        for head, values in (("precision", precision), ("recall", recall), ("F1", f1)):
            assert row[head] == f"{values[c]:.2%}"
        wrong, count = row["most often taken for"].rstrip(")").split(" (")
        assert (int(row["rows"]), int(count)) == (counts[c], matrix[c].max())
        assert matrix[c, int(wrong)] == matrix[c].max()
    assert f"{(labels == predicted).mean():.2%}" in page.texts


def test_the_same_run_gives_the_same_bytes_whatever_style_the_user_draws_in(run: Path, stores) -> None:
    import matplotlib

    assert report(run) == run / "report.html"
    first = (run / "report.html").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "lines.linewidth": 9}):
        assert report(run).read_bytes() == first
    fit(stores[0], out=run, passes=1, force=True)
    assert not (run / "report.html").exists()  # it is part of a run, which was replaced


def test_data_takes_the_place_of_the_validation_store(run: Path, stores, tmp_path: Path) -> None:
    page = page_of(run, tmp_path, data=stores[0])
    assert f"{(load_model(run).predict(X[:N]) == LABELS[:N]).mean():.2%}" in page.texts


@pytest.mark.parametrize(("steps", "pictures"), [(2, 1), (31, 4)])
def test_interrupted_runs_have_what_they_reported_and_no_model(
    stores, tmp_path: Path, steps: int, pictures: int
) -> None:
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(stores[0], out=run, passes=9, gap="pass", valid=stores[1], block_rows=50, stop=stop_after(steps))
    page = page_of(run, tmp_path)
    assert len(page.pictures) == pictures
    assert page.says("in progress or interrupted, without a model")
    assert page.says("the run has no model yet")
    with pytest.raises(ModelError, match="has no model yet"):
        report(run, tmp_path / "x.html", data=stores[1])
    assert not (tmp_path / "x.html").exists()


def test_a_run_without_held_out_data_says_what_is_left_out(stores, tmp_path: Path) -> None:
    fit(stores[0], out=tmp_path / "run", passes=2, gap="none")
    page = page_of(tmp_path / "run", tmp_path)
    assert page.says("need held-out data")
    assert page.says("gap was not measured")
    assert "Accuracy by pass" not in page.pictures  # nor with one point, of the last pass
    assert "Relative gap by pass" in page.pictures  # estimates


def test_a_validation_store_that_is_gone_or_another_one_is_a_sentence(stores, tmp_path: Path) -> None:
    valid = shutil.copy(stores[1], tmp_path / "valid.h5")
    fit(stores[0], out=tmp_path / "run", valid=valid)
    os.remove(valid)
    assert page_of(tmp_path / "run", tmp_path).says("validation store cannot be scored")
    make_store(tmp_path / "valid.h5", *make_problem(50, D, K, seed=5), n_classes=K)
    assert page_of(tmp_path / "run", tmp_path).says("has changed since")


def test_online_runs(tmp_path: Path) -> None:
    online(RowStream(*late_problem(), (7, 50, 51, 120)), out=tmp_path / "run", C=0.3)
    page = page_of(tmp_path / "run", tmp_path)
    assert [(row["rows"], row["progressive accuracy"]) for row in page.table("rows", "classes")] == [
        (f"{line['rows']}", f"{line['progressive_accuracy']:.2%}") for line in metrics_of(tmp_path / "run")
    ]
    assert "Progressive accuracy" in page.pictures


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"{not json\n", "is damaged, and left out"),
        (b"[" * 10**5 + b"\n", "is damaged, and left out"),
        (b"[1, 2]\n\xff\xfe\n7\n", "3 lines"),
        (b'{"event": "lost"}\n', "was cut short"),
        (b"", "lacks the reports of 1 of 4 passes"),
    ],
)
def test_damaged_or_missing_lines_are_one_sentence(
    run: Path, tmp_path: Path, damage: bytes, words: str
) -> None:
    path = run / "metrics.jsonl"
    *lines, _, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, damage, last]))
    page = page_of(run, tmp_path)
    assert sum(words in text for text in page.texts) == 1
    rows = page.table("pass", "primal")
    assert [row["pass"] for row in rows] == ["1", "2", "4"]
    assert rows[-1]["seconds"] == "-"  # it came after a pass of which nothing is known


def test_values_of_other_types_are_left_out(run: Path, tmp_path: Path) -> None:
    last = metrics_of(run)[-1]
    wrong = {"primal": "<b>", "dual": None, "relative_gap": [], "C": {}, "valid_accuracy": True,
             "seconds": 10**400}  # fmt: skip
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**last, "pass": 5, **wrong}) + "\n")
    row = page_of(run, tmp_path).table("pass", "primal")[-1]
    names = ("pass", "primal", "dual", "relative gap", "valid accuracy", "seconds")
    assert [row[name] for name in names] == ["5", "-", "-", "-", "-", "-"]


def test_metrics_that_are_missing_or_a_link(run: Path, tmp_path: Path) -> None:
    (run / "metrics.jsonl").unlink()
    assert page_of(run, tmp_path).says("Nothing has been reported yet.")
    (tmp_path / "secret").write_text('{"event": "pass", "pass": 1, "primal": 4711}\n')
    (run / "metrics.jsonl").symlink_to(tmp_path / "secret")
    page = page_of(run, tmp_path)
    assert "4711" not in page.text
    assert page.says("symbolic link")


def test_what_is_no_run_or_cannot_be_written(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "empty", run / "run.json"):
        with pytest.raises(RunError, match=r"is not a run|nothing is there"):
            report(path, tmp_path / "x.html")
    with pytest.raises(RunError, match=r"no.html: the folder .*none does not exist; create it first"):
        report(run, tmp_path / "none" / "no.html")
    (run / "run.json").write_text("{}")
    with pytest.raises(RunError, match="checksum"):
        report(run)


def test_a_damaged_model_is_a_sentence(run: Path, tmp_path: Path) -> None:
    path = run / "model" / "coef.npy"
    flip(path)
    page = page_of(run, tmp_path)
    assert page.says("coef.npy")
    assert len(page.table("pass", "primal")) == 4


# -- names from the data ---------------------------------------------------------------------------

NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "a&amp;b $x_1$ {0} %s {{ 7 * 7 }}",
    "كبد 肝臓 \U0001f9ec",
]


def test_names_from_data_are_escaped_and_shown_as_they_are(tmp_path: Path) -> None:
    import anndata
    import pandas as pd

    X, codes = make_problem(120, 4, 4, noise=2.0)
    features = [*NASTY[:3], "𝛼\x07\u202e\uffff" + 100 * "x"]
    cells = anndata.AnnData(
        X,
        pd.DataFrame({"t": pd.Categorical.from_codes(codes, NASTY)}, index=[str(i) for i in range(120)]),
        pd.DataFrame(index=features),
    )
    folder = tmp_path / "<i>folder & 'more'"
    folder.mkdir()
    cells.write_h5ad(folder / "cells.h5ad")
    fit(folder / "cells.h5ad", out=folder / "<b>run", label="t", valid=folder / "cells.h5ad")
    page = page_of(folder / "<b>run", tmp_path)
    assert sorted(row["class"] for row in page.table("class", "recall")) == sorted(NASTY)
    assert set(NASTY[:3]) <= set(page.pictures)  # the other class has no coefficient above 0
    assert "<b>run" in page.texts
    assert "i" not in page.tags
    for name in features[:3]:
        assert any(text.startswith(name[:15]) for text in page.texts), name
    assert not {"\x07", "\u202e", "\uffff"} & set(page.text)
    assert "x" * 60 not in page.text


# -- tuning ----------------------------------------------------------------------------------------


def test_what_tune_tried_with_and_without_a_run(run: Path, tmp_path: Path) -> None:
    lines = [
        {"C": 2.0**i, "settings": settings, "valid_accuracy": 0.9 - (i - 1 - at) ** 2 / 100, "passes": 3}
        for at, settings in enumerate(({}, {"loss": "cs"}))
        for i in range(-4, 5)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "tune.jsonl").write_text(text)
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "tune.jsonl").write_text(text)
    for folder in (run, tmp_path / "search"):
        page = page_of(folder, tmp_path)
        rows = page.table("settings", "C", "valid accuracy")
        assert {tuple(row.values()) for row in rows} == {
            ("loss cs" if line["settings"] else "defaults", f"{line['C']:.4g}",
             f"{line['valid_accuracy']:.2%}", "3")
            for line in lines
        }  # fmt: skip
        assert [row["valid accuracy"] for row in rows] == sorted(
            (row["valid accuracy"] for row in rows), reverse=True
        )
        assert "Valid accuracy by C" in page.pictures
    assert page.pictures == ["Valid accuracy by C"]
    assert page.says("there is no run yet")


# -- sizes and kinds -------------------------------------------------------------------------------


def test_many_passes_stay_a_short_page(run: Path, tmp_path: Path) -> None:
    path, last = run / "metrics.jsonl", metrics_of(run)[-1]
    path.write_text("".join(json.dumps({**last, "pass": i}) + "\n" for i in range(1, 4001)))
    page = page_of(run, tmp_path)
    assert [int(row["pass"].replace(",", "")) for row in page.table("pass", "primal")] == [
        *range(1, 11), *range(3981, 4001),
    ]  # fmt: skip
    assert page.says("of 4,000, the first 10 and the last 20")
    assert len(page.text) < 500_000


@pytest.mark.engine
@pytest.mark.parametrize("k", [2500, pytest.param(17_000, marks=pytest.mark.more)])
def test_very_many_classes(tmp_path: Path, k: int) -> None:
    X, codes = many_classes(k)
    store = make_store(tmp_path / "s.h5", X, codes, n_classes=k, chunk_nnz=2**16)
    fit(store, out=tmp_path / "run", passes=1, gap="none")
    page = page_of(tmp_path / "run", tmp_path, data=store)
    assert len(page.text) < 500_000
    assert len(page.table("class", "recall")) == 30
    assert page.says(f"9 classes, of {k:,}")


@pytest.mark.engine
@pytest.mark.parametrize("loss", ["ww", "ovr2"])
def test_rows_with_several_labels(tmp_path: Path, loss: str) -> None:
    store, own = label_store(tmp_path / "s.h5", N, D, K)
    fit(store, out=tmp_path / "run", loss=loss, valid=store, dtype="float64")
    page = page_of(tmp_path / "run", tmp_path)
    rows = {row["class"]: int(row["rows"]) for row in page.table("class", "recall")}
    assert rows == {str(c): n for c, n in enumerate(own.sum(axis=0))}
    assert page.says("with several labels each")


def test_sequences(tmp_path: Path) -> None:
    store, labels = sequence_store(tmp_path / "s.h5")
    fit(store, out=tmp_path / "run", loss="chain", valid=store, dtype="float64")
    page = page_of(tmp_path / "run", tmp_path)
    assert "whole sequences right" in page.texts
    rows = {row["class"]: int(row["rows"]) for row in page.table("class", "recall")}
    assert rows == {str(c): n for c, n in enumerate(np.bincount(labels))}
