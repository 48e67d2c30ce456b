"""What a file is: by its first bytes, and only then by its suffix; a wrong kind is named for what it is."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import stat
import zlib
from pathlib import Path

from streamsvm.durable import reason
from streamsvm.errors import InputError
from streamsvm.text import check_local

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
# What else people have, and how it becomes something that is read here.
_FOREIGN = {
    b"\x89PNG\r\n": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF document",
    b"\x7fELF": "a program",
    b"ARROW1": "an Arrow (Feather) file; write it as Parquet: pyarrow.parquet.write_table(table, path)",
    b"FEA1": "an old Feather file; write it as Parquet: DataFrame.to_parquet(path)",
    b"ORC": "an ORC table; write it as Parquet",
    b"Obj\x01": "an Avro file; write it as Parquet",
    b"SQLite format 3\x00": "an SQLite database; write the table as CSV or Parquet",
    b"RDX": "an R data file; write it from R, as .h5ad or Parquet",
    b"X\n\x00\x00\x00": "an .rds file of R; write it from R, as .h5ad or Parquet",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    b"Rar!": "a RAR archive; unpack it",
    b"MATLAB": "a MATLAB file; read it with scipy.io.loadmat, and scipy.sparse.save_npz the matrix",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file; save the table as CSV",
}
_FOREIGN_TEXT = {
    b"%%MatrixMarket": "a Matrix Market file; read it with scipy.io.mmread, and scipy.sparse.save_npz the "
    "matrix",
    b"<?xml": "XML",
    b"<!DOCTYPE": "a web page, perhaps of an error; fetch the file again",
    b"<html": "a web page, perhaps of an error; fetch the file again",
    b"version https://git-lfs": "a Git LFS pointer; fetch the file itself with git lfs pull",
    b"@relation": "an ARFF table; write it as CSV or Parquet",
    b"@RELATION": "an ARFF table; write it as CSV or Parquet",
}


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
    _refuse_foreign(path, text, packed)
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
    if "xl/workbook.xml" in names:
        raise InputError(f"{path} is an Excel workbook; save the table as CSV or Parquet")
    if any(name.endswith("data.pkl") for name in names):
        raise InputError(f"{path} is a file of PyTorch, which holds a pickle, and is not read")
    raise InputError(f"{path} is a zip archive of other files; unpack it")


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


def _refuse_foreign(path: Path, begin: bytes, packed: str | None) -> None:
    """Raise `InputError` if the (unpacked) beginning of a file is that of a kind that is not read."""
    inside = f"{path} is" if packed is None else f"{path}, unpacked by {packed}, is"
    bare = begin.lstrip()
    for magic, what in _FOREIGN.items():
        if begin.startswith(magic) and (b"\0" in begin or not magic.isalnum()):  # "ORC" may be a label
            raise InputError(f"{inside} {what}")
    for magic, what in _FOREIGN_TEXT.items():
        if bare.startswith(magic):
            raise InputError(f"{inside} {what}")
    if begin[257:262] == b"ustar":
        raise InputError(f"{inside} a tar archive; unpack it, and give the files in it")
    if begin[:1] == b"\x80" and len(begin) > 1 and begin[1] <= 5:
        raise InputError(f"{inside} a pickle, which is not read: it could run any program")
    for magic, kind in _MAGIC.items():
        if packed is not None and begin.startswith(magic):
            raise InputError(f"{path} is {packed} data of a file of the kind {kind}; unpack it")
    control = sum(byte < 32 and byte not in b"\t\n\v\f\r\x1b" for byte in begin)
    if packed is None and b"\0" in begin and 16 * control > len(begin):
        start = begin[:4].hex(" ")
        raise InputError(f"{path} is a binary file of a kind that is not read (it begins with {start})")
