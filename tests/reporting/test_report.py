"""Reports of runs of every kind, read by a parser of HTML and compared with the runs' own files."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store
from report_pages import Page
from row_stream import RowStream, late_problem
from run_files import metrics_of, stop_after

pytest.importorskip("matplotlib")

from streamsvm import fit, load_model, online, report
from streamsvm.errors import Interrupted, ModelError, RunError

N, D, K = 240, 7, 4


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> tuple[Path, Path]:
    """Data to train on, and held-out data."""
    folder = tmp_path_factory.mktemp("data")
    X, labels = make_problem(2 * N, D, K, noise=1.5)
    return (
        make_store(folder / "train.h5", X[:N], labels[:N], n_classes=K),
        make_store(folder / "valid.h5", X[N:], labels[N:], n_classes=K),
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


def close_to(shown: str, value: float, digits: float) -> bool:
    return math.isclose(float(shown.replace(",", "")), value, rel_tol=10.0**-digits, abs_tol=0)


def test_figures_are_those_of_the_metrics(run: Path, tmp_path: Path) -> None:
    page = page_of(run, tmp_path)
    lines = [line for line in metrics_of(run) if line["event"] == "pass"]
    rows = page.table("pass", "primal", "seconds")
    assert [row["pass"] for row in rows] == ["1", "2", "3", "4"]
    seconds = np.cumsum([line["seconds"] for line in lines])
    for row, line, total in zip(rows, lines, seconds, strict=True):
        assert close_to(row["primal"], line["primal"], 5)
        assert close_to(row["dual"], line["dual"], 5)
        assert close_to(row["relative gap"], line["relative_gap"], 2)
        assert close_to(row["gap of average"], line["average_relative_gap"], 2)
        assert abs(float(row["train accuracy"]) - line["train_accuracy"]) <= 5e-5
        assert abs(float(row["valid accuracy"]) - line["valid_accuracy"]) <= 5e-5
        last = line["last_iterate_valid_accuracy"]
        assert abs(float(row["valid, last iterate"]) - last) <= 5e-5
        assert abs(float(row["seconds"]) - total) <= 5e-3
    assert {"Relative gap by pass", "Objective by second", "Accuracy by pass"} <= set(page.pictures)
    assert len(page.pictures) == 9 + K


def test_confusions_are_those_of_predictions(run: Path, stores, tmp_path: Path) -> None:
    page = page_of(run, tmp_path)
    model = load_model(run)
    X, codes = make_problem(2 * N, D, K, noise=1.5)
    labels, predicted = codes[N:].astype(str), model.predict(X[N:])
    rows = page.table("class", "rows", "accuracy")
    assert len(rows) == K
    for row in rows:
        of_class = labels == row["class"]
        assert int(row["rows"]) == of_class.sum()
        assert int(row["right"]) == (predicted[of_class] == row["class"]).sum()
    accuracies = [float(row["accuracy"]) for row in rows]
    assert accuracies == sorted(accuracies)
    pairs = Counter(zip(labels[labels != predicted], predicted[labels != predicted], strict=True))
    for (true, wrong), count in pairs.most_common(3):
        assert f"{true} → {wrong}" in page.texts
        assert f"{count} ({count / (labels == true).sum():.1%})".replace("%", " %") in page.texts
    assert f"{100 * (labels == predicted).mean():.2f} %" in page.texts


def test_features_settings_and_provenance(run: Path, tmp_path: Path) -> None:
    page = page_of(run, tmp_path)
    coef = load_model(run).coef_.T
    for c in range(K):
        best = int(coef[:, c].argmax())
        assert f"feature {best + 1}" in page.texts
        assert f"{coef[best, c]:.3g}" in page.texts
    found = {row[0]: row[1] for table in page.tables for row in table if len(row) == 2}
    record = json.loads((run / "run.json").read_text())
    assert found["fingerprint"] == record["store"]["fingerprint"]
    assert found["store"] == record["store"]["path"][0]
    assert found["loss"] == "ww"
    assert found["seed"] == "0"


def test_it_is_written_into_the_run_by_default_which_can_then_be_replaced(run: Path, stores) -> None:
    assert report(run) == run / "report.html"
    fit(stores[0], out=run, passes=1, force=True)
    assert not (run / "report.html").exists()


def test_equal_runs_give_equal_pictures(run: Path, tmp_path: Path) -> None:
    first, second = (report(run, tmp_path / f"{i}.html").read_text() for i in range(2))
    assert first[: first.index("Provenance")] == second[: second.index("Provenance")]


def test_data_takes_the_place_of_the_validation_store(run: Path, stores, tmp_path: Path) -> None:
    page = page_of(run, tmp_path, data=stores[0])
    X, codes = make_problem(2 * N, D, K, noise=1.5)
    share = (load_model(run).predict(X[:N]) == codes[:N].astype(str)).mean()
    assert f"{100 * share:.2f} %" in page.texts


def test_interrupted_runs(stores, tmp_path: Path) -> None:
    """In the first pass, and in a later one: there is no model, and data cannot be scored."""
    for blocks, pictures in ((2, 1), (9, 7)):
        run = tmp_path / f"run{blocks}"
        with pytest.raises(Interrupted):
            fit(
                stores[0], out=run, passes=9, gap="pass", valid=stores[1], block_rows=50,
                stop=stop_after(blocks) if blocks == 2 else stop_after(31),
            )  # fmt: skip
        page = page_of(run, tmp_path)
        assert len(page.pictures) == pictures
        assert any("in progress or interrupted" in text for text in page.texts)
        with pytest.raises(ModelError, match="has no model yet"):
            report(run, tmp_path / "x.html", data=stores[1])
    assert not (tmp_path / "x.html").exists()


def test_a_run_without_held_out_data_says_what_is_left_out(stores, tmp_path: Path) -> None:
    fit(stores[0], out=tmp_path / "run", passes=2, gap="none")
    page = page_of(tmp_path / "run", tmp_path)
    assert any("need held-out data" in text for text in page.texts)
    assert any("gap was not measured" in text for text in page.texts)
    assert "Accuracy by pass" not in page.pictures  # nor with one point, of the last pass
    assert "Relative gap by pass" in page.pictures  # estimates


def test_a_validation_store_that_is_gone_is_a_sentence(stores, tmp_path: Path) -> None:
    valid = shutil.copy(stores[1], tmp_path / "valid.h5")
    fit(stores[0], out=tmp_path / "run", valid=valid)
    os.remove(valid)
    page = page_of(tmp_path / "run", tmp_path)
    assert any("validation store cannot be scored" in text for text in page.texts)
    make_store(tmp_path / "valid.h5", *make_problem(50, D, K, seed=5), n_classes=K)
    page = page_of(tmp_path / "run", tmp_path)
    assert any("has changed since" in text for text in page.texts)


def test_online_runs(tmp_path: Path) -> None:
    X, labels = late_problem()
    online(RowStream(X, labels, (7, 50, 51, 120)), out=tmp_path / "run", C=0.3)
    page = page_of(tmp_path / "run", tmp_path)
    rows = page.table("rows", "progressive accuracy", "classes")
    lines = metrics_of(tmp_path / "run")
    assert [int(row["rows"]) for row in rows] == [line["rows"] for line in lines]
    for row, line in zip(rows, lines, strict=True):
        assert abs(float(row["progressive accuracy"]) - line["progressive_accuracy"]) <= 5e-5
    assert "Progressive accuracy" in page.pictures


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda lines: [*lines[:-2], b"{not json\n", lines[-1]], "is damaged, and left out"),
        (lambda lines: [*lines[:-2], b"[1, 2]\n", b"\xff\xfe\n", b"7\n", lines[-1]], "3 lines"),
        (lambda lines: [*lines[:-2], b'{"event": "lost"}\n', lines[-1]], "was cut short"),
        (lambda lines: [*lines[:-2], lines[-1]], "lacks the reports of 1 of 4 passes"),
        (lambda lines: [*lines[:-2], b"[" * 10**5 + b"\n", lines[-1]], "is damaged, and left out"),
    ],
)
def test_damaged_or_missing_lines_are_one_sentence(run: Path, tmp_path: Path, spoil, words: str) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(b"".join(spoil(path.read_bytes().splitlines(keepends=True))))
    page = page_of(run, tmp_path)
    assert sum(words in text for text in page.texts) == 1
    rows = page.table("pass", "primal")
    assert [row["pass"] for row in rows] == ["1", "2", "4"]
    if "cut short" not in words:  # the run's last pass came after one of which nothing is known
        assert "4" not in {row["pass"] for row in rows if row["seconds"] != "nan" and row["seconds"] != "-"}


def test_a_line_that_is_being_written_is_no_damage(run: Path, tmp_path: Path) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    page = page_of(run, tmp_path)
    assert not any("damaged" in text for text in page.texts)
    assert len(page.table("pass", "primal")) == 3


def test_values_of_other_types_are_left_out(run: Path, tmp_path: Path) -> None:
    path = run / "metrics.jsonl"
    last = metrics_of(run)[-1]
    wrong = {"primal": "<b>", "dual": None, "relative_gap": [], "valid_accuracy": True, "seconds": 10**400}
    path.write_bytes(path.read_bytes() + json.dumps({**last, "pass": 5, **wrong}).encode() + b"\n")
    row = page_of(run, tmp_path).table("pass", "primal")[-1]
    names = ("pass", "primal", "dual", "relative gap", "valid accuracy", "seconds")
    assert [row[name] for name in names] == ["5", "-", "-", "-", "-", "-"]


def test_no_metrics_at_all(run: Path, tmp_path: Path) -> None:
    (run / "metrics.jsonl").unlink()
    page = page_of(run, tmp_path)
    assert "Nothing has been reported yet." in page.texts


def test_a_link_in_the_run_is_not_followed(run: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"event": "pass", "pass": 1, "primal": 4711}\n')
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(secret)
    page = page_of(run, tmp_path)
    assert "4711" not in page.text
    assert any("symbolic link" in text for text in page.texts)


def test_what_is_no_run_or_cannot_be_written(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "empty", run / "run.json"):
        with pytest.raises(RunError, match="is not a run"):
            report(path, tmp_path / "x.html")
    with pytest.raises(RunError, match=r"no.html: the folder .*none does not exist; create it first"):
        report(run, tmp_path / "none" / "no.html")
    (run / "run.json").write_text("{}")
    with pytest.raises(RunError, match="checksum"):
        report(run)


def test_a_damaged_model_is_a_sentence(run: Path, tmp_path: Path) -> None:
    path = run / "model" / "coef.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    page = page_of(run, tmp_path)
    assert any("coef.npy" in text for text in page.texts)
    assert len(page.table("pass", "primal")) == 4


# -- names from the data ---------------------------------------------------------------------------

NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "a&amp;b $x_1$ {0} %s",
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
    classes = [row["class"] for row in page.table("class", "accuracy")]
    assert sorted(classes) == sorted(NASTY)
    assert "<b>run" in page.texts
    assert not page.tags & {"script", "img", "i"}
    for name in features[:3]:
        assert any(text.startswith(name[:15]) for text in page.texts), name
    assert "\x07" not in page.text
    assert "\u202e" not in page.text
    assert "x" * 60 not in page.text


# -- tuning ----------------------------------------------------------------------------------------


def write_tuned(run: Path, n: int = 9) -> list[dict[str, Any]]:
    lines = [
        {"C": 2.0**i, "settings": settings, "valid_accuracy": 0.9 - (i - 1 - at) ** 2 / 100, "passes": 3,
         "seconds": 1.5}
        for at, settings in enumerate(({}, {"loss": "cs"}))
        for i in range(-4, n - 4)
    ]  # fmt: skip
    (run / "tune.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def test_the_path_of_tune(run: Path, tmp_path: Path) -> None:
    lines = write_tuned(run)
    page = page_of(run, tmp_path)
    assert "Valid accuracy by C" in page.pictures
    rows = page.table("settings", "C", "valid accuracy")
    assert len(rows) == len(lines)
    assert {(row["settings"], float(row["C"]), float(row["valid accuracy"])) for row in rows} == {
        (
            "loss cs" if line["settings"] else "defaults",
            float(f"{line['C']:.4g}"),
            round(line["valid_accuracy"], 4),
        )
        for line in lines
    }
    assert float(rows[0]["valid accuracy"]) == 0.9


def test_a_search_without_a_run_yet(tmp_path: Path) -> None:
    write_tuned(tmp_path)
    page = Page(report(tmp_path))
    page.check()
    assert page.pictures == ["Valid accuracy by C"]


# -- sizes -----------------------------------------------------------------------------------------


def test_many_passes_and_classes_stay_a_short_page(run: Path, tmp_path: Path) -> None:
    path, last = run / "metrics.jsonl", metrics_of(run)[-1]
    path.write_text("".join(json.dumps({**last, "pass": i}) + "\n" for i in range(1, 4001)))
    page = page_of(run, tmp_path)
    assert len(page.table("pass", "primal")) == 30
    assert any("of 4,000, the first 10 and the last 20" in text for text in page.texts)
    assert len(page.text) < 400_000


@pytest.mark.parametrize("k", [2500, pytest.param(17_000, marks=pytest.mark.slow)])
def test_very_many_classes(tmp_path: Path, k: int) -> None:
    from report_problems import many_classes

    X, codes = many_classes(k)
    store = make_store(tmp_path / "s.h5", X, codes, n_classes=k, chunk_nnz=2**16)
    fit(store, out=tmp_path / "run", passes=1, gap="none")
    page = page_of(tmp_path / "run", tmp_path, data=store)
    assert len(page.text) < 400_000
    assert len(page.table("class", "accuracy")) == 30
    assert any(f"9 classes, of {k:,}" in text for text in page.texts)


@pytest.mark.parametrize("loss", ["ww", "ovr"])
def test_rows_with_several_labels(tmp_path: Path, loss: str) -> None:
    from report_problems import label_store

    store, own = label_store(tmp_path / "s.h5", N, D, K)
    fit(store, out=tmp_path / "run", loss=loss, valid=store)
    page = page_of(tmp_path / "run", tmp_path)
    rows = {row["class"]: int(row["rows"]) for row in page.table("class", "accuracy")}
    assert rows == {str(c): n for c, n in enumerate(own.sum(axis=0))}
    assert any("with several labels each" in text for text in page.texts)


def test_sequences(tmp_path: Path) -> None:
    from report_problems import sequence_store

    store, labels = sequence_store(tmp_path / "s.h5")
    fit(store, out=tmp_path / "run", loss="chain", valid=store)
    page = page_of(tmp_path / "run", tmp_path)
    assert "whole sequences right" in page.texts
    rows = {row["class"]: int(row["rows"]) for row in page.table("class", "accuracy")}
    assert rows == {str(c): n for c, n in enumerate(np.bincount(labels))}
