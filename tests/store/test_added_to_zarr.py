"""Columns added to AnnData in Zarr folders: anndata reads them, by consolidated metadata and without."""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest
import zarr
from cases import few
from test_added_columns import N, X, cells, folder, unread  # noqa: F401

from streamsvm import load_model, predict
from streamsvm.base import durable
from streamsvm.errors import StoreError
from streamsvm.prediction.outputs import Batch
from streamsvm.store import open_store
from streamsvm.store.added_columns import adding_columns


@pytest.fixture(params=few([2, 3], 3))
def path(request, folder: Path) -> Path:  # noqa: F811
    made = folder / "a.zarr"
    with warnings.catch_warnings(), anndata.settings.override(zarr_write_format=request.param):
        warnings.simplefilter("ignore")
        cells(np.arange(N)).write_zarr(made)
    return made


def read(path: Path) -> anndata.AnnData:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = anndata.read_zarr(path)
        plain = anndata.io.read_elem(zarr.open_group(path, mode="r", use_consolidated=False))
        consolidated = anndata.io.read_elem(zarr.open_group(path, mode="r", use_consolidated=True))
    for other in (plain, consolidated):
        assert other.obs.equals(whole.obs)
    return whole


def files(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_the_columns_are_what_predict_says(folder: Path, path: Path) -> None:  # noqa: F811
    kept, before, old = predict(folder / "model", path, top_k=2), read(path), files(path)
    predict(folder / "model", path, into=path)
    after, new = read(path), files(path)
    assert list(after.obs.columns) == [
        *before.obs.columns,
        *(f"streamsvm_{p}" for p in ("label", "score", "margin")),
    ]
    assert after.obs[before.obs.columns].equals(before.obs)
    assert after.obs["streamsvm_label"].tolist() == kept.labels[:, 0].tolist()
    np.testing.assert_array_equal(after.obs["streamsvm_score"], kept.scores[:, 0])
    np.testing.assert_array_equal(after.obs["streamsvm_margin"], kept.scores[:, 0] - kept.scores[:, 1])
    changed = {name for name in old if old[name] != new.get(name)}
    assert changed <= {"zarr.json", "obs/zarr.json", ".zmetadata", "obs/.zattrs"}
    assert all(name.startswith("obs/streamsvm_") for name in new.keys() - old.keys())
    with pytest.raises(StoreError, match="has a column 'streamsvm_label' already"):
        predict(folder / "model", path, into=path)
    predict(folder / "model", path, into=path, force=True, proba=True)
    assert list(read(path).obs.columns)[2:] == [
        f"streamsvm_{p}" for p in ("label", "score", "margin", "probability")
    ]
    predict(folder / "model", path, into=path, force=True)
    assert read(path).obs.equals(after.obs)
    assert files(path).keys() == new.keys()


@pytest.mark.parametrize("name", ["obs", "obs/streamsvm_label", "obs/streamsvm_probability"])
def test_links_are_not_written_through(folder: Path, path: Path, name: str) -> None:  # noqa: F811
    predict(folder / "model", path, into=path, proba=True)
    (path / name).rename(folder / "elsewhere")
    (path / name).symlink_to(folder / "elsewhere")
    before = files(folder)
    with pytest.raises(StoreError, match=f"{name} is a link or a file, which is not written to"):
        predict(folder / "model", path, into=path, force=True)
    assert files(folder) == before
    assert (path / name).is_symlink()


def batches(model: Any) -> Iterator[Batch]:
    """The predictions for all rows."""
    scores = model.decision_function(X)
    codes = scores.argmax(axis=1)[:, None]
    best = np.sort(scores, axis=1)
    names = np.array([f"cell {i}" for i in range(N)], object)
    yield Batch("", names, codes, best[:, -1:], None, None, best[:, -1] - best[:, -2])


@pytest.fixture(params=few([True, False], False))
def consolidated(request, path: Path) -> Path:
    """A folder whose root repeats all metadata, as anndata writes it, or does not."""
    if not request.param:
        (path / ".zmetadata").unlink(missing_ok=True)
        root = path / "zarr.json"
        if root.is_file():
            root.write_text(json.dumps({**json.loads(root.read_text()), "consolidated_metadata": None}))
    return path


def add_column(path: Path) -> None:
    """Add a column to ``obs`` as another program does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = zarr.open_group(path, mode="r+", use_consolidated=False)
        anndata.io.write_elem(root["obs"], "theirs", np.arange(N))
        root["obs"].attrs["column-order"] = [*root["obs"].attrs["column-order"], "theirs"]
        root_file = path / "zarr.json"  # of format 3
        if (path / ".zmetadata").exists() or (root_file.exists() and '"metadata"' in root_file.read_text()):
            zarr.consolidate_metadata(path)


def test_columns_that_were_added_meanwhile_stay(folder: Path, consolidated: Path) -> None:  # noqa: F811
    model = load_model(folder / "model")
    with adding_columns(consolidated, "a", model.classes_, force=False) as sink:
        for batch in batches(model):
            sink.write(batch)
        add_column(consolidated)
    found = anndata.read_zarr(consolidated).obs
    assert found["theirs"].tolist() == list(range(N))
    assert found["a_label"].tolist() == model.predict(X).tolist()


def rewrite(path: Path) -> None:
    found = read(path)
    found.X = found.X[::-1].copy()
    durable.remove(path)
    found.write_zarr(path)


def replace_chunk(path: Path) -> None:
    chunk = next(file for file in sorted((path / "X/data").rglob("0")) if file.is_file())
    chunk.with_name("aside").write_bytes(chunk.read_bytes())
    os.replace(chunk.with_name("aside"), chunk)


@pytest.mark.parametrize("change", [rewrite, replace_chunk])
@pytest.mark.filterwarnings("ignore")
def test_predictions_of_data_that_was_replaced_meanwhile_are_refused(
    folder: Path, path: Path, change: Any  # noqa: F811
) -> None:  # fmt: skip
    """By another program, after the rows were scored; they have the same names."""
    model = load_model(folder / "model")
    stack = ExitStack()
    sink = stack.enter_context(adding_columns(path, "a", model.classes_, force=False))
    for batch in batches(model):
        sink.write(batch)
    change(path)
    with pytest.raises(StoreError, match=r"a\.zarr was changed while it was in use; predict again"):
        stack.close()
    assert list(read(path).obs) == ["donor", "depth"]
    assert sorted(each.name for each in folder.iterdir()) == ["a.h5ad", "a.zarr", "model"]


def test_a_second_process_is_refused_before_it_scores(folder: Path, path: Path) -> None:  # noqa: F811
    model = load_model(folder / "model")
    with adding_columns(path, "a", model.classes_, force=False) as sink:
        with pytest.raises(StoreError, match="is in use by another process; wait for it, or stop it"):
            predict(model, unread(), into=path, key="b")
        for batch in batches(model):
            sink.write(batch)
    predict(model, path, into=path, key="b")
    assert {"a_label", "b_label"} <= set(read(path).obs.columns)


@pytest.mark.parametrize("at", few(range(3), 1))
def test_the_second_of_two_at_once_is_refused(
    folder: Path, path: Path, at: int, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    """Another process adds its columns just before one of the files of metadata is replaced."""
    real, moments, codes = durable.write_atomic, iter(range(100)), []

    def in_between(*words: Any) -> None:
        if next(moments) == at:
            child = os.fork()
            if child == 0:
                monkeypatch.undo()
                try:
                    predict(folder / "model", path, into=path, key="b", force=True)
                except StoreError as error:
                    os._exit(7 if "is in use by another process" in str(error) else 8)
                finally:
                    os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        real(*words)

    predict(folder / "model", path, into=path, key="a")
    monkeypatch.setattr(durable, "write_atomic", in_between)
    predict(folder / "model", path, into=path, key="a", force=True)
    assert codes == [7]
    monkeypatch.undo()
    predict(folder / "model", path, into=path, key="b")
    assert {"a_label", "b_label", "a_score", "b_score"} <= set(read(path).obs.columns)
    assert sorted(each.name for each in folder.iterdir()) == ["a.h5ad", "a.zarr", "model"]


@pytest.mark.parametrize("at", few(range(12), 5, 9))
def test_what_a_killed_process_was_writing_is_gone_after_the_next(
    folder: Path, path: Path, at: int  # noqa: F811
) -> None:  # fmt: skip
    """The process dies when a file or folder gets its name, those that zarr writes among them."""
    child = os.fork()
    if child == 0:
        for name in ("replace", "rename", "link"):
            setattr(os, name, functools.partial(dying, iter(range(at)), getattr(os, name)))
        try:
            predict(folder / "model", path, into=path)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    predict(folder / "model", path, into=path, force=True)
    assert "streamsvm_label" in read(path).obs
    assert sorted(each.name for each in folder.iterdir()) == ["a.h5ad", "a.zarr", "model"]
    assert not [name for name in files(path) if "partial" in name or "tmp" in name]


def dying(left: Any, real: Any, *words: Any, **options: Any) -> Any:
    if next(left, None) is None:
        os._exit(7)
    return real(*words, **options)


def die_at(at: int) -> None:
    """Let this process end at one of the moments when files change."""
    moments = iter(range(100))

    def dying(real: Any, *words: Any) -> None:
        if next(moments) == at:
            os._exit(7)
        real(*words)

    for name in ("write_atomic", "remove", "sync_tree"):
        setattr(durable, name, functools.partial(dying, getattr(durable, name)))


@pytest.mark.parametrize("force", few([False, True], True))
def test_a_crash_leaves_columns_that_can_be_read(
    folder: Path,  # noqa: F811
    path: Path,
    force: bool,
) -> None:
    """The process dies before each file of metadata is replaced, or right after it."""
    if force:
        predict(folder / "model", path, into=path)
    before = files(path)
    kept = predict(folder / "model", path).labels[:, 0].tolist()
    died = 0
    for at in range(20):
        child = os.fork()
        if child == 0:
            die_at(at)
            try:
                predict(folder / "model", path, into=path, force=force)
            finally:
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = anndata.read_zarr(path).obs
        assert list(found.columns)[:2] == ["donor", "depth"]
        if "streamsvm_label" in found:
            assert found["streamsvm_label"].tolist() == kept
        predict(folder / "model", path, into=path, force=True)
        assert read(path).obs["streamsvm_label"].tolist() == kept
        durable.remove(path)
        for name, content in before.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        if code == 0:
            break
        died += 1
    assert died >= 5


@pytest.mark.parametrize("path", [3], indirect=True)
def test_a_reader_goes_on_while_columns_are_added(folder: Path, path: Path) -> None:  # noqa: F811
    """And not when the root metadata change otherwise."""
    root = path / "zarr.json"
    with open_store(path, label="donor") as store:
        before, opened = store.rows(0, N), durable.file_identity(root)
        for key in ("a", "b"):
            predict(folder / "model", path, into=path, key=key)
        assert durable.file_identity(root) != opened
        np.testing.assert_array_equal(store.rows(0, N).data, before.data)
        whole = json.loads(root.read_text())
        durable.write_atomic(root, json.dumps({**whole, "attributes": {}}).encode())
        with pytest.raises(StoreError, match="the store was replaced by another while"):
            store.rows(0, N)
