"""Files are recognised by their content; those that nothing reads are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest
from streamsvm_converters import convert

from streamsvm.errors import InputError, StreamsvmError
from streamsvm.store.kinds import kind_of


def tar() -> bytes:
    space = io.BytesIO()
    with tarfile.open(fileobj=space, mode="w") as archive:
        info = tarfile.TarInfo("a")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"1 1:"))
    return space.getvalue()


def archive_of(name: str) -> bytes:
    space = io.BytesIO()
    with zipfile.ZipFile(space, "w") as archive:
        archive.writestr(name, "x")
    return space.getvalue()


def test_content_comes_before_the_suffix(tmp_path: Path) -> None:
    for name, content, kind in [
        ("a", b"1 1:2\n", "libsvm"),
        ("a.csv", b"x,y\n", "csv"),
        ("a.TSV", b"x\ty\n", "tsv"),
        ("a.csv.gz", gzip.compress(b"x,y\n"), "csv"),
        ("a.jsonl.bz2", bz2.compress(b"{}\n"), "jsonl"),
        ("a.svm.xz", lzma.compress(b"1 1:2\n"), "libsvm"),
        ("a.csv", b"PAR1\x15\x04", "parquet"),
        ("a.txt", b"\x89HDF\r\n\x1a\n", "anndata"),
        ("a.dat", b"\x93NUMPY\x01\x00", "npy"),
        ("a.zip", archive_of("X.npy"), "npz"),
        ("a.tar", b"PK\x05\x06", "npz"),
        ("a", b"ORC 1:2\n", "libsvm"),
        ("a", b"a 1:1\na 1:" + bytes(9) + b"\n", "libsvm"),  # whose parser names the line
    ]:
        (tmp_path / name).write_bytes(content)
        assert kind_of(tmp_path / name) == kind, name
    assert kind_of("-") == "libsvm"


def test_other_kinds_are_refused(tmp_path: Path) -> None:
    refused = [
        ("a.svm", b"\x89PNG\r\n\x1a\n" + bytes(99), r"b'\\x89PNG.* no supported format: LIBSVM"),
        ("a.pkl", pickle.dumps({"a": [1, 2]}), r"a\.pkl begins with .* no supported format"),
        ("a.tar", tar(), r"a\.tar begins with .* no supported format"),
        ("a.xlsx", archive_of("xl/workbook.xml"), "begins with b'PK.* no supported format"),
        ("a.bin", bytes(range(32)) * 20, "begins with .* no supported format"),
        ("a.parquet.gz", gzip.compress(b"PAR1\x15"), "cannot be read as a Parquet table"),
        ("a.parquet", b"hello\n", "cannot be read as a Parquet table"),
        ("a.h5ad", b"", "not an HDF5 file"),
        ("a.npz", archive_of("X.npy")[:-30], "damaged or truncated"),
    ]
    for name, content, words in refused:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(StreamsvmError, match=words) as caught:
            convert([tmp_path / name], tmp_path / "out.zarr", label="y")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.zarr").exists()


def test_a_format_must_not_contradict_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"PAR1\x15")
    with pytest.raises(InputError, match="is a Parquet table, not CSV"):
        kind_of(tmp_path / "a", "csv")
    (tmp_path / "b").write_text("x,y\n1,a\n2,b\n")
    assert convert([tmp_path / "b"], tmp_path / "b.zarr", label="y", format="csv").n == 2
    with pytest.raises(InputError, match=r"looks like a table.*format='csv'"):
        convert([tmp_path / "b"], tmp_path / "c.zarr")


def test_kinds_are_not_mixed_and_a_folder_that_is_no_zarr_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 1:1\n")
    (tmp_path / "b.csv").write_text("x,y\n1,a\n")
    with pytest.raises(InputError, match=r"a is LIBSVM text, but .*b\.csv is CSV"):
        convert([tmp_path / "a", tmp_path / "b.csv"], tmp_path / "c.zarr")
    with pytest.raises(InputError, match="is a folder; specify the files inside it"):
        kind_of(tmp_path)
