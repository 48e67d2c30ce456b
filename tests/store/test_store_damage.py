"""A store that is incomplete, damaged or malicious gives errors, and never wrong content."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path

import google_crc32c
import h5py
import numpy as np
import pytest
import zarr
from store_problems import Problem, chunk_file, flip_bit, make_dense_problem, make_problem
from warm_process import run

from streamsvm.base import format
from streamsvm.errors import StoreError
from streamsvm.store import StoreOptions, StoreWriter, layout, open_store, open_validation_store

CASES = 200


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


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


@pytest.mark.parametrize("codec", ["fast", "none"])
@pytest.mark.parametrize("make", [make_problem, make_dense_problem])
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


@pytest.mark.parametrize("name", ["X/data", "X/indices", "X/indptr", "X/row_norm2", "obs/_index", "X"])
def test_a_damaged_chunk_is_named(suffix, name, tmp_path):
    """A flipped byte in chunk 1 of an array is found by reading rows, and by `verify`, with its name."""
    path = tmp_path / f"a.{suffix}"
    problem = make_dense_problem(n=3000) if name == "X" else make_problem(n=3000, d=50, density=0.1)
    problem.write(path, chunk_nnz=500, codec="none")
    flip_bit(path, name, chunk=1, at=200)
    with open_store(path) as store:
        read = store.names if name == "obs/_index" else store.rows
        with pytest.raises(StoreError, match=rf"array {name}, chunk 1: .* \(damaged: convert again\)$"):
            read(0, 3000)
        with pytest.raises(StoreError, match=rf"array {name}, chunk 1: "):
            store.verify()


ARRAYS = [*("X/data", "X/indices", "X/indptr", "X/row_norm2", "X/class_counts"), "obs/_index"]
ARRAYS += ["obs/label/codes", "obs/label/categories", "var/_index"]


@pytest.mark.parametrize("name", [*ARRAYS, "X", "uns/streamsvm/class_counts"])
def test_a_missing_zarr_chunk_is_named(name, problem: Problem, tmp_path):
    path = tmp_path / "a.zarr"
    problem = make_dense_problem() if name in ("X", "uns/streamsvm/class_counts") else problem
    problem.write(path)
    chunk_file(path, name, 0).unlink()
    with (
        pytest.raises(StoreError, match=rf"array {name}, chunk 0: the chunk is missing"),
        open_store(path) as store,
    ):
        store.verify()


def with_another_size(content: bytes) -> bytes:
    return content[:4] + (1600).to_bytes(4, "little") + content[8:]


@pytest.mark.parametrize(
    ("codec", "spoil", "reason"),
    [
        ("fast", with_another_size, "the compressed chunk has other sizes"),
        ("fast", lambda content: content[:-1], "the compressed chunk has other sizes"),
        ("fast", lambda content: content[:9], "the compressed chunk has other sizes"),
        ("fast", lambda content: content + bytes(2**20), "the chunk has .* bytes, and at most 1048976"),
        ("none", lambda content: content[:-4], "the chunk has 396 bytes instead of 400"),
        ("none", lambda content: content + bytes(4), "the chunk has 404 bytes instead of 400"),
    ],
)
def test_a_chunk_of_wrong_size_with_a_valid_checksum(codec, spoil, reason, problem: Problem, tmp_path):
    """A decoder that left elements unset would return uninitialised memory."""
    path = tmp_path / "a.zarr"
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


def test_verify_finds_values_swapped_with_valid_checksums(problem: Problem, stored: Path):
    """A value was rewritten with the container's own library, which updated the checksum."""
    if stored.suffix == ".zarr":
        zarr.open_group(stored, mode="r+")["X/data"][7] = 123.0
    else:
        with h5py.File(stored, "r+") as file:
            file["X/data"][7] = 123.0
    with (
        open_store(stored) as store,
        pytest.raises(StoreError, match="array X/data does not match the store"),
    ):
        store.verify()


@pytest.mark.parametrize(
    ("name", "element", "value", "reason"),
    [
        ("X/indices", 150, 40, r"chunk 1: index 40 is outside 0\.\.39"),
        ("X/indices", 150, -7, "chunk 1: index -7 is outside"),
        ("X/indices", 150, None, "chunk 1: index .* is not above"),
        ("X/data", 150, np.inf, "chunk 1: a value is not finite"),
        ("X/data", 150, np.nan, "chunk 1: a value is not finite"),
        ("X/indptr", 5, 10**12, "the row pointers are not in order"),
        ("X/indptr", 5, -3, "the row pointers are not in order"),
        ("X/row_norm2", 4, -1.0, "a norm is not finite or negative"),
        ("X/row_norm2", 4, np.inf, "a norm is not finite"),
        ("obs/label/codes", 4, 4, "label code 4 is out of range"),
        ("obs/label/codes", 4, -2, "label code -2 is out of range"),
    ],
)
def test_invalid_values_with_valid_checksums_are_not_returned(stored: Path, name, element, value, reason):
    def spoil(array):
        array[element] = array[element + 1] if value is None else value

    if stored.suffix == ".zarr":
        spoil(zarr.open_group(stored, mode="r+")[name])
    else:
        with h5py.File(stored, "r+") as file:
            spoil(file[name])
    with open_store(stored) as store, pytest.raises(StoreError, match=f"array {name}, .*{reason}"):
        store.rows(0, 90)


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300])
def test_an_invalid_value_of_a_dense_store_with_a_valid_checksum_is_not_returned(suffix, value, tmp_path):
    path = tmp_path / f"a.{suffix}"
    make_dense_problem(dtype="f8").write(path, chunk_nnz=100)  # of two rows
    if suffix == "zarr":
        zarr.open_group(path, mode="r+")["X"][7, 3] = value
    else:
        with h5py.File(path, "r+") as file:
            file["X"][7, 3] = value
    with open_store(path) as store:
        assert store.rows(0, 7).n_rows == 7
        with pytest.raises(StoreError, match="array X, chunk 3: a value or a norm is not finite"):
            store.rows(2, 90)


def test_rows_of_another_width_are_refused(tmp_path):
    """An array of as many values, whose filters, and checksums of the values in order, are the same."""
    path = tmp_path / "a.h5"
    make_dense_problem().write(path, codec="none")
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        values = file["X"][()]
        del file["X"]
        file.create_dataset("X", data=values.reshape(180, 20), chunks=(4, 20), fletcher32=True)
    with pytest.raises(StoreError, match="array X has another type, shape or chunks"):
        open_store(path)


# -- refused on opening ----------------------------------------------------------------------------


def test_a_path_where_nothing_is(suffix, tmp_path):
    with pytest.raises(StoreError, match=r"nothing is there; check the path"):
        open_store(tmp_path / f"a.{suffix}")


def test_folder_for_file_and_file_for_folder(problem: Problem, tmp_path):
    (tmp_path / "a.zarr").write_bytes(b"x")
    with pytest.raises(StoreError, match="not a folder, as a Zarr store is"):
        open_store(tmp_path / "a.zarr")
    (tmp_path / "a.h5").mkdir()
    with pytest.raises(StoreError, match="not a file, as an HDF5 store is"):
        open_store(tmp_path / "a.h5")


def test_files_with_other_content_are_refused(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"1 2:3\n" * 999)
    with pytest.raises(StoreError, match="not an HDF5 file"):
        open_store(tmp_path / "a.h5")
    (tmp_path / "b.h5").write_bytes(b"")
    with pytest.raises(StoreError, match=r"b\.h5"):
        open_store(tmp_path / "b.h5")
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(StoreError, match="not a Zarr store"):
        open_store(tmp_path / "a.zarr")
    for text in ("", "[]", "{", "[" * 10**5, '{"attributes": {"streamsvm": 3}}', "\ud800"):
        (tmp_path / "a.zarr" / "zarr.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(StoreError, match=r"a\.zarr"):
            open_store(tmp_path / "a.zarr")


def test_a_container_that_is_not_a_store_is_refused(tmp_path):
    zarr.create_group(tmp_path / "a.zarr")
    h5py.File(tmp_path / "a.h5", "w").close()
    for name in ("a.zarr", "a.h5"):
        with pytest.raises(StoreError, match="neither a streamsvm store nor AnnData"):
            open_store(tmp_path / name)


def test_a_truncated_hdf5_file_is_refused(problem: Problem, tmp_path):
    path = tmp_path / "a.h5"
    problem.write(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StoreError, match="truncated"):
        open_store(path)


def test_an_unfinished_store_is_refused(problem: Problem, suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    sizes = {"shape": (90, 40), "nnz": problem.matrix.nnz, "classes": problem.classes}
    with StoreWriter(path, StoreOptions(**sizes, dtype="f4", index_base=1)) as writer:
        writer.append(problem.rows(0, 90), problem.names)
    with pytest.raises(StoreError, match="incomplete: its conversion did not finish; convert again"):
        open_store(path)


def test_the_store_of_a_killed_writer_is_refused(suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    code = (
        "import os, numpy as np; from streamsvm.store import StoreOptions, StoreWriter\n"
        "from streamsvm.data.rows import Rows\n"
        "options = StoreOptions(shape=(9, 5), nnz=9, classes=['a'], dtype='f4', index_base=0, chunk_nnz=2)\n"
        f"w = StoreWriter({str(path)!r}, options)\n"
        "r = Rows(np.ones(5, 'f4'), np.zeros(5, 'i4'), np.arange(6), np.zeros(5, 'i4'), None)\n"
        "w.append(r, np.arange(5)); os.kill(os.getpid(), 9)"
    )
    assert run(code=code).code == -9
    with pytest.raises(StoreError, match=rf"a\.{suffix}"):
        open_store(path)


def edit_record(path: Path, change) -> None:
    """Replace the record of a store by what `change` returns for it."""
    if path.suffix == ".zarr":
        raw = json.loads((path / "zarr.json").read_text())
        raw["attributes"]["streamsvm"] = change(raw["attributes"]["streamsvm"])
        (path / "zarr.json").write_text(json.dumps(raw))
    else:
        with h5py.File(path, "r+", libver=("v110", "v110")) as file:
            text = json.dumps(change(json.loads(file.attrs["streamsvm"]))).encode()
            file.attrs.create("streamsvm", np.bytes_(text), dtype=h5py.string_dtype("utf-8", len(text)))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("nnz", 1, "its checksum does not match"),
        ("fingerprint", "0" * 64, "its checksum does not match"),
        ("version", 6, "written by a newer streamsvm .store format 6; this one reads 5.; update streamsvm"),
        ("complete", False, "incomplete: its conversion did not finish"),
    ],
)
def test_an_altered_record_is_refused(stored: Path, key, value, reason):
    edit_record(stored, lambda record: {**record, key: value})
    with pytest.raises(StoreError, match=reason):
        open_store(stored)


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2**60},
        {"d": -1},
        {"d": "40"},
        {"nnz": 2**70},
        {"n_classes": 2**40},
        {"n": True},
        {"dtype": "object"},
        {"dtype": None},
        {"arrays": None},
        {"arrays": {}},
        {"arrays": dict.fromkeys(ARRAYS)},
        {"complete": 1},
        {"version": 0},
        {"version": "1"},
        {"fingerprint": None},
        {"chunk_nnz": "many"},
        {"chunk_nnz": 2**60},
        {"index_base": "1"},
        {"dtype": "float16"},
        {"dense": True},
    ],
)
def test_an_invalid_record_with_a_valid_checksum_is_refused(stored: Path, change):
    edit_record(stored, lambda record: format.sealed({**record, **change}))
    with pytest.raises(StoreError, match="small"):
        open_store(stored)


@pytest.mark.parametrize(
    "change",
    [
        {"n": 45, "d": 80},
        {"nnz": 3599},
        {"n": 0, "nnz": 0},
        {"dense": False},
        {"dtype": "float64"},
        {"chunk_nnz": 0},
    ],
)
def test_an_invalid_record_of_a_dense_store_is_refused(suffix, change, tmp_path):
    path = tmp_path / f"small.{suffix}"
    make_dense_problem().write(path)
    edit_record(path, lambda record: format.sealed({**record, **change}))
    with pytest.raises(StoreError, match="small"):
        open_store(path)


@pytest.mark.parametrize("record", [[], 3, "x", {}, {"version": float("nan")}])
def test_a_record_of_another_kind_is_refused(stored: Path, record):
    edit_record(stored, lambda _: record)
    with pytest.raises(StoreError, match="small"):
        open_store(stored)


@pytest.mark.parametrize("name", ["X/data", "X/indptr", "obs/_index", "var/_index", "X"])
def test_altered_zarr_metadata_is_refused(name, problem: Problem, tmp_path):
    path = tmp_path / "a.zarr"
    problem = make_dense_problem() if name == "X" else problem
    problem.write(path)
    target = path / name / "zarr.json"
    original = target.read_text()
    for old, new in [
        ('"little"', '"big"'),
        ('"shape": [\n    ', '"shape": [\n    1'),
        ("chunk_shape", "chunk_shade"),
        ('"crc32c"', '"crc32"'),
        ("fill_value", "full_value"),
        ("bytes", "bites"),
    ]:
        assert old in original
        target.write_text(original.replace(old, new))
        with pytest.raises(StoreError, match=name):
            open_store(path)


def test_chunks_of_another_store_are_noticed_by_verify(problem: Problem, tmp_path):
    """They are valid in themselves."""
    problem.write(tmp_path / "a.zarr")
    problem.labels[:] = (problem.labels + 1) % 4
    problem.write(tmp_path / "b.zarr")
    shutil.copytree(
        tmp_path / "b.zarr/obs/label/codes", tmp_path / "a.zarr/obs/label/codes", dirs_exist_ok=True
    )
    with open_store(tmp_path / "a.zarr") as store, pytest.raises(StoreError, match="array obs/label/codes"):
        store.verify()


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [(2**55, "X/data has chunks of .* bytes, and at most"), (100, "X/data claims 144,115,.* bytes, but")],
)
def test_a_hostile_size_allocates_nothing(chunk, reason, problem: Problem, tmp_path):
    """A Zarr store that claims 2**55 non-zeros, with valid checksums and digests throughout."""
    path = tmp_path / "a.zarr"
    problem.write(path)
    nnz = 2**55
    for name in (layout.DATA, layout.INDICES):
        raw = json.loads((path / name / "zarr.json").read_text())
        raw["shape"] = [nnz]
        raw["chunk_grid"]["configuration"]["chunk_shape"] = [chunk]
        (path / name / "zarr.json").write_text(json.dumps(raw))
    pointers = zarr.open_group(path, mode="r+")[layout.INDPTR]
    pointers[90] = nnz

    edit_record(path, lambda record: format.sealed({**record, "nnz": nnz}))
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
    make_problem().write(tmp_path / "a.h5")
    with open_validation_store(tmp_path / "a.h5", "cell_type", "counts") as store:
        assert store.native
    edit_record(tmp_path / "a.h5", lambda record: {**record, "n": 7})
    with pytest.raises(StoreError, match="altered"):
        open_validation_store(tmp_path / "a.h5", "cell_type", "counts")
