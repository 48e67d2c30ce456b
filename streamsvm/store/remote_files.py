"""Files at URLs, read by fsspec with retries and checks of the length."""

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

RETRY_DELAYS = tuple(0.1 * 2.0**attempt for attempt in range(6))  # seconds before it is asked again: 6 in all
TIMEOUT = 30  # seconds without a byte until a server is given up; for its size, a file is asked for twice
_BLOCK_BYTES = 2**20  # fetched at once
_CACHED_BLOCKS = 32
# Names of errors of aiohttp, and of `open_file`; s3fs raises OSError for what a server answers.
_TEMPORARY_ERRORS = {"ClientConnectionError", "ClientPayloadError", "EOFError"}
_SERVER_ERRORS = {*_TEMPORARY_ERRORS, "OSError", "BotoCoreError"}
_CREDENTIAL_ERRORS = {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"}
_RETRY_HINT = "check the address, try again later, or copy it here"
_CREDENTIALS_HINT = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or FSSPEC_S3_ANON=true"


def file_options(url: str) -> dict[str, Any]:
    """Return the options of fsspec for a URL."""
    if not url.startswith(("http://", "https://")):
        return {}
    from aiohttp import ClientTimeout

    return {"timeout": ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=TIMEOUT)}


def wait_after(error: Exception, attempt: int) -> float:
    """Return the seconds to wait before the next request, after `attempt` retries.

    Raises `ServerError` with what went wrong if that will not help, or was tried often enough; and `error`
    itself if there is no such file, or no server has to do with it.
    """
    # fsspec says that a file is not there when its size was refused, and puts the reason behind it.
    cause = (isinstance(error, FileNotFoundError) and error.__cause__) or error
    reason, _, _ = one_line(cause).partition(": <")  # aiohttp adds an error of its own
    names = {each.__name__ for each in type(cause).__mro__}
    passing = bool(names & _TEMPORARY_ERRORS)
    given = (getattr(cause, name) for name in ("status", "status_code", "code") if hasattr(cause, name))
    status = next(given, None)  # aiohttp warns of whoever looks at the code beside the status
    if isinstance(cause, TimeoutError):
        reason, passing = f"the server sent nothing for {TIMEOUT} seconds", False
    elif isinstance(status, int):
        reason = f"the server answered {status} {getattr(cause, 'message', '')}".rstrip()
        passing = status == 429 or status >= 500
    elif not names & _SERVER_ERRORS or (isinstance(error, FileNotFoundError) and not passing):
        raise error
    if passing and attempt < len(RETRY_DELAYS):
        return RETRY_DELAYS[attempt]
    times = f", {attempt + 1} times" if attempt else ""
    hint = _CREDENTIALS_HINT if names & _CREDENTIAL_ERRORS else _RETRY_HINT
    raise ServerError(f"{reason}{times}; {hint}") from error


def ask(request: Callable[..., Any], *args: Any) -> Any:
    """Call `request`, again while the server fails temporarily, and return its result."""
    for attempt in itertools.count():
        try:
            return request(*args)
        except Exception as error:
            # An error that refers to itself by its frames would keep what is in those of h5py, which asks:
            # its list of access properties must not live until Python ends.
            traceback.clear_frames(error.__traceback__)
            wait = wait_after(error, attempt)
        time.sleep(wait)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Let no thread collect garbage: h5py's lock is held here, and its objects need it to be collected.

    If the thread that fetches for fsspec did that, each would wait for the other. No two threads are here at
    the same time, because of that lock.
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
    from h5py._objects import phil  # its lock

    files, path = fsspec.core.url_to_fs(url, **file_options(url))
    cache = {"cache_type": "blockcache", "cache_options": {"maxblocks": _CACHED_BLOCKS}}
    file = ask(functools.partial(files.open, path, "rb", block_size=_BLOCK_BYTES, **cache))
    if hasattr(file, "cache"):  # not of files on this machine
        fetch = file.cache.fetcher

        def fetch_all(start: int, stop: int) -> bytes:
            with phil, _no_collection():
                content: bytes = fetch(start, stop)
            if len(content) != min(stop, file.size) - start:
                raise EOFError(f"the server sent {len(content):,} of the bytes from {start:,} to {stop:,}")
            return content

        file.cache.fetcher = functools.partial(ask, fetch_all)
    return file
