"""Detect the kind of an input, a key of `TITLES`, from its first bytes, structure and, for text, suffix."""

from __future__ import annotations

import contextlib
import os
import zipfile
from pathlib import Path

from streamsvm.base.durable import open_file, os_errors_as
from streamsvm.base.format import RUN_DATA
from streamsvm.errors import InputError, Remedy, StoreError
from streamsvm.store.addresses import local
from streamsvm.store.list_file import ListFile

STDIN = "-"
TO_FILE = Remedy("write the input to a file first, because only LIBSVM text is read from a pipe")
TITLES = {
    "libsvm": "LIBSVM text",
    "csv": "CSV",
    "tsv": "tab-separated values",
    "jsonl": "JSON lines",
    "parquet": "a Parquet table",
    "lists": "a column of lists of numbers",
    "npz": "a .npz archive",
    "npy": "a dense matrix",
    "anndata": "AnnData",
}
TEXTS = {"libsvm", "csv", "tsv", "jsonl"}
TABLES = {"csv", "tsv", "jsonl", "parquet"}
MATRICES = {"npy", "npz", "lists"}
_SUFFIXES = {
    "csv": "csv", "tsv": "tsv", "tab": "tsv", "jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl",
    "parquet": "parquet", "pq": "parquet", "arrow": "lists", "feather": "lists", "npz": "npz", "npy": "npy",
    "h5ad": "anndata", "h5": "anndata", "hdf5": "anndata", "zarr": "anndata",
}  # fmt: skip
_MAGIC = {
    b"\x89HDF\r\n\x1a\n": "anndata", b"\x93NUMPY": "npy", b"PK\x03\x04": "npz", b"PK\x05\x06": "npz",
    b"PAR1": "parquet", b"ARROW1": "lists",
}  # fmt: skip
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
MAGIC_SIZE = max(map(len, COMPRESSIONS))  # number of first bytes that identify a compression
COMPRESSION_SUFFIXES = {"gz", "bz2", "xz", "zst"}
_HEAD_SIZE = 4096  # number of bytes read to detect a kind


def kind_of(path: str | os.PathLike[str], format: str | None = None) -> str:
    """Return the kind of an input, a key of `TITLES`; "anndata" includes streamsvm stores.

    Parameters
    ----------
    path : path, address, or "-"
        Input. If it is a pipe or a device, its suffix determines the kind. Standard input, "-", is LIBSVM
        text.
    format : str, optional
        Expected kind, which must match the content. For text it overrides the suffix, and a file of kind
        "lists" may also be read as "parquet".

    Raises
    ------
    InputError
        If the input cannot be read, is of no known kind, or contradicts `format`.
    """
    if format is not None and format not in TITLES:
        raise ValueError(f"format must be one of {', '.join(TITLES)}, not {format!r}")
    found = _recognised(path)
    if format in (None, found):
        return found
    if (format in TEXTS and found in TEXTS and str(path) != STDIN) or (format, found) == ("parquet", "lists"):
        return str(format)
    name, remedy = (path, None) if str(path) != STDIN else ("standard input", TO_FILE)
    raise InputError(f"{name} is {TITLES[found]}, not {TITLES[str(format)]}", remedy=remedy)


def is_read_in_place(path: str | os.PathLike[str]) -> bool:
    """Return whether `open_store` can read the input by rows, unlike text, tables and packed archives."""
    kind = kind_of(path)
    return kind in {"anndata", *MATRICES} and not (kind == "npz" and is_packed(path))


def is_trained_in_place(path: str | os.PathLike[str]) -> bool:
    """Return whether rows can be read in place in any order; large Parquet row groups prevent this."""
    if is_read_in_place(path) and kind_of(path) == "lists":
        with contextlib.closing(ListFile(Path(local(path)))) as file:
            return file.reads_groups
    return is_read_in_place(path)


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Return whether an ``.npz`` archive contains compressed arrays or a SciPy sparse matrix."""
    members = _members(path)
    compressed = any(each.compress_type != zipfile.ZIP_STORED for each in members)
    return compressed or {"format.npy", "shape.npy"} <= {each.filename for each in members}


def compression_of(begin: bytes) -> str | None:
    """Return the compression of text, detected from its first `MAGIC_SIZE` bytes, or None for plain text."""
    return next((name for magic, name in COMPRESSIONS.items() if begin.startswith(magic)), None)


def _members(path: str | os.PathLike[str]) -> list[zipfile.ZipInfo]:
    """Return the members of an archive, or [] on an error, which is reported when the archive is opened."""
    try:
        with open_file(Path(local(path)), follow=True) as file, zipfile.ZipFile(file) as archive:
            return archive.infolist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return []


def _recognised(path: str | os.PathLike[str]) -> str:
    if str(path) == STDIN:
        return "libsvm"
    path = Path(local(path))
    suffixes = [suffix[1:].lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSION_SUFFIXES:
        suffixes.pop()
    by_name = _SUFFIXES.get(suffixes[-1], "libsvm") if suffixes else "libsvm"
    if path.is_dir():
        return _kind_of_folder(path, by_name)
    if not path.is_file():  # a pipe can only be read once
        if by_name in TEXTS | TABLES:
            with os_errors_as(InputError, path, "read"):
                path.stat()
        return by_name
    with os_errors_as(InputError, path, "read"), path.open("rb") as file:
        begin = file.read(_HEAD_SIZE)
    found = next((kind for magic, kind in _MAGIC.items() if begin.startswith(magic)), None)
    if found == "parquet":
        with contextlib.suppress(StoreError):
            ListFile(path).close()
            return "lists"
    is_foreign = found == "npz" and not all(each.filename.endswith(".npy") for each in _members(path))
    if found is None and by_name in TEXTS and compression_of(begin) is None:
        control = sum(byte < 32 and byte not in b"\t\n\v\f\r\x1b" for byte in begin)
        line = begin.partition(b"\n")[0].decode("utf-8", "surrogateescape")
        # If the first line is text, the reader will find and name the malformed line.
        begins_as_text = "".join(line.split()).isprintable()
        is_foreign = b"\0" in begin and 16 * control > len(begin) and not begins_as_text
    if is_foreign:
        raise InputError(
            f"{path} begins with {begin[:8]!r} and matches no supported format: {', '.join(TITLES.values())}"
        )
    return found or by_name


def _kind_of_folder(path: Path, by_name: str) -> str:
    from streamsvm.store.zarr_backend import METADATA, ZarrContainer

    if (path / METADATA).exists():
        with contextlib.closing(ZarrContainer(path)) as container:
            return "npy" if container.node("") == "array" else "anndata"
    if (path / ".zarray").exists():
        return "npy"
    if by_name == "anndata" or (path / ".zgroup").exists():
        return "anndata"
    example = f", such as {path / RUN_DATA}" if (path / RUN_DATA).exists() else ""
    raise InputError(f"{path} is a folder; specify the files inside it{example}")
