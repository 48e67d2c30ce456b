"""Compressed files, several files and standard input."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from streamsvm_converters import convert

from streamsvm.errors import InputError
from streamsvm.store import open_store

TEXT = "".join(f"{row % 3} {row % 7 + 1}:{row * 0.37 + 1:.5g} 9:1\n" for row in range(3000)).encode()

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.fixture(scope="module")
def fingerprint(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "plain").write_bytes(TEXT)
    return convert([folder / "plain"], folder / "plain.h5").fingerprint


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed(tmp_path: Path, suffix: str, fingerprint: str) -> None:
    """Recognised by content: the name says nothing. The hash is of the file as it is on disk."""
    path = tmp_path / "data"
    path.write_bytes(COMPRESS[suffix](TEXT))
    calls: list[tuple[int, int | None, int]] = []
    report = convert([path], tmp_path / "a.h5", progress=lambda *call: calls.append(call))
    assert report.fingerprint == fingerprint
    assert calls[-1] == (path.stat().st_size, path.stat().st_size, 3000)
    with open_store(tmp_path / "a.h5") as store:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert store.meta["sources"] == [{"name": "data", "size": path.stat().st_size, "sha256": digest}]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_streams_one_after_another(tmp_path: Path, suffix: str, fingerprint: str) -> None:
    """As `cat a.gz b.gz` or a parallel compressor writes them."""
    path, half = tmp_path / "data", len(TEXT) // 2
    path.write_bytes(COMPRESS[suffix](TEXT[:half]) + COMPRESS[suffix](TEXT[half:]))
    assert convert([path], tmp_path / "a.h5").fingerprint == fingerprint


def test_padding_after_a_stream(tmp_path: Path, fingerprint: str) -> None:
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(TEXT) + bytes(10_000))
    assert convert([path], tmp_path / "a.h5").fingerprint == fingerprint


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_truncated(tmp_path: Path, suffix: str, keep: float) -> None:
    packed = COMPRESS[suffix](TEXT)
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(packed[: int(len(packed) * keep)])
    with pytest.raises(InputError, match=rf"{path}: the \w+ data is truncated"):
        convert([path], tmp_path / "a.h5")
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
def test_damaged(tmp_path: Path, suffix: str) -> None:
    """These carry checksums of their content (zstd as its library writes it does not)."""
    packed = bytearray(COMPRESS[suffix](TEXT))
    packed[len(packed) // 2] ^= 16
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(packed)
    with pytest.raises(InputError, match=f"^{path}"):
        convert([path], tmp_path / "a.h5")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_garbage_after_a_stream(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(COMPRESS[suffix](TEXT) + b"1 1:1\n")
    with pytest.raises(InputError, match=r"damaged|truncated"):
        convert([path], tmp_path / "a.h5")


def test_several_files_are_one(tmp_path: Path, fingerprint: str) -> None:
    """Compressed or not, with or without a last newline; lines are counted in each."""
    lines = TEXT.splitlines(keepends=True)
    (tmp_path / "1").write_bytes(b"".join(lines[:1000])[:-1])
    (tmp_path / "2").write_bytes(gzip.compress(b"\xef\xbb\xbf" + b"".join(lines[1000:1001])))
    (tmp_path / "3").write_bytes(b"")
    (tmp_path / "4").write_bytes(b"".join(lines[1001:]).replace(b"\n", b"\r\n"))
    inputs = [tmp_path / str(number) for number in (1, 2, 3, 4)]
    assert convert(inputs, tmp_path / "a.h5").fingerprint == fingerprint
    (tmp_path / "5").write_bytes(b"1 1:1\n1 oops\n")
    with pytest.raises(InputError, match="5, line 2, column 3"):
        convert([*inputs, tmp_path / "5"], tmp_path / "b.h5")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(tmp_path: Path, pack: Callable[[bytes], bytes], fingerprint: str) -> None:
    program = (
        "import sys\nfrom streamsvm_converters import convert\n"
        "report = convert(['-'], sys.argv[1], progress=lambda done, total, rows: print(total))\n"
        "print(report.fingerprint)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.h5")]
    done = subprocess.run(command, input=pack(TEXT), capture_output=True, check=True)
    assert set(done.stdout.decode().split()) == {"None", fingerprint}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["missing.svm"], "missing.svm cannot be read: No such file"),
        (["."], r"\. is a folder"),
        (["-", "-"], "given twice"),
        ([], "no input"),
    ],
)
def test_unreadable(tmp_path: Path, inputs: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        convert(inputs, tmp_path / "a.h5")
    assert os.listdir(tmp_path) == []
