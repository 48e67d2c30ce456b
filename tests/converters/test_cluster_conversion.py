"""Text that the workers of a Dask cluster convert: the files that one process writes, and its errors."""

from __future__ import annotations

import bz2
import gzip
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import fails, succeeds
from streamsvm_converters import convert

from streamsvm.cluster import Limits
from streamsvm.errors import ClusterError, InputError, PlanError, SettingsError, StreamsvmError
from streamsvm.store import open_store

distributed = pytest.importorskip("distributed")

on_cluster = pytest.importorskip("streamsvm_converters.on_cluster")
SMALL = {"memory": 60_000, "chunk_nnz": 300}  # many buckets, which are split, and many chunks


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm_converters.kinds.libsvm._LEAST_PART", 3_000)
    monkeypatch.setattr("streamsvm_converters.kinds.anndata._LEAST_PART", 400)
    monkeypatch.setattr(on_cluster, "_LEAST_VALUES", 1_000)
    monkeypatch.setattr(on_cluster, "_PER_THREAD", 8)


def lines(n: int, seed: int = 0, *, lists: bool = False, groups: int = 0) -> list[str]:
    """LIBSVM text with blank lines, comments, labels that come late, and rows without a value."""
    rng = np.random.default_rng(seed)
    found = []
    for row in range(n):
        k = 3 + row // 200  # further labels appear in later parts
        labels = sorted({f"c{rng.integers(k)}" for _ in range(rng.integers(4) if lists else 1)})
        indices = np.flatnonzero(rng.random(40) < 0.2) + 1
        pairs = [f"{i}:{rng.normal():.4g}" for i in indices]
        group = [f"qid:{row // groups}"] if groups else []
        found.append(" ".join([",".join(labels), *group, *pairs]))
        if rng.random() < 0.05:
            found.append(["", "# a comment", "  # another", "\r"][rng.integers(4)])
    return found


def write(path: Path, text: list[str], opened: Callable[..., Any] = open) -> Path:
    with opened(path, "wb") as file:
        file.write("\n".join(text).encode())  # no newline at the end
    return path


def files_of(store: Path) -> dict[str, bytes]:
    return {str(each.relative_to(store)): each.read_bytes() for each in store.rglob("*") if each.is_file()}


def check_same(inputs: list[Path], address: str, folder: Path, **options: Any) -> Path:
    """Convert by one process and by workers, and compare all files and facts."""
    here = convert(inputs, folder / "one.zarr", **{**SMALL, **options}, threads=1)
    there = convert(inputs, folder / "two.zarr", **{**SMALL, **options}, cluster=address)
    assert files_of(there.path) == files_of(here.path)
    for name in ("n", "d", "nnz", "fingerprint", "skipped", "repaired", "first_errors", "explicit_zeros",
                 "qids", "unseen_features", "unseen_labels", "empty_rows", "bytes_read", "warnings",
                 "n_labels", "n_groups", "index_base"):  # fmt: skip
        assert getattr(there, name) == getattr(here, name), name
    assert not (folder / ".two.zarr.partial").exists()
    return here.path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": False},
        {"dtype": "float64", "seed": 3, "codec": "none"},
        {"memory": 2**26, "chunk_nnz": 1000},
        {"index_base": 1, "n_features": 50},
    ],
    ids=["small", "in order", "float64", "one bucket", "wider"],
)
def test_one_file(address: str, tmp_path: Path, options: dict[str, Any]) -> None:
    store = check_same([write(tmp_path / "a.txt", lines(1200))], address, tmp_path, **options)
    with open_store(store) as opened:
        assert opened.n_classes == 8
        opened.verify()


def test_several_files_plain_and_compressed(address: str, tmp_path: Path) -> None:
    inputs = [
        write(tmp_path / "a.txt", lines(700)),
        write(tmp_path / "b.gz", lines(500, seed=1), gzip.open),
        write(tmp_path / "c.txt", ["\ufeff" + (text := lines(600, seed=2))[0], *text[1:]]),
        write(tmp_path / "d.bz2", lines(300, seed=4), bz2.open),
        write(tmp_path / "e.txt", ["# nothing"]),
    ]
    check_same(inputs, address, tmp_path)


@pytest.mark.parametrize("shuffle", [True, False])
def test_lists_of_labels_groups_and_weights(address: str, tmp_path: Path, shuffle: bool) -> None:
    text = write(tmp_path / "lists.txt", lines(900, lists=True))
    check_same([text], address, tmp_path, multilabel=True, shuffle=shuffle)
    (tmp_path / "more").mkdir()
    grouped = [
        write(tmp_path / "groups.txt", lines(840, groups=7)),
        write(tmp_path / "gone on.txt", [f"c1 qid:{119 + row // 9} 1:1" for row in range(90)]),
    ]
    weights = tmp_path / "weights.txt"
    n = 840 + 90
    weights.write_text("\n".join(f"{value:.3f}" for value in np.random.default_rng(1).random(n)))
    check_same(grouped, address, tmp_path / "more", groups=True, weights=weights, shuffle=shuffle)


def write_anndata(path: Path, n: int, columns: str, kind: type, seed: int) -> Path:
    anndata, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    matrix = kind(rng.poisson(0.5, (n, len(columns))).astype(np.float32))
    types = pd.Categorical(rng.choice(["b", "a", f"only {seed}"], n))
    types[rng.random(n) < 0.1] = np.nan
    obs = pd.DataFrame({"type": types}, index=[f"cell {i}" for i in range(n)])
    cells = anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=list(columns)))
    cells.write_h5ad(path) if path.suffix == ".h5ad" else cells.write_zarr(path)
    return path


@pytest.mark.filterwarnings("ignore")  # anndata advises against format 2 of Zarr
@pytest.mark.parametrize("options", [{}, {"join": "outer", "shuffle": False}], ids=["inner", "outer"])
def test_cells(address: str, tmp_path: Path, options: dict[str, Any]) -> None:
    inputs = [
        write_anndata(tmp_path / "a.h5ad", 300, "ghijkl", sp.csr_matrix, 1),
        write_anndata(tmp_path / "b.h5ad", 200, "lkxhg", sp.csc_matrix, 2),
        write_anndata(tmp_path / "c.zarr", 250, "ghiklm", np.asarray, 3),
    ]
    store = check_same(inputs, address, tmp_path, label="type", **options)
    for kind in (sp.csr_matrix, sp.csc_matrix):
        none = write_anndata(tmp_path / "none.h5ad", 0, "ghi", kind, 5)
        with pytest.raises(InputError, match="the input has no rows"):
            convert(none, tmp_path / "none.zarr", label="type", cluster=address)
    (tmp_path / "like").mkdir()
    other = write_anndata(tmp_path / "d.h5ad", 150, "hgzl", sp.csr_matrix, 4)
    check_same([other], address, tmp_path / "like", label="type", like=store, unseen_label="keep")


def test_rows_that_are_skipped_or_mended_and_known_classes(address: str, tmp_path: Path) -> None:
    text = lines(1000)
    for at in range(0, len(text), 60):
        text[at] = ["c0 3:1 2:1", "c0 x:1", "c0 2:1 2:2", "c0 1:1e99"][at // 60 % 4]
    path = write(tmp_path / "a.txt", text)
    for on_error in ("skip", "fix"):
        (tmp_path / on_error).mkdir()
        check_same([path], address, tmp_path / on_error, on_error=on_error)
    like = convert(write(tmp_path / "few.txt", ["c0 1:1", "c2 5:1 30:1"]), tmp_path / "like.zarr")
    options = {"like": like.path, "unseen_label": "keep"}
    (tmp_path / "like").mkdir()
    check_same([write(tmp_path / "b.txt", lines(1000))], address, tmp_path / "like", **options)


@pytest.mark.parametrize(
    ("broken", "options"),
    [
        ({600: "c0 3:1 2:1", 900: "c0 x:1"}, {}),
        ({900: "c99 1:1"}, {"known": True}),
        ({700: "c0 " + " ".join(f"{i}:1" for i in range(1, 900))}, {}),
        ({0: "c0 qid:4 1:1", 800: "c0 qid:4 1:1"}, {"groups": True}),
    ],
    ids=["malformed", "unknown label", "long line", "group that begins again"],
)
def test_the_first_error_is_that_of_one_process(
    address: str, tmp_path: Path, broken: dict[int, str], options: dict[str, Any]
) -> None:
    text = lines(1000, groups=7 if "groups" in options else 0)
    for at, line in broken.items():
        text[at] = line
    path = write(tmp_path / "a.txt", text)
    given: dict[str, Any] = {**SMALL, **options}
    if given.pop("known", False):
        given["like"] = convert(write(tmp_path / "few.txt", lines(1900)), tmp_path / "like.zarr").path
    errors: list[StreamsvmError] = []
    for where in ({"threads": 1}, {"cluster": address}):
        with pytest.raises((InputError, PlanError)) as caught:
            convert(path, tmp_path / "out.zarr", **given, **where)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert type(errors[0]) is type(errors[1])
    assert not list(tmp_path.glob(".*partial"))


def test_what_a_cluster_cannot_convert(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt", lines(50))
    with pytest.raises(SettingsError, match=r"HDF5 file has one writer"):
        convert(path, tmp_path / "out.h5", cluster=address)
    with pytest.raises(SettingsError, match="can be read only once"):
        convert("-", tmp_path / "out.zarr", cluster=address)
    with pytest.raises(SettingsError, match="workers are those of a cluster"):
        convert(path, tmp_path / "out.zarr", workers=2)
    table = tmp_path / "a.csv"
    table.write_text("label,x\na,1\nb,2\n")
    with pytest.raises(SettingsError, match="cluster is for LIBSVM text and AnnData"):
        convert(table, tmp_path / "out.zarr", label="label", cluster=address)
    monkeypatch.setattr("streamsvm.cluster.LIMITS", Limits(connect=1))
    with pytest.raises(ClusterError, match="no Dask scheduler"):
        convert(path, tmp_path / "out.zarr", cluster="tcp://127.0.0.1:9")


def test_folders_that_workers_do_not_share(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.txt", lines(50))
    monkeypatch.setattr(on_cluster, "is_in_reach", lambda sample: False)
    with pytest.raises(ClusterError, match=r"does not see the folder of .*out\.zarr, or cannot write there"):
        convert(path, tmp_path / "out.zarr", cluster=address)
    monkeypatch.undo()
    inner = on_cluster._stamp
    monkeypatch.setattr(
        on_cluster, "_stamp", lambda path: (inner(path)[0] + 1, 0)
    )  # workers find fewer bytes
    with pytest.raises(ClusterError, match=r"a\.txt has [\d,]+ bytes there"):
        convert(path, tmp_path / "out.zarr", cluster=address)


def test_inputs_that_change_while_they_are_read(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a first reading there are hashes on record, which must be those of the rows."""
    path = write(tmp_path / "a.txt", lines(500))
    inner = on_cluster.PartedReader.add_part
    text = path.read_bytes()

    def edit(self: Any, part: Any, found: Any) -> Any:
        path.write_bytes(text.replace(b":1", b":2"))
        return inner(self, part, found)

    monkeypatch.setattr(on_cluster.PartedReader, "add_part", edit)
    with pytest.raises(InputError, match=r"a\.txt changed while it was read"):
        convert(path, tmp_path / "out.zarr", **SMALL, cluster=address)
    assert not list(tmp_path.glob(".*partial"))


def test_a_pipe_is_refused_before_it_is_opened(address: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError, match="pipe can be read only once"):
        convert(tmp_path / "pipe", tmp_path / "out.zarr", cluster=address)


def test_a_worker_that_is_killed_while_it_converts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", lines(6000))
    expected = convert(path, tmp_path / "one.zarr", **SMALL)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        done: list[int] = []

        def kill(stage: str, at: int, total: int | None) -> None:
            done.append(at)
            if len(done) == 3:
                os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

        found = convert(
            path, tmp_path / "two.zarr", **SMALL, cluster=cluster.scheduler_address, progress=kill
        )
    assert len(done) > 5
    assert done == sorted(done)
    assert files_of(found.path) == files_of(expected.path)


def test_the_command(address: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", lines(300))
    plain = succeeds("convert", path, "--out", tmp_path / "one.zarr", "--json")
    shared = succeeds(
        "convert", "a.txt", "--out", "two.zarr", "--json", "--cluster", address, cwd=tmp_path
    )  # fmt: skip
    assert plain.split('"fingerprint"')[1][:70] == shared.split('"fingerprint"')[1][:70]
    message = fails(1, "convert", tmp_path / "none.txt", "--out", tmp_path / "x.zarr", "--cluster", address)
    assert "none.txt" in message
    assert files_of(tmp_path / "one.zarr") == files_of(tmp_path / "two.zarr")
