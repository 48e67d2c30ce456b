"""Files at addresses, read by fsspec: asked for again where that may help, and no shorter than asked for."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from streamsvm.store.container import ServerError, one_line

WAITS = tuple(0.1 * 2.0**attempt for attempt in range(6))  # seconds before it is asked again: 6 in all
SILENCE = 30  # seconds without a byte until a server is given up; for its size, a file is asked for twice
_BLOCK = 2**20  # bytes fetched at once, and kept: as many as
_BLOCKS = 32
_PASSING = {"ClientConnectionError", "ClientPayloadError", "EOFError"}  # of aiohttp, and of `open_file`


def file_options(url: str) -> dict[str, Any]:
    """The options that fsspec gets for an address."""
    if not url.startswith(("http://", "https://")):
        return {}
    from aiohttp import ClientTimeout

    return {"timeout": ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)}


def wait_after(error: Exception, attempt: int) -> float:
    """The seconds to wait before a file is asked for again, after `attempt` others.

    Raises `ServerError` with what went wrong if that will not help, or was tried often enough, and
    `FileNotFoundError` if there is no such file.
    """
    # fsspec says that a file is not there when its size was refused, and puts the reason behind it.
    cause = (isinstance(error, FileNotFoundError) and error.__cause__) or error
    reason, _, _ = one_line(cause).partition(": <")  # aiohttp adds an error of its own
    passing = bool(_PASSING & {each.__name__ for each in type(cause).__mro__})
    status = getattr(cause, "status", None)
    if isinstance(cause, TimeoutError):
        reason, passing = f"the server sent nothing for {SILENCE} seconds", False
    elif isinstance(status, int):
        reason = f"the server answered {status} {getattr(cause, 'message', '')}".rstrip()
        passing = status == 429 or status >= 500
    elif isinstance(error, FileNotFoundError) and not passing:
        raise error
    if passing and attempt < len(WAITS):
        return WAITS[attempt]
    times = f", {attempt + 1} times" if attempt else ""
    raise ServerError(f"{reason}{times}; check the address, try again later, or copy it here") from error


def ask(request: Callable[..., Any], *args: Any) -> Any:
    """Return what `request` does; it is called again while the server fails in ways that may pass."""
    for attempt in itertools.count():
        try:
            return request(*args)
        except Exception as error:
            # Where h5py asks, an error that refers to itself by its frames would keep h5py's list of properties,
            # and with it the file, until Python ends, which then crashes.
            traceback.clear_frames(error.__traceback__)
            wait = wait_after(error, attempt)
        time.sleep(wait)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Let no thread collect garbage: h5py's lock is held here, and its objects need it to be collected.

    If the thread that fetches for fsspec did that, each would wait for the other.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def open_file(url: str) -> Any:
    """Open a file, to be read in ranges."""
    import fsspec

    files, path = fsspec.core.url_to_fs(url, **file_options(url))
    options = {"block_size": _BLOCK, "cache_type": "blockcache", "cache_options": {"maxblocks": _BLOCKS}}
    file = ask(functools.partial(files.open, path, "rb", **options))
    if hasattr(file, "cache"):  # not of files on this machine
        fetch = file.cache.fetcher

        def fetch_all(start: int, stop: int) -> bytes:
            with _no_collection():
                content: bytes = fetch(start, stop)
            if len(content) != min(stop, file.size) - start:
                raise EOFError(f"the server sent {len(content):,} of the bytes from {start:,} to {stop:,}")
            return content

        file.cache.fetcher = functools.partial(ask, fetch_all)
    return file
