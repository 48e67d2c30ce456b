"""Compressed files, several files and standard input."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zarr
import zstandard
from cases import few
from streamsvm_converters import TextSource, convert, open_reader
from streamsvm_converters.libsvm.inputs import Input
from warm_process import run

from streamsvm.errors import InputError, StoreError, StreamsvmWarning
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
    """The format is recognised by content, not by name. The hash is that of the file on disk.

    Streams may follow each other, as `cat a.gz b.gz` or a parallel compressor writes them; gzip may pad the
    last one.
    """
    path, pack, half = tmp_path / "data", COMPRESS[suffix], len(TEXT) // 2
    padding = bytes(10_000) if suffix == "gz" else b""
    for content in pack(TEXT), pack(TEXT[:half]) + pack(TEXT[half:]) + padding:
        path.write_bytes(content)
        calls: list[tuple[str, int, int | None]] = []
        report = convert([path], tmp_path / "a.h5", progress=lambda *call: calls.append(call), force=True)  # noqa: B023
        assert report.fingerprint == fingerprint
        assert ("convert", len(content), len(content)) in calls
        with open_store(tmp_path / "a.h5") as store:
            digest = hashlib.sha256(content).hexdigest()
            assert store.meta["sources"] == [{"name": "data", "size": len(content), "sha256": digest}]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_damaged(tmp_path: Path, suffix: str) -> None:
    packed = COMPRESS[suffix](TEXT)
    path, middle = tmp_path / f"data.{suffix}", len(packed) // 2
    cases = [(packed[: int(len(packed) * keep)], "is truncated") for keep in (0.1, 0.5, 0.99)]
    cases.append((packed + b"1 1:1\n", "is damaged|is truncated"))
    if suffix != "zst":  # which has no checksum of the content as its library writes it
        cases.append((packed[:middle] + bytes([packed[middle] ^ 16]) + packed[middle + 1 :], ""))
    for content, problem in cases:
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"^{path}.*{problem}"):
            convert([path], tmp_path / "a.h5")
        assert os.listdir(tmp_path) == [path.name]


def test_several_files_are_read_as_one(tmp_path: Path, fingerprint: str) -> None:
    """Compressed or not, with or without a last newline; lines are counted in each."""
    lines = TEXT.splitlines(keepends=True)
    (tmp_path / "1").write_bytes(b"".join(lines[:1000])[:-1])
    (tmp_path / "2").write_bytes(gzip.compress(b"\xef\xbb\xbf" + b"".join(lines[1000:1001])))
    (tmp_path / "3").write_bytes(b"")
    (tmp_path / "4").write_bytes(b"".join(lines[1001:]).replace(b"\n", b"\r\n"))
    inputs = [tmp_path / str(number) for number in (1, 2, 3, 4)]
    with pytest.warns(StreamsvmWarning, match="3 is empty"):
        assert convert(inputs, tmp_path / "a.h5").fingerprint == fingerprint
    (tmp_path / "5").write_bytes(b"1 1:1\n1 oops\n")
    inputs.remove(tmp_path / "3")
    with pytest.raises(InputError, match="5, line 2, column 3"):
        convert([*inputs, tmp_path / "5"], tmp_path / "b.h5")


LONG = 300 * 2**20
BOMB: dict[str, Callable[[], bytes]] = {  # each expands to this size, most from a few hundred bytes
    "gz": lambda: gzip.compress(bytes(LONG), 9),
    "bz2": lambda: bz2.compress(b"\n" * LONG),
    "xz": lambda: lzma.compress(b"\n" * LONG, preset=0),
    "zst": lambda: zstandard.ZstdCompressor().compress(bytes(LONG)),
}
READ_IT = """
import resource, sys
from streamsvm_converters.libsvm import inputs
import zstandard
space = memoryview(bytearray(100_000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fed, size = 0, 0
class Counted:
    def __init__(self, decoder):
        self.decoder = decoder
    def __getattr__(self, name):
        return getattr(self.decoder, name)
    def decompress(self, piece, *limit):
        global fed
        fed += len(piece)
        return self.decoder.decompress(piece, *limit)
for name, format in inputs._DECODERS.items():
    inputs._DECODERS[name] = format._replace(decoder=lambda new=format.decoder: Counted(new()))
with inputs.Input(sys.argv[1]) as source:
    while count := source.readinto(space):
        size += count
print(size, fed, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize("suffix", few(BOMB, "gz"))
def test_decompression_takes_bounded_memory_and_linear_work(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(BOMB[suffix]())
    done = run(path, code=READ_IT, bare=True)
    assert done.code == 0, done.err
    size, fed, grown = map(int, done.out.split())
    assert size == LONG
    assert fed == path.stat().st_size  # each byte once
    assert grown < 80 * 2**20


@pytest.mark.parametrize("suffix", COMPRESS)
def test_flushed_rows_of_a_compressed_pipe_are_available_at_once(tmp_path: Path, suffix: str) -> None:
    """Text that a writer has flushed can be read before it writes more."""
    packed = COMPRESS[suffix](TEXT)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR)  # never the end
    os.write(writer, packed)
    late = threading.Timer(60, os.close, [writer])  # then the text that is awaited is truncated
    late.start()
    with Input(fifo) as source:
        assert io.BufferedReader(source).read(len(TEXT)) == TEXT
    late.cancel()
    os.close(writer)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(tmp_path: Path, pack: Callable[[bytes], bytes], fingerprint: str) -> None:
    program = (
        "import sys\nfrom streamsvm_converters import convert\n"
        "report = convert(['-'], sys.argv[1], progress=lambda stage, done, total: print(stage, total))\n"
        "print(report.fingerprint)\n"
    )
    done = run(tmp_path / "a.h5", code=program, input=pack(TEXT))
    assert set(done.out.splitlines()) >= {"convert None", fingerprint}


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where LIBSVM text alone is read; `convert` takes most of the other formats."""
    monkeypatch.chdir(tmp_path)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**29}]
    Path("data.xz").write_bytes(lzma.compress(TEXT, filters=filters))
    Path("data").write_bytes(TEXT)
    zarr.open_group("cells.zarr", mode="w")
    Path("x.parquet").write_bytes(b"PAR1\x15\x04\x15")
    files = set(os.listdir())
    for inputs, message in [
        (["data.xz"], r"data.xz: .* needs more than 128 MiB of memory; decompress it first"),
        (["cells.zarr"], r"cells.zarr is AnnData, not LIBSVM text"),
        (["x.parquet"], "x.parquet is a Parquet table, not LIBSVM text"),
        (["missing.svm"], "missing.svm cannot be read: No such file"),
        (["."], "is a folder"),
        (["-", "-"], "given twice"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            list(TextSource(inputs, classes=["1"], index_base=1).batches(None, ["1"]))
        assert "on_error" not in str(caught.value)
    with pytest.raises(InputError, match="no input"):
        open_reader([])
    with pytest.raises(StoreError, match=r"^s3://bucket/a\.zarr is not a local path"):
        convert(["data"], Path("s3://bucket/a.zarr"))
    assert set(os.listdir()) == files
