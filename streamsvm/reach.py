"""Whether another process, perhaps on another machine, sees a run directory and can write there."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamsvm import durable, format


class Sample(NamedTuple):
    """A file for others to look for."""

    path: Path
    content: str


@contextlib.contextmanager
def sample_file(folder: Path) -> Iterator[Sample]:
    """A file that is there until the end."""
    sample = Sample(folder / _any_name(), uuid.uuid4().hex)
    sample.path.write_text(sample.content)
    try:
        yield sample
    finally:
        durable.remove(sample.path)


def is_in_reach(sample: Sample) -> bool:
    """Whether this process sees a sample, and can write beside it."""
    own = sample.path.parent / _any_name()
    try:
        if sample.path.read_text() != sample.content:
            return False
        with durable.open_file(own, "wb") as file:
            file.write(sample.content.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            durable.remove(own)
    return True


def _any_name() -> str:
    """Of a log that no pass needs: what a crash leaves behind is deleted with other logs."""
    return format.log_name(format.DUALS, 0, uuid.uuid4().hex)
