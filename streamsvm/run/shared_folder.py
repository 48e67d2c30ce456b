"""Checks that processes, perhaps of several machines, see the same folder and each other's files there."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from streamsvm.base import durable, format
from streamsvm.base.threads import WorkersLost
from streamsvm.errors import RunError

_MAX_DELAY = 30.0  # seconds until a network file system shows what another machine has made durable


@contextlib.contextmanager
def sample_file(folder: Path) -> Iterator[Path]:
    """Keep a file of a new name in a folder during the context; `RunError` if it cannot be written."""
    sample = folder / _any_name()
    try:
        sample.touch()
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {durable.reason(error)}") from None
    try:
        yield sample
    finally:
        durable.remove(sample)


def why_out_of_reach(sample: Path) -> str | None:
    """Return the reason why this process cannot see a sample file or write beside it, or None."""
    own = sample.with_name(_any_name())
    try:
        sample.stat()
        with durable.open_file(own, "wb") as file:
            file.write(b"sample")
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError:
        return "it sees no folder there, or another one"
    except OSError as error:
        return durable.reason(error)
    finally:
        with contextlib.suppress(OSError):
            durable.remove(own)
    return None


def await_written(folder: Path, lengths: Mapping[str, int]) -> None:
    """Wait until this process sees these lengths of files that others have written and made durable.

    Raises `WorkersLost` if it does not.
    """
    for name, length in lengths.items():
        late = time.monotonic() + _MAX_DELAY
        while (size := durable.size_or_zero(folder / name)) < length:
            if time.monotonic() > late:
                raise WorkersLost(
                    f"a worker wrote {length:,} bytes to {folder / name}, and this machine sees {size:,}"
                )
            time.sleep(0.1)


def _any_name() -> str:
    """Return a new name of a log that no pass needs: a file left by a crash is pruned with other logs."""
    return format.log_name(format.DUALS, 0, uuid.uuid4().hex)
