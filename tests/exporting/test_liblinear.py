"""LIBLINEAR's own ``predict`` gives our labels with what we export, and we give its with what it trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from cases import few
from helpers import make_problem
from liblinear import liblinearutil
from problems import clear_rows, trained, write_text

import streamsvm
from streamsvm import export_model, import_liblinear, load_model
from streamsvm.errors import ModelError, SettingsError, StreamsvmWarning


def their_labels(model: Path, text: Path) -> list[int]:
    """What LIBLINEAR's predict says of LIBSVM text."""
    y, x = liblinearutil.svm_read_problem(str(text))
    return [
        int(label) for label in liblinearutil.predict(y, x, liblinearutil.load_model(str(model)), "-q")[0]
    ]


SETTINGS = [
    {}, {"loss": "cs"}, {"loss": "ovr2"}, {"loss": "llw"}, {"dtype": "float64"},
    {"transform": "bias=2"}, {"transform": "scale=std,bias"},
    {"transform": "idf,select=top:11,df=-0.5,bias=0.5"},
]  # fmt: skip


@pytest.mark.parametrize("k", few([2, 3, 70], 2, 3))
@pytest.mark.parametrize("settings", few(SETTINGS, {}, SETTINGS[-1]), ids=str)
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


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("transform", [None, "scale=maxabs,bias=3"])
def test_export_then_import_gives_the_same_labels(tmp_path: Path, k: int, transform: str | None) -> None:
    model, X = trained(k, transform=transform, dtype="float64")
    export_model(model, tmp_path / "m.txt")
    import_liblinear(tmp_path / "m.txt", tmp_path / "again")
    again = load_model(tmp_path / "again")
    assert again.dtype == np.float64
    assert sorted(again.class_names) == sorted(model.classes_)
    assert again.classes_.dtype == np.int64  # LIBLINEAR has no others
    assert again.predict(X).tolist() == [int(label) for label in model.predict(X)]
    ours, theirs = (each.decision_function(X)[:, np.argsort(each.classes_)] for each in (model, again))
    np.testing.assert_allclose(theirs - theirs[:, :1], ours - ours[:, :1], atol=1e-12)
    assert (again.intercept_ == 0).all() == (transform is None)


def test_labels_that_are_no_numbers_are_numbered_and_come_back(tmp_path: Path) -> None:
    classes = ["cat", "dog", "ä b"]
    model, X = trained(3, labels=classes)
    with pytest.warns(StreamsvmWarning, match="0 to 2 in .*m.txt.labels has a line"):
        done = export_model(model, tmp_path / "m.txt")
    assert done.numbers == {"cat": 0, "dog": 1, "ä b": 2}
    assert (tmp_path / "m.txt.labels").read_text() == "0\tcat\n1\tdog\n2\tä b\n"
    numbers = their_labels(tmp_path / "m.txt", write_text(tmp_path / "rows", X))
    clear = clear_rows(model, X)
    expected = model.predict(X)[clear].tolist()
    assert [classes[number] for number in np.array(numbers)[clear]] == expected
    again = import_liblinear(tmp_path / "m.txt", labels=tmp_path / "m.txt.labels")
    assert again.predict(X)[clear].tolist() == expected


def test_a_model_whose_text_counts_from_0_counts_from_1_with_a_warning(tmp_path: Path) -> None:
    model, X = trained(3)
    model.record["index_base"] = 0
    with pytest.warns(StreamsvmWarning, match="j of the text j \\+ 1"):
        export_model(model, tmp_path / "m.model")
    theirs = their_labels(tmp_path / "m.model", write_text(tmp_path / "rows", X, base=1))
    clear = clear_rows(model, X)
    assert np.array(theirs)[clear].tolist() == model.predict(X)[clear].astype(int).tolist()


@pytest.mark.parametrize("solver", range(8))
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("bias", [-1, 1, 2.5])
def test_we_predict_the_labels_of_a_model_of_liblinear(
    tmp_path: Path, solver: int, k: int, bias: float
) -> None:
    X, codes = make_problem(200, 20, k, noise=1.5)
    labels = np.array([7, -3, 12, 5])[codes]
    found = liblinearutil.train(labels[:120].tolist(), sp.csr_matrix(X[:120]), f"-s {solver} -B {bias} -q")
    liblinearutil.save_model(str(tmp_path / "m.txt"), found)
    theirs = their_labels(tmp_path / "m.txt", write_text(tmp_path / "rows", X[120:]))
    model = import_liblinear(tmp_path / "m.txt", tmp_path / "model")
    assert len(set(theirs)) == k
    for each in (model, load_model(tmp_path / "model")):
        assert each.predict(X[120:]).astype(int).tolist() == theirs
    again = streamsvm.evaluate(tmp_path / "model", X[120:], [str(label) for label in theirs])
    assert again.accuracy == 1


HEADER = "solver_type MCSVM_CS\nnr_class 3\nlabel 1 2 3\nnr_feature 2\nbias -1\nw\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "ends after line 0"),
        ("1 1:2 3:4\n", "line 1: 1 is not what a model"),
        (HEADER, "ends after line 6"),
        (HEADER + "1 2 3\n", "ends after line 7"),
        (HEADER + "1 2 3\n4 5\n", "line 8: there must be 3 finite weights"),
        (HEADER + "1 2 3 4\n5 6\n", "line 7: there must be 3"),
        (HEADER + "1 nan 3\n4 5 6\n", "line 7: there must be 3 finite"),
        (HEADER + "1 2 x\n4 5 6\n", "line 7: there must be 3 finite"),
        (HEADER.replace("3\nlabel", "4\nlabel"), "3 labels of 4 classes"),
        (HEADER.replace("1 2 3", "1 2 2") + "1 2 3\n4 5 6\n", "two classes have the same label"),
        (HEADER.replace("MCSVM_CS", "L2R_L2LOSS_SVR"), "line 1: L2R_L2LOSS_SVR is a model of regression"),
        (HEADER.replace("MCSVM_CS", "ONECLASS_SVM"), "outlier detection"),
        (HEADER.replace("MCSVM_CS", "NEW\x1b"), r"no solver NEW\\x1b"),
        (HEADER.replace("nr_feature 2\n", ""), "nr_feature is missing"),
        (HEADER.replace("nr_class 3", "nr_class 99999999999"), "line 2: the number of classes"),
        (HEADER.replace("bias -1", "bias x"), "line 5: the bias must be a number"),
        ("\x00\xff" * 50, "line 1: "),
    ],
)
def test_what_is_no_model_of_liblinear_is_one_clear_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "m.txt").write_text(text, encoding="latin-1")
    with pytest.raises(ModelError, match=problem) as found:
        import_liblinear(tmp_path / "m.txt", tmp_path / "model")
    assert "\n" not in str(found.value)
    assert str(tmp_path / "m.txt") in str(found.value)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("text", ["1 a\n", "1\ta\n1\tb\n2\tc\n3\td\n", "1\ta\n2\tb\n", "1\ta\n2\ta\n3\tb\n"])
def test_a_file_of_labels_must_name_each_class_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.txt").write_text(HEADER + "1 2 3\n4 5 6\n")
    (tmp_path / "labels").write_text(text)
    with pytest.raises(ModelError, match=r"line|label"):
        import_liblinear(tmp_path / "m.txt", labels=tmp_path / "labels")


@pytest.mark.parametrize("transform", ["l2", "log1p", "normalize,log1p", "clip=3", "scale=std,l2,bias"])
@pytest.mark.parametrize("name", ["m.txt", "m.npz"])
def test_transforms_that_text_and_arrays_cannot_hold_are_an_error(
    tmp_path: Path, transform: str, name: str
) -> None:
    model, _ = trained(3, transform=transform)
    with pytest.raises(ModelError, match=r"the model transforms rows by .*, which .* cannot hold"):
        export_model(model, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays_unless_forced(tmp_path: Path) -> None:
    model, _ = trained(3)
    (tmp_path / "m.txt").write_text("mine")
    with pytest.raises(ModelError, match="is there already; force=True replaces it"):
        export_model(model, tmp_path / "m.txt")
    assert (tmp_path / "m.txt").read_text() == "mine"
    export_model(model, tmp_path / "m.txt", force=True)
    assert (tmp_path / "m.txt").read_text().startswith("solver_type")


def test_labels_that_are_spelled_otherwise_come_back(tmp_path: Path) -> None:
    """LIBLINEAR writes 1 for 1.0; a file of labels is replaced like the model, or goes."""
    X, y = make_problem(90, 8, 3)
    model = streamsvm.fit(X, y.astype(float).astype(str), passes=1)
    with pytest.warns(StreamsvmWarning, match="'0.0' is 0 in"):
        export_model(model, tmp_path / "m.txt")
    import_liblinear(tmp_path / "m.txt", tmp_path / "model", labels=tmp_path / "m.txt.labels")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))
    (tmp_path / "m.txt").unlink()
    with pytest.raises(ModelError, match=r"m\.txt\.labels is there already"):
        export_model(model, tmp_path / "m.txt")
    export_model(streamsvm.fit(X, y, passes=1), tmp_path / "m.txt", force=True)
    assert not (tmp_path / "m.txt.labels").exists()


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("m", {}, "format is missing"),
        ("m.txt", {"format": "pmml"}, "format must be one of"),
        ("m.txt", {"top": 3}, "top is for the format csv"),
        ("m.csv", {"top": 0}, "top must be a whole number"),
        ("m.txt", {"dtype": "float16"}, "dtype is for the format streamsvm"),
        ("m.csv", {"prune": 1.0}, "prune does not apply to csv"),
        ("m.txt", {"prune": -1.0}, "prune must be a number from 0 on"),
        ("m.txt", {"prune": float("nan")}, "prune must be a number from 0 on"),
    ],
)
def test_options_that_do_not_apply_are_an_error(
    tmp_path: Path, name: str, options: dict, problem: str
) -> None:
    model, _ = trained(3)
    with pytest.raises(SettingsError, match=problem):
        export_model(model, tmp_path / name, **options)
