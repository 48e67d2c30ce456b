"""Chunks of AnnData that are not there: left out by zarr as they are of the fill value, or lost in a copy."""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from chunked_anndata import CHUNK, LABELS, N, chunk, make, write

from streamsvm import fit
from streamsvm.errors import StoreError, StreamsvmWarning
from streamsvm.info import inspect
from streamsvm.store import open_store, zarr_chunks
from streamsvm.store.container import StoredArray
from streamsvm.store.zarr_chunks import decode_text

KINDS = ("v2", "v3", "shards")


@pytest.mark.parametrize("kind", KINDS)
def test_of_texts_only_the_chunks_that_are_asked_for_are_decoded(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    monkeypatch.setattr(
        zarr_chunks, "decode_text", lambda *given: decoded.append(given) or decode_text(*given)
    )
    with open_store(write(tmp_path / "a.zarr", kind, empty_chunks=True), label="type") as store:
        for begin, end in [(0, 1), (CHUNK - 1, CHUNK + 1), (CHUNK, 3 * CHUNK), (3 * CHUNK, N), (1, 1)]:
            decoded.clear()
            assert store.names(begin, end).tolist() == [f"c{i}" for i in range(begin, end)]
            if kind != "v2":  # which zarr decodes
                assert len(decoded) == len({i // CHUNK for i in range(begin, end)})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    for kind in KINDS:
        write(folder / f"{kind}.zarr", kind)
    return folder


@pytest.fixture(params=KINDS)
def copied(request: pytest.FixtureRequest, written: Path, tmp_path: Path) -> tuple[Path, str]:
    return Path(shutil.copytree(written / f"{request.param}.zarr", tmp_path / "a.zarr")), request.param


def read(path: Path | str, **options: str) -> list[str]:
    """Open a store and read all rows; returns the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StreamsvmWarning)
        with open_store(path, **{"label": "type"} | options) as store:
            store.fingerprint  # noqa: B018 reads all row pointers and labels
            store.rows(0, N)
            store.feature_names()
    return [str(each.message) for each in caught if issubclass(each.category, StreamsvmWarning)]


def test_sorted_labels_whose_first_chunks_are_left_out_are_trained_on(
    copied: tuple[Path, str], tmp_path: Path
) -> None:
    path, kind = copied
    assert not (path / chunk(kind, "obs/type/codes", 0)).exists()
    rows = CHUNK * 2  # of 130; the third chunk has others, too
    with pytest.warns(StreamsvmWarning, match=rf"obs column 'type': {rows} rows are 'a' as their chunks"):
        fit(path, label="type", out=tmp_path / "run", passes=2)
    whole = write(tmp_path / "whole.zarr", empty_chunks=True)
    fit(whole, label="type", out=tmp_path / "whole", passes=2)
    coef = [np.fromfile(tmp_path / name / "model/coef.npy", np.uint8) for name in ("run", "whole")]
    np.testing.assert_array_equal(*coef)
    with pytest.warns(StreamsvmWarning, match="rows are 'a'"), open_store(path, label="type") as store:
        np.testing.assert_array_equal(store.labels(0, N), LABELS)
    with pytest.warns(StreamsvmWarning, match="rows are 'a'"):
        inspect(path, verify=True)


LOST = [
    *(("X/data", 0), ("X/data", 3), ("X/indices", 2), ("X/indptr", 0), ("X/indptr", 2), ("X/indptr", -1)),
    *(("obs/type/codes", 3), ("obs/type/codes", -1), ("obs/type/categories", 0), ("var/_index", 0)),
]
OTHERS = [("X/data", 3), ("X/indptr", 2), ("obs/type/codes", 3)]


@pytest.mark.filterwarnings("ignore:.*rows are 'a'")
@pytest.mark.parametrize(
    ("copied", "array", "number"),
    [("v3", *lost) for lost in LOST] + [(kind, *lost) for kind in ("v2", "shards") for lost in OTHERS],
    indirect=["copied"],
)
def test_a_lost_chunk_is_named(copied: tuple[Path, str], array: str, number: int) -> None:
    path, kind = copied
    files = sorted((path / chunk(kind, array, 0)).parent.glob("[0-9]*"), key=lambda file: int(file.name))
    number = int(files[-1].name) if number < 0 else number
    (path / chunk(kind, array, number)).unlink()
    expected = rf"array {array}, chunk {number * (2 if kind == 'shards' else 1)}: the chunk is missing"
    with pytest.raises(StoreError, match=expected) as raised:
        read(path)
    assert str(raised.value).endswith("'array.write_empty_chunks': True})")
    if array != "var/_index":  # names are only described
        with pytest.raises(StoreError, match=expected):
            inspect(path, verify=True)


def test_a_lost_chunk_next_to_the_first_class_is_named(copied: tuple[Path, str]) -> None:
    """The row before it is of the first class, the row after it of another."""
    path, kind = copied
    number = 1 if kind == "shards" else 2
    (path / chunk(kind, "obs/type/codes", number)).unlink()
    with pytest.raises(StoreError, match=r"obs/type/codes, chunk 2: .* of 'a' alone, but row \d+ is not"):
        read(path)


def test_rows_of_a_dense_matrix_without_chunks_are_counted(copied: tuple[Path, str]) -> None:
    path, kind = copied
    assert not any("read zeros" in line for line in read(path, layer="dense"))
    share = CHUNK * (2 if kind == "shards" else 1) / N
    for column in range(2 if kind == "shards" else 3):
        (path / chunk(kind, "layers/dense", 1, column)).unlink()
    [line] = [line for line in read(path, layer="dense") if "read zeros" in line]
    assert f"array layers/dense: {share:.1%} of its rows read zeros from chunks that are not there" in line
    (path / chunk(kind, "layers/dense", 3, 1)).unlink()
    [line] = [line for line in read(path, layer="dense") if "read zeros" in line]
    assert f"{2 * share:.1%} of its rows read zeros in some columns from chunks that are not there" in line
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with open_store(path, label="type", layer="dense") as store:
            store.rows(0, 4 * CHUNK)  # not all of them
    assert any("read zeros" in str(each.message) for each in caught)


def test_labels_without_any_chunk_are_an_error(copied: tuple[Path, str], tmp_path: Path) -> None:
    """They would all be of the first of three categories."""
    path, kind = copied
    for file in (path / chunk(kind, "obs/type/codes", 0)).parent.glob("[0-9]*"):
        file.unlink()
    expected = "array obs/type/codes, chunk 0: no chunk is there, and all rows would be of 'a'"
    for use in (lambda: fit(path, label="type", out=tmp_path / "run"), lambda: inspect(path, verify=True)):
        with pytest.raises(StoreError, match=expected):
            use()


def test_what_was_not_all_there_is_not_called_verified(copied: tuple[Path, str]) -> None:
    path, _ = copied
    for options in {}, {"label": "type"}:
        with pytest.warns(StreamsvmWarning, match="if the copy of the store is not complete"):
            found = inspect(path, verify=True, **options)
        assert found["verified"] == "only the chunks that are there"
    assert inspect(write(path.with_name("whole.zarr"), empty_chunks=True), verify=True)["verified"] is True


def test_reading_on_does_not_count_chunks_again(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()
    with pytest.warns(StreamsvmWarning, match="rows are 'a'"):
        store = open_store(written / "v3.zarr", label="type")
    monkeypatch.setattr(StoredArray, "absent_in", lambda self, *span: counted.update([self.name]))
    with store:
        for start in range(0, N, 10):
            store.rows(start, start + 10)
    assert counted == {}


def test_a_chunk_that_is_lost_later_is_an_error(copied: tuple[Path, str]) -> None:
    path, kind = copied
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = open_store(path, label="type", layer="dense")
    with store:
        np.testing.assert_array_equal(store.rows(0, N).indptr, make().X.indptr)
        (path / chunk(kind, "layers/dense", 1, 1)).unlink()
        with pytest.raises(
            StoreError, match=r"was there when it was read before; start again when|was written to while"
        ):
            store.rows(0, N)
