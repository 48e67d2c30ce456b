"""Recognition of the kind of a file: by its first bytes, and only then by its suffix."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from streamsvm_converters.libsvm.inputs import COMPRESSIONS, STDIN, Compression

from streamsvm.base.durable import os_errors_as
from streamsvm.base.format import RUN_DATA
from streamsvm.base.text import check_local
from streamsvm.errors import InputError
from streamsvm.store.open import open_container

_HEAD_SIZE = 4096  # bytes that are read
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
_COMPRESSION_SUFFIXES = {".gz", ".bz2", ".xz", ".zst"}
_MAGIC = {b"\x89HDF\r\n\x1a\n": "anndata", b"\x93NUMPY": "npy", b"PAR1": "parquet"}
_BINARY_KINDS = set(_MAGIC.values()) | {"npz"}
_SUPPORTED = (
    "LIBSVM text, CSV, TSV and JSON lines, perhaps compressed; Parquet, AnnData, .npy and .npz; "
    "Arrow with one column of lists of numbers"
)


def recognise(path: str | Path) -> tuple[str, bool]:
    """Return the kind of a file, a name in `registry.KINDS`, and True if its content determines it.

    If not, the file is text or a pipe: its suffix determines the kind, which is LIBSVM text by default.
    Raise `InputError` if it cannot be read, or is of no kind that is known.
    """
    if str(path) == STDIN:
        return "libsvm", True
    check_local(path, InputError)
    path = Path(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSION_SUFFIXES:
        suffixes.pop()
    by_name = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    with os_errors_as(InputError, path, "read"):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            if any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
                with contextlib.closing(open_container(path, "zarr")) as container:
                    if container.is_matrix:
                        raise InputError(f"{path} is one array of Zarr, which fit and predict take as it is")
                return "anndata", True
            data = path / RUN_DATA
            such = f", such as {data}" if data.exists() else ""
            raise InputError(f"{path} is a folder; give the files in it{such}")
        if not stat.S_ISREG(mode):  # a pipe cannot be looked at and then read
            return by_name or "libsvm", False
        with path.open("rb") as file:
            begin = file.read(_HEAD_SIZE)
    for magic, kind in _MAGIC.items():
        if begin.startswith(magic):
            return kind, True
    if begin.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip(path), True
    packed = next((each for magic, each in COMPRESSIONS.items() if begin.startswith(magic)), None)
    text = begin if packed is None else _unpacked(begin, packed)
    control = sum(byte < 32 and byte not in b"\t\n\v\f\r\x1b" for byte in text)
    if text.startswith(tuple(_MAGIC)) or (b"\0" in text and 16 * control > len(text)):
        where = "" if packed is None else f", unpacked by {packed.name},"
        raise InputError(
            f"{path}{where} begins with {text[:8]!r} and is of no kind that is read: {_SUPPORTED}"
        )
    if by_name in _BINARY_KINDS:
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
    raise InputError(f"{path} is a zip archive of other files than .npy; what is read: {_SUPPORTED}")


def _unpacked(begin: bytes, packed: Compression) -> bytes:
    """Return the first bytes of compressed text, or none if it is damaged, which its reader reports."""
    with contextlib.suppress(Exception):
        if packed.name != "zstd":  # whose decoder has no limit of what it returns
            return bytes(packed.decoder().decompress(begin, _HEAD_SIZE))
    return b""
