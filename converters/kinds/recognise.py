"""What a file is: by its first bytes, and only then by its suffix."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import stat
import zlib
from pathlib import Path

from streamsvm.base.durable import reason
from streamsvm.base.text import check_local
from streamsvm.errors import InputError

STDIN = "-"
_BEGIN = 4096  # bytes that are looked at
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".npz": "npz",
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".h5ad": "anndata",
    ".h5": "anndata",
    ".hdf5": "anndata",
    ".zarr": "anndata",
}
_PACKED = {".gz", ".bz2", ".xz", ".zst"}
_MAGIC = {b"\x89HDF\r\n\x1a\n": "anndata", b"\x93NUMPY": "npy", b"PAR1": "parquet"}
_BINARY = set(_MAGIC.values()) | {"npz"}
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_READ = "LIBSVM text, CSV, TSV and JSON lines, perhaps compressed; Parquet, AnnData, .npy and .npz"


def recognise(path: str | Path) -> tuple[str, bool]:
    """Return the kind of a file, a name in `registry.KINDS`, and whether its content says so.

    If not, it is text, or a pipe, and the kind is what the suffix says, or LIBSVM text. Raises `InputError`
    if it cannot be read, or is of another kind.
    """
    if str(path) == STDIN:
        return "libsvm", True
    check_local(path, InputError)
    path = Path(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    by_name = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            if any((path / name).exists() for name in ("zarr.json", ".zgroup")):
                return "anndata", True
            raise InputError(f"{path} is a folder; give the files in it")
        if not stat.S_ISREG(mode):  # a pipe cannot be looked at and then read
            return by_name or "libsvm", False
        with path.open("rb") as file:
            begin = file.read(_BEGIN)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from None
    for magic, kind in _MAGIC.items():
        if begin.startswith(magic):
            return kind, True
    if begin.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip(path), True
    packed = next((name for magic, name in _COMPRESSED.items() if begin.startswith(magic)), None)
    text = begin if packed is None else _unpacked(begin, packed)
    control = sum(byte < 32 and byte not in b"\t\n\v\f\r\x1b" for byte in text)
    if text.startswith(tuple(_MAGIC)) or (b"\0" in text and 16 * control > len(text)):
        where = "" if packed is None else f", unpacked by {packed},"
        raise InputError(f"{path}{where} begins with {text[:8]!r} and is of no kind that is read: {_READ}")
    if by_name in _BINARY:
        raise InputError(
            f"{path} is not what its suffix says: it does not begin as such files do; it may be truncated, "
            "or another kind of file"
        )
    return by_name or "libsvm", False


def _zip(path: Path) -> str:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path} is a damaged or truncated zip archive ({error}); fetch it again") from None
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    raise InputError(f"{path} is a zip archive of other files than .npy; what is read: {_READ}")


def _unpacked(begin: bytes, name: str) -> bytes:
    """Return the first bytes of compressed text; what is damaged is said by the reader."""
    with contextlib.suppress(Exception):
        if name == "gzip":
            return zlib.decompressobj(wbits=31).decompress(begin, _BEGIN)
        if name == "bzip2":
            return bz2.BZ2Decompressor().decompress(begin, _BEGIN)
        if name == "xz":
            return lzma.LZMADecompressor(memlimit=2**27).decompress(begin, _BEGIN)
    return b""
