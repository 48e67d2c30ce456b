"""Copy files and Zarr folders from addresses such as ``s3://bucket/atlas.h5ad`` to a local disk."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

from streamsvm.base import durable
from streamsvm.base.progress import Progress
from streamsvm.base.text import as_url, format_size
from streamsvm.errors import Option, Remedy, StoreError, StreamsvmError

_BATCH = 32  # files fetched concurrently; an interrupted batch is fetched again
_VERSIONS = ("ETag", "etag", "LastModified", "Last-Modified", "last_modified", "mtime", "created")
_INSTALL = "install fsspec and the package for this protocol: pip install 'streamsvm[remote]' s3fs"
_CHECK = "check the address, your credentials and the disk, or try again later"
_PROCESS = secrets.token_hex(8)
_COPIES: dict[str, str] = {}  # path of this process's newest copy of each address


def local(path: Any) -> Any:
    """Return the local copy of an address, which is made at first use; return other paths unchanged."""
    copy = _COPIES.get(as_url(path) or "", "")
    return copy if os.path.exists(copy) else copy_address(path)


def copy_address(
    path: Any, cache: str | Path | None = None, progress: Progress = lambda stage, done, total: None
) -> Any:
    """Copy the file or Zarr folder at an address and return the copy's path; return other data unchanged.

    The copy is in a subfolder of `cache`, which by default is a temporary folder of this process. The
    subfolder is named after a digest of the address and the sizes, ETags and times of the files, so changed
    content is copied again. Complete files from earlier calls are reused; if the server reports neither ETags
    nor times, only files that this process copied are reused. Raises StoreError if the copy fails.
    """
    url = as_url(path) if isinstance(path, str | os.PathLike) else None
    if url is None:
        return path
    try:
        _COPIES[url] = _copy(url, cache or _temporary(), progress)
        return _COPIES[url]
    except StreamsvmError:
        raise
    except Exception as error:  # each protocol raises its own types
        cause = error.__cause__ or error  # fsspec reports a refusal as a missing file
        problem, remedy = " ".join(str(cause).split()) or type(cause).__name__, _CHECK
        if isinstance(cause, FileNotFoundError):
            problem = "the address does not exist"
        elif isinstance(cause, ImportError) or "Protocol not known" in problem:
            remedy = _INSTALL
        raise StoreError(f"{url}: {problem}", remedy=Remedy(remedy)) from error


@functools.cache
def _temporary() -> str:
    """Return this process's temporary folder, which is deleted when Python exits."""
    folder = tempfile.mkdtemp(prefix="streamsvm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    options = {}
    if url.startswith(("http://", "https://")):
        if url.partition("?")[0].rstrip("/").lower().endswith(".zarr"):
            raise StoreError(f"{url}: web servers do not list folders; copy the folder to a disk or bucket")
        from aiohttp import ClientTimeout  # the default timeout ends each transfer after five minutes

        options["timeout"] = ClientTimeout(total=None, sock_connect=30, sock_read=30)  # seconds
    source, root = fsspec.core.url_to_fs(url, **options)
    source.invalidate_cache()
    source.max_concurrency = 1  # else s3fs holds ten 50 MB parts of a file in memory
    return source, root


def _version(url: str, listing: dict[str, dict[str, Any]]) -> str:
    versions = [(each["size"], *(each.get(fact) for fact in _VERSIONS)) for each in listing.values()]
    facts: list[Any] = [url, list(listing), versions]
    if any(size is None or not any(version) for size, *version in versions):
        facts.append(_PROCESS)  # another process may have copied different content
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _copy(url: str, cache: str | Path, progress: Progress) -> str:
    from fsspec import Callback

    source, root = _file_system(url)
    listing = {root: source.info(root)}
    if listing[root]["type"] == "directory":
        listed = sorted(source.find(root, detail=True).items())
        listing = {each: info for each, info in listed if not each.endswith("/")}  # without folder markers
    if not listing:
        raise FileNotFoundError(url)
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    folder = f"{os.path.realpath(cache)}/{_version(url, listing)}"
    files = [
        (each, info["size"], f"{folder}/{name}{each.removeprefix(root)}") for each, info in listing.items()
    ]
    for each, _, target in files:
        if os.path.realpath(target) != target:
            raise StoreError(f"{url}: {each} would be copied outside the folder {folder}")
    missing = [file for file in files if not _is_complete(*file[1:])]
    with durable.os_errors_as(StoreError, cache, "written"):
        os.makedirs(folder, exist_ok=True)
    needed, free = sum(size or 0 for _, size, _ in missing), durable.free_bytes(Path(folder))
    if needed > free:
        room = f"a copy needs {format_size(needed)}, but the disk of {cache} has {format_size(free)} free"
        raise StoreError(f"{url}: {room}", remedy=Remedy("choose another folder with {}", Option("cache")))
    count = Callback(hooks={"": lambda size, done, **_: progress("copy", min(done, needed), needed)})
    count.branched = lambda *paths, **facts: count  # one counter for all files
    with durable.temporary(Path(folder), folder=True) as staging:
        for first in range(0, len(missing), _BATCH):
            batch = missing[first : first + _BATCH]
            parts = [f"{staging}/{number}" for number in range(len(batch))]
            source.get([each for each, _, _ in batch], parts, callback=count)
            durable.sync_tree(staging)
            for (each, size, target), part in zip(batch, parts, strict=True):
                if not _is_complete(size, part):
                    raise StoreError(f"{url}: the copy of {each} does not have {size:,} bytes; try again")
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.replace(part, target)
    return f"{folder}/{name}"


def _is_complete(size: int | None, path: str) -> bool:
    return os.path.isfile(path) and size in (None, os.path.getsize(path))
