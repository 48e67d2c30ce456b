"""A store that is incomplete, damaged or malicious gives errors, and never wrong content."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numpy as np
import pytest
import zarr
from store_problems import Problem, make_dense_problem, make_full_problem, make_problem

from streamsvm.base import format
from streamsvm.errors import StoreError
from streamsvm.store import layout, open_store, open_validation_store

CASES = 200
# Arrays of a store with all columns, and those of a dense store.
ARRAYS = [*("X/data", "X/indices", "X/indptr", "X/row_norm2", "X/class_counts"), "obs/_index"]
ARRAYS += ["obs/label/codes", "obs/label/categories", "var/_index", "obs/weight", "obs/qid"]
ARRAYS += ["obsm/labels/indptr", "obsm/labels/indices", "obsm/labels/data"]
DENSE_ARRAYS = ["X", "uns/streamsvm/class_counts"]


def everything(path: Path) -> list:
    """Return everything that a caller can learn from a store."""
    with open_store(path) as store:
        rows = store.rows(0, store.n_rows)
        found = [array.tobytes() for array in rows if array is not None]
        found += [store.names(0, store.n_rows).tobytes()]
        found += [store.meta, store.classes, store.class_counts.tobytes(), store.fingerprint, store.shuffled]
        found += [store.n_features, store.nnz, store.dtype, store.index_base, store.chunk_nnz]
        store.verify()
    return found


def chunk_file(path: Path, name: str, chunk: int) -> Path:
    """The file of a chunk of an array in a Zarr store."""
    return path / name / (f"c.{chunk}.0" if name == "X" else f"c/{chunk}")


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


@pytest.mark.parametrize("codec", ["fast", "none"])
@pytest.mark.parametrize("make", [make_problem, make_dense_problem])
@pytest.mark.parametrize("suffix", ["zarr", pytest.param("h5", marks=pytest.mark.more)])
def test_a_flipped_byte_or_a_truncated_file_is_harmless_or_an_error(suffix, codec, make, tmp_path):
    """Whatever happens to a byte, the content is unchanged or there is a StoreError."""
    path = tmp_path / f"a.{suffix}"
    make(n=50, d=30).write(path, codec=codec)
    original = everything(path)
    refused: list[str] = []
    for case in range(CASES // 2):
        rng = np.random.default_rng([case, suffix == "zarr", codec == "none"])
        target = rng.choice(files_of(path))
        content = target.read_bytes()
        at = int(rng.integers(len(content)))
        if case % 5 == 0:
            target.write_bytes(content[:at])
        else:
            target.write_bytes(content[:at] + bytes([content[at] ^ rng.integers(1, 256)]) + content[at + 1 :])
        try:
            assert everything(path) == original
        except StoreError as error:
            refused.append(str(error))
        target.write_bytes(content)
    assert len(refused) > CASES // 4  # the others hit padding, or names that are not read
    assert all(str(path) in message and "\n" not in message for message in refused)
    assert everything(path) == original


def test_a_flipped_bit_and_a_missing_chunk_are_named(tmp_path):
    """By whatever reads the chunk first: opening, rows, or at the latest `verify`."""
    full, dense = tmp_path / "full.zarr", tmp_path / "dense.zarr"
    make_full_problem(n=250).write(full, chunk_nnz=500, codec="none")
    make_dense_problem(n=3000).write(dense, chunk_nnz=500, codec="none")
    for path, name in [*((full, name) for name in ARRAYS), *((dense, name) for name in DENSE_ARRAYS)]:
        chunk = int(chunk_file(path, name, 1).exists())
        file, place = chunk_file(path, name, chunk), f"array {name}, chunk {chunk}: "
        content = file.read_bytes()
        file.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
        with pytest.raises(StoreError, match=rf"{place}.* \(damaged: convert again\)$"):
            everything(path)
        with pytest.raises(StoreError, match=place), open_store(path) as store:
            store.verify()
        file.unlink()
        with pytest.raises(StoreError, match=f"{place}the chunk is missing"):
            everything(path)
        file.write_bytes(content)
        everything(path)


def with_another_size(content: bytes) -> bytes:
    return content[:4] + (1600).to_bytes(4, "little") + content[8:]


def test_a_chunk_of_wrong_size_with_a_valid_checksum(problem: Problem, tmp_path):
    """A decoder that left elements unset would return uninitialised memory."""
    for number, (codec, spoil, reason) in enumerate(
        [
            ("fast", with_another_size, "the compressed chunk states wrong sizes"),
            ("fast", lambda content: content[:-1], "the compressed chunk states wrong sizes"),
            ("fast", lambda content: content[:9], "the compressed chunk states wrong sizes"),
            ("fast", lambda content: content + bytes(2**20), "the chunk has .* bytes, but at most 1048976"),
            ("none", lambda content: content[:-4], "the chunk has 396 bytes instead of 400"),
            ("none", lambda content: content + bytes(4), "the chunk has 404 bytes instead of 400"),
        ]
    ):
        path = tmp_path / f"{number}.zarr"
        problem.write(path, codec=codec)
        chunk = path / "X/data/c/1"
        content = spoil(chunk.read_bytes()[:-4])
        chunk.write_bytes(content + google_crc32c.value(content).to_bytes(4, "little"))
        with open_store(path) as store, pytest.raises(StoreError, match=f"array X/data, chunk 1: {reason}"):
            store.rows(0, 90)


def test_verify_reports_progress_over_all_arrays(problem: Problem, stored: Path):
    seen: list[tuple[int, int]] = []
    with open_store(stored) as store:
        store.verify(lambda done, total: seen.append((done, total)))
    n, d, nnz, k = 90, 40, problem.matrix.nnz, 4
    assert seen[-1] == (8 * nnz + 8 * (n + 1) + (8 + 8 + 4) * n + 8 * k + 8 * d,) * 2
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


OUTSIDE = r"is outside 0\.\."
# Array, element, value and reason; None: the value of the element after it.
INVALID = [
    ("X/indices", 150, 40, f"chunk 1: index 40 {OUTSIDE}39"),
    ("X/indices", 150, -7, f"chunk 1: index -7 {OUTSIDE}"),
    ("X/indices", 150, None, "chunk 1: index .* is not above"),
    ("X/data", 150, np.inf, "chunk 1: a value is not finite"),
    ("X/data", 150, np.nan, "chunk 1: a value is not finite"),
    ("X/indptr", 5, 10**12, "the row pointers are not in order"),
    ("X/indptr", 5, -3, "the row pointers are not in order"),
    ("X/row_norm2", 4, -1.0, "a norm is negative or not finite"),
    ("X/row_norm2", 4, np.inf, "a norm is negative or not finite"),
    ("obs/label/codes", 4, 4, "label code 4 is out of range"),
    ("obs/label/codes", 4, -2, "label code -2 is out of range"),
    ("obs/weight", 4, np.nan, "the weight of row 5 is negative or not finite"),
    ("obs/weight", 4, np.inf, "the weight of row 5 is negative or not finite"),
    ("obs/weight", 4, -0.5, "the weight of row 5 is negative or not finite"),
    ("obs/qid", 4, -1, "the group of row 5 is negative"),
    ("obsm/labels/indptr", 4, -1, "the row pointers are not in order"),
    ("obsm/labels/indptr", 4, 10**9, "the row pointers are not in order"),
    ("obsm/labels/indices", 4, -1, f"label code -1 {OUTSIDE}3"),
    ("obsm/labels/indices", 4, 4, f"label code 4 {OUTSIDE}3"),
    ("obsm/labels/indices", "twice", None, "label code . is not above ., its predecessor in the row"),
    ("X", (7, 3), np.nan, "chunk 3: a value or a norm is not finite"),
    ("X", (7, 3), -np.inf, "chunk 3: a value or a norm is not finite"),
    ("X", (7, 3), 1e300, "chunk 3: a value or a norm is not finite"),
]


def test_invalid_values_with_valid_checksums_are_not_returned(tmp_path):
    """The container's own library wrote them, and updated the checksums."""
    full, dense = make_full_problem(), make_dense_problem(dtype="f8")
    for number, (name, element, value, reason) in enumerate(INVALID):
        path = tmp_path / f"{number}.zarr"
        (dense if name == "X" else full).write(path, chunk_nnz=100)
        array: Any = zarr.open_group(path, mode="r+")[name]
        if element == "twice":  # in a row of at least two labels
            row = int(np.argmax(np.diff(full.indicator.indptr) > 1))
            element = int(full.indicator.indptr[row])
        array[element + 1 if value is None else element] = array[element] if value is None else value
        with open_store(path) as store:
            with pytest.raises(StoreError, match=f"array {name}, .*{reason}"):
                store.rows(0, 90)
            with pytest.raises(StoreError, match=f"array {name} does not match the store|row pointers"):
                store.verify()


def test_verify_finds_plausible_values_and_parts_of_another_store(problem: Problem, tmp_path: Path) -> None:
    names = [f"gene {j}" for j in range(40)]
    problem.write(tmp_path / "a.zarr")
    zarr.open_group(tmp_path / "a.zarr", mode="r+")["X/data"][7] = 123.0
    for name, order in ("b", 1), ("c", 1), ("d", -1):
        problem.labels[:] = (problem.labels + (name == "c")) % 4
        problem.write(tmp_path / f"{name}.zarr", feature_names=names[::order])
    codes, index = "obs/label/codes", "var/_index"
    shutil.copytree(tmp_path / "b.zarr" / codes, tmp_path / "c.zarr" / codes, dirs_exist_ok=True)
    shutil.copytree(tmp_path / "b.zarr" / index, tmp_path / "d.zarr" / index, dirs_exist_ok=True)
    for name, array in ("a", "X/data"), ("c", codes):
        with open_store(tmp_path / f"{name}.zarr") as store:
            store.rows(0, 90)
            with pytest.raises(StoreError, match=f"array {array} does not match the store"):
                store.verify()
    with open_store(tmp_path / "d.zarr") as store:
        for read in store.feature_names, store.verify:
            with pytest.raises(StoreError, match="the feature names differ"):
                read()


# -- refused on opening ----------------------------------------------------------------------------


def test_what_is_no_store_is_refused(problem: Problem, tmp_path, soon):
    os.mkfifo(tmp_path / "pipe.h5")
    for name in ("folder.h5", "empty.zarr"):
        (tmp_path / name).mkdir()
    for name, content in ("file.zarr", b"x"), ("text.h5", b"1 2:3\n" * 999), ("empty.h5", b""):
        (tmp_path / name).write_bytes(content)
    zarr.create_group(tmp_path / "group.zarr")
    h5py.File(tmp_path / "group.h5", "w").close()
    problem.write(tmp_path / "cut.h5")
    os.truncate(tmp_path / "cut.h5", (tmp_path / "cut.h5").stat().st_size - 100)
    for number, text in enumerate(("", "[]", "{", "[" * 10**5, '{"attributes": {"streamsvm": 3}}', "\ud800")):
        (tmp_path / f"{number}.zarr").mkdir()
        (tmp_path / f"{number}.zarr/zarr.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    for names, reason in [
        (("a.zarr", "a.h5"), "does not exist; check the path"),
        (("file.zarr", "text.h5"), "not an HDF5 file"),
        (("folder.h5", "empty.zarr"), "not a Zarr store"),
        (("group.zarr", "group.h5"), "neither a streamsvm store nor AnnData"),
        (("cut.h5",), "truncated"),
        (("pipe.h5",), "not a regular file"),
        (("empty.h5", *(f"{number}.zarr" for number in range(6))), ""),
    ]:
        for name in names:
            with pytest.raises(StoreError, match=rf"{name}.*{reason}"):
                open_store(tmp_path / name)


def edit_record(path: Path, change) -> None:
    """Replace the record of a store by what `change` returns for it."""
    raw = json.loads((path / "zarr.json").read_text())
    raw["attributes"]["streamsvm"] = change(raw["attributes"]["streamsvm"])
    (path / "zarr.json").write_text(json.dumps(raw))


UNSEALED = [
    ({"nnz": 1}, "its checksum is wrong"),
    ({"fingerprint": "0" * 64}, "its checksum is wrong"),
    ({"version": 6}, "written by a newer streamsvm .store format 6; this one reads 5.; update streamsvm"),
    ({"complete": False}, "is incomplete: its conversion did not finish"),
]
# Changes of the record of a CSR store, of a dense store and of one with all columns; with valid checksums.
SEALED = {
    "csr": [
        {"n": 2**60}, {"d": -1}, {"d": "40"}, {"nnz": 2**70}, {"n_classes": 2**40}, {"n": True},
        {"dtype": "object"}, {"dtype": None}, {"dtype": "float16"}, {"arrays": None}, {"arrays": {}},
        {"arrays": dict.fromkeys(ARRAYS)}, {"complete": 1}, {"version": 0}, {"version": "5"}, {"version": 4},
        {"fingerprint": None}, {"chunk_nnz": "many"}, {"chunk_nnz": 2**60}, {"index_base": "1"},
        {"feature_names": True}, {"encoding": 3}, {"statistics": True}, {"dense": True},
    ],
    "dense": [{"n": 45, "d": 80}, {"nnz": 3599}, {"n": 0, "nnz": 0}, {"dense": False}, {"dtype": "float64"}],
    "full": [
        {"columns": []}, {"columns": ["weight", "qid"]}, {"columns": ["weight", "weight", "qid", "labels"]},
        {"columns": ["weight", "qid", "labels", "colour"]}, {"columns": "weight"},
        {"n_labels": 3}, {"n_labels": -1},
    ],
}  # fmt: skip


def test_an_altered_record_is_refused(problem: Problem, tmp_path: Path):
    stores = {name: tmp_path / f"{name}.zarr" for name in SEALED}
    for made, path in zip((problem, make_dense_problem(), make_full_problem()), stores.values(), strict=True):
        made.write(path)
    cases: list[tuple[str, Any, str]] = [
        ("csr", lambda record, change=change: {**record, **change}, reason) for change, reason in UNSEALED
    ]
    cases += [
        (name, lambda record, change=change: format.sealed({**record, **change}), r"\.zarr")
        for name, changes in SEALED.items()
        for change in changes
    ]
    cases += [
        ("csr", lambda _, new=new: new, r"\.zarr") for new in ([], 3, "x", {}, {"version": float("nan")})
    ]
    for name, change, reason in cases:
        original = (stores[name] / "zarr.json").read_bytes()
        edit_record(stores[name], change)
        with pytest.raises(StoreError, match=reason):
            open_store(stores[name])
        (stores[name] / "zarr.json").write_bytes(original)
        open_store(stores[name]).close()


def test_rows_of_another_width_are_refused(tmp_path):
    """An array of as many values, whose filters, and checksums of the values in order, are the same."""
    path = tmp_path / "a.h5"
    make_dense_problem().write(path, codec="none")
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        values = file["X"][()]
        del file["X"]
        file.create_dataset("X", data=values.reshape(180, 20), chunks=(4, 20), fletcher32=True)
    with pytest.raises(StoreError, match="array X has a dtype, shape or chunks"):
        open_store(path)


def test_a_hostile_size_allocates_nothing(problem: Problem, tmp_path):
    """A Zarr store that claims 2**55 non-zeros, with valid checksums and digests throughout."""
    path, nnz = tmp_path / "a.zarr", 2**55
    problem.write(path)
    zarr.open_group(path, mode="r+")[layout.INDPTR][90] = nnz
    edit_record(path, lambda record: format.sealed({**record, "nnz": nnz}))
    claims = (nnz, "X/data has chunks of .* bytes, but at most"), (100, "X/data claims 144,115,.* bytes, but")
    for chunk, reason in claims:
        for name in (layout.DATA, layout.INDICES):
            raw = json.loads((path / name / "zarr.json").read_text())
            raw["shape"] = [nnz]
            raw["chunk_grid"]["configuration"]["chunk_shape"] = [chunk]
            (path / name / "zarr.json").write_text(json.dumps(raw))
        tracemalloc.start()
        with pytest.raises(StoreError, match=reason):
            open_store(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
        tracemalloc.stop()


def test_too_little_memory_is_not_reported_as_damage(stored: Path, monkeypatch):
    with open_store(stored) as store:
        array = store.arrays["X/data"]
        read = array._read_ranges

        def within_a_chunk(ranges: np.ndarray):
            if (ranges[:, 1] - ranges[:, 0]).sum() > 100:
                raise MemoryError
            return read(ranges)

        monkeypatch.setattr(array, "_read_ranges", within_a_chunk)
        with pytest.raises(StoreError, match=r"X/data: not enough memory for .* read fewer rows"):
            store.rows(0, 90)


def test_damage_of_a_validation_store_is_said_whatever_the_options_are(tmp_path: Path) -> None:
    """The options are those of AnnData to train on, and a store of ours is opened without them."""
    make_problem().write(tmp_path / "a.zarr")
    with open_validation_store(tmp_path / "a.zarr", "cell_type", "counts") as store:
        assert store.native
    edit_record(tmp_path / "a.zarr", lambda record: {**record, "n": 7})
    with pytest.raises(StoreError, match="altered"):
        open_validation_store(tmp_path / "a.zarr", "cell_type", "counts")
