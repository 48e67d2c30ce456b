"""Reports of runs, read by a parser of XML and compared with the runs' own files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from helpers import plain_online as online
from row_stream import RowStream, late_problem
from run_files import flip, metrics_of, stop_after
from sklearn.metrics import confusion_matrix

pytest.importorskip("matplotlib")

from streamsvm import load_model, report
from streamsvm.errors import InputError, Interrupted, ModelError, RunError

N, D, K = 240, 7, 4
X, CODES = make_problem(2 * N, D, K, noise=1.5)


class Page:
    """A report, which must be well-formed and refer to nothing outside it."""

    def __init__(self, run: Path, **options: Any) -> None:
        path = report(run, **options)
        self.root = ElementTree.fromstring(path.read_text())
        self.texts = [text.strip() for text in self.root.itertext() if text.strip()]
        self.notes = [note.text or "" for note in self.root.iterfind(".//p[@class='note']")]
        for element in self.root.iter():
            assert element.tag.rpartition("}")[2] not in {"script", "link", "iframe", "img", "image", "a"}
            for name, value in element.attrib.items():
                name = name.rpartition("}")[2]
                assert not name.startswith("on")
                assert name not in {"src", "href"} or value.startswith("#")
        ids = [element.get("id") for element in self.root.iter() if element.get("id")]
        assert len(ids) == len(set(ids))

    def table(self, *heads: str) -> list[dict[str, str]]:
        """The rows of the one table that has these columns."""
        tables = [
            [["".join(c.itertext()) for c in row] for row in t.iter("tr")] for t in self.root.iter("table")
        ]
        (found,) = [table for table in tables if set(heads) <= set(table[0])]
        return [dict(zip(found[0], row, strict=True)) for row in found[1:]]

    def fact(self, name: str) -> str:
        """What stands right of `name` in a table of facts."""
        (row,) = [row for row in self.root.iter("tr") if len(row) == 2 and row[0].text == name]
        return row[1].text or ""

    def says(self, words: str) -> bool:
        return any(words in text for text in self.texts)


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


def test_figures_are_those_of_the_metrics(run: Path) -> None:
    page = Page(run)
    lines = [line for line in metrics_of(run) if line["event"] == "pass"]
    rows = page.table("pass", "primal")
    names = ("primal", "dual", "relative_gap", "train_accuracy", "valid_accuracy", "seconds")
    assert [[row[name.replace("_", " ")] for name in names] for row in rows] == [
        [f"{line[name]:.4g}" for name in names] for line in lines
    ]
    assert page.fact("status") == "finished, with a model"
    assert page.fact("data").endswith("train.h5")
    assert page.fact("valid accuracy") == f"{lines[-1]['valid_accuracy']:.4g}"
    assert page.fact("block rows") == "50"
    assert (page.fact("passes"), page.fact("maximum passes")) == ("4", "4")
    pictures = {"Relative gap", "Objective", "Accuracy", "Progressive accuracy", "Confusion matrix"}
    assert pictures <= set(page.texts)


def test_classes_are_those_of_predictions(run: Path, stores) -> None:
    """Of the validation store, or of the data that are given."""
    model = load_model(run)
    for part, data in ((slice(N, None), None), (slice(N), stores[0])):
        page = Page(run, data=data)
        matrix = confusion_matrix(CODES[part], model.predict(X[part]).astype(int))
        rows, right = matrix.sum(axis=1), matrix.diagonal()
        assert page.fact("accuracy") == f"{right.sum() / N:.4g}"
        table = {int(row["class"]): row for row in page.table("class", "precision")}
        f1 = 2 * right / (rows + matrix.sum(axis=0))
        assert list(table) == np.lexsort((-rows, f1)).tolist()
        for c, row in table.items():
            assert row["recall"] == f"{right[c] / rows[c]:.4g}"
            assert row["precision"] == f"{right[c] / matrix[:, c].sum():.4g}"
            wrong, count = row["most often predicted as"].rstrip(")").split(" (")
            assert int(count) == matrix[c, int(wrong)] == np.delete(matrix[c], c).max()


def test_the_same_run_gives_the_same_bytes_whatever_style_the_user_draws_in(run: Path, stores) -> None:
    import matplotlib

    assert report(run) == run / "report.html"
    first = (run / "report.html").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "lines.linewidth": 9}):
        assert report(run).read_bytes() == first
    fit(stores[0], out=run, passes=1, force=True)
    assert not (run / "report.html").exists()  # it is part of a run, which was replaced


@pytest.mark.parametrize("steps", [2, 31])
def test_an_interrupted_run_has_what_it_reported_and_no_model(stores, tmp_path: Path, steps: int) -> None:
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(stores[0], out=run, passes=9, gap="pass", valid=stores[1], block_rows=50, stop=stop_after(steps))
    page = Page(run)
    assert page.fact("status") == "in progress or interrupted, without a model"
    lines = metrics_of(run)
    passes = [line for line in lines if line["event"] == "pass"]
    assert bool(passes) == (steps > 2)
    assert len(page.table("pass", "rows")) == len(passes or lines)
    assert page.says("The table of classes needs a model")
    with pytest.raises(ModelError, match="no finished model yet"):
        report(run, tmp_path / "x.html", data=stores[1])
    assert not (tmp_path / "x.html").exists()


def test_an_online_run(tmp_path: Path) -> None:
    online(RowStream(*late_problem(), (7, 50, 51, 120)), out=tmp_path / "run", C=0.3)
    page = Page(tmp_path / "run")
    assert [(row["rows"], row["progressive accuracy"]) for row in page.table("rows", "recent accuracy")] == [
        (f"{line['rows']}", f"{line['progressive_accuracy']:.4g}") for line in metrics_of(tmp_path / "run")
    ]
    assert "Progressive accuracy" in page.texts


@pytest.mark.engine
@pytest.mark.parametrize(("loss", "has_table"), [("ovr2", True), ("ww", False)])
def test_rows_with_several_labels(tmp_path: Path, loss: str, has_table: bool) -> None:
    text = tmp_path / "sets.txt"
    text.write_text("a,b 1:1\nb 2:1\nc,a 1:0.5 3:1\n" * 20)
    fit(text, out=tmp_path / "run", loss=loss, multilabel=True, valid=text)
    page = Page(tmp_path / "run")
    if has_table:
        rows = {row["class"]: row["rows"] for row in page.table("class", "recall")}
        assert rows == {"a": "40", "b": "40", "c": "20"}
    assert page.says("The table of classes needs") is not has_table
    assert float(page.fact("precision").split()[1].rstrip(",")) > 0.5


# -- faults ----------------------------------------------------------------------------------------


def _append(line: bytes) -> Callable[[Path], object]:
    return lambda run: (run / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes() + line)


def _link(run: Path) -> None:
    (run / "secret").write_text('{"event": "pass", "pass": 1, "primal": 4711}\n')
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(run / "secret")


def _replace_store(run: Path) -> None:
    make_store(run / "x.h5", X, CODES, n_classes=K).replace(run.parent / "valid.h5")


FAULTS: list[tuple[Callable[[Path], object], str, int]] = [
    (_append(b"{not json\n[1, 2]\n\xff\xfe\n"), "3 of", 4),
    (_append(b'{"event": "pass", "pass": 5'), "", 4),  # which is being written
    (_append(b'{"event": "pass", "pass": 5, "primal": "<b>", "dual": []}\n'), "", 5),
    (lambda run: (run / "metrics.jsonl").unlink(), "metrics.jsonl is truncated", 0),
    (_link, "links are not followed", 0),
    (lambda run: flip(run / "model" / "coef.npy"), "coef.npy", 4),
    (lambda run: (run.parent / "valid.h5").unlink(), "the model cannot be evaluated on", 4),
    (_replace_store, "has changed since", 4),
]


def test_faults_are_one_sentence_each(stores, tmp_path: Path) -> None:
    for at, (damage, words, n_passes) in enumerate(FAULTS):
        folder = tmp_path / str(at)
        folder.mkdir()
        valid = shutil.copy(stores[1], folder / "valid.h5")
        fit(stores[0], out=folder / "run", passes=4, gap="pass", valid=valid, block_rows=50)
        damage(folder / "run")
        page = Page(folder / "run")
        assert len(page.notes) == bool(words), (page.notes, words)
        assert all(words in note for note in page.notes), (page.notes, words)
        if n_passes:
            assert len(page.table("pass", "rows")) == n_passes
        assert not page.says("4711")


def test_refusals(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cases: list[tuple[Path, dict[str, Any], type[Exception], str]] = [
        (tmp_path / "none", {}, RunError, "none does not exist; check the path"),
        (tmp_path / "empty", {}, RunError, "is not a run"),
        (run / "run.json", {}, RunError, "is not a run"),
        (run, {"out": run / "run.json"}, RunError, "run.json already exists"),
        (run, {"out": tmp_path / "none" / "no.html"}, RunError, "none does not exist; create it first"),
        (run, {"data": tmp_path / "none"}, InputError, "No such file"),
    ]
    for path, options, error, words in cases:
        with pytest.raises(error, match=words):
            report(path, **options)
    assert not (run / "report.html").exists()


# -- names and sizes -------------------------------------------------------------------------------

NASTY = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "a&amp;b $x^ {0} %s ${name}"]
NASTY.append("كبد 肝臓 \U0001f9ec")


def test_names_from_data_are_escaped_and_shown_as_they_are(tmp_path: Path) -> None:
    import anndata
    import pandas as pd

    X, codes = make_problem(120, 4, 4, noise=2.0)
    obs = pd.DataFrame({"t": pd.Categorical.from_codes(codes, NASTY)}, index=[str(i) for i in range(120)])
    folder = tmp_path / "<i>folder & 'more'"
    folder.mkdir()
    anndata.AnnData(X, obs).write_h5ad(folder / "cells.h5ad")
    fit(folder / "cells.h5ad", out=folder / "<b>run", label="t", valid=folder / "cells.h5ad")
    page = Page(folder / "<b>run")
    assert sorted(row["class"] for row in page.table("class", "recall")) == sorted(NASTY)
    assert "<b>run" in page.texts
    for name in NASTY:
        assert page.says(f"{name[:29]}")


def test_many_passes_stay_a_short_page(run: Path) -> None:
    path, last = run / "metrics.jsonl", metrics_of(run)[-1]
    path.write_text("".join(json.dumps({**last, "pass": i}) + "\n" for i in range(1, 4001)))
    page = Page(run)
    assert [int(row["pass"].replace(",", "")) for row in page.table("pass", "primal")] == [
        *range(1, 11), *range(3981, 4001),
    ]  # fmt: skip
    assert page.says("30 of 4,000 reports")
    assert (run / "report.html").stat().st_size < 500_000
