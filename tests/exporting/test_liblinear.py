"""LIBLINEAR's own ``predict`` gives our labels with what we export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import few
from helpers import FEATURES, make_problem
from liblinear import liblinearutil
from problems import clear_rows, trained, write_text

import streamsvm
from streamsvm import export_model
from streamsvm.errors import ModelError, StreamsvmWarning


def their_labels(model: Path, text: Path) -> list[int]:
    """What LIBLINEAR's predict says of LIBSVM text."""
    y, x = liblinearutil.svm_read_problem(str(text))
    return [
        int(label) for label in liblinearutil.predict(y, x, liblinearutil.load_model(str(model)), "-q")[0]
    ]


SETTINGS = [
    {}, {"loss": "cs"}, {"loss": "ovr2"}, {"loss": "llw"}, {"dtype": "float64"},
    {"transform": "bias=2"}, {"transform": "center,scale=std,bias=0.5"},
    {"transform": "center,scale=std"},
    {"transform": f"idf,select={FEATURES},df=-0.5,bias=0.5"},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:X. the labels are .* different numbers")
@pytest.mark.parametrize("k", few([2, 3, 70], 2, 3))
@pytest.mark.parametrize("settings", few(SETTINGS, {}, *SETTINGS[-2:]), ids=str)
def test_liblinear_predicts_our_labels(tmp_path: Path, k: int, settings: dict) -> None:
    model, X = trained(k, **settings)
    done = export_model(model, tmp_path / "m.txt")
    assert (done.format, done.numbers) == ("liblinear", None)
    assert done.bytes == (tmp_path / "m.txt").stat().st_size
    theirs = their_labels(tmp_path / "m.txt", write_text(tmp_path / "rows", X))
    clear = clear_rows(model, X)
    ours = model.predict(X).astype(int)
    assert len(set(theirs)) > 1
    assert np.array(theirs)[clear].tolist() == ours[clear].tolist()


def test_labels_that_are_no_numbers_are_numbered_and_come_back(tmp_path: Path) -> None:
    classes = ["cat", "dog", "ä b"]
    model, X = trained(3, labels=classes)
    with pytest.warns(StreamsvmWarning, match="'cat' becomes 0; the file with the suffix .labels lists"):
        done = export_model(model, tmp_path / "m.txt")
    assert done.numbers == {"cat": 0, "dog": 1, "ä b": 2}
    assert (tmp_path / "m.txt.labels").read_text() == "0\tcat\n1\tdog\n2\tä b\n"
    numbers = their_labels(tmp_path / "m.txt", write_text(tmp_path / "rows", X))
    clear = clear_rows(model, X)
    expected = model.predict(X)[clear].tolist()
    assert [classes[number] for number in np.array(numbers)[clear]] == expected


def test_a_model_whose_text_counts_from_0_counts_from_1_with_a_warning(tmp_path: Path) -> None:
    model, X = trained(3)
    model.record["index_base"] = 0
    with pytest.warns(StreamsvmWarning, match="feature j becomes j \\+ 1"):
        export_model(model, tmp_path / "m.model")
    theirs = their_labels(tmp_path / "m.model", write_text(tmp_path / "rows", X, base=1))
    clear = clear_rows(model, X)
    assert np.array(theirs)[clear].tolist() == model.predict(X)[clear].astype(int).tolist()


def test_labels_that_are_spelled_otherwise_come_back(tmp_path: Path) -> None:
    """LIBLINEAR writes 1 for 1.0; a file of labels is replaced like the model, or goes."""
    X, y = make_problem(90, 8, 3)
    model = streamsvm.fit(X, y.astype(float).astype(str), passes=1)
    with pytest.warns(StreamsvmWarning, match="'0.0' becomes 0; the file"):
        export_model(model, tmp_path / "m.txt")
    assert (tmp_path / "m.txt.labels").read_text() == "0\t0.0\n1\t1.0\n2\t2.0\n"
    (tmp_path / "m.txt").unlink()
    with pytest.raises(ModelError, match=r"m\.txt\.labels already exists"):
        export_model(model, tmp_path / "m.txt")
    export_model(streamsvm.fit(X, y, passes=1), tmp_path / "m.txt", force=True)
    assert not (tmp_path / "m.txt.labels").exists()
